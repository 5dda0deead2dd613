"""Who sends regularly is waited for awake, nobody else is, and it costs no more than its share: on its own clock."""

from __future__ import annotations

import asyncio
import heapq
import os
import random
import select
import socket
import time
from dataclasses import dataclass, field

import pytest

from edgebroker.instants import SECOND
from edgebroker.runtime.loop.cadence import Beat, Cadence
from edgebroker.runtime.loop.loop import Loop

PERCENT = 10
REGULAR = 4  # beats, until a client is expected
EXPECTED_MAX = 64  # clients
OFF_MAX = 80  # us that a beat may be too soon or too late
CREDIT_MAX, LEAD_MAX = 10_000, 300  # us


@dataclass
class Machine:
    """A process that sleeps and wakes late, and devices who send to it."""

    seed: int
    cadence: Cadence = field(default_factory=lambda: Cadence(PERCENT))
    late_us: tuple[int, int] = (20, 100)
    work_us: int = 15
    now: int = 5 * SECOND
    awake_us: int = 0
    found_awake: int = 0
    found_asleep: int = 0
    mail: list[tuple[int, int]] = field(default_factory=list)
    beats: dict[int, Beat] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        print(f"EDGEBROKER_SEED={self.seed}")

    def device(self, every_us: int, jitter_us: int, until: int, number: int = 0) -> None:
        """One that sends on a schedule, and a little before or after it."""
        phase = self.random.randrange(every_us)
        for due in range(self.now + phase + jitter_us, until, every_us):
            heapq.heappush(self.mail, (due + self.random.randint(-jitter_us, jitter_us), number))

    def run(self) -> Machine:
        """As `Poller` waits, until no mail is left."""
        while self.mail:
            doze = self.cadence.sleep(self.now)
            if doze < 0:
                self.take(was_asleep=self.sleep(self.mail[0][0]))
                continue
            if doze and self.sleep(min(self.now + doze, self.mail[0][0])) and self.mail[0][0] <= self.now:
                self.take(was_asleep=True)
                continue
            woke = self.now
            if self.mail[0][0] <= max(self.cadence.until, self.now):
                self.now = max(self.now, self.mail[0][0])
                self.cadence.waited(self.now - woke)
                self.awake_us += self.now - woke
                self.take(was_asleep=False)
            else:
                self.now = max(self.now, self.cadence.until)
                self.cadence.waited(self.now - woke)
                self.awake_us += self.now - woke
        return self

    def sleep(self, until: int) -> bool:
        """Whether it slept at all; it wakes late."""
        if until <= self.now:
            return False
        self.now = until + self.random.randint(*self.late_us)
        return True

    def take(self, was_asleep: bool) -> None:
        """All that has come by now."""
        at = self.now
        while self.mail and self.mail[0][0] <= at:
            number = heapq.heappop(self.mail)[1]
            self.cadence.came(self.beats.setdefault(number, Beat()), at, was_asleep)
            self.found_asleep += was_asleep
            self.found_awake += not was_asleep
            self.now += self.work_us

    @property
    def share_found_awake(self) -> float:
        return self.found_awake / (self.found_awake + self.found_asleep)


def seed() -> int:
    return int(os.environ.get("EDGEBROKER_SEED", random.randrange(1 << 30)))


@pytest.mark.parametrize("jitter_us", [0, 10, 30])
def test_who_sends_regularly_is_waited_for_awake(jitter_us: int) -> None:
    machine = Machine(seed())
    began, until = machine.now, machine.now + 20 * SECOND
    for number in range(10):
        machine.device(100_000, jitter_us, until, number)
    machine.run()
    assert machine.share_found_awake > 0.8
    assert machine.awake_us < 0.02 * (machine.now - began)


def test_a_thousand_messages_a_second_are_waited_for_within_the_share() -> None:
    machine = Machine(seed(), late_us=(20, 60))
    began, until = machine.now, machine.now + 4 * SECOND
    for number in range(10):
        machine.device(10_000, 10, until, number)
    machine.run()
    assert machine.share_found_awake > 0.5
    assert machine.awake_us <= PERCENT / 100 * (machine.now - began) + CREDIT_MAX + LEAD_MAX + OFF_MAX


