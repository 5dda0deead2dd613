"""The congestion index of a link since the last measurement."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from edgebroker.runtime.peers.peers import CongestionGauge


def link(peer: str, *lanes: tuple[int, int]) -> Any:
    """A link whose lanes took and sent so many."""
    outbox = {
        at: SimpleNamespace(figures=SimpleNamespace(entered=entered, left=left, waiting=entered - left))
        for at, (entered, left) in enumerate(lanes)
    }
    return SimpleNamespace(peer=peer, outbox=SimpleNamespace(queues=outbox))


def test_an_idle_link_has_none() -> None:
    assert CongestionGauge().index(link("p", (5, 5))) == 0


def test_it_looks_at_what_was_done_since_and_at_all_that_waits() -> None:
    gauge = CongestionGauge()
    assert gauge.index(link("p", (9, 4), (0, 0))) == 10 / 5 * 5
    assert gauge.index(link("p", (9, 4), (0, 0))) == 5, "a stalled link has what waits"
    assert gauge.index(link("p", (9, 8), (3, 0))) == 4 / 5 * 4


def test_links_are_looked_at_apart() -> None:
    gauge = CongestionGauge()
    gauge.index(link("p", (9, 4)))
    assert gauge.index(link("q", (9, 4))) == 10
