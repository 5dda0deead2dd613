"""Transfers in the published test bed: relays that die, lie, are slow or leave, and what the authority makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebroker.dissemination.dissemination_node import STREAMS_MAX, DisseminationNode
from edgebroker.dissemination.group_view import GroupView, group_view, view_member
from edgebroker.dissemination.membership import GroupMembership
from edgebroker.dissemination.messages import (
    DoneReport,
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupMessage,
    SendToMember,
    SliceRepair,
    StreamCredit,
    StreamDone,
    StreamResume,
    StreamSlice,
    StreamStart,
    ViewQuery,
    ViewUpdate,
)
from edgebroker.dissemination.stream import DeliverSlice, RelayFault, StreamEnd
from edgebroker.dissemination.stream_source import content_of, start_of
from edgebroker.instants import NEVER, SECOND
from edgelab.experiment.lbdd_world import GroupNetwork, LinkModel

BED = "10.3.17."
LISTED = tuple(f"{BED}{each}" for each in (98, 64, 184, 61, 68, 234, 90, 72, 44, 88, 97))
SOURCE = f"{BED}74"
SLICE = 16
DATA = bytes(number % 251 for number in range(150 * SLICE))


def bed(fan_out: int = 0) -> tuple[GroupNetwork, GroupView]:
    """The test bed with 100 slices a second on each uplink, after all have joined."""
    network = GroupNetwork([SOURCE, *LISTED], LinkModel(SLICE * 800.0, lambda message: len(message.content)))
    network.found_group("g", LISTED, fan_out)
    network.run(3 * SECOND)
    return network, network.memberships["g"].view


def finish(network: GroupNetwork, *gone: str, seconds: int = 60) -> None:
    live = [node for node in LISTED if node not in gone]
    assert network.run_until(
        lambda: all((node, 1) in network.finished for node in live), network.now + seconds * SECOND
    )
    assert {b"".join(network.delivered[node, 1]) for node in live} == {DATA}


def send(network: GroupNetwork, view: GroupView) -> None:
    network.publish(SOURCE, 1, view, content_of(DATA, SLICE))


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [f"{BED}61", f"{BED}64", f"{BED}184"])
def test_the_children_of_a_dead_relay_go_on_after_three_heartbeats(victim: str) -> None:
    network, view = bed()
    send(network, view)
    network.run(network.now + 4 * SECOND)
    network.kill(victim)
    finish(network, victim)
    assert max(network.silences[node, 1] for node in LISTED if node != victim) < 3.2 * SECOND
    network.run(network.now + 2 * SECOND)
    assert (SOURCE, 1) in network.finished, "the source knows that all live members have it"


def test_a_relay_that_lies_is_passed_by_and_relays_no_more() -> None:
    network, view = bed()
    liar = f"{BED}61"

    def lie(sender: str, to: str, message: GroupMessage) -> GroupMessage:
        if sender == liar and isinstance(message, StreamSlice):
            return replace(message, content=bytes(len(message.content)))
        return message

    network.corrupt = lie
    send(network, view)
    finish(network)
    capacities = {member.node: member.capacity for member in network.memberships["g"].view.members}
    assert capacities.pop(liar) == 0
    assert set(capacities.values()) == {1}
    wrong = {node: network.nodes[node].receiver(1) for node in LISTED}
    assert {node for node, each in wrong.items() if each is not None and each.counters.wrong} == {
        f"{BED}{each}" for each in (72, 44, 88, 97)
    }
    network.join(liar, "g")
    network.run(network.now + 3 * SECOND)
    assert [each.capacity for each in network.memberships["g"].view.members if each.node == liar] == [0]


def test_a_relay_that_sends_nothing_is_passed_by() -> None:
    """The children do not even know of the stream: the source sees in the end that they do not report."""
    network, view = bed()
    network.corrupt = lambda sender, to, message: (
        None if sender == f"{BED}61" and isinstance(message, StreamSlice | StreamStart) else message
    )
    send(network, view)
    finish(network)


def test_a_slow_member_holds_others_up_only_as_long_as_their_patience() -> None:
    network, view = bed()
    slow = f"{BED}98"
    network.links.rates[slow] = 16.0 * 8 / 4
    """A slice in four seconds, of which its child 184 gets each."""
    send(network, view)
    behind = {slow, *(f"{BED}{each}" for each in (184, 68, 234, 90))}
    assert network.run_until(lambda: len({node for node, _ in network.finished} - behind) >= 6, 30 * SECOND)
    finish(network, seconds=3_000)


def test_a_member_that_leaves_is_missed_by_nobody() -> None:
    network, view = bed(fan_out=2)
    leaver = f"{BED}72"
    send(network, view)
    network.run(network.now + SECOND)
    network.perform(leaver, network.nodes[leaver].leave("g", network.instant))
    finish(network, leaver)
    assert max(network.silences[node, 1] for node in LISTED if node != leaver) < SECOND


def test_a_member_of_a_new_view_does_not_get_an_older_stream() -> None:
    network, view = bed()
    network.order.append("late")
    send(network, view)
    assert "late" not in view.nodes
    finish(network)
    assert not [node for node, _ in network.delivered if node == "late"]


# -- one node ----------------------------------------------------------------------------------------------------------

VIEW = group_view("g", 1, [view_member(node) for node in LISTED], 0)
CONTENT = content_of(bytes(20 * SLICE), SLICE)
START = start_of(1, SOURCE, VIEW, CONTENT)
RELAY = f"{BED}184"
PARENT = f"{BED}98"


def relay(view: GroupView | None = VIEW) -> DisseminationNode:
    node = DisseminationNode(RELAY, SOURCE, lambda start: start.signature == b"")
    if view is not None:
        node.take_view(view, 0)
    return node


def test_a_relay_sends_each_slice_to_its_children_in_turn() -> None:
    node = relay()
    effects = node.receive(PARENT, START, 0)
    children = [f"{BED}{each}" for each in (68, 234, 90)]
    assert effects == [SendToMember(child, START) for child in children]
    effects = node.receive(PARENT, CONTENT.slice(1, 0, VIEW.view_id), 0)
    assert effects[0] == DeliverSlice(1, 0, bytes(SLICE))
    assert sorted(effect.node for effect in effects[1:] if isinstance(effect, SendToMember)) == sorted(children)


def test_the_credit_of_a_parent_moves_by_half_windows_and_no_further_than_the_ring() -> None:
    node = relay()
    node.receive(PARENT, start_of(1, SOURCE, VIEW, content := content_of(bytes(200 * SLICE), SLICE)), 0)
    limits: list[int] = []
    number = 0
    while number < min([8, *limits[-1:]]) or (limits and number < limits[-1]):
        effects = node.receive(PARENT, content.slice(1, number, VIEW.view_id), 0)
        limits += [
            each.message.limit
            for each in effects
            if isinstance(each, SendToMember) and isinstance(each.message, StreamCredit)
        ]
        number += 1
    assert limits[:3] == [12, 16, 20]
    assert limits[-1] == 72, "each child took a window of 8, and 64 wait in the ring"
    effects = [*node.receive(f"{BED}68", StreamCredit(1, 16), 0)]
    assert [
        each.message.number
        for each in effects
        if isinstance(each, SendToMember) and isinstance(each.message, StreamSlice)
    ] == [*range(8, 16)]


def test_a_stream_of_one_slice_is_in_its_announcement() -> None:
    node = relay()
    small = start_of(1, SOURCE, VIEW, content_of(b"small", SLICE))
    assert small.content == b"small"
    effects = node.receive(PARENT, small, 7)
    assert effects[:2] == [DeliverSlice(1, 0, b"small"), StreamEnd(1, True)]
    sent = [each for each in effects if isinstance(each, SendToMember)]
    assert SendToMember(f"{BED}68", small) in sent
    assert sent[-1].node == f"{BED}90"
    done = [
        node.receive(f"{BED}{each}", StreamDone(1, (DoneReport(f"{BED}{each}", 5, 1),)), 8) for each in (68, 234, 90)
    ]
    assert done[:2] == [[], []]
    (last,) = done[2]
    assert isinstance(last, SendToMember)
    assert isinstance(last.message, StreamDone)
    assert last.node == PARENT
    assert len(last.message.reports) == 4, "reports of a node and its children travel together"


def test_a_wrong_single_slice_goes_to_nobody() -> None:
    node = relay()
    wrong = replace(start_of(1, SOURCE, VIEW, content_of(b"small", SLICE)), content=b"smell")
    effects = node.receive(PARENT, wrong, 0)
    assert SendToMember(SOURCE, SliceRepair(1, 0, 1, PARENT)) in effects
    starts = [
        each.message for each in effects if isinstance(each, SendToMember) and isinstance(each.message, StreamStart)
    ]
    assert {each.content for each in starts} == {b""}


def test_a_node_asks_for_a_view_that_it_does_not_know() -> None:
    node = relay(None)
    assert node.receive(PARENT, START, 0) == [SendToMember(PARENT, ViewQuery("g", VIEW.view_id))]
    assert node.receive(PARENT, CONTENT.slice(1, 0, VIEW.view_id), 0) == [DeliverSlice(1, 0, bytes(SLICE))]
    assert node.receive("stranger", ViewUpdate(group_view("g", 9, [])), 0) == []
    assert node.counters.strangers == 1
    effects = node.receive(PARENT, ViewUpdate(VIEW), 0)
    assert [type(each.message) for each in effects if isinstance(each, SendToMember)] == [StreamStart] * 3 + [
        StreamSlice
    ] * 3
    assert relay().receive("x", ViewQuery("g", VIEW.view_id), 0) == [SendToMember("x", ViewUpdate(VIEW))]


def test_what_is_not_the_brokers_is_refused() -> None:
    node = relay()
    assert node.receive(PARENT, replace(START, signature=b"forged"), 0) == []
    assert node.receive("stranger", START, 0) == []
    assert node.counters.untrusted == 2
    node.receive(PARENT, START, 0)
    assert node.receive(PARENT, replace(START, content_hash=bytes(32)), 0) == []
    assert node.receive("stranger", StreamResume(1, 0), 0) == []
    assert (node.counters.untrusted, node.counters.strangers) == (3, 1)


def test_a_node_takes_a_bounded_number_of_streams() -> None:
    node = relay()
    for number in range(STREAMS_MAX + 2):
        node.receive(PARENT, replace(START, stream=number), 0)
    assert node.counters.streams == 2


def test_a_resume_may_come_before_the_announcement() -> None:
    node = relay()
    assert node.receive(f"{BED}61", StreamResume(1, 5), 0) == []
    node.receive(PARENT, START, 0)
    sent = []
    for number in range(7):
        sent += node.receive(PARENT, CONTENT.slice(1, number, VIEW.view_id), 0)
    got = [each.message for each in sent if isinstance(each, SendToMember) and each.node == f"{BED}61"]
    assert [each.number for each in got if isinstance(each, StreamSlice)] == [5, 6]


def test_a_member_that_is_fed_answers_the_sources_offer_so_that_it_does_not_give_up() -> None:
    node = relay()
    node.receive(PARENT, START, 0)
    assert node.receive(SOURCE, START, 1) == [SendToMember(SOURCE, StreamCredit(1, 8))]
    assert node.receive(PARENT, START, 1) == []
    stalled = [each for now in range(8) for each in node.tick(now * SECOND)]
    assert SendToMember(SOURCE, SliceRepair(1, 0, 1)) in stalled
    assert node.receive(SOURCE, START, 8 * SECOND) == [SendToMember(SOURCE, StreamResume(1, 0))]


def test_a_source_that_is_slow_is_not_buried_under_questions() -> None:
    node = relay()
    node.receive(PARENT, START, 0)
    asked = [now for now in range(200) if SendToMember(SOURCE, SliceRepair(1, 0, 1)) in node.tick(now * SECOND)]
    assert asked == [6, 18, 42, 90]
    node = relay()
    node.receive(PARENT, START, 0)
    node.tick(6 * SECOND)
    effects = node.receive(SOURCE, CONTENT.slice(1, 0, VIEW.view_id), 7 * SECOND)
    assert SendToMember(SOURCE, SliceRepair(1, 1, 9)) in effects, "the next question is for a window"


def test_a_source_reports_a_relay_once_and_ends_with_the_last_report() -> None:
    node = DisseminationNode(SOURCE, SOURCE, lambda start: True)
    node.take_view(VIEW, 0)
    node.publish(START, CONTENT, 0)
    with pytest.raises(ValueError, match="new number"):
        node.publish(START, CONTENT, 0)
    first = node.receive(f"{BED}72", SliceRepair(1, 3, 5, f"{BED}61"), 1)
    assert first[0] == RelayFault(1, f"{BED}61", f"{BED}72")
    assert len(first) == 3
    assert len(node.receive(f"{BED}44", SliceRepair(1, 3, 500, f"{BED}61"), 1)) == 8
    reports = tuple(DoneReport(each, 1, 1) for each in LISTED)
    assert node.receive(f"{BED}98", StreamDone(1, reports), 2)[-1] == StreamEnd(1, True)


def test_a_source_gives_up_in_the_end_and_says_who_is_missing() -> None:
    node = DisseminationNode(SOURCE, SOURCE, lambda start: True)
    node.take_view(VIEW, 0)
    node.publish(START, CONTENT, 0)
    ends = [each for now in range(200) for each in node.tick(now * SECOND) if isinstance(each, StreamEnd)]
    assert ends == [StreamEnd(1, False, tuple(sorted(LISTED)))]
    assert node.due == NEVER


# -- the authority -----------------------------------------------------------------------------------------------------


def test_views_are_numbered_and_changes_of_a_second_are_collected() -> None:
    group = GroupMembership("g", "broker", 0)
    first = group.receive("a", GroupJoin("g", view_member("a")), 0)
    assert [each.node for each in first] == ["broker", "a"]
    assert group.view.number == 2
    assert group.receive("b", GroupJoin("g", view_member("b")), 1) == []
    assert group.receive("c", GroupJoin("g", view_member("c")), 2) == []
    assert group.due == SECOND
    assert [each.node for each in group.tick(SECOND)] == ["broker", "a", "b", "c"]
    assert group.view.number == 3


def test_who_misses_three_heartbeats_or_leaves_is_no_member() -> None:
    group = GroupMembership("g", "broker", 0)
    for node in "abc":
        group.join(view_member(node), 0)
    group.tick(SECOND)
    for now in (1, 2, 3):
        group.receive("a", GroupHeartbeat("a", (("g", group.view.view_id),)), now * SECOND)
        group.receive("b", GroupHeartbeat("b", (("g", group.view.view_id),)), now * SECOND)
        group.tick(now * SECOND)
    assert group.view.nodes == {"a", "b"}
    group.receive("b", GroupLeave("g", "b"), 5 * SECOND)
    assert group.view.nodes == {"a"}
    counted = (group.counters.joined, group.counters.left, group.counters.suspected)
    assert counted == (3, 1, 1)


def test_a_member_with_an_old_view_gets_the_new_one_and_nobody_speaks_for_others() -> None:
    group = GroupMembership("g", "broker", 0)
    group.join(view_member("a"), 0)
    answer = group.receive("a", GroupHeartbeat("a", (("g", 1),)), 1)
    assert answer == [SendToMember("a", ViewUpdate(group.view))]
    assert group.receive("x", GroupLeave("g", "a"), 2 * SECOND) == []
    assert group.receive("x", GroupJoin("g", view_member("y")), 2 * SECOND) == []
    assert group.receive("x", GroupHeartbeat("a", ()), 2 * SECOND) == []
    assert group.view.nodes == {"a"}
