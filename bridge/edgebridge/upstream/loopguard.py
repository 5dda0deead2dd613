"""Messages that would go round and round: recognised by where they come from, or by an echo of what was sent.

Towards version 5 remotes every message carries the user property `edgebroker-origin: GATEWAY HOPS`: the gateway that
first handed it to a bridge, and how many bridges it has crossed. It does not come in again where it began, nor leave to
where it began, and dies after HOPS_MAX bridges whatever else goes wrong. Both ends are asked not to give a bridge back
what it brought (`no local`).

Version 3.1.1 has neither. Mosquitto takes the private bit of CONNECT for `no local`; with any other remote, what is
sent under a topic that comes back is remembered, as a digest, until it has come back.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from edgebridge.upstream.rules import Rules
from edgebridge.upstream.terms import Granted
from edgebridge.wire.packets import Publish
from edgebridge.wire.properties import Properties, Property, user_properties
from edgebroker.instants import SECOND, Duration, Instant

ORIGIN: Final = "edgebroker-origin"
HOPS_MAX: Final = 16
"""Bridges in a row: longer chains than anybody builds, and 16 laps at most of a loop that nobody recognises."""
ECHO: Final[Duration] = 60 * SECOND
"""So long an echo is awaited: a remote that is busier than that has other troubles."""
ECHOES_MAX: Final = 8_192
"""Digests that are remembered; 150 bytes each with what holds them."""


class LoopGuard:
    """Of one bridge. `identity` is that of this gateway, the same in all its bridges."""

    def __init__(self, identity: str, rules: Rules) -> None:
        self._identity = identity
        self._rules = rules
        self._granted: Granted | None = None
        self._echoes: OrderedDict[int, tuple[Instant, int]] = OrderedDict()

    def begin(self, granted: Granted) -> None:
        """A remote is there."""
        self._granted = granted

    def leaves(self, publish: Publish, carried: Properties, now: Instant) -> bool:
        """Whether a message of ours, *publish* as the remote will get it, may go there. It gets its origin then.

        *carried*: the properties it has here, which version 3.1.1 does not get.
        """
        granted = self._granted
        assert granted is not None
        origin, hops = _origin_of(carried)
        if hops >= HOPS_MAX or (origin and origin == granted.identity):
            return False
        if granted.dialect.has_properties:
            others = [pair for pair in user_properties(publish.properties) if pair[0] != ORIGIN]
            stamp = ORIGIN, f"{origin or self._identity} {hops + 1}"
            publish.properties[Property.USER_PROPERTY] = [*others, stamp]
        elif not granted.dialect.is_bridge and self._rules.inward(publish.topic):
            self._expect(publish, now)
        return True

    def stamp(self, topic: str) -> Properties | None:
        """What every message of ours without properties gets that leaves under *topic*; None: each is looked at."""
        granted = self._granted
        assert granted is not None
        if granted.dialect.has_properties:
            return {Property.USER_PROPERTY: [(ORIGIN, f"{self._identity} 1")]}
        return None if not granted.dialect.is_bridge and self._rules.inward(topic) else {}

    @property
    def awaits_echoes(self) -> bool:
        """Whether messages that enter must be looked at one by one."""
        return bool(self._echoes)

    def enters(self, publish: Publish, now: Instant) -> bool:
        """Whether a message of the remote may come in here."""
        origin, hops = _origin_of(publish.properties)
        if hops >= HOPS_MAX or (origin and origin == self._identity):
            return False
        return not (self._echoes and not publish.dup and self._is_echo(_digest(publish), now))

    def _expect(self, publish: Publish, now: Instant) -> None:
        digest = _digest(publish)
        if publish.dup and publish.qos == 2 and digest in self._echoes:
            return  # the remote knows that it has it
        _, times = self._echoes.pop(digest, (now, 0))
        self._echoes[digest] = now, times + 1
        while self._echoes and (len(self._echoes) > ECHOES_MAX or next(iter(self._echoes.values()))[0] < now - ECHO):
            self._echoes.popitem(last=False)

    def _is_echo(self, digest: int, now: Instant) -> bool:
        """Whether one is awaited; then one less is."""
        at, times = self._echoes.get(digest, (now, 0))
        if times > 1:
            self._echoes[digest] = at, times - 1
        elif times:
            del self._echoes[digest]
        return times > 0 and at >= now - ECHO


def _origin_of(properties: Properties) -> tuple[str, int]:
    """(gateway, bridges crossed); ("", 0) of a message that has not crossed any, or that says nonsense."""
    for name, value in user_properties(properties):
        if name == ORIGIN:
            origin, _, hops = value.rpartition(" ")
            if origin and hops.isascii() and hops.isdigit() and len(hops) < 4:
                return origin, int(hops)
    return "", 0


def _digest(publish: Publish) -> int:
    """64 bits, which are the same in this run; a hash function of hashlib's would cost 4 MiB of OpenSSL."""
    return hash((publish.topic, publish.payload))
