"""The policy queue: down-sampling and order as documented, and bounded work for each message."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from edgebridge.session.inflight import QueueEntry
from edgebridge.session.queue.factory import outbox_for
from edgebridge.session.queue.outbox import Allowance, OverflowPolicy
from edgebridge.session.queue.policy_queue import BACKLOG_EVERY, STEPS_AHEAD, STEPS_MAX, DownSampler, PolicyQueue
from edgebroker.publication import Publication

ROOM = 1 << 40


def entry(number: int, topic: str = "t") -> QueueEntry:
    return QueueEntry(Publication("p", topic, b"%d" % number, 1, False, number), 1, False, (), "#")


def offer(policy_queue: PolicyQueue, number: int, topic: str = "t") -> None:
    one = entry(number, topic)
    while policy_queue.make_room(one) is not None:
        pass
    assert policy_queue.enqueue(one)


def numbers(policy_queue: PolicyQueue) -> list[int]:
    return [int(one.publication.payload) for one in policy_queue]


class Naive:
    """Of each topic every second message that was superseded when a sweep began goes, first those superseded first."""

    def __init__(self, messages_max: int) -> None:
        self.messages_max = messages_max
        self.waiting: list[tuple[int, str]] = []
        self.superseded: list[tuple[int, str]] = []  # the sweep's survivors, then what was superseded since
        self.survivors: list[tuple[int, str]] = []
        self.sweep: list[tuple[tuple[int, str], bool]] = []

    def newest(self, topic: str) -> tuple[int, str] | None:
        return max((one for one in self.waiting if one[1] == topic), default=None)

    def look(self) -> bool:
        one, goes = self.sweep.pop(0)
        if goes:
            self.waiting.remove(one)
        else:
            self.survivors.append(one)
        return goes

    def begin(self) -> None:
        places: Counter[str] = Counter()
        for one in self.survivors + self.superseded:
            self.sweep.append((one, places[one[1]] % 2 == 0))
            places[one[1]] += 1
        self.survivors, self.superseded = [], []

    def offer(self, number: int, topic: str) -> None:
        looks = STEPS_AHEAD
        while True:
            while looks and self.sweep:
                self.look()
                looks -= 1
            if len(self.waiting) < self.messages_max:
                break
            if not self.sweep:
                self.begin()
            if not self.sweep:  # each waits as the last of its topic
                self.waiting.remove(self.newest(topic) or self.waiting[0])
            while self.sweep and not self.look():
                pass
        before = self.newest(topic)
        if before is not None:
            self.superseded.append(before)
        self.waiting.append((number, topic))


@pytest.mark.parametrize("topics", [1, 3, 12, 40])
def test_every_second_message_goes_as_in_a_naive_queue(seed: int, topics: int) -> None:
    for number in range(seed, seed + 10):
        chance = Random(number)
        messages_max = chance.randint(2, 30)
        policy_queue, naive = PolicyQueue(messages_max, ROOM, OverflowPolicy.DOWN_SAMPLE), Naive(messages_max)
        for count in range(200):
            topic = f"t/{int(topics * chance.random() ** 2)}"
            offer(policy_queue, count, topic)
            naive.offer(count, topic)
            assert numbers(policy_queue) == [one[0] for one in naive.waiting], f"seed {number}, after {count}"
            if topics < messages_max:
                assert {one.publication.topic for one in policy_queue} >= {topic for _, topic in naive.waiting}


def test_what_is_left_after_sweeps_is_as_documented() -> None:
    policy_queue = PolicyQueue(16, ROOM, OverflowPolicy.DOWN_SAMPLE)
    for number in range(1, 65):
        offer(policy_queue, number)
    assert numbers(policy_queue) == [32, 40, 44, 48, 50, 52, 54, 56, *range(57, 65)]


def test_the_newest_of_each_topic_stays_and_no_message_makes_much_work(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also while the reader takes some."""
    looks, look = Counter[int](), DownSampler.step
    monkeypatch.setattr(DownSampler, "step", lambda self: (looks.update([count]), look(self))[1])
    chance = Random(seed)
    policy_queue = PolicyQueue(500, ROOM, OverflowPolicy.DOWN_SAMPLE)
    newest: dict[str, int] = {}
    for count in range(5_000):
        topic = f"t/{chance.randrange(240) if chance.random() < 0.5 else chance.randrange(3)}"
        offer(policy_queue, count, topic)
        newest[topic] = count
        if count % 50 == 0:
            assert set(newest.values()) <= set(numbers(policy_queue))
        assert len(policy_queue) <= 500
        if chance.random() < 0.001:  # the reader is there for a moment
            for _ in range(chance.randint(1, 300)):
                taken = policy_queue.dequeue()
                if newest.get(taken.publication.topic) == int(taken.publication.payload):
                    del newest[taken.publication.topic]
    assert sum(looks.values()) < 2 * 5_000, "two for each that comes, at most"
    assert max(looks.values()) < 2 * STEPS_MAX


