"""MQTT 3.1, which old devices still speak: as 3.1.1 but for what is told here."""

from __future__ import annotations

from typing import Any

import pytest

OLD = "CONNECT v=3.1"


def test_a_client_of_3_1_publishes_and_reads(play: Any) -> None:
    play(f"""
    old > {OLD} keep-alive=60          old < CONNACK
    new > CONNECT                      new < CONNACK
    old > SUBSCRIBE t/# qos=2          old < SUBACK granted=2
    new > SUBSCRIBE t/# qos=2          new < SUBACK granted=2
    old > PUBLISH t/1 qos=1 "one"      old < PUBLISH t/1 qos=1 "one"    old < PUBACK    new < PUBLISH t/1 qos=1 "one"
    new > PUBLISH t/1 qos=2 "two"      new < PUBLISH t/1 qos=2 "two"    old < PUBLISH t/1 qos=2 "two"    new < PUBREC
    new > PUBREL                       new < PUBCOMP
    old > PUBACK
    old > PUBREC                       old < PUBREL
    old > PUBCOMP
    old > PINGREQ                      old < PINGRESP
    old > UNSUBSCRIBE t/#              old < UNSUBACK
    wait 91s                           old < CLOSED
    """)


def test_its_session_is_kept_but_not_spoken_of(play_v311: Any) -> None:
    """The first byte of its CONNACK is reserved."""
    play_v311(f"""
    bob > CONNECT                      bob < CONNACK
    old > {OLD} clean=0                old < CONNACK present=0
    old > SUBSCRIBE t qos=1            old < SUBACK granted=1
    old cut
    bob > PUBLISH t qos=1 "kept"       bob < PUBACK
    old > {OLD} clean=0                old < CONNACK present=0    old < PUBLISH t qos=1 "kept"
    old > PUBACK
    """)
    assert play_v311.broker.ledger.delivered == 1


def test_its_identifier_may_be_longer_than_23_characters_but_not_empty(play_v311: Any) -> None:
    """3.1 limits it to 23; its clients often do not."""
    play_v311(f"""
    old    > {OLD} id=a-device-with-a-name-of-38-characters   old    < CONNACK
    nobody > {OLD} id=""                                      nobody < CONNACK reason=0x85    nobody < CLOSED
    """)


def test_content_filters_work_and_a_wrong_one_is_refused(play_v311: Any) -> None:
    """Section 3.9 of 3.1 knows no refusal; silence would be a grant."""
    play_v311(f"""
    old > {OLD}                                 old < CONNACK
    old > SUBSCRIBE $filter/temp%3E%3E/t t      old < SUBACK granted=0x80,0
    old > SUBSCRIBE $filter/temp%3E30/u         old < SUBACK granted=0
    bob > CONNECT                               bob < CONNACK
    bob > PUBLISH u '{{"temp":31}}'             old < PUBLISH u '{{"temp":31}}'
    bob > PUBLISH u '{{"temp":29}}'
    """)


@pytest.mark.parametrize(
    ("connect", "why"),
    [
        ("1010 0006 4d5149736470 03 82 003c 0001 61 90", "a user name that is cut off"),
        ("100f 0006 4d5149736470 04 02 003c 0001 61", "level 4 of MQIsdp"),
    ],
)
def test_what_no_version_allows_is_refused(play_v311: Any, connect: str, why: str) -> None:
    play_v311("old opens")
    play_v311.client("old").write(bytes.fromhex(connect.replace(" ", "")))
    play_v311.broker.simulation.run_while(lambda: play_v311.broker.is_busy)
    assert not play_v311.broker.frontend.connections, why


@pytest.mark.parametrize(
    "connect",
    [
        "100f 0006 4d5149736470 03 02 003c 0001 61",
        "100f 0006 4d5149736470 03 03 003c 0001 61",  # the reserved flag, which had no meaning yet
        "100f 0006 4d5149736470 03 c2 003c 0001 61",  # a user name and a password that are not there
        "1012 0006 4d5149736470 03 c2 003c 0001 61 0001 75",  # a password that is not there
    ],
)
def test_flags_that_3_1_leaves_open_are_passed_over(play_v311: Any, connect: str) -> None:
    play_v311(f"""
    old opens
    old > 0x{connect.replace(" ", "")}    old < CONNACK
    old > 0x8a06000100017400              old < SUBACK granted=0
    """)


def test_its_bridges_are_taken_at_their_word(play_v311: Any) -> None:
    """Level 0x83: no local, and retained messages stay retained, as with 0x84."""
    play_v311("""
    bridge opens
    bridge > 0x100f00064d514973647083020000000162     bridge < CONNACK
    bridge > SUBSCRIBE t                              bridge < SUBACK granted=0
    bridge > PUBLISH t "1"
    bob    > CONNECT                                  bob    < CONNACK
    bob    > PUBLISH t retain=1 "2"                   bridge < PUBLISH t retain=1 "2"
    """)
