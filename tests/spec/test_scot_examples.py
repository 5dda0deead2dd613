"""The worked examples of the source [SCOT], with the exact results: cluster bits, congestion, and where copies go."""

from __future__ import annotations

from itertools import permutations

import pytest

from edgebroker.federation.options import PUBLISHED_OPTIONS, FederationOptions
from edgebroker.instants import SECOND
from edgebroker.overlay.congestion import QueueSample
from edgebroker.overlay.messages import Advertise, Announce, ClusterBits, Forward
from edgebroker.overlay.reorder_buffer import BROKEN_WAIT_MAX
from edgebroker.overlay.routing import RoutingCase, civ_of, clusters_of
from edgelab.simworld.federation import Federation

from ..support.routers import federation

DYNAMIC = FederationOptions(is_dynamic=True, sorts=False, is_precise=False, is_covering=False, wants_answers=False)


# -- cluster bits: P1 at B(a,2), P2 at B(a,1), P3 at B(e,1) -----------------------------------------------------------

PUBLISHERS = {"P1": "a.2", "P2": "a.1", "P3": "e.1"}
SUBSCRIBERS = {
    "S1": ("c.0", ("P2", "P3")),
    "S2": ("d.0", ("P3",)),
    "S3": ("c.1", ("P3",)),
    "S4": ("d.2", ("P1", "P2", "P3")),
}
NUMBERS = {name: number * 10 for number, name in enumerate(SUBSCRIBERS, 1)}


def advertise(made: Federation, publisher: str) -> None:
    gateway = PUBLISHERS[publisher]
    made.perform(gateway, made.peers[gateway].advertise(publisher, f"{publisher}/x", made.now))


def subscribe(made: Federation, subscriber: str) -> None:
    gateway, publishers = SUBSCRIBERS[subscriber]
    for place, publisher in enumerate(publishers):
        made.subscribe(gateway, NUMBERS[subscriber] + place, f"{publisher}/#")


def unsubscribe(made: Federation, subscriber: str) -> None:
    gateway, publishers = SUBSCRIBERS[subscriber]
    for place in range(len(publishers)):
        made.unsubscribe(gateway, NUMBERS[subscriber] + place)


def targets(made: Federation) -> dict[str, str]:
    found = {}
    for publisher, gateway in PUBLISHERS.items():
        flow = made.peers[gateway].region.advertisements.find(publisher, f"{publisher}/x")
        assert flow is not None
        found[publisher] = format_civ(flow.record.targets, 3)
    return found


EXPECTED = {"P1": "100", "P2": "101", "P3": "111"}
ORDERS = {
    "ADV before SUB": ["P1", "P2", "P3", "S1", "S2", "S3", "S4"],
    "SUB before ADV": ["S1", "S2", "S3", "S4", "P1", "P2", "P3"],
    "interleaved": ["S1", "P3", "S4", "P1", "S2", "P2", "S3"],
}


