"""Wills in a federation: the keeper of this gateway is told of them, and those of dead gateways are published."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final, Protocol

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.journal.session_journal import SessionJournal
from edgebridge.session.session import Session
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.packets import Will
from edgebridge.wire.properties import Carrier, Properties, Property, encode_properties, number, read_properties
from edgebridge.wire.reasons import ReasonCode
from edgebroker.federation.effects import PublishWills, SendMessage
from edgebroker.federation.pending_wills import read_notice
from edgebroker.federation.router import FederationRouter
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.limits import KIB
from edgebroker.names import ClientId
from edgebroker.node.timers import TimerQueue
from edgebroker.overlay.messages import PendingWill, PendingWills
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.publication import Publication

WILLS_AT_ONCE: Final = 64
"""Wills in a message to the keeper: 1 ms at 15 us each."""
MESSAGE_BYTES: Final = 64 * KIB
"""A message of this size is closed, whatever follows."""
MESSAGE_INTERVAL: Final = 5 * MILLISECOND
WILL_WAS_PUBLISHED: Final = "other gateways took this one for dead, and the client's will was published"


class WillOwners(Protocol):
    """The clients of a gateway, as its handler of CONNECT knows them."""

    @property
    def sessions(self) -> Mapping[ClientId, Session]:
        """All sessions."""

    def disconnect(self, connection: Connection, reason: ReasonCode, why: str = "") -> None:
        """Close the connection of a client."""


class WillPublisher(Protocol):
    """The handler of PUBLISH."""

    def publish_foreign_will(self, client: ClientId, will: Will, now: Instant) -> None:
        """Publish the will of another gateway's client."""