def test_where_the_share_is_short_most_are_waited_for_briefly() -> None:
    """Timers as late as this would take 15 %. How often the lead is shortened for it keeps 5 % enough for most."""
    machine = Machine(seed(), cadence=Cadence(5), late_us=(20, 160))
    until = machine.now + 10 * SECOND
    for number in range(10):
        machine.device(10_000, 10, until, number)
    machine.run()
    assert machine.share_found_awake > 0.5


def test_the_share_is_kept_whatever_comes() -> None:
    """Ten times as many regular clients as it is enough for."""
    machine = Machine(seed())
    began, until = machine.now, machine.now + 2 * SECOND
    for number in range(50):
        machine.device(5_000, 5, until, number)
    machine.run()
    assert 0 < machine.awake_us <= PERCENT / 100 * (machine.now - began) + CREDIT_MAX + LEAD_MAX + OFF_MAX


def test_nobody_waits_for_who_sends_at_any_time() -> None:
    machine = Machine(seed())
    began = at = machine.now
    for _ in range(4_000):
        at += int(machine.random.expovariate(1 / 1_000)) + 1
        heapq.heappush(machine.mail, (at, machine.random.randrange(10)))
    machine.run()
    assert machine.awake_us < 0.005 * (machine.now - began)


def test_a_share_of_nothing_expects_nobody() -> None:
    machine = Machine(seed(), cadence=Cadence(0))
    assert not machine.cadence.is_on
    machine.device(10_000, 0, machine.now + SECOND)
    machine.run()
    assert machine.awake_us == 0


def regular(cadence: Cadence, beat: Beat, now: int, every_us: int = 10_000) -> int:
    """Let it be expected; when its last beat was."""
    while not beat.is_expected:
        now += every_us
        cadence.came(beat, now, False)
    return now


def test_some_regular_beats_are_enough_and_one_late_one_is_forgiven() -> None:
    cadence, beat = Cadence(PERCENT), Beat()
    now, beats = SECOND, 0
    while not beat.is_expected:
        now += 10_000
        beats += 1
        cadence.came(beat, now, False)
    assert beats == 1 + 1 + REGULAR, "one to begin with, one that says how long a beat is"
    for _ in range(8):
        now += 10_000
        cadence.came(beat, now, False)
    cadence.came(beat, now + 10_000 + 3 * OFF_MAX, False)
    assert beat.is_expected
    cadence.came(beat, now + 20_000, False)  # in time again, so this beat was as much too short
    cadence.came(beat, now + 20_000 + OFF_MAX * 9, False)
    assert not beat.is_expected


def test_what_came_while_others_were_served_came_when_it_was_due() -> None:
    """Nobody knows when: of a client that is expected nothing changes, of another it counts as it was seen."""
    cadence, beat, other = Cadence(PERCENT), Beat(), Beat()
    now = regular(cadence, beat, SECOND)
    for number in range(1, 9):
        cadence.passed(beat, now + number * 10_000 + 350)
        assert (beat.is_expected, beat.period, beat.due) == (True, 10_000.0, now + (number + 1) * 10_000)
    now += 80_000
    assert now + cadence.sleep(now) == beat.due - 100
    cadence.passed(beat, now + 5_001)
    assert beat.due == now + 10_000, "half a period before it is due it is another message, and that counts as it came"
    cadence.passed(beat, now + 5_050)
    cadence.passed(other, now)
    cadence.passed(other, now + 10_000)
    assert (other.began, other.period) == (now + 10_000, 10_000.0)


def test_a_beat_that_nobody_waited_for_says_nothing_of_the_lead() -> None:
    """Seven new clients on an idle gateway: each wakes it until it is expected."""
    cadence = Cadence(PERCENT)
    fresh, now = Beat(), SECOND
    for beat in [Beat() for _ in range(7)]:
        while not beat.is_expected:
            now += 10_000
            cadence.came(beat, now, True)
        cadence.forget(beat)
    now = regular(cadence, fresh, now)
    assert now + cadence.sleep(now) == fresh.due - 100, "as long before as to begin with"


def test_all_who_fall_silent_are_forgotten_together() -> None:
    cadence, beats = Cadence(PERCENT), [Beat() for _ in range(5)]
    for at in range(SECOND, SECOND + 600_000, 100_000):
        for number, beat in enumerate(beats):
            cadence.came(beat, at + number * 1_000, False)
    assert all(beat.is_expected for beat in beats)
    now = at
    while (doze := cadence.sleep(now)) >= 0:
        now = max(cadence.until, now + doze)
    assert not any(beat.is_expected for beat in beats)