def test_a_sweep_that_is_behind_stops_nobody_however_many_topics_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is looked at next stays, and the reader was there for one message."""
    looks, look = Counter[int](), DownSampler.step
    monkeypatch.setattr(DownSampler, "step", lambda self: (looks.update([count]), look(self))[1])
    policy_queue = PolicyQueue(3_000, ROOM, OverflowPolicy.DOWN_SAMPLE)
    for count in range(3_500):
        offer(policy_queue, count, f"t/{count % 1_000}")
    policy_queue.dequeue()
    for count in range(3_500, 6_000):
        offer(policy_queue, count, f"t/{count % 1_000}")
    assert max(looks.values()) < 2 * STEPS_MAX
    assert set(range(5_000, 6_000)) <= set(numbers(policy_queue)), "the last of each topic"


def test_live_messages_go_first_and_leave_the_backlog_its_share() -> None:
    policy_queue = PolicyQueue(1_000, ROOM, is_live_first=True)
    for number in range(20):
        offer(policy_queue, number)
    policy_queue.resume()
    for number in range(100, 120):
        offer(policy_queue, number)
    sent = [int(policy_queue.dequeue().publication.payload) for _ in range(30)]
    assert sent == [
        *range(100, 107), 0, *range(107, 114), 1, *range(114, 120),
        *range(2, 10),
    ]  # fmt: skip
    assert BACKLOG_EVERY == 8
    offer(policy_queue, 200)
    policy_queue.resume()  # it was away again: what was live is the end of the backlog
    offer(policy_queue, 300)
    assert numbers(policy_queue) == [*range(10, 20), 200, 300]
    assert int(policy_queue.dequeue().publication.payload) == 300


@pytest.mark.parametrize("policy", OverflowPolicy)
def test_a_policy_queue_keeps_its_accounts(seed: int, policy: OverflowPolicy) -> None:
    """Whatever is done to it: order within live and backlog, counts and bytes are those of what waits."""
    for number in range(seed, seed + 10):
        chance = Random(number)
        policy_queue = PolicyQueue(20, 60, policy, age_us=50, is_live_first=chance.random() < 0.5)
        for now in range(300):
            one = QueueEntry(Publication("p", f"t/{chance.randrange(4)}", bytes(chance.randrange(4)), 1, True, now), 1,
                        False, (), "#")  # fmt: skip
            policy_queue.superseded_by(one)
            while policy_queue.make_room(one) is not None:
                pass
            policy_queue.enqueue(one)
            match chance.randrange(12):
                case 0:
                    policy_queue.resume()
                case 1 if len(policy_queue):
                    policy_queue.dequeue()
                case 2:
                    policy_queue.dequeue_aged(
                        now, lambda publication: publication.accepted_at % 3 == 0, chance.randrange(5)
                    )
                case 3:
                    policy_queue.remove_if(lambda entry: entry.publication.accepted_at % 7 == 0)
            waiting = list(policy_queue)
            assert len(waiting) == len(policy_queue) <= 20, f"seed {number}"
            assert policy_queue.held_bytes == sum(one.publication.held_bytes() for one in waiting) <= 60
            accepted = [one.publication.accepted_at for one in waiting]
            assert accepted == sorted(accepted), "none overtakes while nothing is sent"
        policy_queue.clear()
        assert (len(policy_queue), policy_queue.held_bytes) == (0, 0)


@pytest.mark.parametrize("policy", list(OverflowPolicy))
@pytest.mark.parametrize("is_live_first", [False, True])
def test_what_succeeds_another_queue_goes_on_as_if_all_had_come_one_after_the_other(
    seed: int, policy: OverflowPolicy, is_live_first: bool
) -> None:
    for number in range(seed, seed + 10):
        chance = Random(number)
        allowance, another = Allowance(1_000, ROOM), Allowance(1_000, ROOM)
        age = chance.choice([0, 60])
        old = outbox_for(20, ROOM, chance.choice(list(OverflowPolicy)), another, chance.choice([0, 60]))
        moved, restored = (outbox_for(20, ROOM, policy, one, age, is_live_first) for one in (another, allowance))
        for count in range(chance.choice([0, 1, 20, 30])):
            one = entry(count, f"t/{chance.randrange(8)}")
            old.restore(one)
            restored.restore(one)
        moved.move_from(old)
        for count in range(100, 160):
            one = entry(count, f"t/{chance.randrange(8)}")
            does = chance.randrange(4)
            came = []
            for queue in (moved, restored):
                if does == 0:
                    came.append(queue.dequeue() if queue else None)
                elif does == 1 and isinstance(queue, PolicyQueue) and queue.age_us:
                    came.append(queue.dequeue_aged(count, lambda publication: publication.topic == "t/3", 3))
                else:
                    gone = [queue.superseded_by(one)]
                    while (going := queue.make_room(one)) is not None:
                        gone.append(going)
                    came.append((gone, queue.enqueue(one)))
            assert came[0] == came[1], f"seed {number}"
            assert list(moved) == list(restored), f"seed {number}"
            assert (len(moved), moved.held_bytes, moved.dropped) == (
                len(restored),
                restored.held_bytes,
                restored.dropped,
            )
            assert (
                (another.messages, another.bytes)
                == (allowance.messages, allowance.bytes)
                == (len(moved), moved.held_bytes)
            )


def test_what_is_handed_over_late_is_not_taken_for_the_last_of_its_topic() -> None:
    """The older message comes second: it is the one that may go, and the last one is not."""
    policy_queue = outbox_for(4, ROOM, OverflowPolicy.DOWN_SAMPLE, Allowance(1_000, ROOM))
    assert isinstance(policy_queue, PolicyQueue)
    for number in (5, 2, 3):
        offer(policy_queue, number)
    for number in range(6, 30):
        offer(policy_queue, number, f"{number % 3}")
        assert 5 in numbers(policy_queue)
        assert len(policy_queue) <= 4
    assert 2 not in numbers(policy_queue)


def test_of_a_burst_of_one_instant_the_last_stays_as_of_any_other() -> None:
    """What is queued is stored behind that, and so are its predecessors of the same instant by then."""
    left = []
    for is_burst in (True, False):
        policy_queue = outbox_for(4, ROOM, OverflowPolicy.DOWN_SAMPLE, Allowance(1_000, ROOM))
        assert isinstance(policy_queue, PolicyQueue)
        for number in range(12):
            one = entry(number)
            if is_burst:
                one.publication.accepted_at = 7
                one.publication.number = number
            while policy_queue.make_room(one) is not None:
                pass
            assert policy_queue.enqueue(one)
            one.publication.stored = 100 + number
        left.append(numbers(policy_queue))
    assert left[0] == left[1]
    assert left[0][-1] == 11


def test_nothing_that_is_handed_over_makes_the_last_of_its_topic_go() -> None:
    """Where all that waits is the last of its topic, it has no room itself."""
    policy_queue = outbox_for(4, ROOM, OverflowPolicy.DOWN_SAMPLE, Allowance(1_000, ROOM))
    assert isinstance(policy_queue, PolicyQueue)
    for number, topic in ((5, "t"), (6, "a"), (7, "b"), (8, "c")):
        offer(policy_queue, number, topic)
    assert policy_queue.make_room(entry(2)) is None
    assert not policy_queue.enqueue(entry(2))
    assert numbers(policy_queue) == [5, 6, 7, 8]
