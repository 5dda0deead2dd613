"""QoS 1 from end to end, closed loop: each publisher keeps a window of unacknowledged messages, each subscriber acks.

Acknowledgements are built without a loop over messages: all packets have one size, so the packet ids of a whole read
are two strided slices. The generator spins between reads: with a window of 20 its own wake-up would come into every
round trip.
"""

from __future__ import annotations

import select
import socket
import time

from edgelab.bench import packets
from edgelab.bench.client import STALL_S, BenchClient, DurableClient
from edgelab.bench.job import LoadFailed, LoadJob, LoadSample
from edgelab.bench.stream import EXCESS_WAIT_S, READ_BYTES, measured

RING_PACKETS = 1_000  # prebuilt messages, packet ids 1 to 1,000, sent round and round
ACK_RING_BYTES = RING_PACKETS * packets.PUBACK_BYTES
UNDELIVERED_MAX = 500  # a subscriber may lag behind its publisher's acknowledgements; no broker must queue too much


class AcknowledgedPair:
    """A publisher and the one subscriber of its topic."""

    def __init__(self, job: LoadJob, number: int) -> None:
        topic = f"bench/qos1/{number:02d}"
        self.window = job.window
        name = f"bench-sub-{number}"
        self.subscriber = (
            DurableClient(job.reading_port, name) if job.is_durable else BenchClient(job.reading_port, name, job.is_tls)
        )
        self.publisher = BenchClient(job.port, f"bench-pub-{number}", job.is_tls)
        self.subscriber.subscribe([topic], qos=1)
        ring = [packets.publish(topic, packets.numbered_payload(n), n + 1) for n in range(RING_PACKETS)]
        self.size = len(ring[0])
        self.id_at = self.size - packets.PAYLOAD_BYTES - 2
        self.payload_at = self.size - packets.PAYLOAD_BYTES
        self.ring = memoryview(b"".join(ring) * 2)  # twice: a slice that starts near the end needs no seam
        self.ack_ring = b"".join(packets.puback(n + 1) for n in range(RING_PACKETS)) * 2
        self.deliveries = bytearray(READ_BYTES)
        self.into_deliveries = memoryview(self.deliveries)
        self.acks = bytearray(ACK_RING_BYTES)
        self.kept = 0  # bytes of an unfinished packet at the start of `deliveries`
        self.ack_bytes = 0
        self.sent = self.acked = self.delivered = 0  # messages, since the start
        self.sending = False

    @property
    def is_settled(self) -> bool:
        return self.acked == self.sent == self.delivered

    def refill(self) -> None:
        """Publish as many messages as the window takes, in one write."""
        count = min(self.window - (self.sent - self.acked), UNDELIVERED_MAX - (self.sent - self.delivered))
        if self.sending and count > 0:
            at = self.sent % RING_PACKETS * self.size
            self.publisher.socket.sendall(self.ring[at : at + count * self.size])
            self.sent += count

    def settle(self) -> None:
        """Read PUBACKs; they must come in the order of the messages [MQTT-4.6.0-2], so whole reads are compared."""
        count = self.publisher.socket.recv_into(self.acks, 0, socket.MSG_DONTWAIT)
        if not count:
            raise LoadFailed("the broker closed a publisher")
        at = self.ack_bytes % ACK_RING_BYTES
        if self.acks[:count] != self.ack_ring[at : at + count]:
            raise LoadFailed("the broker acknowledged something else than the next messages")
        self.ack_bytes += count
        self.acked = self.ack_bytes // packets.PUBACK_BYTES
        if self.acked > self.sent:
            raise LoadFailed("the broker acknowledged what was not sent")
        self.refill()

    def deliver(self) -> None:
        """Read PUBLISH packets and acknowledge each, in one write."""
        came = self.subscriber.socket.recv_into(self.into_deliveries[self.kept :], 0, socket.MSG_DONTWAIT)
        if not came:
            raise LoadFailed("the broker closed a subscriber")
        have, buffer = self.kept + came, self.deliveries
        count = have // self.size
        whole = count * self.size
        if count:
            self.verify(0, self.delivered)
            self.verify(count - 1, self.delivered + count - 1)
            acks = bytearray(b"\x40\x02\x00\x00" * count)
            acks[2::4] = buffer[self.id_at : whole : self.size]
            acks[3::4] = buffer[self.id_at + 1 : whole : self.size]
            self.subscriber.socket.sendall(acks)
            self.delivered += count
        self.kept = have - whole
        buffer[: self.kept] = buffer[whole:have]
        self.refill()

    def verify(self, place: int, number: int) -> None:
        """The packet at *place* of this read carries message *number*: nothing lost, doubled or out of order."""
        at, ring_at = place * self.size, number % RING_PACKETS * self.size
        payload = self.deliveries[at + self.payload_at : at + self.size]
        if self.deliveries[at] != 0x32 or payload != self.ring[ring_at + self.payload_at : ring_at + self.size]:
            raise LoadFailed(f"delivery {number:,} is not the message that was published in that place")


class AcknowledgedExchange:
    """All pairs of one run."""

    def __init__(self, job: LoadJob) -> None:
        self.pairs = [AcknowledgedPair(job, number) for number in range(job.publishers)]
        self.ready = select.epoll()
        self.handlers = {}
        for pair in self.pairs:
            self.handlers[pair.publisher.socket.fileno()] = pair.settle
            self.handlers[pair.subscriber.socket.fileno()] = pair.deliver
        for descriptor in self.handlers:
            self.ready.register(descriptor, select.EPOLLIN)

    def pump(self, seconds: float, messages_max: int) -> tuple[int, float]:
        """Publish for so many seconds, then wait for every delivery and acknowledgement: (deliveries, seconds)."""
        first = self.delivered()
        started = last = time.perf_counter()
        until = started + seconds
        self.set_sending(True)
        while True:
            now = time.perf_counter()
            events = self.ready.poll(0)
            for descriptor, _ in events:
                self.handlers[descriptor]()
            if events:
                last = now
            elif now - last > STALL_S:
                raise LoadFailed(f"messages lost: nothing came for {STALL_S} s")
            if now > until or self.delivered() - first > messages_max:
                self.set_sending(False)
                if all(pair.is_settled for pair in self.pairs):
                    return self.delivered() - first, time.perf_counter() - started

    def delivered(self) -> int:
        return sum(pair.delivered for pair in self.pairs)

    def set_sending(self, sending: bool) -> None:
        for pair in self.pairs:
            pair.sending = sending
            pair.refill()

    def close(self) -> None:
        """Nothing may follow; then hang up."""
        excess = bool(self.ready.poll(EXCESS_WAIT_S))
        self.ready.close()
        for pair in self.pairs:
            pair.publisher.close()
            pair.subscriber.close()
        if excess:
            raise LoadFailed("more arrived than was published, or the broker hung up")


def run(job: LoadJob) -> LoadSample:
    """Deliveries per second, each acknowledged at both ends."""
    exchange = AcknowledgedExchange(job)
    exchange.pump(job.warmup_s, job.messages_max)
    return measured(job, lambda: exchange.pump(job.seconds, job.messages_max), exchange.close)
