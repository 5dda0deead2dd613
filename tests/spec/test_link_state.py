"""Link-state statements of gateways, and the routes that follow from them."""

from __future__ import annotations

from edgebroker.overlay.link_state import LinkStateTable
from edgebroker.overlay.messages import LinkStateUpdate
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology

TOPOLOGY = Topology.product(Scot(Factor.parse("a-b-c"), 2))
A0, A1, B0, B1, C0, C1 = (TOPOLOGY.gateway(name).number for name in ("a.0", "a.1", "b.0", "b.1", "c.0", "c.1"))


def reach(boot: int = 1) -> LinkStateTable:
    """That of a.0, which has met its peers."""
    made = LinkStateTable(TOPOLOGY, "a.0", boot)
    for peer in ("b.0", "a.1"):
        assert made.peer_up(peer) is None, "nobody was told otherwise"
    return made


def test_while_nothing_is_said_all_is_there() -> None:
    made = reach()
    assert made.next_hop("c.0") == "b.0"
    assert made.next_hop("c.1") == "b.0", "of two ways of one length the one that enters a cluster last"
    assert made.next_hop("b.1") == "b.0"
    assert made.statements() == ()
    assert made.nearest(1) == "a.1"


def test_a_peer_that_is_lost_is_doubted_until_it_is_heard_of() -> None:
    made = reach()
    made.peer_down("b.0")
    assert made.is_reachable("b.0"), "over b.1, as far as is known"
    said = made.declare_lost("b.0")
    assert said == LinkStateUpdate(A0, (1 << 32) + 1, (B0,))
    assert not made.is_reachable("b.0")
    assert made.next_hop("b.0") == "a.1", "it may be asked"
    assert made.next_hop("c.0") == "a.1"
    made.receive(LinkStateUpdate(C1, 1, (C0,)))
    assert made.next_hop("c.0") is None, "nothing goes through who is doubted"
    made.mark_alive("b.0")
    assert made.is_reachable("b.0")
    assert made.next_hop("c.0") == "a.1"
    assert made.peer_up("b.0") == LinkStateUpdate(A0, (1 << 32) + 2, ())
    assert made.next_hop("c.0") == "b.0"


def test_a_peer_that_reports_the_lost_connection_itself_is_alive() -> None:
    for is_reported_first in (False, True):
        made = reach()
        made.peer_down("b.0")
        if is_reported_first:
            made.receive(LinkStateUpdate(B0, 1, (A0,)))
        made.declare_lost("b.0")
        if not is_reported_first:
            assert not made.is_reachable("b.0")
            made.receive(LinkStateUpdate(B0, 1, (A0,)))
        assert made.is_reachable("b.0"), "over b.1"
        made.peer_up("b.0")
        made.peer_down("b.0")
        made.declare_lost("b.0")
        assert not made.is_reachable("b.0"), "its report was about the time before"


def test_one_end_is_enough_and_the_last_word_counts() -> None:
    made = reach()
    cut = LinkStateUpdate(C0, 5, (B0,))
    assert made.receive(cut) == [cut]
    assert made.next_hop("c.0") == "b.0", "over b.1"
    assert made.receive(LinkStateUpdate(C0, 4, ())) == []
    assert made.receive(cut) == []
    dead = LinkStateUpdate(C1, 1, (C0,))
    assert made.receive(dead) == [dead]
    assert made.next_hop("c.0") is None
    assert made.static_next_hop("c.0") == "b.0", "as if all were there"
    assert made.statements() == (cut, dead)
    mended = LinkStateUpdate(C0, 6, ())
    assert made.receive(mended) == [mended]
    assert made.next_hop("c.0") == "b.0", "its other end says nothing of it"


def test_a_word_of_an_earlier_run_is_taken_back() -> None:
    made = reach(boot=2)
    assert made.receive(LinkStateUpdate(A0, (1 << 32) + 7, (B0,))) == [LinkStateUpdate(A0, (2 << 32) + 1, ())]
    assert made.receive(LinkStateUpdate(A0, (1 << 32) + 8, (B0,))) == [], "the others have the newer one"
    assert made.receive(LinkStateUpdate(A0, (3 << 32) + 1, (B0,))) == [LinkStateUpdate(A0, (3 << 32) + 2, ())], (
        "a clock went back"
    )
    assert made.receive(LinkStateUpdate(1_000, 1, ())) == [], "there is no such gateway"
