"""All bridges of a gateway: those of the settings and those an operator added, and their changes at a reload."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from edgebridge.bridge.options import BridgeOptions
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX
from edgebroker.errors import EdgebrokerError
from edgebroker.names import ClientId
from edgebroker.runtime.bridges.bridge import BridgeRunner, end_session, keep_session, orphan_sessions
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

_Added = dict[str, BridgeSettings]
_Result = TypeVar("_Result")

WAITS: Final = "what waits for it is kept; mend it and send SIGHUP"
GOES_ON: Final = "it goes on with its settings of before; mend it and send SIGHUP"


class NoSuchBridge(EdgebrokerError):
    """There is no bridge of the name."""


class BridgeNameTaken(EdgebrokerError):
    """A bridge of the name is there, and not to be changed in this way."""


class BridgeManager:
    """By name."""

    def __init__(self, settings: Settings, reactor: Reactor, notices: OperatorLog, folder: Path | None) -> None:
        """*folder*: where the gateway keeps things."""
        self.identity = identity_of(settings.node.name, folder)
        self.folder = folder
        self.here = Path.cwd()
        self.bridges: dict[str, BridgeRunner] = {}
        self._planner = BridgePlanner(settings, self.identity)
        self._reactor = reactor
        self._notices = notices
        self._budget_store = BudgetStore(folder, notices)
        self._ticking: asyncio.TimerHandle | None = None
        self.state_file = BridgeStateFile(folder, notices)
        self._teardowns: dict[asyncio.Task[str], BridgeOptions] = {}
        self._is_running = True
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()
        added = load_added(folder)
        self.added = {one.name: one for one in added.bridges}
        """Bridges that an operator added while the gateway ran. Those of the settings come first."""
        self._unreadable = added.aside
        self._plans = self._planner.plan_all(settings, added)
        self._part(self._plans)
        self._listed = bridge_names(settings)
        self._settings = settings
        self._settings = self._held(settings, self._plans)

    def start(self) -> Iterator[str]:
        """From now on what is for the remotes is kept, and they are dialled. A line for each that is no more."""
        yield from self._end_others()
        for plan in self._plans.usable.values():
            self._add(plan)
        self._set_aside()
        self._watch_clock()

    @property
    def names(self) -> frozenset[str]:
        """Of all that there are, or will be at `start`, as far as they are known."""
        return self._plans.names | frozenset(self.bridges)

    @property
    def aside(self) -> tuple[InvalidEntry, ...]:
        """What stands in the settings, or in the file of those that were added, and cannot be used."""
        return self._plans.aside

    @property
    def settings(self) -> Settings:
        """Those that hold: with the bridges alone that can be used."""
        return self._settings

    def find(self, name: str) -> BridgeRunner:
        """The bridge of this name. Raises NoSuchBridge."""
        bridge = self.bridges.get(name)
        if bridge is None:
            if aside := next((one for one in self.aside if one.name == name), None):
                raise NoSuchBridge(f"{aside}; mend it and send SIGHUP")
            there_are = ", ".join(self.bridges) or "none at all"
            raise NoSuchBridge(f"there is no bridge {name!r}; there are {there_are}")
        return bridge

    def waiting(self, name: str) -> int:
        """How many messages its session has, whether the bridge runs or not."""
        session = self._reactor.frontend.connect_handler.sessions.get(ClientId(BRIDGE_CLIENT_PREFIX + name))
        return 0 if session is None else session.outstanding

    def is_added(self, name: str) -> bool:
        """Whether the bridge was added while the gateway ran, and does not stand in the settings."""
        return name in self.added and name not in self._listed

    def set_paused(self, name: str, is_paused: bool) -> BridgeRunner:
        """Let it rest, or dial again; it stays so over restarts. Raises NoSuchBridge, NameTaken, SettingsRefused."""
        if not is_paused:
            self._use_again(name)
        bridge = self.find(name)
        if not is_paused:
            self._see_that_it_is_alone(bridge.settings)
        self.state_file.set_paused(name, is_paused)
        (bridge.pause if is_paused else bridge.resume)()
        return bridge

    async def add(self, settings: BridgeSettings) -> BridgeRunner:
        """Another one, from now on and after restarts. Raises SettingsRefused, NameTaken, FileRefused."""
        return await self._change(self._add_kept(settings))

    async def remove(self, name: str) -> int:
        """A bridge that was added is no more; how many messages for it are dropped.

        Raises NoSuchBridge, NameTaken, FileRefused.
        """
        return await self._change(self._remove_kept(name))

    async def _change(self, change: Coroutine[Any, Any, _Result]) -> _Result:
        """One after the other, and each as a whole: who has asked for it may be gone before it is on disk."""
        task = asyncio.get_running_loop().create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changed)
        return await asyncio.shield(task)

    def _changed(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        task.exception()  # who has asked hears of it; nobody else if that one is gone

    async def _add_kept(self, settings: BridgeSettings) -> BridgeRunner:
        name = settings.name
        async with self._changing:
            self._see_that_it_is_new(settings)
            plan = self._planner.plan(settings)
            if self.folder is not None:
                check_added(self.folder, (*self.added.values(), settings))
            await self._keep(lambda added: {**added, name: settings})
            self._see_that_it_is_new(settings)  # settings may have come meanwhile, and what is in both is theirs
            self._add(plan)
            return self.bridges[name]

    def _see_that_it_is_new(self, settings: BridgeSettings) -> None:
        if settings.name in self.names:
            raise BridgeNameTaken(f"there is a bridge {settings.name} already; choose another name, or remove it first")
        if not self._rests(settings):
            self._see_that_it_is_alone(settings)

    def _see_that_it_is_alone(self, settings: BridgeSettings) -> None:
        """No other bridge that runs is the same client. Raises NameTaken."""
        for one in self.bridges.values():
            other = one.settings
            if other.name != settings.name and settings.is_same_client_as(other) and not self._rests(other):
                raise BridgeNameTaken(
                    f"client_id {settings.is_as_other(other)}; choose another, or pause that one first"
                )

    def _rests(self, settings: BridgeSettings) -> bool:
        """Whether a bridge of these settings dials nobody: now, if it is there with them, else when it begins."""
        present = self.bridges.get(settings.name)
        is_as_it_was = present is not None and present.settings == settings
        is_to_rest = settings.paused or self.state_file.is_paused(settings.name)
        return is_to_rest and (not is_as_it_was or (present is not None and present.is_paused))

    def _part(self, plans: BridgePlans, since: Set[str] = frozenset()) -> None:
        """No two that run are to be one client."""
        plans.set_duplicates_aside({name: bridge.settings for name, bridge in self.bridges.items()}, self._rests, since)

    async def _remove_kept(self, name: str) -> int:
        async with self._changing:
            if name not in self.added:
                self.find(name)
            if not self.is_added(name):
                raise BridgeNameTaken(
                    f"the bridge {name} stands in the settings file; take it out there, and send SIGHUP"
                )
            await self._keep(lambda added: {other: one for other, one in added.items() if other != name})
            return self._end(name)

    async def _keep(self, changed: Callable[[_Added], _Added]) -> None:
        """Let others be added, when that is on disk: in a thread, for a card may take half a second. Nothing that is in
        the file is lost with it.
        """
        after: _Added | None = None
        before = self.added
        while after is None or self.added is not before:  # settings came while it was written
            before = self.added
            after = changed(before)
            if self._unreadable:
                text = "; ".join(str(one) for one in self._unreadable)
                raise FileUnusable(
                    f"{ADDED_FILE} has what cannot be read, and is not written over ({text}); mend it, send SIGHUP"
                )
            if self.folder is not None:
                await asyncio.to_thread(save_added, self.folder, tuple(after.values()))
        self.added = after

    async def stop(self) -> None:
        """Hang up."""
        while self._changes:
            await asyncio.gather(*self._changes, return_exceptions=True)
        self._is_running = False
        if self._ticking is not None:
            self._ticking.cancel()
        for task in self._teardowns:
            task.cancel("the gateway stops")
        stops = [bridge.stop() for bridge in self.bridges.values()]
        await asyncio.gather(*stops, *self._teardowns, return_exceptions=True)
        await self._budget_store.close()
        await self.state_file.wait_written()

    def _watch_clock(self) -> None:
        if self._ticking is None and (self.bridges or self.aside):
            self._ticking = asyncio.get_running_loop().call_later(next_minute_s(), self._tick)

    def _tick(self) -> None:
        """Another minute has begun."""
        self._ticking = asyncio.get_running_loop().call_later(next_minute_s(), self._tick)
        shown = local_time()
        for one in self.aside:  # a disk may be there later than we
            if not one.is_double:
                with suppress(SettingsRefused, BridgeNameTaken):
                    self._use_again(one.name)
        for bridge in self.bridges.values():
            bridge.tick(shown)

    async def prepare(self, settings: Settings) -> PreparedChange:
        """Other bridges, or other terms for those that are. One that cannot be used now stays as it is."""
        async with self._changing:  # what is being written is neither read nor known yet
            before, read = frozenset(self.added), load_added(self.folder)
        plans = self._planner.plan_all(settings, read)
        self._part(plans)
        holding = self._held(settings, plans)
        listed = bridge_names(settings)

        def commit() -> Iterator[str]:
            # One may have been added or removed since: those of now count.
            since, gone = self.added.keys() - before, before - self.added.keys()
            for name in gone - listed:
                plans.forget(name)
            self._part(plans, since & self.bridges.keys())  # one may have been resumed, too
            wanted, had_aside = plans.usable, bool(self.aside)
            stay = self._kept_back(plans) | (since - wanted.keys())
            added = {one.name: one for one in read.bridges if one.name not in gone}
            self.added = added | {name: one for name, one in self.added.items() if name in stay}
            held = self._held(settings, plans)
            self._plans, self._unreadable, self._settings, self._listed = plans, read.aside, held, listed
            for name in [name for name in self.bridges if name not in wanted and name not in stay]:
                yield f"bridge {name}: its session ended, {self._end(name)} messages that waited are dropped"
            for name, plan in wanted.items():
                present = self.bridges.get(name)
                if present is None:
                    self._add(plan)
                elif (present.settings, present.terms) != (plan.settings, plan.terms):
                    if present.terms.client_id == plan.terms.client_id:
                        present.pause("its settings changed")
                    else:
                        self._leave(present)
                    present.record_spending()
                    self._add(plan)
                    yield f"bridge {name}: begins again with other terms"
                else:
                    present.dial_target = (
                        plan.dial_target
                    )  # its files may have changed: they hold when it is dialled again
            if had_aside:
                yield from self._end_others()
            self._set_aside()

        return PreparedChange(commit, effective_settings=holding)

    def _kept_back(self, plans: BridgePlans) -> frozenset[str]:
        """The bridges that stay as they are, because what *plans* have of them cannot be used."""
        return plans.unchanged_names(self.bridges)

    def _held(self, settings: Settings, plans: BridgePlans) -> Settings:
        """*settings*, with what holds of them if these are the *plans*."""
        stay = self._kept_back(plans)
        bridges = [one for one in settings.bridges if one.name in plans.usable]
        bridges += [one for one in self._settings.bridges if one.name in stay]
        return replace(settings, bridges=tuple(bridges), aside=plans.aside)

    def _end_others(self) -> Iterator[str]:
        """End the sessions of bridges that are no more, if it is known which those are."""
        if self._plans.are_all_named:
            self.state_file.keep_only(self.names)
            yield from end_leftover_sessions(self._reactor.frontend, self.names)
            self._reactor.schedule_flush()

    def _set_aside(self) -> None:
        """Tell what cannot be used, and keep what waits for it."""
        frontend = self._reactor.frontend if self.aside else None
        for one in self.aside:
            for problem in one.problems:
                text = f"{problem}; {GOES_ON if one.name in self.bridges else WAITS}"
                fields = {"bridge": one.name} if one.name else {}
                self._notices.log(Level.ERROR, "bridge-set-aside", text, one.name, **fields)
            if frontend is not None and one.name not in self.bridges:
                for name in [one.name] if one.name else orphan_sessions(frontend, self.names):
                    keep_session(frontend, name, one, clock())

    def _use_again(self, name: str) -> None:
        """Begin with a bridge that was set aside. Raises SettingsRefused or NameTaken if it still cannot be used."""
        for one in self.aside:
            if one.name == name and one.settings is not None and name not in self.bridges:
                plan = self._planner.plan(one.settings)
                if not self._rests(one.settings):
                    self._see_that_it_is_alone(one.settings)
                self._plans.forget(name)
                self._plans.usable[name] = plan
                self._add(plan)
                why = "its client_id is its own now" if one.is_double else "its files can be read now"
                self._notices.log(Level.WARNING, "bridge-used-again", why, bridge=name)

    def _add(self, plan: BridgePlan) -> None:
        name = plan.settings.name
        bridge = BridgeRunner(
            plan.settings,
            plan.terms,
            self._reactor,
            self._notices,
            _chance,
            plan.dial_target,
            self._budget_store,
            self.state_file,
        )
        self.bridges[name] = bridge
        self._watch_clock()
        before = [task for task, terms in self._teardowns.items() if terms.client_id == plan.terms.client_id]
        if plan.settings.paused or self.state_file.is_paused(name):
            bridge.start_paused()
        elif before:  # a farewell that comes late would end the new session as well
            bridge.start_paused("what was there before is leaving")
            before[-1].add_done_callback(lambda _: self._follow(bridge))
        else:
            bridge.start()

    def _follow(self, bridge: BridgeRunner) -> None:
        """What *bridge* has waited for is over."""
        name = bridge.terms.name
        is_meant = self.bridges.get(name) is bridge and bridge.is_paused and not self.state_file.is_paused(name)
        if self._is_running and is_meant:
            bridge.start()

    def _end(self, name: str) -> int:
        """A bridge is no more; how many messages for it are dropped."""
        bridge = self.bridges.pop(name, None)
        self.state_file.forget(name)
        self._plans.forget(name)
        if bridge is not None:
            self._leave(bridge)
        self._budget_store.forget(name)  # behind the last that it writes
        dropped = end_session(self._reactor.frontend, name, clock())
        self._reactor.schedule_flush()
        return dropped

    def _leave(self, bridge: BridgeRunner) -> None:
        """End its session at the remote, now or in a while."""
        leaving = bridge.terminate()
        if leaving is not None:
            task = asyncio.get_running_loop().create_task(leaving.run())
            self._teardowns[task] = bridge.terms
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[str]) -> None:
        terms = self._teardowns.pop(task)
        why = "the gateway stopped before that" if task.cancelled() else task.result()
        if why:
            text = (
                f"its session at the remote, {terms.client_id}, could not be ended and goes on collecting there: {why}"
            )
            self._notices.log(Level.WARNING, "bridge-left-behind", text, bridge=terms.name)

    def _plan_of_present(self, name: str) -> BridgePlan:
        present = self.bridges[name]
        return BridgePlan(present.settings, present.terms, present.dial_target)


def _chance() -> float:
    """From 0 to below 1."""
    return int.from_bytes(os.urandom(4), "big") / (1 << 32)
