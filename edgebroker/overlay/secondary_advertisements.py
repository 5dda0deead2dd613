"""Advertisements of publishers in other clusters, and the answers of this gateway: whether its cluster wants their
events.

These are the advertisement records of a secondary broker [SCOT, SRT, subscription context]. A bit that is no longer
needed costs only superfluous copies, so it is cleared a second later, in case a client subscribes again.
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
"""How long a bit stays set after the last interest ended."""

Covering: TypeAlias = tuple[Interest, ...] | None
"""Interests that cover all interests of a cluster; None: it may want anything; empty: it wants nothing."""
NOTHING: Final[Covering] = ()
"""The answer of a cluster without matching interests."""


@dataclass(slots=True, eq=False)
class SecondaryAdvertisement:
    """The record of an advertisement of another cluster. `answered`: the last answer sent to its host."""

    advertise: Advertise
    host: str
    answered: Covering = NOTHING


class SecondaryAdvertisements:
    """The answers of one gateway to the hosts of its region."""

    def __init__(self, cluster: int, boot: int, wants: Callable[[TopicFilter], Covering]) -> None:
        """boot: grows with every start of the gateway. wants: returns the interests of the own cluster under a topic
        filter.
        """
        self._cluster = cluster
        self._last = boot << 32
        self._wants = wants
        self._records: dict[str, dict[int, SecondaryAdvertisement]] = {}  # by host, by advertisement
        self._index: TopicIndex[SecondaryAdvertisement] = TopicIndex()
        self._unconfirmed: dict[str, list[ClusterBits]] = {}
        self._stale: dict[SecondaryAdvertisement, Instant] = {}  # answered with more than is wanted -> when to correct

    def of(self, host: str) -> tuple[Advertise, ...]:
        """Return the advertisements of *host*."""
        return tuple(record.advertise for record in self._records.get(host, {}).values())

    def unconfirmed(self, host: str) -> tuple[ClusterBits, ...]:
        """Return the answers that *host* has not confirmed."""
        return tuple(self._unconfirmed.get(host, ()))

    @property
    def next_due(self) -> Instant | None:
        """The earliest deadline for `clear_stale`."""
        return min(self._stale.values(), default=None)

    def is_wanted(self, adv: int, host: str) -> bool:
        """Return the secondary cluster bit (SCB) last sent to *host*."""
        record = self._records.get(host, {}).get(adv)
        return record is not None and record.answered != NOTHING

    def hosts(self, topic_filter: TopicFilter) -> tuple[str, ...]:
        """Return the hosts that advertised events under a topic that *topic_filter* matches."""
        return tuple(dict.fromkeys(record.host for record in self._index.overlapping(topic_filter)))

    def add(self, host: str, advertisements: Iterable[Advertise], is_restated: bool = False) -> list[ClusterBits]:
        """Store advertisements of *host*, replacing known ones; return the answers to send.

        is_restated: one of the two gateways had lost its state, so *host* may have an outdated answer.
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
        """Remove the advertisements *advs* of *host*."""
        for adv in advs:
            self._forget(host, adv)

    def forget(self, host: str) -> None:
        """Remove all advertisements of *host*."""
        self.remove(host, tuple(self._records.get(host, ())))
        self._unconfirmed.pop(host, None)

    def update(self, topic_filters: Iterable[TopicFilter], now: Instant) -> list[tuple[str, ClusterBits]]:
        """Recompute the answers after interests changed under *topic_filters*; return those to send at once, by host.

        Answers that only become narrower are sent by `clear_stale`.
        """
        affected = dict.fromkeys(record for one in topic_filters for record in self._index.overlapping(one))
        more: dict[tuple[str, Covering], list[int]] = {}
        for record in affected:
            wanted = self._wants(record.advertise.topic_filter)
            if wanted == record.answered:
                self._stale.pop(record, None)
            elif _is_more(wanted, record.answered) or (wanted and record.answered is None):
                # "Anything" becomes precise interests at once: no client has unsubscribed.
                self._stale.pop(record, None)
                record.answered = wanted
                more.setdefault((record.host, wanted), []).append(record.advertise.adv)
            else:
                self._stale.setdefault(record, now + CLEAR_DELAY)
        return [(host, self._answer(host, advs, covering)) for (host, covering), advs in more.items()]

    def clear_stale(self, now: Instant) -> list[tuple[str, ClusterBits]]:
        """Return the answers that have been wider than the interests for CLEAR_DELAY, corrected, by host."""
        less: dict[tuple[str, Covering], list[int]] = {}
        for record in [record for record, due in self._stale.items() if due <= now]:
            del self._stale[record]
            record.answered = self._wants(record.advertise.topic_filter)
            less.setdefault((record.host, record.answered), []).append(record.advertise.adv)
        return [(host, self._answer(host, advs, covering)) for (host, covering), advs in less.items()]

    def confirm(self, host: str, number: int) -> None:
        """Record that *host* has all answers up to *number*."""
        left = [bits for bits in self._unconfirmed.get(host, ()) if bits.number > number]
        if left:
            self._unconfirmed[host] = left
        else:
            self._unconfirmed.pop(host, None)

    def _answer(self, host: str, advs: list[int], covering: Covering) -> ClusterBits:
        """Return a numbered answer, and keep it until *host* confirms it."""
        self._last += 1
        is_set = covering != NOTHING
        bits = ClusterBits(tuple(advs), self._cluster, self._last, is_set, covering if is_set else None)
        self._drop_unconfirmed(host, set(advs))  # earlier answers about them are superseded
        self._unconfirmed.setdefault(host, []).append(bits)
        return bits

    def _drop_unconfirmed(self, host: str, advs: set[int]) -> None:
        """Drop unconfirmed answers about *advs*, so that they do not pile up for a host that is down."""
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


def _is_more(wanted: Covering, answered: Covering) -> bool:
    """Return whether *wanted* may include an event that *answered* does not."""
    if answered is None:
        return False
    return wanted is None or any(one not in answered for one in wanted)
