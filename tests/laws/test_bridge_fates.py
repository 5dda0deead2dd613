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

from ..support.open_bridge import ForgetfulSession

RUNS = 150
STEPS = 120
RULES = ("a/# out 2 retain=false", "b/# both 2", "c/# in 1 k/ r/", "d/# in 1 where x > 1", "e/+ out 1 y/ z/")
OURS = ("a/1", "a/2", "b/1", "y/e/1", "k/c/1", "nobody/1")
THEIRS = ("b/1", "b/2", "r/c/1", "d/1", "nobody/1")
SHAPERS = (UNSHAPED, UNSHAPED, ShaperOptions(rate_bytes_s=40), ShaperOptions(bytes_per_day=4_000))


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
    """A world that does what the bridge asks for, now or later."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.now: Instant = 0
        self.dialect = chance.choice([V5, V311])
        options = BridgeOptions(
            "x", "up", [parse_rule(rule) for rule in RULES], self.dialect, identity="here", remote_alias="t:1883"
        )
        self.bridge = Bridge(replace(options, shaper_options=chance.choice(SHAPERS)), ForgetfulSession(), lambda: 0)
        self.out, self.into = Line(), Line()
        self.has_local_end = self.has_line = self.is_greeted = False
        self.orders: list[BridgeCommand] = []
        self.bridge.set_local_time(LocalTime(1, 60), 0)
        self.bridge.start(0)

    def write(self) -> None:
        if self.has_local_end:
            self.into.write(self.bridge.take_local_output(), V5)
        if self.has_line:
            self.out.write(self.bridge.take_remote_output(self.now), self.bridge.capabilities.dialect)

    def obey(self) -> None:
        self.orders += self.bridge.take_commands()
        while self.orders:
            match self.orders.pop(0):
                case BridgeCommand.DIAL if self.bridge.state is BridgeState.DIALLING:
                    self.has_line, self.is_greeted = True, False
                    self.bridge.on_connected(self.now)
                case BridgeCommand.OPEN:
                    self.has_local_end = True
                    self.bridge.on_local_open(self.now)
                case BridgeCommand.CLOSE:
                    self.write()
                    self.has_local_end = False
                case BridgeCommand.HANG_UP:
                    if self.chance.random() < 0.5:  # or it takes nothing more
                        self.write()
                    self.has_line = False
            self.orders += self.bridge.take_commands()

    def say(self, topics: tuple[str, ...], dialect: Dialect, line: Line) -> bytes:
        """Some messages in one piece."""
        packets = [
            Publish(self.chance.choice(topics), self.chance.choice([b'{"x":2}', b"1", b"x" * 90]), 0)
            for _ in range(self.chance.choice([1, 3, 8]))
        ]
        line.said += len(packets)
        return b"".join(encode_packet(packet, dialect) for packet in packets)

    def act(self) -> None:
        chance, bridge, is_told = self.chance, self.bridge, False
        self.now += chance.choice([0, MILLISECOND, SECOND])
        lot = chance.random()
        if lot < 0.35 and self.has_local_end:
            chunk = self.say(OURS, V5, self.out)
            if chance.random() < 0.1:  # it has its say to the end
                chunk += encode_packet(Disconnect(), V5)
                chunk += self.say(OURS, V5, self.out)
            elif chance.random() < 0.2:
                chunk += encode_packet(PingResp(), V5)
            bridge.receive_local(chunk, self.now)
            is_told = True
        elif lot < 0.65 and self.has_line:
            chunk = b"" if self.is_greeted else encode_packet(ConnAck(), bridge.capabilities.dialect)
            self.is_greeted = True
            chunk += self.say(THEIRS, bridge.capabilities.dialect, self.into)
            bridge.receive_remote(chunk, self.now)
        elif lot < 0.70 and self.has_line:
            self.has_line = False
            bridge.on_connection_lost("the line is cut", self.now)
        elif lot < 0.74 and self.has_local_end:
            self.has_local_end = False
            bridge.on_local_closed(self.now)
        elif lot < 0.77:
            if bridge.state is BridgeState.PAUSED:
                bridge.start(self.now)
            else:
                bridge.pause(self.now)
        elif lot < 0.85:
            self.now += 40 * SECOND
        due = bridge.next_due()
        if due is not None and due <= self.now:
            bridge.fire(self.now)
        if chance.random() < 0.7:
            self.write()
        if not is_told or chance.random() < 0.5:  # our own front end is in the midst of something then
            self.obey()

    def end(self) -> None:
        """Nobody writes any more; the next connection shows what the last one had left."""
        self.obey()
        self.bridge.pause(self.now)
        self.bridge.take_commands()
        self.bridge.start(self.now)
        self.bridge.fire(self.now)
        self.bridge.on_connected(self.now)
        self.bridge.receive_remote(encode_packet(ConnAck(), self.bridge.capabilities.dialect), self.now)
        self.bridge.on_local_open(self.now)


def balance(line: Line, counters: BridgeCounters) -> str:
    lost = sum(counters.dropped.values())
    return "" if line.said == line.written + lost else f"{line.said} said, {line.written} written, {counters.dropped}"


def test_each_message_is_written_or_counted(seed: int) -> None:
    causes: set[BridgeDropCause] = set()
    for number in range(seed, seed + RUNS):
        world = AccountedBridge(Random(number))
        for _ in range(STEPS):
            world.act()
        world.end()
        out, into = world.bridge.outbound_counters, world.bridge.inbound_counters
        wrong = {"out": balance(world.out, out), "in": balance(world.into, into)}
        assert not any(wrong.values()), f"EDGEBROKER_TEST_SEED={number} .venv/bin/pytest {__file__}: {wrong}"
        causes.update(out.dropped, into.dropped)
    assert {
        BridgeDropCause.ABSENT,
        BridgeDropCause.FILTERED,
        BridgeDropCause.NO_RULE,
        BridgeDropCause.RATE,
        BridgeDropCause.BUDGET,
    } <= causes
