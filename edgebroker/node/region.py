"""The region of a gateway: the gateways of other clusters at its home position, and what they tell each other of
publishers and of who wants their events [SCOT 2.3 to 2.5].

A gateway advertises to its *mates*, those at its home position. It has a publisher's gateway as *host* in every region
of which it holds a position; where each gateway holds one, mates and hosts are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.node.peereffects import Send
from edgebroker.node.waiting import Waiting
from edgebroker.overlay.advertisements import Advertisements, Record, advs_of
from edgebroker.overlay.answers import Answers, Covering
from edgebroker.overlay.civ import civ_of
from edgebroker.overlay.classes import Service
from edgebroker.overlay.digest import digest_of, of_part
from edgebroker.overlay.messages import (
    Advertise,
    ClusterBits,
    ClusterBitsHeld,
    Message,
    Restate,
    Told,
    Unadvertise,
)
from edgebroker.overlay.numbers import Numbers
from edgebroker.overlay.topology import Gateway
from edgebroker.topics import TopicFilter

RETRY: Final[Duration] = 2 * SECOND
"""After so long what a host has not confirmed is said again. A round trip over a satellite takes 0.7 s."""


class Region:
    """Advertisements of our publishers to mates, answers to hosts."""

    def __init__(
        self,
        gateway: Gateway,
        wants: Callable[[TopicFilter], Covering],
        *,
        lease_s: int,
        wants_answers: bool,
        boot: int,
        numbers: Numbers,
    ) -> None:
        """wants: what the own cluster wants under a topic filter."""
        self.mates = {cluster: peers[gateway.home] for cluster, peers in gateway.across.items()}
        """Other cluster -> our mate there."""
        self._cluster = gateway.cluster
        self._wants = wants
        self._up: dict[str, int] = {}  # mates with a link that is up -> their cluster
        self._reached: dict[str, None] = {}  # hosts with one
        self.advertisements = Advertisements(numbers, gateway.cluster, civ_of(self.mates), lease_s, wants_answers)
        self.answers = Answers(gateway.cluster, boot, wants)
        self.waiting = Waiting()

    @property
    def is_unheld(self) -> bool:
        """Whether some host has not confirmed what it was told."""
        return any(self.answers.unheld(host) for host in self._reached)

    def record(self, client: str, topic: str, now: Instant) -> tuple[Record, list[Send]]:
        """The advertisement under which *client* publishes to *topic*, made if there is none."""
        record = self.advertisements.find(client, topic)
        if record is not None:
            record.used_at = now
            return record, []
        record = self.advertisements.open(client, topic, now)
        if self._wants(record.advertise.topic_filter) != ():
            record.targets |= 1 << self._cluster
        if self._waits_for(record):
            self.waiting.begin(record, now)
        return record, [_said(mate, record.advertise) for mate in self._up]

    def end(self, records: Collection[Record]) -> list[Send]:
        """End these advertisements."""
        for record in records:
            self.waiting.end(record)
            self.advertisements.close(record)
        return [_said(mate, Unadvertise(advs_of(records))) for mate in self._up if records]

    def changed(self, topic_filters: Iterable[TopicFilter], now: Instant) -> list[Send]:
        """The own cluster wants more or less under *topic_filters*."""
        own = 1 << self._cluster
        topic_filters = tuple(topic_filters)
        for record in dict.fromkeys(found for one in topic_filters for found in self.advertisements.meet(one)):
            is_wanted = self._wants(record.advertise.topic_filter) != ()
            record.targets = record.targets | own if is_wanted else record.targets & ~own
        return self._to_say(self.answers.changed(topic_filters, now))

    def tend(self, now: Instant) -> list[Send]:
        """Say that less is wanted where that has been so for a while."""
        return self._to_say(self.answers.clear(now))

    def retry(self) -> list[Send]:
        """Say again what hosts have not confirmed."""
        return [_said(host, bits) for host in self._reached for bits in self.answers.unheld(host)]

    def link_up(self, peer: str, epoch: int) -> list[Send]:
        """The link to *peer* is up: let it see whether it knows our advertisements, and what we last answered."""
        self._reached[peer] = None
        sends = []
        for cluster, mate in self.mates.items():
            if mate == peer:
                self._up[mate] = cluster
                sends.append(_said(mate, digest_of(Told.ADVERTISEMENTS, epoch, self.told())))
        return [*sends, *(_said(peer, bits) for bits in self.answers.unheld(peer))]

    def link_down(self, peer: str) -> list[Record]:
        """The link is down: return the records whose events need not wait any more."""
        self._up.pop(peer, None)
        self._reached.pop(peer, None)
        return [record for record in self.advertisements if record in self.waiting and not self._waits_for(record)]

    def told(self) -> list[Advertise]:
        """What our mates must know."""
        return [record.advertise for record in self.advertisements]

    def bits(self, bits: ClusterBits, mate: str) -> tuple[list[Record], Send]:
        """A cluster answers: return the records whose events need not wait any more, and the confirmation."""
        answered = self.advertisements.answered(bits)
        ready = [record for record in answered if record in self.waiting and not self._waits_for(record)]
        return ready, _said(mate, ClusterBitsHeld(bits.cluster, bits.number))

    def advertised(self, host: str, advertisements: Iterable[Advertise]) -> list[Send]:
        """A host advertises publishers of its own."""
        return [_said(host, bits) for bits in self.answers.advertised(host, advertisements)]

    def restated(self, host: str, restate: Restate) -> list[Send]:
        """What a host advertises in one part is this and nothing else."""
        stays = {advertise.adv for advertise in restate.advertisements}
        gone = [each.adv for each in of_part(restate, self.answers.of(host)) if each.adv not in stays]
        self.answers.unadvertised(host, gone)
        return [_said(host, bits) for bits in self.answers.advertised(host, restate.advertisements, True)]

    def _waits_for(self, record: Record) -> int:
        """The clusters that have not answered, though they can."""
        return record.unanswered & civ_of(self._up.values())

    def _to_say(self, said: Iterable[tuple[str, ClusterBits]]) -> list[Send]:
        return [_said(host, bits) for host, bits in said if host in self._reached]


def _said(peer: str, message: Message) -> Send:
    return Send(peer, message, Service.CONTROL)
