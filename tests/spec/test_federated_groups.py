"""Shared subscriptions over gateways: one member of the whole federation gets each message."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from edgebridge.frontend.admin import change_federated_groups
from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.dialect import V5
from edgebroker.federation.group_members import PASSES_MAX, GroupEvent, GroupMembersTable
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions, OutboxOptions
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, SECOND, Duration
from edgebroker.log_schema import DELIVERY, Fate
from edgebroker.overlay.link_state import LinkStateTable
from edgebroker.overlay.messages import Forward, GroupCount, GroupMembers
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgebroker.runtime.http.clients import DeliveryForecast, forecast_delivery
from edgebroker.storage.deliverylog.reader import read_segment
from edgelab.simworld.conditions import FAIR
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.roads import RoadConditions
from edgelab.simworld.simulation import Simulation

SHARED = FrontendOptions(federated_groups=("work*",))
GROUP = "$share/workers/jobs/#"
DISTANCE: Duration = 20 * MILLISECOND


class Sites:
    """Two sites of two gateways: a.0 and b.0, a.1 and b.1. The uplinks are a.0~a.1 and b.0~b.1."""

    def __init__(
        self,
        options: FrontendOptions = SHARED,
        is_stored: bool = True,
        ways: FederationOptions = DEFAULT_OPTIONS,
        **others: Any,
    ) -> None:
        """*others*: further arguments of the gateways."""
        self.simulation = Simulation(1)
        self.topology = Topology.product(Scot(Factor.parse("a-b"), 2))
        self.gateways = SimulatedGateways(
            self.simulation,
            self.topology,
            RoadConditions((DISTANCE, DISTANCE)),
            is_stored=is_stored,
            options=options,
            federation_options=replace(ways, roams=False),  # or gateways would tell each other of sessions
            **others,
        )
        self.gateways.wait_for_links()
        self.clients: list[Participant] = []

    def wait(self, length: Duration = 2 * SECOND) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def client(self, gateway: str, kept: bool = True) -> Participant:
        one = Participant(f"client-{len(self.clients)}", self.gateways[gateway], V5, kept, 20, FAIR)
        one.connect()
        self.clients.append(one)
        self.wait(SECOND)
        return one

    def worker(self, gateway: str, kept: bool = True, group: str = GROUP, qos: int = 2) -> Participant:
        one = self.client(gateway, kept)
        assert one.subscribe(group, qos)
        self.wait(SECOND)
        assert group in one.subscribed
        return one

    def publish(self, publisher: Participant, numbers: Iterable[int], qos: int = 2) -> None:
        for number in numbers:
            assert publisher.publish("jobs/a", b"%d" % number, qos)
            self.wait(50 * MILLISECOND)
        self.wait()

    def restart(self, gateway: str, after: Duration = 0) -> None:
        self.gateways[gateway].power_off()
        self.wait(after)
        self.gateways[gateway].power_on()
        self.wait(15 * SECOND)

    def reload(self, federated: tuple[str, ...], *gateways: str) -> int:
        """Change the setting at *gateways*; return how many members are in another group."""
        moved = 0
        for name in gateways:
            moved += change_federated_groups(self.gateways[name].frontend, federated, self.simulation.now)
            self.gateways[name].turn()
        self.wait()
        return moved

    def reconnect(self, *clients: Participant) -> None:
        for one in clients:
            one.connect()
        self.wait()


def jobs(*workers: Participant) -> Counter[int]:
    return Counter(int(one.payload) for worker in workers for one in worker.received)


def exactly(count: int) -> Counter[int]:
    return Counter(dict.fromkeys(range(count), 1))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_member_of_the_federation_gets_each_message(qos: int) -> None:
    sites = Sites()
    workers = [sites.worker(gateway) for gateway in ("a.0", "a.1", "b.1")]
    for gateway in ("a.0", "b.0"):
        sites.publish(sites.client(gateway), range(len(jobs(*workers)), len(jobs(*workers)) + 30), qos)
    assert jobs(*workers) == exactly(60)
    assert [round(len(worker.received) / 20) for worker in workers] == [1, 1, 1]


def test_without_the_setting_one_member_at_each_gateway_gets_it() -> None:
    sites = Sites(FrontendOptions())
    workers = [sites.worker(gateway) for gateway in ("a.0", "b.1")]
    sites.publish(sites.client("a.0"), range(3))
    assert [len(worker.received) for worker in workers] == [3, 3]


def test_a_group_of_another_name_is_shared_at_one_gateway_as_before() -> None:
    sites = Sites()
    workers = [sites.worker(gateway, group="$share/alarms/jobs/#") for gateway in ("a.0", "b.1")]
    sites.publish(sites.client("a.0"), range(3))
    assert [len(worker.received) for worker in workers] == [3, 3]


def test_a_gateway_with_more_members_gets_more() -> None:
    sites = Sites()
    many = [sites.worker("b.0") for _ in range(3)]
    one = sites.worker("b.1")
    sites.publish(sites.client("a.0"), range(40))
    assert jobs(*many, one) == exactly(40)
    assert len(one.received) == 10


def test_content_filters_belong_to_the_group() -> None:
    sites = Sites()
    hot = sites.worker("b.1", group="$share/workers/$filter/t%3E5/jobs/#")
    publisher = sites.client("a.0")
    for payload in (b'{"t":3}', b'{"t":7}'):
        assert publisher.publish("jobs/a", payload, 1)
    sites.wait()
    assert [one.payload for one in hot.received] == [b'{"t":7}']


@pytest.mark.parametrize("qos", [0, 1])
def test_a_member_elsewhere_of_a_filter_that_was_here_before_gets_its_share(qos: int) -> None:
    """The fan-out of the topic was cached when all members were here."""
    sites, group = Sites(), "$share/workers/$filter/n%3E5/jobs/#"
    near, publisher = sites.worker("a.0", group=group), sites.client("a.0")
    for _ in range(3):
        assert publisher.publish("jobs/a", b'{"n":7}', qos)
        sites.wait(SECOND)
    far = sites.worker("b.1", group=group)
    for _ in range(6):
        assert publisher.publish("jobs/a", b'{"n":7}', qos)
        sites.wait(SECOND)
    assert (len(near.received), len(far.received)) == (6, 3)


def test_an_event_crosses_an_uplink_only_on_its_way_to_its_member() -> None:
    sites = Sites()
    far, publisher = sites.worker("b.1"), sites.client("a.0")
    assert far.subscribe("other", 1)
    sites.publish(publisher, range(5))
    published = {gateway.name: gateway.frontend.ledger.published for gateway in sites.gateways}
    assert published["b.1"] == published["a.1"] + published["b.0"] == 5
    sites.worker("a.0")
    far.disconnect()
    sites.wait()
    sites.publish(publisher, range(5, 10))
    assert [gateway.frontend.ledger.published for gateway in sites.gateways] == [10, *list(published.values())[1:]]


@pytest.mark.parametrize("publisher_at", ["a.0", "b.0"])
def test_what_a_member_leaves_behind_goes_to_one_at_another_gateway(publisher_at: str) -> None:
    sites = Sites()
    leaver = sites.worker("a.0")
    publisher = sites.client(publisher_at)
    leaver.disconnect()
    sites.wait()
    sites.publish(publisher, range(5))
    heir = sites.worker("b.1")
    sites.wait(5 * SECOND)
    assert jobs(heir) == exactly(5)
    sites.reconnect(leaver)
    assert jobs(leaver, heir) == exactly(5)


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_gateway_that_has_no_member_any_more_sends_it_on(is_ended: bool) -> None:
    """The member leaves while messages are on their way to its gateway."""
    sites = Sites()
    leaver, other = sites.worker("b.0", kept=not is_ended), sites.worker("b.1")
    publisher = sites.client("a.1")
    for number in range(20):
        assert publisher.publish("jobs/a", b"%d" % number, 2)
        if number == 10:
            leaver.disconnect()
        sites.wait(MILLISECOND)
    sites.wait(5 * SECOND)
    assert jobs(leaver, other) == exactly(20)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("after_ms", [1, 8, 16, 24, 40, 60])
@pytest.mark.parametrize("gateway", ["a.0", "b.0"])
def test_nothing_is_lost_or_doubled_when_a_gateway_crashes_at_any_step(qos: int, after_ms: int, gateway: str) -> None:
    """The publisher's gateway, or that of the members, loses its power while messages are on their way."""
    sites = Sites()
    worker, publisher = sites.worker("b.0"), sites.client("a.0")
    for number in range(4):
        assert publisher.publish("jobs/a", b"%d" % number, qos)
    sites.wait(after_ms * MILLISECOND)
    sites.restart(gateway)
    sites.reconnect(*(one for one in (worker, publisher) if not one.is_ready))
    sites.wait(20 * SECOND)
    received = jobs(worker)
    assert set(received) == set(range(4))
    if qos == 2:
        assert received == exactly(4)


