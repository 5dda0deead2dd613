"""P7, to the last message: what clients said, what became of it, and what readers really got, in any history.

Clients without a network between, so that nothing is lost but by the broker. They publish in bursts, read when they
like, acknowledge when they like, break off, come again under the same name, and expire; operators end connections and
sessions and change the rules; queues, out-buffers, the store of retained messages and memory are narrow. At the end
each client's own count is held against the books. Some histories are of QoS 0 alone: then what was said is known too.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from edgebridge.frontend.admin import end_connection, end_session
from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.handlers.publish_admission import Refusal
from edgebridge.frontend.options import FrontendOptions, Quota
from edgebridge.session.access import OPEN, AccessPolicy
from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import DIALECTS, V5, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    Connect,
    Disconnect,
    Packet,
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
from edgebridge.wire.properties import Property as P
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.log_schema import DIGEST, Cause, Fate
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgelab.simworld.checkers import unbalanced

HISTORIES = 60
ACTIONS = 220
NAMES = ("a", "b", "c", "d", "e", "f")
KEEPER = "keeper"
"""It alone says what is retained, is never cut off, and hears at once whether it was taken."""
TOPICS = ("n/x", "n/y", "n/y/z")
FILTERS = ("n/#", "n/x", "+/y", "$share/g/n/#", "$share/h/n/x", "k/#", "k/1", "w/#", "$filter/$size%3E40/n/#")
GOOD_BYES = (ReasonCode.NORMAL_DISCONNECTION, ReasonCode.DISCONNECT_WITH_WILL_MESSAGE)
NOT_HERE = {
    Cause.NONE,
    *(Cause.NO_SUBSCRIBER, Cause.CONTENT, Cause.OWN_MESSAGE),  # of messages, not of copies
    *(
        Cause.BUDGET_SPENT,
        Cause.TOO_OLD,
        Cause.LEASE_ENDED,
        Cause.DISCARDED,
        Cause.PEER_REMOVED,
    ),  # of peers and bridges, which have laws of their own
    Cause.DAMAGED,  # there is no disk
}
NOT_HERE_EITHER = {Refusal.TOO_LARGE, Refusal.DISK_FULL, Refusal.OUTBOX_FULL, Refusal.MEMORY_FULL}
"""There is neither a disk nor a peer."""
STRICT = AccessPolicy(
    rules=AclRights(Acl.parse("topic readwrite n/#\ntopic deny n/x\ntopic read k/#\ntopic write k/#\n"))
)


class Reader:
    """One client: what it said, and what it got."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connection: Connection | None = None
        self.dialect: Dialect = V5
        self.framer = Framer(1 << 28)
        self.is_stalled = False
        self.has_said_good_bye = False
        self.got: Counter[bool] = Counter()  # whether acknowledged: copies of QoS 0, and of 1 and 2
        self.answers: list[Packet] = []

    def read(self, octets: bytes) -> None:
        self.framer.feed(octets)
        while (frame := self.framer.next_frame()) is not None:
            match decode_packet(*frame, self.dialect):
                case Publish(qos=0):
                    self.got[False] += 1
                case Publish(qos=1, packet_id=packet_id):
                    self.answers.append(PubAck(packet_id))
                case Publish(packet_id=packet_id):
                    self.answers.append(PubRec(packet_id))
                case PubRel(packet_id=packet_id):
                    self.answers.append(PubComp(packet_id))


