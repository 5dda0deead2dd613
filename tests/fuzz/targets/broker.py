"""The whole front end by chunks, and what it takes back from a journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, product

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions, Quota
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import SPOKEN, V5, V311
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import Connect, Subscribe, SubscriptionOption
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.log_schema import Cause
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from tests.fuzz.frame.target import BOMB_BYTES, Target, filled

from . import packets

OPTIONS = FrontendOptions(queue_messages_max=20, receive_maximum=10, packet_bytes_max=1 << 20, connections_max=10)
QUOTA = Quota(sessions_max=10)
HELLO = {dialect: encode_packet(Connect("c", dialect=dialect), dialect) for dialect in SPOKEN}


class Peer:
    """A connection and what it was told, which must be packets."""

    def __init__(self, frontend: Frontend) -> None:
        self.connection: Connection = frontend.opened("fuzz", 0)
        self.connection.transport = self
        self.framer = Framer(1 << 28)

    def hear(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            self.framer.feed(chunk)
        while (frame := self.framer.next_frame()) is not None:
            if frame[0] != 0x20:  # which dialect a CONNECT of any bytes asked for, CONNACK may come before
                decode_packet(*frame, self.connection.dialect)


class Broker:
    """A broker with a bystander, who reads everything and keeps a filter."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.frontend = Frontend(Node(self.ledger), OPTIONS, lambda: "assigned", quota=QUOTA)
        self.frontend.start(0)
        self.now = 0
        self.bystander = Peer(self.frontend)
        asked = [
            SubscriptionOption("#", 0),
            SubscriptionOption("$filter/x > 1 OR $user.k = 'v'/%2B".replace("/%2B", "/+"), 1),
        ]
        self.feed(self.bystander, encode_packet(Connect("bystander"), V5) + encode_packet(Subscribe(1, asked), V5))

    def feed(self, peer: Peer, octets: bytes) -> None:
        self.now += MILLISECOND
        self.frontend.feed(peer.connection, octets, self.now)
        self.turn()

    def turn(self) -> None:
        self.frontend.fire(self.now)
        while self.frontend.dirty:
            connection = self.frontend.dirty.pop(0)
            connection.transport.hear(self.frontend.take_output(connection, self.now))
            if connection.closing:
                self.frontend.closed(connection, self.now)

    def settle(self) -> None:
        """Everything that is due within an hour, and the books."""
        self.now += 3_600 * SECOND
        self.turn()
        sessions = self.frontend.connect_handler.sessions
        waiting = sum(len(session.inflight) + len(session.outbox) for session in sessions.values())
        unwritten = sum(connection.out_messages for connection in self.frontend.connections.values())
        assert self.ledger.queued == waiting + unwritten
        assert Cause.NONE not in self.ledger.dropped


def read(data: bytes) -> None:
    """The first byte says in which dialect to begin, or to begin with nothing; the second, how the rest is cut."""
    broker = Broker()
    stranger = Peer(broker.frontend)
    if len(data) > 2:
        if data[0] < 128:
            broker.feed(stranger, HELLO[SPOKEN[data[0] % len(SPOKEN)]])
        size = data[1] * 4 + 1 if data[1] else len(data)
        for at in range(2, len(data), size):
            if stranger.connection.closing:
                break
            broker.feed(stranger, data[at : at + size])
    broker.settle()
    assert (
        broker.bystander.connection.number not in broker.frontend.connections or not broker.bystander.connection.closing
    )


def steps(data: bytes) -> Iterator[None]:
    """The same in turns of the loop: the chunk, then everything that it left to do within ten seconds."""
    broker = Broker()
    stranger = Peer(broker.frontend)
    if data and data[0] < 128:
        broker.feed(stranger, HELLO[SPOKEN[data[0] % len(SPOKEN)]])
    ends = broker.now + 10 * SECOND
    yield
    broker.feed(stranger, data[2:])
    timers = broker.frontend.node.timers
    while (due := timers.next_due()) is not None and due <= ends:
        yield
        broker.now = max(broker.now, due)
        broker.turn()


def seeds() -> list[bytes]:
    """What packets there are, whole, in pieces, and with no CONNECT before them."""
    found = []
    for seed in packets.seeds((V311, V5)):
        begins = bytes((SPOKEN.index((V311, V5)[seed[0]]),))
        found += [begins + b"\0" + seed[1:], begins + b"\1" + seed[1:]]
        if seed[1] == 0x10:
            found.append(b"\xff\0" + seed[1:])
    return found


