"""Simulated devices: the same seed gives the same messages, and they look like the physics they stand for."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from itertools import pairwise
from random import Random

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebroker.instants import SECOND
from edgedevices.device import FleetPlan, SimulatedDevice, deal
from edgedevices.message import DeviceMessage, PayloadForm
from edgedevices.profiles import PROFILES
from edgedevices.sensors import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    Episodes,
    RandomWalk,
    RoundTrip,
    Streams,
    ThermalLag,
    day_cycle,
)
from edgedevices.session import DeviceDialect

KEYS = {
    "cold-chain": {"device", "seq", "uptime_s", "temperature", "humidity", "door_open", "battery", "pos"},
    "weather": {"device", "seq", "uptime_s", "site", "temperature", "humidity", "wind", "rain", "pressure"},
    "vibration": {"device", "seq", "uptime_s", "rms", "peak", "crest", "rpm", "bearing_c", "axes"},
}


def messages(device: SimulatedDevice) -> list[tuple[int, DeviceMessage]]:
    """Everything a device with an end publishes: (due, message)."""
    found = []
    while (due_us := device.due_us) is not None:
        found.append((due_us, device.emit()))
    return found


def fleet(profile: str, **plan: object) -> list[SimulatedDevice]:
    return FleetPlan(**{"devices": 12, "seed": 7, "messages_max": 20, **plan, "profile": profile}).build()  # type: ignore[arg-type]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_same_seed_gives_the_same_messages_byte_for_byte(profile: str) -> None:
    def run(seed: int) -> list[tuple[int, str, bytes, int]]:
        everything = [
            found for device in fleet(profile, seed=seed, forms=tuple(PayloadForm)) for found in messages(device)
        ]
        return [(due_us, message.topic, message.payload(), message.qos) for due_us, message in everything]

    assert run(7) == run(7)
    assert run(7) != run(8)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_message_names_its_device_and_counts_from_one(profile: str) -> None:
    for device in fleet(profile):
        sent = [message for _, message in messages(device)]
        assert [message.seq for message in sent] == list(range(1, 21))
        for message in sent:
            assert message.body["device"] == message.device == device.name
            assert message.body["seq"] == message.seq
            assert set(message.body) == KEYS[profile]


@pytest.mark.parametrize("form", PayloadForm)
def test_payloads_read_back_as_their_body(form: PayloadForm) -> None:
    read = {PayloadForm.JSON: json.loads, PayloadForm.CBOR: cbor2.loads}[form]
    for device in fleet("vibration", forms=(form,)):
        for _, message in messages(device):
            assert read(message.payload()) == message.body


@given(st.sampled_from(sorted(PROFILES)), st.integers(1, 300))
def test_devices_of_a_fleet_have_names_and_topics_of_their_own(profile: str, count: int) -> None:
    places = [PROFILES[profile].place(index, count) for index in range(count)]
    assert len({place.device for place in places}) == len({place.topic for place in places}) == count
    assert all(place.topic.startswith(f"{profile}/") and place.topic.count("/") == 2 for place in places)


@pytest.mark.parametrize("count", [3, 4, 40, 1_000])
def test_the_second_level_of_a_cold_chain_topic_is_the_truck(count: int) -> None:
    trucks = Counter(PROFILES["cold-chain"].place(index, count).topic.split("/")[1] for index in range(count))
    assert trucks["truck-3"] >= 1
    assert max(trucks.values()) - min(trucks.values()) <= 1


def test_a_run_of_seconds_ends_by_due_time_not_by_the_clock() -> None:
    for device in fleet("weather", rate=5.0, messages_max=None, duration_us=20 * SECOND):
        shaper_options = [due_us for due_us, _ in messages(device)]
        assert shaper_options == sorted(shaper_options)
        assert 0 <= shaper_options[0] < SECOND / 5
        assert shaper_options[-1] < 20 * SECOND
        assert 95 <= len(shaper_options) <= 105  # 5 a second, each period within 10 % of its length


def test_qos_form_and_dialect_are_dealt_in_their_shares() -> None:
    devices = FleetPlan("weather", 40, seed=3, forms=tuple(PayloadForm), dialects=tuple(DeviceDialect)).build()
    assert Counter(device.habits.qos for device in devices) == {0: 24, 1: 12, 2: 4}
    assert Counter(device.habits.form for device in devices) == dict.fromkeys(PayloadForm, 20)
    assert Counter(device.habits.dialect for device in devices) == dict.fromkeys(DeviceDialect, 20)


@given(st.integers(0, 500), st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), st.integers())
def test_a_deal_gives_each_kind_its_share_to_within_one(count: int, shares: list[float], seed: int) -> None:
    hand = deal(count, range(len(shares)), shares, Random(seed))
    assert len(hand) == count
    for kind, share in enumerate(shares):
        assert abs(hand.count(kind) - count * share / sum(shares)) < 1


def test_units_of_one_truck_see_the_same_door_and_place_whatever_their_rates() -> None:
    def seen(rate: float) -> dict[int, tuple[object, object]]:
        device = fleet("cold-chain", rate=rate, messages_max=2_000)[0]
        return {due_us: (message.body["door_open"], message.body["pos"]) for due_us, message in messages(device)}

    slow, fast = seen(1.0), seen(7.0)
    other = {due: message.body["door_open"] for due, message in messages(fleet("cold-chain", messages_max=2_000)[4])}
    openings = [sum(bool(door) for door, _ in run.values()) / len(run) for run in (slow, fast)]
    assert fast.keys() != slow.keys()
    assert 0.05 < openings[0] < 0.5
    door = {due_us // SECOND: opened for due_us, (opened, _) in slow.items()}
    same = [door[due_us // SECOND] == opened for due_us, opened in other.items() if due_us // SECOND in door]
    assert statistics.mean(same) > 0.9  # two samples of one second of the run lie up to a minute of the world apart


def test_an_open_door_warms_the_box_and_a_shut_one_cools_it_again() -> None:
    open_c, shut_c = [], []
    for device in fleet("cold-chain", rate=5.0, messages_max=3_000, devices=4):
        for _, message in messages(device):
            assert isinstance(message.body["temperature"], float)
            (open_c if message.body["door_open"] else shut_c).append(message.body["temperature"])
    assert statistics.mean(open_c) > statistics.mean(shut_c) + 2
    assert statistics.median(shut_c) < 8 < max(open_c)
    assert min(shut_c) > 2


def test_vibration_adds_up() -> None:
    for device in fleet("vibration", messages_max=100):
        for _, message in messages(device):
            body = message.body
            assert isinstance(body["axes"], list)
            mean_square = sum(axis**2 for axis in body["axes"]) / 3  # type: ignore[operator, misc]
            assert body["rms"] == pytest.approx(mean_square**0.5, abs=0.002)
            assert body["peak"] == pytest.approx(body["rms"] * body["crest"], rel=0.03, abs=0.003)  # type: ignore[operator]


def test_a_storm_brings_wind_rain_and_low_pressure() -> None:
    readings = [m.body for d in fleet("weather", devices=4, messages_max=3_000) for _, m in messages(d)]
    wet = [body for body in readings if body["rain"] > 5]  # type: ignore[operator]
    dry = [body for body in readings if body["rain"] == 0]
    assert wet
    for name, sign in (("wind", 1), ("humidity", 1), ("pressure", -1)):
        gap = statistics.mean(b[name] for b in wet) - statistics.mean(b[name] for b in dry)  # type: ignore[type-var, operator]
        assert sign * gap > 2  # type: ignore[operator]


def test_a_walk_keeps_its_mean_and_deviation() -> None:
    walk = RandomWalk(Random(11), mean=20.0, deviation=3.0, memory_s=60.0)
    values = [walk.at(30.0 * step) for step in range(20_000)]
    assert statistics.mean(values) == pytest.approx(20.0, abs=0.3)
    assert statistics.stdev(values) == pytest.approx(3.0, rel=0.05)


@given(st.lists(st.floats(0.0, 5_000.0), max_size=30), st.integers(0, 1_000))
def test_what_a_process_shows_does_not_depend_on_when_else_it_was_asked(times: list[float], seed: int) -> None:
    end_s = 5_000.0
    for make in (lambda: RandomWalk(Random(seed), 0.0, 1.0, 100.0), lambda: Episodes(Random(seed), 100.0, 30.0)):
        asked, fresh = make(), make()
        for t_s in sorted(times):
            asked.at(t_s)
        assert asked.at(end_s) == fresh.at(end_s)


def test_episodes_are_on_for_their_share_of_the_time() -> None:
    episodes = Episodes(Random(5), gap_s=90.0, length_s=30.0)
    assert statistics.mean(episodes.at(float(t_s)) for t_s in range(200_000)) == pytest.approx(0.25, abs=0.02)


@given(st.floats(0.1, 100.0), st.floats(0.1, 100.0))
def test_a_lag_moves_as_far_in_two_steps_as_in_one(first_s: float, second_s: float) -> None:
    one, two = ThermalLag(0.0), ThermalLag(0.0)
    for lag in (one, two):
        lag.towards(10.0, 30.0, 0.0)
    two.towards(10.0, 30.0, first_s)
    assert two.towards(10.0, 30.0, first_s + second_s) == pytest.approx(one.towards(10.0, 30.0, first_s + second_s))


def test_the_day_is_warmest_in_the_afternoon() -> None:
    assert day_cycle(15 * HOUR_S) == pytest.approx(1.0)
    assert day_cycle(3 * HOUR_S) == pytest.approx(-1.0)
    assert day_cycle(15 * HOUR_S + 3 * DAY_S) == pytest.approx(1.0)


def test_a_tour_has_no_jumps() -> None:
    tour = RoundTrip(Random(1))
    places = [tour.at(MINUTE_S * minute) for minute in range(300)]
    for (lat, lon), (next_lat, next_lon) in pairwise(places):
        assert abs(next_lat - lat) * 111 < 2.5  # km in a minute
        assert abs(next_lon - lon) * 75 < 2.5


def test_streams_of_different_names_are_unrelated() -> None:
    streams = Streams("1")
    assert streams.named("a").random() == Streams("1").named("a").random()
    assert streams.named("a").random() != streams.named("b").random()
