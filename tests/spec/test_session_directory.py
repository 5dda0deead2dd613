"""The session directory: each gateway knows which other gateways may have a durable session of a client."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest

from edgebridge.wire.dialect import V5
from edgebroker.federation.effects import Effect, SendMessage, SessionElsewhere
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.federation.retained_claims import GatewayPublisher
from edgebroker.federation.session_directory import (
    CHANGES_INTERVAL,
    DIGEST_INTERVAL,
    NEWS_INTERVAL,
    QUESTION_TIMEOUT,
    SessionDirectory,
)
from edgebroker.federation.session_summary import (
    ANSWER_BYTES_MAX,
    BUCKETS,
    CHANGES_MAX,
    OwnSessions,
    SessionChanges,
    SessionSummary,
    SummaryAnswer,
    SummaryQuestion,
    answer_to,
    client_fingerprint,
    read_statement,
)
from edgebroker.instants import SECOND, Instant
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.broker import FAIR
from edgelab.simworld.checkers import unaccounted
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation

# -- summaries ---------------------------------------------------------------------------------------------------------


def test_a_summary_takes_4_to_6_bytes_and_names_few_strangers() -> None:
    summary = SessionSummary()
    for number in range(20_000):
        summary.add(client_fingerprint(f"truck-{number}"))
    assert 4 <= summary.memory_bytes / summary.count <= 6
    assert all(client_fingerprint(f"truck-{number}") in summary for number in range(20_000))
    strangers = sum(client_fingerprint(f"stranger-{number}") in summary for number in range(20_000))
    assert strangers == 0, "0.1 is the mean"


def test_equal_fingerprints_are_counted() -> None:
    summary = SessionSummary()
    for fingerprint in (7, 7, 1 << 31, 7):
        summary.add(fingerprint)
    assert summary.digest == (4, 21 + (1 << 31))
    summary.remove(7)
    assert 7 in summary, "two of the three are left"
    summary.remove(7)
    summary.remove(7)
    summary.remove(7)
    assert 7 not in summary
    assert summary.digest == (1, 1 << 31)


def test_own_sessions_begin_and_end_once() -> None:
    own = OwnSessions()
    assert own.begin("truck")
    assert not own.begin("truck")
    assert own.clients_of(client_fingerprint("truck")) == ("truck",)
    assert own.clients_of(client_fingerprint("other")) == ()
    assert own.end("truck")
    assert not own.end("truck")
    assert own.digest == (0, 0)


def test_a_summary_crosses_in_pieces_of_32_kib() -> None:
    own, copy = OwnSessions(), SessionSummary()
    for number in range(20_000):
        own.begin(f"truck-{number}")
    first, answers = 0, []
    while first < BUCKETS:
        payload = answer_to(SummaryQuestion(first), own, b"run", 1).encode()
        answer = read_statement(payload)
        assert isinstance(answer, SummaryAnswer)
        assert len(payload) <= ANSWER_BYTES_MAX + 100
        for number in range(first, answer.until):
            copy.replace(number, answer.buckets[number])
        first = answer.until
        answers.append(len(payload))
    assert copy.digest == own.digest
    assert copy.buckets == own.buckets
    assert len(answers) == 3
    assert sum(answers) <= 6 * own.count


def test_only_buckets_that_differ_are_answered() -> None:
    own, copy = SessionSummary(), SessionSummary()
    for number in range(2_000):
        own.add(client_fingerprint(str(number)))
        copy.add(client_fingerprint(str(number + 2)))
    answer = answer_to(SummaryQuestion(0, copy.sums(0)), own, b"run", 1)
    wanted = {client_fingerprint(str(number)) >> 24 for number in (0, 1, 2_000, 2_001)}
    assert set(answer.buckets) == wanted
    assert answer.until == BUCKETS


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x80",
        b"\xff",
        b"\x81\x00",
        SummaryQuestion(0, (1, 2)).encode(),
        SummaryQuestion(BUCKETS).encode(),
        replace(SummaryAnswer(b"run", 1, (1, 5), 0, 1, True, {}), until=BUCKETS + 1).encode(),
        SessionChanges(b"run", 1, (0, 0)).encode()[:-1],
        SummaryAnswer(b"run", 1, (1, 5), 0, 9, True, {1: array("I", [5])}).encode(),
    ],
)
def test_what_cannot_be_read_is_nothing(payload: bytes) -> None:
    assert read_statement(payload) is None


# -- directories on a network that delays, and loses -------------------------------------------------------------------


class Publication(NamedTuple):
    """An event of gateway *sender*, for *to* alone or for all."""

    sender: int
    to: int | None
    payload: bytes


class RecordingPublisher(GatewayPublisher):
    """Keeps what is published."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.published: list[Publication] = []

    def publish(
        self, topic: str, payload: bytes, now_ms: int, now: Instant, is_for_all: bool = False
    ) -> list[SendMessage]:
        self.published.append(Publication(self.number, None, payload))
        return []

    def publish_to(self, gateway: int, topic: str, payload: bytes, now_ms: int) -> list[SendMessage]:
        self.published.append(Publication(self.number, gateway, payload))
        return []


