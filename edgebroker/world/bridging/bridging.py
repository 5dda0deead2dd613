"""All bridges of a gateway: those of the settings, and what becomes of them when the settings change."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from edgebridge.frontend.keeping import KEPT_BYTES_MAX
from edgebridge.upstream.rule import Rule
from edgebridge.upstream.terms import Terms
from edgebridge.upstream.toll import Dues
from edgebridge.wire.dialect import V5, V311
from edgebroker.errors import EdgebrokerError
from edgebroker.instants import SECOND
from edgebroker.overlay.address import Address
from edgebroker.world.bridging.added import load_added, save_added
from edgebroker.world.bridging.bridge import Bridge
from edgebroker.world.bridging.kept import Kept
from edgebroker.world.bridging.road import Road, road_of
from edgebroker.world.bridging.till import Till, moment, next_minute_s
from edgebroker.world.identity import identity_of
from edgebroker.world.operatorlog import Level, OperatorLog
from edgebroker.world.privatefile import FileRefused, read_private
from edgebroker.world.reactor import Reactor
from edgebroker.world.reload import Prepared
from edgebroker.world.settings import Problem, Settings, SettingsRefused
from edgebroker.world.settings.bridge import BridgeSettings


class NoSuchBridge(EdgebrokerError):
    """There is no bridge of the name."""


class NameTaken(EdgebrokerError):
    """A bridge of the name is there, and not to be changed in this way."""


class Plan(NamedTuple):
    """A bridge that is to be."""

    settings: BridgeSettings
    terms: Terms
    road: Road


class Bridging:
    """By name."""

    def __init__(self, settings: Settings, reactor: Reactor, notices: OperatorLog, folder: Path | None) -> None:
        """*folder*: where the gateway keeps things. Raises SettingsRefused."""
        self.identity = identity_of(settings.node.name, folder)
        self.folder = folder
        self.here = Path.cwd()
        self.bridges: dict[str, Bridge] = {}
        self._node = settings.node.name
        self._limits = settings.limits
        self._reactor = reactor
        self._notices = notices
        self.added = {one.name: one for one in load_added(folder)}
        """Bridges that an operator added while the gateway ran. Those of the settings come first."""
        self._till = Till(folder)
        self._ticking: asyncio.TimerHandle | None = None
        self.kept = Kept(folder, notices)
        self._listed = frozenset(one.name for one in settings.bridges)
        self._plans = {**self._plans_of(self.added.values()), **self._plans_of(settings.bridges)}
        self._leaving: dict[asyncio.Task[str], Terms] = {}
        self._is_running = True

    def start(self) -> None:
        """From now on what is for the remotes is kept, and they are dialled."""
        self.kept.keep_only(self._plans)
        for plan in self._plans.values():
            self._add(plan)

    @property
    def names(self) -> frozenset[str]:
        """Of all that there are, or will be at `start`."""
        return frozenset(self._plans) | frozenset(self.bridges)

    def find(self, name: str) -> Bridge:
        """The bridge of this name. Raises NoSuchBridge."""
        bridge = self.bridges.get(name)
        if bridge is None:
            there_are = ", ".join(self.bridges) or "none at all"
            raise NoSuchBridge(f"there is no bridge {name!r}; there are {there_are}")
        return bridge

    def is_added(self, name: str) -> bool:
        """Whether the bridge was added while the gateway ran, and does not stand in the settings."""
        return name in self.added and name not in self._listed

    def pause(self, name: str, is_paused: bool) -> Bridge:
        """Let it rest, or dial again; it stays so over restarts. Raises NoSuchBridge."""
        bridge = self.find(name)
        self.kept.pause(name, is_paused)
        (bridge.pause if is_paused else bridge.resume)()
        return bridge

    def add(self, settings: BridgeSettings) -> Bridge:
        """Another one, from now on and after restarts. Raises SettingsRefused, NameTaken, FileRefused."""
        if settings.name in self.bridges:
            raise NameTaken(f"there is a bridge {settings.name} already; choose another name, or remove it first")
        plan = self._plan_of(settings)
        self._keep({**self.added, settings.name: settings})
        self._add(plan)
        return self.bridges[settings.name]

    def remove(self, name: str) -> int:
        """A bridge that was added is no more; how many messages for it are dropped.

        Raises NoSuchBridge, NameTaken, FileRefused.
        """
        self.find(name)
        if not self.is_added(name):
            raise NameTaken(f"the bridge {name} stands in the settings file; take it out there, and send SIGHUP")
        self._keep({other: one for other, one in self.added.items() if other != name})
        return self._end(name)

    def _keep(self, added: dict[str, BridgeSettings]) -> None:
        """Let these be added, if that can be written."""
        if self.folder is not None:
            save_added(self.folder, tuple(added.values()))
        self.added = added

    async def stop(self) -> None:
        """Hang up."""
        self._is_running = False
        if self._ticking is not None:
            self._ticking.cancel()
        for task in self._leaving:
            task.cancel("the gateway stops")
        stops = [bridge.stop() for bridge in self.bridges.values()]
        await asyncio.gather(*stops, *self._leaving, return_exceptions=True)
        await self._till.close()
        await self.kept.close()

    def _tick(self) -> None:
        """Another minute has begun."""
        self._ticking = asyncio.get_running_loop().call_later(next_minute_s(), self._tick)
        shown = moment()
        for bridge in self.bridges.values():
            bridge.clock(shown)

    async def prepare(self, settings: Settings) -> Prepared:
        """Other bridges, or other terms for those that are. Raises SettingsRefused."""
        listed, added = self._plans_of(settings.bridges), self._plans_of(self.added.values())

        def commit() -> Iterator[str]:
            # One may have been added or removed since: those of now count.
            wanted = {name: added.get(name) or self._plan_of_present(name) for name in self.added} | listed
            self._listed = frozenset(listed)
            for name in [name for name in self.bridges if name not in wanted]:
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
                    present.note()
                    self._add(plan)
                    yield f"bridge {name}: begins again with other terms"
                else:
                    present.road = plan.road  # its files may have changed: they hold when it is dialled again

        return Prepared(commit)

    def _add(self, plan: Plan) -> None:
        name = plan.settings.name
        bridge = Bridge(
            plan.settings, plan.terms, self._reactor, self._notices, _chance, plan.road, self._till, self.kept
        )
        self.bridges[name] = bridge
        if self._ticking is None:
            self._ticking = asyncio.get_running_loop().call_later(next_minute_s(), self._tick)
        before = [task for task, terms in self._leaving.items() if terms.client_id == plan.terms.client_id]
        if plan.settings.paused or self.kept.is_paused(name):
            bridge.keep()
        elif before:  # a farewell that comes late would end the new session as well
            bridge.keep("what was there before is leaving")
            before[-1].add_done_callback(lambda _: self._follow(bridge))
        else:
            bridge.start()

    def _follow(self, bridge: Bridge) -> None:
        """What *bridge* has waited for is over."""
        name = bridge.terms.name
        is_meant = self.bridges.get(name) is bridge and bridge.is_paused and not self.kept.is_paused(name)
        if self._is_running and is_meant:
            bridge.start()

    def _end(self, name: str) -> int:
        """A bridge is no more; how many messages for it are dropped."""
        bridge = self.bridges.pop(name)
        self.kept.forget(name)
        self._leave(bridge)
        self._till.forget(name)  # behind the last that it writes
        return bridge.forget()

    def _leave(self, bridge: Bridge) -> None:
        """End its session at the remote, now or in a while."""
        leaving = bridge.leave()
        if leaving is not None:
            task = asyncio.get_running_loop().create_task(leaving.leave())
            self._leaving[task] = bridge.terms
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[str]) -> None:
        terms = self._leaving.pop(task)
        why = "the gateway stopped before that" if task.cancelled() else task.result()
        if why:
            text = (
                f"its session at the remote, {terms.client_id}, could not be ended and goes on collecting there: {why}"
            )
            self._notices.tell(Level.WARNING, "bridge-left-behind", text, bridge=terms.name)

    def _plan_of_present(self, name: str) -> Plan:
        present = self.bridges[name]
        return Plan(present.settings, present.terms, present.road)

    def _plans_of(self, bridges: Iterable[BridgeSettings]) -> dict[str, Plan]:
        return {one.name: self._plan_of(one) for one in bridges}

    def _plan_of(self, settings: BridgeSettings) -> Plan:
        """All that a bridge needs, with what its files say. Raises SettingsRefused."""
        return Plan(settings, self._terms_of(settings), road_of(settings))

    def _terms_of(self, settings: BridgeSettings) -> Terms:
        """What a bridge is to do, with what its files say. Raises SettingsRefused."""
        rules: Sequence[Rule] = settings.topic
        return Terms(
            name=settings.name,
            client_id=settings.client_id or f"{self._node}-{settings.name}-{self.identity}",
            rules=rules,
            dialect=V5 if settings.version == "5" else V311,
            username=settings.username,
            password=_password(settings),
            keep_alive_s=settings.keep_alive_s,
            inflight_max=settings.inflight_max,
            receive_maximum=self._limits.receive_maximum,
            packet_bytes_max=min(self._limits.packet_bytes_max, KEPT_BYTES_MAX),
            retains=self._limits.retained_messages_max > 0,
            try_private=settings.try_private,
            retry_max=settings.retry_s_max * SECOND,
            notification_topic=settings.notification_topic or "",
            identity=self.identity,
            remote=self._name_of_remote(settings.addresses[0]),
            tells_origin=settings.origin,
            dues=_dues(settings),
        )

    def _name_of_remote(self, address: str) -> str:
        """What to call a remote that does not say who it is. Elsewhere a private address is another machine's."""
        return address if is_global(Address.parse(address).host) else f"{address}@{self.identity}"


def is_global(host: str) -> bool:
    """Whether *host* means the same wherever it is said."""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host.strip(".") and not host.endswith((".local", ".lan", ".localdomain", ".internal"))


def _dues(settings: BridgeSettings) -> Dues:
    from edgebroker.overlay.link.terms import TLS_RECORD_BYTES  # the same sum as for links

    return Dues(
        settings.rate_bytes_s,
        settings.rate_messages_s,
        settings.bytes_per_day,
        settings.schedule,
        TLS_RECORD_BYTES if settings.is_tls else 0,
    )


def _chance() -> float:
    """From 0 to below 1."""
    return int.from_bytes(os.urandom(4), "big") / (1 << 32)


def _password(settings: BridgeSettings) -> bytes | None:
    """The first line of its file."""
    if settings.password_file is None:
        return None
    try:
        return read_private(settings.password_file).partition("\n")[0].rstrip("\r").encode()
    except FileRefused as error:
        raise SettingsRefused([Problem(str(settings.password_file), 0, "bridge.password_file", str(error))]) from error
