"""The federation router: announcements, events that wait for answers, and what is forgotten when."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from edgebroker.federation.effects import SendMessage
from edgebroker.federation.interests import ClusterInterests, covering_search
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.filters import Filter
from edgebroker.header import HOSTED_MAX
from edgebroker.instants import HOUR, MILLISECOND, MINUTE, SECOND
from edgebroker.interest import Interest
from edgebroker.limits import ADVERTISEMENTS_PER_CLIENT_MAX, WAITING_BYTES_MAX, WAITING_EVENTS_MAX
from edgebroker.overlay.advertisements import Advertisements
from edgebroker.overlay.id_allocator import IdAllocator
from edgebroker.overlay.link.codec.messages import alone, read_alone
from edgebroker.overlay.messages import Advertise, Announce, ClusterBits, ClusterBitsAck, Forward, Restate
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.topics import TopicFilter

from ..support.routers import came, federation, kinds

DYNAMIC = FederationOptions(is_dynamic=True)


# -- synchronising ----------------------------------------------------------------------------------------------------


def test_a_link_that_was_down_for_a_moment_costs_a_digest_each_way() -> None:
    made = federation()
    for number in range(100):
        made.subscribe("a.0", number, f"t/{number}")
        made.publish("b.1", "P", f"t/{number}")
    made.settle()
    kinds(made)
    made.cut("a.0", "b.0")
    made.connect("a.0", "b.0")
    made.cut("b.0", "b.1")
    made.connect("b.0", "b.1")
    made.settle()
    assert kinds(made) == {"Digest": 4}


def test_a_gateway_that_forgot_everything_is_told_what_it_needs() -> None:
    made = federation()
    for number in range(100):
        made.subscribe("a.0", number, f"t/{number}")
    made.publish("b.1", "P", "t/5")
    made.settle()
    kinds(made)
    made.restart("b.0")
    made.settle()
    said = kinds(made)
    assert (said["Digest"], said["Advertise"]) == (8 + 2, 0), "and one behind the interests of each neighbour"
    assert said["Restate"] == 16 + 16 + 1, "100 interests to it, what it forgot to c.0, and one advertisement to it"
    came(made)
    made.publish("b.1", "P", "t/7")
    made.settle()
    assert came(made) == ["a.0", "b.0"]


def test_only_what_differs_is_restated() -> None:
    made = federation("a-b", 1)
    for number in range(1_000):
        made.subscribe("a.0", number, f"t/{number}")
    made.settle()
    made.cut("a.0", "b.0")
    made.unsubscribe("a.0", 17)
    made.subscribe("a.0", 1_017, "u")
    kinds(made)
    made.connect("a.0", "b.0")
    made.settle()
    restated = [message for _, _, message in made.sent if isinstance(message, Restate)]
    assert 1 <= len(restated) <= 2
    assert sum(len(message.interests) for message in restated) < 40
    texts = {interest.topic_filter.text for interest in made.peers["b.0"].interests.announced_by("a.0")}
    assert texts == {f"t/{number}" for number in range(1_000)} - {"t/17"} | {"u"}


def test_interests_are_restated_in_a_time_that_grows_with_their_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = federation("a-b", 1)
    for number in range(1_000):
        made.subscribe("a.0", number, f"t/{number}")
    made.settle()
    found: Counter[TopicFilter] = Counter()
    fingerprint = Interest.fingerprint

    def counted(self: Interest) -> int:
        found[self.topic_filter] += 1
        return fingerprint(self)

    monkeypatch.setattr(Interest, "fingerprint", counted)
    kinds(made)
    made.restart("b.0")
    made.settle()
    assert kinds(made)["Restate"] > 100
    assert len(made.peers["b.0"].interests.announced_by("a.0")) == 1_000
    assert len(found) == 1_000
    assert max(found.values()) <= 6, "for two digests at each end, and once for the parts"


def test_interests_that_change_while_others_are_restated_stay_as_they_were_announced_last() -> None:
    made = federation("a-b", 1)
    for number in range(200):
        made.subscribe("a.0", number, f"t/{number}")
    made.settle()
    made.cut("a.0", "b.0")
    for number in range(0, 200, 2):
        made.unsubscribe("a.0", number)
        made.subscribe("a.0", 1_000 + number, f"u/{number}")
    made.connect("a.0", "b.0")
    changes = iter(range(1, 200, 2))
    while any(made.links.values()):
        for pair in [pair for pair, waiting in made.links.items() if waiting]:
            made.deliver(pair)
            for changed in islice(changes, 1):
                made.unsubscribe("a.0", changed)
                made.subscribe("a.0", 2_000 + changed, f"v/{changed}")
    told = made.peers["a.0"].interests.announced_to("b.0")
    assert set(made.peers["b.0"].interests.announced_by("a.0")) == set(told)
    assert len(told) == 200


def test_an_interest_of_a_neighbour_takes_little_memory() -> None:
    """10,000 content filters of one gateway take at most 25 MB at each other gateway of its site; here each of 1,000
    more, at a gateway with three neighbours, without the compiled search tree, which takes less.
    """

    def announcement(first: int) -> bytes:
        filters = [Filter.parse(f"device = 'device-{number:06}' AND temp > 30") for number in range(first, first + 250)]
        interests = [
            Interest(TopicFilter.parse(f"plant/line{number % 8}/data"), predicate)
            for number, each in enumerate(filters)
            for predicate in each.predicates
        ]
        return alone(Announce(tuple(interests), 1), TrafficClass.CONTROL)

    announcements = [announcement(first) for first in range(0, 2_000, 250)]
    known = ClusterInterests({"a": (), "b": (), "c": ()}, True, True)

    def hear(wires: list[bytes]) -> None:
        for wire in wires:
            message, _ = read_alone(wire)
            assert isinstance(message, Announce)
            known.announced("a", message.interests)
        gc.collect()

    hear(announcements[:4])
    tracemalloc.start()
    try:
        hear(announcements[4:])
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(known.announced_to("b")) == 2_000
    assert grown <= 1_000 * 2_600, "it was 7,300 with an announcer for each link"


def test_a_gateway_that_steps_aside_gets_what_its_own_clients_want_and_passes_nothing_on() -> None:
    made = federation("a-b-c", 2)
    for number, name in enumerate(("a.0", "b.0", "c.0")):
        made.subscribe(name, number, "t")
    made.settle()
    middle = made.peers["b.0"]
    made.perform("b.0", middle.step_aside(True, made.now))
    made.settle()
    made.sent.clear()
    for name in ("a.0", "b.0", "c.0"):
        made.publish(name, f"P at {name}", "t")
        made.settle()
        made.advance(SECOND)
        assert came(made) == sorted({"a.0", "b.0", "c.0"} - {name}), "each once"
    between = [message for sender, peer, message in made.sent if (sender, peer) == ("b.0", "c.0")]
    assert [message.client for message in between if isinstance(message, Forward)] == ["P at b.0"]
    made.subscribe("c.0", 7, "new")
    made.settle()
    made.publish("b.0", "P at b.0", "new")
    made.publish("a.0", "P at a.0", "new")
    made.settle()
    made.advance(SECOND)
    assert came(made).count("c.0") == 2, "interests are announced as always"
    made.perform("b.0", middle.step_aside(False, made.now))
    made.settle()
    made.sent.clear()
    made.publish("a.0", "P at a.0", "t")
    made.settle()
    made.advance(SECOND)
    assert came(made) == ["b.0", "c.0"]
    assert kinds(made)["Relay"] == 0


def test_a_peer_that_stays_away_is_forgotten() -> None:
    made = federation(options=FederationOptions(lease_s=60))
    made.subscribe("a.0", 1, "t/#")
    made.publish("b.1", "P", "t/x")
    made.settle()
    made.kill("a.0")
    made.cut("b.0", "b.1")
    made.advance(59 * SECOND)
    kinds(made)
    made.advance(2 * SECOND)
    assert kinds(made)["Withdraw"] == 1
    assert made.peers["b.0"].interests.announced_by("a.0") == ()
    assert made.peers["b.0"].region.secondary.of("b.1") == ()


# -- advertisements ---------------------------------------------------------------------------------------------------


def test_an_event_waits_until_all_clusters_have_answered() -> None:
    made = federation()
    made.subscribe("c.0", 1, "t/#")
    made.settle()
    kinds(made)
    made.publish("a.1", "P", "t/x", b"1")
    made.publish("a.1", "P", "t/x", b"2")
    assert kinds(made) == {"Advertise": 2}
    made.settle()
    assert [handed.forward.payload for handed in made.local_deliveries if handed.gateway == "c.0"] == [b"1", b"2"]


def test_an_event_waits_for_a_second_at_most_and_then_goes_wherever_it_may_be_wanted() -> None:
    made = federation()
    made.lossy_links.add(("a.1", "a.0"))  # a.0 hears nothing
    made.publish("a.1", "P", "t/x")
    made.settle()
    kinds(made)
    made.advance(999 * MILLISECOND)
    assert "Forward" not in kinds(made)
    made.advance(MILLISECOND)
    assert [(sender, peer) for sender, peer, message in made.sent if isinstance(message, Forward)] == [("a.1", "a.0")]


def test_an_event_that_waits_grows_old() -> None:
    made = federation("a", 2)
    peers = made.peers["a.1"]
    made.lossy_links.add(("a.1", "a.0"))
    made.publish("a.1", "P", "t/x", expiry_s=10)
    made.advance(SECOND)
    (forward,) = [message for _, _, message in made.sent if isinstance(message, Forward)]
    assert forward.expires_in_ms == 9_000
    assert peers.region.pending.overflows == 0


def test_nobody_waits_for_a_cluster_that_cannot_be_reached() -> None:
    made = federation("a", 2)
    made.cut("a.0", "a.1")
    kinds(made)
    made.publish("a.1", "P", "t/x")
    assert kinds(made) == {"Forward": 1}
    assert len(made.outboxes["a.1", "a.0"]) == 1


def test_so_many_events_wait_and_no_more() -> None:
    made = federation("a", 2)
    made.lossy_links.add(("a.1", "a.0"))
    for _ in range(WAITING_EVENTS_MAX):
        made.publish("a.1", "P", "t/x")
    assert kinds(made)["Forward"] == WAITING_EVENTS_MAX
    assert made.peers["a.1"].region.pending.overflows == 1


def test_so_many_bytes_wait_under_all_advertisements_and_no_more() -> None:
    made = federation("a", 2)
    made.lossy_links.add(("a.1", "a.0"))
    payload = bytes(WAITING_BYTES_MAX // 4)
    for number in range(3):
        made.publish("a.1", f"P{number}", f"t/{number}", payload)
    assert "Forward" not in kinds(made)
    made.publish("a.1", "P3", "t/3", payload)
    assert kinds(made)["Forward"] == 1, "that of the publisher with whom it became too much"
    made.publish("a.1", "P4", "t/4", b"small")
    assert "Forward" not in kinds(made)
    made.advance(SECOND)
    assert kinds(made)["Forward"] == 4
    assert made.peers["a.1"].region.pending.overflows == 1


def test_numbers_that_come_again_are_not_given_while_somebody_has_them() -> None:
    made = federation("a", 2)
    numbers = made.peers["a.0"].ids
    before = numbers.allocated
    made.publish("a.0", "old", "t/x")
    made.settle()
    (record,) = made.peers["a.0"].region.advertisements
    flow = made.peers["a.0"].region.advertisements.find("old", "t/x")
    assert flow is not None
    assert flow.record is record
    used = numbers.allocated - before
    numbers.allocated += HOSTED_MAX - used  # so many questions and publishers later
    made.publish("a.0", "new", "u/x")
    made.settle()
    later = made.peers["a.0"].region.advertisements.find("new", "u/x")
    assert later is not None
    given = [number for each in (flow, later) for number in (each.record.advertise.adv, each.publisher.number)]
    assert len(set(given)) == 4
    made.subscribe("a.1", 1, "#")
    made.settle()
    came(made)
    made.publish("a.0", "old", "t/x")
    made.publish("a.0", "new", "u/x")
    made.settle()
    assert came(made) == ["a.1", "a.1"]


def test_a_client_with_many_prefixes_is_advertised_for_everything() -> None:
    made = federation("a", 2)
    for number in range(ADVERTISEMENTS_PER_CLIENT_MAX + 20):
        made.publish("a.0", "P", f"p/{number}/x")
    made.settle()
    advertised = [message.topic_filter.text for _, _, message in made.sent if isinstance(message, Advertise)]
    assert len(advertised) == ADVERTISEMENTS_PER_CLIENT_MAX + 1
    assert advertised[-1] == "#"


def test_an_advertisement_without_events_for_a_day_ends() -> None:
    made = federation("a", 2)
    made.publish("a.0", "P", "t/x")
    made.settle()
    kinds(made)
    made.advance(20 * HOUR)
    made.publish("a.0", "P", "t/x")
    made.advance(24 * HOUR)
    assert kinds(made) == {}
    made.advance(2 * MINUTE)
    assert kinds(made) == {"Unadvertise": 1}
    assert made.peers["a.1"].region.secondary.of("a.0") == ()
    assert len(made.peers["a.0"].region.advertisements) == 0
    assert made.peers["a.0"].timers.next_due() is None, "a gateway at rest has no timers"


def test_all_clients_of_a_gateway_share_an_advertisement() -> None:
    made = federation()
    made.publish("a.1", "P", "t/x")
    made.settle()
    assert kinds(made) == {"Advertise": 2, "ClusterBits": 2, "ClusterBitsAck": 2}
    for number in range(100):  # each client with another identifier, and six minutes later
        made.advance(6 * MINUTE)
        made.publish("a.1", f"one-shot-{number}", "t/x/y")
    made.settle()
    assert kinds(made) == {}, "the answers to the first one are there"
    made.subscribe("c.0", 1, "t/x/y")
    made.settle()
    made.publish("a.1", "another", "t/x/y")
    made.settle()
    assert came(made) == ["a.0", "b.0", "c.0"]


def test_a_gateway_that_nobody_publishes_at_wakes_up_only_to_end_its_advertisements() -> None:
    made = federation("a", 2)
    made.publish("a.0", "P", "t/x")
    made.settle()
    made.advance(7 * MINUTE)
    due = made.peers["a.0"].timers.next_due()
    assert due is not None
    assert due > made.now + 23 * HOUR
    made.publish("a.0", "P", "t/x")
    due = made.peers["a.0"].timers.next_due()
    assert due is not None
    assert due <= made.now + MINUTE, "the flow is looked at before the advertisement"


def test_so_many_advertisements_are_kept_without_clients() -> None:
    made = federation("a", 2, FederationOptions(idle_advertisements_max=100))
    for number in range(110):
        made.publish("a.0", f"P{number}", f"p/{number}/x")
    made.settle()
    made.advance(4 * MINUTE)
    made.publish("a.0", "P0", "p/0/x")
    made.advance(3 * MINUTE)
    left = [record.advertise.topic_filter.text for record in made.peers["a.0"].region.advertisements]
    assert left == ["p/0/#", *(f"p/{number}/#" for number in range(10, 110))], (
        "those without a client for longest ended"
    )
    assert len(made.peers["a.1"].region.secondary.of("a.0")) == len(left)


def test_an_advertisement_that_somebody_needs_stays_and_is_looked_at_again_later() -> None:
    made = Advertisements(IdAllocator(1), 0, 0b10, 60, True, covering_search)
    records = [made.open(f"P{number}", f"p/{number}/x", number)[0].record for number in range(4)]
    made.end_flows(since=9)
    retained = records[0].advertise.topic_filter
    assert made.expired(0, 2, 9, retained.__eq__) == [records[1]], "two too many, and one of them is needed"
    made.close(records[1])
    assert made.expired(9, 9, 20, retained.__eq__) == records[2:], "others would not know where to ask"
    assert made.expired(21, 9, 30, lambda _: False) == [*records[2:], records[0]]


# -- events that wait, durably ----------------------------------------------------------------------------------------


def test_an_event_of_qos_1_that_waits_outlives_its_gateway() -> None:
    made = federation()
    made.subscribe("c.0", 1, "t/#")
    made.settle()
    for payload in (b"1", b"2"):
        made.publish("a.1", "P", "t/x", payload)
    assert kinds(made)["Forward"] == 0, "no cluster has answered"
    made.restart("a.1")
    made.settle()
    assert [handed.forward.payload for handed in made.local_deliveries if handed.gateway == "c.0"] == [b"1", b"2"]
    assert made.reorder_buffers["a.1"] == {}, "nothing is said a third time"


def test_an_event_that_nobody_wants_is_not_stored_any_more_once_all_have_answered() -> None:
    made = federation()
    made.publish("a.1", "P", "t/x")
    assert len(made.reorder_buffers["a.1"]) == 1
    made.settle()
    assert made.reorder_buffers["a.1"] == {}
    assert kinds(made)["Forward"] == 0


def test_an_event_for_which_there_is_no_room_to_wait_takes_those_before_it_along() -> None:
    made = federation("a", 2)
    made.publish("a.1", "P", "t/x", b"1")
    made.publish("a.1", "P", "t/x", b"2", may_wait=False)
    sent = [message.payload for _, _, message in made.sent if isinstance(message, Forward)]
    assert sent == [b"1", b"2"]
    assert made.reorder_buffers["a.1"] == {}


def test_topics_that_begin_with_a_dollar_stay_at_home() -> None:
    made = federation("a-b", 2)
    made.subscribe("a.0", 1, "$SYS/#")
    made.publish("b.0", "P", "$SYS/x")
    made.query_retained("b.0", 2, "$SYS/#")
    made.unsubscribe("a.0", 1)
    made.settle()
    assert kinds(made) == {}


# -- cluster bits -----------------------------------------------------------------------------------------------------


def test_a_subscriber_who_comes_back_within_a_second_is_not_missed() -> None:
    made = federation("a", 2)
    made.publish("a.0", "P", "t/x")
    made.subscribe("a.1", 1, "t/#")
    made.settle()
    kinds(made)
    for number in range(2, 12):
        made.unsubscribe("a.1", number - 1)
        made.settle()
        made.advance(SECOND // 2)
        made.subscribe("a.1", number, "t/#")
        made.settle()
    assert kinds(made) == {}
    made.unsubscribe("a.1", 11)
    made.advance(SECOND)
    assert kinds(made) == {"ClusterBits": 1, "ClusterBitsAck": 1}


def test_an_older_word_does_not_undo_a_newer_one() -> None:
    made = federation("a", 2)
    made.publish("a.0", "P", "t/x")
    made.subscribe("a.1", 1, "t/#")
    made.settle()
    (record,) = made.peers["a.0"].region.advertisements
    assert record.targets == 0b10
    newest = record.numbers[1]
    stale = ClusterBits((record.advertise.adv,), 1, newest - 1, False, None)
    effects = made.peers["a.0"].received("a.1", stale, made.now)
    assert record.targets == 0b10
    assert [effect.message for effect in effects if isinstance(effect, SendMessage)] == [ClusterBitsAck(1, newest - 1)]


def test_what_a_host_has_not_confirmed_is_said_again() -> None:
    made = federation("a", 2)
    made.publish("a.0", "P", "t/x")
    made.settle()
    made.lossy_links.add(("a.0", "a.1"))  # confirmations are lost
    kinds(made)
    made.subscribe("a.1", 1, "t/#")
    made.settle()
    made.advance(5 * SECOND)
    assert kinds(made)["ClusterBits"] == 3
    made.cut("a.0", "a.1")
    made.lossy_links.clear()
    kinds(made)
    made.advance(5 * SECOND)
    assert kinds(made)["ClusterBits"] == 0
    made.connect("a.0", "a.1")
    made.settle()
    assert kinds(made)["ClusterBits"] == 1
    made.advance(5 * SECOND)
    assert kinds(made)["ClusterBits"] == 0


@pytest.mark.parametrize(("options", "copies"), [(DEFAULT_OPTIONS, 0), (replace(DEFAULT_OPTIONS, is_precise=False), 1)])
def test_a_cluster_says_what_it_wants_of_a_publisher(options: FederationOptions, copies: int) -> None:
    made = federation("a", 2, options)
    made.subscribe("a.1", 1, "t/#", Filter.parse("v > 5").predicates)
    made.publish("a.0", "P", "t/x", b'{"v": 1}')
    made.settle()
    assert kinds(made)["Forward"] == copies
    made.publish("a.0", "P", "t/x", b'{"v": 6}')
    assert kinds(made)["Forward"] == 1


def test_different_interests_in_one_topic_become_one_covering() -> None:
    made = federation("a", 2)
    made.publish("a.0", "P", "t/x", b'{"v": 1}')
    for number in range(9):
        made.subscribe("a.1", number, "t/#", Filter.parse(f"v = {number}").predicates)
    made.settle()
    (record,) = made.peers["a.0"].region.advertisements
    assert len(record.covering[1].interests) == 9
    assert record.wanted == {"v"}
    assert record.targets == 0b10


def test_who_passes_on_what_an_earlier_run_said_hears_that_it_does_not_hold() -> None:
    made = federation("a-b", 2)
    made.cut("b.0", "b.1")
    made.advance(2 * SECOND)
    made.kill("a.1")
    made.advance(2 * SECOND)
    assert made.peers["a.0"].gossip.link_state.next_hop("b.1") is None
    made.restart("b.0")
    made.settle()
    made.connect("b.0", "b.1")
    made.settle()
    assert made.peers["a.0"].gossip.link_state.next_hop("b.1") == "b.0", "nobody but b.0 could tell"
