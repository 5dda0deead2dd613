"""All bridges of a gateway: those of the settings, and what becomes of them when the settings change."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgebridge.upstream.rule import Rule
from edgebridge.upstream.terms import Terms
from edgebridge.wire.dialect import V5, V311
from edgebroker.instants import SECOND
from edgebroker.world.bridging.bridge import Bridge
from edgebroker.world.bridging.identity import identity_of
from edgebroker.world.operatorlog import OperatorLog
from edgebroker.world.privatefile import FileRefused, read_private
from edgebroker.world.reactor import Reactor
from edgebroker.world.reload import Prepared
from edgebroker.world.settings import Problem, Settings, SettingsRefused
from edgebroker.world.settings.bridge import BridgeSettings


class Bridging:
    """By name."""

    def __init__(self, settings: Settings, reactor: Reactor, notices: OperatorLog, folder: Path | None) -> None:
        """*folder*: where the gateway keeps things. Raises SettingsRefused."""
        self.identity = identity_of(settings.node.name, folder)
        self.bridges: dict[str, Bridge] = {}
        self._node = settings.node.name
        self._limits = settings.limits
        self._reactor = reactor
        self._notices = notices
        self._chance = random.Random().random
        self._terms = {one.name: self._terms_of(one) for one in settings.bridges}
        self._settings = settings.bridges

    def start(self) -> None:
        """From now on what is for the remotes is kept, and they are dialled."""
        for settings in self._settings:
            self._add(settings, self._terms[settings.name])

    async def stop(self) -> None:
        """Hang up."""
        for bridge in self.bridges.values():
            await bridge.stop()

    async def prepare(self, settings: Settings) -> Prepared:
        """Other bridges, or other terms for those that are. Raises SettingsRefused."""
        wanted = {one.name: (one, self._terms_of(one)) for one in settings.bridges}

        def commit() -> Iterator[str]:
            for name in [name for name in self.bridges if name not in wanted]:
                yield from self._remove(name)
            for name, (one, terms) in wanted.items():
                present = self.bridges.get(name)
                if present is None:
                    self._add(one, terms)
                elif (present.settings, present.terms) != (one, terms):
                    present.pause("its settings changed")
                    self._add(one, terms)
                    yield f"bridge {name}: begins again with other terms"
            self._settings = settings.bridges

        return Prepared(commit)

    def _add(self, settings: BridgeSettings, terms: Terms) -> None:
        bridge = Bridge(settings, terms, self._reactor, self._notices, self._chance)
        self.bridges[settings.name] = bridge
        if settings.paused:
            bridge.keep()
        else:
            bridge.start()

    def _remove(self, name: str) -> Iterator[str]:
        bridge = self.bridges.pop(name)
        bridge.pause("it is no more")
        waiting = bridge.forget()
        yield f"bridge {name}: its session ended, {waiting} messages that waited are dropped"

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
            packet_bytes_max=self._limits.packet_bytes_max,
            try_private=settings.try_private,
            retry_max=settings.retry_s_max * SECOND,
            notification_topic=settings.notification_topic or "",
            identity=self.identity,
        )


def _password(settings: BridgeSettings) -> bytes | None:
    """The first line of its file."""
    if settings.password_file is None:
        return None
    try:
        return read_private(settings.password_file).partition("\n")[0].rstrip("\r").encode()
    except FileRefused as error:
        raise SettingsRefused([Problem(str(settings.password_file), 0, "bridge.password_file", str(error))]) from error
