"""Shared subscriptions (MQTT 5.0 section 4.8.2), for clients of either version."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebroker.log_schema import Cause

from .test_stories_acl import access

KEPT = "CONNECT clean=0 session=3600"

TEAM = f"""
    bob   > CONNECT                       bob   < CONNACK
    alice > {KEPT}                        alice < CONNACK
    carl  > {KEPT}                        carl  < CONNACK
    alice > SUBSCRIBE $share/g/t/# qos=2  alice < SUBACK granted=2
    carl  > SUBSCRIBE $share/g/t/# qos=2  carl  < SUBACK granted=2
"""


def test_each_message_goes_to_one_member_in_turn(play: Any) -> None:
    play(TEAM)
    play("""
    bob > PUBLISH t/1 "one"    alice < PUBLISH t/1 "one"
    bob > PUBLISH t/1 "two"    carl  < PUBLISH t/1 "two"
    bob > PUBLISH t/1 "three"  alice < PUBLISH t/1 "three"
    bob > PUBLISH t/2 "four"   carl  < PUBLISH t/2 "four"
    """)
    ledger = play.broker.ledger
    assert (ledger.published, ledger.matched, ledger.delivered) == (4, 4, 4)


def test_shared_subscriptions_are_available(play_v5: Any) -> None:
    """Absent or 1 (section 3.2.2.3.13)."""
    play_v5("alice > CONNECT    alice < CONNACK")
    assert b"\x2a\x00" not in b"".join(play_v5.client("alice").octets)


def test_who_has_most_to_do_gets_less(play: Any) -> None:
    play(TEAM)
    play("""
    bob > PUBLISH t qos=1 "one"    bob < PUBACK   alice < PUBLISH t qos=1 "one"
    bob > PUBLISH t qos=1 "two"    bob < PUBACK   carl  < PUBLISH t qos=1 "two"
    carl > PUBACK
    bob > PUBLISH t qos=1 "three"  bob < PUBACK   carl  < PUBLISH t qos=1 "three"
    carl > PUBACK
    bob > PUBLISH t qos=1 "four"   bob < PUBACK   carl  < PUBLISH t qos=1 "four"
    """)


def test_who_does_not_read_gets_less_at_qos_0_too(play: Any) -> None:
    play(TEAM)
    play("""
    alice stalls
    bob > PUBLISH t "one"
    bob > PUBLISH t "two"    carl < PUBLISH t "two"
    bob > PUBLISH t "three"
    bob > PUBLISH t "four"   carl < PUBLISH t "four"
    bob > PUBLISH t "five"   carl < PUBLISH t "five"
    bob > PUBLISH t "six"    carl < PUBLISH t "six"
    alice reads              alice < PUBLISH t "one"    alice < PUBLISH t "three"
    """)


def test_groups_and_single_subscribers_are_independent(play: Any) -> None:
    """A group of another name, or of another topic filter, is another group; a plain subscription is apart."""
    play(TEAM)
    play("""
    alice > SUBSCRIBE $share/h/t/#     alice < SUBACK granted=0
    alice > SUBSCRIBE $share/g/t/+     alice < SUBACK granted=0
    carl  > SUBSCRIBE t/#              carl  < SUBACK granted=0
    bob   > PUBLISH t/1 "x"            carl  < PUBLISH t/1 "x"
              alice < PUBLISH t/1 "x"  alice < PUBLISH t/1 "x"  alice < PUBLISH t/1 "x"
    """)
    assert play.broker.ledger.matched == 4


@pytest.mark.mqtt(v5=("MQTT-4.8.2-3",))
def test_each_member_gets_its_own_quality_and_identifier(play_v5: Any) -> None:
    """[MQTT-4.8.2-3]."""
    play_v5("""
    bob   > CONNECT                             bob   < CONNACK
    alice > CONNECT                             alice < CONNACK
    carl  > CONNECT                             carl  < CONNACK
    alice > SUBSCRIBE $share/g/t qos=1 sub=7    alice < SUBACK granted=1
    carl  > SUBSCRIBE $share/g/t qos=0 as-published=1   carl  < SUBACK granted=0
    bob   > PUBLISH t qos=2 retain=1 "x"        bob   < PUBREC    alice < PUBLISH t qos=1 sub=7 "x"
    bob   > PUBREL                              bob   < PUBCOMP
    bob   > PUBLISH t qos=2 retain=1 "y"        bob   < PUBREC    carl  < PUBLISH t retain=1 "y"
    """)


def test_members_share_by_what_they_ask_not_by_how_they_write_it(play_v5: Any) -> None:
    play_v5("""
    bob   > CONNECT                                    bob   < CONNACK
    alice > CONNECT                                    alice < CONNACK
    carl  > CONNECT                                    carl  < CONNACK
    alice > SUBSCRIBE $share/g/$filter/temp%3E30/t     alice < SUBACK granted=0
    carl  > SUBSCRIBE $share/g/t user.$where="temp  >  30"   carl  < SUBACK granted=0
    bob   > PUBLISH t '{"temp":31}'                    alice < PUBLISH t '{"temp":31}'
    bob   > PUBLISH t '{"temp":29}'
    bob   > PUBLISH t '{"temp":32}'                    carl  < PUBLISH t '{"temp":32}'
    """)
    assert play_v5.broker.ledger.filtered == 1


def test_no_retained_messages_for_a_group(play: Any) -> None:
    """Section 3.8.4: they would be sent to every member that comes."""
    play("""
    bob   > CONNECT                     bob   < CONNACK
    bob   > PUBLISH t retain=1 "x"
    alice > CONNECT                     alice < CONNACK
    alice > SUBSCRIBE $share/g/t t      alice < SUBACK granted=0,0    alice < PUBLISH t retain=1 "x"
    """)


@pytest.mark.mqtt(v5=("MQTT-3.8.3-4",))
def test_no_local_and_a_group_exclude_each_other(play_v5: Any) -> None:
    """[MQTT-3.8.3-4]."""
    play_v5("""
    alice > CONNECT                              alice < CONNACK
    alice > SUBSCRIBE $share/g/t no-local=1      alice < DISCONNECT reason=0x82  alice < CLOSED
    """)


@pytest.mark.mqtt(v5=("MQTT-4.8.2-1", "MQTT-4.8.2-2"))
@pytest.mark.parametrize("text", ["$share//t", "$share/g", "$share/g/", "$share/g+/t", "$share/#/t"])
def test_a_group_needs_a_name_and_a_topic_filter(play: Any, text: str) -> None:
    """[MQTT-4.8.2-1], [MQTT-4.8.2-2]."""
    play("alice > CONNECT    alice < CONNACK")
    play(f"alice > SUBSCRIBE {text}    alice < SUBACK granted=0x8F")


def test_a_member_leaves_by_unsubscribe(play: Any) -> None:
    play(TEAM)
    play("""
    alice > UNSUBSCRIBE $share/g/t/#    alice < UNSUBACK
    bob   > PUBLISH t "one"             carl  < PUBLISH t "one"
    bob   > PUBLISH t "two"             carl  < PUBLISH t "two"
    carl  > UNSUBSCRIBE $share/g/t/#    carl  < UNSUBACK
    bob   > PUBLISH t "three"
    """)
    assert play.broker.ledger.filtered == 1
    assert len(play.broker.frontend.node.groups) == 0


def test_who_is_away_gets_nothing_while_another_is_there(play: Any) -> None:
    play(TEAM)
    play(f"""
    alice cut
    bob   > PUBLISH t qos=1 "one"    bob  < PUBACK    carl < PUBLISH t qos=1 "one"
    bob   > PUBLISH t qos=1 "two"    bob  < PUBACK    carl < PUBLISH t qos=1 "two"
    alice > {KEPT}                   alice < CONNACK present=1
    """)


def test_if_all_are_away_it_waits_for_who_comes_first(play: Any) -> None:
    play(TEAM)
    play(f"""
    alice cut
    carl  cut
    bob   > PUBLISH t qos=1 "one"    bob  < PUBACK
    bob   > PUBLISH t qos=2 "two"    bob  < PUBREC
    bob   > PUBLISH t "lost"
    carl  > {KEPT}                   carl < CONNACK present=1
                                     carl < PUBLISH t qos=2 "two"  carl < PUBLISH t qos=1 "one"
    alice > {KEPT}                   alice < CONNACK present=1
    """)
    assert play.dropped(Cause.OFFLINE) == 1
    assert play.dropped(Cause.HANDED_OVER) == 1


def test_what_was_never_sent_goes_to_another_when_a_member_goes_away(play: Any) -> None:
    """Section 4.8.2. What was sent waits for its reader's return."""
    play(TEAM, FrontendOptions(inflight_max=1))
    play(f"""
    bob   > PUBLISH t qos=1 "one"     bob   < PUBACK    alice < PUBLISH t qos=1 "one"
    bob   > PUBLISH t qos=1 "two"     bob   < PUBACK    carl  < PUBLISH t qos=1 "two"
    bob   > PUBLISH t qos=1 "three"   bob   < PUBACK
    carl  > PUBACK
    alice cut                         carl  < PUBLISH t qos=1 "three"
    alice > {KEPT}                    alice < CONNACK present=1    alice < PUBLISH t qos=1 dup=1 "one"
    alice > PUBACK
    carl  > PUBACK
    """)
    ledger = play.broker.ledger
    assert (ledger.delivered, ledger.queued, play.dropped(Cause.HANDED_OVER)) == (3, 0, 1)


