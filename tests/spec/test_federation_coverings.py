"""What a site wants crosses its uplinks and little else, however many wishes it has: coverings are widened, never given
up, and never too narrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest

from edgebroker.federation.options import DEFAULT_OPTIONS
from edgebroker.filters import Filter
from edgebroker.filters.widening import octets_of
from edgebroker.instants import SECOND
from edgebroker.interest import Interest
from edgebroker.limits import COVERING_BYTES
from edgebroker.names import Address
from edgebroker.overlay.messages import ClusterBits, Forward
from edgebroker.overlay.topology.draft import UPLINKS, DraftGateway, Site, TopologyDraft, Uplink
from edgebroker.overlay.topology.topology import Topology
from edgebroker.topics import TopicFilter
from edgelab.bench.churn.trial import RangeLoad
from edgelab.demo.subscriber_specs import SUBSCRIBER_SPECS
from edgelab.simworld.federation import Federation

from ..support.routers import federation, kinds

HOST, READERS = "gw-here", "gw-there"


def two_sites(covering_bytes: int = COVERING_BYTES) -> Federation:
    """One gateway at each of two sites; events are published at HOST, and wanted at READERS."""
    uplink = Uplink("wan", 2, covering_bytes=covering_bytes)
    sites = (Site("here", 0, UPLINKS["wan"]), Site("there", 1, uplink))
    gateways = [
        DraftGateway(name, number, site.name, (), (Address(name, 1),))
        for number, (name, site) in enumerate(zip((HOST, READERS), sites, strict=True))
    ]
    made = Federation(Topology(TopologyDraft("coverings", ("a",), sites, tuple(gateways))), DEFAULT_OPTIONS)
    made.connect_all()
    made.settle()
    return made


class Wishes:
    """The subscriptions at READERS, and the oracle that knows what they want."""

    def __init__(self, made: Federation) -> None:
        self.made = made
        self.wanted: dict[int, list[Interest]] = {}

    def subscribe(self, topic: str, where: str = "") -> int:
        number = len(self.wanted)
        predicates = Filter.parse(where).predicates if where else ((),)
        self.wanted[number] = [Interest(TopicFilter.parse(topic), predicate) for predicate in predicates]
        self.made.subscribe(READERS, number, topic, predicates)
        self.made.settle()
        return number

    def unsubscribe(self, number: int) -> None:
        del self.wanted[number]
        self.made.unsubscribe(READERS, number)
        self.made.settle()

    def wants(self, topic: str, attributes: dict[str, float | str]) -> bool:
        levels = {f"$level{at}": level for at, level in enumerate(topic.split("/"), 1)}
        return any(one.accepts(topic, {**levels, **attributes}) for each in self.wanted.values() for one in each)

    def crossing(self, events: Iterable[tuple[str, dict[str, float | str]]]) -> tuple[int, int, int]:
        """Publish *events* at HOST: how many are wanted, how many crossed, how many of these nobody wanted. Each that
        is wanted crosses.
        """
        wanted = crossed = superfluous = 0
        for topic, attributes in events:
            self.made.sent.clear()
            payload = "{" + ", ".join(f'"{name}": {value}' for name, value in attributes.items()) + "}"
            self.made.publish(HOST, "P", topic, payload.encode())
            self.made.settle()
            copies = sum(isinstance(message, Forward) for _, _, message in self.made.sent)
            is_wanted = self.wants(topic, attributes)
            assert copies == 1 or not is_wanted, f"{topic} {payload} is wanted"
            wanted, crossed = wanted + is_wanted, crossed + copies
            superfluous += copies and not is_wanted
        return wanted, crossed, superfluous


def begin(covering_bytes: int = COVERING_BYTES, topic: str = "iot/readings") -> Wishes:
    """Two sites, and a publisher at HOST that is known at READERS."""
    made = two_sites(covering_bytes)
    made.publish(HOST, "P", topic, b"{}")
    made.settle()
    return Wishes(made)


@pytest.mark.parametrize("count", [8, 9, 50, 200])
def test_disjoint_filters_that_nothing_matches_let_nothing_cross(count: int) -> None:
    wishes = begin(topic="plant/line")
    for number in range(count):
        wishes.subscribe("plant/line", f"v BETWEEN {1000 + 10 * number} AND {1005 + 10 * number}")
    wishes.made.advance(2 * SECOND)
    assert wishes.crossing(("plant/line", {"v": number}) for number in range(200)) == (0, 0, 0)


@pytest.mark.parametrize("count", [8, 10, 50, 100])
def test_exact_device_topics_let_no_other_device_cross(count: int) -> None:
    wishes = begin(topic="plant/line/device-0/state")
    for number in range(count):
        wishes.subscribe(f"plant/line/device-{number}/state")
    wishes.made.advance(2 * SECOND)
    others = ((f"plant/line/device-{number}/state", {"v": 1.0}) for number in range(count, count + 500))
    assert wishes.crossing(others) == (0, 0, 0)
    own = ((f"plant/line/device-{number}/state", {"v": 1.0}) for number in range(count))
    assert wishes.crossing(own) == (count, count, 0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fifty_wishes_of_the_iot_workload_let_at_most_a_twentieth_cross_in_vain(seed: int) -> None:
    load = RangeLoad(seed, 0.001)
    wishes = begin()
    for _ in range(50):
        wishes.subscribe("iot/readings", load.where())
    wishes.made.advance(2 * SECOND)
    wanted, crossed, superfluous = wishes.crossing(("iot/readings", {**load.reading()}) for _ in range(2_000))
    assert wanted > 50
    assert superfluous <= crossed / 20


def test_fifty_wishes_of_the_demo_let_at_most_a_twentieth_cross_in_vain() -> None:
    wishes = begin(topic="cold-chain/truck-1")
    for spec in SUBSCRIBER_SPECS[1:]:  # all but the one who wants everything
        wishes.subscribe(spec.topic, spec.where)
    for truck in range(50 - len(wishes.wanted)):
        wishes.subscribe("cold-chain/#", f"$level2 = 'truck-{truck}' AND humidity BETWEEN {40 + truck / 7} AND 60")
    wishes.made.advance(2 * SECOND)
    chance = Random(1)
    events: list[tuple[str, dict[str, float | str]]] = []
    for _ in range(1_000):
        reading = {"temperature": chance.uniform(2, 9), "humidity": chance.uniform(20, 90)}
        events.append((f"cold-chain/truck-{chance.randrange(100)}", {**reading}))
    wanted, crossed, superfluous = wishes.crossing(events)
    assert wanted > 100
    assert superfluous <= crossed / 20


def test_more_wishes_than_fit_are_widened_and_all_that_is_wanted_crosses() -> None:
    load = RangeLoad(7, 0.001)
    wishes = begin(1_024)
    for number in range(120):
        wishes.subscribe("iot/readings", load.where())
        if number % 30 == 0:
            wishes.crossing(("iot/readings", {**load.reading()}) for _ in range(30))
    wishes.made.advance(2 * SECOND)
    told = [message for _, _, message in wishes.made.sent if isinstance(message, ClusterBits)]
    assert told
    assert told[-1].covering is not None
    assert octets_of(told[-1].covering) <= 1_024
    assert wishes.made.peers[READERS].region.secondary.exactness(HOST) == (0, 1, 0)
    wishes.crossing(("iot/readings", {**load.reading()}) for _ in range(500))
    for number in range(100):
        wishes.unsubscribe(number)
    wishes.crossing(("iot/readings", {**load.reading()}) for _ in range(100))
    wishes.made.advance(3 * SECOND)
    _, crossed, _ = wishes.crossing(("iot/readings", {**load.reading()}) for _ in range(1_000))
    assert crossed < 200, "20 wishes nearly fit"


def test_a_new_wish_is_met_at_once_however_full_the_covering_is() -> None:
    wishes = begin(512, "plant/line/device-0/state")
    for number in range(80):
        topic = f"plant/line/device-{number * 7919 % 10_007}/state"
        wishes.subscribe(topic, "v > 1")
        assert wishes.crossing([(topic, {"v": 2})])[:2] == (1, 1)
        wishes.made.advance(2 * SECOND)
        assert wishes.crossing([(topic, {"v": 2})])[:2] == (1, 1)


def test_the_same_wishes_of_many_publishers_are_widened_once() -> None:
    wishes = begin(1_024, "cold/truck-0")
    for truck in range(1, 100):
        wishes.made.publish(HOST, "P", f"cold/truck-{truck}", b"{}")
    wishes.made.settle()
    for number in range(120):
        wishes.subscribe("cold/#", f"v BETWEEN {10 * number} AND {10 * number + 3} AND w > {number}")
    wishes.made.advance(10 * SECOND)
    exact, widened, anything = wishes.made.peers[READERS].region.secondary.exactness(HOST)
    assert (exact, anything) == (0, 0)
    assert widened == 65, "64 topics, and one for all others"
    events: list[tuple[str, dict[str, float | str]]] = [(f"cold/truck-{at}", {"v": 2_000 + at}) for at in range(64)]
    assert wishes.crossing(events)[1:] == (0, 0)


def test_a_thousand_clients_that_come_back_cause_few_answers() -> None:
    wishes = begin(topic="plant/line")
    wishes.made.sent.clear()
    for number in range(1_000):
        wishes.subscribe(f"plant/line/{number * 7919 % 100_003}/state")
    told = [message for _, _, message in wishes.made.sent if isinstance(message, ClusterBits)]
    assert sum(0 if each.covering is None else octets_of(each.covering) for each in told) < 300 * COVERING_BYTES
    wishes.made.advance(2 * SECOND)
    assert wishes.made.peers[READERS].region.secondary.exactness(HOST) == (0, 1, 0)
    wishes.crossing((f"plant/line/{number * 7919 % 100_003}/state", {}) for number in range(0, 1_000, 10))


def test_the_smaller_of_both_uplinks_decides() -> None:
    topology = two_sites(1_000).topology
    assert topology.covering_bytes(0) == {1: 1_000}
    assert topology.covering_bytes(1) == {0: 1_000}


def test_who_advertises_later_is_told_anything_first_and_a_covering_at_once() -> None:
    load = RangeLoad(3, 0.001)
    made = two_sites(1_024)
    wishes = Wishes(made)
    for _ in range(120):
        wishes.subscribe("iot/readings", load.where())
    made.sent.clear()
    made.publish(HOST, "P", "iot/readings", b"{}")
    made.settle()
    made.advance(0)
    made.settle()
    first, second = [message.covering for _, _, message in made.sent if isinstance(message, ClusterBits)]
    assert first is None
    assert second is not None
    assert isinstance(second[0], Interest)


def test_a_wide_subscription_that_comes_and_goes_is_told_alone() -> None:
    """Beside 500 filters: what it covers stays announced, and is not told again."""
    made = federation("a-b-c", 2)
    for number in range(500):
        made.subscribe("a.0", number, f"plant/{number % 20}", Filter.parse(f"dev = {number} AND t > 3").predicates)
    made.settle()
    kinds(made)
    for _ in range(2):
        made.subscribe("a.0", 1_000, "#")
        made.settle()
        assert kinds(made) == Counter(Announce=2), "one on each link of the site"
        assert made.peers["c.0"].interests.wants(TopicFilter.parse("plant/1/#"), 4_096, True).covering == (
            Interest(TopicFilter.parse("#"), ()),
        )
        made.unsubscribe("a.0", 1_000)
        made.settle()
        assert kinds(made) == Counter(Withdraw=2)
        assert len(made.peers["c.0"].interests.wants(TopicFilter.parse("plant/1/#"), 8_192, True).covering or ()) == 25
