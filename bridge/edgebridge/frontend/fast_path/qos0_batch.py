"""Batches of QoS 0 messages to readers that all take the same bytes: copied whole, and counted as one.

A *batch* is a row of PUBLISH packets whose bytes are equal up to the end of the topic: same topic, same length.
"""

from __future__ import annotations

from edgebridge.frontend.connection import Connection, OutBatch
from edgebridge.frontend.fast_path.fan_out import FanOut
from edgebridge.wire.head import publish_head
from edgebroker.instants import Instant
from edgebroker.log_schema import Cause, EventId, Fate, MessageOrigin
from edgebroker.node.ledger import Ledger


class Qos0Batches:
    """The delivery of runs."""

    __slots__ = ("_ledger", "coalesced")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.coalesced = 0
        """Packets that lie in one buffer with the one before them."""

    def deliver(
        self,
        plan: FanOut,
        block: bytes,
        size: int,
        payload: int,
        is_v5: bool,
        publisher: str,
        first: int,
        now: Instant,
        origin: int = 0,
    ) -> None:
        """Give the readers of *plan*, which is quick, the packets of *block*; the first has number *first*.

        Each has *size* bytes, with its payload behind *payload* of them. origin: see `log_schema.MessageOrigin`.
        """
        count = len(block) // size
        v311 = plan.readers_v311
        index = 0
        other = b""
        for reader in plan.readers:
            if (index >= v311) is is_v5:
                data = block
            else:
                if not other:
                    other = _translated(block, size, plan.topic.encode(), payload, is_v5)
                data = other
            text = plan.labels[index]
            index += 1
            room = reader.out_bytes_max - reader.out_bytes
            if len(data) > room or reader.closing:
                self._overflow(reader, publisher, plan.topic, text, data, first, count, now, size - payload, origin)
                continue
            if self._ledger.log is not None:
                self._log_batch(reader, publisher, first, count, plan.topic, text, now, size - payload, origin)
            reader.out.append(data)
            reader.out_bytes += len(data)
            reader.out_messages += count
            self.coalesced += count - 1
            if not reader.is_dirty:
                reader.is_dirty = True
                reader.dirty.append(reader)

    def deliver_payloads(
        self, plan: FanOut, payloads: bytes, count: int, publisher: str, leaving: int, event: EventId, now: Instant
    ) -> int:
        """Enter *count* messages of a peer, whose equally long *payloads* lie one behind the other, into the books, and
        deliver them.

        *leaving*: copies that each has besides, for other gateways. *event*: the identity of the first in the overlay.
        Returns the number of the first.
        """
        length = len(payloads) // count
        route = plan.route
        route.count(count)
        copies = len(plan.readers) + leaving
        first = self._ledger.accept(
            now, publisher, count, plan.topic, 0, length, copies, route.nobody, None, event, MessageOrigin.PEER
        )
        if plan.readers:
            head = publish_head(plan.topic.encode(), 0, False, False, b"", length, False)
            pieces = []
            at = 0
            end = len(payloads)
            while at < end:
                pieces.append(head)
                pieces.append(payloads[at : at + length])
                at += length
            data = b"".join(pieces)
            self.deliver(plan, data, len(head) + length, len(head), False, publisher, first, now, MessageOrigin.PEER)
        return first

    def _overflow(
        self,
        reader: Connection,
        publisher: str,
        topic: str,
        text: str,
        data: bytes,
        first: int,
        count: int,
        now: Instant,
        payload_bytes: int,
        origin: int,
    ) -> None:
        """A run that does not fit: as many of its messages as do are sent; how it was cut decides nothing."""
        size = len(data) // count
        room = reader.out_bytes_max - reader.out_bytes
        if reader.closing:
            fitting = 0
        else:
            fitting = max(room // size, 0 if reader.out_bytes else 1)  # an empty buffer takes a message of any size
        if fitting:
            if self._ledger.log is not None:
                self._log_batch(reader, publisher, first, fitting, topic, text, now, payload_bytes, origin)
            reader.out.append(data[: fitting * size])
            reader.out_bytes += fitting * size
            reader.out_messages += fitting
            self.coalesced += fitting - 1
            if not reader.is_dirty:
                reader.is_dirty = True
                reader.dirty.append(reader)
        if fitting < count:
            self._drop(reader, publisher, first + fitting, count - fitting, topic, text, payload_bytes, now, origin)

    def _drop(
        self,
        reader: Connection,
        publisher: str,
        first: int,
        count: int,
        topic: str,
        text: str,
        payload_bytes: int,
        now: Instant,
        origin: int,
    ) -> None:
        """A run of QoS 0 messages found the out-buffer full (P6: a reader that does not read loses QoS 0) or closed."""
        cause = Cause.OFFLINE if reader.closing else Cause.OUT_BUFFER_FULL
        session = reader.session
        self._ledger.count_dropped("" if session is None else session.client_id, cause, count)
        if session is not None:
            session.outbox.count_dropped(cause, count)
        log = self._ledger.log
        if log is not None and session is not None:
            client, fate = session.client_id, Fate.DROPPED
            log.matched(now, publisher, client, first, count, 0, origin)
            log.fate(now, publisher, client, first, count, topic, text, 0, fate, cause, 0, payload_bytes, None, origin)

    def _log_batch(
        self,
        reader: Connection,
        publisher: str,
        first: int,
        count: int,
        topic: str,
        text: str,
        now: Instant,
        payload_bytes: int,
        origin: int,
    ) -> None:
        """Note in the connection the copies that it has to account for once they are written, or lost."""
        has_rows = self._ledger.is_sampled(first, count)
        batches = reader.out_batches
        if not has_rows and batches and not reader.barriers:
            last: OutBatch = batches[-1]
            is_next = last.first + last.count == first and last.origin == origin
            if is_next and not last.has_rows and last.publisher == publisher:
                last.count += count
                return
        if has_rows:
            session = reader.session
            assert session is not None
            self._ledger.made(now, publisher, session.client_id, first, count, 0, origin)
        batches.append(OutBatch(publisher, first, count, topic, text, now, payload_bytes, has_rows, None, origin))


def _translated(block: bytes, size: int, topic: bytes, payload: int, from_v5: bool) -> bytes:
    """A run in the other dialect: without, or with, the empty properties that version 5 has in every PUBLISH."""
    properties = b"" if from_v5 else b"\0"
    prefix = publish_head(topic, 0, False, False, properties, size - payload, not from_v5) + properties
    pieces = []
    at = payload
    end = len(block)
    while at <= end:
        pieces.append(prefix)
        pieces.append(block[at : at + size - payload])
        at += size
    return b"".join(pieces)
