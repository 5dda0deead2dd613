"""Two gateways with one link between them, on virtual time."""

from __future__ import annotations

from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, SECOND, Duration
from edgebroker.log_schema import Cause
from edgebroker.overlay.link.events import LinkEvent
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.link.options import LAN_OPTIONS, TLS_RECORD_BYTES, LinkOptions
from edgebroker.overlay.messages import Forward
from edgebroker.overlay.traffic_class import TrafficClass
from edgelab.simworld.linked import WALL, LinkedGateway
from edgelab.simworld.roads import Road, RoadConditions
from edgelab.simworld.simulation import Simulation

NUMBERS = {"a": 0, "b": 1}
NEAR = RoadConditions((5 * MILLISECOND, 5 * MILLISECOND))
FAR = RoadConditions((40 * MILLISECOND, 60 * MILLISECOND))


class LinkPair:
    """Gateways a and b with one link, on virtual time."""

    def __init__(
        self,
        options: LinkOptions = LAN_OPTIONS,
        road_conditions: RoadConditions = NEAR,
        other_options: LinkOptions | None = None,
    ) -> None:
        self.simulation = Simulation(1)
        self.a = LinkedGateway(self.simulation, "a", NUMBERS, options)
        self.b = LinkedGateway(self.simulation, "b", NUMBERS, other_options or options)
        self.road = Road(self.simulation, road_conditions)
        self.a.roads["b"] = self.b.roads["a"] = self.road
        self.a.others["b"], self.b.others["a"] = self.b, self.a
        self._sequence = 0

    @property
    def link(self) -> Link:
        return self.a.links["b"]

    def start(self) -> LinkPair:
        self.a.start()
        self.b.start()
        return self.run(SECOND)

    def run(self, duration: Duration) -> LinkPair:
        self.simulation.run_until(self.simulation.now + duration)
        return self

    def publish(
        self,
        qos: int = 1,
        payload: bytes = b"x",
        service: TrafficClass = TrafficClass.LIVE,
        topic: str = "t",
        expires_in_ms: int | None = None,
    ) -> Cause:
        self._sequence += 1
        header = EventHeader(1, self._sequence, 0, 0, published_ms=(WALL + self.simulation.now) // 1_000)
        forward = Forward(header, topic, payload, qos, False, "c", expires_in_ms=expires_in_ms)
        cause = self.a.publish("b", forward, service)
        self.a.turn()
        return cause

    def events(self, *kinds: type[LinkEvent]) -> list[LinkEvent]:
        return [event for event in self.a.events if isinstance(event, kinds)]

    @property
    def bytes_with_tls(self) -> int:
        return sum(self.road.bytes) + TLS_RECORD_BYTES * (self.a.records_sent + self.b.records_sent)
