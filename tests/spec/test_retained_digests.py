"""Retained messages of other gateways cross a link again only if they have changed."""

from __future__ import annotations

from hashlib import sha256

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.federation.options import FederationOptions
from edgebroker.federation.retained_cache import RetainedCache, part_of
from edgebroker.header import EventHeader, hosted
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.interest import Interest
from edgebroker.limits import KIB, MIB
from edgebroker.overlay.link.codec.messages import body
from edgebroker.overlay.messages import ConditionalRetainedQuery, Forward
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.topics import TopicFilter
from edgelab.simworld.broker import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

KEPT = 2_000
IDLE_BYTES_MAX = 400
"""What heartbeats take in the seconds that are looked at."""
QUERY_BYTES_MAX = 2_048
CHANGE_BYTES_MAX = 5 * KIB


def reading(number: int) -> bytes:
    """A payload that does not compress well."""
    return b'{"value": %d, "raw": "%b"}' % (number, sha256(b"%d" % number).hexdigest().encode())


class Sites:
    """Sites of two gateways each, with a publisher of retained messages at a.0."""

    def __init__(self, seed: int, count: int = KEPT, sites: int = 2, options: FederationOptions | None = None) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(
            self.simulation,
            Topology.product(Scot(Factor.parse("a-b"), sites)),
            is_stored=True,
            federation_options=options or FederationOptions(),
        )
        self.gateways.wait_for_links()
        self._dashboards = 0
        self.publisher = self.joined("publisher", "a.0")
        self.publish({f"kept/{number}": reading(number) for number in range(count)})

    def wait(self, length: int = SECOND) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def joined(self, name: str, gateway: str) -> Participant:
        one = Participant(name, self.gateways[gateway], V5, True, 10_000, FAIR)
        one.connect()
        self.wait()
        return one

    def publish(self, messages: dict[str, bytes]) -> None:
        for topic, payload in messages.items():
            assert self.publisher.publish(topic, payload, 0, retain=True)
        self.wait(3 * SECOND)

    def dashboard(self, gateway: str, topic_filter: str = "kept/#") -> tuple[dict[str, bytes], int]:
        """What a new subscriber gets, each topic once, and the bytes on the link that carries the most for it."""
        self._dashboards += 1
        reader = self.joined(f"dashboard-{self._dashboards}", gateway)
        before = {name: sum(road.bytes) for name, road in self.gateways.roads.items()}
        reader.subscribe(topic_filter, 0)
        self.wait(3 * SECOND)
        received = {one.topic: one.payload for one in reader.received}
        octets = max(sum(road.bytes) - before[name] for name, road in self.gateways.roads.items())
        assert len(received) == len(reader.received), "something came twice"
        reader.disconnect()
        self.wait()
        return received, octets


@pytest.mark.parametrize("gateway", ["a.1", "b.1"])
def test_a_dashboard_that_connects_again_costs_a_digest(seed: int, gateway: str) -> None:
    sites = Sites(seed)
    first, all_bytes = sites.dashboard(gateway)
    assert len(first) == KEPT
    assert all_bytes > 40 * KIB
    again, query_bytes = sites.dashboard(gateway)
    assert again == first
    assert query_bytes < QUERY_BYTES_MAX + IDLE_BYTES_MAX
    sites.publish({"kept/7": b"changed"})
    changed, change_bytes = sites.dashboard(gateway)
    assert changed == {**first, "kept/7": b"changed"}
    assert change_bytes < CHANGE_BYTES_MAX
    assert sites.dashboard(gateway) == (changed, pytest.approx(query_bytes, abs=IDLE_BYTES_MAX))
    sites.publish({"kept/7": b"", "kept/new": b"new"})
    expected = {topic: payload for topic, payload in changed.items() if topic != "kept/7"} | {"kept/new": b"new"}
    after, change_bytes = sites.dashboard(gateway)
    assert after == expected
    assert change_bytes < 2 * CHANGE_BYTES_MAX
    assert sites.dashboard(gateway)[0] == expected


def test_what_its_own_gateway_has_does_not_cross(seed: int) -> None:
    """A reader was there when everything was published, so the gateway where that entered the site has copies."""
    sites = Sites(seed, 0)
    reader = sites.joined("reader", "a.1")
    reader.subscribe("kept/#", 0)
    sites.wait()
    sites.publish({f"kept/{number}": b"%d" % number for number in range(KEPT)})
    assert len(reader.received) == KEPT
    received, octets = sites.dashboard("a.1")
    assert len(received) == KEPT
    assert octets < QUERY_BYTES_MAX + IDLE_BYTES_MAX


def test_restarts_of_either_end_lose_nothing(seed: int) -> None:
    sites = Sites(seed, 200)
    first, _ = sites.dashboard("b.1")
    assert len(first) == 200
    for name in ("b.1", "a.0"):
        sites.gateways[name].crash()
        sites.gateways.wait_for_links(40 * SECOND)
        sites.publisher = sites.joined(f"publisher-{name}", "a.0")
        sites.publish({"kept/1": name.encode()})
        first["kept/1"] = name.encode()
        assert sites.dashboard("b.1")[0] == first


