"""The peers of a gateway: what other gateways say goes in, what they must be told and what local clients get comes out.

It only dispatches; the nouns beside it do the work. Who attaches it to a node, a front end and links keeps these rules:

- **Links.** `link_up` when a connection with a peer is ready for messages, `link_down` when it is lost; in between, the
  messages of a `Send` arrive in order within their class, and `received` gets them. What could not be sent before a
  loss may be sent after it, before anything else. Nothing but events, some of them inside a `Relay`, is sent to a peer
  whose link is down: events for it are, and wait in its outbox or are dropped there.
- **Subscriptions.** `subscribed` when the node has granted one, with its number; `unsubscribed` when it has ended. One
  that replaces another with the same text is the end of that and a new one. Topics that begin with `$` stay at home.
- **Events.** `published` for every publication of a local client, wills included, before or after it is delivered to
  local clients. `Hand` is an event from elsewhere for local clients; it may find none, for a gateway on the way is
  handed it too. `is_late`: a later event of the publisher was handed on before; a client that wants the latest value
  only can do without it. `Hold` is an event that is handed on later; whoever is killed meanwhile gives it to `resume`.
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

from edgebroker.header import Header
from edgebroker.instants import MILLISECOND, MINUTE, NEVER, SECOND, Instant
from edgebroker.interest import Interest
from edgebroker.node.around import AWAY_AFTER, MEETING
from edgebroker.node.forwarding import Forwarding, aged, forward_of
from edgebroker.node.neighbourhood import GRACE, Neighbourhood
from edgebroker.node.peereffects import Effect, Hand, Hold, Send, Stamped
from edgebroker.node.recalls import Recalls
from edgebroker.node.region import RETRY, Region, is_regional
from edgebroker.node.reminders import Reminders
from edgebroker.node.ways import USUAL, Ways
from edgebroker.overlay.advertisements import Record
from edgebroker.overlay.classes import Service
from edgebroker.overlay.congestion import LinkStatus, Queue
from edgebroker.overlay.digest import differ, restated
from edgebroker.overlay.messages import (
    Advertise,
    Announce,
    ClusterBits,
    ClusterBitsHeld,
    Crowded,
    Differ,
    Digest,
    Forward,
    Message,
    Recall,
    Recalled,
    Relay,
    Restate,
    Series,
    Told,
    Unadvertise,
    Unreached,
    Withdraw,
)
from edgebroker.overlay.numbers import Numbers
from edgebroker.overlay.sorting import Sorting
from edgebroker.overlay.topology import Topology
from edgebroker.predicate import Predicate
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter

SEQUENCE_MODULUS: Final = 1 << 32
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
        self.neighbourhood = Neighbourhood(topology, self.gateway, ways, self.status, boot)
        self.interests = self.neighbourhood.interests
        self.numbers = Numbers(self.gateway.number, first, boot)
        self.region = Region(
            self.gateway,
            self.interests.wants,
            self.neighbourhood.tell,
            lease_s=ways.lease_s,
            wants_answers=ways.wants_answers,
            boot=boot,
            numbers=self.numbers,
        )
        self.forwarding = Forwarding(topology, name, self.neighbourhood, self.status, ways.is_dynamic)
        self.sorting = Sorting()
        self.recalls = Recalls(topology, self.gateway, self.numbers, self.neighbourhood, self.region.answers)

    def start(self, now: Instant, known: Mapping[str, Iterable[Interest]] | None = None) -> None:
        """The gateway may have run before: neighbours get all until they say what they want now.

        *known*: what an earlier run knew of that. It holds for those who say nothing.
        """
        self.neighbourhood.remember(known or {})
        self.interests.await_neighbours()
        self.timers.set("grace", now + GRACE)
        for peer in self.gateway.peers():
            self.timers.set(("away", peer), now + MEETING)
            self.timers.set(("lease", peer), now + self._ways.lease_s * SECOND)

    def resume(self, held: Iterable[tuple[Forward, bool]]) -> list[Effect]:
        """An earlier run held these events, each with whether it entered the cluster here: nobody waits any more."""
        return [Hand(*each, False, True) for each in sorted(held, key=lambda each: each[0].header.eid)]

    def let_go(self, now: Instant) -> list[Effect]:
        """No event waits any longer, neither for others that it may have overtaken nor for answers."""
        sorted_out: list[Effect] = [Hand(*each) for each in self.sorting.release(NEVER)]
        return [*sorted_out, *self._release(self.region.waiting.overdue(NEVER), now)]

    # -- links ---------------------------------------------------------------------------------------------------------

    def link_up(self, peer: str, now: Instant) -> list[Effect]:
        """The link to *peer* is ready for messages: both ends find out what the other has not heard."""
        self.status.set_up(peer, True)
        self.timers.cancel(("lease", peer))
        self.timers.cancel(("away", peer))
        sends = self.neighbourhood.link_up(peer)
        if peer not in self.gateway.neighbours:
            sends += self.region.link_up(peer, self.interests.epoch)
        return self._spread(sends, now)

    def link_down(self, peer: str, now: Instant) -> list[Effect]:
        """The link to *peer* is lost. What it told holds until the lease ends."""
        self.status.set_up(peer, False)
        self.timers.set(("lease", peer), now + self._ways.lease_s * SECOND)
        self.timers.set(("away", peer), now + AWAY_AFTER)
        self.neighbourhood.link_down(peer)
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
        changed = self.interests.subscribed(number, topic_filter, predicates)
        return self._spread(self.neighbourhood.changed(changed), now)

    def unsubscribed(self, number: int, now: Instant) -> list[Effect]:
        """It ended. One that was never given to `subscribed` is not missed."""
        return self._spread(self.neighbourhood.changed(self.interests.unsubscribed(number)), now)

    def advertise(self, client: str, topic: str, now: Instant) -> list[Effect]:
        """Let others know that there are events of *client* under *topic*."""
        _, effects = self.region.record(client, topic, now)
        self._remind(now)
        return [*effects]

    def published(
        self,
        publication: Publication,
        now: Instant,
        properties: bytes = b"",
        may_wait: bool = True,
        old: Header | None = None,
    ) -> list[Effect]:
        """A local client published. *properties*: what its front end wants others to know.

        *may_wait*: while it is not known yet who wants it. Else it goes to every cluster that has not answered: what
        waits is in memory only, and its publisher may be promised more. *old*: that of the message it replaces.
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
        eid, ms = (publisher.number, publisher.sequence), self._unix_ms(now)
        if old is not None:
            ms = old.followed_ms(eid, ms)
        header = Header(*eid, record.advertise.adv, self.gateway.cluster, epoch=self.interests.epoch, published_ms=ms)
        self.last = header.eid
        forward = forward_of(publication, header, properties, now)
        if publication.retain:
            effects.append(Stamped(header))
        if record not in self.region.waiting:
            return [*effects, *self.forwarding.publish(forward, record)]
        if self.region.waiting.add(record, forward, now) or not may_wait:
            effects += self._release([record], now)
        return effects

    def bound_for(self, publication: Publication) -> set[str]:
        """The peers to whom copies of *publication* would leave now."""
        record = self.region.advertisements.find(publication.publisher, publication.topic)
        header = Header(0, 0, 0 if record is None else record.advertise.adv, self.gateway.cluster)
        forward = forward_of(publication, header, b"", publication.accepted_at)
        return {send.peer for send in self.forwarding.ways(forward, record)}

    def recall(
        self, number: int, topic_filter: TopicFilter, predicates: Sequence[Predicate], now: Instant
    ) -> list[Effect]:
        """Ask others for retained messages for subscription *number*."""
        if topic_filter.text.startswith(AT_HOME):
            return []
        return self.recalls.ask(number, [Interest(topic_filter, predicate) for predicate in predicates])

    def retained(self, request: int, forward: Forward, now: Instant) -> list[Effect]:
        """Answer to AskRetained: one message that is meant."""
        return self.recalls.answer(request, forward)

    def is_asked(self, header: Header) -> bool:
        """Whether the gateway that published with *header* is another one, and can be asked for what it keeps."""
        return self.recalls.is_asked(header)

    # -- what peers say ------------------------------------------------------------------------------------------------

    def received(self, peer: str, message: Message, now: Instant) -> list[Effect]:
        """*peer* says *message*."""
        match message:
            case Forward():
                return self._forwarded(peer, message, now)
            case Series():
                return [each for event in message.events() for each in self._forwarded(peer, event, now)]
            case Announce() | Withdraw():
                return self._spread(self.neighbourhood.received(peer, message), now)
            case Digest(kind) | Differ(kind) | Restate(kind) if kind is Told.INTERESTS:
                return self._spread(self.neighbourhood.received(peer, message), now)
            case Advertise():
                return self._with_reminder(self.region.advertised(peer, (message,)), now)
            case Unadvertise(advs):
                self.region.answers.unadvertised(peer, advs)
                return []
            case ClusterBits():
                ready, confirmation = self.region.bits(message, peer)
                return [*confirmation, *self._release(ready, now)]
            case ClusterBitsHeld(_, number):
                self.region.answers.held(peer, number)
                return []
            case Digest():
                difference = differ(message, self.region.answers.of(peer))
                return [] if difference is None else [*self.neighbourhood.tell(peer, difference)]
            case Differ():
                parts = restated(message, self.interests.epoch, self.region.told())
                return [send for each in parts for send in self.neighbourhood.tell(peer, each)]
            case Restate():
                return self._with_reminder(self.region.restated(peer, message), now)
            case Recall():
                return self.recalls.asked(peer, message)
            case Recalled():
                return self.recalls.answered(message)
            case Unreached() | Crowded():
                return self._spread(self.neighbourhood.passed_on(peer, message), now)
            case Relay():
                return self._relayed(message, now)
            case _:
                assert_never(message)

    def due(self, now: Instant) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        while (name := self.timers.take_next(now)) is not None:
            match name:
                case "grace":
                    effects += self._spread(self.neighbourhood.end_grace(), now)
                case "bits":
                    effects += self.region.tend(now)
                case "retry":
                    effects += self.region.retry()
                case "idle":
                    effects += self._rest(now)
                case "sort":
                    effects += [Hand(*each) for each in self.sorting.release(now)]
                case "answers":
                    effects += self._release(self.region.waiting.overdue(now), now)
                case "compare":
                    effects += self._spread(self.neighbourhood.compare(), now)
                    effects += self.region.compare(self.interests.epoch)
                case ("away", str(peer)):
                    effects += self._spread(self.neighbourhood.leave(peer), now)
                case ("lease", str(peer)):
                    effects += self._forget(peer, now)
        self._remind(now)
        return effects

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _spread(self, sends: Sequence[Send], now: Instant) -> list[Effect]:
        """Interests may have changed: neighbours are told with *sends*, then hosts are."""
        effects: list[Effect] = [*self.neighbourhood.take_news(), *sends]
        effects += self.region.appoint(self.neighbourhood.reach, self.interests.epoch)
        filters = self.neighbourhood.take_filters()
        if filters:
            effects += self.region.changed(filters, now)
        self._remind(now)
        return effects

    def _relayed(self, relay: Relay, now: Instant) -> list[Effect]:
        """Something that goes around who is away."""
        reach, message = self.neighbourhood.reach, relay.message
        origin = reach.name_of(relay.origin)
        if relay.destination != self.gateway.number or origin is None:
            service = Service.LIVE if isinstance(message, Forward | Recalled) else Service.CONTROL
            return [*self.neighbourhood.around.pass_on(relay, service)]
        if isinstance(message, Forward):
            if not relay.is_alone:
                return self._forwarded(origin, message, now)
            return self._handed(message, False, now) if self.forwarding.receive_alone(message) else []
        if origin not in self.interests and is_regional(message):  # of a host, or of who speaks for a mate
            if not self.neighbourhood.is_up(origin):
                self.timers.set(("lease", origin), now + self._ways.lease_s * SECOND)
        elif not self.neighbourhood.knows(origin):  # it will say so again when it is
            return []
        return [*self._spread(self.neighbourhood.heard_of(origin), now), *self.received(origin, message, now)]

    def _forwarded(self, peer: str, forward: Forward, now: Instant) -> list[Effect]:
        is_ours, sends = self.forwarding.receive(peer, forward)
        if not is_ours:
            return [*sends]
        return [*self._handed(forward, peer not in self.interests, now), *sends]

    def _handed(self, forward: Forward, is_entry: bool, now: Instant) -> list[Effect]:
        """An event for local clients."""
        if not (self._ways.sorts and self.sorting.concerns(forward)):
            return [Hand(forward, is_entry, False)]
        sorted_out = self.sorting.take(forward, is_entry, now)
        self._remind(now)
        is_held = forward.qos and all(each.forward is not forward for each in sorted_out)
        return [*([Hold(forward, is_entry)] if is_held else ()), *(Hand(*each) for each in sorted_out)]

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
        if peer in self.neighbourhood.around.severed:  # it talks with us over others
            self.timers.set(("lease", peer), now + self._ways.lease_s * SECOND)
            return []
        self.region.forget(peer)
        if peer not in self.gateway.neighbours:
            return []
        gone = self.interests.withdrawn(peer, self.interests.held(peer))
        return self._spread(self.neighbourhood.changed(gone), now)

    def _with_reminder(self, sends: Sequence[Send], now: Instant) -> list[Effect]:
        self._remind(now)
        return [*sends]

    def _remind(self, now: Instant) -> None:
        """Set the timers for what is open."""
        region = self.region
        self.timers.move("bits", region.answers.next_due)
        self.timers.move("answers", region.waiting.next_due)
        self.timers.move("sort", self.sorting.next_due)
        self.timers.move("retry", self.timers.at("retry", now + RETRY) if region.is_unheld else None)
        pause = self.neighbourhood.take_pause()
        if pause is not None:
            is_used = self.neighbourhood.around.is_used or region.deputies
            self.timers.move("compare", now + pause if is_used else None)
        self.timers.move("idle", self.timers.at("idle", now + MINUTE) if len(region.advertisements) else None)

    def _unix_ms(self, now: Instant) -> int:
        return now // MILLISECOND + self.unix_offset_ms
