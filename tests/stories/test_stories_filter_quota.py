"""What content filters of one client, and of many of one user or address, may cost; and that the reason is said."""

from __future__ import annotations

from typing import Any

from edgebridge.frontend.options import Quota
from edgebridge.wire.packets import Subscribe, SubscriptionOption
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND

COME = "a > CONNECT    a < CONNACK"


def test_filters_of_a_client_together(play: Any) -> None:
    play(COME, quota=Quota(filter_tests_max=4))
    play("""
    a > SUBSCRIBE $filter/a%3E1%20AND%20b%3E1/t      a < SUBACK granted=0
    a > SUBSCRIBE $filter/a%3E1%20OR%20b%3E1/t       a < SUBACK granted=0
    a > SUBSCRIBE $filter/a%3E2/t                    a < SUBACK granted=0x97
    a > SUBSCRIBE $filter/a%3E1%20AND%20b%3E1/t      a < SUBACK granted=0
    a > SUBSCRIBE t                                  a < SUBACK granted=0
    a > UNSUBSCRIBE $filter/a%3E1%20OR%20b%3E1/t     a < UNSUBACK
    a > SUBSCRIBE $filter/a%3E2/t                    a < SUBACK granted=0
    """)


def test_patterns_and_attributes_of_a_client_together(play: Any) -> None:
    """Each is tried for every message, or looked for in it; a plain prefix is neither, and a name counts once."""
    play(COME, quota=Quota(filter_patterns_max=1, filter_attributes_max=2))
    play("""
    a > SUBSCRIBE $filter/a%20LIKE%20'%25x%25'/t     a < SUBACK granted=0
    a > SUBSCRIBE $filter/a%20LIKE%20'%25y%25'/t     a < SUBACK granted=0x97
    a > SUBSCRIBE $filter/a%20LIKE%20'y%25'/t        a < SUBACK granted=0
    a > SUBSCRIBE $filter/b%3E1/t                    a < SUBACK granted=0
    a > SUBSCRIBE $filter/c%3E1/t                    a < SUBACK granted=0x97
    a > SUBSCRIBE $filter/b%3E2%20AND%20a%3E1/t      a < SUBACK granted=0
    a > UNSUBSCRIBE $filter/a%20LIKE%20'%25x%25'/t   a < UNSUBACK
    a > SUBSCRIBE $filter/a%20LIKE%20'%25y%25'/t     a < SUBACK granted=0
    """)
    assert play.broker.frontend.subscribe_handler.refused == {"filters_too_costly": 2}


def test_many_identifiers_are_no_way_round(play: Any) -> None:
    """All clients of one address have two clients' worth together here; it is theirs again when one goes."""
    one, two, three = (f"$filter/a%3E{n}%20AND%20b%3E{n}/t" for n in range(3))
    play(COME, quota=Quota(filter_tests_max=2, filter_clients_max=2))
    play("b > CONNECT    b < CONNACK    c > CONNECT    c < CONNACK")
    for port, name in enumerate("abc"):
        play.client(name).line.connection.peer = f"192.0.2.1:{port}"
    play(f"a > SUBSCRIBE {one}    a < SUBACK granted=0    b > SUBSCRIBE {two}    b < SUBACK granted=0")
    play(f"c > SUBSCRIBE {three}    c < SUBACK granted=0x97")
    play("c > SUBSCRIBE t    c < SUBACK granted=0")
    filters = play.broker.frontend.subscribe_handler.filter_quota
    assert len(filters) == 1
    play("a leaves")
    play(f"c > SUBSCRIBE {three}    c < SUBACK granted=0")
    play("b leaves    c leaves")
    assert not len(filters)


def test_five_hundred_ordinary_filters_are_fine(play: Any) -> None:
    """Of the kinds people write, on the attributes of a fleet."""
    play(COME)
    for number in range(125):
        for kind in (
            "temp%3E{n}%20AND%20site='s{n}'",
            "hum%20BETWEEN%20{n}%20AND%2099%20OR%20err%20IS%20NOT%20NULL",
            "kind%20IN%20('a','b','c')%20AND%20level%3C{n}%20AND%20NOT%20ok",
            "name%20LIKE%20'n{n}%25'",
        ):
            play(f"a > SUBSCRIBE $filter/{kind.format(n=number)}/#    a < SUBACK granted=0")
    assert play.broker.frontend.subscribe_handler.refused == {}


def test_why_a_filter_costs_too_much_is_said(play: Any) -> None:
    play("a > CONNECT    a < CONNACK", quota=Quota(filter_attributes_max=1))
    client, simulation = play.client("a"), play.broker.simulation
    client.send(Subscribe(1, [SubscriptionOption("$filter/a%3E1%20AND%20b%3E1/t")]))
    simulation.run_until(simulation.now + SECOND)
    (answer,) = client.receive()
    assert answer.reasons == [ReasonCode.QUOTA_EXCEEDED if play.dialect.has_reasons else 0x80]
    if play.dialect.has_reasons:
        why = "the content filters of a client have at most 1 different attributes"
        assert answer.properties[Property.REASON_STRING] == why
