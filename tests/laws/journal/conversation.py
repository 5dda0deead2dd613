"""Clients of one broker that say anything at any time, and what the broker knows of them when nothing moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

from edgebridge.frontend.admin import RetainedClearError, clear_retained, end_connection, end_session
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.durability import MEMORY, batched
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.journal.page_records import read_page
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.session.session import Session
from edgebridge.wire.dialect import V5, V311
from edgebridge.wire.packets import (
    Connect,
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscriptionOption,
    Unsubscribe,
    Will,
)
from edgebridge.wire.properties import Properties, Property
from edgebroker.instants import Instant
from edgebroker.limits import KIB, MIB
from edgebroker.names import ClientId
from edgebroker.publication import Publication
from edgebroker.storage.journal.options import JournalOptions
from edgebroker.storage.journal.page_files import decode_page, page_name
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.disk import Disk
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import SimulatedStore

TOPICS = ("a/1", "a/2", "b", "c/d")
FILTERS = ("a/#", "a/1", "b", "#", "$share/g/a/#", "$share/g/b", "$share/h/#", "$filter/x>3/a/#")
UNSHARED = tuple(text for text in FILTERS if not text.startswith("$share"))
PAGED_POLICIES = (OverflowPolicy.DROP_NEWEST, OverflowPolicy.DROP_OLDEST, OverflowPolicy.REFUSE)
PAYLOADS = (b"", b'{"x":2}', b'{"x":9}', b"x" * 300)
NAMES = ("one", "two", "batched", "old", "memory")


class Conversation:
    """One broker, its clients, and chance."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        self.simulation = Simulation(seed)
        options = JournalOptions(
            segment_bytes=16 * KIB,
            snapshot_min_bytes=chance.choice((16 * KIB, MIB)),
            bytes_max=64 * MIB,
            page_messages=chance.choice((1, 2, 3, 512)),
        )
        self.frontend_options = FrontendOptions(
            queue_messages_max=chance.choice((5, 1_000)),
            inflight_max=chance.choice((2, 10, 100)),
            queue_full=chance.choice([*OverflowPolicy, *PAGED_POLICIES]),
            durability_by_client=(("memory", MEMORY), ("batched", batched(50))),
        )
        self._filters = chance.choice((FILTERS, UNSHARED))  # what waits for a group is never in a page
        self.store = SimulatedStore(self.simulation, options)
        self.broker = SimulatedBroker(self.simulation, self.frontend_options, store=self.store)
        self._clients = {name: SimulatedClient(name, self.broker) for name in NAMES}
        self._owes: dict[str, deque[PubAck | PubRec | PubRel | PubComp]] = {name: deque() for name in NAMES}
        self._packet_id = 0

    def wait(self, us: int) -> None:
        self.simulation.run_until(self.simulation.now + us)
        for name, client in self._clients.items():
            self._owes[name].extend(self._answers(client))

    def _answers(self, client: SimulatedClient) -> Iterator[PubAck | PubRec | PubRel | PubComp]:
        """What *client* will have to say to what it got."""
        for packet in client.receive():
            refuses = client.dialect is V5 and self.chance.random() < 0.05
            match packet:
                case Publish(qos=1, packet_id=packet_id):
                    yield PubAck(packet_id, 0x80 if refuses else 0)
                case Publish(qos=2, packet_id=packet_id):
                    yield PubRec(packet_id, 0x80 if refuses else 0)
                case PubRec(packet_id, reason) if reason < 0x80:
                    yield PubRel(packet_id)
                case PubRel(packet_id):
                    yield PubComp(packet_id)

    def operate(self) -> None:
        """An operator has something done."""
        chance, now = self.chance, self.simulation.now
        name, topic, lot = ClientId(chance.choice(NAMES)), chance.choice(TOPICS), chance.random()

        def done(frontend: Frontend) -> None:
            session = frontend.connect_handler.sessions.get(name)
            if lot < 0.3:
                with suppress(RetainedClearError):  # a reader's queue is full, and refuses
                    clear_retained(frontend, topic, now)
            elif session is not None and lot < 0.7:
                end_session(frontend, session, now)
            elif session is not None:
                end_connection(frontend, session)

        self.broker.operate(done)

    def act(self) -> None:
        """One thing that one of them does."""
        chance, name = self.chance, self.chance.choice(NAMES)
        client, lot = self._clients[name], self.chance.random()
        if not client.is_connected and chance.random() < 0.6:
            return  # it is away for a while, and its queue becomes long
        if not client.is_connected or lot < 0.02:
            self._connect(client)
        elif lot < 0.40:
            self._publish(client)
        elif lot < 0.85:
            owes = self._owes[name]
            for _ in range(min(len(owes), chance.choice((1, 1, 3, 10)))):
                client.send(owes.popleft() if chance.random() < 0.8 else owes.pop())
        elif lot < 0.93:
            own = {Property.SUBSCRIPTION_IDENTIFIER: [chance.randrange(1, 300)]} if client.dialect is V5 else {}
            texts = chance.sample(self._filters, 2)
            wanted = [SubscriptionOption(text, chance.randrange(3), False, client.dialect is V5) for text in texts]
            client.send(Subscribe(60_000, wanted, own if chance.random() < 0.5 else {}))
        elif lot < 0.95:
            client.send(Unsubscribe(60_001, chance.sample(FILTERS, 2)))
        elif lot < 0.97 or client.dialect is not V5:
            client.cut()
        else:
            client.send(
                Disconnect(chance.choice((0, 4)), {Property.SESSION_EXPIRY_INTERVAL: chance.choice((0, 5, 1_000))})
            )
            self.wait(1_000)
            client.cut()

    def _connect(self, client: SimulatedClient) -> None:
        chance, is_old = self.chance, client.name == "old"
        self._owes[client.name].clear()
        properties: Properties = {}
        later: Properties = {}
        if not is_old:
            properties = {Property.SESSION_EXPIRY_INTERVAL: chance.choice((0, 3, 3_600, 3_600))}
            properties[Property.RECEIVE_MAXIMUM] = chance.choice((1, 3, 50))
            later = {Property.WILL_DELAY_INTERVAL: chance.choice((1, 10, 100))}
        topic, payload = chance.choice(TOPICS), chance.choice(PAYLOADS)
        will = Will(topic, payload, chance.randrange(3), chance.random() < 0.4, later)
        client.send(
            Connect(
                client.name,
                chance.random() < 0.08,
                will=will if chance.random() < 0.4 else None,
                properties=properties,
                dialect=V311 if is_old else V5,
            )
        )

    def _publish(self, client: SimulatedClient) -> None:
        chance = self.chance
        properties: Properties = {}
        if client.dialect is V5 and chance.random() < 0.3:
            properties[Property.MESSAGE_EXPIRY_INTERVAL] = chance.choice((1, 3, 100))
            properties[Property.USER_PROPERTY] = [("k", str(chance.random()))]
        self._packet_id = self._packet_id % 50_000 + 1
        qos, retain = chance.choice((0, 1, 1, 2)), chance.random() < 0.3
        topic, payload = chance.choice(TOPICS), chance.choice(PAYLOADS)
        client.send(Publish(topic, payload, qos, retain, packet_id=self._packet_id * (qos > 0), properties=properties))

    def state_again(self) -> None:
        """A snapshot begins."""
        journal = self.broker.frontend.journal.storage
        assert journal is not None
        journal.request_snapshot()
        self.broker.frontend.recovery.begin_snapshot_if_due(self.simulation.now)


