"""The faults of the demo: an uplink is throttled, a gateway is killed and restarted, another uplink is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import Final

from edgelab.demo.federation.gateway_process import GatewayProcess
from edgelab.demo.federation.layout import Pair
from edgelab.demo.federation.network import FederationNetwork

SQUEEZED_AT: Final = 0.25
RELIEVED_AT: Final = 0.45
KILLED_AT: Final = 0.55
BACK_AT: Final = 0.70
CUT_AT: Final = 0.75
MENDED_AT: Final = 0.95
"""Instants as shares of the time in which devices publish."""
SQUEEZE: Final = 1 / 3
"""The rate of a throttled uplink, as a share of its mean rate until then."""
BYTES_PER_S_MIN: Final = 100.0
GIVEN_UP_S: Final = 16.0
"""After this time gateways have closed the connection over a cut uplink: they wait 5 s for a reply, three times."""
AGAIN_S: Final = 1.0
"""TCP retransmits after at most as long as it has waited, and this time (RFC 6298: the time is doubled)."""
RECOVERY_US: Final = 3_000_000
"""Time after a fault in which queued messages are still delivered late."""


class Mishaps:
    """The faults of one run. `messages`: a line for each; `victim`: the gateway that was killed, or ""."""

    def __init__(
        self,
        seconds: float,
        network: FederationNetwork,
        until_joined: Callable[[], Awaitable[None]],
        print_line: Callable[[str], None],
    ) -> None:
        """*until_joined*: returns when all links are up."""
        self.messages: list[str] = []
        self.victim = ""
        self._seconds = seconds
        self._network = network
        self._until_joined = until_joined
        self._print_line = print_line
        self.killed_us = 0
        """The time at which the gateway was killed; 0 before."""
        self.carried: dict[Pair, int] = {}
        """Bytes that each uplink had carried until then."""
        self._disturbances: list[tuple[int, int]] = []
        self._detours: list[tuple[int, int]] = []

    async def run(self, victim: GatewayProcess) -> None:
        """Cause all faults, each at its time."""
        start_us = _now_us()
        await asyncio.sleep(self._seconds * SQUEEZED_AT)
        began, network, busiest = _now_us(), self._network, self._busiest(victim.name)
        rate = max(BYTES_PER_S_MIN, network.carried(busiest) / (self._seconds * SQUEEZED_AT) * SQUEEZE)
        network.squeeze(busiest, rate)
        lasting_s = self._seconds * (RELIEVED_AT - SQUEEZED_AT)
        self._record(
            f"the uplink from {busiest[0]} to {busiest[1]} was squeezed to {rate:,.0f} bytes/s for {lasting_s:.1f} s"
        )
        try:
            await asyncio.sleep(lasting_s)
        finally:
            network.squeeze(busiest, None)
            self._disturbances.append((began, _now_us()))
        await asyncio.sleep(self._seconds * (KILLED_AT - RELIEVED_AT))
        began = _now_us()
        self.killed_us, self.carried = began, {pair: network.carried(pair) for pair in network.layout.uplinks}
        self.victim = victim.name
        await victim.kill()
        away_s = self._seconds * (BACK_AT - KILLED_AT)
        self._record(f"{victim.name} was killed with SIGKILL, and started again after {away_s:.1f} s")
        await asyncio.sleep(away_s)
        await victim.start()
        await self._until_joined()
        self._record_detour(began)
        if network.switch is not None:
            await asyncio.sleep(max(0.0, self._seconds * CUT_AT - (_now_us() - start_us) / 1_000_000))
            await self._cut(self._busiest(victim.name, busiest), network.switch)

    async def _cut(self, uplink: Pair, switch: Callable[[Pair, bool], None]) -> None:
        began, lasting_s = _now_us(), self._seconds * (MENDED_AT - CUT_AT)
        switch(uplink, False)
        self._record(f"the uplink from {uplink[0]} to {uplink[1]} was cut for {lasting_s:.1f} s")
        try:
            await asyncio.sleep(lasting_s)
        finally:
            switch(uplink, True)
        # then data flows again, or the gateways dial another connection
        settled_s = min(GIVEN_UP_S, 2 * lasting_s + AGAIN_S)
        await asyncio.sleep(max(0.0, settled_s - lasting_s))
        await self._until_joined()
        self._record_detour(began)

    def _record_detour(self, began: int) -> None:
        """Record that a gateway or uplink was down from *began* until now, so that events took a detour."""
        self._detours.append((began, _now_us()))
        self._disturbances.append(self._detours[-1])

    def went_around(self, at_us: int) -> bool:
        """Return whether a message sent at this time may have taken a detour around the gateway or uplink that was
        down.
        """
        return any(start - RECOVERY_US <= at_us <= end for start, end in self._detours)

    def is_calm(self, at_us: int) -> bool:
        """Return whether there was no fault at this time, nor just before it."""
        return not any(start <= at_us <= end + RECOVERY_US for start, end in self._disturbances)

    def _busiest(self, victim: str, squeezed: Pair | None = None) -> Pair:
        """Return the uplink with the most bytes, of those that do not lead to *victim* and were not *squeezed*,
        if any.
        """
        uplinks = self._network.layout.uplinks
        others = [pair for pair in uplinks if victim not in pair and pair != squeezed]
        return max(others or uplinks, key=self._network.carried)

    def _record(self, text: str) -> None:
        self.messages.append(f"{'mishap':<12}{text}")
        self._print_line(text)


def _now_us() -> int:
    return monotonic_ns() // 1_000
