"""Queries of operators pass through a federation once, and the reports return on the same path."""

from __future__ import annotations

import pytest

from edgebroker.federation.effects import Effect, ReceiveStatus, ReportStatus, SendMessage
from edgebroker.federation.retained_queries import STATUS_QUERIES_MAX
from edgebroker.federation.router import FederationRouter
from edgebroker.overlay.link.codec.frames import FrameReader, Item
from edgebroker.overlay.link.link import LinkSender
from edgebroker.overlay.link.outbox import BOUNDS, LinkOutbox
from edgebroker.overlay.messages import Message, StatusQuery, StatusReply
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass

TOPOLOGY = Topology.product(Scot(Factor.parse("a-b-c"), 2))


class Routers:
    """A router for each gateway of two sites with three gateways each; all links are up but those that are *cut*."""

    def __init__(self, cut: frozenset[frozenset[str]] = frozenset()) -> None:
        self.by_name = {one.name: FederationRouter(TOPOLOGY, one.name) for one in TOPOLOGY.gateways}
        for name, router in self.by_name.items():
            for peer in router.gateway.peers():
                if frozenset((name, peer)) not in cut:
                    router.link_up(peer, 0)
        self.sent: list[Message] = []
        self.received: dict[int, bytes] = {}

    def carry(self, name: str, effects: list[Effect]) -> None:
        """Perform what *name* wants done, and what follows from it."""
        todo = [(name, effect) for effect in effects]
        while todo:
            name, effect = todo.pop(0)
            router, follows = self.by_name[name], list[Effect]()
            match effect:
                case SendMessage(peer, message, service):
                    assert service is TrafficClass.CONTROL
                    self.sent.append(message)
                    todo += [(peer, each) for each in self.by_name[peer].received(name, message, 0)]
                case ReportStatus(request):
                    follows = router.status_queries.answer(request, name.encode())
                case ReceiveStatus(reply):
                    self.received[reply.gateway] = reply.report
            todo += [(name, each) for each in follows]

    def ask(self, name: str) -> set[str]:
        _, effects = self.by_name[name].status_queries.query()
        self.carry(name, effects)
        return {report.decode() for report in self.received.values()}


@pytest.mark.parametrize("name", ["a.0", "b.1", "c.0"])
def test_every_gateway_answers_once(name: str) -> None:
    routers = Routers()
    assert routers.ask(name) == {one.name for one in TOPOLOGY.gateways} - {name}
    replies = [message for message in routers.sent if isinstance(message, StatusReply)]
    assert len(replies) <= 2 * len(TOPOLOGY.gateways)


def test_a_query_goes_around_a_link_that_is_down() -> None:
    routers = Routers(frozenset((frozenset(("a.0", "b.0")), frozenset(("b.0", "c.0")))))
    assert routers.ask("a.0") == {"a.1", "b.1", "c.1", "b.0", "c.0"}


def test_who_is_cut_off_does_not_answer() -> None:
    alone = frozenset(frozenset(("c.0", peer)) for peer in TOPOLOGY.gateway("c.0").peers())
    assert Routers(alone).ask("a.0") == {"b.0", "a.1", "b.1", "c.1"}


def test_replies_to_forgotten_queries_are_counted_and_dropped() -> None:
    queries = Routers().by_name["a.0"].status_queries
    first, _ = queries.query()
    for _ in range(STATUS_QUERIES_MAX):
        queries.query()
    assert queries.receive_reply(StatusReply(first, 1, b"{}")) == []
    assert queries.late == 1


@pytest.mark.parametrize("knows", [True, False])
def test_only_a_peer_that_can_read_them_is_sent_queries(knows: bool) -> None:
    outbox, sender = LinkOutbox("peer", BOUNDS, None), LinkSender(False, {"operator"} if knows else set())
    outbox.opened({}, False)
    for message in (StatusQuery(7), StatusReply(7, 1, b"{}")):
        outbox.enqueue(message, TrafficClass.CONTROL, 0)
    items: list[Item] = []
    FrameReader(False).feed(sender.pull(outbox, TrafficClass, 10_000, 0), items)
    assert len(items) == (3 if knows else 0)  # NEXT, and the two
