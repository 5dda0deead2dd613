"""Mosquitto and our broker do the same with generated scripts, but for what docs/differences.md explains."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from .differential import brokers
from .differential.comparison import CLASSES, compare, play
from .differential.player import CLOSED, Player, Received, in_order
from .differential.scripts import script
from .differential.shrinking import shrunk

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(brokers.MOSQUITTO is None, reason="Mosquitto is not installed"),
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "differences.md"
SEED = 20_240_229
SCRIPTS = 100


@pytest.fixture(scope="module")
def players(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Player, Player]]:
    folder = tmp_path_factory.mktemp("brokers")
    with brokers.mosquitto(folder) as theirs, brokers.edgebroker(folder) as ours:
        yield Player(theirs), Player(ours)


@pytest.mark.parametrize("first", range(0, SCRIPTS, 20))
def test_every_difference_is_explained(players: tuple[Player, Player], first: int) -> None:
    for number in range(first, first + 20):
        drawn = script(SEED, number)
        found = play(drawn, *players)
        if found.unexplained:
            short = shrunk(drawn, lambda lines: bool(play(lines, *players).unexplained))
            command = f"python tools/differential.py --seed {SEED} --first {number} --scripts 1"
            pytest.fail("\n".join([command, *short, play(short, *players).unexplained or found.unexplained]))


def test_the_command_of_the_page_compares_them_too() -> None:
    """Three scripts where it says 2,000."""
    [command] = re.findall(r"`python (tools/differential\.py [^`]+)`", PAGE.read_text(encoding="utf-8"))
    few = re.sub(r"--scripts \d+", "--scripts 3", command)
    assert few != command
    done = subprocess.run(
        [sys.executable, *few.split()], cwd=PAGE.parents[1], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.findall(r"^ *[\d,]+ in +[\d,]+ scripts  (\w+)$", done.stdout, re.M)
    assert counts == list(CLASSES)
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"3 scripts with \d+ lines, seed 1, in \d+ s: no unexplained differences", last)


# -- the comparison notices ----------------------------------------------------------------------------------------

Fault = Callable[[list[str]], list[str] | None]
"""What a broken broker's client receives instead; None if the fault cannot show in these lines."""


def lose_a_message(lines: list[str]) -> list[str] | None:
    return _without(lines, "PUBLISH ")


def send_a_message_twice(lines: list[str]) -> list[str] | None:
    messages = [line for line in lines if line.startswith("PUBLISH ")]
    return in_order([*lines, messages[-1]]) if messages else None


def answer_nothing(lines: list[str]) -> list[str] | None:
    return _without(lines, "PUBACK ") or _without(lines, "SUBACK ") or _without(lines, "UNSUBACK ")


def grant_too_much(lines: list[str]) -> list[str] | None:
    return _with(lines, r"(SUBACK id=\d+ granted=)0", r"\g<1>1")


def forget_the_session(lines: list[str]) -> list[str] | None:
    return _with(lines, r"CONNACK present=1", "CONNACK")


def acknowledge_another(lines: list[str]) -> list[str] | None:
    return _with(lines, r"(PUBACK|PUBREC|PUBCOMP) id=(\d+)", r"\1 id=\g<2>9")


def alter_the_payload(lines: list[str]) -> list[str] | None:
    return _with(lines, r'(PUBLISH .*)"(\d+)"', r'\1"x\2"')


def lose_a_property(lines: list[str]) -> list[str] | None:
    return _with(lines, r" (user\.a=b|expiry=1000|type=text/plain|response=re/ply|format=1)", "")


def close_for_nothing(lines: list[str]) -> list[str] | None:
    return None if CLOSED in lines else [*lines, CLOSED]


def raise_the_qos(lines: list[str]) -> list[str] | None:
    return _with(lines, r"(PUBLISH .*)qos=1", r"\1qos=2")


def _without(lines: list[str], beginning: str) -> list[str] | None:
    left = list(lines)
    for line in lines:
        if line.startswith(beginning):
            left.remove(line)
            return left
    return None


def _with(lines: list[str], pattern: str, by: str) -> list[str] | None:
    found = [re.sub(pattern, by, line, count=1) for line in lines]
    return in_order(found) if found != lines else None


