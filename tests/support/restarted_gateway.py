"""A gateway with bridges that is started again and again in one folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from edgebroker.runtime.bridges.bridges import BridgeManager
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.operator_log import OperatorLog
from edgebroker.runtime.reload import ReloadOutcome
from edgebroker.runtime.settings import Settings

Story = Callable[[Gateway, BridgeManager], Awaitable[None]]
BRIDGE = '[[bridge]]\nname = "{0}"\naddresses = ["h:1"]\ntopic = ["{0}/# out 1"]\npaused = true\n'
SAME = '[[bridge]]\nname = "{0}"\naddresses = ["h:1"]\ntopic = ["{0}/# out 1"]\nclient_id = "c"\n'


class RestartedGateway:
    """A gateway that is started again and again in one folder."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "gateway.toml"
        self.added = folder / "data/bridges.toml"
        self.head = f'[data]\ndir = "{folder}/data"\n[limits]\nqueue_messages_max = 20\n'
        self.lines: list[str] = []
        self.added.parent.mkdir()

    def write(self, *listed: str) -> None:
        self.file.write_text(self.head + "".join(listed))

    def read(self) -> Settings:
        return Settings.load(self.file, apart=True).overridden(port=0)

    def run(self, story: Story) -> None:
        async def play() -> None:
            log = OperatorLog(lambda line: self.lines.append(line.decode()))
            gateway = Gateway(self.read(), tell=self.lines.append, notices=log)
            await gateway.start()
            try:
                assert gateway.bridge_manager is not None
                await story(gateway, gateway.bridge_manager)
            finally:
                await gateway.stop()

        self.lines.clear()
        asyncio.run(play())

    def tick(self, bridge_manager: BridgeManager) -> None:
        """What a timer does every few seconds: start the bridges that can be used now."""
        bridge_manager._tick()

    async def reload(self, gateway: Gateway) -> ReloadOutcome:
        return await gateway.reload(self.read())
