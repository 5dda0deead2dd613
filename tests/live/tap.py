"""A line between a bridge and its remote that breaks on demand, and remembers what crossed it.

It lives in the event loop of the test and costs little: packets are taken apart only as far as it must be known which
message they are about. A message is known by its payload, which begins with an "@" that stands nowhere else in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict, deque
from typing import Final, cast

from edgebridge.wire.framing import frame_bounds

OUT, IN = 0, 1  # from the bridge to the remote, and back
CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBCOMP, SUBACK = 1, 2, 3, 4, 5, 7, 9
ANSWERS: Final = {PUBACK: "PUBACK", PUBREC: "PUBREC", PUBCOMP: "PUBCOMP"}
PACKET_MAX: Final = 1 << 20
HEED_S: Final = 1.0
"""An answer that crossed was taken and is on the disk after so long, if nothing broke meanwhile."""


class Way:
    """What crosses one connection in one direction: cut into packets."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def packets(self, data: bytes) -> list[tuple[int, bytes]]:
        """Those that end in *data*."""
        self._buffer += data
        found, at = [], 0
        while (bounds := frame_bounds(self._buffer, at, PACKET_MAX)) is not None:
            first, body, at = bounds
            found.append((first, bytes(self._buffer[body:at])))
        del self._buffer[:at]
        return found


