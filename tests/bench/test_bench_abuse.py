"""`edgebroker bench abuse` hits with every attack, and what is told about it adds up. No speed is looked at."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgebridge.session.subscription_text import parse_subscription
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V311
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import Connect, Publish, Subscribe
from edgebroker.runtime.settings import Settings
from edgelab.bench import command, packets
from edgelab.bench.abuse import attacker, share_attacks
from edgelab.bench.abuse.attack import Attack
from edgelab.bench.abuse.attacker import ATTACKS
from edgelab.bench.abuse.report import as_json, as_table, is_met
from edgelab.bench.abuse.trial import COUNTER, AbuseOutcome

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the benchmark needs Linux")
CAP_MIB = 256
HITS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "lengths": lambda counted: any("packet_too_large" in name for name in counted),
    "never-reads": lambda counted: any("dropped" in name for name in counted),
    "filters": lambda counted: any("filters_too_costly" in name for name in counted),
    "groups": lambda counted: any("shared_groups" in name for name in counted),
    "theft": lambda counted: any("client_identifier_not_valid" in name for name in counted),
}
"""What the gateway must have counted of some attacks, even of small ones."""


LONGER_S = ("1", "4", "16")
"""An attacker has what the others leave of a core: on a busy machine nothing for a while, or too little."""


def is_hit(attack: dict[str, Any]) -> bool:
    counts = HITS.get(attack["name"])
    return counts is None or counts(attack["counted"])


def attacked(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(command, ["abuse", "--quick", "--json", *options])
    assert done.exit_code in (0, 1), done.output
    told: dict[str, Any] = json.loads(done.stdout)
    assert (done.exit_code == 0) == all(attack["met"] for attack in told["attacks"])
    return told


@LINUX
@pytest.mark.live
@pytest.mark.slow
@pytest.mark.parametrize("half", range(2))
def test_every_attack_hits_and_the_gateway_lives(half: int) -> None:
    names = list(ATTACKS)[half::2]
    told = attacked(*(word for name in names for word in ("--only", name)))
    assert told["load"]["rate"] > 0
    assert [attack["name"] for attack in told["attacks"]] == names
    for attack in told["attacks"]:
        name = attack["name"]
        for seconds in LONGER_S:
            if attack["done"] and is_hit(attack):
                break
            (attack,) = attacked("--only", name, "--seconds", seconds)["attacks"]
        assert attack["failure"] == "", name
        assert attack["done"] > 0, name
        for load, carried in (("fixed", "share"), ("full", "per_s")):
            samples = attack[load]
            assert [len(samples[when]) for when in ("calm", "attacked")] == [2, 1], "before, under attack, after"
            taken = (*samples["calm"], *samples["attacked"])
            assert all(sample[carried] > 0 and sample["busy"] > 0 for sample in taken), name
        assert 0 < attack["rss_mib"]["before"] <= attack["rss_mib"]["peak"] < CAP_MIB, name
        assert is_hit(attack), (name, attack["counted"])


ABOUT = {"version": "x", "machine": {"cores": 2}, "load": {"rate": 9_000, "busy": 0.5, "generator_busy": 0.4}}


def samples(key: str, *values: float, lost: int = 0) -> list[dict[str, float]]:
    return [
        {key: value, "p99_ms": 1.0, "max_ms": 2.0, "busy": 0.5, "kept_waiting": 0.0, "lost": lost} for value in values
    ]


def outcome(
    hit: float = 0.95, lost: int = 0, peak: float = 100, failure: str = "", refused: int = 0, slowest_s: float = 0.1
) -> AbuseOutcome:
    made = AbuseOutcome("wills", "many wills", "wills", failure=failure)
    made.newcomer = {"tries": 9, "refused": refused, "slowest_s": slowest_s}
    if not failure:
        made.fixed_calm, made.fixed_hit = samples("share", 1.0, 1.0), samples("share", hit, lost=lost)
        made.full_calm, made.full_hit = samples("per_s", 1_000, 1_200), samples("per_s", 110)
        made.rss_mib = {"before": 30, "peak": peak, "after": 40}
    return made


@pytest.mark.parametrize(
    ("made", "met"),
    [
        (outcome(), True),
        (outcome(hit=0.9), True),
        (outcome(hit=0.89), False),
        (outcome(hit=1.2), True),
        (outcome(lost=1), False),
        (outcome(peak=257), False),
        (outcome(failure="the gateway is gone"), False),
        (outcome(refused=1), False),
        (outcome(slowest_s=2.1), False),
    ],
)
def test_an_attack_is_withstood_if_little_of_the_fixed_rate_is_lost(made: AbuseOutcome, met: bool) -> None:
    assert is_met(made, CAP_MIB) is met
    (told,) = json.loads(as_json([made], CAP_MIB, ABOUT))["attacks"]
    assert told["met"] is met
    table = as_table([made], CAP_MIB, ABOUT)
    assert ("failed: the gateway is gone" in table) == bool(made.failure)
    assert ("1 messages of the well-behaved never came" in table) == bool(made.lost)
    assert "a newcomer connected 9 times, " in table


def test_a_machine_with_other_work_is_named() -> None:
    made = outcome()
    assert "Measure again" not in as_table([made], CAP_MIB, ABOUT)
    for sample in made.fixed_calm:
        sample["kept_waiting"] = 0.2
    assert "waited 20% of the time for its core" in as_table([made], CAP_MIB, ABOUT)


def test_the_loss_is_against_before_and_after_the_median_of_the_rounds() -> None:
    made = outcome()
    assert made.full_loss() == pytest.approx(0.9)
    assert made.drift == pytest.approx(0.2)
    made.fixed_calm, made.fixed_hit = samples("share", 1.0, 0.9, 0.9, 1.0), samples("share", 0.19, 0.81, 0.76)
    assert made.loss() == pytest.approx(0.2)
    assert outcome(failure="x").loss() is None
    made.fixed_calm, made.fixed_hit = samples("share", 0.0, 0.0), samples("share", 0.0)
    assert made.loss() == 1, "it has not recovered from the round before"


def test_counters_of_refusals_are_found() -> None:
    text = 'edgebroker_refusals_total{reason="x"} 3\nedgebroker_messages_published_total 4\n'
    text += 'edgebroker_copies_dropped_total 5e2\nedgebroker_displaced_total{cause="session"} 2\n'
    assert COUNTER.findall(text) == [
        ('edgebroker_refusals_total{reason="x"}', "3"),
        ("edgebroker_copies_dropped_total", "5e2"),
        ('edgebroker_displaced_total{cause="session"}', "2"),
    ]


# -- the packets are what they are meant to be -----------------------------------------------------------------


def decoded(data: bytes) -> list[Any]:
    framer = Framer(1 << 20)
    framer.feed(data)
    found = []
    while (frame := framer.next_frame()) is not None:
        found.append(decode_packet(*frame, V311))
    return found


class Catcher:
    """A crowd of one that keeps what is said to it."""

    def __init__(self) -> None:
        self.members = [object()]
        self.said = b""

    def push_all(self, member: object, data: bytes) -> bool:
        self.said += data
        return True


@pytest.mark.parametrize(
    ("attack", "kinds"),
    [
        (attacker.DeepTopics, {Publish, Subscribe}),
        (attacker.SubscriptionFlood, {Subscribe}),
        (attacker.RetainedFlood, {Publish}),
        (attacker.FilterBombs, {Subscribe}),
        (share_attacks.SharedGroupsFlood, {Subscribe}),
    ],
)
def test_floods_are_legal_packets_and_never_the_same(attack: Any, kinds: set[type]) -> None:
    made = attack(0, 1.0)
    made.crowd = Catcher()
    made.prepare()
    assert made.strike() > 0
    first, made.crowd.said = made.crowd.said, b""
    made.strike()
    assert first != made.crowd.said
    assert {type(packet) for packet in decoded(first)} == kinds


def test_the_largest_filters_are_taken() -> None:
    for make in (attacker.widest, attacker.steepest):
        request = parse_subscription(f"$filter/{make(19_999)}/#")
        assert request.filter is not None
        assert len(request.filter.predicates) == 64


def test_a_connect_with_a_user_is_what_it_is_meant_to_be() -> None:
    (kept, named) = decoded(
        share_attacks.connect("a", clean=False) + share_attacks.connect("b", user="anna", password="apple")
    )
    assert (kept.client_id, kept.clean_start, kept.username) == ("a", False, None)
    assert (named.client_id, named.clean_start, named.username, named.password) == ("b", True, "anna", b"apple")


@pytest.mark.parametrize("attack", [one for one in ATTACKS.values() if one.has_newcomer], ids=lambda one: one.name)
def test_the_settings_of_an_attack_hold(attack: type[Attack], tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(attack.configure(tmp_path))
    assert not Settings.load(path).warnings


def test_a_will_and_a_giant_are_connects() -> None:
    (connect,) = decoded(packets.connect("a", ("t", b"gone")))
    assert isinstance(connect, Connect)
    assert connect.will is not None
    assert (connect.will.topic, connect.will.payload, connect.will.retain) == ("t", b"gone", True)
    giant = attacker.GiantConnects(0, 1.0)
    giant.prepare()
    (connect,) = decoded(giant._connect)
    assert len(connect.client_id) == attacker.TEXT_MAX
    assert len(connect.properties) == 1
    assert len(giant._connect) > 400_000
