"""Content filters through both carriers (docs/filters.md, "Carriers"), and what is refused, with reason and column."""

from __future__ import annotations

from typing import Any

PAIR = """
    alice > CONNECT    alice < CONNACK
    bob   > CONNECT    bob   < CONNACK
"""


def test_a_filter_inside_the_topic_filter(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE $filter/temp%3E30/sensors/#   alice < SUBACK granted=0
    bob   > PUBLISH sensors/a '{"temp":31}'         alice < PUBLISH sensors/a '{"temp":31}'
    bob   > PUBLISH sensors/a '{"temp":29}'
    bob   > PUBLISH sensors/a '{"temp":"31"}'
    bob   > PUBLISH sensors/a "not json"
    bob   > PUBLISH elsewhere '{"temp":31}'
    bob   > PUBLISH sensors/a qos=1 '{"temp":31}'   bob   < PUBACK    alice < PUBLISH sensors/a '{"temp":31}'
    """)
    assert play.broker.ledger.filtered == 4


def test_a_filter_written_raw(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE "$filter/temp > 30 AND site = 'north'/sensors/+" qos=2   alice < SUBACK granted=2
    bob   > PUBLISH sensors/a qos=2 '{"temp":31,"site":"north"}'   bob < PUBREC
                                      alice < PUBLISH sensors/a qos=2 '{"temp":31,"site":"north"}'
    bob   > PUBLISH sensors/a '{"temp":31,"site":"south"}'
    """)


def test_a_filter_as_user_property(play_v5: Any) -> None:
    play_v5(PAIR)
    play_v5("""
    alice > SUBSCRIBE sensors/# weather user.$where="temp > 30 OR site IN ('a', 'b')"   alice < SUBACK granted=0,0
    bob   > PUBLISH sensors/a '{"temp":31}'    alice < PUBLISH sensors/a '{"temp":31}'
    bob   > PUBLISH weather '{"site":"b"}'     alice < PUBLISH weather '{"site":"b"}'
    bob   > PUBLISH sensors/a '{"temp":3}'
    """)


def test_both_carriers_together_must_both_hold(play_v5: Any) -> None:
    play_v5(PAIR)
    play_v5("""
    alice > SUBSCRIBE $filter/a%3D1/t user.$where="b = 2"   alice < SUBACK granted=0
    bob   > PUBLISH t '{"a":1,"b":2}'                       alice < PUBLISH t '{"a":1,"b":2}'
    bob   > PUBLISH t '{"a":1,"b":3}'
    bob   > PUBLISH t '{"a":2,"b":2}'
    """)


def test_several_filters_on_one_topic_are_several_subscriptions(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE $filter/a%3D1/t $filter/a%3D2/t   alice < SUBACK granted=0,0
    bob   > PUBLISH t '{"a":1}'                         alice < PUBLISH t '{"a":1}'
    bob   > PUBLISH t '{"a":2}'                         alice < PUBLISH t '{"a":2}'
    alice > UNSUBSCRIBE $filter/a%3D1/t t               alice < UNSUBACK reasons=0,0x11
    bob   > PUBLISH t '{"a":1}'
    bob   > PUBLISH t '{"a":2}'                         alice < PUBLISH t '{"a":2}'
    """)


def test_filtered_and_plain_subscriptions_make_one_copy(play_v5: Any) -> None:
    play_v5(PAIR)
    play_v5("""
    alice > SUBSCRIBE $filter/a%3D1/t sub=1   alice < SUBACK granted=0
    alice > SUBSCRIBE # qos=1 sub=2           alice < SUBACK granted=1
    bob   > PUBLISH t qos=1 '{"a":1}'         bob   < PUBACK    alice < PUBLISH t qos=1 sub=1,2 '{"a":1}'
    bob   > PUBLISH t qos=1 '{"a":2}'         bob   < PUBACK    alice < PUBLISH t qos=1 sub=2 '{"a":2}'
    """)


def test_filters_apply_to_retained_messages(play: Any) -> None:
    play(PAIR)
    play("""
    bob   > PUBLISH t/1 retain=1 '{"a":1}'
    bob   > PUBLISH t/2 retain=1 '{"a":2}'
    alice > SUBSCRIBE $filter/a%3D2/t/#   alice < SUBACK granted=0    alice < PUBLISH t/2 retain=1 '{"a":2}'
    """)


def test_reserved_names(play_v5: Any) -> None:
    play_v5(PAIR)
    play_v5("""
    alice > SUBSCRIBE # user.$where="$level2 = 'x' AND $client = 'bob' AND $user.k = 'v' AND $size < 5 AND $qos = 1"
                                              alice < SUBACK granted=0
    bob   > PUBLISH t/x qos=1 user.k=v "1"    bob   < PUBACK    alice < PUBLISH t/x user.k=v "1"
    bob   > PUBLISH t/y qos=1 user.k=v "1"    bob   < PUBACK
    bob   > PUBLISH t/x user.k=v "1"
    bob   > PUBLISH t/x qos=1 user.k=w "1"    bob   < PUBACK
    bob   > PUBLISH t/x qos=1 user.k=v "12345"  bob < PUBACK
    alice > PUBLISH t/x qos=1 user.k=v "1"    alice < PUBACK
    """)


def test_cbor_payloads(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE $filter/temp%3E30/t   alice < SUBACK granted=0
    bob   > PUBLISH t 0xa16474656d70181f    alice < PUBLISH t 0xa16474656d70181f
    bob   > PUBLISH t 0xa16474656d70181d
    """)


