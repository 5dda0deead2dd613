"""The moves of sessions that one gateway knows, and what its claims, departures and arrivals share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from edgebridge.frontend.client_moves import ClientMoves
from edgebridge.frontend.connection import Connection
from edgebridge.frontend.event_buffer import SESSION_STRANDED, EventBuffer
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.frontend.session_quota import SessionQuota
from edgebridge.session.acl import Acl
from edgebridge.session.durability import Durability
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.journal.state import StoredSubscription
from edgebridge.session.journal.transfer_records import (
    StoredTransfer,
    TransferFlag,
    copy_event_record,
    known_events_record,
    last_events_record,
    transfer_record,
)
from edgebridge.session.session import Session
from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass
from edgebroker.federation.effects import Effect
from edgebroker.federation.router import FederationRouter
from edgebroker.federation.session_transfer import TransferKey, TransferMessage, encode_transfer
from edgebroker.instants import NEVER, SECOND, Duration, Instant
from edgebroker.log_schema import Cause, EventId
from edgebroker.names import ClientId
from edgebroker.node.node import Node

ROAMING: Final = ("roaming",)
"""The deadline of moves and claims."""
LATE_FOR: Final[Duration] = 10 * SECOND
"""What was on its way to the old gateway when all others knew the new one has so long to arrive: as long as an event
waits for its predecessor (`reorder_buffer.WAIT_MAX`)."""
KNOWN_FOR: Final[Duration] = 60 * SECOND
"""Events that came with a session are known for so long after it has come as a whole."""
NUMBERS_MAX: Final = 10_000
"""Clients of whose sessions it is known since which claim they are here, or where they have gone; each takes about 200
bytes."""

_T = TypeVar("_T")
ArrivalKey: TypeAlias = tuple[TransferKey, int]
"""A move, and the number of the gateway that the session comes from: two may have answered one claim."""


class RoamingMember(Protocol):
    """The gateway's part in the federation (`federation.federation`)."""

    @property
    def peers(self) -> FederationRouter:
        """The way to other gateways."""

    def perform(self, effects: Iterable[Effect], now: Instant) -> object:
        """Do what routing wants done."""


class SessionKeeper(Protocol):
    """Begins, renames and ends the sessions of clients (`handlers.connect`)."""

    @property
    def sessions(self) -> dict[ClientId, Session]:
        """The sessions that are here."""

    @property
    def events(self) -> EventBuffer:
        """What the operator's log is to say."""

    @property
    def moves(self) -> ClientMoves:
        """The clients that were sent to other gateways."""

    @property
    def session_quota(self) -> SessionQuota:
        """How many sessions there may be."""

    def refuse(self, connection: Connection, reason: ReasonCode, why: str, *, client: str) -> None:
        """Answer the CONNECT of *client* with *reason*, and close."""

    def may_have(self, session: Session, user: str) -> bool:
        """Return whether *user* may use the client identifier of *session*."""

    def begin_absent(
        self, client_id: ClientId, user: str, claims: Acl | None, expiry_s: int, durability: Durability, now: Instant
    ) -> Session:
        """Begin the session of a client that has had it at another gateway, and is not connected."""

    def rename_departing(self, session: Session, name: ClientId) -> None:
        """Give *session*, whose client is not connected, another name."""

    def take_over(self, session: Session, now: Instant) -> None:
        """End the connection of *session*."""

    def end_session(self, session: Session, now: Instant) -> None:
        """End *session*, whose client is away."""


class SubscriptionRestorer(Protocol):
    """Grants a session what it was granted before (`handlers.subscribe`)."""

    def restore(self, session: Session, stored: StoredSubscription, now: Instant) -> None:
        """Let a subscription hold again. Raises EdgebrokerError if nobody can hold it any more."""


