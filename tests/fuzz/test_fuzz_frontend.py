"""Whatever arrives, the broker answers with packets or a clean refusal, and nobody else notices.

Random bytes, valid packets in any order, and valid packets with bits flipped, bytes cut out, doubled, spliced and
mis-measured come from offenders in both dialects, while two well-behaved clients go on with their conversation.
EDGEBROKER_FUZZ_INPUTS=200000 makes it 200,000 inputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions, Quota
from edgebridge.session.access import OPEN, AccessPolicy
from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights
from edgebridge.session.lifecycle import ConnectionState
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import DIALECTS, V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscriptionOption,
    Unsubscribe,
    Will,
)
from edgebridge.wire.properties import Properties
from edgebridge.wire.properties import Property as P
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.limits import KIB, MIB
from edgebroker.log_schema import Cause
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node

INPUTS = int(os.environ.get("EDGEBROKER_FUZZ_INPUTS", "20000"))
OPTIONS = FrontendOptions(
    out_bytes_max=4_096,
    queue_messages_max=20,
    receive_maximum=10,
    packet_bytes_max=4_096,
    connections_max=40,
    retained_messages_max=50,
)
NARROW = Quota(sessions_max=60)
CHECK_EVERY = 100
PRIVATE = "bystanders/only"

# -- what offenders say ------------------------------------------------------------------------------------------

TOPICS = ["a", "a/b", "a/b/c", "/", "$SYS/x", "ü/ß", "a//b", "x" * 200]
FILTERS = [
    *TOPICS,
    "#",
    "a/#",
    "+/b",
    "$filter/x%3E1/a/#",
    "$filter/x >> 1/a",
    "$share/g/a",
    "a/#/b",
    "$filter/%zz/a",
    "",
]
PAYLOADS = [b"", b"1", b'{"x":2}', b'{"x":{"y":[1,2,{"z":null}]}}', b"\xa1\x61x\x02", b"\xff" * 50, b"[" * 100]


def properties(chance: Random) -> Properties:
    """Any properties, fitting or not: a carrier that cannot have one is part of the game."""
    every: Properties = {
        P.PAYLOAD_FORMAT_INDICATOR: 1,
        P.MESSAGE_EXPIRY_INTERVAL: chance.choice([0, 1, 100, 0xFFFF_FFFF]),
        P.CONTENT_TYPE: "application/json",
        P.RESPONSE_TOPIC: chance.choice(["r", "r/#"]),
        P.CORRELATION_DATA: b"\0\xff",
        P.SUBSCRIPTION_IDENTIFIER: [chance.choice([1, 268_435_455])],
        P.SESSION_EXPIRY_INTERVAL: chance.choice([0, 1, 5, 0xFFFF_FFFF]),
        P.AUTHENTICATION_METHOD: "m",
        P.REQUEST_PROBLEM_INFORMATION: chance.randrange(3),
        P.WILL_DELAY_INTERVAL: chance.choice([0, 1, 0xFFFF_FFFF]),
        P.RECEIVE_MAXIMUM: chance.choice([0, 1, 3, 65_535]),
        P.TOPIC_ALIAS_MAXIMUM: 5,
        P.TOPIC_ALIAS: chance.choice([0, 1, 2, 33, 65_535]),
        P.USER_PROPERTY: [("$where", chance.choice(["x > 1", "x >", "", "(" * 40])), ("k", "v")],
        P.MAXIMUM_PACKET_SIZE: chance.choice([1, 20, 60, 4_096]),
        P.REASON_STRING: "because",
    }
    return {key: every[key] for key in chance.sample(list(every), chance.choice([0, 0, 0, 1, 1, 2, 3]))}


def packet(chance: Random, dialect: Dialect) -> bytes:
    """A valid packet, or one that is nearly so."""
    topic, payload, qos = chance.choice(TOPICS), chance.choice(PAYLOADS), chance.randrange(3)
    packet_id = chance.choice([1, 2, 3, 65_535])
    extra = properties(chance)
    alias = P.TOPIC_ALIAS in extra and chance.random() < 0.5
    makers: list[Callable[[], Packet]] = [
        lambda: connect(chance, dialect),
        lambda: Publish("" if alias else topic, payload, qos, chance.random() < 0.2, False, packet_id, extra),
        lambda: Publish(topic, payload, 0),
        lambda: Publish(topic, payload, 1, packet_id=packet_id),
        lambda: Publish(topic, payload, 2, dup=True, packet_id=packet_id),
        lambda: PubAck(packet_id, chance.choice([ReasonCode.SUCCESS, ReasonCode.QUOTA_EXCEEDED]), extra),
        lambda: PubRec(packet_id, chance.choice([ReasonCode.SUCCESS, ReasonCode.UNSPECIFIED_ERROR])),
        lambda: PubRel(packet_id),
        lambda: PubComp(packet_id, properties=extra),
        lambda: Subscribe(packet_id, [option(chance) for _ in range(chance.randrange(4))], extra),
        lambda: Subscribe(packet_id, [SubscriptionOption(chance.choice(["#", "a/#", "+/b"]), qos)]),
        lambda: Unsubscribe(packet_id, [chance.choice(FILTERS) for _ in range(chance.randrange(3))]),
        PingReq,
        lambda: Disconnect(chance.choice([ReasonCode.SUCCESS, ReasonCode.DISCONNECT_WITH_WILL_MESSAGE]), extra),
        lambda: Auth(ReasonCode.RE_AUTHENTICATE, extra),
        ConnAck,
    ]
    return encode_packet(chance.choice(makers)(), dialect)


def option(chance: Random) -> SubscriptionOption:
    flags = (chance.random() < 0.2, chance.random() < 0.2, chance.randrange(3))
    return SubscriptionOption(chance.choice(FILTERS), chance.randrange(3), *flags)


def connect(chance: Random, dialect: Dialect) -> Connect:
    will = None
    if chance.random() < 0.3:
        will = Will(chance.choice(TOPICS), b"gone", chance.randrange(3), chance.random() < 0.3, properties(chance))
    keep_alive_s = chance.choice([0, 1, 60])
    client_id = chance.choice(["", *(f"offender-{number}" for number in range(100))])
    return Connect(client_id, chance.random() < 0.5, keep_alive_s, None, None, will, properties(chance), dialect)


def mutated(chance: Random, octets: bytes) -> bytes:
    """*octets* with one to three changes."""
    found = bytearray(octets)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(found)) if found else 0
        match chance.randrange(6):
            case 0 if found:
                found[at] ^= 1 << chance.randrange(8)
            case 1 if found:
                found[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 2:
                del found[at : at + chance.randrange(1, 5)]
            case 3:
                found[at:at] = chance.randbytes(chance.randrange(1, 5))
            case 4:
                found += found[at : at + 20]
            case 5 if len(found) > 1:
                found[1] = (found[1] + chance.choice([-2, -1, 1, 2])) % 0x80
    return bytes(found)


def random_bytes(chance: Random, dialect: Dialect) -> bytes:
    return chance.randbytes(chance.choice([1, 2, 5, 20, 100]))


def valid_packets(chance: Random, dialect: Dialect) -> bytes:
    return b"".join(packet(chance, dialect) for _ in range(chance.randrange(1, 6)))


def mutated_packets(chance: Random, dialect: Dialect) -> bytes:
    return mutated(chance, valid_packets(chance, dialect))


def framed_noise(chance: Random, dialect: Dialect) -> bytes:
    """A right length, and nothing right inside."""
    body = chance.randbytes(chance.randrange(30))
    return bytes([chance.randrange(256), len(body)]) + body


KINDS = {kind.__name__: kind for kind in (random_bytes, valid_packets, mutated_packets, framed_noise)}

# -- the broker and its clients ----------------------------------------------------------------------------------


class Peer:
    """One connection, and a reader that insists on well-formed packets."""

    def __init__(self, connection: Connection, dialect: Dialect) -> None:
        self.connection = connection
        self.dialect = dialect
        self.framer = Framer(1 << 28)
        self.received: list[Packet] = []
        self.is_open = True
        self.is_stalled = False

    def read(self, octets: bytes) -> None:
        self.framer.feed(octets)
        while (frame := self.framer.next_frame()) is not None:
            # Which dialect a mutated CONNECT asks for, only the broker knows; its CONNACK shows it by its length.
            refused = frame[0] == 0x20 and self.connection.state is not ConnectionState.CONNECTED
            dialect = (V5 if len(frame[1]) > 2 else V311) if refused else self.connection.dialect
            self.received.append(decode_packet(*frame, dialect))


class World:
    def __init__(self, access: AccessPolicy = OPEN, quota: Quota = NARROW) -> None:
        self.ledger = Ledger()
        self.node = Node(self.ledger)
        self.now: Instant = 0
        self.assigned = 0
        self.frontend = Frontend(self.node, OPTIONS, self.new_client_id, access, quota=quota)
        self.frontend.start(0)
        self.alice = self.opened(V5)
        self.feed(self.alice, encode_packet(Connect("bystander-alice"), V5))
        self.feed(self.alice, encode_packet(Subscribe(1, [SubscriptionOption(PRIVATE, 1)]), V5))
        self.bob = self.opened(V311)
        self.feed(self.bob, encode_packet(Connect("bystander-bob", dialect=V311), V311))
        self.alice.received.clear()
        self.bob.received.clear()
        self.said = 0

    def new_client_id(self) -> str:
        self.assigned += 1
        return f"assigned-{self.assigned}"

    def opened(self, dialect: Dialect) -> Peer:
        connection = self.frontend.opened("fuzz", self.now)
        peer = connection.transport = Peer(connection, dialect)
        self.turn()
        return peer

    def feed(self, peer: Peer, octets: bytes) -> None:
        self.now += MILLISECOND
        self.frontend.feed(peer.connection, octets, self.now)
        self.turn()

    def close(self, peer: Peer) -> None:
        if peer.is_open:
            peer.is_open = False
            self.frontend.closed(peer.connection, self.now)
            self.turn()

    def turn(self) -> None:
        due = self.node.timers.next_due()
        if due is not None and due <= self.now:
            self.frontend.fire(self.now)
        self.frontend.readable.clear()
        dirty = self.frontend.dirty
        while dirty:
            connection = dirty.pop(0)
            peer: Peer = connection.transport
            connection.paused = peer.is_stalled
            if peer.is_open:
                if not peer.is_stalled:
                    for chunk in self.frontend.take_output(connection, self.now):
                        peer.read(chunk)
                if connection.closing:
                    peer.is_open = False
                    self.frontend.closed(connection, self.now)

    def check(self) -> None:
        """The bystanders' conversation goes on, the accounts are right, and nothing has grown beyond its bound."""
        self.said += 1
        payload = str(self.said).encode()
        packet_id = self.said % 65_535 + 1
        self.feed(self.bob, encode_packet(Publish(PRIVATE, payload, 1, packet_id=packet_id), V311))
        assert self.bob.received == [PubAck(packet_id)]
        (received,) = self.alice.received
        assert isinstance(received, Publish)
        assert (received.topic, received.payload, received.qos, received.dup) == (PRIVATE, payload, 1, False)
        self.feed(self.alice, encode_packet(PubAck(received.packet_id), V5))
        self.bob.received.clear()
        self.alice.received.clear()
        frontend, sessions = self.frontend, self.frontend.connect_handler.sessions
        waiting = sum(len(session.inflight) + len(session.outbox) for session in sessions.values())
        unwritten = sum(connection.out_messages for connection in frontend.connections.values())
        assert self.ledger.queued == waiting + unwritten
        assert sum(self.ledger.dropped.values()) >= 0
        assert Cause.NONE not in self.ledger.dropped
        assert len(frontend.connections) <= OPTIONS.connections_max
        assert len(sessions) <= NARROW.sessions_max
        assert len(frontend.retained) <= OPTIONS.retained_messages_max
        assert len(self.node.subscriptions) <= len(FILTERS) * 40 * NARROW.sessions_max
        assert all(len(session.outbox) <= OPTIONS.queue_messages_max for session in sessions.values())
        assert all(len(session.received) <= OPTIONS.receive_maximum for session in sessions.values())
        assert all(
            connection.out_bytes <= 2 * OPTIONS.out_bytes_max + MIB for connection in frontend.connections.values()
        )
        assert all(connection.pending_bytes <= 512 * KIB for connection in frontend.connections.values())
        assert len(self.node.timers) <= 2 * len(frontend.connections) + 2 * len(sessions) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_clean_refusals(chance: Random, kind: str) -> None:
    attack(World(), chance, kind, INPUTS // len(KINDS))


RULES = f"""
topic {PRIVATE}
topic readwrite t/# where $size < 20 OR v > 1
topic read a/+
topic write a/b
topic deny a/+/c
pattern from/%c/#
pattern read # where temp > 30
"""


@pytest.mark.parametrize("kind", ["valid_packets", "mutated_packets"])
def test_nothing_but_clean_refusals_where_rules_and_quotas_are_narrow(chance: Random, kind: str) -> None:
    """Rules change under the clients' feet, too."""
    quota = replace(NARROW, connect_bytes_max=200, filter_tests_max=5, memory_bytes_max=400_000)
    world = World(AccessPolicy(rules=AclRights(Acl.parse(RULES))), quota)
    for _ in range(4):
        attack(world, chance, kind, INPUTS // 40)
        world.frontend.replace_access(AccessPolicy(), world.now)
        world.turn()
        attack(world, chance, kind, INPUTS // 80)
        world.frontend.replace_access(AccessPolicy(rules=AclRights(Acl.parse(RULES))), world.now)
        world.turn()
    assert world.frontend.publish_handler.forbidden


def attack(world: World, chance: Random, kind: str, inputs: int) -> None:
    """So many *inputs* of one kind, from connections that come and go."""
    make = KINDS[kind]
    offenders: list[Peer] = []
    refused = 0
    for number in range(inputs):
        if number % CHECK_EVERY == 0:
            world.check()
            world.now += chance.choice([0, 0, 1_000, 20_000]) * MILLISECOND
            world.turn()
            offenders = [peer for peer in offenders if peer.is_open]
        octets = b""
        try:
            if offenders and chance.random() < 0.7:
                peer = chance.choice(offenders)
            else:
                dialect = chance.choice(DIALECTS)
                peer = world.opened(dialect)
                peer.is_stalled = chance.random() < 0.1  # it never reads what it is told
                offenders.append(peer)
                if chance.random() < 0.8:
                    octets = encode_packet(connect(chance, dialect), dialect)
                    world.feed(peer, octets)
            if len(offenders) > 20:
                world.close(offenders.pop(0))
            if peer.is_open:
                octets = make(chance, peer.dialect)
                world.feed(peer, octets)
                refused += not peer.is_open
            peer.received.clear()
        except Exception as error:
            raise AssertionError(f"input {number} of {kind}: {octets.hex()}") from error
        offenders = [peer for peer in offenders if peer.is_open]
    world.check()
    assert world.alice.connection.state is ConnectionState.CONNECTED
    assert world.bob.connection.state is ConnectionState.CONNECTED
    assert refused > inputs // 20
    print(f"{inputs} inputs, {refused} connections closed for them: {world.frontend.disconnector.counts}")