@pytest.mark.parametrize("after_ms", [36, 42, 46, 50, 56, 70, 200])
def test_what_is_handed_over_is_not_doubled_when_the_gateway_crashes_meanwhile(after_ms: int) -> None:
    sites = Sites()
    leaver, heir, publisher = sites.worker("a.0"), sites.client("b.1"), sites.client("a.0")
    leaver.disconnect()
    sites.wait()
    sites.publish(publisher, range(3))
    assert heir.subscribe(GROUP, 2)
    sites.wait(after_ms * MILLISECOND)
    sites.restart("a.0")
    sites.reconnect(leaver)
    sites.wait(20 * SECOND)
    assert jobs(leaver, heir) == exactly(3)


def test_what_is_for_a_dead_gateway_waits_for_it_and_new_messages_go_to_others() -> None:
    sites = Sites()
    worker = sites.worker("b.0")
    publisher = sites.client("a.0")
    sites.gateways["b.0"].power_off()
    sites.publish(publisher, range(3))
    other = sites.worker("a.1")
    sites.publish(publisher, range(3, 6))
    assert jobs(other) == Counter({3: 1, 4: 1, 5: 1})
    sites.gateways["b.0"].power_on()
    sites.wait(15 * SECOND)
    sites.reconnect(worker)
    assert jobs(worker, other) == exactly(6)


