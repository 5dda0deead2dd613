"""QoS 1 at a steady rate, and the receiving broker is killed in the middle: what was acknowledged and never arrived?"""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from edgelab.bench import packets
from edgelab.bench.client import BenchClient, DurableClient
from edgelab.bench.job import LoadFailed, LoadJob, LoadSample

TOPIC = "bench/outage"
READER = "bench-outage-sub"
PUBLISH_QOS1 = (0x32, 0x3A)
"""First bytes of a delivery: for the first time, and again."""
READ_BYTES = 65_536
PATIENCE_S = 15
"""Nothing came for so long: nothing will. A link that was down for ten seconds is dialled again within eight."""


class BrokerHangUp(LoadFailed):
    """A broker hung up."""


class Outage:
    """One publisher at the sending broker, one durable session at the receiving one."""

    def __init__(self, sending: int, receiving: int, job: LoadJob) -> None:
        """*job*: `seconds` is how long the receiver is dead; before and after that half as long."""
        self.begin(job)
        self._receiving = receiving
        self._connect()
        self._writer = BenchClient(sending, "bench-outage-pub")
        self._acks = select.poll()
        self._acks.register(self._writer.socket, select.POLLIN)

    def begin(self, job: LoadJob) -> None:
        """Nothing was sent and nothing has come."""
        self._seconds = job.seconds
        self._rate = job.rate
        self._size = len(packets.publish(TOPIC, bytes(packets.PAYLOAD_BYTES), 1))
        self._reader: DurableClient | None = None
        self._deliveries = select.poll()
        self._buffer = bytearray()
        self._highest = -1
        self.sent = 0
        self.acknowledged_bytes = 0
        """Of PUBACKs."""
        self.arrived: Counter[int] = Counter()
        """Number of a message -> how often it came."""
        self.went_back = 0
        """Messages that came for the first time behind a later one."""

    @property
    def acknowledged(self) -> int:
        """Messages for which there was a PUBACK; they are the first of those sent [MQTT-4.6.0-2]."""
        return self.acknowledged_bytes // packets.PUBACK_BYTES

    def run(self, kill: Callable[[], None], start: Callable[[], None]) -> LoadSample:
        """The whole of it. Raises LoadFailed if the sending broker fails."""
        self._publish(self._seconds / 2)
        kill()
        self._hang_up()
        self._publish(self._seconds)
        start()
        self._connect()
        self._publish(self._seconds / 2)
        self._settle()
        self._writer.close()
        self._hang_up()
        return self.sample()

    def sample(self) -> LoadSample:
        """The figures."""
        lost = sum(1 for number in range(self.acknowledged) if not self.arrived[number])
        twice = sum(times - 1 for times in self.arrived.values() if times)
        return LoadSample(
            {"acknowledged": self.acknowledged, "lost": lost, "twice": twice, "went_back": self.went_back}
        )

    def deliver(self, reader: DurableClient) -> None:
        """Read what came and acknowledge it. Raises LoadFailed for anything that was not sent."""
        part = reader.socket.recv(READ_BYTES)
        if not part:
            raise BrokerHangUp("the receiving broker closed the subscriber")
        buffer = self._buffer
        buffer += part
        whole = len(buffer) // self._size * self._size
        identifier_at = self._size - packets.PAYLOAD_BYTES - 2
        acks = bytearray()
        for at in range(0, whole, self._size):
            packet = buffer[at : at + self._size]
            if packet[0] not in PUBLISH_QOS1:
                raise LoadFailed(f"the subscriber got something else than a message: {bytes(packet[:8]).hex()}")
            payload = bytes(packet[-packets.PAYLOAD_BYTES :])
            number = int(payload[:8])
            if payload != packets.numbered_payload(number) or number >= self.sent:
                raise LoadFailed(f"the subscriber got a message that nobody sent: {payload!r}")
            self.went_back += number < self._highest and not self.arrived[number]
            self._highest = max(self._highest, number)
            self.arrived[number] += 1
            acks += b"\x40\x02" + packet[identifier_at : identifier_at + 2]
        del buffer[:whole]
        reader.socket.sendall(acks)

    def _publish(self, seconds: float) -> None:
        """At the rate, whatever anybody answers."""
        began = time.perf_counter()
        first = self.sent
        while (elapsed := time.perf_counter() - began) < seconds:
            while self.sent - first < elapsed * self._rate:
                payload = packets.numbered_payload(self.sent)
                self._writer.socket.sendall(packets.publish(TOPIC, payload, self.sent % 65_535 + 1))
                self.sent += 1
            self._read(1)

    def _settle(self) -> None:
        """Until everything has arrived, or nothing comes any more."""
        last = time.monotonic()
        while self.acknowledged < self.sent or len(self.arrived) < self.sent:
            if self._read(10):
                last = time.monotonic()
            elif time.monotonic() - last > PATIENCE_S:
                break
        if self.acknowledged < self.sent:
            raise LoadFailed(f"{self.sent - self.acknowledged:,} of {self.sent:,} messages were not acknowledged")

    def _read(self, wait_ms: int) -> bool:
        """What came at either end. Whether anything did."""
        came = False
        if self._acks.poll(0):
            got = len(self._writer.socket.recv(READ_BYTES))
            if not got:
                raise BrokerHangUp("the sending broker closed the publisher")
            self.acknowledged_bytes += got
            came = True
        if self._reader is None:
            time.sleep(wait_ms / 1e3)
        elif self._deliveries.poll(wait_ms):
            self.deliver(self._reader)
            came = True
        return came

    def _connect(self) -> None:
        """The reader comes (again): its session lasts; if it was lost it subscribes anew. Raises LoadFailed."""
        reader = DurableClient(self._receiving, READER)
        if not reader.was_present:
            reader.subscribe([TOPIC], qos=1)
        self._reader = reader
        self._buffer.clear()
        self._deliveries.register(reader.socket, select.POLLIN)

    def _hang_up(self) -> None:
        """The connection of the reader is over; what is still in it was delivered."""
        if self._reader is None:
            return
        with suppress(OSError, BrokerHangUp):
            while self._deliveries.poll(0):
                self.deliver(self._reader)
        self._deliveries.unregister(self._reader.socket)
        self._reader.socket.close()
        self._reader = None
