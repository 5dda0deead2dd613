"""Owns all connections to the peers of a gateway, accepted and dialled; reports their state and congestion."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from edgebridge.frontend.admin import move_client
from edgebridge.frontend.client_moves import MoveWay
from edgebridge.frontend.connection_rate import source_of
from edgebridge.frontend.federation.federation import FederationMember
from edgebridge.frontend.federation.join import TOPOLOGY_CHANGE
from edgebridge.frontend.options import Redirect, RedirectReason
from edgebridge.session.session import Session
from edgebroker.address_shares import AddressShares
from edgebroker.errors import CannotListen, EdgebrokerError
from edgebroker.instants import Instant
from edgebroker.names import Address
from edgebroker.overlay.congestion import QueueSample
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.events import LinkDown, LinkLeaseEnd, LinkRefusal, LinkUp
from edgebroker.overlay.link.handshake import RefusalCode
from edgebroker.overlay.link.link import STOPPING, Link
from edgebroker.relocation.automatic_moves import AutomaticMoves
from edgebroker.runtime.listeners.listener import describe_bind_error
from edgebroker.runtime.loop.reactor import GOODBYE_S, Reactor, clock
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.peers.client_ways import ClientWays
from edgebroker.runtime.peers.connection import AcceptedPeer, DialError, NetworkWatch, PeerConnection, dial, reason_of
from edgebroker.runtime.peers.membership import (
    FederationMembership,
    adopted_file,
    exposed_to,
    listen_addresses,
    prepare_change,
    relocation_options,
)
from edgebroker.runtime.peers.placement import TOLD_MAX, measured_publishers, placement_report
from edgebroker.runtime.peers.status import LinkWatch, StatusAnswers, encode_report, link_summaries
from edgebroker.runtime.private_files import replace_private
from edgebroker.runtime.reload import PreparedChange
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.topology_signature import signed_version


class CongestionGauge:
    """The congestion index of each link since the previous call; the first time, since the start."""

    def __init__(self) -> None:
        self._previous: dict[str, tuple[int, int]] = {}

    def index(self, link: Link) -> float:
        """Returns (1 + entered) / (1 + left), times the messages waiting; see `overlay.congestion`."""
        counts = [queue.figures for queue in link.outbox.queues.values()]
        entered, left = sum(count.entered for count in counts), sum(count.left for count in counts)
        before = self._previous.get(link.peer, (0, 0))
        self._previous[link.peer] = entered, left
        waiting = sum(count.waiting for count in counts)
        return QueueSample(entered - before[0], left - before[1], waiting).congestion_index


CHECK_S: Final = 5.0
"""How often outboxes and clocks are looked at: 10 us for each link."""
BACKLOG: Final = 64  # pending connections while we are busy: all gateways of a federation after a power cut
FOREIGN_ADDRESS_ERRORS: Final = (errno.EADDRNOTAVAIL,)


class PeerManager:
    """Runs the links of a gateway on real sockets."""

    def __init__(
        self,
        membership: FederationMembership,
        settings: Settings,
        reactor: Reactor,
        operator_log: OperatorLog,
        bridge_role_changed: Callable[[str], None],
    ) -> None:
        """*bridge_role_changed*: called with a bridge pair in which this gateway has another role."""
        overlay = reactor.frontend.federation
        assert overlay is not None, "the front end has joined"
        self.overlay: FederationMember = overlay
        self.membership = membership
        self.trouble: dict[str, str] = {}
        """Peer -> why there is no connection, where the reason is known."""
        self.refused: set[str] = set()
        """Peers whose link needs an operator's action."""
        # peers whose name a second gateway uses, by the time of the logged report
        self._reported_twins: dict[str, Instant] = {}
        self.received_bytes = 0
        self.sent_bytes = 0
        self.congestion = CongestionGauge()
        self.automatic_moves = AutomaticMoves(clock())
        """Which publishers this gateway may move itself, and when."""
        self.addresses: list[Address] = []
        """Where peers are accepted."""
        self._all_settings = settings
        self._settings = settings.overlay
        self._adopting: asyncio.Task[None] | None = None
        self._refused_version = 0  # of a topology that was handed on and cannot be taken
        self.topologies_adopted = 0
        """Topologies that peers handed on and that hold, or held, since."""
        self._reactor = reactor
        self._bridge_role_changed = bridge_role_changed
        self._operator_log = operator_log
        self._loop = asyncio.get_running_loop()
        self._peers = membership.topology.gateway(membership.name).peers()
        self._servers: list[asyncio.Server] = []
        self._connections: dict[LinkConnection, PeerConnection] = {}
        self._dials: set[asyncio.Task[None]] = set()
        self._network_watch = NetworkWatch(self._network_seen)
        self._strangers: AddressShares[AcceptedPeer] = AddressShares()
        self.displaced = 0
        """Accepted connections that were closed for newer ones, before it was known who they are."""
        self._status = StatusAnswers()
        self.watch = self._new_watch()
        """What endangers acknowledged messages, and the clocks of peers."""
        self._check_timer: asyncio.TimerHandle | None = None
        self.overdue_handshakes = 0
        """Accepted connections that were closed because their TLS handshake took too long."""
        self._sources: dict[str, str] = {}  # peer -> the address where it was met last

    def __str__(self) -> str:
        membership, where = self.membership, ", ".join(map(str, self.addresses))
        how = "without TLS" if membership.tls is None else "with TLS"
        listening = f"; they find it at {where}" if where else ""
        return f"{membership.name} of {membership.topology.federation} has {len(self._peers)} peers, {how}{listening}"

    def described(self) -> dict[str, Any]:
        """Returns the identity and the addresses as JSON values."""
        membership = self.membership
        return {
            "federation": membership.topology.federation,
            "name": membership.name,
            "peers": list(self._peers),
            "addresses": [str(address) for address in self.addresses],
            "tls": membership.tls is not None,
        }

    async def open(self) -> None:
        """Starts to listen and to dial. Raises CannotListen."""
        addresses = list(self._listen_addresses())
        absent: list[str] = []
        for address in addresses:
            try:
                await self._listen(address)
            except (OSError, UnicodeError) as error:
                why = describe_bind_error(str(address), error, "overlay.port")
                if getattr(error, "errno", None) not in FOREIGN_ADDRESS_ERRORS or (
                    address == addresses[-1] and not self.addresses
                ):
                    await self._close_servers()
                    raise CannotListen(f"{why}; overlay.host says where peers are awaited") from error
                absent.append(why)
        for why in absent:  # it may be the address of a router that forwards to another one
            self._operator_log.log(Level.INFO, "overlay", why)
        if self.membership.tls is None and (
            exposed := exposed_to(self.membership.topology, self.membership.name, self._settings)
        ):
            text = f"overlay.insecure = true: peers are believed without certificates; {exposed}"
            self._operator_log.log(Level.WARNING, "overlay-no-tls", text)
        self._network_watch.open()
        self._reactor.before_flush = self._turn
        self.overlay.start(clock())
        self._check_timer = self._loop.call_later(CHECK_S, self._check_links)
        self._reactor.schedule_flush()

    async def stop(self) -> None:
        """Closes all links, and returns when that is written, or after `GOODBYE_S` seconds."""
        await self._close_servers()
        self._network_watch.close()
        if self._check_timer is not None:
            self._check_timer.cancel()
        if self._adopting is not None:
            self._adopting.cancel()
        for task in self._dials:
            task.cancel()
        for stranger in self._strangers:
            if not stranger.is_identified:
                stranger.abort()
        self._close_links(STOPPING)
        deadline = self._loop.time() + GOODBYE_S
        while self._connections and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections.values()):
            connection.transport.abort()

    def _close_links(self, why: str) -> None:
        """Sends what can still be sent, and the end of each link: queued QoS 0 messages would be lost unreported."""
        self.overlay.drain(clock())
        self._turn()
        self.overlay.stop(clock(), why)
        self._turn()

    async def prepare(self, settings: Settings) -> PreparedChange:
        """Reads the topology and the certificates again. Raises SettingsRefused."""
        before = self.membership
        if settings.overlay != self._settings or settings.node.name != before.name:
            return PreparedChange(lambda: ())  # other files are read at the next start
        change = await asyncio.to_thread(prepare_change, before, settings)

        def commit() -> Iterator[str]:
            if self.membership is not before:
                yield "topology: a peer has handed on a newer one meanwhile: reload again"
                return
            tls, new_tls = before.tls, change.membership.tls
            if tls is not None and new_tls is not None:
                tls = tls.renewed(new_tls)
            self.membership = replace(change.membership, tls=tls)
            if before.tls is not None and tls is not None and tls.revoked != before.tls.revoked:
                yield from self._reauthenticate()
            if change.is_new_run:
                self._enter_topology()
            yield from change.lines
            added = set(self._listen_addresses()) if change.lines and self._settings.port != 0 else set()
            for address in sorted(map(str, added - set(self.addresses))):
                yield f"topology: peers are awaited at {address} after a restart of this gateway"

        return PreparedChange(commit)

    def prepare_relocation(self, settings: Settings) -> PreparedChange:
        """Prepares other settings for the placement of publishers."""

        def commit() -> tuple[str, ...]:
            before = self.membership
            relocation = relocation_options(settings.relocation, before.topology, before.name)
            options = replace(before.options, relocation=relocation)
            if options != self.membership.options:
                self.membership = replace(self.membership, options=options)
            self._all_settings = replace(self._all_settings, relocation=settings.relocation)
            self.overlay.peers.relocation.configure(options.relocation, clock())
            self._reactor.schedule_flush()
            return ()

        return PreparedChange(commit)

    async def _adopt(self, data: bytes) -> None:
        """Goes over to a signed topology that a peer handed on, if it is newer than the one here and can be taken."""
        try:
            text, before = data.decode("utf-8", "replace"), self.membership
            version = signed_version(text)
            if version <= max(before.version, self._refused_version):
                return
            change = await asyncio.to_thread(prepare_change, before, self._all_settings, text)
            if change.membership.signed != text or self.membership is not before:
                return  # not by the key; or the operator's file was read meanwhile
            saved = adopted_file(self._all_settings)
            if saved is not None:
                await asyncio.to_thread(replace_private, saved, text)
            if self.membership is not before:
                return
            self.topologies_adopted += 1
            self.membership = replace(change.membership, tls=before.tls)
            for line in ("a peer has handed on a newer signed topology", *change.lines):
                self._operator_log.log(Level.WARNING, "topology-adopted", line)
            if change.is_new_run:
                self._enter_topology()
        except EdgebrokerError as error:
            self._refused_version = version
            text = f"a peer has handed on a newer signed topology, which this gateway cannot take: {error}"
            self._operator_log.log(Level.WARNING, "topology-refused", text)
        finally:
            self._adopting = None
            self._reactor.schedule_flush()

    def _reauthenticate(self) -> Iterator[str]:
        """Ends all links, so that all peers present their certificates again: the revocation list has changed."""
        streams = list(self._connections)
        for stream in streams:
            stream.end("other certificates are revoked: show yours again", clock())
        if streams:
            yield f"overlay: {len(streams)} peers have to show their certificates again"
        self._reactor.schedule_flush()

    def _enter_topology(self) -> None:
        """Leaves the peers of the old topology and sets up links to those of the new one. Clients notice nothing."""
        for task in self._dials:
            task.cancel()
        self._close_links(TOPOLOGY_CHANGE)
        for connection in self._connections.values():  # the end is written, or the peer does not read
            connection.stream = None
            self._loop.call_later(GOODBYE_S, connection.transport.abort)
        self._connections.clear()
        self.trouble.clear()
        self.refused.clear()
        self._reported_twins.clear()
        self.congestion = CongestionGauge()  # new links count from zero
        self._peers = self.membership.topology.gateway(self.membership.name).peers()
        self.overlay = self.membership.rejoin(self._reactor.frontend, clock())
        self.watch = self._new_watch()
        self._reactor.schedule_flush()

    # -- callbacks of connections ---------------------------------------------------------------------------------

    def accepted(self, peer: AcceptedPeer) -> None:
        """Counts an accepted socket. Beyond the bound of its address, or of all, another one is closed: of the address
        with the most of them, where no peer was met, the oldest one that has said nothing. Who is a peer shows it
        within a round trip or two, and is not counted from then on.
        """
        strangers, source, peers = self._strangers, source_of(peer.address), len(self._peers)
        strangers.add(source, peer)
        if self._is_greedy(source) or len(strangers) > peers + self._settings.strangers_max:
            for stranger in strangers:
                if stranger.is_identified or stranger.is_over:
                    strangers.remove(source_of(stranger.address), stranger)
            if self._is_greedy(source):
                self._displace(source)
            elif len(strangers) > peers + self._settings.strangers_max:
                self._displace(strangers.greediest(self._known_sources()) or strangers.greediest())

    def _is_greedy(self, source: str) -> bool:
        most = len(self._peers) + self._settings.strangers_per_address_max
        return self._strangers.count_of(source) > most

    def _known_sources(self) -> set[str]:
        """Returns the addresses of peers: where they were met last, and those in the topology."""
        gateways = [gateway for gateway in self.membership.topology.draft.gateways if gateway.name in self._peers]
        addresses = [address for gateway in gateways for address in (*gateway.lan, *gateway.address)]
        return {*self._sources.values(), *(source_of(str(address)) for address in addresses)}

    def _displace(self, source: str | None) -> None:
        """Closes the oldest stranger of *source* that has said nothing, or the oldest of all."""
        assert source is not None, "somebody has just come"
        holders = self._strangers.holders_of(source)
        displaced = next((holder for holder in holders if not holder.has_begun), holders[0])
        self._strangers.remove(source, displaced)
        self.displaced += 1
        text = "too many strangers dial, and most of them from this address"
        self._operator_log.log(Level.WARNING, "overlay-full", text, peer=displaced.address)
        displaced.abort()

    def strangers(self) -> list[AcceptedPeer]:
        """Returns the accepted sockets of which it may not be known yet who they are."""
        return list(self._strangers)

    def overdue(self, peer: AcceptedPeer) -> None:
        """Counts an accepted socket whose TLS handshake took too long."""
        self.overdue_handshakes += 1

    def connection_made(self, connection: PeerConnection, certified: str | None) -> None:
        """Admits the connection to the overlay."""
        overlay, now = self.overlay, clock()
        if connection.peer is not None:
            stream = overlay.dialled(connection.peer, now, certified)
        else:
            stream = overlay.accepted(now, certified)
        connection.stream, stream.address = stream, connection.address
        self._connections[stream] = connection
        self._reactor.schedule_flush()

    def data_received(self, stream: LinkConnection, data: bytes) -> None:
        """Passes bytes to the link."""
        self.received_bytes += len(data)
        try:
            stream.feed(data, clock())
        except Exception as error:
            self._end_failed(stream, error)
        self._reactor.schedule_flush()

    def writable(self) -> None:
        """Schedules a flush: a socket accepts bytes again."""
        self._reactor.schedule_flush()

    def connection_lost(self, connection: PeerConnection, error: Exception | None) -> None:
        """Ends the link of the closed connection."""
        stream, connection.stream = connection.stream, None
        if stream is None:
            return
        del self._connections[stream]
        if error is None:
            stream.lost(clock())
        else:
            stream.end(f"the connection was lost: {reason_of(error)}", clock())
        if connection.peer is not None and not stream.is_open and connection.peer not in self.refused:
            # With TLS 1.3 the peer verifies our certificate after our handshake is complete, and closes.
            hint = "" if self.membership.tls is None else "; does it accept our certificate?"
            self._record_no_answer(connection.peer, f"{connection.address}: {stream.reason}{hint}")
        self._reactor.schedule_flush()

    # -- turns ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        overlay = self.overlay
        try:
            overlay.turn(clock(), self._flush)
        except Exception as error:  # clients must not suffer from an error in the overlay
            self._loop.call_exception_handler({"message": "edgebroker: the overlay stumbles", "exception": error})
        while overlay.status_requests:
            self._answer_status(overlay, overlay.status_requests.popleft())
        while overlay.status_replies:
            self._status.receive(overlay.status_replies.popleft())
        for pair in overlay.peers.pairs.take_changes():
            self._loop.call_soon(self._bridge_role_changed, pair)
        received = overlay.links.identity.topologies.received
        if received and self._adopting is None:
            self._adopting = self._loop.create_task(self._adopt(received.popleft()))
        for peer in overlay.take_dials():
            task = self._loop.create_task(self._dial(peer))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)
        if overlay.link_events:
            events, overlay.link_events = overlay.link_events, []
            for event in events:
                self._log_event(event)
        for (gateway, neighbour), is_refusing in overlay.peers.gossip.backpressure.take_changes().items():
            self._log_backpressure(gateway, neighbour, is_refusing)

    def _flush(self, stream: LinkConnection) -> None:
        connection = self._connections.get(stream)
        if connection is None:
            stream.out.clear()  # the connection is closed
        else:
            try:
                self.sent_bytes += connection.flush()
            except Exception as error:
                self._end_failed(stream, error)
            if stream.is_over:
                self._loop.call_later(GOODBYE_S, connection.transport.abort)

    def _end_failed(self, stream: LinkConnection, error: Exception) -> None:
        """Reports an unexpected error, and ends the one link whose input or output caused it."""
        connection = self._connections.get(stream)
        peer = "a peer" if connection is None else connection.address
        self._loop.call_exception_handler({"message": f"edgebroker: {peer} is cut off", "exception": error})
        stream.end(f"an error here: {error!r}", clock())

    def _log_event(self, event: LinkUp | LinkDown | LinkRefusal | LinkLeaseEnd) -> None:
        peer = event.peer
        match event:
            case LinkUp():
                # Whoever was told that something is wrong is told when it is over.
                level = Level.WARNING if self.trouble.pop(peer, "") else Level.INFO
                self.refused.discard(peer)
                self.watch.peer_up(peer)
                if (connection := self.overlay.links[peer].connection) is not None:
                    self._sources[peer] = source_of(connection.address)
                self._operator_log.log(level, "link-up", "a peer is there", peer, peer=peer)
            case LinkDown(reason=reason):
                self.trouble[peer] = reason
                self.watch.peer_down(peer, clock())
                self._operator_log.log(Level.WARNING, "link-down", reason, peer, peer=peer)
            case LinkLeaseEnd(count=count):
                text = "it was away for longer than its sessions last (overlay.lease_s): what waited for it is dropped"
                self._operator_log.log(Level.WARNING, "lease-ended", text, peer, peer=peer, count=count)
            case LinkRefusal(code=code, reason=reason):
                link = self.overlay.links[peer]
                if code is RefusalCode.TWIN and link.connection is not None:
                    # The link works: the other gateway of this name has the problem. It may last for days: log it once.
                    if self._reported_twins.get(peer) != link.boots.twins_since:
                        self._reported_twins[peer] = link.boots.twins_since
                        self._operator_log.log(Level.WARNING, "link-twins", reason, peer, peer=peer)
                elif code is RefusalCode.UNSENT and link.connection is not None:  # the peer itself is linked
                    self._operator_log.log(Level.WARNING, "link-refused", reason, peer, peer=peer)
                elif code.wants_somebody:
                    self.trouble[peer] = reason
                    self.refused.add(peer)
                    self._operator_log.log(Level.WARNING, "link-refused", reason, peer, peer=peer)

    def _log_backpressure(self, gateway: str, neighbour: str, is_refusing: bool) -> None:
        if is_refusing:
            text = f"too much waits at {gateway} for {neighbour}: what that wants is refused until there is room"
            self._operator_log.log(Level.WARNING, "outbox-full", text, neighbour, peer=neighbour, at=gateway)
        else:
            text = f"there is room again at {gateway} for {neighbour}"
            self._operator_log.log(Level.WARNING, "outbox-room", text, neighbour, peer=neighbour, at=gateway)

    # -- watching -------------------------------------------------------------------------------------------------

    def _new_watch(self) -> LinkWatch:
        return LinkWatch(self.overlay.links, self.membership.options.lease_s, clock())

    def _check_links(self) -> None:
        self._check_timer = self._loop.call_later(CHECK_S, self._check_links)
        for notice in self.watch.check(clock()):
            self._operator_log.log(Level.WARNING, notice.name, notice.text, notice.peer, peer=notice.peer)

    # -- operators ------------------------------------------------------------------------------------------------

    def _answer_status(self, overlay: FederationMember, request: int) -> None:
        measured = measured_publishers(overlay.peers.relocation, clock())
        more = {"placement": self.placement(TOLD_MAX), "measured": measured}
        report = encode_report(self.summaries()["links"], more)
        overlay.answer_status(request, report, clock())
        self._reactor.schedule_flush()

    def summaries(self) -> dict[str, Any]:
        """Returns what other gateways are told of the links, as JSON values."""
        return {"links": link_summaries(self.overlay.links, self.refused, self.trouble)}

    def placement(self, limit: int) -> dict[str, Any]:
        """Returns which publishers should be at other gateways, at most *limit*, and why others stay."""
        statistics, topology = self.overlay.peers.relocation, self.membership.topology
        return placement_report(statistics, topology, self.client_ways(), self.automatic_moves, clock(), limit)

    def client_ways(self) -> ClientWays:
        """Returns how clients get to other gateways at the moment."""
        sessions = self._reactor.frontend.connect_handler.sessions
        link_state = self.overlay.peers.gossip.link_state
        has_roaming = self.overlay.roaming is not None
        return ClientWays(self.membership.topology, self.membership.name, link_state, sessions, has_roaming)

    def move_client(self, session: Session, gateway: str, reason: RedirectReason, text: str) -> dict[str, Any]:
        """Sends the client of *session* to *gateway*, and logs *text*. Returns what was done, as JSON values. Raises
        ClientUnmovable, TopologyInvalid, MoveTableFull.
        """
        reference, frontend = self.client_ways().server_reference(session, gateway), self._reactor.frontend
        way = move_client(frontend, session, gateway, Redirect(reason, reference), clock())
        if way is not None:
            client = session.client_id
            self._operator_log.log(Level.WARNING, "client-moved", text, client=client, to=gateway, way=way.value)
            self._reactor.schedule_flush()
            self._reactor.arm_timer()
        return {
            "client": session.client_id,
            "to": gateway,
            "moved": way is not None,
            "way": None if way is None else way.value,
            "reference": reference if way not in (None, MoveWay.CLOSED) else None,
            "refused_s": 0 if way is None else frontend.connect_handler.moves.refusal_s,
            "session_kept": way is not None and session.expiry_s > 0,
        }

    async def query_all(self) -> dict[str, bytes]:
        """Asks all other gateways of the federation for their links. Returns name -> JSON of those that answer within
        STATUS_S.
        """
        async with self._status.lock:
            topology = self.membership.topology
            names = {gateway.number: gateway.name for gateway in topology.gateways}
            self._status.begin(self.overlay.query_status(clock()), len(names) - 1)
            self._reactor.schedule_flush()
            replies = await self._status.wait()
            return {names[number]: report for number, report in replies.items() if number in names}

    # -- dialling -------------------------------------------------------------------------------------------------

    async def _dial(self, peer: str) -> None:
        membership = self.membership
        addresses = membership.topology.connection(membership.name, peer).dial.addresses
        context = None if membership.tls is None else membership.tls.client_context
        try:
            await dial(addresses, lambda: PeerConnection(self, peer), context)
        except DialError as error:
            self._record_no_answer(peer, str(error))
            self.overlay.dial_failed(peer, clock(), error.is_offline)
            self._reactor.schedule_flush()

    def _network_seen(self) -> None:
        self.overlay.network_seen(clock())
        self._reactor.schedule_flush()

    def _record_no_answer(self, peer: str, reason: str) -> None:
        if self.trouble.get(peer) != reason:  # a state that lasts for days is logged once
            self.trouble[peer] = reason
            self._operator_log.log(Level.WARNING, "link-no-answer", reason, peer, peer=peer)

    # -- listening ------------------------------------------------------------------------------------------------

    def _listen_addresses(self) -> Iterator[Address]:
        return listen_addresses(self.membership.topology, self.membership.name, self._settings)

    async def _listen(self, address: Address) -> None:
        tls = self.membership.tls
        context = None if tls is None else tls.server_context
        server = await self._loop.create_server(
            lambda: AcceptedPeer(self, context, lambda: PeerConnection(self, None)),
            address.host,
            address.port,
            backlog=BACKLOG,
        )
        self._servers.append(server)
        self.addresses.append(address)

    async def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