def test_a_publishers_gateway_knows_members_elsewhere_when_it_starts_without_its_links() -> None:
    sites = Sites()
    worker, publisher = sites.worker("b.0"), sites.client("a.0")
    for road in sites.gateways.roads.values():
        road.cut()
    sites.restart("a.0")
    sites.reconnect(publisher)
    sites.publish(publisher, range(3))
    for road in sites.gateways.roads.values():
        road.mend()
    sites.wait(60 * SECOND)
    assert jobs(worker) == exactly(3)


def test_a_gateway_that_lost_its_disk_learns_the_members_again_and_says_that_it_has_none() -> None:
    sites = Sites(is_stored=False)
    sites.worker("b.0", kept=False)
    other = sites.worker("b.1")
    sites.restart("b.0")
    sites.restart("a.0")
    sites.publish(sites.client("a.0"), range(4))
    assert jobs(other) == exactly(4)


def test_a_reload_changes_which_groups_are_shared_over_the_federation() -> None:
    sites = Sites(FrontendOptions())
    workers = [sites.worker(gateway) for gateway in ("a.0", "b.1")]
    publisher = sites.client("a.1")
    sites.publish(publisher, range(2))
    assert jobs(*workers) == Counter({0: 2, 1: 2})
    assert sites.reload(("workers",), "a.0", "a.1", "b.0", "b.1") == 2
    sites.publish(publisher, range(2, 6))
    assert jobs(*workers) == Counter({0: 2, 1: 2}) + Counter({2: 1, 3: 1, 4: 1, 5: 1})
    assert sites.reload((), "a.0", "a.1", "b.0", "b.1") == 2
    sites.publish(publisher, [6])
    assert jobs(*workers)[6] == 2


def test_where_settings_differ_a_gateway_without_it_has_a_group_of_its_own() -> None:
    sites = Sites()
    assert sites.reload((), "b.1") == 0
    shared = [sites.worker(gateway) for gateway in ("a.0", "b.0")]
    alone = sites.worker("b.1")
    for gateway in ("a.1", "b.1"):
        sites.publish(sites.client(gateway), range(len(alone.received), len(alone.received) + 5))
    assert jobs(*shared) == exactly(10)
    assert jobs(alone) == exactly(10)


def test_another_topology_keeps_the_members() -> None:
    sites = Sites()
    worker, publisher = sites.worker("b.0"), sites.client("a.0")
    grown = Topology.product(Scot(Factor.parse("a-b"), 3))
    sites.gateways.grow(grown)
    for gateway in sites.gateways:
        if gateway.is_off:
            gateway.power_on()
        else:
            gateway.change_topology(grown)
    sites.wait(10 * SECOND)
    sites.publish(publisher, range(3))
    assert jobs(worker) == exactly(3)


def test_a_full_outbox_refuses_what_only_a_member_behind_it_would_get() -> None:
    sites = Sites(ways=FederationOptions(outbox=OutboxOptions(messages_max=16)))
    worker, publisher = sites.worker("b.0"), sites.client("a.0")
    sites.gateways["b.0"].power_off()
    sites.wait(10 * SECOND)
    sites.publish(publisher, range(30), 1)
    assert 0 < len(publisher.refused) < 30
    sites.gateways["b.0"].power_on()
    sites.wait(30 * SECOND)
    sites.reconnect(worker)
    assert jobs(worker) == Counter(int(one) for one in publisher.acknowledged if one not in publisher.refused)


def test_a_member_that_comes_and_goes_is_told_ten_times_a_second_at_most() -> None:
    sites = Sites()
    restless = sites.worker("b.0", kept=False)
    before = sites.gateways["b.0"].overlay.peers.gossip.group_members.statements()
    for _ in range(20):
        restless.unsubscribe(GROUP)
        sites.wait(5 * MILLISECOND)
        restless.subscribe(GROUP, 1)
        sites.wait(5 * MILLISECOND)
    sites.wait()
    after = sites.gateways["a.1"].overlay.peers.gossip.group_members.statements()
    told = max(each.number for each in after) - max(each.number for each in before)
    assert 1 < told < 12
    sites.publish(sites.client("a.0"), range(2), 1)
    assert jobs(restless) == exactly(2)


