"""The last act of the demo: a publisher whose reader is at another site is moved there by a plan, and what it costs is
measured before and after.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from time import monotonic_ns
from typing import Any, Final, NamedTuple

from edgebroker.cli.display import octets
from edgebroker.cli.http_client import GatewayAnswerInvalid, GatewayNoAnswer, OrderRefused, get_json, post_json
from edgelab.demo.child import DemoProcessFailed
from edgelab.demo.federation.gateway_process import GatewayProcess
from edgelab.demo.federation.network import FederationNetwork
from edgelab.demo.outcome import duration

CLIENT: Final = "demo-crane"
READER: Final = "demo-crane-reader"
TOPIC: Final = "yard/crane/position"
PAYLOAD_BYTES: Final = 200
EVERY_S: Final = 0.02
PLAN_S_MAX: Final = 45.0
"""A trace session begins two seconds after the first message, has 100 of them, and is collected two seconds later."""
ARRIVAL_S_MAX: Final = 20.0
SETTLE_S: Final = 1.0
"""Other gateways learn of the reader, and of the publisher."""
ARRIVED_S: Final = 3.0
"""Other gateways learn where the session is after its arrival; then is measured for MEASURE_S."""
MEASURE_S: Final = 3.0
CATCH_UP_S_MAX: Final = 15.0
POLL_S: Final = 0.25
SESSION_S: Final = 600
REFERENCE: Final = re.compile(r"(.+):(\d{1,5})")


class MeasuredCosts(NamedTuple):
    """What the publisher's messages cost in a time, as clients and uplinks see it."""

    p50_us: int
    """From the publisher to its reader."""
    uplink_bytes_per_minute: int
    """What all uplinks carried in both directions, everything else that gateways sent included."""


@dataclass(frozen=True, slots=True)
class DemoPlacement:
    """What became of the publisher that the plan has moved."""

    home: str
    target: str
    reader: str
    """The gateway of its reader."""
    load: tuple[float, float]
    """Gateways that a message enters, as it was and as predicted."""
    pause_ms: float | None
    before: MeasuredCosts
    after: MeasuredCosts
    published: int
    lost: int
    repeated: int
    """Messages that came more than once: they have QoS 1, and a connection ended."""

    def lines(self) -> list[str]:
        """Returns it as text."""
        pause = "" if self.pause_ms is None else f", without a connection for {self.pause_ms:,.0f} ms"
        load = f"{self.load[0]:.2f} -> {self.load[1]:.2f} gateways entered by a message"
        costs = (
            f"{octets(one.uplink_bytes_per_minute)} a minute on uplinks, p50 {duration(one.p50_us)}"
            for one in (self.before, self.after)
        )
        return [
            f"placement   {CLIENT} at {self.home}, read at {self.reader}; the plan: to {self.target}, {load}",
            f"            moved{pause}; {self.published:,} messages, lost {self.lost}, twice {self.repeated}",
            *(f"            {name:<8}{text}" for name, text in zip(("before", "after"), costs, strict=True)),
        ]

    def as_object(self) -> dict[str, Any]:
        """Returns it for `--json`."""
        values = {name: getattr(self, name) for name in ("home", "target", "reader", "pause_ms")}
        counts = {name: getattr(self, name) for name in ("published", "lost", "repeated")}
        costs = {"before": self.before._asdict(), "after": self.after._asdict()}
        return {**values, "load": {"before": self.load[0], "predicted": self.load[1]}, **costs, **counts}


class FollowingPublisher:
    """A client of paho that publishes the time with QoS 1, and goes where its gateway sends it."""

    def __init__(self, host: str, port: int) -> None:
        from paho.mqtt.client import Client  # paho is an extra
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        self.sent: list[bytes] = []
        self._connect: dict[str, Any] = {"clean_start": False}
        self._connect["properties"] = properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = SESSION_S
        new_client: Any = Client  # its annotations say that delays are whole seconds
        client = new_client(CallbackAPIVersion.VERSION2, CLIENT, protocol=MQTTProtocolVersion.MQTTv5)
        client.reconnect_delay_set(0.1, 2)
        client.on_disconnect = self._on_disconnect
        client.connect_async(host, port, **self._connect)
        self._client = client

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        """Publishes until the block is left, and then waits for what is not acknowledged yet."""
        self._client.loop_start()
        task = asyncio.create_task(self._publish())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._client.disconnect()
            await asyncio.to_thread(self._client.loop_stop)

    async def _publish(self) -> None:
        while True:
            payload = b"%d" % monotonic_ns()
            self.sent.append(payload.ljust(PAYLOAD_BYTES))
            self._client.publish(TOPIC, self.sent[-1], 1)
            await asyncio.sleep(EVERY_S)

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        found = REFERENCE.fullmatch((getattr(properties, "ServerReference", "").split() or [""])[0])
        if found is not None:
            client.connect_async(found[1], int(found[2]), **self._connect)