def after_hello(bomb: bytes) -> bytes:
    """*bomb*, made for packets, of somebody who is let in."""
    return bomb[:1] + b"\0" + bomb[1:]


def hard_filters(count: int) -> bytes:
    """The body of a SUBSCRIBE: filters that take long to read, each another."""
    body = b"\0\1\0"
    for number in range(count):
        terms = b" AND ".join(b"(a%d=%d OR b%d=2)" % (n, number, n) for n in range(6))
        asked = b"$filter/" + terms + b"/a"
        body += len(asked).to_bytes(2) + asked + b"\0"
    return body


def many(body: bytes, first: int = 0x30) -> bytes:
    """64 KiB of one packet."""
    return filled(packets.packet(first, body)[1:], spoken())


def asked(texts: Iterable[bytes], properties: bytes = b"\0") -> bytes:
    """A SUBSCRIBE to all of them."""
    options = b"".join(len(text).to_bytes(2) + text + b"\0" for text in texts)
    return packets.packet(0x82, b"\0\1" + properties + options)[1:]


def said(topic: bytes, payload: bytes = b"", first: int = 0x30, properties: bytes = b"\0", number: int = 1) -> bytes:
    """A PUBLISH; *number* is its packet identifier, if it has one."""
    identifier = number.to_bytes(2) if first & 6 else b""
    return packets.packet(first, len(topic).to_bytes(2) + topic + identifier + properties + payload)[1:]


def spoken(*said: bytes) -> bytes:
    """What somebody says in version 5."""
    return bytes((SPOKEN.index(V5), 0)) + b"".join(said)


def met(before: bytes, make: Callable[[int], bytes]) -> bytes:
    """64 KiB: *before*, and as many as there is room for of what *make* makes of a number."""
    data = spoken(before)
    for number in count():
        more = make(number)
        if len(data) + len(more) > BOMB_BYTES:
            return data
        data += more
    raise AssertionError


def overlapping(levels: int) -> list[bytes]:
    """Filters all of which take topics of `a` and one level more."""
    return [b"/".join((*taken, b"+")) for taken in product((b"a", b"+"), repeat=levels)]