class Network:
    """Directories of some gateways. Events for all, and those for one, keep their order each; neither waits for the
    other.
    """

    def __init__(self, count: int) -> None:
        self.numbers = range(count)
        self.now: Instant = 0
        self.runs = 0
        self.events = 0
        self.bytes = 0
        self.elsewhere: list[tuple[int, SessionElsewhere]] = []
        self.publishers: dict[int, RecordingPublisher] = {}
        self.queues: dict[tuple[int, int, bool], deque[bytes]] = {}
        self.directories = {number: self._started(number) for number in self.numbers}
        self.settle()

    def _started(self, number: int, clients: tuple[str, ...] = ()) -> SessionDirectory:
        self.runs += 1
        others = [one for one in self.numbers if one != number]
        publisher = self.publishers.setdefault(number, RecordingPublisher(number))
        made = SessionDirectory(publisher, others, b"%d" % self.runs, 0)
        for client in clients:
            made.restored(client)
        self.take(number, made.start(self.now))
        return made

    def take(self, number: int, effects: list[Effect]) -> None:
        self.elsewhere += [(number, effect) for effect in effects if isinstance(effect, SessionElsewhere)]
        for each in self.publishers[number].published:
            for to in self.numbers if each.to is None else (each.to,):
                if to != number:
                    self.queues.setdefault((number, to, each.to is None), deque()).append(each.payload)
        self.publishers[number].published.clear()

    def restart(self, number: int, clients: tuple[str, ...]) -> None:
        self.directories[number] = self._started(number, clients)

    def deliver(self, key: tuple[int, int, bool], is_lost: bool = False) -> None:
        sender, to, _ = key
        payload = self.queues[key].popleft()
        self.events += 1
        self.bytes += len(payload)
        if not is_lost:
            self.take(to, self.directories[to].receive(sender, payload, self.now))

    @property
    def waiting(self) -> list[tuple[int, int, bool]]:
        return [key for key, queue in self.queues.items() if queue]

    def settle(self) -> None:
        while waiting := self.waiting:
            self.deliver(waiting[0])

    def pass_time(self, length: int = 2 * SECOND) -> None:
        self.now += length
        for number, directory in self.directories.items():
            self.take(number, directory.fire(self.now))

    def copies_are_equal(self) -> bool:
        every = self.directories
        return all(
            dict(every[one].summaries())[other].buckets == every[other].own.buckets
            for one in every
            for other in every
            if one != other
        )


