"""The peers of a gateway: what other gateways say goes in, what they must be told and what local clients get comes out.

It only dispatches; the nouns beside it do the work. Who attaches it to a node, a front end and links keeps these rules:

- **Links.** `link_up` when a connection with a peer is ready for messages, `link_down` when it is lost; in between, the
  messages of a `Send` arrive in order within their class, and `received` gets them. What could not be sent before a
  loss may be sent after it, before anything else. Nothing but events is sent to a peer whose link is down: events for
  it are, and wait in its outbox or are dropped there.
- **Subscriptions.** `subscribed` when the node has granted one, with its number; `unsubscribed` when it has ended. One
  that replaces another with the same text is the end of that and a new one. Topics that begin with `$` stay at home.
- **Events.** `published` for every publication of a local client, wills included, before or after it is delivered to
  local clients. `Hand` is an event from elsewhere for local clients; it may find none, for a gateway on the way is
  handed it too. `is_late`: a later event of the publisher was handed on before; a client that wants the latest value
  only can do without it.
- **Retained messages.** They are kept where they are published, with the header of `Stamped`, and, if `Hand` says
  `is_entry` and the event is to be retained, there. After `subscribed` a new subscription that wants retained messages
  is looked up here and, with `recall`, elsewhere: answers come as `HandRetained`, by and by, none twice, the newest
  last. To `AskRetained` the front end says with `retained` what it has, each message once. While it holds retained
  messages under a topic filter, `keeps_retained` says so: their advertisement then shows others where to ask. Those
  that it had when it started are advertised with `advertise`.
- **Time.** `due` when `timers` say so. `window` every WINDOW of `overlay.congestion` in which a link did or held
  anything, if routing is dynamic.

A gateway's `numbers` begin where its last run cannot have come to (`first`), and `boot` grows with every run: others
remember what it said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, assert_never

from edgebroker.header import Header, host_of
from edgebroker.instants import MILLISECOND, MINUTE, SECOND, Duration, Instant
from edgebroker.interest import Interest
from edgebroker.node.forwarding import Forwarding, aged
from edgebroker.node.interests import Changed, ClusterInterests
from edgebroker.node.peereffects import AskRetained, Effect, Hand, Send, Stamped
from edgebroker.node.recalls import Recalls
from edgebroker.node.region import RETRY, Region
from edgebroker.node.reminders import Reminders
from edgebroker.node.ways import USUAL, Ways
from edgebroker.overlay.advertisements import Record
from edgebroker.overlay.classes import Service
from edgebroker.overlay.congestion import LinkStatus, Queue
from edgebroker.overlay.digest import differ, digest_of, of_part, restated
from edgebroker.overlay.messages import (
    Advertise,
    Announce,
    ClusterBits,
    ClusterBitsHeld,
    Differ,
    Digest,
    Forward,
    Message,
    Recall,
    Recalled,
    Relay,
    Restate,
    Told,
    Unadvertise,
    Unreached,
    Withdraw,
)
from edgebroker.overlay.numbers import Numbers
from edgebroker.overlay.sorting import Sorted, Sorting
from edgebroker.overlay.topology import Topology
from edgebroker.predicate import Predicate
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter

SEQUENCE_MODULUS: Final = 1 << 32
GRACE: Final[Duration] = MINUTE
"""So long a restarted gateway waits for what neighbours want. A link is up again within 30 s, if anybody is there."""
AT_HOME: Final = "$"
"""Topics that begin so are of one gateway only."""


class Peers:
    """The peers of one gateway."""

    def __init__(
        self,
        topology: Topology,
        name: str,
        ways: Ways = USUAL,
        *,
        boot: int = 0,
        first: int = 0,
        keeps_retained: Callable[[TopicFilter], bool] = lambda _: False,
    ) -> None:
        self.gateway = topology.gateway(name)
        self.timers = Reminders()
        self.last = (0, 0)
        """The identity of the last event of a local client."""
        self.unix_offset_ms = 0
        """What must be added to the milliseconds of `now` to get those since 1970."""
        self._ways = ways
        self._keeps_retained = keeps_retained
        self.status = LinkStatus(self.gateway.peers())
        self.interests = ClusterInterests(self.gateway.neighbours, ways.is_precise, ways.is_covering)
        self.numbers = Numbers(self.gateway.number, first)
        self.region = Region(
            self.gateway,
            self.interests.wants,
            lease_s=ways.lease_s,
            wants_answers=ways.wants_answers,
            boot=boot,
            numbers=self.numbers,
        )
        self.forwarding = Forwarding(topology, name, self.interests, self.status, ways.is_dynamic)
        self._sorting = Sorting()
        self._recalls = Recalls(self.numbers)
        across = {peer for region in self.gateway.across.values() for peer in region.values()}
        self._hosts = {topology.gateway(peer).number: peer for peer in across}

    def start(self, now: Instant) -> None:
        """The gateway may have run before, and forgotten what neighbours want: they get all until they say it."""
        self.interests.await_neighbours()
        self.timers.set("grace", now + GRACE)

    # -- links ---------------------------------------------------------------------------------------------------------

    def link_up(self, peer: str, now: Instant) -> list[Effect]:
        """The link to *peer* is ready for messages: both ends find out what the other has not heard."""
        self.status.set_up(peer, True)
        self.timers.cancel(("lease", peer))
        effects: list[Effect] = []
        if peer in self.gateway.neighbours:
            effects.append(_control(peer, digest_of(Told.INTERESTS, self.interests.epoch, self.interests.told(peer))))
        else:
            effects += self.region.link_up(peer, self.interests.epoch)
        self._remind(now)
        return effects

    def link_down(self, peer: str, now: Instant) -> list[Effect]:
        """The link to *peer* is lost. What it told holds until the lease ends."""
        self.status.set_up(peer, False)
        self.timers.set(("lease", peer), now + self._ways.lease_s * SECOND)
        return self._release(self.region.link_down(peer), now)

    def window(self, queues: Mapping[str, Queue]) -> None:
        """A window ended; *queues* of the links that did or held anything."""
        self.status.measure(queues)

    # -- local clients -------------------------------------------------------------------------------------------------

    def subscribed(
        self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], now: Instant
    ) -> list[Effect]:
        """A local client's subscription *number* holds. Raises ValueError: the number is taken."""
        if topic_filter.text.startswith(AT_HOME):
            return []
        return self._changed(self.interests.subscribed(number, topic_filter, predicates), now)

    def unsubscribed(self, number: int, now: Instant) -> list[Effect]:
        """It ended. One that was never given to `subscribed` is not missed."""
        return self._changed(self.interests.unsubscribed(number), now)

    def advertise(self, client: str, topic: str, now: Instant) -> list[Effect]:
        """Let others know that there are events of *client* under *topic*."""
        _, effects = self.region.record(client, topic, now)
        self._remind(now)
        return [*effects]

    def published(
        self, publication: Publication, now: Instant, properties: bytes = b"", may_wait: bool = True
    ) -> list[Effect]:
        """A local client published. *properties*: what its front end wants others to know.

        *may_wait*: while it is not known yet who wants it. Else it goes to every cluster that has not answered: what
        waits is in memory only, and its publisher may be promised more.
        """
        topic = publication.topic
        if topic.startswith(AT_HOME):
            return []
        record, sends = self.region.record(publication.publisher, topic, now)
        effects: list[Effect] = [*sends]
        if sends or record in self.region.waiting:
            self._remind(now)
        publisher = record.publisher
        publisher.sequence = publisher.sequence % (SEQUENCE_MODULUS - 1) + 1
        header = Header(
            publisher.number,
            publisher.sequence,
            record.advertise.adv,
            self.gateway.cluster,
            epoch=self.interests.epoch,
            published_ms=self._unix_ms(now),
        )
        self.last = header.eid
        expires_at = publication.expires_at
        forward = Forward(
            header,
            topic,
            publication.payload,
            publication.qos,
            publication.retain,
            publication.publisher,
            tuple(publication.user),
            publication.content_type,
            properties,
            None if expires_at is None else max(0, expires_at - now) // MILLISECOND,
        )
        if publication.retain:
            effects.append(Stamped(header))
        if record not in self.region.waiting:
            return [*effects, *self.forwarding.publish(forward, record)]
        if self.region.waiting.add(record, forward, now) or not may_wait:
            effects += self._release([record], now)
        return effects

    def recall(
        self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], now: Instant
    ) -> list[Effect]:
        """Ask others for retained messages for subscription *number*."""
        effects: list[Effect] = []
        if topic_filter.text.startswith(AT_HOME):
            return effects
        interests = [Interest(topic_filter, predicate) for predicate in predicates]
        for interest, request in zip(interests, self._recalls.ask(number, len(interests)), strict=True):
            effects += self._ask(Recall(request, interest), None)
        return effects

    def retained(self, request: int, forward: Forward, now: Instant) -> list[Effect]:
        """Answer to AskRetained: one message that is meant.

        A copy of another gateway's message is kept for when that gateway cannot be asked: if it can, it answers itself.
        """
        if self.is_asked(forward.header):
            return []
        return self._recalls.answered(Recalled(request, forward))

    def is_asked(self, header: Header) -> bool:
        """Whether the gateway that published with *header* is another one, and can be asked for what it keeps."""
        host = self._hosts.get(host_of(header.publisher))
        return host is not None and self.status.is_up(host)

    # -- what peers say ------------------------------------------------------------------------------------------------

    def received(self, peer: str, message: Message, now: Instant) -> list[Effect]:
        """*peer* says *message*."""
        match message:
            case Forward():
                return self._forwarded(peer, message, now)
            case Announce(interests):
                return self._changed(self.interests.announced(peer, interests), now)
            case Withdraw(interests):
                return self._changed(self.interests.withdrawn(peer, interests), now)
            case Advertise():
                return self._with_reminder(self.region.advertised(peer, (message,)), now)
            case Unadvertise(advs):
                self.region.answers.unadvertised(peer, advs)
                return []
            case ClusterBits():
                ready, confirmation = self.region.bits(message, peer)
                return [confirmation, *self._release(ready, now)]
            case ClusterBitsHeld(_, number):
                self.region.answers.held(peer, number)
                return []
            case Digest(kind):
                held = self.interests.held(peer) if kind is Told.INTERESTS else self.region.answers.of(peer)
                difference = differ(message, held)
                if difference is not None:
                    return [_control(peer, difference)]
                return self._changed(self.interests.heard(peer), now) if kind is Told.INTERESTS else []
            case Differ(kind):
                told = self.interests.told(peer) if kind is Told.INTERESTS else self.region.told()
                answer: list[Message] = [*restated(message, self.interests.epoch, told)]
                if kind is Told.INTERESTS:  # who began anew learns by a last digest that it knows all
                    answer.append(digest_of(kind, self.interests.epoch, told))
                return [_control(peer, each) for each in answer]
            case Restate():
                return self._restated(peer, message, now)
            case Recall(request, interest):
                if not self._recalls.asked(request, peer):
                    return []
                further = self._ask(message, peer) if peer in self.gateway.neighbours else []
                return [AskRetained(request, interest), *further]
            case Recalled():
                return self._recalls.answered(message)
            case Unreached() | Relay():  # nobody says these yet
                return []
            case _:
                assert_never(message)

    def due(self, now: Instant) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        while (name := self.timers.take_next(now)) is not None:
            match name:
                case "grace":
                    for peer in self.gateway.neighbours:
                        effects += self._changed(self.interests.heard(peer), now)
                case "bits":
                    effects += self.region.tend(now)
                case "retry":
                    effects += self.region.retry()
                case "idle":
                    effects += self._rest(now)
                case "sort":
                    effects += _hands(self._sorting.release(now))
                case "answers":
                    effects += self._release(self.region.waiting.overdue(now), now)
                case ("lease", str(peer)):
                    effects += self._forget(peer, now)
        self._remind(now)
        return effects

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _changed(self, changed: Changed, now: Instant) -> list[Effect]:
        """Interests changed: tell neighbours, then hosts."""
        effects: list[Effect] = []
        for peer, change in changed.told.items():
            if self.status.is_up(peer):
                if change.announce:
                    effects.append(_control(peer, Announce(change.announce, self.interests.epoch)))
                if change.withdraw:
                    effects.append(_control(peer, Withdraw(change.withdraw, self.interests.epoch)))
        if changed.topic_filters:
            effects += self._with_reminder(self.region.changed(changed.topic_filters, now), now)
        return effects

    def _forwarded(self, peer: str, forward: Forward, now: Instant) -> list[Effect]:
        is_ours, sends = self.forwarding.receive(peer, forward)
        if not is_ours:
            return [*sends]
        is_entry = peer not in self.gateway.neighbours
        if not (self._ways.is_dynamic and self._ways.sorts):
            return [Hand(forward, is_entry, False), *sends]
        hands = _hands(self._sorting.take(forward, is_entry, now))
        self._remind(now)
        return [*hands, *sends]

    def _restated(self, peer: str, restate: Restate, now: Instant) -> list[Effect]:
        if restate.kind is Told.ADVERTISEMENTS:
            return self._with_reminder(self.region.restated(peer, restate), now)
        changed = self.interests.announced(peer, restate.interests)
        stays = set(restate.interests)
        gone = [each for each in of_part(restate, self.interests.held(peer)) if each not in stays]
        changed.add(self.interests.withdrawn(peer, gone))
        return self._changed(changed, now)

    def _ask(self, recall: Recall, asker: str | None) -> list[Effect]:
        """Pass a question on in the cluster, and to the hosts in the region that advertise what it means."""
        hosts = self.region.answers.hosts(recall.interest.topic_filter)
        peers = [peer for peer in (*self.gateway.neighbours, *hosts) if peer != asker and self.status.is_up(peer)]
        return [_control(peer, recall) for peer in peers]

    def _release(self, records: Iterable[Record], now: Instant) -> list[Effect]:
        """Let events go that waited for answers."""
        effects: list[Effect] = []
        for record in records:
            for forward, since in self.region.waiting.end(record):
                effects += self.forwarding.publish(aged(forward, since, now), record)
        return effects

    def _rest(self, now: Instant) -> list[Effect]:
        """End the advertisements that are of no use any more."""
        since = now - self._ways.idle_s * SECOND
        return [*self.region.end(self.region.advertisements.idle(since, self._keeps_retained))]

    def _forget(self, peer: str, now: Instant) -> list[Effect]:
        """*peer* has been away for too long."""
        self.region.answers.forget(peer)
        if peer not in self.gateway.neighbours:
            return []
        return self._changed(self.interests.withdrawn(peer, self.interests.held(peer)), now)

    def _with_reminder(self, sends: Sequence[Send], now: Instant) -> list[Effect]:
        self._remind(now)
        return [*sends]

    def _remind(self, now: Instant) -> None:
        """Set the timers for what is open."""
        region = self.region
        self.timers.move("bits", region.answers.next_due)
        self.timers.move("answers", region.waiting.next_due)
        self.timers.move("sort", self._sorting.next_due)
        self.timers.move("retry", self.timers.at("retry", now + RETRY) if region.is_unheld else None)
        self.timers.move("idle", self.timers.at("idle", now + MINUTE) if len(region.advertisements) else None)

    def _unix_ms(self, now: Instant) -> int:
        return now // MILLISECOND + self.unix_offset_ms


def _hands(found: Iterable[Sorted]) -> list[Effect]:
    return [Hand(*each) for each in found]


def _control(peer: str, message: Message) -> Send:
    return Send(peer, message, Service.CONTROL)
