"""Watching a gateway at work: packets and fates, for the taps that are open. While none is, nothing of this exists.

Packets are read a second time from the bytes that come and go, so the front end knows nothing of it: a reactor without
taps tests one attribute for each chunk and each flush. Fates are overheard where they go to the delivery log.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, cast

from edgebridge.frontend.connection import Connection
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.errors import PacketTooLarge, ProtocolError
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import Connect, Packet, Publish
from edgebridge.wire.properties import Property, number
from edgebroker.instants import Instant
from edgebroker.limits import MIB
from edgebroker.node.ledger import Ledger
from edgebroker.records import Cause, Fate, Trace
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgebroker.world.operatorlog import timestamp
from edgebroker.world.packetwords import words
from edgebroker.world.reactor import Reactor
from edgebroker.world.tap import Line, Tap

TAPS_MAX: Final = 4
PACKETS_PER_S: Final = 5_000
"""Packets and fates looked at. A packet takes 6 us, a fate 3, so watching everything costs at most a thirtieth of a
core. Of more, only the number is told."""
PACKET_BYTES_MAX: Final = 1 * MIB
"""A larger packet ends the watching of its connection: to keep it a second time would cost as much memory again."""
TOO_LARGE: Final = f"a packet of more than {PACKET_BYTES_MAX // MIB} MiB; no more of the connection is shown this way"


class TooManyTaps(Exception):
    """As many watch already as may."""


class Tracing:
    """All open taps, between the reactor and the ledger."""

    def __init__(self, reactor: Reactor, ledger: Ledger) -> None:
        self._reactor = reactor
        self._ledger = ledger
        self._taps: list[Tap] = []
        self._overhearing: Overhearing | None = None
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
            self._reactor.tracing = self
            self._overhearing = Overhearing(self._ledger.log, self)
            self._ledger.log = cast(DeliveryLog, self._overhearing)

    def close(self, tap: Tap) -> None:
        """Fill *tap* no more."""
        self._taps.remove(tap)
        if not self._taps:
            self._reactor.tracing = None
            assert self._overhearing is not None
            self._ledger.log = self._overhearing.log
            for known in (self._framers, self._heard, self._names, self._aliases):
                known.clear()

    # -- packets ----------------------------------------------------------------------------------------------

    def heard(self, connection: Connection, data: bytes) -> None:
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

    def said(self, connection: Connection, data: bytes) -> None:
        """*data*, whole packets, is written."""
        if not self._is_watched(connection):
            return
        self._read_heard()
        key = (connection.number, "out")
        self._frame(key, data)
        self._read(connection, key)

    def gone(self, connection: Connection) -> None:
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
            self._show(connection, key[1], client, words(packet), topic)

    def _show(self, connection: Connection, way: str, client: str, said: Line, topic: str | None) -> None:
        line = {**_begin(way), "client": client, "peer": connection.peer, **said}
        if topic is not None:
            line["topic"] = topic
        for tap in self._taps:
            if tap.wants_client(client):
                tap.packet(line, connection.number, topic)

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
            tap.miss(1)
        return False


class Overhearing:
    """Stands where the delivery log stands, hands everything on to it, and tells the tracing."""

    def __init__(self, log: Any, tracing: Tracing) -> None:
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
        trace: Trace | None = None,
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
        trace: Trace | None = None,
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
        trace: Trace | None = None,
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
