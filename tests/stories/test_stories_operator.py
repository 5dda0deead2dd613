"""An operator disconnects clients, ends sessions and clears what is retained."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.admin import RetainedClearError, clear_retained, end_connection, end_session
from edgebridge.session.session import Session
from edgebroker.instants import SECOND
from edgebroker.log_schema import Cause
from edgebroker.names import ClientId
from tests.stories.test_stories_authentication import ACCESS


def session_of(play: Any, name: str) -> Session:
    found: Session = play.broker.frontend.connect_handler.sessions[ClientId(name)]
    return found


def end_session_of(play: Any, name: str) -> int:
    frontend = play.broker.frontend
    return end_session(frontend, session_of(play, name), play.broker.simulation.now)


def test_who_is_disconnected_is_told_so_and_keeps_its_session(play: Any) -> None:
    play("""
    w > CONNECT                             w < CONNACK
    w > SUBSCRIBE will                      w < SUBACK granted=0
    a > CONNECT clean=0 session=3600 will=will will-payload="gone"
    a < CONNACK
    a > SUBSCRIBE t qos=1                   a < SUBACK granted=1
    """)
    assert end_connection(play.broker.frontend, session_of(play, "a"))
    told = 'a < DISCONNECT reason=0x98 why="an operator ended the connection"' if play.dialect.has_reasons else ""
    play(f"""
    w > PINGREQ                             w < PINGRESP
    {told}
    a < CLOSED                              w < PUBLISH will "gone"
    w > PUBLISH t qos=1 "one"               w < PUBACK
    """)
    assert not end_connection(play.broker.frontend, session_of(play, "a")), "it is away already"
    play("""
    a > CONNECT clean=0 session=3600        a < CONNACK present=1
    a < PUBLISH t qos=1 "one"
    """)


def test_who_is_blocked_is_told_so_whenever_it_comes(play: Any) -> None:
    """Also if it was blocked while it was asked who it is."""
    play("b > CONNECT    b < CONNACK", access=ACCESS)
    frontend = play.broker.frontend
    frontend.connect_handler.blocked["a"] = 0
    refused = 'a < CONNACK reason=0x8A why="an operator keeps this client out"    a < CLOSED'
    if not play.dialect.has_reasons:
        refused = "a < CONNACK reason=0x87    a < CLOSED"
    play(f'a > CONNECT username="anna" password="apple"    {refused}')
    frontend.connect_handler.blocked.clear()
    play.broker.verification_takes = SECOND
    play('a > CONNECT username="anna" password="apple"')
    frontend.connect_handler.blocked["a"] = 0
    play(f"wait 2s    {refused}    b > PINGREQ    b < PINGRESP")


@pytest.mark.parametrize("is_here", [True, False])
def test_an_ended_session_is_gone_for_good(play: Any, is_here: bool) -> None:
    """With what waited for it, over a crash too; a delayed will goes out, and the rest of its group takes over."""
    play(
        """
    b > CONNECT clean=0 session=3600        b < CONNACK
    b > SUBSCRIBE $share/g/s qos=1          b < SUBACK granted=1
    a > CONNECT clean=0 session=3600        a < CONNACK
    a > SUBSCRIBE t qos=1                   a < SUBACK granted=1
    a > SUBSCRIBE $share/g/s qos=1          a < SUBACK granted=1
    b cut
    w > CONNECT                             w < CONNACK
    w > PUBLISH t qos=1 "one"               w < PUBACK    a < PUBLISH t qos=1 "one"
    w > PUBLISH s qos=1 "two"               w < PUBACK    a < PUBLISH s qos=1 "two"
    """,
        is_stored=True,
    )
    if not is_here:
        play("a cut")
    assert end_session_of(play, "a") == 1, "b gets that of the group"
    assert ClientId("a") not in play.broker.frontend.connect_handler.sessions
    assert play.dropped(Cause.SESSION_ENDED) == 1
    told = 'a < DISCONNECT reason=0x98 why="an operator ended the session"' if play.dialect.has_reasons else ""
    play(f"""
    w > PUBLISH t qos=1 "three"             w < PUBACK
    {f"{told}    a < CLOSED" if is_here else ""}
    wait 1s
    broker crashes                          w < CLOSED
    a > CONNECT clean=0 session=3600        a < CONNACK present=0
    b > CONNECT clean=0 session=3600        b < CONNACK present=1    b < PUBLISH s qos=1 "two"
    """)


def test_what_is_cleared_is_gone_and_everybody_hears_it(play: Any) -> None:
    play(
        """
    w > CONNECT                             w < CONNACK
    w > PUBLISH t qos=1 retain=1 "one"        w < PUBACK
    r > CONNECT                             r < CONNACK
    r > SUBSCRIBE # qos=1                   r < SUBACK granted=1
    r < PUBLISH t qos=1 retain=1 "one"        r > PUBACK
    """,
        is_stored=True,
    )
    frontend = play.broker.frontend
    clear_retained(frontend, "t", play.broker.simulation.now)
    assert frontend.retained.find("t") is None
    play("""
    w > PINGREQ                             w < PINGRESP    r < PUBLISH t qos=1 ""
    r > PUBACK
    broker crashes                          w < CLOSED    r < CLOSED
    r > CONNECT                             r < CONNACK
    r > SUBSCRIBE # qos=1                   r < SUBACK granted=1
    """)
    with pytest.raises(RetainedClearError, match="own"):
        clear_retained(frontend, "$SYS/broker/version", play.broker.simulation.now)
    frontend.journal.is_refusing = True
    with pytest.raises(RetainedClearError, match="the disk takes nothing"):
        clear_retained(frontend, "t", play.broker.simulation.now)
