"""A random workload: devices on unreliable lines that publish, subscribe, disconnect and reconnect. One seed,
one run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.dialect import DIALECTS
from edgebroker.instants import MILLISECOND, SECOND, Duration
from edgebroker.limits import JOURNAL_PAGE_MESSAGES
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.checkers import disordered, doubled, missed, unaccounted, unwanted
from edgelab.simworld.conditions import LineConditions, anywhere
from edgelab.simworld.participant import Participant
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import OPTIONS, SimulatedStore

STEADY: Final = 3
"""Devices that keep their sessions and their subscriptions: the messages they must receive are known exactly."""
FICKLE: Final = 4
"""Devices that change their subscriptions; half of them keep no session."""
TOPICS: Final = (
    *(f"site/{place}/{kind}" for place in ("north", "south") for kind in ("climate", "door", "power")),
    "quiet/corner",  # without a subscription, or with content that no filter accepts
)

GRANTED: Final[dict[str, int]] = {
    "site/#": 2,
    "site/+/climate": 1,
    "site/north/door": 0,
    "$filter/temp%3E30/site/+/climate": 2,
    "$filter/temp BETWEEN 10 AND 30 OR door IS NOT NULL/site/#": 1,
    "$filter/$level2 = 'south' AND NOT temp%3C5/site/#": 2,
    "$filter/place IN ('north', 'west') AND door = 'open'/site/+/door": 1,
    "$filter/place LIKE 'n%25'/#": 0,
}
"""The subscriptions of devices, and their QoS."""

CRASHES: Final = 0.04
"""The share of actions that cut the broker's power."""

QUIET: Final = 1_000 * SECOND
"""The longest time until a run has settled: a queue of 1,000 QoS 2 messages, window 1, half a second each way."""


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """The outcome of a run."""

    seed: int
    digest: str
    broken: list[str]
    """Broken promises; empty if all were kept."""
    said: int
    heard: int
    steps: int