@pytest.mark.mqtt(v5=("MQTT-4.8.2-5",))
def test_what_an_ended_session_leaves_unfinished_goes_to_another_but_not_at_qos_2(play: Any) -> None:
    """[MQTT-4.8.2-5]: a QoS 2 message whose delivery has begun is for nobody else."""
    play("""
    bob   > CONNECT                       bob   < CONNACK
    alice > CONNECT                       alice < CONNACK
    alice > SUBSCRIBE $share/g/t qos=2    alice < SUBACK granted=2
    bob   > PUBLISH t qos=1 "one"         bob   < PUBACK    alice < PUBLISH t qos=1 "one"
    bob   > PUBLISH t qos=2 "two"         bob   < PUBREC    alice < PUBLISH t qos=2 "two"
    carl  > CONNECT                       carl  < CONNACK
    carl  > SUBSCRIBE $share/g/t qos=2    carl  < SUBACK granted=2
    alice cut                             carl  < PUBLISH t qos=1 "one"
    """)
    assert play.dropped(Cause.HANDED_OVER) == 1
    assert play.dropped(Cause.SESSION_ENDED) == 1


@pytest.mark.mqtt(v5=("MQTT-4.8.2-4",))
def test_what_is_on_its_way_at_qos_2_is_finished_with_its_reader(play: Any) -> None:
    """[MQTT-4.8.2-4]."""
    play(TEAM)
    play(f"""
    bob   > PUBLISH t qos=2 "one"   bob   < PUBREC    alice < PUBLISH t qos=2 "one"
    alice cut
    bob   > PUBREL                  bob   < PUBCOMP
    alice > {KEPT}                  alice < CONNACK present=1    alice < PUBLISH t qos=2 dup=1 "one"
    alice > PUBREC                  alice < PUBREL
    alice cut
    alice > {KEPT}                  alice < CONNACK present=1    alice < PUBREL
    alice > PUBCOMP
    """)
    assert play.broker.ledger.delivered == 1