def test_what_was_forgotten_before_the_answer_came_is_asked_for_again(seed: int) -> None:
    sites = Sites(seed, 100)
    first, _ = sites.dashboard("a.1")
    reader = sites.joined("late", "a.1")
    queries = sites.gateways["a.1"].overlay.peers.retained_queries
    reader.subscribe("kept/#", 0)
    while not any(query.digests for query in queries.open_queries()):
        sites.wait(MILLISECOND // 10)
    queries.cache.clear()
    sites.wait(3 * SECOND)
    assert {one.topic: one.payload for one in reader.received} == first
    assert len(reader.received) == len(first)
    assert queries.repeated == 1


def test_a_later_message_is_not_followed_by_a_known_one(seed: int) -> None:
    sites = Sites(seed)
    sites.dashboard("a.1")
    reader = sites.joined("late", "a.1")
    reader.subscribe("kept/#", 0)
    while not reader.received:
        sites.wait(MILLISECOND // 10)
    for number in range(0, KEPT, 50):
        assert sites.publisher.publish(f"kept/{number}", b"later", 0, retain=True)
    sites.wait(3 * SECOND)
    last = {one.topic: one.payload for one in reader.received}
    assert len(last) == KEPT
    assert {last[f"kept/{number}"] for number in range(0, KEPT, 50)} == {b"later"}


def test_several_sites_are_asked_with_a_digest_each(seed: int) -> None:
    sites = Sites(seed, 500, 3)
    other = sites.joined("other", "b.1")
    for number in range(500):
        assert other.publish(f"kept/there/{number}", b"%d" % number, 0, retain=True)
    sites.wait(3 * SECOND)
    first, _ = sites.dashboard("a.2")
    again, octets = sites.dashboard("a.2")
    assert len(first) == 1_000
    assert again == first
    assert octets < QUERY_BYTES_MAX


def test_filters_are_asked_with_digests_too(seed: int) -> None:
    sites = Sites(seed, 400)
    first, _ = sites.dashboard("a.1", "$filter/value%20%3C%20200/kept/#")
    again, octets = sites.dashboard("a.1", "$filter/value%20%3C%20200/kept/#")
    assert len(first) == 200
    assert again == first
    assert octets < QUERY_BYTES_MAX


def test_without_a_cache_everything_crosses_each_time(seed: int) -> None:
    sites = Sites(seed, 100, 2, FederationOptions(retained_cache_bytes_max=0))
    assert sites.dashboard("a.1")[0] == sites.dashboard("a.1")[0]
    queries = sites.gateways["a.1"].overlay.peers.retained_queries
    assert (queries.unmodified, queries.cache.bytes) == (0, 0)


# -- the cache --------------------------------------------------------------------------------------------------------


ANY = Interest(TopicFilter.parse("#"), ())
GATEWAY = 3


def kept(topic: str, sequence: int = 1, expires_in_ms: int | None = None) -> Forward:
    header = EventHeader(hosted(GATEWAY, 1), sequence, 0, 0, published_ms=sequence)
    return Forward(header, topic, b"x" * 100, 0, True, "P", expires_in_ms=expires_in_ms)


def test_a_digest_of_2000_takes_less_than_2_kilobytes() -> None:
    cache = RetainedCache(8 * MIB)
    for number in range(KEPT):
        cache.add(ANY, kept(f"kept/{number}"), 0)
    query = ConditionalRetainedQuery(1, ANY, cache.digests(ANY, 0))
    assert len(body(query, TrafficClass.CONTROL)) < 1_300
    counts = [0] * 128
    for number in range(KEPT):
        counts[part_of(f"kept/{number}", 128)] += 1
    assert max(counts) < 50


def test_a_cache_keeps_to_its_bound_and_forgets_the_question_asked_least_recently() -> None:
    cache = RetainedCache(64 * KIB)
    first, second = Interest(TopicFilter.parse("a/#"), ()), Interest(TopicFilter.parse("b/#"), ())
    for number in range(30):
        cache.add(first, kept(f"a/{number}"), 0)
        cache.add(second, kept(f"b/{number}"), 0)
    assert cache.digests(first, 0)
    assert cache.digests(second, 0)
    assert cache.digests(first, 0)
    for number in range(1_000):
        cache.add(first, kept(f"a/more/{number}"), 0)
        assert cache.bytes <= cache.bytes_max
    assert not cache.digests(second, 0)
    assert cache.digests(first, 0)
    cache.clear()
    assert cache.bytes == 0


def test_what_has_expired_is_neither_in_a_digest_nor_given() -> None:
    cache = RetainedCache(MIB)
    cache.add(ANY, kept("t", expires_in_ms=1_000), 0)
    cache.add(ANY, kept("u"), 0)
    (digest,) = cache.digests(ANY, 0)
    assert cache.confirm(ANY, digest, 1, 0, SECOND // 2) == [kept("t", expires_in_ms=500), kept("u")]
    assert cache.confirm(ANY, digest, 1, 0, 2 * SECOND) == [kept("u")]
    assert cache.digests(ANY, 2 * SECOND) != (digest,)


def test_what_changed_meanwhile_is_not_given_as_confirmed() -> None:
    cache = RetainedCache(MIB)
    cache.add(ANY, kept("t"), 0)
    (digest,) = cache.digests(ANY, 0)
    cache.add(ANY, kept("t", 2), 0)
    cache.add(ANY, kept("t", 1), 0)
    assert cache.confirm(ANY, digest, 1, 0, 0) is None
    (digest,) = cache.digests(ANY, 0)
    assert cache.confirm(ANY, digest, 0, 0, 0) == []
    assert (cache.bytes, cache.digests(ANY, 0)) == (0, ())
