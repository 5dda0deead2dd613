"""Traces a running gateway: packets and fates of messages, for the taps that are open.

Packets are decoded a second time from the bytes that arrive and leave, so the front end does not know of it: without
a tap the reactor tests one attribute for each chunk and each flush. Fates are read on their way to the delivery log.
A tap selects clients and topics and has a bounded buffer that may lose lines. A line never contains a payload, a user
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
from edgebroker.instants import Instant
from edgebroker.limits import MIB
from edgebroker.log_schema import Cause, Fate, TraceParent
from edgebroker.node.ledger import Ledger
from edgebroker.runtime.loop.reactor import Reactor
from edgebroker.runtime.operator_log import timestamp
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgebroker.topics import TopicFilter

TEXT_CHARS_MAX: Final = 300
FILTERS_MAX: Final = 20
"""Of one SUBSCRIBE; it may have thousands."""


def describe_packet(packet: Packet) -> dict[str, Any]:
    """Name -> value, as JSON can hold it; `packet` is the packet's name."""
    said: dict[str, Any] = {"packet": type(packet).__name__.upper()}
    match packet:
        case Connect():
            said |= {
                "version": packet.dialect.version,
                "clean": packet.clean_start,
                "keep_alive_s": packet.keep_alive_s,
                "has_user": packet.username is not None,
                "has_password": packet.password is not None,
            }
            if packet.will is not None:
                said["will"] = {"topic": _cut(packet.will.topic), "bytes": len(packet.will.payload)}
        case Publish():
            said |= {"topic": _cut(packet.topic), "qos": packet.qos, "bytes": len(packet.payload)}
            said |= {name: True for name in ("retain", "dup") if getattr(packet, name)}
        case Subscribe():
            shown = packet.subscriptions[:FILTERS_MAX]
            said["filters"] = [{"filter": _cut(one.topic_filter), "qos": one.qos} for one in shown]
            said["count"] = len(packet.subscriptions)
        case Unsubscribe():
            said["filters"] = [_cut(text) for text in packet.topic_filters[:FILTERS_MAX]]
            said["count"] = len(packet.topic_filters)
        case SubAck() | UnsubAck():
            said["reasons"] = [int(reason) for reason in packet.reasons[:FILTERS_MAX]]
    for name in ("packet_id", "session_present"):
        if value := getattr(packet, name, None):
            said[name] = value
    if reason := getattr(packet, "reason", 0):
        said["reason"] = reason.name.lower() if hasattr(reason, "name") else int(reason)
    properties = getattr(packet, "properties", None) or {}
    if alias := number(properties, Property.TOPIC_ALIAS, 0):
        said["alias"] = alias
    for name, value in user_properties(properties):
        if name == TRACEPARENT:
            said[TRACEPARENT] = _cut(value)
    return said


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + "…"


LINES_MAX: Final = 2_000
"""About 500 KiB; they are fetched five times a second. A gap is better than a gateway that waits for who watches it."""
IDS_MAX: Final = 1_000
"""Packet identifiers whose acknowledgements are shown too. What is older is forgotten."""

Line = dict[str, Any]


class Tap:
    """Lines that match `client`, a name in which `*` stands for anything, and `topic`. None of either matches all."""

    def __init__(self, client: str | None, topic: TopicFilter | None) -> None:
        self._client = client
        self._topic = topic
        self._lines: deque[Line] = deque()
        self._missed = 0
        self._ids: dict[tuple[int, str, int], None] = {}

    def wants_client(self, client: str) -> bool:
        """Whether *client* is watched."""
        return self._client is None or fnmatchcase(client, self._client)

    def wants_topic(self, topic: str) -> bool:
        """Whether messages to *topic* are watched."""
        return self._topic is None or self._topic.matches(topic)

    def add_packet(self, line: Line, connection: int, topic: str | None) -> None:
        """A packet of a watched client; *topic* if it is a PUBLISH. Of a watched topic, acknowledgements follow."""
        if self._topic is not None:
            key = (connection, line["way"], line.get("packet_id", 0))
            # What acknowledges a message that came in goes out, and the other way round; PUBREL follows the message.
            answered = (connection, "out" if line["way"] == "in" else "in", key[2])
            if topic is not None:
                if not self.wants_topic(topic):
                    return
                if key[2]:
                    self._ids[key] = None
                    if len(self._ids) > IDS_MAX:
                        del self._ids[next(iter(self._ids))]
            elif not key[2] or (answered not in self._ids and key not in self._ids):
                return
        self.add(line)

    def add(self, line: Line) -> None:
        """Keep *line* until it is fetched."""
        if len(self._lines) >= LINES_MAX:
            self._missed += 1
        else:
            self._lines.append(line)

    def count_missed(self, count: int) -> None:
        """So many things were not even looked at."""
        self._missed += count

    def drain(self) -> list[Line]:
        """What was kept since the last call; at its end, a line that counts what was lost."""
        lines = list(self._lines)
        self._lines.clear()
        missed, self._missed = self._missed, 0
        return [*lines, {"way": "gap", "missed": missed}] if missed else lines


