"""Chunks of files from and for other gateways: joins the exchange of chunks, the links, and the requests of clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Protocol

from edgebridge.frontend.file_service import FileService
from edgebroker.federation.chunk_exchange import (
    NOBODY,
    ChunkExchange,
    ExchangeEffect,
    ExchangeMessage,
    GiveUpChunk,
    ReadForPeer,
    SitePaths,
    TakeChunk,
)
from edgebroker.federation.effects import Effect, SendMessage
from edgebroker.federation.retained_claims import FILES_TOPIC
from edgebroker.federation.router import FederationRouter
from edgebroker.header import host_of
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.node.timers import TimerQueue
from edgebroker.overlay.messages import Forward
from edgebroker.overlay.traffic_class import TrafficClass

FILES: Final = ("files",)
"""The deadline of what is wanted from other gateways."""


class FileMember(Protocol):
    """The gateway's part in the federation (`federation.federation`)."""

    @property
    def peers(self) -> FederationRouter:
        """The way to other gateways."""

    def perform(self, effects: Iterable[Effect], now: Instant) -> object:
        """Do what routing wants done."""


class FederatedFiles:
    """The chunks that one gateway gets from others, and sends them. *run*: a random number that names this run."""

    def __init__(self, member: FileMember, service: FileService, timers: TimerQueue, run: int) -> None:
        self.service = service
        self._member = member
        self._timers = timers
        self._run = run
        self.exchange = self._new_exchange()

    def start(self, now: Instant) -> None:
        """Tell the other gateways of the site that this one takes files. The links may be down still."""
        self._perform(self.exchange.start(), now)

    def move(self, member: FileMember, now: Instant) -> None:
        """Go on in *member*, whose topology is another one."""
        self._member, before = member, self.exchange
        self.exchange = self._new_exchange()
        self._perform(self.exchange.resume(before, now), now)

    def receive(self, forward: Forward, now: Instant) -> None:
        """Handle an event of FILES_TOPIC."""
        self._perform(self.exchange.received(host_of(forward.header.publisher), forward.payload, now), now)

    # -- what the service wants and tells (`ChunkNetwork`) --------------------------------------------------------

    def want(self, sha256: bytes, now: Instant) -> None:
        """Get the chunk. Raises ExchangeBusy."""
        self._perform(self.exchange.want(sha256, now), now)

    def stored(self, sha256: bytes, now: Instant) -> None:
        """The chunk is on the disk."""
        self._perform(self.exchange.arrived(sha256, now), now)

    def damaged(self, sha256: bytes, now: Instant) -> None:
        """What came has another hash, or the disk failed."""
        self._perform(self.exchange.arrived_damaged(sha256, now), now)

    def has_no_room(self, sha256: bytes, now: Instant) -> None:
        """What came has no room here."""
        self._perform(self.exchange.give_up(sha256, now), now)

    def chunk_read(self, peer: int, sha256: bytes, data: bytes, now: Instant) -> None:
        """The chunk for *peer* was read; without *data* it could not be."""
        self._perform(self.exchange.chunk_read(peer, sha256, data), now)

    def fire(self, now: Instant) -> None:
        """Something is to be asked again, or given up."""
        self._perform(self.exchange.fire(now), now)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _new_exchange(self) -> ChunkExchange:
        state = self._member.peers.gossip.link_state
        own = self._member.peers.gateway
        cluster = state.cluster_of(own.number)
        return ChunkExchange(
            SitePaths(
                own.number,
                lambda number: state.name_of(number) is not None and state.cluster_of(number) == cluster,
                state.is_number_reachable,
            ),
            self._run,
            self.service.store.holds,
        )

    def _perform(self, effects: Iterable[ExchangeEffect], now: Instant) -> None:
        for effect in effects:
            match effect:
                case ExchangeMessage():
                    self._member.perform(self._sends(effect, now), now)
                case ReadForPeer(peer, sha256):
                    self.service.read_for_peer(peer, sha256, now)
                case TakeChunk(sha256, data, is_wanted):
                    self.service.take_chunk(sha256, data, is_wanted, now)
                case GiveUpChunk(sha256):
                    self.service.chunk_not_found(sha256)
        due = self.exchange.due
        if due is not None:
            self._timers.set(FILES, max(due, now))

    def _sends(self, message: ExchangeMessage, now: Instant) -> list[SendMessage]:
        router = self._member.peers
        now_ms = now // MILLISECOND + router.unix_offset_ms
        if message.gateway == NOBODY:
            return router.publisher.publish(FILES_TOPIC, message.payload, now_ms, now, message.is_for_all)
        sends = router.publisher.publish_to(message.gateway, FILES_TOPIC, message.payload, now_ms)
        return [replace(send, service=TrafficClass.BULK) for send in sends] if message.is_bulk else sends
