"""Long messages of a peer are read over several turns (P6), and take effect once complete."""

from __future__ import annotations

from edgebroker.federation.effects import SendMessage
from edgebroker.interest import Interest
from edgebroker.overlay.link.codec.frames import ITEMS_PER_TURN, PART_BYTES, FrameWriter, SignalCode, signal_item
from edgebroker.overlay.link.codec.messages import body
from edgebroker.overlay.link.receiver import LinkReceiver, ReceivePositions
from edgebroker.overlay.messages import INTERESTS_AT_ONCE, Announce, Message, Unadvertise, Withdraw
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.predicate import ElementaryTest, Interval, ValueType
from edgebroker.topics import TopicFilter

from ..support.routers import federation

LONG = Announce(tuple(Interest(TopicFilter.parse(f"t/{number}"), ()) for number in range(5_000)), 7)
"""As gateways said it that did not divide what they announced."""
LAST = Unadvertise((1,))


def stream(*items: bytes) -> bytes:
    """Frames of items that belong to CONTROL, the first of which has the number 9."""
    writer = FrameWriter(False)
    writer.add(signal_item(SignalCode.NEXT, int(TrafficClass.CONTROL), 9))
    for item in items:
        writer.add(item)
    return writer.take()


def in_parts(item: bytes) -> list[bytes]:
    """*item* cut, as what is long is."""
    starts = range(0, len(item), PART_BYTES)
    return [signal_item(SignalCode.PART, 0, at == starts[-1], item[at : at + PART_BYTES]) for at in starts]


def turns_of(data: bytes, positions: ReceivePositions, most: int = 1_000) -> list[list[Message]]:
    """What each turn of a new connection brings, *most* of them."""
    inflow = LinkReceiver(False, positions)
    turns: list[list[Message]] = []
    while len(turns) < most and (not turns or inflow.has_more):
        messages: list[Message] = []
        inflow.feed(data if not turns else b"", messages, 0)
        turns.append(messages)
    return turns


def said(turns: list[list[Message]]) -> list[Interest]:
    return [each for turn in turns for one in turn if isinstance(one, Announce) for each in one.interests]


def test_what_is_long_is_handled_in_turns_and_counts_at_its_end() -> None:
    item = body(LONG, TrafficClass.CONTROL)
    for items in ([item], in_parts(item)):
        data, positions = stream(*items, body(LAST, TrafficClass.CONTROL)), ReceivePositions()
        turns = turns_of(data, positions)
        assert len(turns) >= len(LONG.interests) / ITEMS_PER_TURN + len(LONG.interests) / INTERESTS_AT_ONCE
        assert all(len(turn) <= 1 for turn in turns[:-1])
        assert max(len(said([turn])) for turn in turns) == INTERESTS_AT_ONCE
        assert tuple(said(turns)) == LONG.interests
        assert turns[-1][-1] == LAST
        assert positions.upto == {TrafficClass.CONTROL: 10}
        again = turns_of(data, positions)
        assert [each for turn in again for each in turn] == [], "others came since: it must not hold once more"
        assert positions.duplicates == 2


def test_what_breaks_off_comes_again_as_a_whole() -> None:
    data, positions = stream(body(LONG, TrafficClass.CONTROL)), ReceivePositions()
    few = len(LONG.interests) // ITEMS_PER_TURN + 10
    assert 0 < len(said(turns_of(data, positions, few))) < len(LONG.interests)
    assert positions.upto == {}
    assert tuple(said(turns_of(data, positions))) == LONG.interests
    assert positions.upto == {TrafficClass.CONTROL: 9}


def test_much_is_announced_and_withdrawn_in_several_messages() -> None:
    made = federation("a-b", 1)
    predicates = [
        (ElementaryTest("n", ValueType.NUMBER, (Interval(n, True, n, True),)),)
        for n in range(2 * INTERESTS_AT_ONCE + 1)
    ]
    peers = made.peers["a.0"]
    told = peers.subscribed(1, TopicFilter.parse("t"), predicates, 0)
    taken_back = peers.unsubscribed(1, 0)
    for effects, kind in ((told, Announce), (taken_back, Withdraw)):
        messages = [each.message for each in effects if isinstance(each, SendMessage)]
        assert all(isinstance(each, kind) for each in messages)
        found = [len(each.interests) for each in messages if isinstance(each, Announce | Withdraw)]
        assert found == [INTERESTS_AT_ONCE, INTERESTS_AT_ONCE, 1]