def test_a_bad_filter_is_refused_with_reason_and_column(play: Any) -> None:
    """P5: refused, never granted unfiltered."""
    play(PAIR)
    play("""
    alice > SUBSCRIBE $filter/temp%3E%3E30/sensors/#   alice < SUBACK granted=0x8F why~"column 6"
    bob   > PUBLISH sensors/a '{"temp":31}'
    """)


def test_a_bad_where_is_refused_with_reason_and_column(play_v5: Any) -> None:
    play_v5(PAIR)
    play_v5("""
    alice > SUBSCRIBE a b user.$where="temp >"          alice < SUBACK granted=0x8F,0x8F why~"column 7"
    alice > SUBSCRIBE a user.$where="x=1" user.$where="y=1"   alice < SUBACK granted=0x8F why~"AND"
    bob   > PUBLISH a '{"temp":31}'
    """)


def test_one_bad_filter_does_not_spoil_the_others(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE good $filter/%3D/bad b#d   alice < SUBACK granted=0,0x8F,0x8F
    bob   > PUBLISH good                         alice < PUBLISH good
    """)


def test_a_filter_beyond_the_bounds_is_refused_as_too_complex(play_v5: Any) -> None:
    terms = " OR ".join(f"a = {number}" for number in range(100))
    play_v5(PAIR)
    play_v5(f"""
    alice > SUBSCRIBE t user.$where="{terms}"   alice < SUBACK granted=0x97 why~"64"
    bob   > PUBLISH t '{{"a":1}}'
    """)


def test_a_client_that_wants_no_problem_information_gets_none(play_v5: Any) -> None:
    """[MQTT-3.1.2-29]."""
    play_v5("""
    alice > CONNECT problems=0             alice < CONNACK
    alice > SUBSCRIBE $filter/%3D/t        alice < SUBACK granted=0x8F why~""
    """)
    assert b"column" not in b"".join(play_v5.client("alice").octets)


def test_a_shared_subscription_has_a_filter_like_any_other(play: Any) -> None:
    play(PAIR)
    play("""
    alice > SUBSCRIBE $share/g/$filter/temp%3E30/t   alice < SUBACK granted=0
    carl  > CONNECT                                  carl  < CONNACK
    carl  > SUBSCRIBE $share/g/$filter/temp%20%3E%2030/t   carl  < SUBACK granted=0
    bob   > PUBLISH t '{"temp":31}'                  alice < PUBLISH t '{"temp":31}'
    bob   > PUBLISH t '{"temp":30}'
    bob   > PUBLISH t '{"temp":32}'                  carl  < PUBLISH t '{"temp":32}'
    """)


def test_a_filter_holds_over_a_reconnect(play: Any) -> None:
    play(PAIR)
    play("""
    carl > CONNECT clean=0 session=60     carl < CONNACK
    carl > SUBSCRIBE $filter/a%3D1/t qos=1   carl < SUBACK granted=1
    carl cut
    bob  > PUBLISH t qos=1 '{"a":1}'      bob  < PUBACK
    bob  > PUBLISH t qos=1 '{"a":2}'      bob  < PUBACK
    carl > CONNECT clean=0 session=60     carl < CONNACK present=1    carl < PUBLISH t qos=1 '{"a":1}'
    """)


def test_who_leaves_many_filters_behind_hears_nothing_and_may_come_back_at_once(play: Any) -> None:
    """They are taken out of the tree by and by; nobody can tell."""
    filters = " ".join(f"$filter/a%3D{number}/t" for number in range(200))
    granted = ",".join("0" for _ in range(200))
    play(PAIR)
    play(f"alice > SUBSCRIBE {filters}   alice < SUBACK granted={granted}")
    play("""
    bob   > PUBLISH t '{"a":7}'            alice < PUBLISH t '{"a":7}'
    alice leaves
    bob   > PUBLISH t '{"a":7}'
    alice > CONNECT                        alice < CONNACK
    bob   > PUBLISH t '{"a":7}'
    alice > SUBSCRIBE $filter/a%3D7/t      alice < SUBACK granted=0
    bob   > PUBLISH t '{"a":7}'            alice < PUBLISH t '{"a":7}'
    bob   > PUBLISH t '{"a":8}'
    alice > UNSUBSCRIBE $filter/a%3D7/t $filter/a%3D8/t   alice < UNSUBACK reasons=0,0x11
    bob   > PUBLISH t '{"a":7}'
    """)
    node = play.broker.frontend.node
    play.broker.simulation.run_until(play.broker.simulation.now + 1_000)
    assert len(node.tree) == len(node.subscriptions) == 0
