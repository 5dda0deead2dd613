"""Interests of neighbours survive a restart: messages for a dead gateway are kept while its neighbour restarts."""

from __future__ import annotations

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.federation.effects import Effect
from edgebroker.federation.options import FederationOptions
from edgebroker.federation.retained_claims import SITE_FILTER
from edgebroker.instants import MINUTE, SECOND, Instant
from edgebroker.interest import Interest
from edgebroker.overlay.link.journal_records import StoredLinks, interests_record
from edgebroker.overlay.messages import Digest, Message, Restate
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.topics import TopicFilter
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import doubled, unaccounted, unwanted
from edgelab.simworld.gateways import SimulatedGateway, SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

LONG = 90 * SECOND
"""More than a restarted gateway waits for what its neighbours want."""


class Row:
    """Gateways of one site in a row; at the last one a reader that keeps its session."""

    def __init__(self, path: str, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(
            self.simulation,
            Topology.product(Scot(Factor.parse(path), 1)),
            is_stored=True,
            federation_options=FederationOptions(roams=False),  # nothing waits but what clients publish
        )
        self.gateways.wait_for_links()
        self.first, *_, self.last = self.gateways
        self.reader = Participant("reader", self.last, V5, True, 20, FAIR)
        self.publisher = Participant("publisher", self.first, V5, True, 20, FAIR)
        for one in (self.reader, self.publisher):
            one.connect()
        self.wait(SECOND)
        self.reader.subscribe("t/#", 2)
        self.wait(SECOND)

    def wait(self, length: int) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def publish(self, payload: bytes, qos: int, topic: str = "t/x") -> bytes:
        assert self.publisher.publish(topic, payload, qos)
        self.wait(SECOND)
        return payload


def state_again(gateway: SimulatedGateway) -> None:
    """Let a gateway make a snapshot; what it had in its journal before is superseded."""
    journal = gateway.frontend.journal.storage
    assert journal is not None
    journal.request_snapshot()
    gateway.frontend.recovery.begin_snapshot_if_due(gateway.simulation.now)
    gateway.turn()


@pytest.mark.parametrize("is_snapshot", [True, False])
@pytest.mark.parametrize("is_power_cut", [True, False])
@pytest.mark.parametrize("path", ["a-b", "a-b-c"])
def test_messages_are_kept_for_a_neighbour_that_was_dead_before_the_restart(
    path: str, is_power_cut: bool, is_snapshot: bool, seed: int
) -> None:
    row = Row(path, seed)
    beside = [*row.gateways][-2]
    row.last.power_off()
    row.wait(SECOND)
    if is_snapshot:
        state_again(beside)
        row.wait(SECOND)
    beside.crash(is_power_cut)
    row.wait(LONG)
    row.publisher.connect()
    row.wait(SECOND)
    expected = [row.publish(b"1", 1), row.publish(b"2", 2)]
    row.publish(b"3", 1, "elsewhere")
    assert beside.waiting == 2, "what nobody there asked for is not kept"
    row.last.power_on()
    row.wait(2 * MINUTE)
    row.reader.connect()
    row.wait(5 * SECOND)
    assert [heard.payload for heard in row.reader.received] == expected
    assert [*unwanted([row.reader, row.publisher])] == []
    assert [*doubled([row.reader, row.publisher])] == []
    assert [text for gateway in row.gateways for text in unaccounted(gateway, [])] == []


def test_who_is_remembered_and_wants_less_says_so_when_it_is_back(seed: int) -> None:
    row = Row("a-b", seed)
    row.gateways.road("a.0", "b.0").cut()
    row.reader.unsubscribe("t/#")
    row.wait(SECOND)
    row.first.crash()
    own = {Interest(SITE_FILTER, ())}
    assert set(row.first.overlay.peers.interests.announced_by("b.0")) > own
    row.gateways.road("a.0", "b.0").mend()
    row.wait(MINUTE)
    assert set(row.first.overlay.peers.interests.announced_by("b.0")) == own


def test_who_is_remembered_well_is_told_by_a_digest_alone(seed: int) -> None:
    row = Row("a-b", seed)
    row.first.crash(False)
    told = []
    receive = row.first.overlay.peers.received

    def received(peer: str, message: Message, now: Instant) -> list[Effect]:
        told.append(type(message))
        return receive(peer, message, now)

    row.first.overlay.peers.received = received  # type: ignore[method-assign]
    row.wait(30 * SECOND)
    assert Digest in told
    assert Restate not in told
    assert row.first.overlay.peers.interests.is_known("b.0")


def test_the_journal_says_what_neighbours_want_now() -> None:
    one, other, third = (Interest(TopicFilter.parse(text), ()) for text in ("a", "b/#", "+/c"))
    stored = StoredLinks()
    for record in (
        interests_record("n", (one, other), ()),
        interests_record("m", (other,), ()),
        interests_record("n", (third,), (one,)),
        interests_record("n", (third,), (one,)),
    ):
        assert stored.apply(record)
    assert stored.misunderstood == 0
    assert {peer: [*interests] for peer, interests in stored.interests.items()} == {"n": [other, third], "m": [other]}
    assert stored.apply(interests_record("n", (), ())[:-1] + b"\xf6")
    assert stored.misunderstood == 1