class House:
    """A broker and its clients."""

    def __init__(self, chance: Random, policy: OverflowPolicy) -> None:
        self.chance = chance
        self.now: Instant = 0
        self.log = DeliveryLog("gateway", "boot", sample_qos0=chance.choice([1, 1, 3, 50]))
        self.written = [self.log.header(0, 0)]
        self.ledger = Ledger(self.log)
        options = FrontendOptions(
            out_bytes_max=600,
            queue_messages_max=6,
            inflight_max=4,
            retained_messages_max=3,
            packet_bytes_max=100_000,
            payload_format_checked=True,
            queue_full=policy,
        )
        self.is_simple = chance.random() < 0.3
        """Whether all is said at QoS 0, and neither wills nor retained messages: then each message said is known."""
        quota = Quota(publish_messages_per_s=chance.choice([0, 5]), memory_bytes_max=chance.choice([30_000, 1 << 28]))
        self.frontend = Frontend(Node(self.ledger), options, lambda: "assigned", OPEN, quota=quota)
        self.frontend.start(0)
        self.readers = {name: Reader(name) for name in (*NAMES, KEEPER)}
        self.offered = 0
        self.packet_ids = 0

    # -- a world without a network ----------------------------------------------------------------------------------

    def turn(self) -> None:
        frontend = self.frontend
        due = frontend.node.timers.next_due()
        if due is not None and due <= self.now:
            frontend.fire(self.now)
        while frontend.dirty:
            connection = frontend.dirty.pop(0)
            reader: Reader = connection.transport
            is_current = reader.connection is connection
            if is_current:
                connection.paused = reader.is_stalled
            if connection.number not in frontend.connections:
                continue
            if not connection.paused:
                out = b"".join(frontend.take_output(connection, self.now))
                if is_current:
                    reader.read(out)
                else:  # another connection of it is there already: it reads what this one still gives
                    late = Framer(1 << 28)
                    late.feed(out)
                    while (frame := late.next_frame()) is not None:
                        reader.got[False] += frame[0] >> 4 == 3 and not frame[0] & 6
            if connection.closing:
                self.gone(reader, connection)

    def gone(self, reader: Reader, connection: Connection) -> None:
        if reader.connection is connection:
            reader.connection = None
            reader.answers.clear()
        self.frontend.closed(connection, self.now)

    def say(self, reader: Reader, *packets: Packet) -> None:
        if reader.connection is not None and not (reader.connection.closing or reader.has_said_good_bye):
            octets = b"".join(encode_packet(packet, reader.dialect) for packet in packets)
            self.offered += sum(isinstance(packet, Publish) and packet.qos == 0 for packet in packets)
            self.frontend.feed(reader.connection, octets, self.now)
        self.turn()

    def answer(self, reader: Reader) -> None:
        """It acknowledges what it got, unless it is not listened to for now."""
        while reader.answers and reader.connection is not None and not reader.connection.closing:
            if reader.connection.is_held or reader.has_said_good_bye:
                return
            packet = reader.answers.pop(0)
            if isinstance(packet, PubAck | PubRec) and reader.dialect is V5 and self.chance.random() < 0.1:
                self.say(reader, type(packet)(packet.packet_id, ReasonCode.UNSPECIFIED_ERROR))
                continue
            reader.got[True] += isinstance(packet, PubAck | PubComp)
            self.say(reader, packet)

    # -- what happens -----------------------------------------------------------------------------------------------

    def connect(self, reader: Reader) -> None:
        chance = self.chance
        connection = self.frontend.opened("here", self.now)
        connection.transport = reader
        before, reader.connection = reader.connection, connection
        reader.dialect, reader.framer = chance.choice(DIALECTS), Framer(1 << 28)
        reader.is_stalled = reader.has_said_good_bye = False
        reader.answers.clear()
        properties = {}
        if reader.dialect is V5:
            properties[P.SESSION_EXPIRY_INTERVAL] = chance.choice([0, 5, 1_000])
            if chance.random() < 0.2:
                properties[P.MAXIMUM_PACKET_SIZE] = 70
        will = Will(f"w/{reader.name}", b"gone", chance.randrange(3)) if chance.random() < 0.3 else None
        if will is not None and reader.dialect is V5 and chance.random() < 0.5:
            will = Will(will.topic, will.payload, will.qos, properties={P.WILL_DELAY_INTERVAL: 2})
        if self.is_simple or reader.name == KEEPER:
            will = None
        clean = chance.random() < 0.4
        self.say(reader, Connect(reader.name, clean, 0, None, None, will, properties, reader.dialect))
        if before is not None and before.number in self.frontend.connections:  # it was not let in, or hung up itself
            self.gone(reader, before)

    def publish(self, reader: Reader) -> None:
        chance = self.chance
        topic, qos = chance.choice(TOPICS), 0 if self.is_simple else chance.choice([0, 0, 0, 1, 2])
        size, count = chance.choice([3, 30, 90, 900]), chance.choice([1, 3, 12])
        properties = {P.MESSAGE_EXPIRY_INTERVAL: 1} if reader.dialect is V5 and chance.random() < 0.3 else {}
        if chance.random() < 0.05:
            topic, qos, properties = "$SYS/mine", 0, {}
        elif reader.dialect is V5 and chance.random() < 0.05:
            self.say(reader, Publish(topic, b"\xff", 0, properties={P.PAYLOAD_FORMAT_INDICATOR: 1}))
            return
        packets = []
        for _ in range(count):
            self.packet_ids = self.packet_ids % 60_000 + 1
            packets.append(Publish(topic, b"x" * size, qos, packet_id=self.packet_ids, properties=properties))
        self.say(reader, *packets)

    def keep(self) -> None:
        keeper = self.readers[KEEPER]
        if keeper.connection is None:
            self.connect(keeper)
            return
        self.packet_ids = self.packet_ids % 60_000 + 1
        payload = self.chance.choice([b"", b"state", b"x" * 120])
        topic = f"k/{self.chance.randrange(6)}"
        self.say(keeper, Publish(topic, payload, 1, retain=True, packet_id=self.packet_ids))

    def act(self) -> None:
        chance, frontend = self.chance, self.frontend
        reader = self.readers[chance.choice(NAMES)]
        self.now += chance.choice([0, MILLISECOND, 50 * MILLISECOND])
        session = frontend.connect_handler.sessions.get(reader.name)
        lot = chance.random()
        if reader.connection is None and lot < 0.5:
            self.connect(reader)
        elif lot < 0.45:
            self.publish(reader)
        elif lot < 0.60:
            option = SubscriptionOption(chance.choice(FILTERS), chance.randrange(3))
            self.say(reader, Subscribe(1, [option]))
        elif lot < 0.62:
            self.say(reader, Unsubscribe(1, [chance.choice(FILTERS)]))
        elif lot < 0.74:
            self.answer(reader)
        elif lot < 0.80 and not self.is_simple:
            self.keep()
        elif lot < 0.85:
            reader.is_stalled = not reader.is_stalled and reader.connection is not None
            if reader.connection is not None and not reader.is_stalled:
                frontend.dirty.append(reader.connection)
        elif lot < 0.88 and reader.connection is not None:
            self.gone(reader, reader.connection)
        elif lot < 0.90:
            self.say(reader, Disconnect(chance.choice(GOOD_BYES)))
            reader.has_said_good_bye = reader.connection is not None
        elif lot < 0.93:
            self.connect(reader)  # again, if it is there: the first is taken over
        elif lot < 0.95:
            self.now += chance.choice([2, 7]) * SECOND
        elif lot < 0.965 and session is not None:
            end_session(frontend, session, self.now)
        elif lot < 0.98 and session is not None:
            there = reader.connection
            if end_connection(frontend, session) and there is not None and not reader.has_said_good_bye:
                late = encode_packet(Publish(TOPICS[0], b"late", 0), reader.dialect)
                self.offered += 2
                frontend.feed(there, late * 2, self.now)
        elif lot < 0.99:
            frontend.replace_access(chance.choice([OPEN, STRICT]), self.now)
        else:
            frontend.memory_limit.accounts.set_bound(chance.choice([9_000, 30_000, 1 << 28]))
            frontend.memory_limit.check(self.now)
        self.turn()

    def stop(self) -> None:
        frontend = self.frontend
        frontend.stop(self.now)
        self.turn()
        for connection in list(frontend.connections.values()):
            self.gone(connection.transport, connection)
        self.turn()
        frontend.close_books(self.now)
        self.written += self.log.take(self.now, closing=True)


