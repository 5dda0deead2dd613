"""Transcripts are the language of the stories: what they accept, what they find, and how they say it."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.wire.dialect import V5, V311
from edgebridge.wire.packets import Connect, Publish, Subscribe, SubscriptionOption, Will
from edgebridge.wire.properties import Property as P
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.conditions import LineConditions, anywhere, bytewise
from edgelab.simworld.notation import NotationInvalid, read_packet, show_packet
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.transcript import TranscriptDiffers, TranscriptPlayer, parse

# -- packets as text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "CONNECT id=alice clean=0 keep-alive=60 username=a password=0x00ff session=60 receive-max=2",
        'CONNECT id=alice will=t/w will-payload="good bye" will-qos=1 will-retain=1 will-delay=5 will-user.a=b',
        "CONNACK present=1 session=7 assigned=x alias-max=3 user.filter=1",
        "CONNACK reason=0x86",
        'PUBLISH t/1 id=7 qos=1 dup=1 expiry=10 correlation=0xff sub=1,2 user.k=v user.k="w x" "pay\\nload"',
        'PUBLISH "with space" retain=1',
        'PUBLISH t "0x00ff"',
        'PUBLISH t ""'.removesuffix(' ""'),
        "PUBACK id=1 reason=0x10",
        'PUBREC id=1 reason=0x97 why="too much"',
        "PUBREL id=1",
        "PUBCOMP id=1 reason=0x92",
        "SUBSCRIBE id=3 sub=5 user.$where='a = \"b\"' t/# qos=2 no-local=1 as-published=1 handling=2 u",
        "SUBACK id=3 granted=2,0x8F",
        "UNSUBSCRIBE id=4 t/# u",
        "UNSUBACK id=4 reasons=0,0x11",
        "PINGREQ",
        "PINGRESP",
        "DISCONNECT reason=0x8E",
        "AUTH reason=0x18 method=SCRAM data=0x00ff",
    ],
)
def test_a_packet_is_shown_as_it_was_written(line: str) -> None:
    assert show_packet(read_packet(line)) == line


def test_packets_mean_what_they_say() -> None:
    assert read_packet('PUBLISH t/1 qos=1 id=7 "payload"') == Publish("t/1", b"payload", 1, packet_id=7)
    assert read_packet("PUBLISH t 0x00ff") == Publish("t", b"\0\xff")
    assert read_packet("SUBSCRIBE a qos=1 b sub=3") == Subscribe(
        0, [SubscriptionOption("a", 1), SubscriptionOption("b")], {P.SUBSCRIPTION_IDENTIFIER: [3]}
    )
    assert read_packet("CONNECT id=a will=w will-delay=3") == Connect(
        "a", will=Will("w", b"", properties={P.WILL_DELAY_INTERVAL: 3})
    )


@pytest.mark.parametrize(
    "line", ["PUBLICH t", "PUBLISH t qos=x", "PUBLISH t colour=red", "PUBACK t", "PUBACK reason=7"]
)
def test_what_is_no_packet_is_refused(line: str) -> None:
    with pytest.raises(NotationInvalid):
        read_packet(line)


# -- scripts -----------------------------------------------------------------------------------------------------


def test_columns_and_lines_are_the_same() -> None:
    columns = parse("a > CONNECT   a < CONNACK   b > CONNECT\n-- a comment\n\n   b < CONNACK   wait 3s")
    lines = parse("a   > CONNECT\na < CONNACK\nb > CONNECT\nb < CONNACK\nwait 3s")
    assert columns == lines
    assert [step.action for step in lines] == ["a > CONNECT", "b > CONNECT", "wait 3s"]


@pytest.mark.parametrize("script", ["alice CONNECT", "alice < CONNACK", "wait long", "alice jumps"])
def test_what_is_no_script_is_refused(script: str) -> None:
    with pytest.raises(NotationInvalid):
        parse(script)


@pytest.fixture
def player() -> TranscriptPlayer:
    player = TranscriptPlayer(SimulatedBroker(Simulation()))
    player.play("""
    alice > CONNECT         alice < CONNACK
    alice > SUBSCRIBE t/#   alice < SUBACK granted=0
    """)
    return player


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('alice > PUBLISH t/1 "x"', '+alice < PUBLISH t/1 "x"'),
        ("alice > PUBLISH t/1    alice < PUBLISH t/2", "-alice < PUBLISH t/2"),
        ('alice > PUBLISH t/1 "x"    alice < PUBLISH t/1', '+alice < PUBLISH t/1 "x"'),
        ("alice > PUBLISH t/1    alice < PUBLISH t/1    alice < PUBLISH t/1", "-alice < PUBLISH t/1"),
        ("alice > PUBLISH t/1 user.a=b    alice < PUBLISH t/1", "+alice < PUBLISH t/1 user.a=b"),
        ("alice > PUBLISH t/1    wait 9s    wait 1s    alice < PUBLISH t/1", "+alice < PUBLISH t/1"),
        ("alice > PUBLISH t/1    bob opens    alice < PUBLISH t/1", "+alice < PUBLISH t/1"),
        ("alice > PUBLISH u    alice < CLOSED", "-alice < CLOSED"),
        ("alice > PINGREQ id=1", "no 'id'"),
        ("alice > SUBSCRIBE +#    alice < SUBACK", "+alice < SUBACK id=2 granted=0x8F"),
        (
            "alice > SUBSCRIBE $share/g   alice < SUBACK granted=0x8F why~nonsense",
            "+alice < SUBACK id=2 granted=0x8F",
        ),
        ("alice > 0xf100    alice < DISCONNECT reason=0x82    alice < CLOSED", "+alice < DISCONNECT reason=0x81"),
    ],
)
def test_everything_must_be_accounted_for(player: TranscriptPlayer, script: str, said: str) -> None:
    with pytest.raises((TranscriptDiffers, NotationInvalid)) as caught:
        player.play(script)
    assert said in str(caught.value)


def test_the_difference_is_shown_as_two_scripts(player: TranscriptPlayer) -> None:
    with pytest.raises(TranscriptDiffers) as caught:
        player.play("""
        alice > PUBLISH t/1 "one"   alice < PUBLISH t/1 "one"
        alice > PUBLISH t/1 "two"   alice < PUBLISH t/1 "three"
        """)
    assert str(caught.value).splitlines()[-6:] == [
        "@@ -1,4 +1,4 @@",
        ' alice > PUBLISH t/1 "one"',
        ' alice < PUBLISH t/1 "one"',
        ' alice > PUBLISH t/1 "two"',
        '-alice < PUBLISH t/1 "three"',
        '+alice < PUBLISH t/1 "two"',
    ]


# -- the network -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chop", [anywhere, bytewise])
@pytest.mark.parametrize("dialect", [V311, V5])
def test_a_line_delivers_every_byte_in_order(chop: Any, dialect: Any) -> None:
    player = TranscriptPlayer(SimulatedBroker(Simulation(7)), dialect, LineConditions((0, 50_000), chop))
    player.play("alice > CONNECT    alice < CONNACK\nalice > SUBSCRIBE t    alice < SUBACK granted=0")
    for number in range(50):
        player.play(f'alice > PUBLISH t "{number}"    alice < PUBLISH t "{number}"')


def test_a_cut_loses_what_is_on_its_way() -> None:
    player = TranscriptPlayer(SimulatedBroker(Simulation()))
    player.play("alice > CONNECT    alice < CONNACK\nbob > CONNECT    bob < CONNACK")
    player.play("alice > SUBSCRIBE t    alice < SUBACK granted=0")
    bob = player.clients["bob"]
    bob.send(Publish("t", b"in time"))
    player.broker.simulation.run_while(lambda: player.broker.is_busy)
    bob.send(Publish("t", b"lost"))
    bob.cut()
    player.play('wait 1s    alice < PUBLISH t "in time"')
    assert len(player.broker.frontend.connections) == 1


def test_lines_overtake_each_other_but_not_themselves() -> None:
    """Two publishers with different delays: the slower one's first message arrives after the faster one's second."""
    player = TranscriptPlayer(SimulatedBroker(Simulation()))
    player.play("alice > CONNECT    alice < CONNACK\nalice > SUBSCRIBE t    alice < SUBACK granted=0")
    player.conditions = LineConditions((90_000, 90_000))
    player.play("slow > CONNECT    slow < CONNACK")
    player.conditions = LineConditions((10_000, 10_000))
    player.play("fast > CONNECT    fast < CONNACK")
    for name in ("slow", "fast", "fast", "slow"):
        player.clients[name].send(Publish("t", name.encode()))
    player.play(
        'wait 1s    alice < PUBLISH t "fast"    alice < PUBLISH t "fast"'
        '    alice < PUBLISH t "slow"    alice < PUBLISH t "slow"'
    )


def test_both_sides_may_close_at_once() -> None:
    player = TranscriptPlayer(SimulatedBroker(Simulation()))
    player.play("alice > CONNECT    alice < CONNACK")
    client, simulation = player.clients["alice"], player.broker.simulation
    assert client.line is not None
    client.write(b"\xf1\x00")
    simulation.run_until(simulation.now + 1_000)  # the broker has closed, and the client does not know yet
    client.line.leave()
    player.play("wait 1s")  # who has left hears nothing more
    assert not player.broker.lines
    assert not player.broker.frontend.connections
