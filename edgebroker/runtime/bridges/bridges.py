"""Owns all bridges of a gateway: those of the settings and those that an operator added while it ran."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from edgebridge.bridge.options import BridgeOptions
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX
from edgebroker.errors import EdgebrokerError
from edgebroker.instants import SECOND
from edgebroker.names import ClientId
from edgebroker.runtime.bridges.bridge import (
    AWAITS_PAIR,
    BridgeRunner,
    end_session,
    keep_session,
    orphan_sessions,
)
from edgebroker.runtime.bridges.plan import BridgePlan, BridgePlanner, BridgePlans, bridge_names
from edgebroker.runtime.bridges.state import (
    BridgeStateFile,
    BudgetStore,
    check_added,
    load_added,
    local_time,
    next_minute_s,
    save_added,
)
from edgebroker.runtime.leftover_bridges import ADDED_FILE, end_leftover_sessions
from edgebroker.runtime.loop.reactor import Reactor, clock
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.private_files import FileUnusable
from edgebroker.runtime.process import identity_of
from edgebroker.runtime.reload import PreparedChange
from edgebroker.runtime.settings import Settings, SettingsRefused
from edgebroker.runtime.settings.bridge_section import BridgeSettings
from edgebroker.runtime.settings.problems import InvalidEntry

if TYPE_CHECKING:
    from edgebroker.federation.bridge_pairs import BridgePair

_Added = dict[str, BridgeSettings]
_Result = TypeVar("_Result")

KEEPS_QUEUE: Final = "what waits for it is kept; mend it and send SIGHUP"
KEEPS_RUNNING: Final = "it goes on with its settings of before; mend it and send SIGHUP"


READY_CHECK_S: Final = 0.5
"""How often the others of a pair may be told that the remote is there, or not."""


class NoSuchBridge(EdgebrokerError):
    """No bridge has this name."""


class BridgeNameTaken(EdgebrokerError):
    """Another bridge has this name or this client identifier, or the bridge cannot be changed in this way."""


class BridgeManager:
    """All bridges by name, and the files that keep their state."""

    def __init__(self, settings: Settings, reactor: Reactor, operator_log: OperatorLog, folder: Path | None) -> None:
        """*folder*: the data folder; None: state lasts as long as the process."""
        self.identity = identity_of(settings.node.name, folder)
        self.folder = folder
        self.working_folder = Path.cwd()
        self.bridges: dict[str, BridgeRunner] = {}
        self._planner = BridgePlanner(settings, self.identity)
        self._reactor = reactor
        self._operator_log = operator_log
        self._budget_store = BudgetStore(folder, operator_log)
        self._minute_timer: asyncio.TimerHandle | None = None
        self._pair_timer: asyncio.TimerHandle | None = None
        self.state_file = BridgeStateFile(folder, operator_log)
        self._teardowns: dict[asyncio.Task[str], BridgeOptions] = {}
        self._is_running = True
        self._change_lock = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()
        loaded = load_added(folder)
        self.added = {entry.name: entry for entry in loaded.bridges}
        """Bridges that an operator added while the gateway ran. A bridge of the settings with the same name takes
        precedence.
        """
        self._invalid_added = loaded.aside
        self._plans = self._planner.plan_all(settings, loaded)
        self._set_duplicates_aside(self._plans)
        self._configured_names = bridge_names(settings)
        self._settings = settings
        self._settings = self._effective_settings(settings, self._plans)

    def start(self) -> Iterator[str]:
        """Starts all bridges. Yields a line for the operator about each leftover session of a removed bridge."""
        yield from self._end_leftovers()
        for plan in self._plans.usable.values():
            self._add(plan)
        self._report_invalid()
        self._start_minute_timer()

    @property
    def names(self) -> frozenset[str]:
        """The names of all bridges, invalid ones included, as far as the names can be read."""
        return self._plans.names | frozenset(self.bridges)

    @property
    def aside(self) -> tuple[InvalidEntry, ...]:
        """Entries of the settings, or of the file of added bridges, that are invalid."""
        return self._plans.aside

    @property
    def settings(self) -> Settings:
        """The settings in effect: only with the bridges that are usable."""
        return self._settings

    def find(self, name: str) -> BridgeRunner:
        """Returns the bridge *name*. Raises NoSuchBridge."""
        bridge = self.bridges.get(name)
        if bridge is None:
            if invalid := next((entry for entry in self.aside if entry.name == name), None):
                raise NoSuchBridge(f"{invalid}; mend it and send SIGHUP")
            known = ", ".join(self.bridges) or "none at all"
            raise NoSuchBridge(f"there is no bridge {name!r}; there are {known}")
        return bridge

    def waiting(self, name: str) -> int:
        """Returns how many messages are queued for the bridge *name*, whether it runs or not."""
        session = self._reactor.frontend.connect_handler.sessions.get(ClientId(BRIDGE_CLIENT_PREFIX + name))
        return 0 if session is None else session.outstanding

    def is_added(self, name: str) -> bool:
        """Whether the bridge *name* was added while the gateway ran and is not in the settings."""
        return name in self.added and name not in self._configured_names

    def set_paused(self, name: str, is_paused: bool) -> BridgeRunner:
        """Pauses or resumes the bridge *name*, also for later runs.

        Raises NoSuchBridge, BridgeNameTaken, SettingsRefused.
        """
        if not is_paused:
            self._retry_invalid(name)
        bridge = self.find(name)
        if not is_paused:
            self._check_client_id(bridge.settings)
        self.state_file.set_paused(name, is_paused)
        (bridge.pause if is_paused else bridge.resume)()
        return bridge

    async def add(self, settings: BridgeSettings) -> BridgeRunner:
        """Adds a bridge, also for later runs. Raises SettingsRefused, BridgeNameTaken, FileUnusable."""
        return await self._change(self._save_and_add(settings))

    async def remove(self, name: str) -> int:
        """Removes a bridge that was added. Returns how many queued messages are dropped.

        Raises NoSuchBridge, BridgeNameTaken, FileUnusable.
        """
        return await self._change(self._save_and_remove(name))

    async def _change(self, change: Coroutine[Any, Any, _Result]) -> _Result:
        """Runs *change* to its end, even if the caller is cancelled; `_change_lock` admits one at a time."""
        task = asyncio.get_running_loop().create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._on_change_done)
        return await asyncio.shield(task)

    def _on_change_done(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        task.exception()  # marks it as retrieved: the caller of `_change` gets it too, if that one still waits

    async def _save_and_add(self, settings: BridgeSettings) -> BridgeRunner:
        name = settings.name
        async with self._change_lock:
            self._check_new(settings)
            plan = await asyncio.to_thread(self._planner.plan, settings)  # reads the files that *settings* name
            if self.folder is not None:
                check_added((*self.added.values(), settings))
            await self._save_added(lambda added: {**added, name: settings})
            self._check_new(settings)  # settings may have been reloaded meanwhile; their bridges take precedence
            self._add(plan)
            return self.bridges[name]

    def _check_new(self, settings: BridgeSettings) -> None:
        if settings.name in self.names:
            raise BridgeNameTaken(f"there is a bridge {settings.name} already; choose another name, or remove it first")
        if not self._stays_paused(settings):
            self._check_client_id(settings)

    def _check_client_id(self, settings: BridgeSettings) -> None:
        """Raises BridgeNameTaken if a running bridge has the same client identifier at the same remote."""
        for bridge in self.bridges.values():
            other = bridge.settings
            if other.name != settings.name and settings.is_same_client_as(other) and not self._stays_paused(other):
                raise BridgeNameTaken(
                    f"client_id {settings.is_as_other(other)}; choose another, or pause that one first"
                )

    def _stays_paused(self, settings: BridgeSettings) -> bool:
        """Whether a bridge of these settings is paused: now, if it runs with them, otherwise once it starts."""
        present = self.bridges.get(settings.name)
        is_unchanged = present is not None and present.settings == settings
        is_paused = settings.paused or self.state_file.is_paused(settings.name)
        return is_paused and (not is_unchanged or (present is not None and present.is_paused))

    def _set_duplicates_aside(self, plans: BridgePlans, since: Set[str] = frozenset()) -> None:
        """Sets aside bridges of *plans* with a client identifier that another running bridge uses."""
        plans.set_duplicates_aside(
            {name: bridge.settings for name, bridge in self.bridges.items()}, self._stays_paused, since
        )

    async def _save_and_remove(self, name: str) -> int:
        async with self._change_lock:
            if name not in self.added:
                self.find(name)
            if not self.is_added(name):
                raise BridgeNameTaken(
                    f"the bridge {name} stands in the settings file; take it out there, and send SIGHUP"
                )
            await self._save_added(lambda added: {other: one for other, one in added.items() if other != name})
            return self._end(name)

    async def _save_added(self, edit: Callable[[_Added], _Added]) -> None:
        """Applies *edit* to the added bridges and saves them, in a thread: a card may take half a second.

        A file that has invalid entries is not overwritten. Raises FileUnusable.
        """
        after: _Added | None = None
        before = self.added
        while after is None or self.added is not before:  # a reload may replace `added` during the write
            before = self.added
            after = edit(before)
            if self._invalid_added:
                text = "; ".join(str(entry) for entry in self._invalid_added)
                raise FileUnusable(
                    f"{ADDED_FILE} has what cannot be read, and is not written over ({text}); mend it, send SIGHUP"
                )
            if self.folder is not None:
                await asyncio.to_thread(save_added, self.folder, tuple(after.values()))
        self.added = after

    async def stop(self) -> None:
        """Disconnects all bridges, and writes their state."""
        while self._changes:
            await asyncio.gather(*self._changes, return_exceptions=True)
        self._is_running = False
        for timer in (self._minute_timer, self._pair_timer):
            if timer is not None:
                timer.cancel()
        for task in self._teardowns:
            task.cancel("the gateway stops")
        stops = [bridge.stop() for bridge in self.bridges.values()]
        await asyncio.gather(*stops, *self._teardowns, return_exceptions=True)
        await self._budget_store.close()
        await self.state_file.wait_written()

    def _start_minute_timer(self) -> None:
        if self._minute_timer is None and (self.bridges or self.aside):
            self._minute_timer = asyncio.get_running_loop().call_later(next_minute_s(), self._tick)

    def _tick(self) -> None:
        """Handles a new minute: retries invalid entries and notifies the bridges."""
        self._minute_timer = asyncio.get_running_loop().call_later(next_minute_s(), self._tick)
        now = local_time()
        for entry in self.aside:  # a file it names may be on a disk that was mounted late
            if not entry.is_double:
                with suppress(SettingsRefused, BridgeNameTaken):
                    self._retry_invalid(entry.name)
        for bridge in self.bridges.values():
            bridge.tick(now)

    async def prepare(self, settings: Settings) -> PreparedChange:
        """Prepares the bridges of new *settings*. A bridge that is invalid in them stays as it is."""
        async with self._change_lock:  # a change that is being saved is not in `added` yet
            before, loaded = frozenset(self.added), await asyncio.to_thread(load_added, self.folder)
        plans = await asyncio.to_thread(self._planner.plan_all, settings, loaded)
        self._set_duplicates_aside(plans)
        effective = self._effective_settings(settings, plans)
        listed = bridge_names(settings)

        def commit() -> Iterator[str]:
            # Bridges may have been added or removed since: the present ones count.
            added_since, removed = self.added.keys() - before, before - self.added.keys()
            for name in removed - listed:
                plans.forget(name)
            self._set_duplicates_aside(plans, added_since & self.bridges.keys())  # some may have been resumed, too
            wanted, had_invalid = plans.usable, bool(self.aside)
            stay = self._unchanged_names(plans) | (added_since - wanted.keys())
            added = {bridge.name: bridge for bridge in loaded.bridges if bridge.name not in removed}
            self.added = added | {name: bridge for name, bridge in self.added.items() if name in stay}
            effective_now = self._effective_settings(settings, plans)
            self._plans, self._settings = plans, effective_now
            self._invalid_added, self._configured_names = loaded.aside, listed
            for name in [name for name in self.bridges if name not in wanted and name not in stay]:
                yield f"bridge {name}: its session ended, {self._end(name)} messages that waited are dropped"
            for name, plan in wanted.items():
                present = self.bridges.get(name)
                if present is None:
                    self._add(plan)
                elif (present.settings, present.options) != (plan.settings, _in_role(plan, present.options.stands_by)):
                    if present.options.client_id == plan.options.client_id:
                        present.pause("its settings changed")
                    else:
                        self._terminate(present)
                    present.record_spending()
                    self._leave_pair(present.settings, plan.settings)
                    self._add(plan)
                    yield f"bridge {name}: begins again with other terms"
                else:
                    present.dial_target = plan.dial_target  # its files may have changed: read at the next dial
            if had_invalid:
                yield from self._end_leftovers()
            self._report_invalid()

        return PreparedChange(commit, effective_settings=effective)

    def _unchanged_names(self, plans: BridgePlans) -> frozenset[str]:
        """The bridges that stay as they are, because *plans* have no valid entry for them."""
        return plans.unchanged_names(self.bridges)

    def _effective_settings(self, settings: Settings, plans: BridgePlans) -> Settings:
        """*settings* with the bridges that are in effect under *plans*."""
        stay = self._unchanged_names(plans)
        bridges = [bridge for bridge in settings.bridges if bridge.name in plans.usable]
        bridges += [bridge for bridge in self._settings.bridges if bridge.name in stay]
        return replace(settings, bridges=tuple(bridges), aside=plans.aside)

    def _end_leftovers(self) -> Iterator[str]:
        """Ends the sessions of removed bridges, if all names in the settings can be read."""
        if self._plans.are_all_named:
            self.state_file.keep_only(self.names)
            yield from end_leftover_sessions(self._reactor.frontend, self.names)
            self._reactor.schedule_flush()

    def _report_invalid(self) -> None:
        """Logs the problems of invalid entries, and keeps the queues of their sessions."""
        frontend = self._reactor.frontend if self.aside else None
        for entry in self.aside:
            for problem in entry.problems:
                text = f"{problem}; {KEEPS_RUNNING if entry.name in self.bridges else KEEPS_QUEUE}"
                fields = {"bridge": entry.name} if entry.name else {}
                self._operator_log.log(Level.ERROR, "bridge-set-aside", text, entry.name, **fields)
            if frontend is not None and entry.name not in self.bridges:
                for name in [entry.name] if entry.name else orphan_sessions(frontend, self.names):
                    keep_session(frontend, name, entry, clock())

    def _retry_invalid(self, name: str) -> None:
        """Starts the bridge *name* if it was set aside and is valid now.

        Raises SettingsRefused or BridgeNameTaken if it is still invalid.
        """
        for entry in self.aside:
            if entry.name == name and entry.settings is not None and name not in self.bridges:
                plan = self._planner.plan(entry.settings)
                if not self._stays_paused(entry.settings):
                    self._check_client_id(entry.settings)
                self._plans.forget(name)
                self._plans.usable[name] = plan
                self._add(plan)
                cause = "its client_id is its own now" if entry.is_double else "its files can be read now"
                self._operator_log.log(Level.WARNING, "bridge-used-again", cause, bridge=name)

    # -- pairs ----------------------------------------------------------------------------------------------------

    def pair_of(self, settings: BridgeSettings) -> BridgePair | None:
        """Returns the pair to which a bridge of *settings* belongs; None if there is none, or no federation."""
        member = self._reactor.frontend.federation
        if settings.pair is None or member is None:
            return None
        found = member.peers.pairs.find(settings.pair)
        if found is None or found.takeover != settings.takeover_s * SECOND:
            found = member.join_pair(settings.pair, settings.takeover_s * SECOND, clock())
            self._reactor.schedule_flush()
        return found

    def _leave_pair(self, settings: BridgeSettings, new: BridgeSettings | None = None) -> None:
        """Leaves the pair of *settings*, unless *new* ones have the same."""
        member = self._reactor.frontend.federation
        if settings.pair is not None and member is not None and (new is None or new.pair != settings.pair):
            member.leave_pair(settings.pair, clock())
            self._reactor.schedule_flush()

    def change_role(self, pair: str) -> None:
        """Lets the bridge of *pair* carry messages, or stand by, as is the gateway's role in the pair by now.

        A bridge that was active stands by only after `takeover_s`: what was published before the other one had taken
        over may still be on its way to this gateway, and wait for nobody else.
        """
        bridge = next((bridge for bridge in self.bridges.values() if bridge.settings.pair == pair), None)
        joined = None if bridge is None else self.pair_of(bridge.settings)
        if bridge is None or joined is None or joined.holder is None or not self._is_running:
            return
        if joined.is_active or bridge.options.stands_by:
            self._enter_role(pair)
        else:
            asyncio.get_running_loop().call_later(bridge.settings.takeover_s, self._enter_role, pair)

    def _enter_role(self, pair: str) -> None:
        bridge = next((bridge for bridge in self.bridges.values() if bridge.settings.pair == pair), None)
        joined = None if bridge is None else self.pair_of(bridge.settings)
        if bridge is None or joined is None or joined.holder is None or not self._is_running:
            return
        if bridge.options.stands_by is joined.is_active or bridge.awaits_pair:
            bridge.pause(f"it is {joined.role} from now on")
            bridge.record_spending()
            self._add(BridgePlan(bridge.settings, bridge.options, bridge.dial_target))
            text = "it is active" if joined.is_active else f"it stands by: another gateway of the pair {pair} is active"
            self._operator_log.log(Level.WARNING, "bridge-role", text, bridge=bridge.settings.name)

    def _tell_pairs(self) -> None:
        """Tells the pairs whether the remotes are there, now and after `READY_CHECK_S`, as long as there are pairs."""
        self._pair_timer = None
        joined = [(pair, bridge) for bridge in self.bridges.values() if (pair := self.pair_of(bridge.settings))]
        for pair, bridge in joined:
            pair.is_ready = bridge.is_ready
        if joined and self._is_running:
            self._pair_timer = asyncio.get_running_loop().call_later(READY_CHECK_S, self._tell_pairs)

    def _add(self, plan: BridgePlan) -> None:
        name = plan.settings.name
        pair, awaits_pair = self.pair_of(plan.settings), False
        if pair is not None:
            # Who was active in an earlier run and has not heard of another one keeps messages until it knows more.
            subscribed = self._reactor.frontend.node.subscriptions.of(ClientId(BRIDGE_CLIENT_PREFIX + name))
            awaits_pair = pair.holder is None and bool(subscribed)
            plan = plan._replace(options=_in_role(plan, not pair.is_active and not awaits_pair))
            if self._pair_timer is None:
                self._pair_timer = asyncio.get_running_loop().call_later(0, self._tell_pairs)
        elif plan.settings.pair is not None:
            text = "it has a pair, and this gateway belongs to no federation: it is active"
            self._operator_log.log(Level.WARNING, "bridge-role", text, bridge=name)
        bridge = BridgeRunner(plan, self._reactor, self._operator_log, _chance, self._budget_store, self.state_file)
        self.bridges[name] = bridge
        self._start_minute_timer()
        teardowns = [task for task, options in self._teardowns.items() if options.client_id == plan.options.client_id]
        if plan.settings.paused or self.state_file.is_paused(name):
            bridge.start_paused()
        elif awaits_pair:
            bridge.start_paused(AWAITS_PAIR)
        elif teardowns:  # a late teardown would end the new session as well
            bridge.start_paused("what was there before is leaving")
            teardowns[-1].add_done_callback(lambda _: self._start_after_teardown(bridge))
        else:
            bridge.start()

    def _start_after_teardown(self, bridge: BridgeRunner) -> None:
        """Starts *bridge*, which waited for the teardown of an old session of its client identifier."""
        name = bridge.options.name
        is_waiting = self.bridges.get(name) is bridge and bridge.is_paused and not self.state_file.is_paused(name)
        if self._is_running and is_waiting:
            bridge.start()

    def _end(self, name: str) -> int:
        """Ends the removed bridge *name* and its session. Returns how many queued messages are dropped."""
        bridge = self.bridges.pop(name, None)
        self.state_file.forget(name)
        self._plans.forget(name)
        if bridge is not None:
            self._leave_pair(bridge.settings)
            self._terminate(bridge)
        self._budget_store.forget(name)  # after the bridge's last record
        dropped = end_session(self._reactor.frontend, name, clock())
        self._reactor.schedule_flush()
        return dropped

    def _terminate(self, bridge: BridgeRunner) -> None:
        """Ends *bridge*, and its session at the remote, at once or by a `TeardownAttempt`."""
        attempt = bridge.terminate()
        if attempt is not None:
            task = asyncio.get_running_loop().create_task(attempt.run())
            self._teardowns[task] = bridge.options
            task.add_done_callback(self._on_teardown_done)

    def _on_teardown_done(self, task: asyncio.Task[str]) -> None:
        options = self._teardowns.pop(task)
        why = "the gateway stopped before that" if task.cancelled() else task.result()
        if why:
            session = f"its session at the remote, {options.client_id},"
            text = f"{session} could not be ended and goes on collecting there: {why}"
            self._operator_log.log(Level.WARNING, "bridge-left-behind", text, bridge=options.name)


def _in_role(plan: BridgePlan, stands_by: bool) -> BridgeOptions:
    return replace(plan.options, stands_by=stands_by)


def _chance() -> float:
    """Returns a number from 0 to below 1."""
    return int.from_bytes(os.urandom(4), "big") / (1 << 32)
