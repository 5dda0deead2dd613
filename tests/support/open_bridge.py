"""Bridges for tests that are open at both ends, and a local session without a memory."""

from __future__ import annotations

from collections.abc import Sequence, Set

from edgebridge.bridge.bridge import Bridge
from edgebridge.bridge.budget import LocalTime
from edgebridge.bridge.endpoints import BridgeCommand
from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import parse_rule
from edgebridge.bridge.shaper import ShaperOptions
from edgebridge.session.session import BridgeSyncState
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import ConnAck, Packet
from edgebroker.instants import Instant


class ForgetfulSession:
    """A `LocalSession` of a bridge that keeps nothing over a restart and bounds nothing."""

    sync_state = BridgeSyncState.NOT_CONNECTED

    def is_known(self) -> bool:
        return False

    def subscribed(self) -> Sequence[str]:
        return ()

    def received(self) -> Sequence[int]:
        return ()

    def mark_in_doubt(self, now: int) -> None:
        pass

    def clear_doubt(self, now: int) -> None:
        pass

    def retransmit_released(self, now: int) -> int:
        return 0

    def is_sending_retained(self) -> bool:
        return False

    def watch_retained(self) -> None:
        pass

    def lost_retained(self) -> Set[str] | None:
        return None

    def waiting_retained(self) -> Set[str]:
        return frozenset()

    def has_outstanding(self) -> bool:
        return False

    def begin_retained_sync(self, now: int, lost: Set[str] | None = None, only_lost: bool = False) -> None:
        pass

    def complete_retained_sync(self, now: int) -> None:
        pass

    def oldest(self) -> tuple[int, str, int] | None:
        return None

    def can_retain(self, topic: str, size: int) -> bool:
        return True

    def window(self) -> int:
        return 1_000

    def unix_us(self, now: int) -> int:
        return now

    def is_too_old(self, packet_id: int, now: int) -> bool:
        return False

    def free_packet_ids(self, count: int) -> Sequence[int]:
        return range(1, count + 1)


def decoded(packets: Sequence[bytes], dialect: Dialect) -> list[Packet]:
    """The MQTT packets in *packets*, which may be cut anyhow."""
    framer = Framer(1 << 20)
    framer.feed(b"".join(packets))
    return [decode_packet(*frame, dialect) for frame in iter(framer.next_frame, None)]


NOON = LocalTime(1, 12 * 60)
RULES = ("out/# out 2", "in/# in 2")


class OpenBridge:
    """A bridge with *shaper_options*, open at both ends since noon; its output is kept with the time."""

    def __init__(self, shaper_options: ShaperOptions, keep_alive_s: int = 0, rules: Sequence[str] = RULES) -> None:
        made = [parse_rule(rule) for rule in rules]
        options = BridgeOptions(
            "x",
            "up",
            made,
            keep_alive_s=keep_alive_s,
            sends_origin=False,
            identity="here",
            shaper_options=shaper_options,
        )
        self.bridge = Bridge(options, ForgetfulSession(), lambda: 0)
        self.now: Instant = 0
        self.bridge.set_local_time(NOON, 0)
        self.bridge.start(0)
        self.orders: list[BridgeCommand] = []
        self.said: list[tuple[Instant, bytes]] = []
        self.connect()

    def connect(self) -> None:
        """Connect the bridge to its remote, as often as it dials."""
        while self.bridge.state != "open":
            self.now = max(self.now, self.bridge.next_due() or self.now)
            self.bridge.fire(self.now)
            if BridgeCommand.DIAL in self.bridge.take_commands():
                self.bridge.on_connected(self.now)
                self.bridge.receive_remote(encode_packet(ConnAck(), V5), self.now)
        self.bridge.on_local_open(self.now)
        self.bridge.take_commands()
        self.bridge.take_local_output()
        self.bridge.take_remote_output(self.now)

    def ours(self, *packets: Packet) -> None:
        self.bridge.receive_local(b"".join(encode_packet(packet, V5) for packet in packets), self.now)
        self.collect_output()

    def theirs(self, *packets: Packet) -> None:
        self.bridge.receive_remote(b"".join(encode_packet(packet, V5) for packet in packets), self.now)
        self.collect_output()

    def until(self, when: Instant) -> None:
        """Let everything happen that is due before *when*."""
        while (due := self.bridge.next_due()) is not None and due <= when:
            assert due > self.now, "time goes on"
            self.now = due
            self.bridge.fire(due)
            self.collect_output()
        self.now = when

    def collect_output(self) -> None:
        self.said += [(self.now, data) for data in self.bridge.take_remote_output(self.now)]

    def sent(self) -> list[Packet]:
        """What it has written to the remote, and forget it."""
        said, self.said = self.said, []
        return decoded([data for _, data in said], V5)

    def answered(self) -> list[Packet]:
        """What it has told our front end."""
        return decoded(self.bridge.take_local_output(), V5)