@pytest.mark.mqtt(v5=("MQTT-4.8.2-6",))
def test_a_refused_message_is_offered_to_nobody_else(play_v5: Any) -> None:
    """[MQTT-4.8.2-6]."""
    play_v5(TEAM)
    play_v5("""
    bob   > PUBLISH t qos=1 "one"    bob   < PUBACK    alice < PUBLISH t qos=1 "one"
    alice > PUBACK reason=0x83
    bob   > PUBLISH t qos=2 "two"    bob   < PUBREC    carl  < PUBLISH t qos=2 "two"
    carl  > PUBREC reason=0x83
    alice cut
    carl  cut
    """)
    assert play_v5.dropped(Cause.REFUSED) == 2


def test_what_expired_while_it_waited_is_not_handed_over(play_v5: Any) -> None:
    play_v5(TEAM)
    play_v5(f"""
    alice cut
    carl  cut
    bob   > PUBLISH t qos=1 expiry=5 "one"    bob   < PUBACK
    bob   > PUBLISH t qos=1 expiry=5 "two"    bob   < PUBACK
    wait 6s
    alice > {KEPT}                            alice < CONNACK present=1
    """)
    assert play_v5.broker.ledger.expired == 2


def test_a_sticky_group_keeps_what_belongs_together_with_one_member(play: Any) -> None:
    play(TEAM, FrontendOptions(sharing="sticky"))
    play(f"""
    bob   > PUBLISH t/1 "1a"    alice < PUBLISH t/1 "1a"
    bob   > PUBLISH t/1 "1b"    alice < PUBLISH t/1 "1b"
    bob   > PUBLISH t/2 "2a"    carl  < PUBLISH t/2 "2a"
    bob   > PUBLISH t/1 "1c"    alice < PUBLISH t/1 "1c"
    carl  > PUBLISH t/1 "other" alice < PUBLISH t/1 "other"
    alice cut
    bob   > PUBLISH t/1 "1d"    carl  < PUBLISH t/1 "1d"
    alice > {KEPT}              alice < CONNACK present=1
    bob   > PUBLISH t/1 "1e"    carl  < PUBLISH t/1 "1e"
    carl  > UNSUBSCRIBE $share/g/t/#    carl < UNSUBACK
    bob   > PUBLISH t/1 "1f"    alice < PUBLISH t/1 "1f"
    """)


