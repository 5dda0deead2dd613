"""Traces a running gateway: packets and fates of messages, for the taps that are open.

Packets are decoded a second time from the bytes that arrive and leave, so the front end does not know of it: without a
tap the reactor tests one attribute for each chunk and each flush. Fates are read on their way to the delivery log. A
tap selects clients and topics and has a bounded buffer that may lose lines. A line never contains a payload, a user
name or a password.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from edgebridge.frontend.connection import Connection
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.errors import PacketTooLarge, ProtocolError
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import Connect, Packet, Publish, SubAck, Subscribe, UnsubAck, Unsubscribe
from edgebridge.wire.properties import Property, number, user_properties
from edgebridge.wire.user_properties import TRACEPARENT
from edgebroker.filters.attributes import UnreadableCounts
from edgebroker.instants import Instant
from edgebroker.limits import MIB
from edgebroker.log_schema import NO_EVENT, Cause, EventId, Fate, TraceParent
from edgebroker.node.ledger import Ledger
from edgebroker.runtime.loop.reactor import Reactor
from edgebroker.runtime.operator_log import timestamp
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgebroker.topics import TopicFilter

TEXT_CHARS_MAX: Final = 300
UNREADABLE: Final = "unreadable for content filters"
"""Said of a message whose payload a content filter asked for and that could not be read."""
FILTERS_MAX: Final = 20
"""Filters of one SUBSCRIBE that are shown; it may have thousands."""


def describe_packet(packet: Packet) -> dict[str, Any]:
    """Returns the fields of *packet* as JSON values; `packet` is its type."""
    fields: dict[str, Any] = {"packet": type(packet).__name__.upper()}
    match packet:
        case Connect():
            fields |= {
                "version": packet.dialect.version,
                "clean": packet.clean_start,
                "keep_alive_s": packet.keep_alive_s,
                "has_user": packet.username is not None,
                "has_password": packet.password is not None,
            }
            if packet.will is not None:
                fields["will"] = {"topic": _cut(packet.will.topic), "bytes": len(packet.will.payload)}
        case Publish():
            fields |= {"topic": _cut(packet.topic), "qos": packet.qos, "bytes": len(packet.payload)}
            fields |= {name: True for name in ("retain", "dup") if getattr(packet, name)}
        case Subscribe():
            first = packet.subscriptions[:FILTERS_MAX]
            fields["filters"] = [{"filter": _cut(entry.topic_filter), "qos": entry.qos} for entry in first]
            fields["count"] = len(packet.subscriptions)
        case Unsubscribe():
            fields["filters"] = [_cut(text) for text in packet.topic_filters[:FILTERS_MAX]]
            fields["count"] = len(packet.topic_filters)
        case SubAck() | UnsubAck():
            fields["reasons"] = [int(reason) for reason in packet.reasons[:FILTERS_MAX]]
    for name in ("packet_id", "session_present"):
        if value := getattr(packet, name, None):
            fields[name] = value
    if reason := getattr(packet, "reason", 0):
        fields["reason"] = reason.name.lower() if hasattr(reason, "name") else int(reason)
    properties = getattr(packet, "properties", None) or {}
    if alias := number(properties, Property.TOPIC_ALIAS, 0):
        fields["alias"] = alias
    for name, value in user_properties(properties):
        if name == TRACEPARENT:
            fields[TRACEPARENT] = _cut(value)
    return fields


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "…"


LINES_MAX: Final = 2_000
"""About 500 KiB; they are fetched five times a second. Lines are dropped rather than the gateway slowed down."""
IDS_MAX: Final = 1_000
"""Packet identifiers whose acknowledgements are shown too; older ones are forgotten."""

Line = dict[str, Any]


class Tap:
    """A buffer of trace lines that match *client*, a pattern in which `*` matches any text, and *topic*. None matches
    all.
    """

    def __init__(self, client: str | None, topic: TopicFilter | None) -> None:
        self._client = client
        self._topic = topic
        self._lines: deque[Line] = deque()
        self._missed = 0
        self._packet_ids: dict[tuple[int, str, int], None] = {}

    def wants_client(self, client: str) -> bool:
        """Whether the tap selects *client*."""
        return self._client is None or fnmatchcase(client, self._client)

    def wants_topic(self, topic: str) -> bool:
        """Whether the tap selects messages to *topic*."""
        return self._topic is None or self._topic.matches(topic)

    def add_packet(self, line: Line, connection: int, topic: str | None) -> None:
        """Adds a packet of a selected client. *topic*: of a PUBLISH, otherwise None.

        With a topic filter, acknowledgements of the selected messages are added too.
        """
        if self._topic is not None:
            key = (connection, line["way"], line.get("packet_id", 0))
            # An acknowledgement has the opposite direction; PUBREL has that of its PUBLISH.
            acknowledged = (connection, "out" if line["way"] == "in" else "in", key[2])
            if topic is not None:
                if not self.wants_topic(topic):
                    return
                if key[2]:
                    self._packet_ids[key] = None
                    if len(self._packet_ids) > IDS_MAX:
                        del self._packet_ids[next(iter(self._packet_ids))]
            elif not key[2] or (acknowledged not in self._packet_ids and key not in self._packet_ids):
                return
        self.add(line)

    def add(self, line: Line) -> None:
        """Appends *line* to the buffer, or counts it as missed."""
        if len(self._lines) >= LINES_MAX:
            self._missed += 1
        else:
            self._lines.append(line)

    def count_missed(self, count: int) -> None:
        """Adds *count* events that were not traced to those missed."""
        self._missed += count

    def drain(self) -> list[Line]:
        """Returns the lines since the last call, and at the end a line with the number missed, if any."""
        lines = list(self._lines)
        self._lines.clear()
        missed, self._missed = self._missed, 0
        return [*lines, {"way": "gap", "missed": missed}] if missed else lines


TAPS_MAX: Final = 4
PACKETS_PER_S: Final = 5_000
"""Packets and fates traced in a second. A packet takes 6 us, a fate 3, so a trace of everything costs at most a
thirtieth of a core. The rest is only counted.
"""
PACKET_BYTES_MAX: Final = 1 * MIB
"""A larger packet ends the trace of its connection: a second copy of it would take as much memory again."""
TOO_LARGE: Final = f"a packet of more than {PACKET_BYTES_MAX // MIB} MiB; no more of the connection is shown this way"


class TooManyTaps(Exception):
    """The limit of open taps is reached."""


class Tracer:
    """Feeds the open taps from the reactor and the ledger."""

    def __init__(self, reactor: Reactor, ledger: Ledger, unreadable: UnreadableCounts | None = None) -> None:
        """*unreadable*: where routing counts payloads that cannot be read."""
        self._reactor = reactor
        self._ledger = ledger
        self._unreadable_counts = unreadable or UnreadableCounts()
        self._unreadable = 0
        self._unreadable_message = -1
        self._taps: list[Tap] = []
        self._traced_log: TracedDeliveryLog | None = None
        self._framers: dict[tuple[int, str], Framer | None] = {}
        self._pending: dict[int, Connection] = {}
        self._client_ids: dict[int, str] = {}
        """Client identifier in the CONNECT of connections without a session, so that refused ones are shown too."""
        self._aliases: dict[int, dict[int, str]] = {}
        """Connection -> topic alias -> topic, as far as traced: the front end may be ahead."""
        self._second = 0
        self._events_this_second = 0

    @property
    def has_room(self) -> bool:
        """Whether another tap may be opened."""
        return len(self._taps) < TAPS_MAX

    def open(self, tap: Tap) -> None:
        """Starts to feed *tap*. Raises TooManyTaps."""
        if not self.has_room:
            raise TooManyTaps
        self._taps.append(tap)
        if len(self._taps) == 1:
            self._unreadable = self._unreadable_counts.total
            self._reactor.observer = self
            self._traced_log = TracedDeliveryLog(self._ledger.log, self)
            self._ledger.set_log(cast(DeliveryLog, self._traced_log))

    def close(self, tap: Tap) -> None:
        """Stops to feed *tap*."""
        self._taps.remove(tap)
        if not self._taps:
            self._reactor.observer = None
            assert self._traced_log is not None
            self._ledger.set_log(self._traced_log.log)
            for table in (self._framers, self._pending, self._client_ids, self._aliases):
                table.clear()

    # -- packets ----------------------------------------------------------------------------------------------

    def data_received(self, connection: Connection, data: bytes) -> None:
        """Buffers *data* that the front end is about to read. It is decoded afterwards, when the dialect is known."""
        key = (connection.number, "in")
        if not self._is_traced(connection):
            self._framers.pop(key, None)
            self._aliases.pop(connection.number, None)
            return
        if key not in self._framers:
            self._feed(key, b"".join(connection.pending))  # the first part of a packet that is incomplete
        self._feed(key, data)
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._read_pending)
        self._pending[connection.number] = connection

    def data_sent(self, connection: Connection, data: bytes) -> None:
        """Traces *data*, whole packets that are about to be written."""
        if not self._is_traced(connection):
            return
        self._read_pending()
        key = (connection.number, "out")
        self._feed(key, data)
        self._read(connection, key)

    def connection_closed(self, connection: Connection) -> None:
        """Forgets the connection."""
        self._read_pending()
        for direction in ("in", "out"):
            self._framers.pop((connection.number, direction), None)
        self._client_ids.pop(connection.number, None)
        self._aliases.pop(connection.number, None)

    def _is_traced(self, connection: Connection) -> bool:
        """Whether a tap selects this client, or its client identifier is not known yet."""
        session = connection.session
        return session is None or any(tap.wants_client(session.client_id) for tap in self._taps)

    def _feed(self, key: tuple[int, str], data: bytes) -> None:
        if key not in self._framers:
            self._framers[key] = Framer(PACKET_BYTES_MAX)
        framer = self._framers[key]
        if framer is not None:
            framer.feed(data)

    def _read_pending(self) -> None:
        pending, self._pending = self._pending, {}
        for connection in pending.values():
            self._read(connection, (connection.number, "in"))

    def _read(self, connection: Connection, key: tuple[int, str]) -> None:
        framer = self._framers.get(key)
        session = connection.session
        client = self._client_ids.get(connection.number, "") if session is None else session.client_id
        while framer is not None:
            try:
                frame = framer.next_frame()
                if frame is None:
                    return
                if not self._is_within_rate():
                    continue
                packet = decode_packet(*frame, connection.dialect)
            except ProtocolError as error:
                self._framers[key] = None  # the packets that follow cannot be framed
                # The limit is that of traces: the gateway may accept such a packet.
                why = TOO_LARGE if isinstance(error, PacketTooLarge) else str(error)[:200]
                self._emit(connection, key[1], client, {"packet": "?", "error": why}, None)
                return
            topic = self._topic(connection, key[1], packet)
            if isinstance(packet, Connect) and not client:
                client = self._client_ids[connection.number] = packet.client_id
            self._emit(connection, key[1], client, describe_packet(packet), topic)

    def _emit(self, connection: Connection, direction: str, client: str, fields: Line, topic: str | None) -> None:
        line = {**_new_line(direction), "client": client, "peer": connection.peer, **fields}
        if topic is not None:
            line["topic"] = topic
        for tap in self._taps:
            if tap.wants_client(client):
                tap.add_packet(line, connection.number, topic)

    def _topic(self, connection: Connection, direction: str, packet: Packet) -> str | None:
        """Returns the topic of a PUBLISH, with its topic alias resolved; None of another packet."""
        if not isinstance(packet, Publish):
            return None
        alias = number(packet.properties, Property.TOPIC_ALIAS, 0)
        if packet.topic:
            if alias and direction == "in":
                self._aliases.setdefault(connection.number, {})[alias] = packet.topic
            return packet.topic
        if direction == "in":
            return self._aliases.get(connection.number, {}).get(alias) or connection.aliases.get(alias, "")
        return "" if connection.out_aliases is None else connection.out_aliases.topic(alias)

    # -- fates ------------------------------------------------------------------------------------------------

    def fate(self, publisher: str, subscriber: str, topic: str, fields: Line) -> None:
        """Traces the fate of a message, or of a copy if there is a *subscriber*."""
        self._read_pending()
        if not self._is_within_rate():
            return
        line = {**_new_line("fate"), **fields, "topic": topic, "publisher": publisher}
        if subscriber:
            line["subscriber"] = subscriber
        for tap in self._taps:
            is_wanted = tap.wants_client(publisher) or bool(subscriber and tap.wants_client(subscriber))
            if is_wanted and tap.wants_topic(topic):
                tap.add(line)

    def payload_fields(self, message: int, topic: str) -> Line:
        """Returns what there is to say of the payload of the *message* that was routed last, to *topic*. Routing counts
        a payload that cannot be read just before it tells the ledger of the message.
        """
        before, self._unreadable = self._unreadable, self._unreadable_counts.total
        if self._unreadable > before and self._unreadable_counts.last_topic == topic:
            self._unreadable_message = message
        return {"payload": UNREADABLE} if message == self._unreadable_message else {}

    def _is_within_rate(self) -> bool:
        """Whether another event may be traced in this second; if not, every tap counts it as missed."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._events_this_second = second, 0
        self._events_this_second += 1
        if self._events_this_second <= PACKETS_PER_S:
            return True
        for tap in self._taps:
            tap.count_missed(1)
        return False


