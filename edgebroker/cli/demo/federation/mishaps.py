"""What goes wrong in the demo: an uplink is squeezed for a while, then a gateway is killed and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import Final

from edgebroker.cli.demo.federation.layout import Pair
from edgebroker.cli.demo.federation.member import Member
from edgebroker.cli.demo.federation.network import Network

SQUEEZED_AT: Final = 0.25
RELIEVED_AT: Final = 0.45
KILLED_AT: Final = 0.55
BACK_AT: Final = 0.70
"""Parts of the time in which devices publish."""
SQUEEZE: Final = 1 / 3
"""What a squeezed uplink may carry, of what it has carried per second until then."""
BYTES_PER_S_MIN: Final = 100.0
RECOVERY_US: Final = 3_000_000
"""After a mishap: what has waited is on its way, and late."""


class Mishaps:
    """The mishaps of one run. `told`: what happened, in words; `victim`: the gateway that was killed, or ""."""

    def __init__(
        self,
        seconds: float,
        network: Network,
        until_joined: Callable[[], Awaitable[None]],
        say: Callable[[str], None],
    ) -> None:
        """*until_joined*: returns when all links are up."""
        self.told: list[str] = []
        self.victim = ""
        self._seconds = seconds
        self._network = network
        self._until_joined = until_joined
        self._say = say
        self._away = (0, 0)
        self.killed_us = 0
        """When the gateway was killed; 0 before."""
        self.carried: dict[Pair, int] = {}
        """What each uplink had carried until then."""
        self._spans: list[tuple[int, int]] = []

    async def happen(self, victim: Member) -> None:
        """All of them, in time."""
        await asyncio.sleep(self._seconds * SQUEEZED_AT)
        began, network, busiest = _now_us(), self._network, self._busiest(victim.name)
        rate = max(BYTES_PER_S_MIN, network.carried(busiest) / (self._seconds * SQUEEZED_AT) * SQUEEZE)
        network.squeeze(busiest, rate)
        lasting_s = self._seconds * (RELIEVED_AT - SQUEEZED_AT)
        self._tell(
            f"the uplink from {busiest[0]} to {busiest[1]} was squeezed to {rate:,.0f} bytes/s for {lasting_s:.1f} s"
        )
        try:
            await asyncio.sleep(lasting_s)
        finally:
            network.squeeze(busiest, None)
            self._spans.append((began, _now_us()))
        await asyncio.sleep(self._seconds * (KILLED_AT - RELIEVED_AT))
        began = _now_us()
        self.killed_us, self.carried = began, {pair: network.carried(pair) for pair in network.layout.uplinks}
        self.victim = victim.name
        await victim.kill()
        away_s = self._seconds * (BACK_AT - KILLED_AT)
        self._tell(f"{victim.name} was killed with SIGKILL, and started again after {away_s:.1f} s")
        await asyncio.sleep(away_s)
        await victim.start()
        await self._until_joined()
        self._away = began, _now_us()
        self._spans.append(self._away)

    def went_around(self, at_us: int) -> bool:
        """Whether what left its device at this instant may have gone around the gateway that was killed."""
        return self._away[0] - RECOVERY_US <= at_us <= self._away[1]

    def is_calm(self, at_us: int) -> bool:
        """Whether nothing had gone wrong at this instant, nor just before."""
        return not any(start <= at_us <= end + RECOVERY_US for start, end in self._spans)

    def _busiest(self, victim: str) -> Pair:
        """The uplink that has carried most, of those that do not lead to *victim*."""
        uplinks = self._network.layout.uplinks
        others = [pair for pair in uplinks if victim not in pair]
        return max(others or uplinks, key=self._network.carried)

    def _tell(self, what: str) -> None:
        self.told.append(f"{'mishap':<12}{what}")
        self._say(what)


def _now_us() -> int:
    return monotonic_ns() // 1_000