def digest(rows: dict[str, list], fate: Fate, qos_0: bool) -> Counter[str]:
    """Copies that came to *fate*, by subscriber."""
    found: Counter[str] = Counter()
    names = ("subscriber", "qos", "fate", "count")
    for subscriber, qos, ended, count in zip(*(rows[name] for name in names), strict=True):
        if ended == fate and (qos == 0) is qos_0:
            found[subscriber] += count
    return found


def test_nothing_is_lost_without_a_cause(seed: int) -> None:
    causes: Counter[Cause] = Counter()
    refusals: Counter[Refusal] = Counter()
    for number in range(HISTORIES):
        repeat = f"EDGEBROKER_TEST_SEED={seed + number} .venv/bin/pytest {__file__}"
        house = House(Random(seed + number), list(OverflowPolicy)[(seed + number) % len(OverflowPolicy)])
        for _ in range(ACTIONS):
            house.act()
            waiting = [len(one.inflight) + len(one.outbox) for one in house.frontend.connect_handler.sessions.values()]
            unwritten = [one.out_messages for one in house.frontend.connections.values()]
            assert house.ledger.queued == sum(waiting) + sum(unwritten), repeat
        house.stop()
        log, ledger, publish_handler = b"".join(house.written), house.ledger, house.frontend.publish_handler
        assert not list(unbalanced(log)), repeat
        rows = read_segment(log, growing=True).tables
        for is_qos_0 in (True, False):
            delivered = digest(rows[DIGEST.name], Fate.DELIVERED, is_qos_0)
            got = {one.name: one.got[not is_qos_0] for one in house.readers.values() if one.got[not is_qos_0]}
            assert delivered == got, f"{repeat}: QoS 0: {is_qos_0}"
        if house.is_simple:
            digests = rows[DIGEST.name]
            fates = zip(digests["fate"], digests["count"], strict=True)
            accepted = sum(count for fate, count in fates if fate == Fate.PUBLISHED)
            assert house.offered == accepted + publish_handler.refused, f"{repeat}: {publish_handler.refusals}"
        causes.update(ledger.dropped)
        refusals.update(publish_handler.refusals)
    print(causes, refusals)
    assert {*Cause} - NOT_HERE == {*causes}
    assert {*Refusal} - NOT_HERE_EITHER == {*refusals}