class FederatedWills:
    """The wills of one gateway's clients, and those that it publishes for another gateway."""

    def __init__(
        self,
        connect_handler: WillOwners,
        publish_handler: WillPublisher,
        session_journal: SessionJournal,
        timers: TimerQueue,
    ) -> None:
        self._connect_handler = connect_handler
        self._publish_handler = publish_handler
        self._journal = session_journal
        self._timers = timers
        self._peers: FederationRouter | None = None
        self._keeper: str | None = None
        self._boot = 0
        self._is_told = False  # whether the link to the keeper is up, and it knows the messages
        self._is_first = False
        self._is_resumed = False
        self._changed: dict[str, None] = {}  # clients, in the order of their changes
        self.held: dict[str, Instant] = {}
        """Clients whose wills an earlier run left, and when those are due, until the keeper has answered."""
        self.due: Instant | None = None
        """When to go on with telling the keeper."""

    def attach(self, peers: FederationRouter, boot: int, is_enabled: bool) -> None:
        """Tell the keeper from now on; *peers* says who the keeper is, *boot* which run this is."""
        self._peers, self._boot = peers, boot
        self._keeper = peers.wills.keeper if is_enabled else None

    def hold_restored(self) -> None:
        """Hold back the wills that an earlier run left: the keeper may have published them."""
        if self._keeper is None or self._is_resumed:
            return
        for client, session in self._connect_handler.sessions.items():
            if session.will is not None and session.connection is None:
                self.held[client] = _due(session, session.will)
                self._timers.cancel(("will", client))

    def take_over(self, before: FederatedWills, now: Instant) -> None:
        """Go on for *before*, in another topology."""
        self._is_resumed, self.held = True, before.held
        if self._keeper is None:
            self._release(now)

    def _release(self, now: Instant) -> None:
        """Let the wills that were held back go out when they are due."""
        for client, due in self.held.items():
            self._timers.set(("will", client), max(due, now + 1))
        self.held = {}

    # -- telling the keeper ---------------------------------------------------------------------------------------

    def will_changed(self, client: ClientId) -> None:
        """The will of *client* is another one, or is none any more, or its client has left."""
        self.held.pop(client, None)
        if self._is_told:
            self._changed[client] = None

    def link_up(self, peer: str, capabilities: frozenset[str], now: Instant) -> None:
        """The link to *peer* is open."""
        if peer != self._keeper:
            return
        if "wills" not in capabilities:  # it has published none
            self._release(now)
            return
        self._is_told = self._is_first = True
        sessions = self._connect_handler.sessions.items()
        self._changed = dict.fromkeys(
            client for client, session in sessions if session.will is not None and client not in self.held
        )

    def link_down(self, peer: str) -> None:
        """The link to *peer* is lost."""
        if peer == self._keeper:
            self._is_told = False
            self._changed = {}

    def drain(self) -> list[SendMessage]:
        """The gateway is about to stop, and publishes its wills itself."""
        if not self._is_told or self._keeper is None:
            return []
        self._is_told = False
        return [SendMessage(self._keeper, PendingWills(self._boot, True, False, (), ()), TrafficClass.CONTROL)]

    def take_messages(self, now: Instant) -> list[SendMessage]:
        """What the keeper is to be told now."""
        if not (self._changed or self._is_first) or (self.due is not None and now < self.due) or self._keeper is None:
            return []
        wills: list[PendingWill] = []
        settled: list[str] = []
        size = 0
        for client in list(islice(self._changed, WILLS_AT_ONCE)):
            del self._changed[client]
            will = self._pending(ClientId(client), now)
            if will is None:
                settled.append(client)
            else:
                wills.append(will)
                size += len(will.payload) + len(will.properties)
            if size >= MESSAGE_BYTES:
                break
        wants_answer = bool(self.held) and not self._changed
        message = PendingWills(self._boot, self._is_first, wants_answer, tuple(wills), tuple(settled))
        self._is_first = False
        self.due = now + MESSAGE_INTERVAL if self._changed else None
        return [SendMessage(self._keeper, message, TrafficClass.CONTROL)]

    def _pending(self, client: ClientId, now: Instant) -> PendingWill | None:
        session = self._connect_handler.sessions.get(client)
        will = None if session is None else session.will
        if session is None or will is None or not _may_publish(session, will, now):
            return None
        is_gone = session.connection is None
        delay_s = max(0, _due(session, will) - now) // SECOND if is_gone else _delay_s(session, will)
        return _pending_will(client, will, delay_s, is_gone)

    # -- what the keeper says -------------------------------------------------------------------------------------

    def notice_received(self, payload: bytes, now: Instant) -> None:
        """A keeper has published a will, or has told all."""
        notice = read_notice(payload)
        if notice is None or self._peers is None or notice.gateway != self._peers.gateway.number:
            return
        if not notice.client:
            if notice.number == self._boot:
                self._release(now)
            return
        session = self._connect_handler.sessions.get(ClientId(notice.client))
        if session is None or session.will is None:
            return
        if _pending_will(notice.client, session.will, 0, False).fingerprint() != notice.number:
            return
        session.will = None
        connection = session.connection
        if connection is not None:
            self._connect_handler.disconnect(connection, ReasonCode.UNSPECIFIED_ERROR, WILL_WAS_PUBLISHED)
        else:
            self._timers.cancel(("will", notice.client))
            self._journal.disconnected(session, now)
        self.will_changed(ClientId(notice.client))

    def publish(self, effect: PublishWills, now: Instant) -> list[SendMessage]:
        """Publish the wills of a dead gateway's clients, but for those that are connected here. Returns what tells
        that gateway.
        """
        sends: list[SendMessage] = []
        assert self._peers is not None
        for pending in effect.wills:
            session = self._connect_handler.sessions.get(ClientId(pending.client))
            if session is None or session.connection is None:
                properties: Properties = {}
                try:
                    properties, _ = read_properties(pending.properties, 0, Carrier.WILL)
                except ProtocolError:
                    properties = {}
                will = Will(pending.topic, pending.payload, pending.qos, pending.retain, properties)
                self._publish_handler.publish_foreign_will(ClientId(pending.client), will, now)
            sends += self._peers.will_published(effect.gateway, pending, now)
        return sends


def _delay_s(session: Session, will: Will) -> int:
    return min(number(will.properties, Property.WILL_DELAY_INTERVAL, 0), session.expiry_s)


def _due(session: Session, will: Will) -> Instant:
    """When the will of a client that is gone is due."""
    return session.disconnected_at + _delay_s(session, will) * SECOND


def _may_publish(session: Session, will: Will, now: Instant) -> bool:
    publication = Publication(session.client_id, will.topic, will.payload, will.qos, will.retain, now)
    return session.rights is None or session.rights.may_write(publication)


def _pending_will(client: str, will: Will, delay_s: int, is_gone: bool) -> PendingWill:
    properties = encode_properties(will.properties) if will.properties else b""
    return PendingWill(client, delay_s, is_gone, will.qos, will.retain, will.topic, will.payload, properties)