TAPS_MAX: Final = 4
PACKETS_PER_S: Final = 5_000
"""Packets and fates looked at. A packet takes 6 us, a fate 3, so watching everything costs at most a thirtieth of a
core. Of more, only the number is told."""
PACKET_BYTES_MAX: Final = 1 * MIB
"""A larger packet ends the watching of its connection: to keep it a second time would cost as much memory again."""
TOO_LARGE: Final = f"a packet of more than {PACKET_BYTES_MAX // MIB} MiB; no more of the connection is shown this way"


class TooManyTaps(Exception):
    """As many watch already as may."""


class Tracer:
    """All open taps, between the reactor and the ledger."""

    def __init__(self, reactor: Reactor, ledger: Ledger) -> None:
        self._reactor = reactor
        self._ledger = ledger
        self._taps: list[Tap] = []
        self._traced_log: TracedDeliveryLog | None = None
        self._framers: dict[tuple[int, str], Framer | None] = {}
        self._heard: dict[int, Connection] = {}
        self._names: dict[int, str] = {}
        """What connections without a session called themselves in CONNECT: it may be refused, and that is told too."""
        self._aliases: dict[int, dict[int, str]] = {}
        """Connection -> alias -> the topic that its client gave it, as far as was read: the front end is ahead."""
        self._second = 0
        self._looked_at = 0

    @property
    def has_room(self) -> bool:
        """Whether one more may watch."""
        return len(self._taps) < TAPS_MAX

    def open(self, tap: Tap) -> None:
        """Begin to fill *tap*. Raises TooManyTaps."""
        if not self.has_room:
            raise TooManyTaps
        self._taps.append(tap)
        if len(self._taps) == 1:
            self._reactor.observer = self
            self._traced_log = TracedDeliveryLog(self._ledger.log, self)
            self._ledger.log = cast(DeliveryLog, self._traced_log)

    def close(self, tap: Tap) -> None:
        """Fill *tap* no more."""
        self._taps.remove(tap)
        if not self._taps:
            self._reactor.observer = None
            assert self._traced_log is not None
            self._ledger.log = self._traced_log.log
            for known in (self._framers, self._heard, self._names, self._aliases):
                known.clear()

    # -- packets ----------------------------------------------------------------------------------------------

    def data_received(self, connection: Connection, data: bytes) -> None:
        """*data* arrived, and is about to be fed. It is read afterwards, when the dialect is known."""
        key = (connection.number, "in")
        if not self._is_watched(connection):
            self._framers.pop(key, None)
            self._aliases.pop(connection.number, None)
            return
        if key not in self._framers:
            self._frame(key, b"".join(connection.pending))  # it may end inside a packet
        self._frame(key, data)
        if not self._heard:
            asyncio.get_running_loop().call_soon(self._read_heard)
        self._heard[connection.number] = connection

    def data_sent(self, connection: Connection, data: bytes) -> None:
        """*data*, whole packets, is written."""
        if not self._is_watched(connection):
            return
        self._read_heard()
        key = (connection.number, "out")
        self._frame(key, data)
        self._read(connection, key)

    def connection_closed(self, connection: Connection) -> None:
        """The connection is no more."""
        self._read_heard()
        for way in ("in", "out"):
            self._framers.pop((connection.number, way), None)
        self._names.pop(connection.number, None)
        self._aliases.pop(connection.number, None)

    def _is_watched(self, connection: Connection) -> bool:
        """Whether some tap wants this client, or it is not known yet who it is."""
        session = connection.session
        return session is None or any(tap.wants_client(session.client_id) for tap in self._taps)

    def _frame(self, key: tuple[int, str], data: bytes) -> None:
        if key not in self._framers:
            self._framers[key] = Framer(PACKET_BYTES_MAX)
        framer = self._framers[key]
        if framer is not None:
            framer.feed(data)

    def _read_heard(self) -> None:
        heard, self._heard = self._heard, {}
        for connection in heard.values():
            self._read(connection, (connection.number, "in"))

    def _read(self, connection: Connection, key: tuple[int, str]) -> None:
        framer = self._framers.get(key)
        session = connection.session
        client = self._names.get(connection.number, "") if session is None else session.client_id
        while framer is not None:
            try:
                frame = framer.next_frame()
                if frame is None:
                    return
                if not self._may_look():
                    continue
                packet = decode_packet(*frame, connection.dialect)
            except ProtocolError as error:
                self._framers[key] = None  # from here on it cannot be cut into packets
                # The limit is that of watching: the gateway may well take such a packet.
                why = TOO_LARGE if isinstance(error, PacketTooLarge) else str(error)[:200]
                self._show(connection, key[1], client, {"packet": "?", "error": why}, None)
                return
            topic = self._topic(connection, key[1], packet)
            if isinstance(packet, Connect) and not client:
                client = self._names[connection.number] = packet.client_id
            self._show(connection, key[1], client, describe_packet(packet), topic)

    def _show(self, connection: Connection, way: str, client: str, said: Line, topic: str | None) -> None:
        line = {**_begin(way), "client": client, "peer": connection.peer, **said}
        if topic is not None:
            line["topic"] = topic
        for tap in self._taps:
            if tap.wants_client(client):
                tap.add_packet(line, connection.number, topic)

    def _topic(self, connection: Connection, way: str, packet: Packet) -> str | None:
        """The topic of a PUBLISH, whoever set the alias that stands for it; None of another packet."""
        if not isinstance(packet, Publish):
            return None
        alias = number(packet.properties, Property.TOPIC_ALIAS, 0)
        if packet.topic:
            if alias and way == "in":
                self._aliases.setdefault(connection.number, {})[alias] = packet.topic
            return packet.topic
        if way == "in":
            return self._aliases.get(connection.number, {}).get(alias) or connection.aliases.get(alias, "")
        return "" if connection.out_aliases is None else connection.out_aliases.topic(alias)

    # -- fates ------------------------------------------------------------------------------------------------

    def fate(self, publisher: str, subscriber: str, topic: str, said: Line) -> None:
        """Something became of a message, or of a copy if there is a *subscriber*."""
        self._read_heard()
        if not self._may_look():
            return
        line = {**_begin("fate"), **said, "topic": topic, "publisher": publisher}
        if subscriber:
            line["subscriber"] = subscriber
        for tap in self._taps:
            is_wanted = tap.wants_client(publisher) or bool(subscriber and tap.wants_client(subscriber))
            if is_wanted and tap.wants_topic(topic):
                tap.add(line)

    def _may_look(self) -> bool:
        """Whether one more may be looked at in this second; if not, every tap counts it."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._looked_at = second, 0
        self._looked_at += 1
        if self._looked_at <= PACKETS_PER_S:
            return True
        for tap in self._taps:
            tap.count_missed(1)
        return False


class TracedDeliveryLog:
    """Stands where the delivery log stands, hands everything on to it, and tells the tracing."""

    def __init__(self, log: Any, tracing: Tracer) -> None:
        self.log = log
        """The delivery log, if there is one."""
        self._tracing = tracing

    def stamp(self, event: tuple[int, int]) -> None:
        """As `DeliveryLog.stamp`."""
        if self.log is not None:
            self.log.stamp(event)

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
    ) -> None:
        """Messages were accepted."""
        if self.log is not None:
            self.log.published(now, publisher, first, count, topic, qos, octets, copies, trace)
        said = {"fate": "published", "message": first, "count": count, "qos": qos, "copies": copies}
        self._tracing.fate(publisher, "", topic, said)

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
    ) -> None:
        """Nobody gets them."""
        if self.log is not None:
            self.log.filtered(now, publisher, first, count, topic, qos, cause, octets, trace)
        said = {"fate": "filtered", "message": first, "count": count, "cause": Cause(cause).name.lower()}
        self._tracing.fate(publisher, "", topic, said)

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
    ) -> None:
        """Copies came to their end."""
        if self.log is not None:
            self.log.fate(
                now, publisher, subscriber, first, count, topic, text, qos, fate, cause, wait_us, octets, trace
            )
        said: Line = {"fate": Fate(fate).name.lower(), "message": first, "count": count, "qos": qos, "wait_us": wait_us}
        if cause:
            said["cause"] = Cause(cause).name.lower()
        self._tracing.fate(publisher, subscriber, topic, said)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the delivery log is told."""
        return _nothing if self.log is None else getattr(self.log, name)


def _nothing(*_: object) -> None:
    return None


def _begin(way: str) -> Line:
    return {"time": timestamp(time.time()), "way": way}