# -- on disk ---------------------------------------------------------------------------------------------------


def test_a_group_and_what_waits_for_it_survive_a_crash(play: Any) -> None:
    play(TEAM, is_stored=True)
    play(f"""
    alice cut
    carl  cut
    bob   > PUBLISH t qos=1 "one"    bob  < PUBACK
    bob   > PUBLISH t qos=1 "two"    bob  < PUBACK
    broker crashes                   bob  < CLOSED
    carl  > {KEPT}                   carl < CONNACK present=1
                                     carl < PUBLISH t qos=1 "two"    carl < PUBLISH t qos=1 "one"
    carl  > PUBACK
    carl  > PUBACK
    """)
    assert play.broker.ledger.queued == 0


def test_what_was_handed_over_is_not_lost_and_does_not_come_twice(play: Any) -> None:
    play(TEAM, FrontendOptions(inflight_max=1), is_stored=True)
    play(f"""
    bob   > PUBLISH t qos=1 "one"    alice < PUBLISH t qos=1 "one"    bob < PUBACK
    bob   > PUBLISH t qos=1 "two"    carl  < PUBLISH t qos=1 "two"    bob < PUBACK
    bob   > PUBLISH t qos=2 "three"  bob < PUBREC
    carl  > PUBACK
    alice cut                        carl  < PUBLISH t qos=2 "three"
    carl  > PUBREC                   carl  < PUBREL
    wait 1s
    broker crashes                   bob   < CLOSED    carl < CLOSED
    alice > {KEPT}                   alice < CONNACK present=1    alice < PUBLISH t qos=1 dup=1 "one"
    carl  > {KEPT}                   carl  < CONNACK present=1    carl  < PUBREL
    """)


def test_what_an_ended_session_left_is_on_disk_for_its_heir(play_v5: Any) -> None:
    play_v5(TEAM, is_stored=True)
    play_v5(f"""
    carl  cut
    alice > DISCONNECT session=5
    bob   > PUBLISH t qos=1 "one"    bob  < PUBACK
    bob   > PUBLISH t qos=1 "two"    bob  < PUBACK
    wait 6s
    broker crashes                   bob  < CLOSED
    carl  > {KEPT}                   carl < CONNACK present=1
                                     carl < PUBLISH t qos=1 "two"    carl < PUBLISH t qos=1 "one"
    """)


def test_a_disk_that_takes_nothing_refuses_what_a_group_would_keep(play_v5: Any) -> None:
    """P1: a member of the group was promised that what is acknowledged is on disk."""
    play_v5(TEAM, is_stored=True)
    play_v5.broker.store.disk.sync_fails = 1.0
    play_v5("""
    bob > PUBLISH t qos=1 "lost"       alice < PUBLISH t qos=1 "lost"
                                       bob < DISCONNECT reason=0x97    bob < CLOSED
    bob > CONNECT                      bob < CONNACK
    bob > PUBLISH t qos=1 "refused"    bob < PUBACK reason=0x97
    bob > PUBLISH u qos=1 "taken"      bob < PUBACK
    """)