FAULTS: tuple[Fault, ...] = (
    lose_a_message,
    send_a_message_twice,
    answer_nothing,
    grant_too_much,
    forget_the_session,
    acknowledge_another,
    alter_the_payload,
    lose_a_property,
    close_for_nothing,
    raise_the_qos,
)


@pytest.fixture(scope="module")
def transcripts(players: tuple[Player, Player]) -> list[tuple[list[str], list[Received], list[Received]]]:
    drawn = [script(SEED, number) for number in range(30)]
    return [(lines, players[0].play(lines), players[1].play(lines)) for lines in drawn]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_a_broken_broker_does_is_not_explained(
    transcripts: list[tuple[list[str], list[Received], list[Received]]], fault: Fault
) -> None:
    """Planted where the two agree: a rule that explained it would explain anything."""
    planted = 0
    for number, (lines, theirs, ours) in enumerate(transcripts):
        chance = Random(number)
        places = [(at, name) for at, there in enumerate(theirs) for name in there if ours[at].get(name) == there[name]]
        chance.shuffle(places)
        for at, name in places[:15]:
            broken = fault(ours[at][name])
            if broken is None:
                continue
            worse = copy.deepcopy(ours)
            worse[at][name] = broken
            if not broken:
                del worse[at][name]
            found = compare(lines, theirs, worse)
            assert found.unexplained.startswith(f"line {at + 1}:"), (number, lines[: at + 1], broken)
            planted += 1
            break
    assert planted > 3, "the fault has no place to show"


def test_what_is_sent_again_comes_first(players: tuple[Player, Player]) -> None:
    """Where Mosquitto sends it once, at the QoS of the first subscription, it cannot say so."""
    lines = [
        "b > CONNECT id=b v=3.1.1 clean=0 keep-alive=300",
        "c > CONNECT id=c v=3.1.1 clean=0 keep-alive=65535 will=a/ will-payload=w2 will-qos=1",
        "c holds",
        "c > SUBSCRIBE +/+ qos=0",
        "c > SUBSCRIBE # qos=1",
        'b > PUBLISH a/ qos=2 "6"',
        "c drops",
        "c > CONNECT id=c v=3.1.1 clean=0 keep-alive=65535",
    ]
    theirs, ours = (player.play(lines) for player in players)
    found = compare(lines, theirs, ours)
    assert not found.unexplained
    assert "one_subscription_decides" in found.uses
    [answer, again, new] = ours[-1]["c"]
    assert " dup=1" in again
    ours[-1]["c"] = [answer, new, again]
    assert compare(lines, theirs, ours).unexplained.startswith("line 8:")


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ("t qos=1 t qos=2 handling=2", 'PUBLISH t qos=2 retain=1 "1"'),
        ("t qos=2 handling=1 t qos=0 handling=1", 'PUBLISH t retain=1 "1"'),
    ],
)
def test_the_same_filter_twice_counts_as_the_last(players: tuple[Player, Player], entries: str, expected: str) -> None:
    lines = ["b > CONNECT id=b v=5 clean=1", 'b > PUBLISH t qos=2 retain=1 "1"', f"b > SUBSCRIBE {entries}"]
    theirs, ours = (player.play(lines) for player in players)
    found = compare(lines, theirs, ours)
    assert not found.unexplained
    assert found.uses["the_same_filter_twice"] == 1
    assert expected in ours[-1]["b"]
    ours[-1]["b"] = [line.replace(expected, 'PUBLISH t qos=1 retain=1 "1"') for line in ours[-1]["b"]]
    assert compare(lines, theirs, ours).unexplained.startswith("line 3:")


# -- the page ------------------------------------------------------------------------------------------------------


def test_the_page_names_every_class_and_no_other() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE.read_text("utf-8"), re.M)
    assert named == list(CLASSES)


def test_shrinking_keeps_what_matters() -> None:
    lines = [f"a > PUBLISH t {number}" for number in range(20)] + ["b holds ; b > PUBLISH u ; b answers"]

    def fails(lines: list[str]) -> bool:
        text = "\n".join(lines)
        return "PUBLISH t 7" in text and "PUBLISH u" in text

    assert shrunk(lines, fails) == ["a > PUBLISH t 7", "b > PUBLISH u"]
