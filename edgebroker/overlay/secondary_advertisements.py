"""Advertisements of publishers in other clusters, and the answers of this gateway: whether its cluster wants their
events, and which of them.

These are the advertisement records of a secondary broker [SCOT, SRT, subscription context]. A bit that is no longer
needed costs only superfluous copies, so it is cleared a second later, in case a client subscribes again.

An answer takes a limited number of bytes, so it may be wider than the interests are. New interests are added to the
last answer, which is widened where they do not fit; it is made anew from all interests a second later at the earliest,
at most one that needs widening in a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.interest import Interest
from edgebroker.overlay.messages import Advertise, ClusterBits
from edgebroker.topicindex import TopicIndex
from edgebroker.topics import TopicFilter

CLEAR_DELAY: Final[Duration] = SECOND
"""How long a bit stays set after the last interest ended."""

MORE_AT_ONCE_MAX: Final = 4
"""Answers about one advertisement within CLEAR_DELAY that only add interests. After these the cluster may want anything
until the delay is over: 1,000 clients that come back at once would otherwise have 1,000 answers of 4 KiB sent.
"""

CLEARED_AT_ONCE: Final = 64
"""Answers that are corrected in one turn; each takes up to 0.1 ms, and 0.2 s if it is widened."""

Covering: TypeAlias = tuple[Interest, ...] | None
"""Interests that cover all interests of a cluster; None: it may want anything; empty: it wants nothing."""


class Answer(NamedTuple):
    """What a cluster is said to want. `is_exact`: nothing that it does not want."""

    covering: Covering
    is_exact: bool


NOTHING: Final = Answer((), True)
"""The answer of a cluster without matching interests."""
ANYTHING: Final = Answer(None, False)
"""The answer of a cluster that does not know, or cannot say, what it wants."""


class ClusterWants(Protocol):
    """The interests of the own cluster."""

    def wants(self, topic_filter: TopicFilter, octets: int, may_widen: bool) -> Answer:
        """Return what the cluster wants under *topic_filter*, in at most *octets* bytes. may_widen: False, to save
        time: ANYTHING if the interests do not fit as they are.
        """

    def extended(self, answer: Answer, added: Sequence[Interest], octets: int) -> Answer:
        """Return *answer*, whose covering is not None, with the interests *added*; itself if it covers them."""


@dataclass(slots=True, eq=False)
class SecondaryAdvertisement:
    """The record of an advertisement of another cluster. `answer`: the last answer sent to its host. `additions`: the
    answers since the last one that was made of all interests.
    """

    advertise: Advertise
    host: str
    answer: Answer = NOTHING
    additions: int = 0


class SecondaryAdvertisements:
    """The answers of one gateway to the hosts of its region."""

    def __init__(self, cluster: int, boot: int, interests: ClusterWants, octets: Mapping[int, int]) -> None:
        """boot: grows with every start of the gateway. octets: cluster -> the bytes of an answer to a host in it."""
        self._cluster = cluster
        self._last = boot << 32
        self._interests = interests
        self._octets = octets
        self._records: dict[str, dict[int, SecondaryAdvertisement]] = {}  # by host, by advertisement
        self._index: TopicIndex[SecondaryAdvertisement] = TopicIndex()
        self._unconfirmed: dict[str, list[ClusterBits]] = {}
        self._stale: dict[SecondaryAdvertisement, Instant] = {}  # answered with more than is wanted -> when to correct
        self._widens_at: Instant = 0  # when the next answer may be widened

    def of(self, host: str) -> tuple[Advertise, ...]:
        """Return the advertisements of *host*."""
        return tuple(record.advertise for record in self._records.get(host, {}).values())

    def unconfirmed(self, host: str) -> tuple[ClusterBits, ...]:
        """Return the answers that *host* has not confirmed."""
        return tuple(self._unconfirmed.get(host, ()))

    def last_unconfirmed(self) -> Iterator[tuple[str, int]]:
        """Iterate over the hosts that have not confirmed all answers, each with the number of the last one."""
        return ((host, answers[-1].number) for host, answers in self._unconfirmed.items())

    @property
    def next_due(self) -> Instant | None:
        """The earliest deadline for `clear_stale`."""
        return min(self._stale.values(), default=None)

    def is_wanted(self, adv: int, host: str) -> bool:
        """Return the secondary cluster bit (SCB) last sent to *host*."""
        record = self._records.get(host, {}).get(adv)
        return record is not None and record.answer != NOTHING

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
            record = SecondaryAdvertisement(advertise, host)
            self._records.setdefault(host, {})[advertise.adv] = record
            self._index.add(advertise.topic_filter, record)
            record.answer = self._wanted(record, may_widen=False)
            if not record.answer.is_exact:
                self._stale[record] = self._widens_at
            if record.answer != NOTHING or advertise.wants_answer or is_restated:
                answers.setdefault(record.answer.covering, []).append(advertise.adv)
        return [self._answer(host, advs, covering) for covering, advs in answers.items()]

    def remove(self, host: str, advs: Iterable[int]) -> None:
        """Remove the advertisements *advs* of *host*."""
        for adv in advs:
            self._forget(host, adv)

    def forget(self, host: str) -> None:
        """Remove all advertisements of *host*."""
        self.remove(host, tuple(self._records.get(host, ())))
        self._unconfirmed.pop(host, None)

    def update(
        self, topic_filters: Iterable[TopicFilter], added: Iterable[Interest], is_less: bool, now: Instant
    ) -> list[tuple[str, ClusterBits]]:
        """Correct the answers after interests changed under *topic_filters*: *added* are new, and if *is_less* others
        ended. Return the answers to send at once, by host.

        Answers that only become narrower are sent by `clear_stale`.
        """
        affected = dict.fromkeys(record for one in topic_filters for record in self._index.overlapping(one))
        more: dict[tuple[str, Covering], list[int]] = {}
        known: dict[tuple[Answer, tuple[Interest, ...], int], Answer] = {}
        for record in affected:
            answer = self._updated(record, tuple(added), known)
            if answer is not None and answer != record.answer:
                record.answer = answer
                more.setdefault((record.host, answer.covering), []).append(record.advertise.adv)
            if is_less or not record.answer.is_exact:
                self._stale.setdefault(record, now + CLEAR_DELAY)
            elif record in self._stale and self._is_current(record):
                del self._stale[record]  # who had left is back
        return [(host, self._answer(host, advs, covering)) for (host, covering), advs in more.items()]

    def _updated(
        self,
        record: SecondaryAdvertisement,
        added: tuple[Interest, ...],
        known: dict[tuple[Answer, tuple[Interest, ...], int], Answer],
    ) -> Answer | None:
        """Return the answer to send at once; None: the last one is not too narrow."""
        last = record.answer
        if last.covering is None:
            if record in self._stale:
                return None
            wanted = self._wanted(record, may_widen=False)
            return wanted if wanted.covering else None  # precise interests at once: no client has unsubscribed
        octets = self._octets[record.advertise.hc]
        new = tuple(one for one in added if one.topic_filter.overlaps(record.advertise.topic_filter))
        key = (last, new, octets)
        if key not in known:
            known[key] = self._interests.extended(last, new, octets)
        if known[key] is last:
            return None
        record.additions += 1
        return known[key] if record.additions <= MORE_AT_ONCE_MAX or known[key].is_exact else ANYTHING

    def clear_stale(self, now: Instant) -> list[tuple[str, ClusterBits]]:
        """Return the answers that have been wider than the interests for CLEAR_DELAY, corrected, by host; of many the
        first CLEARED_AT_ONCE, so that others are still due.
        """
        less: dict[tuple[str, Covering], list[int]] = {}
        found: dict[tuple[TopicFilter, int], Answer] = {}
        for record in [*islice((record for record, due in self._stale.items() if due <= now), CLEARED_AT_ONCE)]:
            key = (record.advertise.topic_filter, record.advertise.hc)
            answer = found.get(key)
            if answer is None:
                may_widen = now >= self._widens_at
                answer = self._wanted(record, may_widen)
                if answer == ANYTHING and not may_widen:
                    self._stale[record] = self._widens_at
                    continue
                if not answer.is_exact and may_widen:
                    self._widens_at = now + CLEAR_DELAY
                found[key] = answer
            del self._stale[record]
            record.additions = 0
            last = record.answer
            if answer.covering is None and answer != last:
                continue  # the last one, to which new interests were added, is better than none
            record.answer = answer
            if _interests(last.covering) != _interests(answer.covering):
                less.setdefault((record.host, answer.covering), []).append(record.advertise.adv)
        return [(host, self._answer(host, advs, covering)) for (host, covering), advs in less.items()]

    def exactness(self, host: str) -> tuple[int, int, int]:
        """Return how many of the advertisements of *host* were answered exactly, with more than is wanted, and with
        "anything".
        """
        answers = [record.answer for record in self._records.get(host, {}).values()]
        exact = sum(answer.is_exact and answer.covering is not None for answer in answers)
        anything = sum(answer.covering is None for answer in answers)
        return exact, len(answers) - exact - anything, anything

    def _is_current(self, record: SecondaryAdvertisement) -> bool:
        """Return whether the last answer is all that is wanted, and no more."""
        wanted, last = self._wanted(record, may_widen=False).covering, record.answer.covering
        return wanted == last or _interests(wanted) == _interests(last)

    def _wanted(self, record: SecondaryAdvertisement, may_widen: bool) -> Answer:
        advertise = record.advertise
        return self._interests.wants(advertise.topic_filter, self._octets[advertise.hc], may_widen)

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
        is_set = covering != ()
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


def _interests(covering: Covering) -> frozenset[Interest] | None:
    """Return the interests of *covering* in no order."""
    return None if covering is None else frozenset(covering)
