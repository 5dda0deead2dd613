"""Clients that an operator sends to another gateway: how they are told, and for how long they are refused here."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.admin import move_client
from edgebridge.frontend.client_moves import ClientMoves, MoveOutcome, MoveTableFull, MoveWay
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions, Redirect
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND
from edgebroker.limits import MOVED_CLIENTS_MAX
from edgebroker.names import ClientId

FOR_NOW = Redirect(ReasonCode.USE_ANOTHER_SERVER, "b.example:1884")
FOR_GOOD = Redirect(ReasonCode.SERVER_MOVED, "b.example:1884 c.example:1883")


class GatewayPath:
    """A path to the other gateways, which may be broken."""

    def __init__(self) -> None:
        self.is_open = True

    def is_reachable(self, gateway: str) -> bool:
        return self.is_open


def move(play: Any, name: str, redirect: Redirect = FOR_NOW) -> MoveWay | None:
    ways: list[MoveWay | None] = []

    def order(frontend: Frontend) -> None:
        session = frontend.connect_handler.sessions[ClientId(name)]
        ways.append(move_client(frontend, session, "south", redirect, play.broker.simulation.now))

    play.broker.operate(order)
    return ways[0]


def told(play: Any) -> str:
    """The words of `FOR_NOW`, which only version 5 has, for a transcript."""
    return f'bob < DISCONNECT reason=0x9C server="{FOR_NOW.reference}"' if play.dialect.has_properties else ""


def moves(play: Any) -> ClientMoves:
    found: ClientMoves = play.broker.frontend.connect_handler.moves
    return found


def outcomes(play: Any) -> dict[str, int]:
    return {outcome.value: count for outcome, count in moves(play).ended.items() if count}


@pytest.mark.parametrize(("redirect", "code"), [(FOR_NOW, "0x9C"), (FOR_GOOD, "0x9D")], ids=["for now", "for good"])
def test_a_client_is_told_where_to_go_and_refused_for_a_while(play_v5: Any, redirect: Redirect, code: str) -> None:
    play_v5("""
    bob  > CONNECT clean=0 session=600   bob < CONNACK
    bob  > SUBSCRIBE t qos=1             bob < SUBACK granted=1
    carl > CONNECT                       carl < CONNACK
    """)
    assert move(play_v5, "bob", redirect) is move_way(redirect)
    assert move(play_v5, "bob", redirect) is None, "its connection is closing"
    play_v5(f"""
    carl > PINGREQ   bob < DISCONNECT reason={code} server="{redirect.reference}"   bob < CLOSED   carl < PINGRESP
    bob  > CONNECT clean=0 session=600   bob < CONNACK reason={code} server="{redirect.reference}"   bob < CLOSED
    wait 29s
    bob  > CONNECT clean=0 session=600   bob < CONNACK reason={code} server="{redirect.reference}"   bob < CLOSED
    carl > PUBLISH t qos=1 "kept"        carl < PUBACK
    wait 1s
    bob  > CONNECT clean=0 session=600   bob < CONNACK present=1   bob < PUBLISH t qos=1 "kept"   bob > PUBACK
    """)
    assert (moves(play_v5).moved[move_way(redirect)], moves(play_v5).refused) == (1, 2)
    assert outcomes(play_v5) == {"returned": 1}
    last = moves(play_v5).last("bob")
    assert last is not None
    assert (last.gateway, last.way, last.outcome) == ("south", move_way(redirect), MoveOutcome.RETURNED)


def move_way(redirect: Redirect) -> MoveWay:
    return MoveWay.SERVER_MOVED if redirect is FOR_GOOD else MoveWay.USE_ANOTHER_SERVER


def test_a_client_of_3_1_1_is_closed_and_its_list_of_servers_leads_it_on(play_v311: Any) -> None:
    play_v311("""
    bob  > CONNECT clean=0   bob < CONNACK
    carl > CONNECT           carl < CONNACK
    """)
    assert move(play_v311, "bob") is MoveWay.CLOSED
    play_v311("""
    carl > PINGREQ           bob < CLOSED    carl < PINGRESP
    bob  > CONNECT clean=0   bob < CONNACK reason=0x88   bob < CLOSED
    wait 30s
    bob  > CONNECT clean=0   bob < CONNACK present=1
    """)
    assert moves(play_v311).moved[MoveWay.CLOSED] == 1


def test_a_client_is_let_in_at_once_if_the_other_gateway_cannot_be_reached(play: Any) -> None:
    play("bob > CONNECT   bob < CONNACK")
    path = GatewayPath()
    moves(play).use_paths(path, frozenset({"north", "south"}))
    move(play, "bob")
    play(f"wait 1s    {told(play)}    bob < CLOSED")
    path.is_open = False
    play("bob > CONNECT   bob < CONNACK")
    assert (moves(play).refused, outcomes(play)) == (0, {"returned": 1})


def test_a_client_is_let_in_at_once_if_the_other_gateway_left_the_federation_or_has_its_session() -> None:
    table = ClientMoves(30)
    for name in ("bob", "carl"):
        table.begin(name, "south" if name == "bob" else "east", FOR_NOW, True, 0)
    table.use_paths(GatewayPath(), frozenset({"north", "east"}))
    assert table.refusal("bob", SECOND) is None
    assert table.refusal("carl", SECOND) is not None
    table.arrived("carl", SECOND)
    assert table.refusal("carl", SECOND) is None
    assert (table.ended[MoveOutcome.ARRIVED], table.ended[MoveOutcome.UNKNOWN]) == (1, 1)


def test_a_client_that_is_not_seen_again_is_forgotten(play_v5: Any) -> None:
    play_v5("bob > CONNECT   bob < CONNACK")
    move(play_v5, "bob")
    play_v5(f"wait 1s    {told(play_v5)}    bob < CLOSED   wait 320s")
    assert len(moves(play_v5)) == 1
    play_v5("wait 70s")
    assert (len(moves(play_v5)), outcomes(play_v5)) == (0, {"unknown": 1})


def test_the_will_of_a_client_on_its_way_waits(play: Any) -> None:
    """A client on its way has not failed; only if it arrives nowhere, it has."""
    bob = 'bob > CONNECT clean=0 session=600 will=w/bob will-payload="gone" will-qos=1'
    play(f"""
    alice > CONNECT         alice < CONNACK
    alice > SUBSCRIBE w/#   alice < SUBACK granted=0
    {bob}                   bob < CONNACK
    """)
    move(play, "bob")
    play(f"wait 1s    {told(play)}    bob < CLOSED")
    play(f"""
    wait 28s
    wait 2s    alice < PUBLISH w/bob "gone"
    {bob}      bob < CONNACK present=1
    bob cut    alice < PUBLISH w/bob "gone"
    """)


def test_nobody_is_refused_where_the_setting_says_so(play_v5: Any) -> None:
    play_v5("bob > CONNECT   bob < CONNACK", FrontendOptions(move_refusal_s=0))
    move(play_v5, "bob")
    play_v5(f"wait 1s    {told(play_v5)}    bob < CLOSED   bob > CONNECT   bob < CONNACK")


def test_no_more_clients_are_moved_at_once_than_can_be_refused() -> None:
    table = ClientMoves(30)
    for number in range(MOVED_CLIENTS_MAX):
        table.begin(f"c{number}", "south", FOR_NOW, True, number)
    with pytest.raises(MoveTableFull, match=r"^4,096 clients are on their way; go on in 20 s$"):
        table.begin("one more", "south", FOR_NOW, True, 10 * SECOND)
    assert table.moved[MoveWay.USE_ANOTHER_SERVER] == MOVED_CLIENTS_MAX
    table.begin("one more", "south", FOR_NOW, True, 30 * SECOND)
    assert (len(table), table.ended[MoveOutcome.UNKNOWN]) == (MOVED_CLIENTS_MAX, 1)
