"""Bridge pairs: of the bridges of several gateways to one remote one is active, and another takes over in time."""

from __future__ import annotations

import pytest

from edgebroker.federation.bridge_pairs import PAIRS_TOPIC, BridgePair, PairRole, PairStatement
from edgebroker.instants import SECOND, Duration
from edgelab.simworld.federation import Federation

from ..support.routers import federation

TAKEOVER = 15 * SECOND
GRACE = 3 * SECOND
"""What is added: the interval of checks, and what it takes until a gateway is found dead."""


def pair_of(made: Federation, gateway: str) -> BridgePair:
    pair = made.peers[gateway].pairs.find("cloud")
    assert pair is not None
    return pair


def join(made: Federation, *gateways: str, ready: bool = True) -> None:
    for gateway in gateways:
        made.perform(gateway, made.peers[gateway].join_pair("cloud", TAKEOVER, made.now))
        pair_of(made, gateway).is_ready = ready
    made.settle()


def active(made: Federation) -> list[str]:
    pairs = {name: router.pairs.find("cloud") for name, router in made.peers.items()}
    return [name for name, pair in pairs.items() if pair is not None and pair.role is PairRole.ACTIVE]


def made_pair(*gateways: str, clusters: int = 3, ready: bool = True) -> Federation:
    """These gateways are a pair, and the first of them is active."""
    made = federation(clusters=clusters)
    join(made, *gateways, ready=ready)
    made.advance(TAKEOVER + GRACE)
    assert active(made) == [gateways[0]]
    return made


def advance_until_active(made: Federation, gateway: str, most: Duration) -> Duration:
    begun = made.now
    while active(made) != [gateway]:
        made.advance(SECOND // 4)
        assert made.now - begun <= most, active(made)
    return made.now - begun


@pytest.mark.parametrize("gateways", [("a.0", "a.1"), ("a.0", "b.1", "a.2")])
def test_one_of_a_pair_is_active_at_one_site_and_over_sites(gateways: tuple[str, ...]) -> None:
    made = made_pair(*gateways)
    assert [pair_of(made, gateway).role for gateway in gateways[1:]] == [PairRole.STANDBY] * (len(gateways) - 1)
    made.advance(600 * SECOND)
    assert active(made) == [gateways[0]]
    assert sum(pair_of(made, gateway).takeovers for gateway in gateways) == 1


def test_an_idle_pair_says_nothing() -> None:
    made = made_pair("a.0", "a.1")
    made.sent.clear()
    made.advance(600 * SECOND)
    assert [message for _, _, message in made.sent if getattr(message, "topic", "") == PAIRS_TOPIC] == []


def test_another_takes_over_when_the_active_one_is_not_reached_for_so_long() -> None:
    made = made_pair("a.0", "a.1", "b.2")
    made.kill("a.0")
    made.settle()
    assert advance_until_active(made, "a.1", TAKEOVER + GRACE) >= TAKEOVER
    assert pair_of(made, "b.2").holder == pair_of(made, "a.1").holder
    join_again(made, "a.0")
    assert active(made) == ["a.1"]
    assert pair_of(made, "a.0").role is PairRole.STANDBY
    made.advance(600 * SECOND)
    assert active(made) == ["a.1"]


def join_again(made: Federation, gateway: str) -> None:
    """It starts again, with a bridge that is not connected yet."""
    made.revive(gateway, {})
    join(made, gateway, ready=False)
    made.advance(2 * SECOND)


def test_who_starts_again_in_time_goes_on() -> None:
    made = made_pair("a.0", "a.1")
    made.kill("a.0")
    made.settle()
    made.advance(TAKEOVER // 2)
    join_again(made, "a.0")
    assert active(made) == ["a.0"]
    pair_of(made, "a.0").is_ready = True
    made.advance(60 * SECOND)
    assert (active(made), pair_of(made, "a.1").takeovers) == (["a.0"], 0)


def test_another_takes_over_when_the_remote_is_not_there_for_the_active_one_alone() -> None:
    made = made_pair("a.0", "a.1", "b.2")
    pair_of(made, "a.0").is_ready = pair_of(made, "a.1").is_ready = False
    assert advance_until_active(made, "b.2", TAKEOVER + GRACE) >= TAKEOVER
    for gateway in ("a.0", "a.1", "b.2"):
        pair_of(made, gateway).is_ready = False
    made.advance(600 * SECOND)
    assert active(made) == ["b.2"], "the remote is there for nobody: who keeps messages goes on"


def test_somebody_keeps_messages_though_the_remote_is_there_for_nobody() -> None:
    made = made_pair("a.0", "a.1", ready=False)
    made.kill("a.0")
    made.settle()
    assert advance_until_active(made, "a.1", TAKEOVER + GRACE) <= TAKEOVER + GRACE


def test_who_leaves_is_followed_at_once() -> None:
    made = made_pair("a.0", "a.1")
    made.perform("a.0", made.peers["a.0"].leave_pair("cloud", made.now))
    made.settle()
    assert advance_until_active(made, "a.1", GRACE) <= GRACE


def test_parts_that_do_not_reach_each_other_have_one_each_and_the_later_one_stays() -> None:
    made = made_pair("a.0", "a.1", clusters=2)
    for one, other in [pair for pair in made.pairs() if {pair[0][-1], pair[1][-1]} == {"0", "1"}]:
        made.cut(one, other)
    made.advance(TAKEOVER + GRACE)
    assert active(made) == ["a.0", "a.1"]
    for one, other in [pair for pair in made.pairs() if pair not in made.links]:
        made.connect(one, other)
    made.settle()
    assert active(made) == ["a.1"]


def test_a_statement_is_read_as_it_was_written_and_nothing_else_is() -> None:
    statement = PairStatement("cloud", 7, 2, True, wants_answer=True)
    assert PairStatement.decode(statement.encode()) == statement
    assert PairStatement.decode(b"\x81\x00") is None
    assert PairStatement.decode(b"") is None
    assert PairStatement.decode(PairStatement("cloud", -1, 2, True).encode()) is None