@pytest.mark.parametrize("number", range(8))
def test_copies_are_equal_in_the_end_whatever_is_delayed_lost_or_restarted(number: int) -> None:
    random, network = Random(number), Network(3)
    names = [f"truck-{one}" for one in range(60 if number % 3 else 1_200)]
    clients: dict[int, dict[str, None]] = {one: {} for one in network.numbers}
    for _ in range(400):
        at = random.choice(network.numbers)
        directory, mine = network.directories[at], clients[at]
        action = random.random()
        if action < 0.5:
            for client in random.sample(names, random.choice((1, 1, 2, len(names) // 3))):
                if client in mine:
                    del mine[client]
                    directory.removed(client)
                else:
                    mine[client] = None
                    directory.added(client, network.now)
        elif action < 0.6:
            network.pass_time(random.choice((SECOND // 3, SECOND, QUESTION_TIMEOUT)))
        elif action < 0.98 and network.waiting:
            for _ in range(random.randrange(4)):
                if network.waiting:
                    network.deliver(random.choice(network.waiting), is_lost=number % 2 > 0 and random.random() < 0.1)
        elif action >= 0.98:
            network.restart(at, tuple(mine))
    for _ in range(4):
        network.settle()
        network.pass_time(DIGEST_INTERVAL)
    network.settle()
    assert network.copies_are_equal()
    for client in names[:200]:
        for one, directory in network.directories.items():
            at_others = [other for other in network.numbers if other != one and client in clients[other]]
            assert set(at_others) <= set(directory.holders(client))
    assert sum(directory.unreadable for directory in network.directories.values()) == 0


def test_changes_are_gathered_for_a_second() -> None:
    network = Network(2)
    one, other = network.directories[0], network.directories[1]
    network.pass_time()
    network.settle()
    network.events = 0
    for number in range(100):
        one.added(f"truck-{number}", 5)
    one.removed("truck-0")
    one.removed("unknown")
    network.pass_time()
    network.settle()
    assert network.events == 1
    assert network.bytes <= 100 * 14
    assert other.holders("truck-1") == (0,)
    assert other.holders("truck-0") == ()
    assert one.holders("truck-1") == ()
    network.pass_time()
    assert network.waiting == []


def test_sessions_that_begin_are_told_ten_times_as_often_as_those_that_end() -> None:
    network = Network(2)
    one = network.directories[0]
    network.pass_time()
    one.added("truck", 5)
    network.pass_time()
    one.removed("truck")
    assert one.due == network.now + CHANGES_INTERVAL
    one.added("tram", 6)
    assert one.due == network.now + NEWS_INTERVAL


def test_more_changes_than_an_event_has_room_for_are_told_in_several() -> None:
    network = Network(2)
    network.pass_time()
    for number in range(2 * CHANGES_MAX + 1):
        network.directories[0].added(f"truck-{number}", 5)
    network.events = 0
    network.pass_time()
    network.settle()
    assert network.events == 3
    assert network.copies_are_equal()
    assert network.directories[1].questions == 0


def test_a_second_session_is_reported_with_the_time_of_its_connection() -> None:
    network = Network(3)
    network.directories[0].added("truck", 1_000)
    network.pass_time()
    network.settle()
    assert network.elsewhere == []
    network.directories[2].added("truck", 2_000)
    network.pass_time()
    network.settle()
    fingerprint = client_fingerprint("truck")
    assert network.elsewhere == [(0, SessionElsewhere(fingerprint, 2, 2_000))]
    assert network.directories[0].clients_of(fingerprint) == ("truck",)
    assert network.directories[1].holders("truck") == (0, 2)


def test_a_second_session_that_a_summary_names_is_reported_without_the_time() -> None:
    network = Network(2)
    network.restart(0, ("truck",))
    network.restart(1, ("truck", "other"))
    network.settle()
    fingerprint = client_fingerprint("truck")
    assert sorted(network.elsewhere) == [
        (0, SessionElsewhere(fingerprint, 1, 0)),
        (1, SessionElsewhere(fingerprint, 0, 0)),
    ]


def test_a_clean_start_is_told_although_the_session_had_one_before() -> None:
    network = Network(2)
    network.directories[0].added("truck", 1_000)
    network.directories[1].added("truck", 2_000)
    network.pass_time()
    network.settle()
    network.elsewhere.clear()
    network.directories[0].removed("truck")
    network.directories[0].added("truck", 3_000)
    network.pass_time()
    network.settle()
    assert network.elsewhere == [(1, SessionElsewhere(client_fingerprint("truck"), 0, 3_000))]
    assert network.copies_are_equal()


def test_a_restart_costs_a_digest_where_nothing_was_lost_and_the_difference_where_something_was() -> None:
    names = tuple(f"truck-{number}" for number in range(20_000))
    network = Network(2)
    network.restart(0, names)
    network.settle()
    questions, network.bytes = network.directories[1].questions, 0
    network.restart(0, names)
    network.settle()
    assert network.directories[1].questions == questions
    assert network.bytes < 300
    network.restart(0, names[3:])
    network.settle()
    assert network.directories[1].questions == questions + 1
    assert network.bytes < 4_000, "three buckets of 80 sessions, and the sums of all"
    assert network.copies_are_equal()


@pytest.mark.parametrize("is_late", [False, True])
def test_changes_that_overtake_an_answer_and_those_that_it_contains_count_once(is_late: bool) -> None:
    network = Network(2)
    one, other = network.directories[0], network.directories[1]
    network.restart(0, ("first",))
    one = network.directories[0]
    network.deliver((0, 1, True))  # the digest, which leads to a question
    one.added("second", 1_000)  # the answer has it
    network.deliver((1, 0, False))
    network.deliver((1, 0, False))
    one.added("third", 2_000)  # and not this one
    network.pass_time()
    answer, changes = (0, 1, False), (0, 1, True)
    for key in (answer, changes) if is_late else (changes, answer):
        while network.queues.get(key):
            network.deliver(key)
    network.settle()
    assert other.questions == 1
    assert network.copies_are_equal()


# -- gateways ----------------------------------------------------------------------------------------------------------

TOPOLOGY = Topology.product(Scot(Factor.parse("a-b"), 2))
NAMES = tuple(one.name for one in TOPOLOGY.gateways)
NUMBERS = {one.name: one.number for one in TOPOLOGY.gateways}
NO_ROAMING = FederationOptions(roams=False)


class Sites:
    """Two sites of two gateways, each with a disk."""

    def __init__(self, seed: int, options: FederationOptions = DEFAULT_OPTIONS, is_stored: bool = True) -> None:
        self.simulation = Simulation(seed)
        self.gateways = SimulatedGateways(self.simulation, TOPOLOGY, is_stored=is_stored, federation_options=options)
        self.gateways.wait_for_links()
        self.wait(4)

    def wait(self, seconds: int = 3) -> None:
        self.simulation.run_until(self.simulation.now + seconds * SECOND)

    def joined(self, name: str, gateway: str, kept: bool = True) -> Participant:
        one = Participant(name, self.gateways[gateway], V5, kept, 100, FAIR)
        one.connect()
        self.wait()
        return one

    def directory(self, gateway: str) -> SessionDirectory:
        return self.gateways[gateway].overlay.directory

    def holders(self, client: str) -> dict[str, list[str]]:
        """Gateway -> where it believes a session of *client* to be."""
        names = {number: name for name, number in NUMBERS.items()}
        return {each: [names[one] for one in self.directory(each).holders(client)] for each in NAMES}

    def balance(self) -> list[str]:
        return [text for gateway in self.gateways for text in unaccounted(gateway, [])]


def at(*gateways: str) -> dict[str, list[str]]:
    """What all believe if a session is at *gateways*."""
    return {name: [one for one in gateways if one != name] for name in NAMES}


def test_all_gateways_learn_where_a_session_is_and_that_it_ended(seed: int) -> None:
    sites = Sites(seed)
    assert all(sites.directory(one).is_known(NUMBERS[other]) for one in NAMES for other in NAMES if other != one)
    sites.joined("short", "a.0", kept=False)
    truck = sites.joined("truck", "a.0")
    assert sites.holders("truck") == at("a.0")
    assert sites.holders("short") == sites.holders("unknown") == at()
    truck.cut()
    sites.wait()
    assert sites.holders("truck") == at("a.0")
    questions = sites.directory("b.1").questions
    truck.kept = False
    truck.connect()
    sites.wait()
    assert sites.holders("truck") == at()
    assert sites.directory("b.1").questions == questions
    assert sites.balance() == []


def test_restored_sessions_are_known_after_restarts_of_all(seed: int) -> None:
    sites = Sites(seed)
    sites.joined("truck", "a.0")
    for name in NAMES:
        sites.gateways[name].power_off()
    sites.wait()
    for name in NAMES:
        sites.gateways[name].power_on()
    sites.wait(10)
    assert sites.holders("truck") == at("a.0")
    assert sites.balance() == []


def test_a_crash_before_the_change_is_told_leaves_no_difference(seed: int) -> None:
    sites = Sites(seed)
    truck = sites.joined("truck", "a.0")
    truck.kept = False
    Participant("first", sites.gateways["a.0"], V5, True, 100, FAIR).connect()
    sites.simulation.run_until(sites.simulation.now + SECOND // 50)
    truck.connect()
    Participant("second", sites.gateways["a.0"], V5, True, 100, FAIR).connect()
    sites.simulation.run_until(sites.simulation.now + SECOND // 50)
    assert sites.holders("truck") == at("a.0"), "the end is not told yet"
    sites.gateways["a.0"].crash(is_power_cut=False)
    sites.wait(10)
    assert sites.holders("truck") == at()
    assert sites.holders("first") == sites.holders("second") == at("a.0")


def test_what_changes_during_an_outage_is_known_behind_it(seed: int) -> None:
    sites = Sites(seed)
    truck = sites.joined("truck", "a.0")
    for road in sites.gateways.roads.values():
        road.is_silent = True
    sites.wait(60)
    truck.cut()
    sites.joined("truck", "b.1")
    for road in sites.gateways.roads.values():
        road.is_silent = False
    sites.wait(120)
    assert sites.gateways["a.0"].overlay.directory.elsewhere == 1
    assert sites.holders("truck") == at("b.1"), "the gateway where it was last has claimed its session"


def test_a_lease_that_ended_is_made_good(seed: int) -> None:
    sites = Sites(seed, FederationOptions(lease_s=60))
    for road in sites.gateways.roads.values():
        road.is_silent = True
    sites.wait(60)
    sites.joined("truck", "a.0")
    sites.wait(180)
    for road in sites.gateways.roads.values():
        road.is_silent = False
    sites.wait(120)
    assert sites.holders("truck") == at("a.0")


def test_without_roaming_nobody_tells_or_knows_anything(seed: int) -> None:
    sites = Sites(seed, NO_ROAMING)
    sites.joined("truck", "a.0")
    sites.wait(60)
    assert sites.holders("truck") == at()
    for name in NAMES:
        directory = sites.directory(name)
        assert (directory.due, directory.own.count, list(directory.summaries())) == (None, 0, [])
        assert sites.gateways[name].frontend.journal.directory is None


def test_gateways_without_a_journal_have_no_directory(seed: int) -> None:
    sites = Sites(seed, is_stored=False)
    sites.joined("truck", "a.0")
    assert sites.holders("truck") == at()
    assert not sites.directory("a.0").is_kept


def test_a_change_of_topology_keeps_summaries_and_drops_those_of_removed_gateways(seed: int) -> None:
    sites = Sites(seed)
    sites.joined("truck", "a.0")
    sites.joined("other", "b.1")
    questions = [sites.directory(name).questions for name in NAMES]
    for name in NAMES:
        sites.gateways[name].change_topology(TOPOLOGY)
        assert NUMBERS["a.0"] in sites.directory(name).holders("truck") or name == "a.0"
    sites.wait(10)
    assert sites.holders("truck") == at("a.0")
    assert [sites.directory(name).questions for name in NAMES] == [0 for _ in questions]
    one = Topology.product(Scot(Factor.parse("a-b"), 1))
    sites.gateways["a.0"].change_topology(one)
    assert sites.directory("a.0").holders("other") == ()
    assert [number for number, _ in sites.directory("a.0").summaries()] == [NUMBERS["b.0"]]
