"""Bridge pairs: several gateways have a bridge to the same remote broker. One of the bridges is active and carries
messages; the others stand by, so that nothing is carried twice.

The active one holds a *lease* with a number that grows, its *term*. The gateways of a pair tell each other the lease
that they know, and whether their own bridge is connected to the remote, in events of QoS 1 that go to all gateways of
the federation which have a pair: so they wait in outboxes and are neither lost nor doubled. Of two leases the one with
the higher term holds, of two with one term that of the gateway with the lower number.

A gateway takes the lease over when the holder has not been reachable, or not connected to the remote, for `takeover`,
and when no other gateway is better: one is better if it is connected and this one is not, or else if it has a lower
number. There is no way back: who holds the lease keeps it. Two parts of a federation that cannot reach each other have
a holder each until they can. A gateway that starts knows no lease; if it reaches nobody it takes one with the lowest
term, so it gives way to a holder that it meets later.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

from edgebroker.cbor import CborReader, encode_cbor
from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError
from edgebroker.federation.dead_peer_relay import FIRST_CONTACT_TIMEOUT
from edgebroker.federation.effects import SendMessage
from edgebroker.federation.retained_claims import GatewayPublisher
from edgebroker.instants import NEVER, SECOND, Duration, Instant
from edgebroker.overlay.link.codec.messages import LINK_CBOR
from edgebroker.topics import TopicFilter

PAIRS_TOPIC: Final = "$SYS/federation/bridges"
"""The topic of the events. Clients can neither publish to it nor get it from another gateway."""
PAIRS_FILTER: Final = TopicFilter.parse(PAIRS_TOPIC)
PAIRS_SUBSCRIPTION: Final = -1
"""The number of the gateway's own subscription to them; 0 is that to claims, and those of clients begin with 1."""
CHECK_INTERVAL: Final[Duration] = SECOND
"""How often a gateway looks whether the holder is there, and tells the others whether it is connected itself."""
_NUMBER_MAX: Final = 1 << 63


class PairRole(StrEnum):
    """The role of one gateway in a pair."""

    ACTIVE = "active"
    """Its bridge carries messages."""
    STANDBY = "standby"
    """Another one does."""
    UNDECIDED = "undecided"
    """It has heard of no lease yet."""


@dataclass(frozen=True, slots=True)
class PairStatement:
    """What a gateway tells the others of one pair."""

    pair: str
    term: int
    """Of the lease that it knows; 0: of none."""
    holder: int
    """The number of the gateway that has the lease."""
    is_ready: bool
    """Whether its own bridge is connected to the remote."""
    is_member: bool = True
    """False: it has no bridge of this pair any more."""
    wants_answer: bool = False
    """Whether the others are to tell what they know."""

    def encode(self) -> bytes:
        """Return the statement as the payload of an event."""
        values = (self.pair, self.term, self.holder, self.is_ready, self.is_member, self.wants_answer)
        return encode_cbor(list(values))

    @classmethod
    def decode(cls, payload: bytes) -> PairStatement | None:
        """Return the statement in *payload*; None if it cannot be read."""
        try:
            value: Any = CborReader(payload, LINK_CBOR).item()
        except EdgebrokerError:
            return None
        if type(value) is not list or [type(each) for each in value[:6]] != [str, int, int, bool, bool, bool]:
            return None
        return cls(*value[:6]) if 0 <= value[1] < _NUMBER_MAX and value[2] >= 0 else None


class BridgePair:
    """One pair as one of its gateways knows it."""

    def __init__(self, name: str, gateway: int, takeover: Duration, now: Instant) -> None:
        """*gateway*: the number of this one. *takeover*: how long a holder may be missing."""
        self.name = name
        self.takeover = takeover
        self.term = 0
        self.holder: int | None = None
        """The number of the gateway that has the lease, as far as this one knows."""
        self.is_ready = False
        """Whether this gateway's bridge is connected to the remote."""
        self.takeovers = 0
        """How often this gateway has taken the lease."""
        self.others: dict[int, bool] = {}
        """The other gateways of the pair -> whether their bridges are connected."""
        self._gateway = gateway
        self._missing_since: Instant | None = now
        self._told: bool | None = None  # what the others were told of `is_ready`; None: nothing yet

    @property
    def role(self) -> PairRole:
        """The role of this gateway."""
        if self.holder is None:
            return PairRole.UNDECIDED
        return PairRole.ACTIVE if self.is_active else PairRole.STANDBY

    @property
    def is_active(self) -> bool:
        """Whether this gateway's bridge carries messages."""
        return self.holder == self._gateway

    def receive(self, sender: int, statement: PairStatement) -> bool:
        """Handle what gateway *sender* tells; return whether it is to be answered."""
        if not statement.is_member:
            self.others.pop(sender, None)
            if self.holder == sender:
                self.holder, self._missing_since = None, -NEVER  # on purpose: nobody waits for it
            return False
        self.others[sender] = statement.is_ready
        if statement.term > self.term or (statement.term == self.term > 0 and statement.holder < self._rank):
            self.term, self.holder = statement.term, statement.holder
        return statement.wants_answer or statement.term < self.term

    @property
    def _rank(self) -> int:
        return _NUMBER_MAX if self.holder is None else self.holder

    def check(self, now: Instant, is_reachable: Callable[[int], bool], has_met: bool) -> PairStatement | None:
        """Take the lease over if it is time to; return what to tell the others, None if they know it. *has_met*: all
        links of the gateway are up, or it has had the time for that.
        """
        if self.holder is None and not has_met:
            self._missing_since = now
        elif self._is_held(is_reachable):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since >= self.takeover and self._is_best(is_reachable):
            self.term, self.holder = self.term + 1, self._gateway
            self.takeovers += 1
            self._missing_since = self._told = None
            return self.statement()
        return None if self._told == self.is_ready else self.statement()

    def statement(self, is_member: bool = True) -> PairStatement:
        """Return what to tell the others; they count as told. The first time they are asked too."""
        wants_answer = self._told is None and not self.is_active
        self._told = self.is_ready
        return PairStatement(self.name, self.term, self._rank, self.is_ready, is_member, wants_answer)

    def _is_held(self, is_reachable: Callable[[int], bool]) -> bool:
        """Return whether the holder carries messages."""
        holder = self.holder
        if holder is None:
            return False
        return holder == self._gateway or (is_reachable(holder) and self.others.get(holder, False))

    def _is_best(self, is_reachable: Callable[[int], bool]) -> bool:
        """Return whether this gateway is to have the lease. A holder that is reachable keeps messages for the remote,
        so a gateway that is not connected either takes nothing from it.
        """
        others = {number: is_ready for number, is_ready in self.others.items() if is_reachable(number)}
        if not self.is_ready and self.holder in others:
            return False
        return all((not self.is_ready, self._gateway) < (not others[number], number) for number in others)