@dataclass(slots=True)
class Transfer:
    """A move of one session, as one of the two gateways knows it."""

    key: TransferKey
    peer: int
    """The number of the other gateway."""
    flags: TransferFlag
    sequence: int = 0
    """The last piece that was sent, or that came."""
    acknowledged: int = 0
    """The last piece for which there is a receipt."""
    due: Instant = NEVER
    """When the next step follows: a departure ends, an arrival is forgotten."""

    @property
    def is_open(self) -> bool:
        """Whether more pieces come."""
        return not self.flags & TransferFlag.LAST

    def stored(self) -> StoredTransfer:
        """Return what the journal has to know."""
        key = self.key
        return StoredTransfer(self.flags, self.peer, key.gateway, key.number, self.sequence, key.client)


class SessionMoves(NamedTuple):
    """Where a session comes from, and where it goes to, for people."""

    arrives_from: tuple[str, ...]
    """The gateways from which pieces are still to come."""
    goes_to: str | None
    """The gateway to which it departs; None: it does not."""
    held: int
    """This gateway's own copies, which wait behind what comes."""


@dataclass(slots=True)
class RoamingSession:
    """A session that departs, arrives, or does both."""

    session: Session
    departure: Transfer | None = None
    arrivals: dict[ArrivalKey, Transfer] = field(default_factory=dict)
    events: dict[int, EventId] = field(default_factory=dict)
    """Copy -> its event, of what may come to the next gateway too."""
    held: dict[EventId, QueueEntry] = field(default_factory=dict)
    """This gateway's own copies, which wait until the session has come as a whole."""
    known: dict[EventId, None] = field(default_factory=dict)
    """Events that came with the session, or were delivered while it did."""
    last: dict[int, int] = field(default_factory=dict)
    """Publisher -> the sequence of its last event that the gateways saw from which the session comes: what is not later
    came there, or comes with the session."""
    inherited: set[str] = field(default_factory=set)
    """The subscriptions that came with the session."""

    @property
    def is_arriving(self) -> bool:
        """Whether pieces are still to come."""
        return any(arrival.is_open for arrival in self.arrivals.values())

    @property
    def is_moving(self) -> bool:
        """Whether pieces are still to come, or to go."""
        return self.departure is not None or self.is_arriving

    def records(self) -> Iterator[bytes]:
        """Yield what the journal has to know of the session's moves, said again."""
        session = self.session
        for transfer in [*self.arrivals.values(), *([] if self.departure is None else [self.departure])]:
            yield transfer_record(session.number, transfer.stored())
        waiting = {entry.number for entry in [*session.inflight, *session.outbox]}
        for copy, event in [*self.events.items()]:
            if copy in waiting or session.outbox.pages:
                yield copy_event_record(session.number, copy, event, False)
        for event, entry in [*self.held.items()]:
            yield copy_event_record(session.number, entry.number, event, True)
        if self.known:
            yield known_events_record(session.number, [*self.known])
        if self.last:
            yield last_events_record(session.number, [*self.last.items()])


