"""P7 at a bridge: each message of QoS 0 that one end says is written to the other, or dropped and counted, once.

Both ends come and go at any moment, also while the other is in the midst of something, and write what they are given or
do not get to it. Of QoS 1 and 2 nobody keeps books here: whoever is not answered says them again.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.budget import LocalTime
from edgebridge.bridge.counters import BridgeCounters, BridgeDropCause
from edgebridge.bridge.endpoints import BridgeCommand, BridgeState
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.bridge.shaper import UNSHAPED, ShaperOptions
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import ConnAck, Disconnect, PingResp, Publish
from edgebroker.instants import MILLISECOND, SECOND, Instant

from ..spec.test_bridge_poison import Nothing

RUNS = 150
STEPS = 120
RULES = ("a/# out 2 retain=false", "b/# both 2", "c/# in 1 k/ r/", "d/# in 1 where x > 1", "e/+ out 1 y/ z/")
OURS = ("a/1", "a/2", "b/1", "y/e/1", "k/c/1", "nobody/1")
THEIRS = ("b/1", "b/2", "r/c/1", "d/1", "nobody/1")
DUES = (UNSHAPED, UNSHAPED, ShaperOptions(rate_bytes_s=40), ShaperOptions(bytes_per_day=4_000))


class Line:
    """What was said to one end, and what of it was written."""

    def __init__(self) -> None:
        self.said = 0
        self.written = 0

    def write(self, packets: list[bytes], dialect: Dialect) -> None:
        framer = Framer(1 << 28)
        framer.feed(b"".join(packets))
        while (frame := framer.next_frame()) is not None:
            packet = decode_packet(*frame, dialect)
            self.written += isinstance(packet, Publish) and not packet.qos


class AccountedBridge:
    """A world that does what the splice asks for, now or later."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.now: Instant = 0
        self.dialect = chance.choice([V5, V311])
        terms = BridgeOptions(
            "x", "up", [parse_rule(rule) for rule in RULES], self.dialect, identity="here", remote_alias="t:1883"
        )
        self.splice = Bridge(replace(terms, shaper_options=chance.choice(DUES)), Nothing(), lambda: 0)
        self.out, self.into = Line(), Line()
        self.has_inlet = self.has_line = self.is_greeted = False
        self.orders: list[BridgeCommand] = []
        self.splice.set_local_time(LocalTime(1, 60), 0)
        self.splice.start(0)

    def write(self) -> None:
        if self.has_inlet:
            self.into.write(self.splice.take_local_output(), V5)
        if self.has_line:
            self.out.write(self.splice.take_remote_output(self.now), self.splice.capabilities.dialect)

    def obey(self) -> None:
        self.orders += self.splice.take_commands()
        while self.orders:
            match self.orders.pop(0):
                case BridgeCommand.DIAL if self.splice.state is BridgeState.DIALLING:
                    self.has_line, self.is_greeted = True, False
                    self.splice.on_connected(self.now)
                case BridgeCommand.OPEN:
                    self.has_inlet = True
                    self.splice.on_local_open(self.now)
                case BridgeCommand.CLOSE:
                    self.write()
                    self.has_inlet = False
                case BridgeCommand.HANG_UP:
                    if self.chance.random() < 0.5:  # or it takes nothing more
                        self.write()
                    self.has_line = False
            self.orders += self.splice.take_commands()

    def say(self, topics: tuple[str, ...], dialect: Dialect, line: Line) -> bytes:
        """Some messages in one piece."""
        packets = [
            Publish(self.chance.choice(topics), self.chance.choice([b'{"x":2}', b"1", b"x" * 90]), 0)
            for _ in range(self.chance.choice([1, 3, 8]))
        ]
        line.said += len(packets)
        return b"".join(encode_packet(packet, dialect) for packet in packets)

    def act(self) -> None:
        chance, splice, is_told = self.chance, self.splice, False
        self.now += chance.choice([0, MILLISECOND, SECOND])
        lot = chance.random()
        if lot < 0.35 and self.has_inlet:
            chunk = self.say(OURS, V5, self.out)
            if chance.random() < 0.1:  # it has its say to the end
                chunk += encode_packet(Disconnect(), V5)
                chunk += self.say(OURS, V5, self.out)
            elif chance.random() < 0.2:
                chunk += encode_packet(PingResp(), V5)
            splice.receive_local(chunk, self.now)
            is_told = True
        elif lot < 0.65 and self.has_line:
            chunk = b"" if self.is_greeted else encode_packet(ConnAck(), splice.capabilities.dialect)
            self.is_greeted = True
            chunk += self.say(THEIRS, splice.capabilities.dialect, self.into)
            splice.receive_remote(chunk, self.now)
        elif lot < 0.70 and self.has_line:
            self.has_line = False
            splice.on_connection_lost("the line is cut", self.now)
        elif lot < 0.74 and self.has_inlet:
            self.has_inlet = False
            splice.on_local_closed(self.now)
        elif lot < 0.77:
            if splice.state is BridgeState.PAUSED:
                splice.start(self.now)
            else:
                splice.pause(self.now)
        elif lot < 0.85:
            self.now += 40 * SECOND
        due = splice.next_due()
        if due is not None and due <= self.now:
            splice.fire(self.now)
        if chance.random() < 0.7:
            self.write()
        if not is_told or chance.random() < 0.5:  # our own front end is in the midst of something then
            self.obey()

    def end(self) -> None:
        """Nobody writes any more; the next connection shows what the last one had left."""
        self.obey()
        self.splice.pause(self.now)
        self.splice.take_commands()
        self.splice.start(self.now)
        self.splice.fire(self.now)
        self.splice.on_connected(self.now)
        self.splice.receive_remote(encode_packet(ConnAck(), self.splice.capabilities.dialect), self.now)
        self.splice.on_local_open(self.now)


def balance(line: Line, tally: BridgeCounters) -> str:
    lost = sum(tally.dropped.values())
    return "" if line.said == line.written + lost else f"{line.said} said, {line.written} written, {tally.dropped}"


def test_each_message_is_written_or_counted(seed: int) -> None:
    causes: set[BridgeDropCause] = set()
    for number in range(seed, seed + RUNS):
        bridge = AccountedBridge(Random(number))
        for _ in range(STEPS):
            bridge.act()
        bridge.end()
        out, into = bridge.splice.outbound_counters, bridge.splice.inbound_counters
        wrong = {"out": balance(bridge.out, out), "in": balance(bridge.into, into)}
        assert not any(wrong.values()), f"EDGEBROKER_TEST_SEED={number} .venv/bin/pytest {__file__}: {wrong}"
        causes.update(out.dropped, into.dropped)
    assert {
        BridgeDropCause.ABSENT,
        BridgeDropCause.FILTERED,
        BridgeDropCause.NO_RULE,
        BridgeDropCause.RATE,
        BridgeDropCause.BUDGET,
    } <= causes
