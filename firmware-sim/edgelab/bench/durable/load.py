"""QoS 1 to a durable session: publishers that time every PUBACK, and a subscriber that takes and acknowledges all."""

from __future__ import annotations

import select
import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from edgelab.bench import packets
from edgelab.bench.client import STALL_S, BenchClient, DurableClient
from edgelab.bench.job import LoadFailed

READ_BYTES = 65_536
RING_PACKETS = 1_000
PUBLISH_QOS1 = (0x32, 0x3A)
"""First bytes of a delivery: for the first time, and again."""
DURABLE = "bench-durable"


class DurablePublisher:
    """One publisher with messages of one size, and the times at which they left."""

    def __init__(self, port: int, number: int, payload_bytes: int) -> None:
        topic = topic_of(number)
        self.client = BenchClient(port, f"bench-pub-{number}")
        self.ring = [
            packets.publish(topic, packets.numbered_payload(n, payload_bytes), n + 1) for n in range(RING_PACKETS)
        ]
        self.sent = self.acked = 0
        self.leaving: deque[int] = deque()
        self._kept = 0

    def send(self, count: int) -> None:
        """Publish *count* messages in one write."""
        now = time.perf_counter_ns()
        self.leaving.extend([now] * count)
        first = self.sent % RING_PACKETS
        chunk = b"".join(self.ring[(first + n) % RING_PACKETS] for n in range(count))
        self.client.socket.sendall(chunk)
        self.sent += count

    def settle(self, waits: array[int]) -> None:
        """Read acknowledgements; how long each was waited for goes to *waits*, in ns."""
        got = len(self.client.socket.recv(READ_BYTES))
        if not got:
            raise LoadFailed("the broker closed a publisher")
        now = time.perf_counter_ns()
        count, self._kept = divmod(self._kept + got, packets.PUBACK_BYTES)
        self.acked += count
        if self.acked > self.sent:
            raise LoadFailed("the broker acknowledged what was not sent")
        for _ in range(count):
            waits.append(now - self.leaving.popleft())


class DurableSubscriber:
    """The durable session. All deliveries have one size, so their packet identifiers are strided slices."""

    def __init__(self, port: int, payload_bytes: int, *, subscribes: bool = True) -> None:
        """*subscribes*: its session has no subscription yet."""
        self.client = DurableClient(port, DURABLE)
        if subscribes:
            self.client.subscribe(["bench/durable/#"], qos=1)
        self.delivered = 0
        self._size = len(packets.publish(topic_of(0), bytes(payload_bytes), 1))
        self._id_at = self._size - payload_bytes - 2
        self._buffer = bytearray()

    def deliver(self) -> None:
        """Take what came and acknowledge it."""
        part = self.client.socket.recv(READ_BYTES)
        if not part:
            raise LoadFailed("the broker closed the subscriber")
        self._buffer += part
        count = len(self._buffer) // self._size
        if not count:
            return
        whole = count * self._size
        if self._buffer[0] not in PUBLISH_QOS1:
            raise LoadFailed(f"the subscriber got something else than a message: {self._buffer[:8].hex()}")
        acks = bytearray(b"\x40\x02\x00\x00" * count)
        acks[2::4] = self._buffer[self._id_at : whole : self._size]
        acks[3::4] = self._buffer[self._id_at + 1 : whole : self._size]
        self.client.socket.sendall(acks)
        del self._buffer[:whole]
        self.delivered += count


@dataclass(slots=True)
class LoadOutcome:
    """What a load saw: messages acknowledged in so many seconds, and how long each acknowledgement took, in ns."""

    messages: int
    seconds: float
    waits: array[int] = field(default_factory=lambda: array("q"))

    def quantile_ms(self, share: float) -> float:
        """The time within which *share* of the acknowledgements came."""
        ordered = sorted(self.waits)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] / 1e6 if ordered else 0.0


class DurableLoad:
    """Publishers and the subscriber on one broker."""

    def __init__(self, port: int, publishers: int, payload_bytes: int) -> None:
        self.subscriber = DurableSubscriber(port, payload_bytes)
        self.publishers = [DurablePublisher(port, number, payload_bytes) for number in range(publishers)]
        self._waits: array[int] = array("q")
        self._poll = select.epoll()
        self._handlers = {self.subscriber.client.socket.fileno(): self.subscriber.deliver}
        for publisher in self.publishers:
            self._handlers[publisher.client.socket.fileno()] = partial(self._settle, publisher)
        for descriptor in self._handlers:
            self._poll.register(descriptor, select.EPOLLIN)

    def _settle(self, publisher: DurablePublisher) -> None:
        publisher.settle(self._waits)

    def closed(self, seconds: float, window: int) -> LoadOutcome:
        """Each publisher keeps *window* messages unacknowledged."""
        until = time.perf_counter() + seconds

        def feed() -> bool:
            if time.perf_counter() > until:
                return False
            for publisher in self.publishers:
                free = window - (publisher.sent - publisher.acked)
                if free > 0:
                    publisher.send(free)
            return True

        return self._run(feed)

    def paced(self, seconds: float, rate: int) -> LoadOutcome:
        """*rate* messages a second in all, one at a time, whatever the broker does."""
        began = time.perf_counter()
        sent = 0

        def feed() -> bool:
            nonlocal sent
            elapsed = time.perf_counter() - began
            while sent < elapsed * rate and elapsed < seconds:
                self.publishers[sent % len(self.publishers)].send(1)
                sent += 1
            return elapsed < seconds

        return self._run(feed)

    def _run(self, feed: Callable[[], bool]) -> LoadOutcome:
        self._waits = array("q")
        first = sum(publisher.acked for publisher in self.publishers)
        began = last = time.perf_counter()
        while True:
            goes_on = feed()
            events = self._poll.poll(0 if goes_on else 0.01)
            for descriptor, _ in events:
                self._handlers[descriptor]()
            now = time.perf_counter()
            if events:
                last = now
            elif now - last > STALL_S:
                raise LoadFailed(f"messages lost: nothing came for {STALL_S} s")
            acked = sum(publisher.acked for publisher in self.publishers)
            sent = sum(publisher.sent for publisher in self.publishers)
            if not goes_on and acked == sent <= self.subscriber.delivered:
                return LoadOutcome(acked - first, now - began, self._waits)

    def close(self, *, politely: bool = True) -> None:
        """Hang up."""
        self._poll.close()
        for client in (self.subscriber.client, *(publisher.client for publisher in self.publishers)):
            if politely:
                client.close()
            else:
                client.socket.close()


def topic_of(number: int) -> str:
    """All of one length."""
    return f"bench/durable/{number:02d}"