def test_the_members_of_a_gateway_whose_lease_ended_are_known_again_when_it_is_back() -> None:
    sites = Sites(ways=FederationOptions(lease_s=60))
    worker, publisher = sites.worker("b.0"), sites.client("a.0")
    sites.gateways["b.0"].power_off()
    sites.wait(100 * SECOND)
    sites.publish(publisher, [0], 1)
    sites.gateways["b.0"].power_on()
    sites.wait(40 * SECOND)
    sites.reconnect(worker)
    sites.publish(publisher, [1], 1)
    assert jobs(worker) == Counter({1: 1})


def test_the_accounts_balance() -> None:
    sites = Sites()
    worker = sites.worker("b.0")
    sites.publish(sites.client("a.1"), range(6), 1)
    ledgers = {gateway.name: gateway.frontend.ledger for gateway in sites.gateways}
    assert len(worker.received) == 6
    assert ledgers["a.1"].delivered == ledgers["b.0"].delivered == 6
    for ledger in ledgers.values():
        assert ledger.matched == ledger.delivered + ledger.expired + sum(ledger.dropped.values())
    groups = {gateway.name: gateway.overlay.groups for gateway in sites.gateways}
    assert (groups["a.1"].sent, groups["b.0"].received, groups["b.0"].passed_on) == (6, 6, 0)


def test_an_operator_sees_other_gateways_among_the_readers_of_a_topic() -> None:
    sites = Sites()
    sites.worker("a.0")
    sites.worker("b.1")
    frontend = sites.gateways["a.0"].frontend
    readers = asyncio.run(forecast_delivery(frontend, "jobs/a", None, 1, 10))["readers"]
    assert [(row["client"], row["connected"], row["gets_it"]) for row in readers] == [
        ("client-0", True, DeliveryForecast.IN_TURN),
        ("gateway:b.1", True, DeliveryForecast.IN_TURN),
    ]
    assert len(frontend.node.subscriptions) == 1


def test_logs_of_all_gateways_on_the_way_show_the_event_that_was_published() -> None:
    """So `edgebroker why` follows it to the member."""
    sites = Sites(is_logged=True)
    sites.worker("b.1")
    sites.publish(sites.client("a.0"), [0], 1)
    rows = {}
    for gateway in sites.gateways:
        table = read_segment(gateway.closed_log(), growing=True).tables[DELIVERY.name]
        columns = ("topic", "fate", "event_publisher", "event_sequence", "copies")
        for topic, fate, *event in zip(*(table[name] for name in columns), strict=True):
            if fate == Fate.PUBLISHED and topic:
                rows[gateway.name] = topic, *event
    assert len(rows) == 3
    assert set(rows) >= {"a.0", "b.1"}
    assert len(set(rows.values())) == 1
    assert rows["a.0"][0] == "jobs/a"


# -- the table and the event -----------------------------------------------------------------------------------------


def test_the_latest_message_of_a_gateway_counts_and_an_earlier_run_of_this_one_is_answered() -> None:
    topology = Topology.product(Scot(Factor.parse("a-b"), 2))
    state = LinkStateTable(topology, "a.0", 2)
    table, other = GroupMembersTable(state, 2), state.number_of("b.0")
    own = table.announce((GroupCount("g", 1, 0),))
    later, earlier = GroupMembers(other, 9, (GroupCount("g", 2, 0),)), GroupMembers(other, 8, ())
    assert table.receive(later) is later
    assert table.receive(earlier) is None
    assert table.receive(later) is None
    assert table.receive(GroupMembers(999, 1, ())) is None
    of_earlier_run = replace(own, number=own.number + 5, groups=())
    answer = table.receive(of_earlier_run)
    assert answer is not None
    assert (answer.number, answer.groups) == (own.number + 6, own.groups)
    assert table.receive(own) is None
    assert set(table.statements()) == {answer, later}
    gone = table.forget(other)
    assert gone is not None
    assert gone.groups == ()
    assert table.forget(other) is None
    assert table.receive(later) is later


def test_an_event_for_a_member_crosses_as_one_of_a_reserved_topic() -> None:
    event = Forward(EventHeader(1, 2, 0, 0), "jobs/a", b"x", 1, False, "me", user=(("a", "b"),))
    copy = GroupEvent(event, GROUP, (3, 4), PASSES_MAX)
    wrapped = copy.wrap()
    assert wrapped.topic.startswith("$SYS/")
    assert GroupEvent.unwrap(wrapped) == copy
    assert GroupEvent.unwrap(event) is None
    assert GroupEvent.unwrap(replace(wrapped, user=((GROUP, "jobs/a"), ("1 x", "0")))) is None
