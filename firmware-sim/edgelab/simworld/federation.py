"""Gateways of a federation without clients and bytes: the overlay's state machines, joined by links that keep order.

Messages are delivered on request, in any order that links allow; so every interleaving can be tried.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from edgebroker.federation.bridge_pairs import PAIRS_TOPIC
from edgebroker.federation.effects import (
    AttachHeader,
    DeliverEvent,
    DeliverRetained,
    Effect,
    EmptyOutbox,
    HoldEvent,
    LookUpRetained,
    ReleaseEvent,
    RequestAgain,
    SendMessage,
)
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.federation.router import FederationRouter
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.interest import Interest
from edgebroker.overlay.link.class_queue import event_of
from edgebroker.overlay.messages import Forward, Message
from edgebroker.overlay.topology.topology import Topology
from edgebroker.predicate import Predicate
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter

Pair = tuple[str, str]
"""A link in one direction: from, to."""
ANYTHING: Sequence[Predicate] = ((),)


class LocalDelivery(NamedTuple):
    """An event that arrived at a gateway's local clients."""

    gateway: str
    forward: Forward


class Federation:
    """The gateways of *topology*. Links are down at first."""

    def __init__(self, topology: Topology, options: FederationOptions = DEFAULT_OPTIONS) -> None:
        self.topology = topology
        self.options = options
        self.now: Instant = 1
        self.boots = Counter[str]()
        self.peers = {gateway.name: self._new_router(gateway.name) for gateway in topology.gateways}
        self.links: dict[Pair, deque[Message]] = {}
        """Messages in transit on each link that is up."""
        self.lossy_links: set[Pair] = set()
        """Links that are up and lose every message."""
        self.outboxes: dict[Pair, list[Message]] = {}
        """Queued events for links that are down."""
        self.sent: list[tuple[str, str, Message]] = []
        """All messages: from, to, message."""
        self.local_deliveries: list[LocalDelivery] = []
        self.reorder_buffers: dict[str, dict[tuple[int, int], tuple[Forward, str | None]]] = {}
        """Events that wait at each gateway for others that they may have overtaken, or for answers."""
        self.retained: dict[str, dict[str, Forward]] = {}
        """Retained messages of each gateway, by topic."""
        self.retained_replies: list[tuple[str, int, Forward]] = []
        """Gateway, subscription and retained message."""

    # -- actions -------------------------------------------------------------------------------------------------------

    def connect(self, one: str, other: str) -> None:
        """Bring up the link between two gateways."""
        for pair in ((one, other), (other, one)):
            assert pair not in self.links, f"{pair} are connected"
            self.links[pair] = deque()
        for sender, receiver in ((one, other), (other, one)):
            self.links[sender, receiver].extend(self.outboxes.pop((sender, receiver), ()))
            self.perform(sender, self.peers[sender].link_up(receiver, self.now))

    def connect_all(self) -> None:
        """Bring up all links."""
        for one, other in self.pairs():
            self.connect(one, other)

    def pairs(self) -> list[Pair]:
        """Return every two gateways that are peers, once."""
        return [
            (gateway.name, peer)
            for gateway in self.topology.gateways
            for peer in gateway.peers()
            if gateway.name < peer or gateway.name not in self.topology.gateway(peer).peers()
        ]

    def cut(self, one: str, other: str) -> None:
        """Bring down the link. Events in transit are sent again when it is up; everything else is lost."""
        for sender, receiver in ((one, other), (other, one)):
            lost = self.links.pop((sender, receiver))
            self.outboxes.setdefault((sender, receiver), []).extend(each for each in lost if event_of(each) is not None)
        for sender, receiver in ((one, other), (other, one)):
            if sender in self.peers:
                self.perform(sender, self.peers[sender].link_down(receiver, self.now))

    def restart(self, name: str) -> None:
        """Restart a gateway with an empty state. Its links go down and up again."""
        others = [receiver for sender, receiver in self.links if sender == name]
        for other in others:
            self.cut(name, other)
        self.boots[name] += 1
        self.peers[name] = self._new_router(name)
        self.perform(name, self.peers[name].resume([*self.reorder_buffers.get(name, {}).values()], self.now))
        for other in others:
            self.connect(name, other)

    def kill(self, name: str) -> None:
        """Stop a gateway. Its messages for others stay in its outboxes."""
        others = [receiver for sender, receiver in self.links if sender == name]
        del self.peers[name]
        for other in others:
            self.cut(name, other)

    def revive(self, name: str, subscriptions: Mapping[int, str]) -> None:
        """Start a stopped gateway with the sessions of *subscriptions*, and its links to all running peers."""
        self.boots[name] += 1
        self.peers[name] = self._new_router(name)
        self.peers[name].start(self.now)
        self.perform(name, self.peers[name].resume([*self.reorder_buffers.get(name, {}).values()], self.now))
        for number, topic_filter in subscriptions.items():
            self.subscribe(name, number, topic_filter)
        for other in self.topology.gateway(name).peers():
            if other in self.peers:
                self.connect(name, other)

    def subscribe(
        self, gateway: str, number: int, topic_filter: str, predicates: Sequence[Predicate] = ANYTHING
    ) -> None:
        """Subscribe a local client."""
        effects = self.peers[gateway].subscribed(number, TopicFilter.parse(topic_filter), predicates, self.now)
        self.perform(gateway, effects)

    def unsubscribe(self, gateway: str, number: int) -> None:
        """End a subscription."""
        self.perform(gateway, self.peers[gateway].unsubscribed(number, self.now))

    def publish(
        self,
        gateway: str,
        client: str,
        topic: str,
        payload: bytes = b"",
        retain: bool = False,
        expiry_s: int | None = None,
        may_wait: bool = True,
    ) -> None:
        """Publish as a local client. *may_wait*: there is room for the event to wait for answers."""
        expires_at = None if expiry_s is None else self.now + expiry_s * SECOND
        publication = Publication(client, topic, payload, 1, retain, self.now, expires_at=expires_at)
        effects = self.peers[gateway].publish(publication, self.now, may_wait=may_wait)
        for effect in effects:
            if isinstance(effect, AttachHeader):
                retained = Forward(effect.header, topic, payload, 1, True, client)
                self.retained.setdefault(gateway, {})[topic] = retained
        self.perform(gateway, effects)

    def query_retained(self, gateway: str, number: int, topic_filter: str) -> None:
        """Request retained messages for a late subscriber."""
        effects = self.peers[gateway].query_retained(number, TopicFilter.parse(topic_filter), ANYTHING, self.now)
        self.perform(gateway, effects)

    # -- progress ------------------------------------------------------------------------------------------------------

    def deliver(self, pair: Pair) -> None:
        """Deliver the next message on a link."""
        sender, receiver = pair
        message = self.links[pair].popleft()
        self.perform(receiver, self.peers[receiver].received(sender, message, self.now))

    def settle(self, chance: Random | None = None) -> None:
        """Deliver all messages in transit, and those that follow: link by link, or in an order drawn from *chance*."""
        while busy := [pair for pair, messages in self.links.items() if messages]:
            if chance is not None:
                self.deliver(chance.choice(busy))
                continue
            for pair in busy:
                self.deliver(pair)

    def advance(self, duration: Duration) -> None:
        """Advance the time and fire all timers that are due."""
        end = self.now + duration
        while True:
            dues = [(due, name) for name, peers in self.peers.items() if (due := peers.timers.next_due()) is not None]
            due, name = min(dues, default=(end + 1, ""))
            if due > end:
                break
            self.now = max(self.now, due)
            self.perform(name, self.peers[name].fire(self.now))
            self.settle()
        self.now = end

    def perform(self, gateway: str, effects: Iterable[Effect]) -> None:
        """Execute the effects of a gateway."""
        for effect in effects:
            match effect:
                case SendMessage(peer, message):
                    self.send(gateway, peer, message)
                case DeliverEvent():
                    self.deliver_local(gateway, effect)
                case LookUpRetained(request, interest):
                    self._answer_retained(gateway, request, interest)
                case DeliverRetained(number, forward):
                    self.retained_replies.append((gateway, number, forward))
                case HoldEvent(forward, arrival):
                    self.reorder_buffers.setdefault(gateway, {})[forward.header.eid] = (forward, arrival)
                case ReleaseEvent(eid):
                    self.reorder_buffers.get(gateway, {}).pop(eid, None)
                case RequestAgain(peer):
                    self.perform(gateway, self.peers[gateway].request_again(peer, b"", ()))
                case EmptyOutbox(peer):
                    for message in self.outboxes.pop((gateway, peer), []):
                        self.perform(gateway, self.peers[gateway].forwarder.send_again(message, peer))
                case AttachHeader():
                    pass

    def deliver_local(self, gateway: str, delivery: DeliverEvent) -> None:
        """Deliver an event to local clients."""
        self.reorder_buffers.get(gateway, {}).pop(delivery.forward.header.eid, None)
        self.local_deliveries.append(LocalDelivery(gateway, delivery.forward))
        if delivery.forward.topic == PAIRS_TOPIC:
            self.perform(gateway, self.peers[gateway].receive_pair_event(delivery.forward, self.now))
        if delivery.forward.retain and delivery.is_entry:
            self.retained.setdefault(gateway, {})[delivery.forward.topic] = delivery.forward

    def send(self, sender: str, peer: str, message: Message) -> None:
        """Send a message, or queue it if the link is down."""
        self.sent.append((sender, peer, message))
        if (sender, peer) in self.lossy_links:
            return
        if (sender, peer) in self.links:
            self.links[sender, peer].append(message)
        else:
            assert event_of(message) is not None, f"{sender} said {message} to {peer}, whose link is down"
            self.outboxes.setdefault((sender, peer), []).append(message)

    def _answer_retained(self, gateway: str, request: int, interest: Interest) -> None:
        for topic, forward in self.retained.get(gateway, {}).items():
            if interest.topic_filter.matches(topic):
                self.perform(gateway, self.peers[gateway].answer_retained(request, forward, self.now))

    def _new_router(self, name: str) -> FederationRouter:
        boot = self.boots[name]
        return FederationRouter(self.topology, name, self.options, boot=boot, first=boot * 1_000, is_restarted=boot > 0)