def test_pieces_of_a_message_are_one_beat() -> None:
    """A PUBLISH in two segments, or PUBLISH and PUBREL."""
    cadence, beat = Cadence(PERCENT), Beat()
    now = SECOND
    for _ in range(12):
        now += 10_000
        for piece in range(3):
            cadence.came(beat, now + 90 * piece, False)
    assert beat.is_expected
    assert (beat.period, beat.due) == (10_000.0, now + 10_000)


def test_a_stream_without_a_pause_has_no_beats() -> None:
    cadence, beat = Cadence(PERCENT), Beat()
    for now in range(SECOND, SECOND + 100_000, 100):
        cadence.came(beat, now, False)
    assert not beat.is_expected
    assert cadence.sleep(SECOND + 100_000) == -1


def test_who_falls_silent_is_soon_not_waited_for() -> None:
    cadence, beat = Cadence(100), Beat()
    now = regular(cadence, beat, SECOND)
    times = 0
    while (doze := cadence.sleep(now)) >= 0:
        times += 1
        woke = now + doze
        now = max(cadence.until, woke)
        cadence.waited(now - woke)
    assert times <= 3
    assert not beat.is_expected


def test_who_is_gone_is_not_waited_for() -> None:
    cadence, beat = Cadence(PERCENT), Beat()
    now = regular(cadence, beat, SECOND)
    assert cadence.sleep(now) > 0
    cadence.forget(beat)
    cadence.forget(beat)
    assert cadence.sleep(now) == -1


def test_whoever_is_next_is_waited_for_first_and_only_so_many_are() -> None:
    cadence, beats = Cadence(PERCENT), [Beat() for _ in range(EXPECTED_MAX + 1)]
    for at in range(SECOND, SECOND + 7 * 100_000, 100_000):
        for number, beat in enumerate(beats):
            cadence.came(beat, at + number * 1_000, False)
    assert [beat.is_expected for beat in beats] == [True] * EXPECTED_MAX + [False]
    now = at + 70_000
    assert 0 < cadence.sleep(now) <= 100_000 - 70_000
    assert cadence.until == beats[0].due + OFF_MAX


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="no epoll: gateways wait with asyncio's own selector there")
@pytest.mark.parametrize("sent_after_ms", [0, 5, 18, 40], ids=["at once", "while it dozes", "awake", "too late"])
def test_a_gateway_that_expects_a_client_hears_others_and_keeps_its_timers(sent_after_ms: int) -> None:
    """One is expected in 20 ms, and something else happens before, at about that time, and after."""

    async def story() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        poller = loop.poller
        near, far = socket.socketpair()
        near.setblocking(False)
        seen: list[str] = []
        heard = asyncio.Event()

        def ready() -> None:
            seen.append("heard")
            near.recv(10)
            heard.set()

        loop.add_reader(near, ready)
        poller.cadence = Cadence(100)
        beat, now = Beat(), int(time.monotonic() * 1e6)
        for number in range(-8, 1):
            poller.cadence.came(beat, now + number * 20_000, False)
        assert beat.is_expected
        loop.call_later(sent_after_ms / 1e3, far.send, b"!")
        timer = asyncio.Event()
        loop.call_later(0.15, timer.set)
        await asyncio.wait_for(heard.wait(), 20)
        await asyncio.wait_for(timer.wait(), 20)
        assert not beat.is_expected, "it did not come twice"
        loop.remove_reader(near)
        near.close()
        far.close()
        return seen

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(story()) == ["heard"]


class Asked(Cadence):
    """Counts how often it is asked whom it expects."""

    def __init__(self) -> None:
        super().__init__(100)
        self.times = 0

    def sleep(self, now: int) -> int:
        self.times += 1
        return super().sleep(now)


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="no epoll: gateways wait with asyncio's own selector there")
@pytest.mark.parametrize(("spin_s", "is_asked"), [(0.0, True), (60.0, False)], ids=["long waits", "short waits"])
def test_where_most_waits_are_short_nobody_is_expected(spin_s: float, is_asked: bool) -> None:
    """Short is what takes less than three times as long as the process asks before it sleeps."""

    async def story() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        loop.poller.spin_s = spin_s
        loop.poller.cadence = asked = Asked()
        for _ in range(10):
            await asyncio.sleep(0.002)
        return asked.times

    with asyncio.Runner(loop_factory=Loop) as runner:
        assert (runner.run(story()) > 0) == is_asked