class Tap:
    """Listens on `port` and passes on to *there*."""

    def __init__(self, there: int) -> None:
        self._there = there
        self.port = 0
        self.greeted = 0
        """Connections on which the remote said CONNACK."""
        self.begun_anew = 0
        """Connections that asked for a new session after the remote had granted subscriptions in the old one."""
        self.granted = 0
        """Subscriptions of the bridge that the remote said SUBACK to."""
        self.is_up = True
        """Whether anybody gets through; what is connected is cut by `cut`."""
        self.swallows = [False, False]
        """By direction: whether bytes vanish, as on a line that is dead and has not told so yet."""
        self.quota: list[int | None] = [None, None]
        """By direction: after so many more bytes the line breaks, wherever in a packet that is."""
        self.sent: tuple[Counter[bytes], Counter[bytes]] = (Counter(), Counter())
        """By direction: how often the PUBLISH of each message crossed."""
        self.settled: tuple[set[bytes], set[bytes]] = (set(), set())
        """By direction: messages whose receiver has said PUBACK or PUBREC."""
        self.unfinished: tuple[set[bytes], set[bytes]] = (set(), set())
        """By direction: messages that crossed, and of which the sender may not know yet that all is done."""
        self.history: defaultdict[bytes, list[str]] = defaultdict(list)
        """Of each message: when which packet crossed, in milliseconds."""
        self.events: list[str] = []
        """What happened to the line, and to who is at its ends, in the same way."""
        self._open: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
        """By direction: messages by packet identifier. Sessions keep theirs from one connection to the next."""
        self._finished: deque[tuple[float, int, bytes]] = deque()
        """The last messages whose last packet crossed: when, in which direction."""
        self._pairs: list[Pair] = []
        self._hung: list[End] = []
        self._server: asyncio.Server | None = None

    async def begin(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(lambda: Pair(self).near, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def end(self) -> None:
        self.cut()
        for end in self._hung:
            end.abort()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def cut(self) -> None:
        """Everything that is connected is not any more."""
        self.swallows, self.quota = [False, False], [None, None]
        for pair in self._pairs[:]:
            pair.over()

    def hang(self, way: int) -> None:
        """Who sends in the direction *way* hears that it is over; the other one hears nothing."""
        for pair in self._pairs[:]:
            pair.hang(way)

    def dial(self, pair: Pair) -> None:
        """Somebody came."""
        if not self.is_up:
            pair.over()
            return
        self._pairs.append(pair)
        pair.dialling = asyncio.get_running_loop().create_task(self._dial(pair))

    async def _dial(self, pair: Pair) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: pair.far, "127.0.0.1", self._there)
        except OSError:
            pair.over()

    def keep(self, end: End) -> None:
        """It has not heard that its connection is over."""
        self._hung.append(end)

    def forget(self, pair: Pair) -> None:
        with contextlib.suppress(ValueError):
            self._pairs.remove(pair)

    def tell(self, what: str) -> None:
        """Let *what* be among the events."""
        self.events.append(f"{time.monotonic() * 1e3:.0f} {what}")

    def note(self, pair: Pair, way: int, data: bytes) -> None:
        """*data* crosses."""
        now = time.monotonic()
        for first, body in pair.ways[way].packets(data):
            kind = first >> 4
            if kind == PUBLISH and first & 0x06:
                at = 2 + (body[0] << 8 | body[1])
                payload = body[body.rindex(b"@") :]
                self._open[way][body[at : at + 2]] = payload
                self.sent[way][payload] += 1
                self.unfinished[way].add(payload)
                self.history[payload].append(f"{now * 1e3:.0f} PUBLISH {body[at : at + 2].hex()}")
            elif kind in (PUBACK, PUBREC, PUBCOMP):
                payload = self._open[1 - way].get(body[:2], b"")
                self.history[payload].append(f"{now * 1e3:.0f} {ANSWERS[kind]} {body.hex()}")
                if kind != PUBCOMP:
                    self.settled[1 - way].add(payload)
                if kind != PUBREC:
                    self.unfinished[1 - way].discard(payload)
                    self._finished.append((now, 1 - way, payload))
            elif kind == CONNECT:  # the flags are behind "MQTT" and the version
                self.begun_anew += bool(self.granted and body[7] & 0x02)
            self.greeted += kind == CONNACK
            self.granted += kind == SUBACK
        while self._finished and self._finished[0][0] < now - HEED_S:
            self._finished.popleft()

    def broke(self) -> None:
        """A connection is over: who sent may not have heard, or not have kept, what was said last."""
        self.tell("over")
        for at, way, payload in self._finished:
            if at > time.monotonic() - HEED_S:
                self.unfinished[way].add(payload)


class End(asyncio.Protocol):
    """One of the two ends of a pair; what it reads goes in the direction *way*."""

    def __init__(self, pair: Pair, way: int) -> None:
        self._pair = pair
        self._way = way
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._pair.made(self)

    def data_received(self, data: bytes) -> None:
        self._pair.pass_on(self._way, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pair.over(is_abrupt=False)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Pair:
    """One connection through the tap."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self.near = End(self, OUT)
        self.far = End(self, IN)
        self.ways = (Way(), Way())
        self.dialling: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        self._is_over = False

    def made(self, end: End) -> None:
        if self._is_over:
            end.abort()
        elif end is self.near:
            self._tap.dial(self)
        else:
            early, self._early = self._early, []
            for data in early:
                self.pass_on(OUT, data)

    def pass_on(self, way: int, data: bytes) -> None:
        """As much of *data* as crosses."""
        tap = self._tap
        to = (self.far if way == OUT else self.near).transport
        if self._is_over or tap.swallows[way]:
            return
        if to is None:
            self._early.append(data)
            return
        left = tap.quota[way]
        if left is not None:
            data, tap.quota[way] = data[:left], left - len(data)
        to.write(data)
        tap.note(self, way, data)
        if left is not None and left <= len(data):
            tap.quota[way] = None
            self.over(is_abrupt=False)  # what crossed before arrives

    def hang(self, way: int) -> None:
        """It ends at one end only."""
        told, left = (self.near, self.far) if way == OUT else (self.far, self.near)
        self._leave()
        self._tap.keep(left)
        told.abort()

    def over(self, is_abrupt: bool = True) -> None:
        """It ends at both ends; abruptly: what is not written yet is lost."""
        if self._is_over:
            return
        self._leave()
        for end in (self.near, self.far):
            if is_abrupt:
                end.abort()
            elif end.transport is not None:
                end.transport.close()

    def _leave(self) -> None:
        self._is_over = True
        self._tap.forget(self)
        self._tap.broke()
        if self.dialling is not None:
            self.dialling.cancel()
