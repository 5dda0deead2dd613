"""A whole gateway, put together from its settings: node, front end, delivery log, sockets."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from edgebridge.frontend.admin import change_federated_groups, change_quota
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendHost, FrontendOptions, Quota
from edgebridge.session.journal.state import JournalState
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebroker.instants import MINUTE, SECOND, Duration, Instant
from edgebroker.log_schema import Cause
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.access_files import load_access, what_differs
from edgebroker.runtime.journal.store import Store, data_folder
from edgebroker.runtime.leftover_bridges import end_leftover_sessions, has_bridges
from edgebroker.runtime.listeners.listeners import Listeners
from edgebroker.runtime.loop.lag import LoopLagMonitor
from edgebroker.runtime.loop.reactor import Reactor, clock
from edgebroker.runtime.operator_log import Level, LogPump, OperatorLog
from edgebroker.runtime.process import ProcessUsage, identity_of
from edgebroker.runtime.reload import PreparedChange, Preparer, Reloader, ReloadOutcome
from edgebroker.runtime.settings import Settings

if TYPE_CHECKING:
    from edgebroker.federation.forwarding import Forwarder
    from edgebroker.runtime.bridges.bridges import BridgeManager
    from edgebroker.runtime.chunk_files import ChunkWorker
    from edgebroker.runtime.delivery_log import DeliveryLogDirectory
    from edgebroker.runtime.http.health import GatewayView
    from edgebroker.runtime.http.server import HttpResponse, HttpServer
    from edgebroker.runtime.peers.membership import FederationMembership
    from edgebroker.runtime.peers.peers import PeerManager
    from edgebroker.runtime.placement_runner import PlacementRunner
    from edgebroker.storage.deliverylog.writer import DeliveryLog

S = TypeVar("S")
T = TypeVar("T")

LOG_EVERY_S = 1.0  # what a power cut may take of the log, at most, and how often the disk is asked
ANCHOR_EVERY: Duration = MINUTE  # so soon it is noticed that the wall clock was set


class GatewayHost(FrontendHost):
    """What a gateway process offers to its front end: a disk, the wall clock, its identity and its counters."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def disk_work_due(self) -> None:
        if self._gateway.store is not None:
            self._gateway.store.begin_work()

    def file_work_due(self) -> None:
        if self._gateway.chunk_worker is not None:
            self._gateway.chunk_worker.begin()

    def unix_us(self) -> int:
        return _wall_clock()

    def clock_us(self) -> Instant:
        return clock()

    def peer_message_failed(self, peer: str, what: object, error: Exception) -> None:
        text = f"edgebroker: {type(what).__name__} of {peer} is given up"
        asyncio.get_running_loop().call_exception_handler({"message": text, "exception": error})

    def gateway_identity(self) -> str:
        return self._gateway.identity()

    def facts(self) -> Mapping[str, int]:
        return self._gateway.facts()


