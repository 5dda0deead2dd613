"""Traffic over a bridge: one publisher at one broker and one reader at another.

Every message has its number and the time at which it was sent.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

from edgelab.bench import packets
from edgelab.bench.client import STALL_S, BenchClient, DurableClient
from edgelab.bench.job import LoadFailed

STAMP: Final = struct.Struct("<QQ")  # sent at, in ns of perf_counter; number of the message
READ_BYTES: Final = 1 << 16
UNDELIVERED_MAX: Final = 1_000
"""Messages on their way; at QoS 0 a broker drops what a slow reader leaves in its buffer."""
AT_ONCE_MAX: Final = 50
"""Messages in one write. A hundred devices publish in many small writes, and not in one large one."""
PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
ACK_BYTES: Final = 4
READER: Final = "bench-bridge-sub"


class BridgeTraffic:
    """Publisher and reader of one topic.

    A message that is lost, doubled, or late behind another is LoadFailed; of a durable reader, who is away for a while,
    it is counted instead.
    """

    def __init__(self, sending: int, receiving: int, qos: int, *, is_durable: bool = False) -> None:
        self._qos = qos
        self._topic = f"bench/bridge/{qos}"
        packet_id = 1 if qos else None
        self._packet = bytearray(packets.publish(self._topic, bytes(packets.PAYLOAD_BYTES), packet_id))
        self._packet[0] = 0x30 | qos << 1
        self._id_at = len(self._packet) - packets.PAYLOAD_BYTES - 2
        self._stamp_at = len(self._packet) - packets.PAYLOAD_BYTES
        self._receiving = receiving
        self._is_durable = is_durable
        self._come = bytearray()
        self._answers = bytearray()
        self.sent = self.acknowledged = self.delivered = 0
        """Messages."""
        self.doubled = self.overtaken = 0
        """Copies of messages that had come, and messages that came behind a later one."""
        self._had = bytearray()
        self._highest = -1
        self.latencies_ns: list[int] = []
        self.last_came = 0.0
        """When, by perf_counter, a durable reader had its last new message."""
        self.reader: BenchClient | None = None
        self.connect_reader()
        self._writer = BenchClient(sending, "bench-bridge-pub")

    def connect_reader(self) -> None:
        """The reader comes (again); a durable one to the session that it has. Raises LoadFailed."""
        if not self._is_durable:
            self.reader = BenchClient(self._receiving, READER)
        else:
            self.reader = DurableClient(self._receiving, READER)
            self.reader.socket.settimeout(None)  # it is asked without waiting, which Python would still time
        if not getattr(self.reader, "was_present", False):
            self.reader.subscribe([self._topic], self._qos)
        self._come.clear()

    def hang_up_reader(self) -> None:
        """Its connection is over."""
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def closed_loop(self, seconds: float, window: int) -> tuple[int, float]:
        """Publish as fast as *window* unacknowledged messages allow, until all has come: (messages, seconds)."""
        began, first = time.perf_counter(), self.delivered
        while time.perf_counter() - began < seconds:
            self.publish(min(window - self._open, UNDELIVERED_MAX - (self.sent - self.delivered), AT_ONCE_MAX))
            self.poll()
        self.settle()
        return self.delivered - first, time.perf_counter() - began

    def open_loop(self, seconds: float, rate: int) -> list[int]:
        """Publish at *rate*, until all has come: how long each message took, in ns, ascending."""
        self.latencies_ns.clear()
        began, first = time.perf_counter(), self.sent
        while (elapsed := time.perf_counter() - began) < seconds:
            if self.sent - first < elapsed * rate:
                self.publish(1)
            self.poll()
        self.settle()
        return sorted(self.latencies_ns)

    @property
    def _open(self) -> int:
        return self.sent - self.acknowledged if self._qos else 0

    def publish(self, count: int) -> None:
        """Send *count* messages, in one write; none if it is not above zero."""
        written = bytearray()
        for number in range(self.sent, self.sent + count):
            if self._qos:
                struct.pack_into(">H", self._packet, self._id_at, number % 65_535 + 1)
            STAMP.pack_into(self._packet, self._stamp_at, time.perf_counter_ns(), number)
            written += self._packet
        if written:
            self._writer.socket.sendall(written)
            self.sent += count

    def settle(self, patience_s: float = STALL_S) -> None:
        """Until everything that was sent has come. If nothing comes for so long: raises LoadFailed, or is content."""
        last, done = time.monotonic(), -1
        while self.delivered < self.sent or self._open:
            self.poll()
            now, progress = time.monotonic(), self.delivered + self.acknowledged
            if progress != done:
                last, done = now, progress
            elif now - last > patience_s:
                if self._is_durable:
                    return
                missing = self.sent - self.delivered
                raise LoadFailed(
                    f"nothing came for {patience_s:g} s; {missing:,} of {self.sent:,} messages are missing"
                )

    def poll(self) -> None:
        """Read what lies at either end, and answer it."""
        if self.reader is not None and (came := received(self.reader)):
            self._come += came
            self._take()
        if self._qos and (came := received(self._writer)):
            self._answers += came
            self._heed()

    def _take(self) -> None:
        """Messages, and with QoS 2 releases, at the reader."""
        assert self.reader is not None
        buffer, size, at, answers = self._come, len(self._packet), 0, bytearray()
        while at < len(buffer):
            first = buffer[at]
            if first == PUBREL:
                if len(buffer) - at < ACK_BYTES:
                    break
                answers += bytes((PUBCOMP, 2)) + buffer[at + 2 : at + 4]
                at += ACK_BYTES
                continue
            if first & 0xF6 != self._packet[0]:  # whatever its DUP flag says
                raise LoadFailed(f"the reader got something else than a message: {bytes(buffer[at : at + 8]).hex()}")
            if len(buffer) - at < size:
                break
            sent_ns, number = STAMP.unpack_from(buffer, at + self._stamp_at)
            self._count(number, sent_ns)
            if self._qos:
                kind = PUBACK if self._qos == 1 else PUBREC
                answers += bytes((kind, 2)) + buffer[at + self._id_at : at + self._id_at + 2]
            at += size
        del buffer[:at]
        if answers:
            self.reader.socket.sendall(answers)

    def _count(self, number: int, sent_ns: int) -> None:
        if self._is_durable:
            self._tick_off(number)
        elif number == self.delivered:
            self.delivered += 1
            self.latencies_ns.append(time.perf_counter_ns() - sent_ns)
        else:
            raise LoadFailed(f"message {number:,} came in the place of message {self.delivered:,}")

    def _tick_off(self, number: int) -> None:
        if number >= self.sent:
            raise LoadFailed(f"message {number:,} came, which nobody sent")
        self._had.extend(bytes(self.sent - len(self._had)))
        if self._had[number]:
            self.doubled += 1
            return
        self._had[number] = 1
        self.delivered += 1
        self.overtaken += number < self._highest
        self._highest = max(self._highest, number)
        self.last_came = time.perf_counter()

    def _heed(self) -> None:
        """Acknowledgements at the publisher."""
        buffer, releases = self._answers, bytearray()
        whole = len(buffer) // ACK_BYTES * ACK_BYTES
        for at in range(0, whole, ACK_BYTES):
            if buffer[at] == PUBREC:
                releases += bytes((PUBREL, 2)) + buffer[at + 2 : at + 4]
            elif buffer[at] in (PUBACK, PUBCOMP):
                self.acknowledged += 1
            else:
                raise LoadFailed(f"the publisher got something else than an answer: {bytes(buffer[at : at + 4]).hex()}")
        del buffer[:whole]
        if releases:
            self._writer.socket.sendall(releases)

    def close(self) -> None:
        """Hang up."""
        self.hang_up_reader()
        self._writer.close()


def received(client: BenchClient) -> bytes:
    """What has come; nothing if nothing has. Raises LoadFailed if the broker hung up."""
    try:
        came: bytes = client.socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""
    if not came:
        raise LoadFailed("a broker closed a connection")
    return came
