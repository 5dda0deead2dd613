"""A device of a storm: its properties as a value, and its behaviour during the faults."""

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
"""The subscriptions of devices, and their QoS."""
SHARED: Final[dict[str, int]] = {
    "$share/crew/#": 2,
    "$share/crew/+/climate": 1,
    "$share/crew/$filter/n BETWEEN 10 AND 60/hall/+": 2,
    "$share/crew/$filter/n%3E50/#": 1,
}
"""The shared subscriptions of a crew, and their QoS."""
QOS_ASKED: Final = GRANTED | SHARED
TOPICS: Final = ("hall/climate", "hall/door", "yard/climate", "yard/door", "quiet")
PLACES: Final = ("north", "south")
MORE: Final = ("", ',"door":"open"', ',"door":null')
PATIENCE: Final[Duration] = 3 * SECOND
"""The time-out for CONNACK, after which a device connects again."""
WINDOWS: Final = (1, 3, 20)
QUICK_WINDOW: Final = 20
QUICK_LINE: Final = 5 * MILLISECOND
SLOWEST: Final = (MILLISECOND, 5 * MILLISECOND, 50 * MILLISECOND)
PACE: Final = (150 * MILLISECOND, 600 * MILLISECOND)
"""Pauses between actions. With half of them a storm would take twice the time."""
RETRIES: Final[Duration] = 60 * MILLISECOND
"""The mean pause between attempts to connect, so that devices reconnect soon after their gateway has started."""
KEEPERS: Final = ("steady", "worker")
"""Kinds that keep their session, and do not change their subscriptions."""
CHANGING: Final = ("fickle", "casual")
CREW: Final = ("worker", "casual")
BURSTS: Final = 0.08
"""The probability that a device publishes several messages of one topic at once."""
FAREWELLS: Final = 0.04
"""The probability that a device with a will disconnects and connects again."""
HOLIDAYS: Final = 0.02
"""The probability that a device with a lasting session disconnects for longer: its messages are queued, or expire."""
HOLIDAY: Final = (SECOND, 5 * SECOND)
EXPIRES: Final = 0.2
"""The share of messages that expire, of those that can: MQTT 5, not retained."""
EXPIRY_S: Final = (1, 2)
AWAY: Final[Duration] = 300 * MILLISECOND
"""The pause after DISCONNECT, so that it arrives before the next CONNECT, which would end the old connection without
one.
"""
BUFFER_BYTES: Final = 1_000
"""The bytes that a line buffers before the device counts as slow: a few messages."""
CHOPPED: Final = 0.4
WILLS: Final = 0.3
RETAINED: Final = 0.15
RETAINS: Final = 0.4
"""The share of devices that publish retained messages; RETAINED is then the share of their messages."""


@dataclass(frozen=True, slots=True)
class StormDevice:
    """The properties of one device.

    A `steady` one keeps its session and its subscriptions, so the messages that it must receive are known exactly; a
    `fickle` one changes its subscriptions, and a `talker` has none. A `worker` is steady but has shared subscriptions,
    and a `casual` one has them for a while. `is_kept`: whether its session outlives the connection.
    """

    name: str
    kind: str
    home: str
    """The gateway to which it connects."""
    is_v5: bool
    is_kept: bool
    window: int
    """Its Receive Maximum."""
    asks: tuple[str, ...]
    pace: Duration
    """The mean pause between two actions."""
    slowest: Duration
    """The longest delay of a piece on its line."""
    is_chopped: bool
    """Whether the bytes on its line arrive in pieces that are split anywhere."""
    has_will: bool
    retains: bool

    @property
    def is_quick(self) -> bool:
        """Return whether it receives messages faster than they are published, as far as its window and its line are
        concerned.
        """
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
        """Draw a device of *kind*; its name contains the kind and the number."""
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
    """A running device. It has a random source of its own: its actions do not depend on other devices."""

    def __init__(self, device: StormDevice, home: SimulatedGateway, seed: int) -> None:
        dialect = V5 if device.is_v5 else V311
        conditions = LineConditions((0, device.slowest), anywhere if device.is_chopped else whole, BUFFER_BYTES)
        super().__init__(device.name, home, dialect, device.is_kept, device.window, conditions)
        self.device = device
        self.home = home
        self.chance = Random(f"{seed} {device.name}")
        self.is_resting = False
        """It only stays connected, without actions of its own."""
        self.has_walked = False
        """Whether it has been at several gateways."""
        self.wanted = set(device.asks)
        """The subscriptions that it makes in each session."""
        self.unsure_since: Instant | None = None
        """The time at which its gateway's journal was damaged: from then on, the messages it must receive are
        unknown.
        """
        self._simulation = home.simulation
        self._connecting_since: Instant = 0
        self.voided: list[tuple[bytes, Instant]] = []
        """The wills of connections that it ended with DISCONNECT, and the times."""
        self.holidays: list[tuple[Instant, Instant]] = []
        """The periods in which it stayed disconnected on purpose."""
        self._away_until: Instant = 0
        # A repeated message of QoS 1 would follow one of QoS 2 that is not repeated, and be retained as the newest: so
        # the QoS is fixed.
        self._retained_qos = self.chance.randint(1, 2)
        self._number = 0
        if device.has_will:
            self.new_will = self._will

    def begin(self) -> None:
        """Connect, and then execute one action after another."""
        self.act()

    def act(self) -> None:
        """Execute one action, and plan the next."""
        self._act_once()
        pace = self.device.pace if self.is_ready else RETRIES
        self._simulation.after(round(self.chance.expovariate(1 / pace)) + 1, self.act)

    def walk(self, gateway: SimulatedGateway) -> None:
        """Connect to *gateway* from now on."""
        self.home, self.has_walked = gateway, True
        self.move(gateway)

    def resubscribe(self) -> None:
        """Make all its subscriptions, once it is connected."""
        for text in sorted(self.wanted):
            self.subscribe(text, QOS_ASKED[text])

    def _act_once(self) -> None:
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
            self._change_subscription()
        elif self.device.kind not in KEEPERS or self.chance.random() < 0.3:
            if self.chance.random() < BURSTS:
                topic, qos = self.chance.choice(TOPICS), self.chance.randrange(3)
                for _ in range(self.chance.randint(4, 9)):
                    self.publish(topic, self._payload(), qos)
            else:
                for _ in range(self.chance.randint(1, 3)):
                    self._publish_one()

    def _change_subscription(self) -> None:
        text = self.chance.choice(list(GRANTED) if self.device.kind == "fickle" else self.device.asks)
        if self.chance.random() < 0.6:
            self.subscribe(text, QOS_ASKED[text])
        else:
            self.wanted.discard(text)
            self.unsubscribe(text)

    def _publish_one(self) -> None:
        chance = self.chance
        if self.device.retains and chance.random() < RETAINED:
            self.publish(f"kept/{self.name}", self._payload(), self._retained_qos, retain=True)
        else:
            expiry_s = chance.randint(*EXPIRY_S) if self.device.is_v5 and chance.random() < EXPIRES else 0
            self.publish(chance.choice(TOPICS), self._payload(), chance.randrange(3), expiry_s=expiry_s)

    def _payload(self) -> bytes:
        self._number += 1
        reading = f'"n":{self.chance.randrange(100)},"place":"{self.chance.choice(PLACES)}"{self.chance.choice(MORE)}'
        return f'{{{reading},"of":"<{self.name}/{self._number}>"}}'.encode()

    def _will(self) -> Will:
        return Will(self.chance.choice(TOPICS), self._payload(), self.chance.randrange(3))
