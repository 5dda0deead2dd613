"""Sensor readings, who asks for which by content, and, worked out value by value, who must get what.

Nothing of the broker's own matching is used: a fault in it would cancel out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

FIELDS = ("temperature", "humidity", "pressure", "co2", "noise", "voltage", "level")  # and `seq`: eight in all
LOWEST, HIGHEST = 100, 999  # of every field: all readings have the same length as text
SEQ_FIRST = 1_000_000_000  # so have the numbers of the messages
DEVICES = 500  # different readings; each has a topic of its own
SELECTIVITY = 0.001  # the share of the readings that a filter accepts
PER_CLIENT = 100  # subscriptions
READINGS = "sensors/+/reading"
"""The topic filter under which all content filters stand."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A conjunction of ranges: (place of the field, lowest, highest)."""

    ranges: tuple[tuple[int, int, int], ...]

    @property
    def text(self) -> str:
        """The subscription as MQTT carries it."""
        where = " AND ".join(f"{FIELDS[field]} BETWEEN {low} AND {high}" for field, low, high in self.ranges)
        return f"$filter/{where}/{READINGS}"

    def accepts(self, reading: Sequence[int]) -> bool:
        """Whether every range holds its value."""
        return all(low <= reading[field] <= high for field, low, high in self.ranges)


def topic_of(device: int) -> str:
    """Where the device publishes."""
    return f"sensors/{device:04d}/reading"


def payload_of(reading: Sequence[int], number: int) -> bytes:
    """The reading as a JSON object with eight fields; message *number* shows in `seq`, which comes first."""
    values = ",".join(f'"{field}":{value}' for field, value in zip(FIELDS, reading, strict=True))
    return f'{{"seq":{SEQ_FIRST + number},{values}}}'.encode()


class Readings:
    """What the devices say, what the clients ask for, and which clients must get what."""

    def __init__(self, subscriptions: int, seed: int = 1) -> None:
        chance = Random(seed)
        self.by_device = [tuple(chance.randint(LOWEST, HIGHEST) for _ in FIELDS) for _ in range(DEVICES)]
        self.asks = [_ask(chance) for _ in range(subscriptions)]
        self.clients = -(-subscriptions // PER_CLIENT)
        self.matches = 0
        """Subscriptions that accept the reading of a device, over all devices."""
        self.audiences: list[frozenset[int]] = []
        """Per device, the clients that want its reading."""
        for reading in self.by_device:
            accepting = [number for number, ask in enumerate(self.asks) if ask.accepts(reading)]
            self.matches += len(accepting)
            self.audiences.append(frozenset(number // PER_CLIENT for number in accepting))

    def by_content(self, client: int) -> list[str]:
        """The subscriptions of *client*: one for each of its filters."""
        return [ask.text for ask in self.asks[client * PER_CLIENT : (client + 1) * PER_CLIENT]]

    def by_topic(self, client: int) -> list[str]:
        """Subscriptions without content filter that bring *client* the same messages.

        They name the devices whose readings it wants. Others, that match nothing, make up the number.
        """
        wanted = [topic_of(device) for device, audience in enumerate(self.audiences) if client in audience]
        idle = [f"sensors/{client:04d}/command/{n}" for n in range(len(self.by_content(client)) - len(wanted))]
        return wanted + idle


def _ask(chance: Random) -> Ask:
    """Two to four of the fields, each within a range; together they leave SELECTIVITY of all readings."""
    count = chance.randint(2, 4)
    width = round((HIGHEST - LOWEST + 1) * SELECTIVITY ** (1 / count))
    ranges = []
    for field in sorted(chance.sample(range(len(FIELDS)), count)):
        low = chance.randint(LOWEST, HIGHEST - width + 1)
        ranges.append((field, low, low + width - 1))
    return Ask(tuple(ranges))