class CraneReader:
    """Receives the messages, and knows when."""

    def __init__(self) -> None:
        from paho.mqtt.client import Client  # paho is an extra
        from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

        self.received: list[tuple[int, bytes]] = []
        """When, in nanoseconds of this machine's monotonic clock, and the payload."""
        client: Any = Client(CallbackAPIVersion.VERSION2, READER, protocol=MQTTProtocolVersion.MQTTv5)
        client.on_connect = lambda client, *_: client.subscribe(TOPIC, 1)
        client.on_message = lambda client, userdata, message: self.received.append(
            (monotonic_ns(), bytes(message.payload))
        )
        self._client = client

    @asynccontextmanager
    async def reading(self, host: str, port: int) -> AsyncIterator[None]:
        """Reads until the block is left. Raises OSError."""
        await asyncio.to_thread(self._client.connect, host, port)
        self._client.loop_start()
        try:
            yield
        finally:
            self._client.disconnect()
            await asyncio.to_thread(self._client.loop_stop)

    def p50_us(self, since_ns: int) -> int:
        """Returns the median time on the way, of what was published since *since_ns*. Raises DemoProcessFailed."""
        ways = [at - int(payload) for at, payload in self.received if int(payload) >= since_ns]
        if not ways:
            raise DemoProcessFailed(f"nothing that {CLIENT} publishes arrives")
        return round(median(ways)) // 1_000


class PlacementAct:
    """Moves one publisher by a plan."""

    def __init__(
        self, network: FederationNetwork, gateways: Mapping[str, GatewayProcess], say: Callable[[str], None]
    ) -> None:
        self._network = network
        self._gateways = gateways
        self._say = say

    async def run(self) -> DemoPlacement:
        """Runs it; it takes a quarter of a minute. Raises DemoProcessFailed if nothing is proposed or moved."""
        try:
            return await self._run()
        except (GatewayNoAnswer, GatewayAnswerInvalid, OrderRefused) as error:
            raise DemoProcessFailed(f"{CLIENT} cannot be moved: {error}") from error

    async def _run(self) -> DemoPlacement:
        names = [one.name for one in self._network.layout.gateways]
        home, remote = self._gateways[names[0]], self._gateways[names[-1]]
        reader, publisher = CraneReader(), FollowingPublisher(home.host, home.port)
        async with reader.reading(remote.host, remote.port):
            await asyncio.sleep(SETTLE_S)
            async with publisher.publishing():
                await asyncio.sleep(SETTLE_S)
                began, carried = monotonic_ns(), self._carried()
                row = await self._proposal(home)
                before = self._costs(reader, began, carried)
                self._say(f"a plan: {CLIENT} should be at {row['to']} instead of {home.name}; it is moved")
                order = {"do": "move", "name": CLIENT, "to": row["to"], "plan": "demo"}
                await asyncio.to_thread(lambda: post_json(home.endpoint, "/place", **order))
                move = await self._arrival(home)
                await asyncio.sleep(ARRIVED_S)
                began, carried = monotonic_ns(), self._carried()
                await asyncio.sleep(MEASURE_S)
                after = self._costs(reader, began, carried)
            await self._wait(lambda: {*publisher.sent} <= {payload for _, payload in reader.received}, CATCH_UP_S_MAX)
        times = Counter(payload for _, payload in reader.received)
        return DemoPlacement(
            home.name,
            row["to"],
            remote.name,
            (row["load"]["here"], row["load"]["there"]),
            move["pause_ms"],
            before,
            after,
            len(publisher.sent),
            sum(payload not in times for payload in publisher.sent),
            sum(count > 1 for count in times.values()),
        )

    async def _proposal(self, home: GatewayProcess) -> dict[str, Any]:
        """Returns the line of the plan of *home*. Raises DemoProcessFailed."""
        found: list[dict[str, Any]] = []

        def is_proposed() -> bool:
            [answer] = get_json(home.endpoint, "/place", limit=1_000)["gateways"]
            found[:] = [row for row in answer["proposals"] if row["client"] == CLIENT]
            return bool(found)

        if not await self._wait(is_proposed, PLAN_S_MAX):
            raise DemoProcessFailed(f"{home.name} proposes no better gateway for {CLIENT}")
        return found[0]

    async def _arrival(self, home: GatewayProcess) -> dict[str, Any]:
        """Returns the line of the history of *home* when the publisher has arrived. Raises DemoProcessFailed."""
        moves: list[dict[str, Any]] = []

        def has_arrived() -> bool:
            moves[:] = get_json(home.endpoint, "/place/history")["moves"]
            return bool(moves) and moves[0]["outcome"] == "arrived"

        if not await self._wait(has_arrived, ARRIVAL_S_MAX):
            raise DemoProcessFailed(f"{CLIENT} does not arrive at its new gateway")
        return moves[0]

    async def _wait(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Returns whether *is_so*, which may ask a gateway, becomes true in time."""
        deadline = monotonic_ns() + round(seconds * 1e9)
        while not (is_true := await asyncio.to_thread(is_so)) and monotonic_ns() < deadline:
            await asyncio.sleep(POLL_S)
        return is_true

    def _carried(self) -> int:
        return sum(map(self._network.carried, self._network.layout.uplinks))

    def _costs(self, reader: CraneReader, began_ns: int, carried: int) -> MeasuredCosts:
        minutes = (monotonic_ns() - began_ns) / 60e9
        return MeasuredCosts(reader.p50_us(began_ns), round((self._carried() - carried) / minutes))
