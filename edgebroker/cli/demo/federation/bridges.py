"""What joins sites as bridges without content filters do, and as flooding does: counted from what was published.

It shares nothing with routing: who publishes where, and who asks for what at which site, is all that it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgebroker.cli.demo.audit import Publication, accepts
from edgebroker.cli.demo.federation.layout import Pair
from edgebroker.cli.demo.wishes import Wish


@dataclass(slots=True)
class Load:
    """Messages, and the bytes of their PUBLISH packets."""

    events: int = 0
    bytes: int = 0

    def add(self, octets: int, times: int = 1) -> None:
        """One more message, so many *times*."""
        self.events += times
        self.bytes += octets * times


@dataclass(slots=True)
class Alternatives:
    """What would have crossed between two sites, both ways together.

    by_topic: one bridge, over which a message goes once if somebody at the other site has a matching topic filter.
    flooded: every message, over each of the connections between the sites once.
    wanted: the messages that somebody at the other site asks for, by topic and content; what any network must carry.
    """

    by_topic: Load
    flooded: Load
    wanted: Load


def alternatives(
    pairs: Mapping[Pair, int],
    publications: Iterable[Publication],
    site_of: Callable[[Publication], str],
    wishes: Mapping[str, Sequence[Wish]],
) -> dict[Pair, Alternatives]:
    """For each of *pairs*: two sites, and how many connections join them. wishes: site -> what is asked for there."""
    found = {pair: Alternatives(Load(), Load(), Load()) for pair in pairs}
    for publication in publications:
        octets, home = packet_bytes(publication), site_of(publication)
        for pair, load in found.items():
            load.flooded.add(octets, pairs[pair])
            if home not in pair:
                continue
            away = pair[1] if home == pair[0] else pair[0]
            asked = [wish for wish in wishes.get(away, ()) if _topic(wish, publication)]
            if asked:
                load.by_topic.add(octets)
            if any(accepts(wish, publication) for wish in asked):
                load.wanted.add(octets)
    return found


def packet_bytes(publication: Publication) -> int:
    """The size of its PUBLISH packet in MQTT 3.1.1 (section 3.3), without what TCP adds and what is answered."""
    rest = 2 + len(publication.topic.encode()) + (2 if publication.qos else 0) + len(publication.payload)
    length = 1
    while rest >= 128**length:
        length += 1
    return 1 + length + rest


def _topic(wish: Wish, publication: Publication) -> bool:
    """Whether the levels of the wish's topic filter are those of the topic; its names begin with no "$"."""
    wanted, levels = wish.topic.split("/"), publication.topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
    elif len(levels) != len(wanted):
        return False
    return all(one in ("+", level) for one, level in zip(wanted, levels, strict=False))
