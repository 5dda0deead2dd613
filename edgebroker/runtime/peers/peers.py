"""All connections to the peers of a gateway, accepted and dialled: state, congestion and notices."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from edgebridge.frontend.federation.federation import FederationMember
from edgebridge.frontend.federation.join import TOPOLOGY_CHANGE
from edgebroker.errors import CannotListen
from edgebroker.instants import Instant
from edgebroker.names import Address
from edgebroker.overlay.congestion import QueueSample
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.events import LinkDown, LinkRefusal, LinkUp
from edgebroker.overlay.link.handshake import RefusalCode
from edgebroker.overlay.link.link import STOPPING, Link
from edgebroker.runtime.listeners.bind_error import describe_bind_error
from edgebroker.runtime.loop.reactor import GOODBYE_S, Reactor, clock
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.peers.connection import DialError, PeerConnection, dial, reason_of
from edgebroker.runtime.peers.membership import FederationMembership, prepare_change
from edgebroker.runtime.reload import PreparedChange
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.settings.sections import OverlaySettings


class CongestionGauge:
    """The congestion index of each link since somebody last asked; the first time, since the start."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def index(self, link: Link) -> float:
        """(1 + entered) / (1 + left), times what waits; as `overlay.congestion` says."""
        figures = [lane.figures for lane in link.outbox.queues.values()]
        entered, left = sum(each.entered for each in figures), sum(each.left for each in figures)
        before = self._seen.get(link.peer, (0, 0))
        self._seen[link.peer] = entered, left
        waiting = sum(each.waiting for each in figures)
        return QueueSample(entered - before[0], left - before[1], waiting).congestion_index


STRANGERS_MAX: Final = 64
"""Connections beside one for each peer: whoever dials is a stranger until its hello comes, for 10 s at most."""
BACKLOG: Final = 64  # connections the kernel holds while we are busy: every gateway of a federation that lost power
ELSEWHERE: Final = (errno.EADDRNOTAVAIL,)