class TracedDeliveryLog:
    """Takes the place of the delivery log: passes everything on to it, and fates to the tracer."""

    sample_qos0 = 1
    """Every message is traced, so the ledger must collect none of them in runs."""

    def __init__(self, log: Any, tracer: Tracer) -> None:
        self.log = log
        """The delivery log; None where there is none."""
        self._tracer = tracer

    def published(
        self,
        now: Instant,
        publisher: str,
        first: int,
        count: int,
        topic: str,
        qos: int,
        octets: int,
        copies: int,
        trace: TraceParent | None = None,
        event: EventId = NO_EVENT,
        origin: int = 0,
    ) -> None:
        """As `DeliveryLog.published`, and traces the messages."""
        if self.log is not None:
            self.log.published(now, publisher, first, count, topic, qos, octets, copies, trace, event, origin)
        fields = {"fate": "published", "message": first, "count": count, "qos": qos, "copies": copies}
        fields |= self._tracer.payload_fields(first, topic)
        self._tracer.fate(publisher, "", topic, fields)

    def filtered(
        self,
        now: Instant,
        publisher: str,
        first: int,
        count: int,
        topic: str,
        qos: int,
        cause: int,
        octets: int,
        trace: TraceParent | None = None,
        origin: int = 0,
    ) -> None:
        """As `DeliveryLog.filtered`, and traces the messages."""
        if self.log is not None:
            self.log.filtered(now, publisher, first, count, topic, qos, cause, octets, trace, origin)
        fields = {"fate": "filtered", "message": first, "count": count, "cause": Cause(cause).name.lower()}
        fields |= self._tracer.payload_fields(first, topic)
        self._tracer.fate(publisher, "", topic, fields)

    def fate(
        self,
        now: Instant,
        publisher: str,
        subscriber: str,
        first: int,
        count: int,
        topic: str,
        text: str,
        qos: int,
        fate: int,
        cause: int,
        wait_us: int,
        octets: int,
        trace: TraceParent | None = None,
        origin: int = 0,
    ) -> None:
        """As `DeliveryLog.fate`, and traces the copies."""
        if self.log is not None:
            self.log.fate(
                now, publisher, subscriber, first, count, topic, text, qos, fate, cause, wait_us, octets, trace, origin
            )
        fields: Line = {
            "fate": Fate(fate).name.lower(),
            "message": first,
            "count": count,
            "qos": qos,
            "wait_us": wait_us,
        }
        if cause:
            fields["cause"] = Cause(cause).name.lower()
        self._tracer.fate(publisher, subscriber, topic, fields)

    def __getattr__(self, name: str) -> Any:
        """Passes all other methods on to the delivery log."""
        return _ignore if self.log is None else getattr(self.log, name)


def _ignore(*_: object, **__: object) -> None:
    return None


def _new_line(direction: str) -> Line:
    return {"time": timestamp(time.time()), "way": direction}
