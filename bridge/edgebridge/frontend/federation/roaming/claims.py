"""The sessions that a gateway claims from others when their clients connect to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Final, Protocol, TypeAlias

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.federation.roaming.transfer import RoamingTable, is_unused, remember
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX, CLIENT_ID_REFUSED
from edgebridge.session.credentials import AuthenticationResult
from edgebridge.session.lifecycle import ConnectionState
from edgebridge.session.session import Session
from edgebridge.wire.packets import Connect
from edgebridge.wire.properties import Properties
from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass
from edgebroker.federation.session_transfer import SessionClaim, SessionDenial, TransferKey
from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgebroker.names import ClientId

CONNECT_GRACE: Final[Duration] = 5 * SECOND
"""A connection whose CONNECT waits is kept for so long after the time in which other gateways have to answer."""

ResumeConnect: TypeAlias = Callable[[Connection, Connect, AuthenticationResult, Properties | None, Instant], None]


class SessionLocator(Protocol):
    """Knows at which other gateways clients have sessions (`federation.session_directory`)."""

    def holders(self, client_id: str) -> tuple[int, ...]:
        """Return the numbers of the gateways that may have a session of the client."""

    def is_known(self, gateway: int) -> bool:
        """Return whether it is known which sessions *gateway* has."""


@dataclass(slots=True)
class PendingConnect:
    """A CONNECT that waits for the session of its client."""

    connection: Connection
    connect: Connect
    verdict: AuthenticationResult
    proof: Properties | None
    due: Instant


@dataclass(slots=True)
class PendingClaim:
    """A session that is being claimed."""

    number: int
    awaited: set[int]
    """The gateways that have not answered."""
    pending: PendingConnect | None = None
    is_answered: bool = False
    successors: set[tuple[TransferKey, int]] = field(default_factory=set)
    """Later claims of other gateways, and whom these asked: what comes by this one goes on to the last of them."""


class SessionClaims:
    """The sessions that this gateway claims from others, and the CONNECTs that wait for them."""

    def __init__(self, table: RoamingTable) -> None:
        self._table = table
        self._node = table.node
        self._keeper = table.keeper
        self._journal = table.journal
        self._locator: SessionLocator | None = None
        self._resume_connect: ResumeConnect | None = None
        self._wait: Duration = 0
        self._claims: dict[str, PendingClaim] = {}
        self._overtaken: dict[str, PendingClaim] = {}
        """Claims that are not answered, and whose clients have gone on to other gateways."""
        self._numbers: dict[str, int] = {}
        """Client -> the number of the claim by which its session came, or that it would have had when it began here."""
        self._unanswered: set[str] = set()
        """Clients whose sessions began because no gateway had answered in time."""
        self._mute: set[int] = set()
        """Gateways of which it was not known what sessions they have, and that did not answer a claim in time: they may
        be of an older version, or switched off. None is waited for again before it says what it has.
        """
        self._last_number = 0
        self.claimed = 0
        """Sessions that were claimed from other gateways."""
        self.timed_out = 0
        """CONNECTs that were answered with a new session because no gateway had answered in time."""

    def attach(self, locator: SessionLocator | None, wait: Duration, resume_connect: ResumeConnect) -> None:
        """Ask *locator* where sessions are. *wait*: how long a CONNECT waits for other gateways. *resume_connect*: lets
        a client in that waited.
        """
        self._locator, self._wait, self._resume_connect = locator, wait, resume_connect

    def locate(
        self,
        connection: Connection,
        connect: Connect,
        verdict: AuthenticationResult,
        proof: Properties | None,
        now: Instant,
    ) -> bool:
        """Claim the session of a client that connects here, if another gateway may have one. Returns whether the
        CONNECT has to wait for it.
        """
        client = connect.client_id
        if self._locator is None or self._journal.storage is None or client.startswith(BRIDGE_CLIENT_PREFIX):
            return False
        claim, session = self._claims.get(client), self._keeper.sessions.get(ClientId(client))
        if session is not None and self.is_dispensable(session):  # its client may not have heard of it
            self.end_unused(session, now)
            session = None
        if claim is None and session is not None:
            self._claim_others(connect, session, verdict.user, now)
            return False
        if claim is None or not (session is not None or claim.is_answered):  # a later claim, wherever an earlier one is
            unanswered = set[int]() if claim is None else claim.awaited
            if claim is not None:
                self._refuse_pending(claim)
                del self._claims[client]
            claim = self._claim(connect, verdict.user, unanswered, now)
            if claim is None:
                return False
        self._refuse_pending(claim)
        pending = claim.pending = PendingConnect(connection, connect, verdict, proof, now + self._wait)
        connection.state = ConnectionState.AUTHENTICATING
        connection.is_held = True
        self._node.timers.set(("connect", connection.number), pending.due + CONNECT_GRACE)
        self._table.plan(pending.due)
        return True

    def _claim(self, connect: Connect, user: str, unanswered: set[int], now: Instant) -> PendingClaim | None:
        """Claim the session of a client from the gateways that may have one; None: nobody is waited for. *unanswered*:
        the gateways that have not answered an earlier claim.
        """
        client = connect.client_id
        holders = self._holders(client) | unanswered
        number = self._next_number(now)
        remember(self._numbers, client, number)
        if not holders:
            return None
        key = TransferKey(self._table.own, number, client)
        for holder in holders:
            self._table.send(holder, SessionClaim(key, holder, connect.clean_start, user), now)
        self.claimed += 1
        if connect.clean_start:
            return None
        claim = self._claims[client] = PendingClaim(number, holders)
        return claim

    def _claim_others(self, connect: Connect, session: Session, user: str, now: Instant) -> None:
        """A client connects that has its *session* here: what other gateways have of it follows."""
        assert self._locator is not None
        client = connect.client_id
        if not self._keeper.may_have(session, user):
            return
        number = self._next_number(now)
        remember(self._numbers, client, number)
        for holder in self._locator.holders(client):
            claim = SessionClaim(TransferKey(self._table.own, number, client), holder, connect.clean_start, user)
            self._table.send(holder, claim, now)
            self.claimed += 1

    def _next_number(self, now: Instant) -> int:
        """Return a number for a claim: milliseconds since 1970, or more if a later one is known."""
        self._last_number = max(self._last_number + 1, (now + self._journal.clock_offset) // MILLISECOND)
        return self._last_number

    def number_of(self, client: str) -> int:
        """Return the number of the last claim of this gateway for the session of *client*, or the number that a claim
        would have had when the client connected; 0 if that is not known any more.
        """
        return self._numbers.get(client, 0)

    def forget_number(self, client: str) -> None:
        """Know no longer by which claim the session of *client* came."""
        self._numbers.pop(client, None)

    def note_arrival(self, client: str, number: int) -> None:
        """Know that the session of *client* came by the claim *number*, unless it has come by a later one."""
        remember(self._numbers, client, max(self._numbers.get(client, 0), number))
        self._table.sent.pop(client, None)

    def number_seen(self, number: int) -> None:
        """Let the next claim be later than *number*, of another gateway: clocks differ."""
        self._last_number = max(self._last_number, number)

    def _holders(self, client: str) -> set[int]:
        assert self._locator is not None
        holders = set(self._locator.holders(client))
        others = self._table.member.peers.gossip.link_state.others()
        holders |= {each for each in others if not self._locator.is_known(each) and each not in self._mute}
        holders.add(self._table.whereabouts(client)[1])  # that gateway's own announcement may be on its way
        self._table.gone.pop(client, None)
        self._table.sent.pop(client, None)
        return holders - {self._table.own}

    def client_gone(self, key: TransferKey, asked: int) -> bool:
        """Know that the client of a claim is at another gateway, which asked *asked*, and no longer waits here. Returns
        whether its session may still come, by an earlier claim: then it goes on, or `denied` tells that gateway that
        there is none.
        """
        client = key.client
        self._table.note_gone(key)
        claim = self._claims.get(client)
        if claim is not None and claim.number < key.number:
            del self._claims[client]
            self._refuse_pending(claim)
            if not claim.is_answered:
                remember(self._overtaken, client, claim)
        overtaken = self._overtaken.get(client)
        if overtaken is None or overtaken.number >= key.number:
            return False
        overtaken.successors.add((key, asked))
        return True

    def _refuse_pending(self, claim: PendingClaim) -> None:
        """Refuse the CONNECT that waits for *claim*: its client has connected again."""
        pending, claim.pending = claim.pending, None
        if pending is not None and not pending.connection.closing:
            why = "the client connected again elsewhere"
            client = pending.connect.client_id
            self._keeper.refuse(pending.connection, ReasonCode.SERVER_BUSY, why, client=client)

    def is_dispensable(self, session: Session) -> bool:
        """Return whether *session* began because no gateway had answered in time, and has not been used yet."""
        return session.client_id in self._unanswered and is_unused(session)

    def end_unused(self, session: Session, now: Instant) -> None:
        """End *session*, and the connection that it may have."""
        if session.connection is not None:
            self._keeper.take_over(session, now)
        if ClientId(session.client_id) in self._keeper.sessions:
            self._keeper.end_session(session, now)

    def found_elsewhere(self, clients: Iterable[str], gateway: int, stamp_ms: int, now: Instant) -> None:
        """Handle that *gateway* may have a session of *clients*, who have one here: the news of one of them were late.
        Each of the two claims the other one, and that of the gateway at which the client connected last holds.
        *stamp_ms*: when the session began there.
        """
        for client in clients:
            session = self._keeper.sessions.get(ClientId(client))
            if session is not None:
                key = TransferKey(self._table.own, self.number_of(client), client)
                self._table.send(gateway, SessionClaim(key, gateway, False, session.user), now)
                self.claimed += 1
        self.number_seen(stamp_ms)

    def denied(self, denial: SessionDenial, now: Instant) -> None:
        """Handle that a gateway has no session for a claim, or refuses it."""
        key, asked = denial.key, denial.asked
        number, gateway = denial.later
        self.number_seen(number)
        claim = self._claims.get(key.client)
        if claim is not None and claim.number == key.number:  # that of an earlier claim says nothing of this one
            if denial.is_refused:
                self._refuse_user(claim, key.client)
            elif number > key.number:  # the client is there, and waits here no longer
                self.client_gone(TransferKey(gateway, number, key.client), self._table.own)
            else:
                claim.awaited.discard(asked)
                if not claim.awaited:
                    claim.is_answered = True
                    self._table.plan(now + 1)
        overtaken = self._overtaken.get(key.client)
        if overtaken is not None and overtaken.number == key.number:
            overtaken.awaited.discard(asked)
            if not overtaken.awaited:
                del self._overtaken[key.client]
                for successor, successor_asked in sorted(overtaken.successors):
                    self._table.send(successor.gateway, SessionDenial(successor, successor_asked), now)

    def _refuse_user(self, claim: PendingClaim, client: str) -> None:
        """Refuse the CONNECT that waits for *claim*: its user may not have the session of *client*."""
        pending, claim.pending = claim.pending, None
        del self._claims[client]
        if pending is not None and not pending.connection.closing:
            invalid = ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
            self._keeper.refuse(pending.connection, invalid, CLIENT_ID_REFUSED, client=client)

    def is_claimed(self, client: str) -> bool:
        """Return whether the session of *client* is being claimed."""
        return client in self._claims

    def answered(self, client: str, is_here: bool) -> None:
        """The session of *client* has come. If it stays here, its CONNECT, if one waits, waits no longer."""
        self._overtaken.pop(client, None)
        claim = self._claims.get(client)
        if claim is not None and is_here:
            claim.is_answered = True

    def dues(self) -> list[Instant]:
        """Return when the CONNECTs that wait have waited for long enough."""
        return [claim.pending.due for claim in self._claims.values() if claim.pending is not None]

    def resume_connects(self, now: Instant) -> None:
        """Let in the clients whose sessions are here, or have been waited for long enough."""
        assert self._resume_connect is not None
        assert self._locator is not None
        for client, claim in [*self._claims.items()]:
            pending = claim.pending
            if pending is None or not (claim.is_answered or pending.due <= now):
                continue
            del self._claims[client]
            connection = pending.connection
            if connection.state is ConnectionState.AUTHENTICATING and not connection.closing:
                if not claim.is_answered:
                    self.timed_out += 1
                    self._unanswered.add(client)
                    self._mute |= {each for each in claim.awaited if not self._locator.is_known(each)}
                self._resume_connect(connection, pending.connect, pending.verdict, pending.proof, now)

    def session_ended(self, client: str) -> None:
        """The session of *client* is no more."""
        self.forget_number(client)
        self._unanswered.discard(client)