class PeerManager:
    """Runs the links of a gateway on real sockets."""

    def __init__(
        self,
        membership: FederationMembership,
        settings: OverlaySettings,
        reactor: Reactor,
        notices: OperatorLog,
    ) -> None:
        overlay = reactor.frontend.federation
        assert overlay is not None, "the front end has joined"
        self.overlay: FederationMember = overlay
        self.membership = membership
        self.trouble: dict[str, str] = {}
        """Peer -> why there is no connection, where the reason is known."""
        self.refused: set[str] = set()
        """Peers with whom there is none until somebody changes something."""
        self._twins: dict[str, Instant] = {}  # peers of whom it was told that there are two -> since when
        self.received_bytes = 0
        self.sent_bytes = 0
        self.congestion = CongestionGauge()
        self.addresses: list[Address] = []
        """Where peers are awaited."""
        self._settings = settings
        self._reactor = reactor
        self._notices = notices
        self._loop = asyncio.get_running_loop()
        self._peers = membership.topology.gateway(membership.name).peers()
        self._servers: list[asyncio.Server] = []
        self._connections: dict[LinkConnection, PeerConnection] = {}
        self._dials: set[asyncio.Task[None]] = set()

    def __str__(self) -> str:
        membership, where = self.membership, ", ".join(map(str, self.addresses))
        how = "without TLS" if membership.tls is None else "with TLS"
        awaited = f"; they find it at {where}" if where else ""
        return f"{membership.name} of {membership.topology.federation} has {len(self._peers)} peers, {how}{awaited}"

    def described(self) -> dict[str, Any]:
        """Who and where, for programs."""
        membership = self.membership
        return {
            "federation": membership.topology.federation,
            "name": membership.name,
            "peers": list(self._peers),
            "addresses": [str(address) for address in self.addresses],
            "tls": membership.tls is not None,
        }

    async def open(self) -> None:
        """Listen, and begin to dial. Raises CannotListen."""
        wanted = list(self._wanted())
        absent: list[str] = []
        for address in wanted:
            try:
                await self._listen(address)
            except (OSError, UnicodeError) as error:
                why = describe_bind_error(str(address), error, "overlay.port")
                if getattr(error, "errno", None) not in ELSEWHERE or (address == wanted[-1] and not self.addresses):
                    await self._close_servers()
                    raise CannotListen(f"{why}; overlay.host says where peers are awaited") from error
                absent.append(why)
        for why in absent:  # the address of a router that passes peers on to one of the others
            self._notices.log(Level.INFO, "overlay", why)
        if self.membership.tls is None and not all(_is_local(address.host) for address in self.addresses):
            text = "peers are believed without certificates; set overlay.tls_certificate, tls_key and tls_ca"
            self._notices.log(Level.WARNING, "overlay-no-tls", text)
        self._reactor.before_flush = self._turn
        self.overlay.start(clock())
        self._reactor.schedule_flush()

    async def stop(self) -> None:
        """Say good-bye to all peers, and return when that is written or they do not take it."""
        await self._close_servers()
        for task in self._dials:
            task.cancel()
        self._say_good_bye(STOPPING)
        deadline = self._loop.time() + GOODBYE_S
        while self._connections and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        for line in list(self._connections.values()):
            line.transport.abort()

    def _say_good_bye(self, why: str) -> None:
        """To all peers; what can still be sent is: of what waits at QoS 0 nobody else would ever know."""
        self.overlay.drain(clock())
        self._turn()
        self.overlay.stop(clock(), why)
        self._turn()

    async def prepare(self, settings: Settings) -> PreparedChange:
        """Read topology and certificates again. Raises SettingsRefused."""
        before = self.membership
        if settings.overlay != self._settings or settings.node.name != before.name:
            return PreparedChange(lambda: ())  # other files: they are read at the next start
        change = prepare_change(before, settings)

        def commit() -> Iterator[str]:
            proofs, new = before.tls, change.membership.tls
            if proofs is not None and new is not None:
                proofs = proofs.renewed(new)
            self.membership = replace(change.membership, tls=proofs)
            if before.tls is not None and proofs is not None and proofs.revoked != before.tls.revoked:
                yield from self._ask_anew()
            if change.is_new_run:
                self._go_over()
            yield from change.lines
            wanted = set(self._wanted()) if change.lines and self._settings.port != 0 else set()
            for address in sorted(map(str, wanted - set(self.addresses))):
                yield f"topology: peers are awaited at {address} after a restart of this gateway"

        return PreparedChange(commit)

    def _ask_anew(self) -> Iterator[str]:
        """Let all peers show their certificates again: other ones are revoked."""
        streams = list(self._connections)
        for stream in streams:
            stream.end("other certificates are revoked: show yours again", clock())
        if streams:
            yield f"overlay: {len(streams)} peers have to show their certificates again"
        self._reactor.schedule_flush()

    def _go_over(self) -> None:
        """Leave the peers of the old topology and meet those of the new one. Clients notice nothing."""
        for task in self._dials:
            task.cancel()
        self._say_good_bye(TOPOLOGY_CHANGE)
        for line in self._connections.values():  # the good-bye is written, or is not taken
            line.stream = None
            self._loop.call_later(GOODBYE_S, line.transport.abort)
        self._connections.clear()
        self.trouble.clear()
        self.refused.clear()
        self._twins.clear()
        self.congestion = CongestionGauge()  # links that are made anew count anew
        self._peers = self.membership.topology.gateway(self.membership.name).peers()
        self.overlay = self.membership.rejoin(self._reactor.frontend, clock())
        self._reactor.schedule_flush()

    # -- for lines ------------------------------------------------------------------------------------------------

    def connection_made(self, line: PeerConnection, certified: str | None) -> None:
        """The connection is there; *certified* is the name in the certificate that was shown."""
        overlay, now = self.overlay, clock()
        if line.peer is not None:
            stream = overlay.dialled(line.peer, now, certified)
        elif len(self._connections) < len(self._peers) + STRANGERS_MAX:
            stream = overlay.accepted(now, certified)
        else:
            self._notices.log(Level.WARNING, "overlay-full", "too many strangers dial", peer=line.address)
            line.transport.abort()
            return
        line.stream, stream.address = stream, line.address
        self._connections[stream] = line
        self._reactor.schedule_flush()

    def data_received(self, stream: LinkConnection, data: bytes) -> None:
        """*data* came."""
        self.received_bytes += len(data)
        try:
            stream.feed(data, clock())
        except Exception as error:
            self._broke(stream, error)
        self._reactor.schedule_flush()

    def writable(self) -> None:
        """A socket takes bytes again."""
        self._reactor.schedule_flush()

    def connection_lost(self, line: PeerConnection, error: Exception | None) -> None:
        """The socket of *line* is closed."""
        stream, line.stream = line.stream, None
        if stream is None:
            return
        del self._connections[stream]
        if error is None:
            stream.lost(clock())
        else:
            stream.end(f"the connection was lost: {reason_of(error)}", clock())
        if line.peer is not None and not stream.is_open and line.peer not in self.refused:
            # With TLS 1.3 the other end looks at our certificate when for us all is done; then it hangs up.
            hint = "" if self.membership.tls is None else "; does it accept our certificate?"
            self._note_no_answer(line.peer, f"{line.address}: {stream.reason}{hint}")
        self._reactor.schedule_flush()

    # -- turns ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        overlay = self.overlay
        try:
            overlay.turn(clock(), self._flush)
        except Exception as error:  # the peers are not worth the clients
            self._loop.call_exception_handler({"message": "edgebroker: the overlay stumbles", "exception": error})
        for peer in overlay.take_dials():
            task = self._loop.create_task(self._dial(peer))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)
        if overlay.link_events:
            told, overlay.link_events = overlay.link_events, []
            for event in told:
                self._tell(event)
        for (gateway, neighbour), is_crowded in overlay.peers.gossip.backpressure.take_changes().items():
            self._tell_crowd(gateway, neighbour, is_crowded)

    def _flush(self, stream: LinkConnection) -> None:
        line = self._connections.get(stream)
        if line is None:
            stream.out.clear()  # nobody is there to read it
        else:
            try:
                self.sent_bytes += line.flush()
            except Exception as error:
                self._broke(stream, error)
            if stream.is_over:
                self._loop.call_later(GOODBYE_S, line.transport.abort)

    def _broke(self, stream: LinkConnection, error: Exception) -> None:
        """An error nobody expected, in what was done for one connection: tell it and end that, no other."""
        line = self._connections.get(stream)
        whom = "a peer" if line is None else line.address
        self._loop.call_exception_handler({"message": f"edgebroker: {whom} is cut off", "exception": error})
        stream.end(f"an error here: {error!r}", clock())

    def _tell(self, event: LinkUp | LinkDown | LinkRefusal) -> None:
        peer = event.peer
        match event:
            case LinkUp():
                self.trouble.pop(peer, None)
                self.refused.discard(peer)
                self._notices.log(Level.INFO, "link-up", "a peer is there", peer, peer=peer)
            case LinkDown(reason=reason):
                self.trouble[peer] = reason
                self._notices.log(Level.WARNING, "link-down", reason, peer, peer=peer)
            case LinkRefusal(code=code, reason=reason):
                link = self.overlay.links[peer]
                if (
                    code is RefusalCode.TWIN and link.connection is not None
                ):  # the link stands: it is the other one's trouble
                    if self._twins.get(peer) != link.boots.twins_since:  # what goes on for days is told once
                        self._twins[peer] = link.boots.twins_since
                        self._notices.log(Level.WARNING, "link-twins", reason, peer, peer=peer)
                elif code.wants_somebody:
                    self.trouble[peer] = reason
                    self.refused.add(peer)
                    self._notices.log(Level.WARNING, "link-refused", reason, peer, peer=peer)

    def _tell_crowd(self, gateway: str, neighbour: str, is_crowded: bool) -> None:
        if is_crowded:
            text = f"too much waits at {gateway} for {neighbour}: what that wants is refused until there is room"
            self._notices.log(Level.WARNING, "outbox-full", text, neighbour, peer=neighbour, at=gateway)
        else:
            text = f"there is room again at {gateway} for {neighbour}"
            self._notices.log(Level.INFO, "outbox-room", text, neighbour, peer=neighbour, at=gateway)

    # -- dialling -------------------------------------------------------------------------------------------------

    async def _dial(self, peer: str) -> None:
        membership = self.membership
        addresses = membership.topology.connection(membership.name, peer).dial.addresses
        context = None if membership.tls is None else membership.tls.client_context
        try:
            await dial(addresses, lambda: PeerConnection(self, peer), context)
        except DialError as error:
            self._note_no_answer(peer, str(error))
            self.overlay.dial_failed(peer, clock())
            self._reactor.schedule_flush()

    def _note_no_answer(self, peer: str, reason: str) -> None:
        if self.trouble.get(peer) != reason:  # what goes on for days is told once
            self.trouble[peer] = reason
            self._notices.log(Level.WARNING, "link-no-answer", reason, peer, peer=peer)

    # -- listening ------------------------------------------------------------------------------------------------

    def _wanted(self) -> Iterator[Address]:
        """Where to listen: nowhere if nobody dials us."""
        topology, name, settings = self.membership.topology, self.membership.name, self._settings
        if all(topology.connection(name, peer).dial.dialler == name for peer in self._peers):
            return
        own = next(one for one in topology.draft.gateways if one.name == name)
        known = (*own.lan, *own.address)
        hosts = [settings.host] if settings.host is not None else [address.host for address in known]
        ports = [settings.port] if settings.port is not None else [address.port for address in known]
        if settings.host is None and settings.port is None:
            yield from dict.fromkeys(known)
        else:
            yield from dict.fromkeys(Address(host, port) for host in hosts for port in ports)

    async def _listen(self, address: Address) -> None:
        proofs = self.membership.tls
        server = await self._loop.create_server(
            lambda: PeerConnection(self, None),
            address.host,
            address.port,
            backlog=BACKLOG,
            ssl=None if proofs is None else proofs.server_context,
        )
        self._servers.append(server)
        self.addresses.append(address)

    async def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()


def _is_local(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