class Workload:
    """One simulation and its devices."""

    def __init__(
        self,
        seed: int,
        options: FrontendOptions | None = None,
        log: DeliveryLog | None = None,
        is_stored: bool = False,
        disk_fails: float = 0.0,
        page_messages: int = JOURNAL_PAGE_MESSAGES,
    ) -> None:
        """*is_stored*: the broker has a disk and its power is cut now and then; *disk_fails*: the probability that a
        sync fails; *page_messages*: of queues, which are moved to the disk together.
        """
        self.simulation = Simulation(seed)
        self._disk_fails = disk_fails
        journal_options = replace(OPTIONS, page_messages=page_messages)
        store = SimulatedStore(self.simulation, journal_options) if is_stored else None
        if store is not None:
            store.disk.sync_fails, store.disk.write_fails = disk_fails, disk_fails / 4
        self.broker = SimulatedBroker(self.simulation, options, log, store=store)
        self.steady = [self._participant(f"steady-{number}", kept=True) for number in range(STEADY)]
        self.fickle = [self._participant(f"fickle-{number}", kept=number % 2 == 0) for number in range(FICKLE)]
        self.everybody = self.steady + self.fickle
        self._numbers = 0

    def run(self, actions: int) -> WorkloadOutcome:
        """Execute *actions*, let everything settle, and check the promises."""
        self.live(actions)
        broken = list(self._settle())
        broken += unwanted(self.everybody)
        broken += doubled(self.everybody)
        if not self._disk_fails:
            # A refusal may be lost on its way: then the client sends the message again, after later ones.
            broken += disordered(self.everybody, self.steady)
        broken += missed(self.everybody, self.steady, GRANTED)
        broken += unaccounted(self.broker, self.everybody)
        return WorkloadOutcome(
            self.simulation.seed,
            self.broker.digest,
            broken,
            sum(len(one.published) for one in self.everybody),
            sum(len(one.received) for one in self.everybody),
            self.simulation.steps,
        )

    def live(self, actions: int) -> None:
        """Connect all devices, and execute *actions* random actions."""
        chance = self.simulation.random
        for participant in self.everybody:
            participant.connect()
        self._run_until_idle()
        for participant in self.everybody:
            for text in chance.sample(list(GRANTED), chance.randrange(1, 4)):
                participant.subscribe(text, GRANTED[text])
        self._run_until_idle()
        for _ in range(actions):
            self._advance(round(chance.expovariate(1 / (20 * MILLISECOND))))
            self._act(chance.choice(self.everybody))

    def _participant(self, name: str, kept: bool) -> Participant:
        chance = self.simulation.random
        slowest = chance.choice([MILLISECOND, 20 * MILLISECOND, 200 * MILLISECOND])
        conditions = LineConditions((0, slowest), anywhere, chance.choice([1, 100, 10_000]))
        return Participant(name, self.broker, chance.choice(DIALECTS), kept, chance.choice([1, 3, 50]), conditions)

    def _act(self, one: Participant) -> None:
        chance = self.simulation.random
        if self.broker.store is not None and chance.random() < CRASHES:
            self._crash()
            return
        lot = chance.random()
        if lot < 0.80:
            for _ in range(chance.randrange(1, 5)):
                self._publish(one)
        elif lot < 0.86:
            one.cut()
            self._reconnect_later(3 * SECOND, one)
        elif lot < 0.90:
            one.connect()
        elif lot < 0.94:
            line = one.client.line
            if line is not None:
                line.stall()
                self.simulation.after(
                    chance.randrange(2 * SECOND), lambda: line.resume() if line is one.client.line else None
                )
        elif one in self.fickle:
            text = chance.choice(list(GRANTED))
            if chance.random() < 0.6:
                one.subscribe(text, GRANTED[text])
            else:
                one.unsubscribe(text)

    def _crash(self) -> None:
        self.broker.crash(is_power_cut=self.simulation.random.random() < 0.7)
        for one in self.everybody:
            self._reconnect_later(SECOND, one)

    def _publish(self, one: Participant) -> None:
        chance = self.simulation.random
        topic = chance.choice(TOPICS)
        self._numbers += 1
        reading = chance.choice(
            [f'"temp":{chance.randrange(-10, 50)}', '"door":"open"', '"door":"shut"', '"power":null']
        )
        payload = f'{{"n":{self._numbers},"place":"{topic.split("/")[1]}",{reading}}}'
        one.publish(topic, payload.encode(), chance.randrange(3))

    def _reconnect_later(self, longest: Duration, one: Participant) -> None:
        """Connect again within *longest*, unless that has happened before."""
        delay = self.simulation.random.randrange(longest)
        self.simulation.after(delay, lambda: None if one.client.is_connected else one.connect())

    def _advance(self, length: Duration) -> None:
        self.simulation.run_until(self.simulation.now + length)

    def _run_until_idle(self) -> None:
        """Run until nothing is in transit."""
        self.simulation.run_while(lambda: self.broker.is_busy)

    def _settle(self) -> list[str]:
        """Reconnect all devices and deliver everything. Returns a violation if that does not end."""
        self._advance(4 * SECOND)
        for participant in self.everybody:
            if not participant.client.is_connected:
                participant.connect()
        end = self.simulation.now + QUIET
        while self.simulation.now < end:
            self._advance(SECOND)
            for participant in self.everybody:  # a broker whose disk fails may have disconnected it again
                if not participant.client.is_connected:
                    participant.connect()
            if self.broker.ledger.queued == 0 and all(one.is_settled for one in self.everybody):
                break
        else:
            unsettled = [one.name for one in self.everybody if not one.is_settled]
            return [f"not at rest after {QUIET // SECOND} s: {self.broker.ledger.queued} copies open, {unsettled}"]
        return [f"{one.name} lost its session" for one in self.everybody if one.kept and one.sessions_lost > 1]
