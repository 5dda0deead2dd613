"""The region of a gateway: the gateways of other clusters at its home position, and what they tell each other of
publishers and of who wants their events [SCOT 2.3 to 2.5].

A gateway advertises to its *mates*, those at its home position. It has a publisher's gateway as *host* in every region
of which it holds a position; where each gateway holds one, mates and hosts are the same.

For a mate with which there is no connection a *deputy* speaks: that gateway of its cluster that is reached over the
fewest others. Each of them knows what all of them want. What the two say goes around, and may get lost on the way; so
what is not confirmed is said again, and what was told is compared now and then.
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
from edgebroker.overlay.digest import digest_of, of_part
from edgebroker.overlay.messages import (
    Advertise,
    ClusterBits,
    ClusterBitsHeld,
    Differ,
    Digest,
    Message,
    Restate,
    Told,
    Unadvertise,
)
from edgebroker.overlay.numbers import Numbers
from edgebroker.overlay.reach import Reach
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
        tell: Callable[[str, Message], list[Send]],
        *,
        lease_s: int,
        wants_answers: bool,
        boot: int,
        numbers: Numbers,
    ) -> None:
        """wants: what the own cluster wants under a topic filter.  tell: how a gateway is told something."""
        self.mates = {cluster: peers[gateway.home] for cluster, peers in gateway.across.items()}
        """Other cluster -> our mate there."""
        self._cluster = gateway.cluster
        self._wants = wants
        self._tell = tell
        self._up: dict[str, int] = {}  # mates with a link that is up -> their cluster
        self._reached: dict[str, None] = {}  # hosts with one, and those for whom we speak as a deputy
        self.deputies: dict[int, str] = {}
        """Other cluster -> who speaks for it as long as our mate there cannot."""
        self._replaced: set[int] = set()  # clusters of whom somebody else than the mate was asked last
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
        return record, self._tell_mates(record.advertise)

    def end(self, records: Collection[Record]) -> list[Send]:
        """End these advertisements."""
        for record in records:
            self.waiting.end(record)
            self.advertisements.close(record)
        return self._tell_mates(Unadvertise(advs_of(records))) if records else []

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
        return [send for host in self._reached for bits in self.answers.unheld(host) for send in self._tell(host, bits)]

    def link_up(self, peer: str, epoch: int) -> list[Send]:
        """The link to *peer* is up: let it see whether it knows our advertisements, and what we last answered.

        If somebody else spoke for its cluster meanwhile it has to say everything anew.
        """
        self._reached[peer] = None
        sends = []
        for cluster, mate in self.mates.items():
            if mate == peer:
                self._up[mate] = cluster
                deputy = self.deputies.pop(cluster, None)
                if cluster not in self._replaced:
                    sends += self._tell(mate, digest_of(Told.ADVERTISEMENTS, epoch, self.told()))
                    continue
                self._replaced.discard(cluster)
                if deputy is not None and deputy != mate and len(self.advertisements):
                    sends += self._tell(deputy, Unadvertise(advs_of(self.advertisements)))
                sends += self._ask(cluster, mate, epoch)
        return [*sends, *(send for bits in self.answers.unheld(peer) for send in self._tell(peer, bits))]

    # -- deputies -------------------------------------------------------------------------------------------------

    def appoint(self, reach: Reach, epoch: int) -> list[Send]:
        """Others may be reached than before: who speaks for the clusters whose mates cannot?

        If nobody of a cluster is reached, what it said last holds, and its events wait.
        """
        sends = []
        for cluster, mate in self.mates.items():
            deputy = self.deputies.get(cluster)
            if not reach.is_lost(mate) or (deputy is not None and reach.is_reached(deputy)):
                continue
            self.deputies.pop(cluster, None)
            nearest = reach.nearest(cluster)
            if nearest is not None:
                self.deputies[cluster] = nearest
                self._replaced.add(cluster)
                sends += self._ask(cluster, nearest, epoch)
        return sends

    def compare(self, epoch: int) -> list[Send]:
        """Let deputies see whether they know our advertisements: on the way there something may have got lost."""
        digest = digest_of(Told.ADVERTISEMENTS, epoch, self.told())
        return [send for deputy in self.deputies.values() for send in self._tell(deputy, digest)]

    def _ask(self, cluster: int, speaker: str, epoch: int) -> list[Send]:
        """Let *speaker* say all that *cluster* wants. Until it has, that may be anything."""
        for record in self.advertisements:
            record.forget(cluster)
        return self._tell(speaker, Restate(Told.ADVERTISEMENTS, 1, 0, epoch, (), tuple(self.told())))

    # -- what others say ------------------------------------------------------------------------------------------

    def link_down(self, peer: str) -> list[Record]:
        """The link is down: return the records whose events need not wait any more."""
        self._up.pop(peer, None)
        self._reached.pop(peer, None)
        return [record for record in self.advertisements if record in self.waiting and not self._waits_for(record)]

    def told(self) -> list[Advertise]:
        """What our mates must know."""
        return [record.advertise for record in self.advertisements]

    def bits(self, bits: ClusterBits, mate: str) -> tuple[list[Record], list[Send]]:
        """A cluster answers: return the records whose events need not wait any more, and the confirmation.

        Who does not speak for it any more is not listened to.
        """
        is_heard = mate == self.deputies.get(bits.cluster, self.mates.get(bits.cluster))
        answered = self.advertisements.answered(bits) if is_heard else []
        ready = [record for record in answered if record in self.waiting and not self._waits_for(record)]
        return ready, self._tell(mate, ClusterBitsHeld(bits.cluster, bits.number))

    def advertised(self, host: str, advertisements: Iterable[Advertise], is_restated: bool = False) -> list[Send]:
        """A host advertises publishers of its own."""
        self._reached[host] = None
        said = self.answers.advertised(host, advertisements, is_restated)
        return [send for bits in said for send in self._tell(host, bits)]

    def restated(self, host: str, restate: Restate) -> list[Send]:
        """What a host advertises in one part is this and nothing else."""
        stays = {advertise.adv for advertise in restate.advertisements}
        gone = [each.adv for each in of_part(restate, self.answers.of(host)) if each.adv not in stays]
        self.answers.unadvertised(host, gone)
        return self.advertised(host, restate.advertisements, True)

    def forget(self, host: str) -> None:
        """Nothing was heard of *host* for too long."""
        self.answers.forget(host)
        self._reached.pop(host, None)

    def _waits_for(self, record: Record) -> int:
        """The clusters that have not answered, though they can."""
        return record.unanswered & civ_of(self._up.values())

    def _to_say(self, said: Iterable[tuple[str, ClusterBits]]) -> list[Send]:
        return [send for host, bits in said if host in self._reached for send in self._tell(host, bits)]

    def _tell_mates(self, message: Message) -> list[Send]:
        return [send for mate in (*self._up, *self.deputies.values()) for send in self._tell(mate, message)]


def is_regional(message: Message) -> bool:
    """Whether hosts and mates say such to each other."""
    match message:
        case Digest(kind) | Differ(kind) | Restate(kind):
            return kind is Told.ADVERTISEMENTS
        case _:
            return isinstance(message, Advertise | Unadvertise | ClusterBits | ClusterBitsHeld)