def test_where_full_queues_refuse_a_group_does_only_if_all_its_queues_are_full(play_v5: Any) -> None:
    play_v5(TEAM, FrontendOptions(queue_messages_max=1, queue_full=OverflowPolicy.REFUSE))
    play_v5("""
    alice cut
    carl  cut
    bob > PUBLISH t qos=1 "one"      bob < PUBACK
    bob > PUBLISH t qos=1 "two"      bob < PUBACK
    bob > PUBLISH t qos=1 "three"    bob < PUBACK reason=0x97 why~"queue is full"
    bob > PUBLISH t "four"
    """)
    assert play_v5.dropped(Cause.OFFLINE) == 1


# -- rights ----------------------------------------------------------------------------------------------------


def test_nothing_is_handed_over_to_who_may_not_read_it(play: Any) -> None:
    rules = "user anna\ntopic readwrite #\nuser bert\ntopic read t/open\ntopic write #\n"
    play(
        f"""
        bob   > {KEPT} username="anna" password="anna"     bob   < CONNACK
        alice > {KEPT} username="anna" password="anna"     alice < CONNACK
        alice > SUBSCRIBE $share/g/t/# qos=1                alice < SUBACK granted=1
        alice cut
        bob   > PUBLISH t/shut qos=1 "1"                    bob   < PUBACK
        bob   > PUBLISH t/open qos=1 "2"                    bob   < PUBACK
        carl  > {KEPT} username="bert" password="bert"     carl  < CONNACK
        carl  > SUBSCRIBE $share/g/t/# qos=1    carl  < SUBACK granted=1    carl < PUBLISH t/open qos=1 "2"
        alice > {KEPT} username="anna" password="anna"     alice < CONNACK present=1  alice < PUBLISH t/shut qos=1 "1"
        """,
        access=access(rules),
    )


def test_who_cannot_take_so_large_a_packet_is_passed_over(play_v5: Any) -> None:
    play_v5("""
    bob   > CONNECT                          bob   < CONNACK
    alice > CONNECT bytes-max=60             alice < CONNACK
    carl  > CONNECT                          carl  < CONNACK
    alice > SUBSCRIBE $share/g/t/# qos=1     alice < SUBACK granted=1
    carl  > SUBSCRIBE $share/g/t/# qos=1     carl  < SUBACK granted=1
    """)
    large = "x" * 60
    for _ in range(4):
        play_v5(
            f'bob > PUBLISH t/1 qos=1 "{large}"    carl < PUBLISH t/1 qos=1 "{large}"    bob < PUBACK    carl > PUBACK'
        )
    play_v5('bob > PUBLISH t/1 qos=1 "small"    alice < PUBLISH t/1 qos=1 "small"    bob < PUBACK    alice > PUBACK')
    play_v5(f'carl > DISCONNECT    bob > PUBLISH t/1 qos=1 "{large}"    bob < PUBACK')
    assert play_v5.dropped(Cause.PACKET_TOO_LARGE) == 1, "nobody can take it"


def test_what_waits_for_a_member_that_comes_back_with_less_room_goes_to_another(play_v5: Any) -> None:
    play_v5(f"""
    bob   > CONNECT                          bob   < CONNACK
    alice > {KEPT}                           alice < CONNACK
    alice > SUBSCRIBE $share/g/t/# qos=1     alice < SUBACK granted=1
    alice > DISCONNECT
    bob   > PUBLISH t/1 qos=1 "{"x" * 60}"   bob   < PUBACK
    bob   > PUBLISH t/1 qos=1 "small"        bob   < PUBACK
    carl  > {KEPT}                           carl  < CONNACK
    carl  > DISCONNECT
    """)
    frontend = play_v5.broker.frontend
    carl = frontend.connect_handler.sessions["carl"]
    play_v5(f"""
    carl  > {KEPT}                           carl  < CONNACK present=1
    carl  > SUBSCRIBE $share/g/t/# qos=1     carl  < SUBACK granted=1
    carl  < PUBLISH t/1 qos=1 "{"x" * 60}"   carl  < PUBLISH t/1 qos=1 "small"
    """)
    assert len(carl.inflight) == 2
    assert play_v5.dropped(Cause.PACKET_TOO_LARGE) == 0
