"""Gateways of a federation without clients and bytes: the overlay's state machines, joined by links that keep order.

Messages are delivered when somebody says so, in any order that links allow; so every interleaving can be tried.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from edgebroker.federation.effects import (
    AttachHeader,
    DeliverEvent,
    DeliverRetained,
    Effect,
    HoldEvent,
    LookUpRetained,
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
    """An event that came to a gateway's local clients."""

    gateway: str
    forward: Forward
    is_late: bool


class Federation:
    """The gateways of *topology*. Links are down at first."""

    def __init__(self, topology: Topology, ways: FederationOptions = DEFAULT_OPTIONS) -> None:
        self.topology = topology
        self.options = ways
        self.now: Instant = 1
        self.boots = Counter[str]()
        self.peers = {gateway.name: self._started(gateway.name) for gateway in topology.gateways}
        self.links: dict[Pair, deque[Message]] = {}
        """What is under way on each link that is up."""
        self.lossy_links: set[Pair] = set()
        """Links that are up and lose what is sent over them."""
        self.outboxes: dict[Pair, list[Message]] = {}
        """Events for links that are down."""
        self.sent: list[tuple[str, str, Message]] = []
        """All messages: from, to, what."""
        self.local_deliveries: list[LocalDelivery] = []
        self.reorder_buffers: dict[str, dict[tuple[int, int], tuple[Forward, bool]]] = {}
        """What waits at each gateway for others that it may have overtaken."""
        self.retained: dict[str, dict[str, Forward]] = {}
        """What each gateway keeps, by topic."""
        self.retained_replies: list[tuple[str, int, Forward]] = []
        """Gateway, subscription and retained message."""

    # -- what happens --------------------------------------------------------------------------------------------------

    def connect(self, one: str, other: str) -> None:
        """Let the link between two gateways be up."""
        for pair in ((one, other), (other, one)):
            assert pair not in self.links, f"{pair} are connected"
            self.links[pair] = deque()
        for here, there in ((one, other), (other, one)):
            self.links[here, there].extend(self.outboxes.pop((here, there), ()))
            self.perform(here, self.peers[here].link_up(there, self.now))

    def connect_all(self) -> None:
        """Let all links be up."""
        for one, other in self.pairs():
            self.connect(one, other)

    def pairs(self) -> list[Pair]:
        """Every two gateways that are peers, once."""
        return [
            (gateway.name, peer)
            for gateway in self.topology.gateways
            for peer in gateway.peers()
            if gateway.name < peer or gateway.name not in self.topology.gateway(peer).peers()
        ]

    def cut(self, one: str, other: str) -> None:
        """Let the link be down. Events under way are sent again when it is up; all else is lost."""
        for here, there in ((one, other), (other, one)):
            lost = self.links.pop((here, there))
            self.outboxes.setdefault((here, there), []).extend(each for each in lost if event_of(each) is not None)
        for here, there in ((one, other), (other, one)):
            if here in self.peers:
                self.perform(here, self.peers[here].link_down(there, self.now))

    def restart(self, name: str) -> None:
        """Let a gateway forget everything. Its links go down and up again."""
        others = [there for here, there in self.links if here == name]
        for other in others:
            self.cut(name, other)
        self.boots[name] += 1
        self.peers[name] = self._started(name)
        self.perform(name, self.peers[name].resume([*self.reorder_buffers.get(name, {}).values()]))
        for other in others:
            self.connect(name, other)

    def kill(self, name: str) -> None:
        """Let a gateway be dead. What it had for others stays in its outboxes."""
        others = [there for here, there in self.links if here == name]
        del self.peers[name]
        for other in others:
            self.cut(name, other)

    def revive(self, name: str, asked: Mapping[int, str]) -> None:
        """Let it be back, with the sessions that *asked* for something, and its links to all who live."""
        self.boots[name] += 1
        self.peers[name] = self._started(name)
        self.peers[name].start(self.now)
        self.perform(name, self.peers[name].resume([*self.reorder_buffers.get(name, {}).values()]))
        for number, topic_filter in asked.items():
            self.subscribe(name, number, topic_filter)
        for other in self.topology.gateway(name).peers():
            if other in self.peers:
                self.connect(name, other)

    def subscribe(
        self, gateway: str, number: int, topic_filter: str, predicates: Sequence[Predicate] = ANYTHING
    ) -> None:
        """A local client subscribes."""
        effects = self.peers[gateway].subscribed(number, TopicFilter.parse(topic_filter), predicates, self.now)
        self.perform(gateway, effects)

    def unsubscribe(self, gateway: str, number: int) -> None:
        """Its subscription ends."""
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
        """A local client publishes. *may_wait*: until it is known who wants that; a gateway that dies forgets it."""
        expires_at = None if expiry_s is None else self.now + expiry_s * SECOND
        publication = Publication(client, topic, payload, 1, retain, self.now, expires_at=expires_at)
        effects = self.peers[gateway].publish(publication, self.now, may_wait=may_wait)
        for effect in effects:
            if isinstance(effect, AttachHeader):
                kept = Forward(effect.header, topic, payload, 1, True, client)
                self.retained.setdefault(gateway, {})[topic] = kept
        self.perform(gateway, effects)

    def query_retained(self, gateway: str, number: int, topic_filter: str) -> None:
        """A late subscriber asks for retained messages."""
        effects = self.peers[gateway].query_retained(number, TopicFilter.parse(topic_filter), ANYTHING, self.now)
        self.perform(gateway, effects)

    # -- the course of things ------------------------------------------------------------------------------------------

    def deliver(self, pair: Pair) -> None:
        """The next message on a link arrives."""
        here, there = pair
        message = self.links[pair].popleft()
        self.perform(there, self.peers[there].received(here, message, self.now))

    def settle(self, chance: Random | None = None) -> None:
        """Deliver everything that is under way, and what it leads to: link by link, or as *chance* wants it."""
        while busy := [pair for pair, messages in self.links.items() if messages]:
            if chance is not None:
                self.deliver(chance.choice(busy))
                continue
            for pair in busy:
                self.deliver(pair)

    def advance(self, duration: Duration) -> None:
        """Let time pass and everything happen that is due."""
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
        """Do what the gateway wants done."""
        for effect in effects:
            match effect:
                case SendMessage(peer, message):
                    self.send(gateway, peer, message)
                case DeliverEvent():
                    self.deliver_local(gateway, effect)
                case LookUpRetained(request, interest):
                    self._answer(gateway, request, interest)
                case DeliverRetained(number, forward):
                    self.retained_replies.append((gateway, number, forward))
                case HoldEvent(forward, is_entry):
                    self.reorder_buffers.setdefault(gateway, {})[forward.header.eid] = (forward, is_entry)
                case AttachHeader():
                    pass

    def deliver_local(self, gateway: str, hand: DeliverEvent) -> None:
        """An event comes to local clients."""
        self.reorder_buffers.get(gateway, {}).pop(hand.forward.header.eid, None)
        self.local_deliveries.append(LocalDelivery(gateway, hand.forward, hand.is_late))
        if hand.forward.retain and hand.is_entry:
            self.retained.setdefault(gateway, {})[hand.forward.topic] = hand.forward

    def send(self, sender: str, peer: str, message: Message) -> None:
        """A message goes out."""
        self.sent.append((sender, peer, message))
        if (sender, peer) in self.lossy_links:
            return
        if (sender, peer) in self.links:
            self.links[sender, peer].append(message)
        else:
            assert event_of(message) is not None, f"{sender} said {message} to {peer}, whose link is down"
            self.outboxes.setdefault((sender, peer), []).append(message)

    def _answer(self, gateway: str, request: int, interest: Interest) -> None:
        for topic, forward in self.retained.get(gateway, {}).items():
            if interest.topic_filter.matches(topic):
                self.perform(gateway, self.peers[gateway].answer_retained(request, forward, self.now))

    def _started(self, name: str) -> FederationRouter:
        boot = self.boots[name]
        return FederationRouter(self.topology, name, self.options, boot=boot, first=boot * 1_000)
