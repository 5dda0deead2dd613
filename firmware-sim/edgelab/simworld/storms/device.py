"""A device of a storm: what it is, as a value; and how it behaves while everything around it breaks."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from edgebridge.wire.dialect import V5, V311
from edgebridge.wire.packets import Will
from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgelab.simworld.conditions import LineConditions, anywhere, whole
from edgelab.simworld.gateways import SimulatedGateway
from edgelab.simworld.participant import Participant

GRANTED: Final[dict[str, int]] = {
    "hall/#": 2,
    "+/climate": 1,
    "hall/door": 0,
    "$filter/n%3E50/#": 2,
    "$filter/n BETWEEN 10 AND 60/hall/+": 1,
    "$filter/place = 'north' AND NOT n%3C20/#": 2,
    "$filter/door IS NOT NULL OR n%3C10/+/door": 1,
    "$filter/NOT (n%3C30 AND place = 'north' OR door = 'open')/yard/#": 2,
    "$filter/n BETWEEN 40 AND 80/#": 1,
    "$filter/n%3C30/hall/#": 2,
    "kept/#": 1,
}
"""What devices ask for, and the QoS at which they do."""
SHARED: Final[dict[str, int]] = {
    "$share/crew/#": 2,
    "$share/crew/+/climate": 1,
    "$share/crew/$filter/n BETWEEN 10 AND 60/hall/+": 2,
    "$share/crew/$filter/n%3E50/#": 1,
}
"""What a crew asks for (crew.py)."""
QOS_ASKED: Final = GRANTED | SHARED
TOPICS: Final = ("hall/climate", "hall/door", "yard/climate", "yard/door", "quiet")
PLACES: Final = ("north", "south")
MORE: Final = ("", ',"door":"open"', ',"door":null')
PATIENCE: Final[Duration] = 3 * SECOND
"""How long a device waits for CONNACK before it connects anew."""
WINDOWS: Final = (1, 3, 20)
QUICK_WINDOW: Final = 20
QUICK_LINE: Final = 5 * MILLISECOND
SLOWEST: Final = (MILLISECOND, 5 * MILLISECOND, 50 * MILLISECOND)
PACE: Final = (150 * MILLISECOND, 600 * MILLISECOND)
"""Twice as often would be twice the work for a storm."""
RETRIES: Final[Duration] = 60 * MILLISECOND
"""How long it pauses, on average, while it is not let in: it is there again soon after its gateway, as devices are."""
KEEPERS: Final = ("steady", "worker")
"""Kinds that keep their session, and do not change what they ask for."""
CHANGING: Final = ("fickle", "casual")
CREW: Final = ("worker", "casual")
BURSTS: Final = 0.08
"""How often a device says several messages of one topic at once."""
FAREWELLS: Final = 0.04
"""How often a device with a will says good-bye, and comes back."""
HOLIDAYS: Final = 0.02
"""How often a device that keeps its session leaves for longer: what it is to hear waits for it, or expires."""
HOLIDAY: Final = (SECOND, 5 * SECOND)
EXPIRES: Final = 0.2
"""How many messages expire, of those that can: MQTT 5, not retained."""
EXPIRY_S: Final = (1, 2)
AWAY: Final[Duration] = 300 * MILLISECOND
"""Its DISCONNECT is there before it connects again, which would end the old connection without one."""
BUFFER_BYTES: Final = 1_000
"""What a line takes from a gateway before the device counts as slow: a few messages."""
CHOPPED: Final = 0.4
WILLS: Final = 0.3
RETAINED: Final = 0.15
RETAINS: Final = 0.4
"""How many devices retain, and then RETAINED of their messages."""


@dataclass(frozen=True, slots=True)
class StormDevice:
    """One device.

    A `steady` one keeps its session and its subscriptions, so what it must hear is known exactly; a `fickle` one
    changes them, and a `talker` has none. A `worker` is steady but shares what it asks for, and a `casual` shares it
    for a while. `is_kept`: whether its session outlives the connection.
    """

    name: str
    kind: str
    home: str
    """The gateway it connects to."""
    is_v5: bool
    is_kept: bool
    window: int
    """Its Receive Maximum."""
    asks: tuple[str, ...]
    pace: Duration
    """How long it pauses between two things it does, on average."""
    slowest: Duration
    """How long a piece travels on its line, at most."""
    is_chopped: bool
    """Whether what it and its gateway write arrives in pieces that were cut anywhere."""
    has_will: bool
    retains: bool

    @property
    def is_quick(self) -> bool:
        """Whether it takes messages faster than they are said, as far as it is up to its window and its line."""
        return self.window >= QUICK_WINDOW or (self.window > 1 and self.slowest <= QUICK_LINE)

    def __str__(self) -> str:
        traits = [
            "5" if self.is_v5 else "3.1.1",
            "kept" if self.is_kept else "clean",
            *(["will"] if self.has_will else []),
            *(["retains"] if self.retains else []),
        ]
        return f"{self.name}@{self.home}({', '.join((*traits, *self.asks))})"

    @classmethod
    def draw(cls, kind: str, number: int, home: str, chance: Random) -> StormDevice:
        """A device of *kind*; its name says which and where."""
        is_kept = kind in KEEPERS or chance.random() < 0.6
        asks = () if kind == "talker" else tuple(chance.sample(list(GRANTED), chance.randint(1, 3)))
        return cls(
            f"{kind}-{number}",
            kind,
            home,
            chance.random() < 0.5,
            is_kept,
            chance.choice(WINDOWS),
            asks,
            chance.randint(*PACE),
            chance.choice(SLOWEST),
            chance.random() < CHOPPED,
            chance.random() < WILLS,
            is_kept and chance.random() < RETAINS,
        )


class StormParticipant(Participant):
    """A device at work. It has a source of chance of its own: what others do does not change what it does."""

    def __init__(self, device: StormDevice, home: SimulatedGateway, seed: int) -> None:
        dialect = V5 if device.is_v5 else V311
        conditions = LineConditions((0, device.slowest), anywhere if device.is_chopped else whole, BUFFER_BYTES)
        super().__init__(device.name, home, dialect, device.is_kept, device.window, conditions)
        self.device = device
        self.home = home
        self.chance = Random(f"{seed} {device.name}")
        self.is_resting = False
        """It does nothing more by itself but stay connected."""
        self.wanted = set(device.asks)
        """What it subscribes to in each session."""
        self.unsure_since: Instant | None = None
        """When what its gateway had on disk was damaged: from then on, what it must hear is not known."""
        self._simulation = home.simulation
        self._connecting_since: Instant = 0
        self.voided: list[tuple[bytes, Instant]] = []
        """The wills of connections that it ended with DISCONNECT, and when."""
        self.holidays: list[tuple[Instant, Instant]] = []
        """When it was away for longer, of its own accord."""
        self._away_until: Instant = 0
        # One of QoS 1 that is sent again comes behind one of QoS 2 that is not, and is the newest then: so never both.
        self._kept_qos = self.chance.randint(1, 2)
        self._number = 0
        if device.has_will:
            self.new_will = self._will

    def begin(self) -> None:
        """Connect, and then do one thing after another."""
        self.act()

    def act(self) -> None:
        """Do one thing, and plan the next."""
        self._do()
        pace = self.device.pace if self.is_ready else RETRIES
        self._simulation.after(round(self.chance.expovariate(1 / pace)) + 1, self.act)

    def resubscribe(self) -> None:
        """Subscribe to everything it wants, once it is connected."""
        for text in sorted(self.wanted):
            self.subscribe(text, QOS_ASKED[text])

    def _do(self) -> None:
        now = self._simulation.now
        if not self.is_ready:
            is_waiting = self.client.is_connected and now - self._connecting_since < PATIENCE
            if not is_waiting and not self.home.is_off and now >= self._away_until:
                self._connecting_since = now
                self.connect()
            return
        if self.wanted - self.subscribed:
            self.resubscribe()
        if self.is_resting:
            return
        if self.device.has_will and self.chance.random() < FAREWELLS:
            self.voided.append((self.wills[-1].payload, now))
            self._away_until = now + AWAY
            self.disconnect()
            return
        if self.device.is_kept and self.chance.random() < HOLIDAYS:
            if self.wills:
                self.voided.append((self.wills[-1].payload, now))
            self._away_until = now + self.chance.randint(*HOLIDAY)
            self.holidays.append((now, self._away_until))
            self.disconnect()
            return
        if self.device.kind in CHANGING and self.chance.random() < 0.25:
            self._change()
        elif self.device.kind not in KEEPERS or self.chance.random() < 0.3:
            if self.chance.random() < BURSTS:
                topic, qos = self.chance.choice(TOPICS), self.chance.randrange(3)
                for _ in range(self.chance.randint(4, 9)):
                    self.publish(topic, self._payload(), qos)
            else:
                for _ in range(self.chance.randint(1, 3)):
                    self._say()

    def _change(self) -> None:
        text = self.chance.choice(list(GRANTED) if self.device.kind == "fickle" else self.device.asks)
        if self.chance.random() < 0.6:
            self.subscribe(text, QOS_ASKED[text])
        else:
            self.wanted.discard(text)
            self.unsubscribe(text)

    def _say(self) -> None:
        chance = self.chance
        if self.device.retains and chance.random() < RETAINED:
            self.publish(f"kept/{self.name}", self._payload(), self._kept_qos, retain=True)
        else:
            expiry_s = chance.randint(*EXPIRY_S) if self.device.is_v5 and chance.random() < EXPIRES else 0
            self.publish(chance.choice(TOPICS), self._payload(), chance.randrange(3), expiry_s=expiry_s)

    def _payload(self) -> bytes:
        self._number += 1
        reading = f'"n":{self.chance.randrange(100)},"place":"{self.chance.choice(PLACES)}"{self.chance.choice(MORE)}'
        return f'{{{reading},"of":"<{self.name}/{self._number}>"}}'.encode()

    def _will(self) -> Will:
        return Will(self.chance.choice(TOPICS), self._payload(), self.chance.randrange(3))