class BridgePairs:
    """The pairs of one gateway."""

    def __init__(
        self,
        publisher: GatewayPublisher,
        gateway: int,
        is_reachable: Callable[[int], bool],
        has_met_all: Callable[[], bool],
    ) -> None:
        """gateway: the number of this one. is_reachable: tells it of the gateway with a number. has_met_all: whether
        all links of this one are up.
        """
        self._publisher = publisher
        self._gateway = gateway
        self._is_reachable = is_reachable
        self._has_met_all = has_met_all
        self._meeting_until: Instant | None = None  # so long after the start links may take to come up
        self._pairs: dict[str, BridgePair] = {}
        self._changed: list[str] = []
        self.next_due: Instant | None = None
        """When to call `check`; None: there are no pairs."""

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def find(self, name: str) -> BridgePair | None:
        """Return the pair *name*; None if this gateway does not belong to it."""
        return self._pairs.get(name)

    def take_changes(self) -> list[str]:
        """Return the pairs in which this gateway has another role since the previous call."""
        changed, self._changed = self._changed, []
        return changed

    def join(self, name: str, takeover: Duration, now: Instant) -> None:
        """Belong to the pair *name*, or go on with another *takeover*. The others are told by the next `check`."""
        pair = self._pairs.setdefault(name, BridgePair(name, self._gateway, takeover, now))
        pair.takeover = takeover
        self.next_due = now

    def leave(self, name: str, now_ms: int, now: Instant) -> list[SendMessage]:
        """Belong to the pair *name* no more. *now_ms*: milliseconds since 1970."""
        pair = self._pairs.pop(name, None)
        if not self._pairs:
            self.next_due = None
        return [] if pair is None else self._tell(pair.statement(is_member=False), now_ms, now)

    def joined(self) -> list[tuple[str, Duration]]:
        """Return the pairs, each with how long a holder may be missing."""
        return [(pair.name, pair.takeover) for pair in self._pairs.values()]

    def resume(self, before: BridgePairs) -> None:
        """Take over the leases that *before* knew."""
        for name, pair in self._pairs.items():
            if (old := before.find(name)) is not None:
                pair.term, pair.holder, pair.is_ready = old.term, old.holder, old.is_ready

    def check(self, now: Instant, now_ms: int) -> list[SendMessage]:
        """Look at all pairs; return what the others are told."""
        self.next_due = now + CHECK_INTERVAL if self._pairs else None
        sends = []
        self._meeting_until = now + FIRST_CONTACT_TIMEOUT if self._meeting_until is None else self._meeting_until
        has_met = now >= self._meeting_until or self._has_met_all()
        for pair in self._pairs.values():
            before = pair.role
            statement = pair.check(now, self._is_reachable, has_met)
            self._note_change(pair, before)
            sends += [] if statement is None else self._tell(statement, now_ms, now)
        return sends

    def receive(self, sender: int, payload: bytes, now_ms: int, now: Instant) -> list[SendMessage]:
        """Handle the event of gateway *sender*; return what it is answered."""
        statement = PairStatement.decode(payload)
        pair = None if statement is None else self._pairs.get(statement.pair)
        if statement is None or pair is None or sender == self._gateway:
            return []
        before = pair.role
        is_to_answer = pair.receive(sender, statement)
        self._note_change(pair, before)
        return self._tell(pair.statement(), now_ms, now) if is_to_answer else []

    def _note_change(self, pair: BridgePair, before: PairRole) -> None:
        if pair.role is not before:
            self._changed.append(pair.name)

    def _tell(self, statement: PairStatement, now_ms: int, now: Instant) -> list[SendMessage]:
        return self._publisher.publish(PAIRS_TOPIC, statement.encode(), now_ms, now, is_for_all=True)