class Gateway:
    """One broker process. `start`, then `stop`; `accounts` says what became of everything."""

    def __init__(self, settings: Settings, tell: Callable[[str], None], notices: OperatorLog | None = None) -> None:
        """*tell* gets one line for each thing an operator should know, *notices* what can be said with fields."""
        self._operator_log = notices or OperatorLog(lambda line: None)
        self._settings = settings
        self._tell = tell
        self._syncing = ThreadPoolExecutor(1, "segments")
        """Finishes log segments: a sync of 4 MiB takes up to a second on an SD card, too long for clients to wait."""
        self._log: DeliveryLog | None = None
        self._log_dir: DeliveryLogDirectory | None = None
        if settings.log.dir is not None:
            from edgebroker.runtime.delivery_log import DeliveryLogDirectory
            from edgebroker.storage.deliverylog.writer import DeliveryLog  # 1 MiB with what they bring

            log = DeliveryLog(settings.node.name, os.urandom(6).hex(), settings.log.sample_qos0)
            self._log = log
            self._log_dir = DeliveryLogDirectory(
                settings.log.dir,
                log.header,
                tell,
                segment_bytes_max=settings.log.segment_bytes_max,
                segment_age_us_max=settings.log.segment_age_s_max * SECOND,
                bytes_max=settings.log.bytes_max,
                background=self._finish_segment,
            )
        self.ledger = Ledger(self._log)
        parts = (settings.limits, settings.mqtt)
        granted = {key.name: getattr(part, key.name) for part in parts for key in fields(part)}
        granted["queue_full"] = OverflowPolicy(settings.mqtt.queue_full)
        granted["durability"] = settings.data.durability
        granted["durability_by_client"] = tuple((one.pattern, one.durability) for one in settings.data.clients)
        access = load_access(settings.access, tell)
        folder = data_folder(settings)
        self.store = None if folder is None else Store(folder, settings, self._turn)
        """What is kept between runs; None if nothing is."""
        self.frontend = Frontend(
            Node(self.ledger, settings.quota.subscriptions_max),
            FrontendOptions(**granted),
            new_client_id=lambda: f"auto-{os.urandom(16).hex()}",
            access=access,
            secret=os.urandom(32),
            journal=None if self.store is None else self.store.journal,
            quota=_quota(settings),
            host=GatewayHost(self),
        )
        self.frontend.redirect_clients(settings.redirect.redirect)
        self._heap_max = 0
        self._membership: FederationMembership | None = None
        if settings.overlay.topology is not None:
            from edgebroker.runtime.peers.membership import load_membership  # 3 MiB that a gateway alone need not hold

            self._membership = load_membership(settings)
        self.lag_monitor = LoopLagMonitor()
        self._reactor: Reactor | None = None
        self._listeners: Listeners | None = None
        self._started_at: Instant = 0
        self._started_unix_s = 0.0
        self.reloader: Reloader | None = None
        self.peer_manager: PeerManager | None = None
        """The sockets of peers; None if the gateway stands alone, or has not started."""
        self._placements: PlacementRunner | None = None
        self.bridge_manager: BridgeManager | None = None
        """The bridges to foreign brokers; None if there are none, or the gateway has not started."""
        self.chunk_worker: ChunkWorker | None = None
        """Reads and writes chunks of files; None if the settings give them no room, or the gateway has not started."""
        self._log_pump: LogPump | None = None
        self._http: HttpServer | None = None
        self.http_address: tuple[str, int] | None = None
        self._writing: asyncio.Task[None] | None = None

    async def start(self) -> Listeners:
        """Begin to listen; the listeners, also those of later. Raises CannotListen, SettingsInvalid."""
        for warning in self._settings.warnings:
            self._tell(str(warning))
        reactor = self._reactor = Reactor(self.frontend, self._settings.node.gather_us)
        if self.store is not None:
            for line in self.store.restore(self.frontend, self._join):
                self._tell(line)
        else:
            self._join(None)
        if self._settings.files.bytes_max:
            from edgebroker.runtime.chunk_files import serve_files  # 0.2 MiB that few gateways need

            self.chunk_worker = serve_files(self._settings, self._folder, self.frontend, reactor, self._operator_log)
        reactor.start()
        self._listeners = Listeners(reactor, self._operator_log)
        journal = None if self.store is None else self.store.journal
        misplaced = str if self.store is None else self.store.worker.files.misplaced
        self._log_pump = LogPump(self.frontend, self._operator_log, clock, journal, misplaced, self._forwarder)
        self._started_at, self._started_unix_s = clock(), time.time()
        if self._log is not None:  # before anything is logged, so that a run that is killed early has said when it was
            self._log.anchor(clock(), _wall_clock())
        self.lag_monitor.on_each_beat(self._log_pump.pump)
        self.lag_monitor.on_each_beat(
            lambda: self.frontend.memory_limit.check_if_due(clock()), self._turn
        )  # who is cut off hears it now
        self.lag_monitor.start()
        if self._membership is not None:
            self._join_peers(self._membership, reactor)
        if has_bridges(self._settings, self._folder):
            self.bridge_manager = self._new_bridge_manager(self._settings)
        # Before anybody publishes what they should carry.
        for line in (
            end_leftover_sessions(self.frontend, frozenset())
            if self.bridge_manager is None
            else self.bridge_manager.start()
        ):
            self._tell(line)
        await self._open_http()  # first: who finds a client's door open finds this one open too
        await self._listeners.open(self._settings.listeners)
        if self.peer_manager is not None:
            await self.peer_manager.open()
        if self._placements is not None:
            self._placements.start()
        if self.chunk_worker is not None:
            self.chunk_worker.join_federation(self.frontend)
        preparers: dict[str, Preparer] = {
            "access": self._prepare_access,
            "quota": self._prepare_quota,
            "mqtt": self._prepare_groups,
            "redirect": self._prepare_redirect,
            "notices": self._prepare_notices,
            "http": self._prepare_http,
            "listener": self._listeners.prepare,
            "bridge": self._prepare_bridges,
        }
        if self.peer_manager is not None:
            preparers["overlay"] = self.peer_manager.prepare
        preparers["relocation"] = self._prepare_relocation  # behind the topology, whose sites the settings name
        self.reloader = Reloader(
            self._settings if self.bridge_manager is None else self.bridge_manager.settings, preparers
        )
        if self._log_dir is not None:
            self._log_dir.start()
            self._writing = asyncio.create_task(self._write_log())
        return self._listeners

    def _join_peers(self, membership: FederationMembership, reactor: Reactor) -> None:
        """Make what connects to peers and moves publishers to them: few of those that run alone load it."""
        from edgebroker.runtime.peers.peers import PeerManager
        from edgebroker.runtime.placement_runner import PlacementRunner

        self.peer_manager = PeerManager(
            membership, self._settings, reactor, self._operator_log, self._change_bridge_role
        )
        self._placements = PlacementRunner(self.peer_manager, self.frontend, self._operator_log, self._folder)

    @cached_property
    def view(self) -> GatewayView:
        """What may be looked at, once the gateway has started. Made when somebody first looks."""
        from edgebroker.runtime.http.health import GatewayView
        from edgebroker.runtime.http.tracing import Tracer

        reactor, listeners, log_pump = self._reactor, self._listeners, self._log_pump
        assert reactor is not None
        assert listeners is not None
        assert log_pump is not None
        return GatewayView(
            self._settings.node.name,
            self.frontend,
            reactor,
            listeners,
            self.lag_monitor,
            self._log,
            self._log_dir,
            self._folders(),
            self._operator_log,
            log_pump,
            Tracer(reactor, self.ledger, self.frontend.node.routes.unreadable),
            self.store,
            self.peer_manager,
            lambda: self.bridge_manager,
            self._started_at,
            self._started_unix_s,
            placements=self._placements,
        )

    def _forwarder(self) -> Forwarder | None:
        """What forwards events to other gateways; None without a federation."""
        return None if self.peer_manager is None else self.peer_manager.overlay.peers.forwarder

    async def stop(self) -> None:
        """Say good-bye to all clients and finish the log."""
        self.lag_monitor.stop()
        if self._placements is not None:
            self._placements.stop()
        if self._http is not None:
            self._http.close()
        try:
            if self._listeners is not None:
                self._listeners.close()
            if self.bridge_manager is not None:
                await self.bridge_manager.stop()
            if self.peer_manager is not None:
                await self.peer_manager.stop()
            if self._reactor is not None:
                await self._reactor.stop()
        finally:
            if self.chunk_worker is not None:
                self.chunk_worker.close()
            if self.store is not None and (reason := self.store.close()):
                self._tell(f"the journal could not be finished: {reason}")
            if self._log_pump is not None:
                self._log_pump.pump()
                self._log_pump.close_minute()
                self._operator_log.flush()
            if self._writing is not None:
                self._writing.cancel()
            self._syncing.shutdown()
            if self._log is not None and self._log_dir is not None:
                now, wall = clock(), _wall_clock()
                self._log.anchor(now, wall)
                self._log_dir.close(self._log.take(now, closing=True), now, wall)

    def _folders(self) -> dict[str, Path]:
        """Where this gateway writes, by section of the settings."""
        folders = {"data": self._folder, "log": self._settings.log.dir}
        return {name: folder for name, folder in folders.items() if folder is not None}

    async def reload(self, settings: Settings) -> ReloadOutcome:
        """Let *settings*, and the files they name, hold as far as they can without a restart, or not at all."""
        assert self.reloader is not None, "the gateway has started"
        return await self.reloader.apply(settings)

    async def _load(self, load: Callable[[S, Callable[[str], None]], T], section: S) -> T:
        """Run *load*, which reads and parses the files of *section*, on a worker thread; the loop logs its lines."""
        loop = asyncio.get_running_loop()

        def tell(line: str) -> None:
            loop.call_soon_threadsafe(self._tell, line)

        return await asyncio.to_thread(load, section, tell)

    async def _prepare_access(self, settings: Settings) -> PreparedChange:
        access = await self._load(load_access, settings.access)

        def commit() -> Iterator[str]:
            yield from what_differs(self.frontend.authenticator.access, access)
            if gone := self.frontend.replace_access(access, clock()):
                yield f"access: {gone} clients had to go"
            self._turn()

        return PreparedChange(commit)

    async def _prepare_quota(self, settings: Settings) -> PreparedChange:
        def commit() -> Iterator[str]:
            change_quota(self.frontend, _quota(settings), clock())
            self._turn()
            yield from ()

        return PreparedChange(commit)

    async def _prepare_groups(self, settings: Settings) -> PreparedChange:
        def commit() -> Iterator[str]:
            if moved := change_federated_groups(self.frontend, settings.mqtt.federated_groups, clock()):
                yield f"mqtt: {moved} members of shared subscriptions are in another group"
            self._turn()

        return PreparedChange(commit)

    async def _prepare_redirect(self, settings: Settings) -> PreparedChange:
        redirect = settings.redirect.redirect

        def commit() -> Iterator[str]:
            if gone := self.frontend.redirect_clients(redirect):
                yield f"redirect: {gone} clients were sent elsewhere"
            self._turn()

        return PreparedChange(commit)

    async def _prepare_notices(self, settings: Settings) -> PreparedChange:
        def commit() -> Iterator[str]:
            self._operator_log.level = Level[settings.notices.level.upper()]
            yield from ()

        return PreparedChange(commit)

    async def _prepare_http(self, settings: Settings) -> PreparedChange:
        from edgebroker.runtime.http.auth import load_http_access

        access = await self._load(load_http_access, settings.http)

        def commit() -> Iterator[str]:
            if self._http is not None:
                self._http.access = access
            yield from ()

        return PreparedChange(commit)

    async def _prepare_relocation(self, settings: Settings) -> PreparedChange:
        if self.peer_manager is None:  # whoever is alone has nowhere to place publishers
            return PreparedChange(tuple)
        return self.peer_manager.prepare_relocation(settings)

    async def _prepare_bridges(self, settings: Settings) -> PreparedChange:
        if self.bridge_manager is None and not has_bridges(settings, self._folder):
            return PreparedChange(tuple)
        # At once: an operator may add one while this is prepared.
        self.bridge_manager = self.bridge_manager or self._new_bridge_manager(self._settings)
        return await self.bridge_manager.prepare(settings)

    def _new_bridge_manager(self, settings: Settings) -> BridgeManager:
        from edgebroker.runtime.bridges.bridges import (
            BridgeManager,
        )  # 2 MiB that a gateway without bridges need not hold

        assert self._reactor is not None
        return BridgeManager(settings, self._reactor, self._operator_log, self._folder)

    def _change_bridge_role(self, pair: str) -> None:
        """This gateway has another role in a bridge pair."""
        if self.bridge_manager is not None:
            self.bridge_manager.change_role(pair)

    async def _control_bridges(self, target: str) -> HttpResponse:
        from edgebroker.runtime.http.bridges import run_bridge_order

        self.bridge_manager = self.bridge_manager or self._new_bridge_manager(self._settings)
        answer = await run_bridge_order(self.bridge_manager, target, self._has_token())
        await self.bridge_manager.state_file.wait_written()
        return answer

    def _has_token(self) -> bool:
        return self._http is not None and self._http.access is not None  # who asks has shown one, or was not heard

    @property
    def _folder(self) -> Path | None:
        return None if self.store is None else self.store.folder

    def _turn(self) -> None:
        if self._reactor is not None:
            self._reactor.schedule_flush()

    def identity(self) -> str:
        """The name by which bridges of other gateways recognise this one."""
        return identity_of(self._settings.node.name, self._folder)

    def facts(self) -> dict[str, int]:
        """What $SYS cannot know by itself."""
        reactor = self._reactor
        facts = {} if reactor is None else {"bytes/received": reactor.received_bytes, "bytes/sent": reactor.sent_bytes}
        resident = ProcessUsage.now().resident_bytes
        if resident is not None:
            self._heap_max = max(self._heap_max, resident)
            facts |= {"heap/current": resident, "heap/maximum": self._heap_max}
        return facts

    def accounts(self) -> dict[str, int | dict[str, int]]:
        """What became of every message so far, by fate; `dropped` by cause."""
        ledger = self.ledger
        return {
            "published": ledger.published,
            "filtered": ledger.filtered,
            "copies": ledger.matched,
            "delivered": ledger.delivered,
            "expired": ledger.expired,
            "queued": ledger.queued,
            "dropped": {Cause(cause).name.lower(): count for cause, count in sorted(ledger.dropped.items())},
            "refused": self.frontend.publish_handler.refused,
            "refused_by": {
                cause.value: count for cause, count in sorted(self.frontend.publish_handler.refusals.items())
            },
        }

    async def _open_http(self) -> None:
        """Answer questions, if the settings say where. Raises CannotListen."""
        host, port = self._settings.http.host, self._settings.http.port
        if port is None:
            return
        from edgebroker.runtime.http.auth import load_http_access
        from edgebroker.runtime.http.pages import HttpPages
        from edgebroker.runtime.http.server import HttpServer  # 1 MiB that a gateway without this door need not hold

        pages = HttpPages(self.view, self._has_token)
        self._http = HttpServer(pages, access=load_http_access(self._settings.http, self._tell))
        self._http.order_handlers = {"/bridges": pages.guarded(self._control_bridges), **pages.order_routes}
        self.http_address = await self._http.listen(host, port)

    def _join(self, stored: JournalState | None) -> None:
        """Be one of a federation, if the settings name one. *stored*: what was kept."""
        if self._membership is None:
            return
        session_journal, now = self.frontend.journal, clock()
        if session_journal.storage is None:
            session_journal.clock_offset = _wall_clock() - now
        self._membership.join(self.frontend, now, None if stored is None else stored.links)

    def _finish_segment(self, finish: Callable[[], None]) -> None:
        """Run *finish* beside the loop; one after the other. What it does not expect is told like other trouble."""

        def told(finished: Future[None]) -> None:
            if (error := finished.exception()) is not None:
                self._tell(f"delivery log: a segment is not finished: {type(error).__name__}: {error}")

        self._syncing.submit(finish).add_done_callback(told)

    async def _write_log(self) -> None:
        """Every second, what the log has to say goes to the disk, bit by bit between the turns of the clients."""
        assert self._log is not None
        assert self._log_dir is not None
        anchor_at = clock() + ANCHOR_EVERY
        while True:
            now, wall = clock(), _wall_clock()
            if now >= anchor_at:
                self._log.anchor(now, wall)
                anchor_at = now + ANCHOR_EVERY
            is_more = False
            try:
                self.ledger.end_run(now)
                is_more = self._log.step(now)  # not a millisecond: no client waits for more than that
                self._log_dir.append(self._log.ready(), now, wall)
                if self._log_dir.wants_full_blocks(now):
                    self._log.finish_waiting()
            except Exception as error:  # the log is not worth the broker: tell it, and go on
                self._tell(f"delivery log: {type(error).__name__}: {error}")
            await asyncio.sleep(0 if is_more else LOG_EVERY_S)


def _wall_clock() -> int:
    """Microseconds since 1970, as far as this machine knows."""
    return time.time_ns() // 1_000


def _quota(settings: Settings) -> Quota:
    return Quota(**{bound.name: getattr(settings.quota, bound.name) for bound in fields(Quota)})
