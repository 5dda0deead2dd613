"""The parts of a device, each by itself: modem, processor, radio, battery. No socket, no clock."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
)
from edgebroker.instants import HOUR, MILLISECOND, SECOND
from edgedevices.battery import Battery, BatteryKind
from edgedevices.firmware import NEXT as FIRMWARE
from edgedevices.firmware import Firmware, FirmwareEvent, FirmwareState, FirmwareTimes
from edgedevices.ledger import MessageLedger
from edgedevices.mischief import BROKEN_PACKETS
from edgedevices.modem import CONNECT_TIMEOUT, PAUSE_MAX, PAUSE_MIN, Modem, ModemOrder, ModemPhase
from edgedevices.modem import NEXT as MODEM
from edgedevices.radio import RadioKind, RadioPath
from edgedevices.session import DeviceDialect, DeviceIdentity, DeviceSession
from edgedevices.station import image, image_version

LASTING = DeviceIdentity("m", DeviceDialect.V5)


def dialled(radio: RadioKind | None = None) -> Modem:
    session = DeviceSession(LASTING, MessageLedger())
    modem = Modem(session, MessageLedger(), Random(1), radio or RadioKind())
    modem.dial(0)
    assert modem.take_orders() == [ModemOrder.DIAL]
    return modem


def talking() -> Modem:
    modem = dialled()
    modem.opened(0)
    modem.received(encode_packet(ConnAck(), V5), 0)
    assert modem.is_talking
    modem.take_orders()
    return modem


def test_every_phase_can_be_left_and_every_table_reaches_all_its_states() -> None:
    assert {phase for phase, _ in MODEM} == set(ModemPhase)
    assert set(MODEM.values()) == set(ModemPhase)
    assert {state for state, _ in FIRMWARE} == set(FirmwareState) - {FirmwareState.EMPTY}
    assert set(FIRMWARE.values()) == set(FirmwareState) - {FirmwareState.OFF}


def test_pauses_grow_are_bounded_and_come_apart() -> None:
    pauses: list[list[int]] = []
    for seed in range(20):
        modem = Modem(DeviceSession(LASTING, MessageLedger()), MessageLedger(), Random(seed))
        now, mine = 0, []
        for _ in range(12):
            modem.dial(now)
            modem.ended("Connection refused", now)
            assert modem.due is not None
            mine.append(modem.due - now)
            now = modem.due
            modem.wake(now)
        pauses.append(mine)
    assert all(PAUSE_MIN <= pause <= PAUSE_MAX for mine in pauses for pause in mine)
    assert max(mine[0] for mine in pauses) <= 3 * PAUSE_MIN
    assert len({mine[0] for mine in pauses}) == len(pauses)
    assert sum(mine[-1] > 2 * SECOND for mine in pauses) > 10


def test_who_gets_no_connack_gives_up_and_says_so() -> None:
    modem = dialled()
    modem.opened(0)
    modem.take_orders()
    assert modem.due == CONNECT_TIMEOUT
    modem.wake(CONNECT_TIMEOUT)
    assert modem.take_orders() == [ModemOrder.CUT]
    assert modem.last_refusal == "no CONNACK in 20 s"


def test_a_broker_that_does_not_answer_a_ping_is_left() -> None:
    modem = talking()
    asked_at = modem.due
    assert asked_at is not None
    assert asked_at < LASTING.keep_alive_us
    modem.wake(asked_at)
    assert modem.take_orders() == [b"\xc0\x00"]
    modem.wake(modem.due or 0)
    assert modem.take_orders() == [ModemOrder.CUT]


def test_what_was_written_before_a_good_bye_leaves_before_the_end() -> None:
    radio = RadioKind(latency_us=(50 * MILLISECOND, 50 * MILLISECOND))
    modem = dialled(radio)
    modem.opened(0)
    modem.wake(50 * MILLISECOND)
    modem.received(encode_packet(ConnAck(), V5), 50 * MILLISECOND)
    modem.wake(100 * MILLISECOND)
    modem.take_orders()
    modem.disconnect(100 * MILLISECOND)
    assert modem.take_orders() == []
    modem.wake(150 * MILLISECOND)
    octets, order = modem.take_orders()
    assert (octets, order) == (b"\xe0\x00", ModemOrder.HANG_UP)


def test_where_there_is_no_network_nobody_dials() -> None:
    radio = RadioKind(lost_every_us=SECOND, outage_us=(60 * SECOND, 60 * SECOND))
    modem = dialled(radio)
    modem.opened(0)
    modem.received(encode_packet(ConnAck(), V5), 0)
    lost_at = modem.due
    assert lost_at is not None
    modem.take_orders()
    modem.wake(lost_at)
    assert modem.take_orders() == [ModemOrder.CUT]
    assert modem.due == lost_at + 60 * SECOND
    modem.wake(modem.due)
    modem.dial(lost_at + 60 * SECOND)
    assert modem.take_orders() == [ModemOrder.DIAL]


def test_unreadable_bytes_end_the_connection() -> None:
    modem = talking()
    modem.received(b"\x00\x00", 5)
    assert modem.take_orders() == [ModemOrder.CUT]
    assert modem.phase is ModemPhase.PAUSING


def test_no_broken_packet_can_be_read() -> None:
    for octets in BROKEN_PACKETS[:-1]:  # the last is wrong only because it is the second of its kind
        with pytest.raises(ProtocolError):
            DeviceSession(LASTING, MessageLedger()).receive(octets, 0)
    assert isinstance(decode_packet(BROKEN_PACKETS[-1][0], BROKEN_PACKETS[-1][2:], V5), Connect)


def test_a_processor_does_what_its_table_says_and_nothing_else() -> None:
    firmware = Firmware(FirmwareTimes(500, 20))
    firmware.handle(FirmwareEvent.POWER, 0)
    assert (firmware.state, firmware.until, firmware.runs) == (FirmwareState.BOOT, 500, False)
    firmware.handle(FirmwareEvent.DONE, 500)
    firmware.handle(FirmwareEvent.DUE, 600)
    assert (firmware.state, firmware.until, firmware.runs) == (FirmwareState.SENSE, 620, True)
    with pytest.raises(KeyError):
        firmware.handle(FirmwareEvent.ORDER, 610)
    firmware.handle(FirmwareEvent.EMPTIED, 615)
    assert (firmware.state, firmware.until) == (FirmwareState.EMPTY, None)
    for cue in FirmwareEvent:
        with pytest.raises(KeyError):
            firmware.handle(cue, 700)


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, SECOND)), max_size=20), st.integers(0, 99))
def test_a_radio_sends_no_more_than_its_share_and_nothing_overtakes(sends: list[tuple[int, int]], seed: int) -> None:
    kind = RadioKind(bits_per_s=8_000, duty=0.1, latency_us=(1, 300 * MILLISECOND))
    path = RadioPath(kind, Random(seed))
    now, arrivals = 0, []
    for number, (size, later) in enumerate(sends):
        now += later
        path.send(bytes([number]) * size, now)
    while (due := path.due) is not None:
        arrivals.append((due, path.arrived(due)))
    assert b"".join(chunk for _, chunk in arrivals) == b"".join(bytes([n]) * size for n, (size, _) in enumerate(sends))
    assert all(one[0] <= other[0] for one, other in pairwise(arrivals))
    assert path.airtime_us == sum(size for size, _ in sends) * MILLISECOND
    if len(sends) > 1:  # all but the last have paid with silence before it could begin
        paid = sum(size for size, _ in sends[:-1]) * MILLISECOND * 10
        assert arrivals[-1][0] >= paid + sends[-1][0] * MILLISECOND


def test_what_was_lost_before_its_turn_on_the_air_costs_no_silence() -> None:
    path = RadioPath(RadioKind(bits_per_s=8_000, duty=0.01), Random(1))
    path.send(bytes(50), 0)  # 50 ms, and 5 s of silence from its beginning
    path.send(bytes(1_000), 0)
    assert path.spent_us(SECOND) == 50 * MILLISECOND
    path.lose_all(5 * SECOND + 200 * MILLISECOND)  # a fifth of the second was on the air
    assert path.free_at == 25 * SECOND
    assert (path.airtime_us, path.octets) == (250 * MILLISECOND, 250)
    path.send(bytes(100), 6 * SECOND)
    path.lose_all(7 * SECOND)
    assert path.free_at == 25 * SECOND


def test_while_the_radio_must_be_silent_nobody_dials() -> None:
    modem = dialled(RadioKind(bits_per_s=800, duty=0.01))
    modem.opened(0)
    modem.wake(modem.up.arrived_at)
    modem.ended("connection lost", SECOND)
    assert modem.due == modem.up.free_at > 20 * SECOND
    modem.wake(modem.due)
    modem.dial(modem.up.free_at)
    assert modem.take_orders()[-1] is ModemOrder.DIAL


def test_a_battery_is_empty_when_what_flowed_is_what_it_held() -> None:
    battery = Battery(BatteryKind(capacity_mah=10), left_mah=10)
    battery.draw(5.0, 0)
    assert battery.empty_at == pytest.approx(2 * HOUR, abs=2)
    battery.draw(20.0, HOUR)
    assert battery.left_mah(HOUR) == pytest.approx(5.0)
    battery.consume(100.0, HOUR // 40)
    assert battery.empty_at == pytest.approx(HOUR + HOUR // 8, abs=2)
    assert battery.left_mah(2 * HOUR) == 0.0
    battery.draw(0.0, HOUR)
    assert battery.empty_at is None
    fast = Battery(BatteryKind(capacity_mah=10, speed=60), left_mah=10)
    fast.draw(10.0, 0)
    assert fast.empty_at == pytest.approx(HOUR / 60, abs=2)


def test_an_image_is_known_by_its_digest() -> None:
    whole = image(7, 1_000, Random(1))
    assert image_version(whole) == 7
    assert image_version(whole[:-1]) is None
    assert image_version(whole.replace(b'"version": 7', b'"version": "7"')) is None
    assert image_version(b"no image") is None
    assert image_version(b"") is None
    assert image_version(b"[" * 100_000) is None