class RoamingTable:
    """The moves of one gateway, and the ways to the other gateways, to the journal and to the timers."""

    def __init__(self, node: Node, keeper: SessionKeeper, journal: SessionJournal) -> None:
        self.node = node
        self.keeper = keeper
        self.journal = journal
        self.states: Final[dict[str, RoamingSession]] = {}
        """Name of a session that moves -> its state. It stays the same dict."""
        self.departures: dict[TransferKey, RoamingSession] = {}
        self.arrivals: dict[ArrivalKey, RoamingSession] = {}
        self.gone: dict[str, tuple[int, int]] = {}
        """Client -> the number of the last claim of its session by another gateway, and that gateway."""
        self.sent: dict[str, tuple[int, int]] = {}
        """Client -> the number of the claim by which all of its session has gone, and the gateway that has got it."""
        self.last: dict[int, int] = {}
        """Publisher -> the sequence of the last event that any gateway saw from which a session comes."""
        self.stranded = 0
        """Moves that ended because the other gateway was taken out of the topology."""
        self.unreadable = 0
        """Messages and records of other gateways that could not be read."""
        self._member: RoamingMember | None = None
        self._due: Instant = NEVER

    def attach(self, member: RoamingMember) -> None:
        """Belong to *member*."""
        self._member = member

    @property
    def member(self) -> RoamingMember:
        """The gateway's part in the federation."""
        assert self._member is not None
        return self._member

    @property
    def own(self) -> int:
        """The number of this gateway."""
        return self.member.peers.gateway.number

    def send(self, gateway: int, message: TransferMessage, now: Instant) -> None:
        """Send *message* to the gateway numbered *gateway*, behind what it was sent before; not if there is none."""
        member = self.member
        if self.has_gateway(gateway):
            member.perform(member.peers.send_in_order(gateway, encode_transfer(message), now), now)

    def record(self, session: Session, transfer: Transfer, now: Instant) -> None:
        """Tell the journal how far *transfer* of *session* is."""
        if session.number:
            self.journal.append(transfer_record(session.number, transfer.stored()), True, now)

    def plan(self, due: Instant) -> None:
        """Let `fire` be called at *due*, or earlier."""
        if due < self._due:
            self._due = due
            self.node.timers.set(ROAMING, due)

    def fired(self) -> None:
        """The deadline has come; whoever still waits for one plans it again."""
        self._due = NEVER

    def drop(self, session: Session, entry: QueueEntry, cause: Cause, now: Instant) -> None:
        """Count a copy that *session* does not get, because of *cause*."""
        self.node.ledger.drop(now, entry.publication, session.client_id, entry.text, entry.qos, cause)

    def has_gateway(self, gateway: int) -> bool:
        """Return whether the topology has the gateway numbered *gateway*."""
        return self.member.peers.gossip.link_state.name_of(gateway) is not None

    def name_of(self, gateway: int) -> str:
        """Return the name of the gateway numbered *gateway*, or its number if the topology does not have it."""
        return self.member.peers.gossip.link_state.name_of(gateway) or str(gateway)

    def note_stranded(self, transfer: Transfer) -> None:
        """Count, and tell the operator, that the other gateway of *transfer* is gone for good."""
        self.stranded += 1
        what = "to which it went" if transfer.flags & TransferFlag.DEPARTURE else "from which it came"
        text = f"the rest of a session is lost: gateway {transfer.peer}, {what}, is not in the topology any more"
        self.keeper.events.add_absent(SESSION_STRANDED, transfer.key.client, 0, text)

    def whereabouts(self, client: str, asker: int | None = None) -> tuple[int, int]:
        """Return the number of the last claim of the session of *client* by another gateway, and where it has gone.
        *asker*: a gateway that does not have it.
        """
        nowhere = 0, self.own
        found = [self.gone.get(client, nowhere), self.sent.get(client, nowhere)]
        for state in self.departures.values():
            departure = state.departure
            if departure is not None and departure.key.client == client:
                found.append((departure.key.number, departure.peer))
        known = [each for each in found if each[1] != asker and self.has_gateway(each[1])]
        return max(known, default=nowhere)

    def note_last(self, state: RoamingSession, last: Mapping[int, int]) -> None:
        """Know of *state* that the gateways from which it comes saw the events *last*, publisher -> sequence."""
        for publisher, sequence in last.items():
            state.last[publisher] = max(sequence, state.last.get(publisher, 0))
            self.last[publisher] = max(sequence, self.last.get(publisher, 0))

    def note_gone(self, key: TransferKey) -> None:
        """Know that the client of a claim is at another gateway."""
        client = key.client
        remember(self.gone, client, max(self.gone.get(client, (0, 0)), (key.number, key.gateway)))


def remember(known: dict[str, _T], client: str, value: _T) -> None:
    """Know *value* of *client*, and of NUMBERS_MAX clients at most: the one that was learned first is forgotten."""
    if client not in known and len(known) >= NUMBERS_MAX:
        del known[next(iter(known))]
    known[client] = value


def is_unused(session: Session) -> bool:
    """Return whether *session* has no subscriptions and no messages."""
    return not (session.subscribed or session.received or len(session.inflight) or len(session.outbox))
