"""Loop detection: messages that come back over bridges are recognised by their origin, or as an echo.

Every message that crosses a bridge carries its origin (`wire.user_properties`): the gateway or foreign broker that
published it first. It is not forwarded to its origin, and is dropped after HOPS_MAX bridges. Both ends are asked for
`no local`. MQTT 3.1.1 has no properties: there Mosquitto takes the private bit of CONNECT for `no local`, and with any
other remote a digest of what was sent is stored until its echo returns.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from edgebridge.bridge.options import BridgeOptions, RemoteCapabilities
from edgebridge.bridge.rules import RuleSet
from edgebridge.wire.packets import Publish
from edgebridge.wire.properties import Properties, Property, user_properties
from edgebridge.wire.user_properties import ORIGIN_PROPERTY, Origin
from edgebroker.instants import SECOND, Duration, Instant

HOPS_MAX: Final = 16
"""Bridges in a row: longer chains than anybody builds, and 16 laps at most of a loop that nobody recognises."""
ECHO_TIMEOUT: Final[Duration] = 60 * SECOND
"""So long an echo is awaited: a remote that is busier than that has other troubles."""
ECHOES_MAX: Final = 8_192
"""Digests that are remembered; 150 bytes each with what holds them."""


class LoopDetector:
    """Of one bridge."""

    def __init__(self, terms: BridgeOptions, rules: RuleSet) -> None:
        self._here = terms.identity
        self._alias = terms.remote_alias
        self._sends_origin = terms.sends_origin
        self._rules = rules
        self._capabilities: RemoteCapabilities | None = None
        self._echoes: OrderedDict[int, tuple[Instant, int]] = OrderedDict()
        self._recognised: dict[int, int] = {}
        """Echoes by the packet identifier that the remote used last for them; at most as many as its window is wide."""
        self._recognised_at: Instant | None = None
        """When that was of use last; None: a connection began since, and what is repeated may come now."""

    def begin(self, granted: RemoteCapabilities) -> None:
        """A remote is there."""
        self._capabilities = granted
        self._recognised_at = None
        if not granted.session_present:
            self._recognised.clear()

    def admit_outbound(self, publish: Publish, carried: Properties, now: Instant) -> bool:
        """Whether a message of ours, *publish* as the remote will get it, may go there. It gets its origin then.

        *carried*: the properties it has here, which version 3.1.1 does not get.
        """
        granted = self._capabilities
        assert granted is not None
        origin = Origin.of(carried)
        if origin.hops >= HOPS_MAX or (origin.gateway and origin.gateway in (granted.gateway_identity, self._alias)):
            return False
        if granted.dialect.has_properties:
            self._set_origin(publish, origin, self._here)
        elif self.awaits_echo_of(publish.topic):
            self._expect(publish, now)
        return True

    def admit_inbound(self, publish: Publish, now: Instant) -> bool:
        """Whether a message of the remote may come in here. It gets its origin then."""
        origin = Origin.of(publish.properties)
        if origin.hops >= HOPS_MAX or (origin.gateway and origin.gateway == self._here):
            return False
        if self.awaits_echoes:
            self._forget_old(now)
            if self._comes_back(publish, now):
                return False
        self._set_origin(publish, origin, self._there)
        return True

    def awaits_echo_of(self, topic: str) -> bool:
        """Whether what leaves under *topic* may come back, and be known only by its digest: each is looked at."""
        granted = self._capabilities
        assert granted is not None
        dialect = granted.dialect
        return not (dialect.has_properties or dialect.is_bridge) and bool(self._rules.match_inbound(topic))

    @property
    def awaits_echoes(self) -> bool:
        """Whether messages that enter must be looked at one by one."""
        return bool(self._echoes or self._recognised)

    @property
    def _there(self) -> str:
        return (self._capabilities.gateway_identity if self._capabilities is not None else "") or self._alias

    def _set_origin(self, publish: Publish, origin: Origin, gateway: str) -> None:
        """Let *publish* carry its origin, which is *gateway* if it has none yet."""
        if not self._sends_origin or not (origin.gateway or gateway):
            return
        others = [pair for pair in user_properties(publish.properties) if pair[0] != ORIGIN_PROPERTY]
        told = Origin(origin.gateway or gateway, origin.hops + 1)
        publish.properties[Property.USER_PROPERTY] = [*others, told.pair()]

    def _expect(self, publish: Publish, now: Instant) -> None:
        digest = _digest(publish)
        if publish.dup and publish.qos == 2 and digest in self._echoes:
            return  # the remote knows that it has it
        _, times = self._echoes.pop(digest, (now, 0))
        self._echoes[digest] = now, times + 1
        self._forget_old(now)

    def _forget_old(self, now: Instant) -> None:
        """End what nobody awaits any more, so that others may go the short way again."""
        while self._echoes and (
            len(self._echoes) > ECHOES_MAX or next(iter(self._echoes.values()))[0] < now - ECHO_TIMEOUT
        ):
            self._echoes.popitem(last=False)
        if self._recognised_at is None:
            self._recognised_at = now
        elif self._recognised_at < now - ECHO_TIMEOUT:
            self._recognised.clear()

    def _comes_back(self, publish: Publish, now: Instant) -> bool:
        """Whether *publish* is an echo. One that is repeated, because our answer was lost, was awaited once only."""
        digest, packet_id = _digest(publish), publish.packet_id
        if publish.dup and self._recognised.get(packet_id) == digest:
            return True
        self._recognised.pop(packet_id, None)
        if not self._is_echo(digest, now):
            return False
        if publish.qos:
            self._recognised[packet_id], self._recognised_at = digest, now
        return True

    def _is_echo(self, digest: int, now: Instant) -> bool:
        """Whether one is awaited; then one less is."""
        at, times = self._echoes.get(digest, (now, 0))
        if times > 1:
            self._echoes[digest] = at, times - 1
        elif times:
            del self._echoes[digest]
        return times > 0 and at >= now - ECHO_TIMEOUT


def _digest(publish: Publish) -> int:
    """64 bits, which are the same in this run; a hash function of hashlib's would cost 4 MiB of OpenSSL."""
    return hash((publish.topic, publish.payload))