@pytest.mark.parametrize("settles", [True, False], ids=["one by one", "all at once"])
@pytest.mark.parametrize("options", [PUBLISHED_OPTIONS, FederationOptions()], ids=["published", "ours"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_the_same_bits_in_every_order_of_arrival(order: list[str], options: FederationOptions, settles: bool) -> None:
    made = federation("a-b-c-d-e", options=options)
    for name in order:
        (advertise if name in PUBLISHERS else subscribe)(made, name)
        if settles:
            made.settle()
    made.settle()
    assert targets(made) == EXPECTED


def test_the_same_bits_in_all_orders_of_four() -> None:
    for order in permutations(("P2", "P3", "S1", "S4")):
        made = federation("a-b-c-d-e", options=PUBLISHED_OPTIONS)
        for name in order:
            (advertise if name in PUBLISHERS else subscribe)(made, name)
        for name in ("P1", "S2", "S3"):
            (advertise if name in PUBLISHERS else subscribe)(made, name)
        made.settle()
        assert targets(made) == EXPECTED, order


def test_bits_go_when_the_last_subscriber_has_gone_and_a_second_later() -> None:
    made = federation("a-b-c-d-e", options=PUBLISHED_OPTIONS)
    for name in (*PUBLISHERS, *SUBSCRIBERS):
        (advertise if name in PUBLISHERS else subscribe)(made, name)
    made.settle()
    unsubscribe(made, "S4")
    made.settle()
    # The host cluster's own bit is a matter of the host alone; a secondary's is cleared when nobody has come back.
    assert targets(made) == EXPECTED | {"P1": "000"}
    made.advance(SECOND)
    made.settle()
    assert targets(made) == {"P1": "000", "P2": "001", "P3": "011"}


@pytest.mark.parametrize(
    ("publisher", "copies"),
    [
        ("P1", {("a.2", "b.2")}),
        ("P2", {("a.1", "a.0"), ("a.1", "a.2")}),
        ("P3", {("e.1", "e.0"), ("e.1", "e.2"), ("e.1", "d.1")}),
    ],
)
def test_copies_leave_the_host_for_targets_only(publisher: str, copies: set[tuple[str, str]]) -> None:
    made = federation("a-b-c-d-e", options=PUBLISHED_OPTIONS)
    for name in (*PUBLISHERS, *SUBSCRIBERS):
        (advertise if name in PUBLISHERS else subscribe)(made, name)
    made.settle()
    made.sent.clear()
    host = PUBLISHERS[publisher]
    made.publish(host, publisher, f"{publisher}/x")
    made.settle()
    links = [(sender, peer) for sender, peer, _ in made.sent]
    assert {link for link in links if link[0] == host} == copies
    assert len(links) == len(set(links))
    wanting = {gateway for gateway, publishers in SUBSCRIBERS.values() if publisher in publishers}
    assert wanting <= {handed.gateway for handed in made.local_deliveries} | {host}


def test_an_advertisement_costs_m_minus_1_messages_and_a_subscription_n_minus_1() -> None:
    made = federation("a-b-c-d-e", options=PUBLISHED_OPTIONS)
    advertise(made, "P1")
    assert [type(message) for _, _, message in made.sent] == [Advertise, Advertise]
    made.settle()
    assert len(made.sent) == 2, "nobody wants it: nobody answers"
    made.sent.clear()
    subscribe(made, "S4")
    made.settle()
    kinds = [type(message) for _, _, message in made.sent]
    assert kinds.count(Announce) == 3 * 4
    assert ClusterBits not in kinds, "the host is in the cluster of the subscriber"


def format_civ(civ: int, clusters: int) -> str:
    """*civ* with one digit for each of *clusters* clusters, cluster 0 rightmost."""
    return f"{civ:0{clusters}b}"


def advertisement_context(host_cluster: int, target_clusters: int) -> int:
    """The layout published for the publisher's gateway, in which the bit of the host cluster is always set."""
    return target_clusters | 1 << host_cluster


def subscription_context(host_cluster: int, own_cluster: int, is_wanted: bool) -> int:
    """The layout published for the region mates of that gateway: two bits, the host's and the own cluster's."""
    return 1 << host_cluster | is_wanted << own_cluster


def test_the_published_layouts() -> None:
    # Host in cluster 0; nobody, then a subscriber in cluster 1, then another one in cluster 2.
    assert [format_civ(advertisement_context(0, civ_of(tc)), 3) for tc in ((), (1,), (1, 2))] == ["001", "011", "111"]
    assert [format_civ(subscription_context(0, 1, scb), 3) for scb in (False, True, True)] == ["001", "011", "011"]
    assert [format_civ(subscription_context(0, 2, scb), 3) for scb in (False, False, True)] == ["001", "001", "101"]
    assert list(clusters_of(0b101)) == [0, 2]


# -- congestion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "element", "index", "congested"),
    [
        (QueueSample(0, 0, 0), 1, 0, False),
        (QueueSample(40, 20, 12), 1.952, 23.4, True),
        (QueueSample(20, 40, 12), 0.512, 6.15, False),
        (QueueSample(0, 0, 12), 1, 12, True),
    ],
)
def test_congestion(queue: QueueSample, element: float, index: float, congested: bool) -> None:
    assert queue.congestion_element == pytest.approx(element, abs=5e-4)
    assert queue.congestion_index == pytest.approx(index, abs=5e-2)
    made = federation("a-b-c-d-e", options=DYNAMIC)
    peers = made.peers["a.0"]
    peers.end_window({"a.1": queue})
    assert peers.link_status.is_congested("a.1") is congested


# -- dynamic routing on the path a-b-c with three clusters; the publisher is at B(b,2) ---------------------------------

X = ("c.0", "c.1", "a.2", "c.2")
Y = ("c.0", "c.1", "b.2", "c.2")
Z = ("c.0", "c.1", "b.1", "c.2")

# Links are named without the dot; what a link has waiting, while nothing enters or leaves, is its CI.


def copies(
    placement: tuple[str, ...], loads: dict[str, int], options: FederationOptions
) -> tuple[list[str], int, Federation]:
    """What is sent, as `b2>c2 [011]`, and how many brokers see the event."""
    made = federation("a-b-c", 3, options)
    for number, gateway in enumerate(placement):
        made.subscribe(gateway, number, "t/#")
    made.settle()
    made.perform("b.2", made.peers["b.2"].advertise("P", "t/x", made.now))
    made.settle()
    by_sender: dict[str, dict[str, QueueSample]] = {}
    for link, waiting in loads.items():
        sender, peer = (f"{name[0]}.{name[1]}" for name in link.split("-"))
        by_sender.setdefault(sender, {})[peer] = QueueSample(0, 0, waiting)
    for sender, queues in by_sender.items():
        made.peers[sender].end_window(queues)
    made.sent.clear()
    made.publish("b.2", "P", "t/x")
    made.settle()
    made.advance(BROKEN_WAIT_MAX)  # marked copies wait for those that they may have overtaken
    assert {handed.gateway for handed in made.local_deliveries} >= {
        gateway for gateway in placement if gateway != "b.2"
    }
    path = []
    for sender, peer, message in made.sent:
        assert isinstance(message, Forward)
        civ = message.header.civ
        path.append(f"{sender}>{peer}".replace(".", "") + (f" [{format_civ(civ, 3)}]" if civ else ""))
    seen = [handed.gateway for handed in made.local_deliveries]
    assert len(seen) == len(set(seen)), "a broker saw it twice"
    return path, len({*seen, "b.2"}), made


EXAMPLES = {
    "a": (X, {"b2-b0": 12}, "b2>a2, b2>c2, b2>b1 [001], b1>c1, b1>b0, b0>c0", 7, (6, 7)),
    "b, Z": (Z, {"b2-b0": 12, "b2-b1": 12}, "b2>c2 [011], c2>c0, c2>c1, c1>b1", 5, (5, 6)),
    "b, X": (X, {"b2-b0": 12, "b2-b1": 12, "b2-a2": 1}, "b2>a2, b2>c2 [011], c2>c0, c2>c1", 5, (6, 7)),
    "b, Y": (Y, {"b2-b0": 12, "b2-b1": 12}, "b2>c2 [011], c2>c0, c2>c1", 4, (5, 6)),
    "b'": (
        X,
        {"b2-b0": 12, "b2-b1": 12, "b2-c2": 1},
        "b2>c2, b2>a2 [011], a2>a0, a0>b0, b0>c0, a2>a1, a1>b1, b1>c1",
        9,
        (6, 7),
    ),
    "c": (X, {"b2-b0": 12, "b1-b0": 12, "c1-c0": 12}, "b2>a2, b2>c2, b2>b1 [001], b1>c1 [001], c1>c0", 6, (6, 7)),
    "d": (
        Y,
        {"b2-b0": 20, "b2-b1": 15, "b2-c2": 12},
        "b2>c2, b2>b1 [001], b1>c1, b1>b0, b0>c0",
        6,
        (5, 6),
    ),
}


@pytest.mark.parametrize(("placement", "loads", "path", "brokers", "static"), EXAMPLES.values(), ids=EXAMPLES)
def test_dynamic_routing(
    placement: tuple[str, ...], loads: dict[str, int], path: str, brokers: int, static: tuple[int, int]
) -> None:
    sent, seen, _ = copies(placement, loads, DYNAMIC)
    assert sorted(sent) == sorted(path.split(", "))
    assert seen == brokers
    sent, seen, _ = copies(placement, loads, PUBLISHED_OPTIONS)
    assert (len(sent), seen) == static


def test_the_cases_are_counted() -> None:
    expected = {"a": RoutingCase.ANOTHER_CLUSTER, "b, X": RoutingCase.NEIGHBOUR, "d": RoutingCase.LAST_RESORT}
    for name, case in expected.items():
        placement, loads, *_ = EXAMPLES[name]
        _, _, made = copies(placement, loads, DYNAMIC)
        assert made.peers["b.2"].forwarder.cases[case] == 1, name