def known(frontend: Frontend, now: Instant, disk: Disk) -> dict[tuple[str, str], Any]:
    """What *frontend* knows at *now* that is to outlive it, in memory or in page files on *disk*."""
    clock, found = frontend.journal.clock_offset, dict[tuple[str, str], Any]()
    for session in frontend.connect_handler.sessions.values():
        if session.number:
            found["session", session.client_id] = {
                "options": (session.number, session.user, session.expiry_s, session.will),
                "gone at": None if session.connection is not None else session.disconnected_at + clock,
                "received": sorted(session.received),
                "asked": session.subscription_records,
                "in flight": [_copy(entry, clock) for entry in session.inflight],
                "waiting": [_copy(entry, clock) for entry in _waiting(frontend, session, disk)],
            }
    for topic in frontend.retained.topics():
        publication = frontend.retained.find(topic)
        if publication is not None and not topic.startswith("$SYS/") and not publication.has_expired(now):
            found["retained", topic] = _said(publication, clock)
    return found


def _waiting(frontend: Frontend, session: Session, disk: Disk) -> Iterator[QueueEntry]:
    """The queue of *session*, wherever its parts are."""
    journal = frontend.journal.storage
    assert journal is not None
    yield from session.outbox.before_pages()
    for page in session.outbox.pages:
        entries = page.entries
        if entries is None:
            content = decode_page(journal.store, page.number, disk.read(page_name(page.number)))
            entries = read_page(content, page.first, page.accepted_at)
        assert len(entries) == page.count
        yield from entries
    yield from session.outbox.behind_pages()


def _copy(entry: QueueEntry, clock: int) -> tuple[Any, ...]:
    own = entry.number, entry.packet_id, entry.qos, entry.retain, entry.released, entry.identifiers, entry.text
    return *own, *_said(entry.publication, clock)


def _said(publication: Publication, clock: int) -> tuple[Any, ...]:
    one = publication
    expires_at = None if one.expires_at is None else one.expires_at + clock
    return (
        one.publisher,
        one.topic,
        one.payload,
        one.qos,
        one.retain,
        one.accepted_at + clock,
        expires_at,
        tuple(one.user or ()),
    )