def identified() -> bytes:
    """SUBSCRIBEs to 900 filters that take the same topics, each with an identifier."""
    return b"".join(
        asked([text], b"\3\x0b" + bytes((number % 128 | 128, number // 128 + 1)))
        for number, text in enumerate(overlapping(10)[:900])
    )


def hard(number: int, topic: bytes = b"b") -> bytes:
    """A filter with a pattern, as hard as a client may ask for."""
    return b"$filter/x LIKE '%%25_a%sb%d%%25'/%s" % (b"_a" * 20, number, topic)


def many_ends(levels: int, topics: int) -> Iterator[bytes]:
    """Filters all of which take topics that come behind them, each another."""
    yield asked(overlapping(levels))
    for number in range(topics):
        yield said(b"a/" * levels + b"%d" % number)


def patterns(payload: bytes, messages: int, qos: int = 0) -> Iterator[bytes]:
    """As many hard patterns as a client may ask for, and messages that all are asked about."""
    yield spoken(asked(map(hard, range(64))))
    for number in range(messages):
        yield said(b"b", payload, 0x30 | qos << 1, number=number + 1)


BOMBS = {name: (lambda make=make: after_hello(make())) for name, make in packets.BOMBS.items() if "ACK" not in name} | {
    "SUBSCRIBE with hard filters": lambda: after_hello(
        packets.packet(0x82, filled(b"\0\x17$filter/x LIKE '%a%b'/a\0", b"\0\1\0", size=65_500))
    ),
    "SUBSCRIBE with 20 filters of 64 conjunctions": lambda: after_hello(packets.packet(0x82, hard_filters(20))),
    "SUBSCRIBE with 100 such filters": lambda: after_hello(packets.packet(0x82, hard_filters(100))),
    "a retained message and many SUBSCRIBEs": lambda: filled(b"\x82\7\0\1\0\0\1#\0", spoken() + b"\x31\5\0\1a\0x"),
    "PUBLISHes with 98 user properties": lambda: many(b"\0\1a\xea\x03" + b"\x26\0\0\0\0" * 98),
    "PUBLISHes with 1,798 user properties": lambda: many(b"\0\1a\x9e\x46" + b"\x26\0\0\0\0" * 1_798),
    "PUBRELs with 98 user properties": lambda: many(b"\0\1\x92\xea\x03" + b"\x26\0\0\0\0" * 98, 0x62),
    "64 patterns and 64 KiB of text": lambda: b"".join(patterns(b'{"x":"' + b"a" * 62_000 + b'"}', 1)),
    "64 patterns and texts of 4,096 letters": lambda: b"".join(patterns(b'{"x":"' + b"a" * 4_096 + b'"}', 15)),
    "64 patterns and such texts of QoS 1": lambda: b"".join(patterns(b'{"x":"' + b"a" * 4_096 + b'"}', 15, 1)),
    "64 patterns and 300 texts of 170 letters": lambda: b"".join(patterns(b'{"x":"' + b"a" * 170 + b'"}', 300)),
    "64 patterns and 290 such texts of QoS 1": lambda: b"".join(patterns(b'{"x":"' + b"a" * 170 + b'"}', 290, 1)),
    "64 patterns and as many texts of four letters": lambda: met(
        asked(map(hard, range(64))), lambda number: said(b"b", b'{"x":"aaaa"}')
    ),
    "64 patterns and as many of QoS 1": lambda: met(
        asked(map(hard, range(64))), lambda number: said(b"b", b'{"x":"aaaa"}', 0x32, number=number + 1)
    ),
    "64 patterns and texts of 300 with a property": lambda: met(
        asked(map(hard, range(64))),
        lambda number: said(b"b", b'{"x":"' + b"a" * 300 + b'"}', 0x32, b"\2\1\0", number + 1),
    ),
    "64 patterns behind 180 retained texts": lambda: spoken(
        *(said(b"b/%d" % number, b'{"x":"' + b"a" * 300 + b'"}', 0x31) for number in range(180)),
        asked(hard(number, b"b/#") for number in range(64)),
    ),
    "2,000 groups and 20 messages": lambda: spoken(
        asked(b"$share/%x/a" % number for number in range(2_000)), said(b"a") * 20
    ),
    "900 filters with identifiers and 40 messages": lambda: spoken(identified(), said(b"a/" * 10 + b"x") * 40),
    "900 filters with identifiers and 40 retained": lambda: spoken(
        identified(), said(b"a/" * 10 + b"x", first=0x31) * 40
    ),
    "1,500 content filters that all match": lambda: spoken(
        asked(b"$filter/x<>-%d/a" % number for number in range(1_500)), said(b"a", b'{"x":9}') * 40
    ),
    "100 content filters that all match": lambda: met(
        asked(b"$filter/x>-%d/a" % number for number in range(100)), lambda number: said(b"a", b'{"x":9}')
    ),
    "new topics for 1,024 filters, retained": lambda: spoken(
        asked(overlapping(10)), *(said(b"a/" * 10 + b"%d" % number, first=0x31) for number in range(400))
    ),
    "new topics for 1,024 filters, with a property": lambda: spoken(
        asked(overlapping(10)), *(said(b"a/" * 10 + b"%d" % number, properties=b"\2\1\0") for number in range(400))
    ),
    "new topics for 64 filters": lambda: met(asked(overlapping(6)), lambda number: said(b"a/" * 6 + b"%d" % number)),
    "many topics for 500 filters": lambda: spoken(*many_ends(9, 2_000)),
    "many PINGREQs": lambda: filled(b"\xc0\0", spoken()),
    "many tiny PUBLISHes": lambda: filled(b"\x30\4\0\1a\0", spoken()),
    "many PUBACKs": lambda: filled(b"\x40\2\0\1", spoken()),
    "many QoS 2 PUBLISHes": lambda: filled(b"\x34\6\0\1a\0\1\0", spoken()),
    "many QoS 1 PUBLISHes for a filter": lambda: filled(b'\x32\x0d\0\1a\0\1\0{"x":2}', spoken()),
}

TARGETS = (Target("frontend", read, tuple(seeds()), (), packets.WORDS, bombs=BOMBS, steps=steps),)
