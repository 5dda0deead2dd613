"""Advertisements of publishers in other clusters, and the answers of this gateway: whether its cluster wants their
events.

The record of an advertisement at a secondary broker [SCOT, SRT, subscription context]. A bit that is no longer
needed costs copies only, so it is cleared a second later: somebody may come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.interest import Interest
from edgebroker.overlay.messages import Advertise, ClusterBits
from edgebroker.overlay.topicindex import TopicIndex
from edgebroker.topics import TopicFilter

CLEAR_DELAY: Final[Duration] = SECOND

Covering: TypeAlias = tuple[Interest, ...] | None
"""What covers all that somebody wants; None: it may be anything; nothing at all: nobody wants anything."""
NOTHING: Final[Covering] = ()


@dataclass(slots=True, eq=False)
class SecondaryAdvertisement:
    """The record of an advertisement of another cluster. `said`: what its host knows, or will when it has our words."""

    advertise: Advertise
    host: str
    answered: Covering = NOTHING


class SecondaryAdvertisements:
    """The answers of one gateway to the hosts of its region."""

    def __init__(self, cluster: int, boot: int, wants: Callable[[TopicFilter], Covering]) -> None:
        """boot: grows with every start of the gateway.  wants: what the own cluster wants under a topic filter."""
        self._cluster = cluster
        self._last = boot << 32
        self._wants = wants
        self._records: dict[str, dict[int, SecondaryAdvertisement]] = {}  # by host, by advertisement
        self._index: TopicIndex[SecondaryAdvertisement] = TopicIndex()
        self._unconfirmed: dict[str, list[ClusterBits]] = {}
        self._stale: dict[SecondaryAdvertisement, Instant] = {}  # said more than is wanted -> when to say less

    def of(self, host: str) -> tuple[Advertise, ...]:
        """What *host* advertised."""
        return tuple(record.advertise for record in self._records.get(host, {}).values())

    def unconfirmed(self, host: str) -> tuple[ClusterBits, ...]:
        """What *host* has not confirmed."""
        return tuple(self._unconfirmed.get(host, ()))

    @property
    def next_due(self) -> Instant | None:
        """When `clear` has something to do."""
        return min(self._stale.values(), default=None)

    def is_wanted(self, adv: int, host: str) -> bool:
        """The secondary cluster bit (SCB) that *host* knows, or will."""
        record = self._records.get(host, {}).get(adv)
        return record is not None and record.answered != NOTHING

    def hosts(self, topic_filter: TopicFilter) -> tuple[str, ...]:
        """Who advertised something that shares a topic with *topic_filter*."""
        return tuple(dict.fromkeys(record.host for record in self._index.overlapping(topic_filter)))

    def add(self, host: str, advertisements: Iterable[Advertise], is_restated: bool = False) -> list[ClusterBits]:
        """Store what *host* advertised, anew if it was known; return what it must be told.

        is_restated: we, or it, had forgotten that, so it may have an answer that does not hold any more.
        """
        answers: dict[Covering, list[int]] = {}
        for advertise in advertisements:
            self._forget(host, advertise.adv)
            record = SecondaryAdvertisement(advertise, host, self._wants(advertise.topic_filter))
            self._records.setdefault(host, {})[advertise.adv] = record
            self._index.add(advertise.topic_filter, record)
            if record.answered != NOTHING or advertise.wants_answer or is_restated:
                answers.setdefault(record.answered, []).append(advertise.adv)
        return [self._answer(host, advs, covering) for covering, advs in answers.items()]

    def remove(self, host: str, advs: Iterable[int]) -> None:
        """Forget what *host* advertised as *advs*."""
        for adv in advs:
            self._forget(host, adv)

    def forget(self, host: str) -> None:
        """Forget all of *host*."""
        self.remove(host, tuple(self._records.get(host, ())))
        self._unconfirmed.pop(host, None)

    def update(self, topic_filters: Iterable[TopicFilter], now: Instant) -> list[tuple[str, ClusterBits]]:
        """Somebody in the cluster wants more or less under *topic_filters*; return what must be said at once, to whom.

        What can wait is said by `clear`.
        """
        met = dict.fromkeys(record for one in topic_filters for record in self._index.overlapping(one))
        more: dict[tuple[str, Covering], list[int]] = {}
        for record in met:
            wanted = self._wants(record.advertise.topic_filter)
            if wanted == record.answered:
                self._stale.pop(record, None)
            elif _is_more(wanted, record.answered) or (
                wanted and record.answered is None
            ):  # now it is known: nobody has gone
                self._stale.pop(record, None)
                record.answered = wanted
                more.setdefault((record.host, wanted), []).append(record.advertise.adv)
            else:
                self._stale.setdefault(record, now + CLEAR_DELAY)
        return [(host, self._answer(host, advs, covering)) for (host, covering), advs in more.items()]

    def clear_stale(self, now: Instant) -> list[tuple[str, ClusterBits]]:
        """Say less where less has been wanted for CLEAR_DELAY."""
        less: dict[tuple[str, Covering], list[int]] = {}
        for record in [record for record, due in self._stale.items() if due <= now]:
            del self._stale[record]
            record.answered = self._wants(record.advertise.topic_filter)
            less.setdefault((record.host, record.answered), []).append(record.advertise.adv)
        return [(host, self._answer(host, advs, covering)) for (host, covering), advs in less.items()]

    def confirm(self, host: str, number: int) -> None:
        """*host* has all that was said up to *number*."""
        left = [bits for bits in self._unconfirmed.get(host, ()) if bits.number > number]
        if left:
            self._unconfirmed[host] = left
        else:
            self._unconfirmed.pop(host, None)

    def _answer(self, host: str, advs: list[int], covering: Covering) -> ClusterBits:
        self._last += 1
        is_set = covering != NOTHING
        bits = ClusterBits(tuple(advs), self._cluster, self._last, is_set, covering if is_set else None)
        self._drop_unconfirmed(host, set(advs))  # what was said of them before does not matter any more
        self._unconfirmed.setdefault(host, []).append(bits)
        return bits

    def _drop_unconfirmed(self, host: str, advs: set[int]) -> None:
        """Nothing said of *advs* has to be held: otherwise it would pile up for a host that is away."""
        left = []
        for bits in self._unconfirmed.get(host, ()):
            others = tuple(adv for adv in bits.advs if adv not in advs)
            if others:
                left.append(bits if len(others) == len(bits.advs) else replace(bits, advs=others))
        if left:
            self._unconfirmed[host] = left
        else:
            self._unconfirmed.pop(host, None)

    def _forget(self, host: str, adv: int) -> None:
        self._drop_unconfirmed(host, {adv})
        record = self._records.get(host, {}).pop(adv, None)
        if record is not None:
            self._index.discard(record.advertise.topic_filter, record)
            self._stale.pop(record, None)


def _is_more(wanted: Covering, said: Covering) -> bool:
    """Whether *wanted* may mean an event that *said* does not."""
    if said is None:
        return False
    return wanted is None or any(one not in said for one in wanted)
