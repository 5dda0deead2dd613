"""One client's connection, as the front end sees it: what arrived, what waits to be written, and its terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgebridge.frontend.options import LOCAL_LISTENER, ClientCertificate
from edgebridge.frontend.topic_alias import OutboundTopicAliases
from edgebridge.session.credentials import ANONYMOUS
from edgebridge.session.lifecycle import ConnectionState
from edgebridge.session.session import Session
from edgebridge.wire.dialect import V311, Dialect
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import Instant
from edgebroker.log_schema import Cause, Fate, TraceParent
from edgebroker.tokenbucket import Meter

if TYPE_CHECKING:
    from edgebroker.storage.deliverylog.writer import DeliveryLog

CONTROL_BYTES = 64
"""What a small packet costs on top while it waits (a bytes object, a list slot): so PINGRESPs are bounded too."""
OWED_BYTES_MAX = 1 << 20
"""Answers that may wait behind a full out-buffer, and as much again as that holds..."""
UNREAD_ANSWERS = "the client asks and does not read the answers"
"""...and why a client is cut off that lets more wait."""


class OutBatch:
    """QoS 0 messages of one publisher in an out-buffer, with consecutive numbers, for the delivery log.

    Those of a batch with rows share everything. One without rows grows by what follows it in the out-buffer, whatever
    its topic: only numbers are counted then.
    """

    __slots__ = (
        "accepted_at",
        "count",
        "first",
        "has_rows",
        "label",
        "origin",
        "payload_bytes",
        "publisher",
        "topic",
        "trace",
    )

    def __init__(
        self,
        publisher: str,
        first: int,
        count: int,
        topic: str,
        label: str,
        accepted_at: Instant,
        payload_bytes: int,
        has_rows: bool,
        trace: TraceParent | None,
        origin: int = 0,
    ) -> None:
        """first: the number of the first message; label: the subscription, as the log writes it; origin: that of the
        messages.

        has_rows: some of them get rows. Then the log has their copies already; else it gets these when they end.
        """
        self.publisher = publisher
        self.first = first
        self.count = count
        self.topic = topic
        self.label = label
        self.accepted_at = accepted_at
        self.payload_bytes = payload_bytes
        self.has_rows = has_rows
        self.trace = trace
        self.origin = origin

    def part(self, start: int, count: int) -> OutBatch:
        """*count* of its messages, from the one at *start* on, counted from 0."""
        return OutBatch(
            self.publisher,
            self.first + start,
            count,
            self.topic,
            self.label,
            self.accepted_at,
            self.payload_bytes,
            self.has_rows,
            self.trace,
            self.origin,
        )

    def end(self, log: DeliveryLog, subscriber: str, fate: Fate, cause: Cause, now: Instant) -> None:
        """Log the fate of the copies for *subscriber*."""
        publisher, first, count = self.publisher, self.first, self.count
        if not self.has_rows:
            log.matched(now, publisher, subscriber, first, count, 0, self.origin)
        wait_us = now - self.accepted_at
        octets = self.payload_bytes
        log.fate(
            now,
            publisher,
            subscriber,
            first,
            count,
            self.topic,
            self.label,
            0,
            fate,
            cause,
            wait_us,
            octets,
            self.trace,
            self.origin,
        )


class DurabilityBarrier:
    """A place in an out-buffer: what stands behind it waits until the record `lsn` is on disk.

    The rest is what stands before it: packets, their bytes, and the QoS 0 messages and runs among them.
    """

    __slots__ = ("batches", "bytes", "lsn", "messages", "packets")

    def __init__(self, lsn: int, packets: int, octets: int, messages: int, runs: int) -> None:
        self.lsn = lsn
        self.packets = packets
        self.bytes = octets
        self.messages = messages
        self.batches = runs


NO_INHERITED_IDS: set[int] = set()
"""One for all, and always empty."""


class Connection:
    """The out-buffer is `out`: packets in order, written by the world once per turn. `out_bytes` bounds it.

    QoS 0 messages in `out` have no fate yet: `out_messages` counts them, `out_runs` names them if a log is kept.
    """

    __slots__ = (
        "alias_bytes",
        "aliases",
        "barriers",
        "certificate",
        "closing",
        "dialect",
        "dirty",
        "disconnect_reason",
        "final_packet",
        "has_problem_information",
        "inherited_qos2_ids",
        "is_deferred",
        "is_dirty",
        "is_held",
        "is_packet_timed",
        "is_resumed",
        "is_v5",
        "job",
        "job_bytes",
        "keep_alive",
        "last_received_at",
        "listener_context",
        "meter",
        "number",
        "out",
        "out_aliases",
        "out_batches",
        "out_bytes",
        "out_bytes_max",
        "out_messages",
        "owed_bytes",
        "packet_begun_at",
        "packet_bytes_max",
        "paused",
        "peer",
        "pending",
        "pending_bytes",
        "pending_wanted",
        "session",
        "state",
        "transport",
        "transport_bytes",
        "verdict",
    )

    def __init__(self, number: int, peer: str, dirty: list[Connection], out_bytes_max: int, now: Instant) -> None:
        self.number = number
        self.peer = peer
        self.transport: Any = None
        """The world's own."""
        self.transport_bytes = 0
        """What the layers of the transport hold for it: TLS."""
        self.listener_context = LOCAL_LISTENER
        self.certificate: ClientCertificate | None = None
        """What the client proved to be, before its CONNECT is read."""
        self.state = ConnectionState.AWAITING_CONNECT
        self.session: Session | None = None
        self.inherited_qos2_ids = NO_INHERITED_IDS
        """QoS 2 identifiers that earlier connections left unreleased: this one's quota begins anew (section 4.9)."""
        self.verdict = ANONYMOUS
        """Who the client is, from CONNACK on."""
        self.dialect: Dialect = V311
        self.is_v5 = False
        self.is_resumed = False
        """Whether the session had been there before."""
        self.keep_alive = 0
        """Microseconds of silence after which the client is taken for dead; 0: never."""
        self.last_received_at = now
        self.packet_bytes_max = 0
        """The largest packet the client takes; 0: any."""
        self.has_problem_information = True
        self.aliases: dict[int, str] = {}
        self.alias_bytes = 0
        """The footprint of these."""
        self.out_aliases: OutboundTopicAliases | None = None
        """For a client that takes topic aliases from us."""
        # What arrived and is no whole packet yet. It is joined only when `pending_wanted` bytes are there, so that
        # a large packet in many chunks is copied once.
        self.pending: list[bytes] = []
        self.pending_bytes = 0
        self.pending_wanted = 0
        self.packet_begun_at: Instant = 0
        """When the large packet began that `pending` has a part of."""
        self.is_packet_timed = False
        """Whether a timer will look whether that packet is complete (`unfinished_input`)."""
        self.meter: Meter | None = None
        """Counts what the client publishes; None: it may publish as fast as it likes."""
        self.is_held = False
        """Whole packets wait in `pending` too: nothing is taken from it, and a world had better not read on."""
        self.is_deferred = False
        """It got much of what waits for it at once: the rest comes in another turn."""
        self.job: Any = None
        """A packet that is done in several turns (`errands`): those behind it wait."""
        self.job_bytes = 0
        self.dirty = dirty
        self.is_dirty = False
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.out_bytes_max = out_bytes_max
        self.owed_bytes = 0
        """Of these, what was added since the out-buffer is full: answers."""
        self.out_messages = 0
        self.out_batches: list[OutBatch] = []
        """(publisher, first number, count, topic, subscription, accepted at, payload bytes) of QoS 0 in `out`."""
        self.barriers: list[DurabilityBarrier] = []
        """What waits for the disk (`SessionJournal.add_barrier`): the last part of `out`, in parts."""
        self.final_packet = b""
        """The last packet, if `out` holds what waits for the disk: that is not written any more."""
        self.paused = False
        """Set by the world while its own buffer for the client is full."""
        self.disconnect_reason: tuple[int, str] | None = None
        """(reason code, why) of the DISCONNECT that ended it, whichever side said it; None: none was said."""
        self.closing = False
        """The world writes what is in `out`, then closes."""

    @property
    def is_open(self) -> bool:
        """Whether the client said CONNECT and neither side said good-bye."""
        return self.state is ConnectionState.CONNECTED and not self.closing

    def send(self, packet: bytes) -> None:
        """Append *packet* to the out-buffer. A client that asks but never reads answers is cut off.

        A full out-buffer lets no message in, and the last one may have been of any size: a client is not to blame for
        that. So only what comes after it counts. That is what the client made us owe.
        """
        if self.closing:
            return
        if self.out_bytes > self.out_bytes_max:
            self.owed_bytes += len(packet) + CONTROL_BYTES
            if self.owed_bytes > self.out_bytes_max + OWED_BYTES_MAX:
                self.disconnect_reason = self.disconnect_reason or (ReasonCode.QUOTA_EXCEEDED, UNREAD_ANSWERS)
                self.close()
                return
        else:
            self.owed_bytes = 0
        self.out.append(packet)
        self.out_bytes += len(packet) + CONTROL_BYTES
        if not self.is_dirty:
            self.is_dirty = True
            self.dirty.append(self)

    def close(self) -> None:
        """Ask the world to write what is left and to close."""
        if not self.closing:
            self.closing = True
            self.is_dirty = True
            self.dirty.append(self)  # again, even if it is dirty: a world passes over paused ones, but not over these

    def take_out(self) -> list[bytes]:
        """What may be written now, and is no longer in the out-buffer: all before the first gate."""
        if not self.barriers:
            out, self.out = self.out, []
            self.out_bytes = self.owed_bytes = 0
            return out
        gate = self.barriers[0]
        out, self.out = self.out[: gate.packets], self.out[gate.packets :]
        self.out_bytes -= gate.bytes
        self.owed_bytes = min(self.owed_bytes, self.out_bytes)
        packets, octets = gate.packets, gate.bytes
        for one in self.barriers:
            one.packets -= packets
            one.bytes -= octets
        if self.closing and self.final_packet:
            out.append(self.final_packet)
        return out

    def release_barriers(self, synced: int) -> bool:
        """The disk has all records up to *synced*: what waits for these may be written. Whether there was any."""
        gates = self.barriers
        count = len(gates)
        while gates and gates[0].lsn <= synced:
            del gates[0]
        return len(gates) != count

    def take_written(self) -> tuple[int, list[OutBatch]]:
        """The QoS 0 messages that stand before the first gate, and their runs: they are accounted for."""
        if not self.barriers:
            messages, self.out_messages = self.out_messages, 0
            runs, self.out_batches = self.out_batches, []
            return messages, runs
        messages, count = self.barriers[0].messages, self.barriers[0].batches
        self.out_messages -= messages
        runs, self.out_batches = self.out_batches[:count], self.out_batches[count:]
        for one in self.barriers:
            one.messages -= messages
            one.batches -= count
        return messages, runs

    def count_waiting(self, first: int = -1) -> int:
        """How many packets wait for the disk; with *first*, of those that begin with this byte."""
        if not self.barriers:
            return 0
        before = self.barriers[0].packets
        if first < 0:
            return len(self.out) - before
        return sum([packet[0] == first for packet in self.out[before:]])

    def has_room_for(self, size: int) -> bool:
        """Whether the out-buffer has room for a QoS 0 message of *size* bytes. While it is empty it takes any."""
        return not self.out_bytes or self.out_bytes + size <= self.out_bytes_max

    def fits(self, packet: bytes) -> bool:
        """Whether the client takes a packet of this size."""
        return not self.packet_bytes_max or len(packet) <= self.packet_bytes_max
