"""What the broker remembers of a client between its connections (MQTT 5.0 section 4.1)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from edgebridge.session.acl import Acl
from edgebridge.session.authorization import Rights
from edgebridge.session.durability import MEMORY, Durability
from edgebridge.session.inflight import Inflight
from edgebridge.session.queue.outbox import SessionOutbox
from edgebridge.wire.packets import Will
from edgebridge.wire.properties import Properties, user_properties
from edgebroker.instants import Instant
from edgebroker.limits import KIB
from edgebroker.names import ClientId
from edgebroker.publication import Publication

BEHIND_BYTES: Final = 64 * KIB
"""Unacknowledged bytes of a client that keeps up: 1,000 of them hold 64 MiB, a quarter of the memory of all."""
PACKET_OVERHEAD: Final = 26
"""Bytes of a PUBLISH to a member of a group beside topic, payload and forwarded properties, at most: fixed header 5,
topic length 2, packet identifier 2, property length 4, expiry 5, subscription identifier 5, topic alias 3."""
UNSYNCED_TOPICS_MAX: Final = 10_000
"""Topics of dropped retained messages that are known by name; when there are more, all are sent again."""
BRIDGE_SYNC_PROPERTY: Final = "edgebroker-bridge-sync"
"""User property of the CONNECT of a bridge to its own gateway. Its value names the new state of the session."""


class BridgeSyncState(IntEnum):
    """How far the remote broker of a bridge is synchronised with our session. The journal stores the numbers."""

    NOT_CONNECTED = 1
    """The remote has not been connected since the session began: nothing it has belongs to this session."""
    RETAINED_PENDING = 2
    """It knows the session, but has not been sent all retained messages."""
    SYNCHRONISED = 3
    """It knows the session and has been sent all retained messages."""
    IN_DOUBT = 4
    """It was synchronised, and then a CONNECT for the session was sent once more. Its answer has not taken effect yet:
    the remote may have lost the session and begun another."""

    @property
    def has_remote_session(self) -> bool:
        """Whether the remote has a session that belongs to ours."""
        return self is not BridgeSyncState.NOT_CONNECTED

    @property
    def has_sent_retained(self) -> bool:
        """Whether the remote has been sent all messages that were retained here when its session began."""
        return self >= BridgeSyncState.SYNCHRONISED

    @staticmethod
    def of(properties: Properties) -> BridgeSyncState | None:
        """The state in the *properties* of a CONNECT of a bridge; None if there is none."""
        found = dict(user_properties(properties)).get(BRIDGE_SYNC_PROPERTY)
        return None if found is None else BridgeSyncState[found]


class Session:
    """One client's state. `connection` is None while it is away; subscriptions are kept by the node."""

    __slots__ = (
        "account",
        "bridge_sync",
        "claims",
        "client_id",
        "connection",
        "disconnected_at",
        "expiry_s",
        "filter_usage",
        "inflight",
        "last_copy",
        "number",
        "outbox",
        "received",
        "replays",
        "rights",
        "subscribed",
        "subscription_bytes",
        "subscription_records",
        "sync_delay_us",
        "uncleared",
        "unsynced",
        "user",
        "waits_for_sync",
        "will",
        "will_bytes",
    )

    def __init__(self, client_id: ClientId, inflight: Inflight, outbox: SessionOutbox) -> None:
        self.client_id = client_id
        self.account = ""
        """Who answers for it and holds what it takes: the user, or the address that the client came from last
        (`frontend.memory_accounts.account_of`); empty: the gateway, also for an anonymous session from the journal.
        """
        self.connection: Any = None
        self.expiry_s = 0
        """Seconds the session outlives its connection."""
        self.unsynced: set[str] | None = None
        """Topics of retained messages, or of their clearing, that were dropped since the remote of this bridge had all;
        None: nobody notes them.
        """
        self.uncleared: set[str] = set()
        """Topics that the remote of this bridge may still retain, because their clearing was dropped: the journal has
        them too, as after a restart nothing here names them.
        """
        self.bridge_sync: BridgeSyncState | None = None
        """None: the client is no bridge of this gateway."""
        self.inflight = inflight
        self.outbox = outbox
        self.received: set[int] = set()
        """Packet identifiers of QoS 2 messages taken, until PUBREL [MQTT-4.3.3-2]."""
        self.subscribed = 0
        """How many subscriptions the client has."""
        self.subscription_bytes = 0
        """The footprint of these, without their content filters."""
        self.filter_usage: Any = None
        """What its content filters cost (`session.filterbill`); None as long as it never had any."""
        self.replays: Any = None
        """Subscriptions whose retained messages are on their way (`frontend.replaying`)."""
        self.rights: Rights | None = None
        """What the client may do; None: everything."""
        self.claims: Acl | None = None
        """What the client's token allows at most."""
        self.user = ""
        """Who the client proved to be; empty: nobody in particular."""
        self.will: Will | None = None
        """Of the present connection, or waiting for its delay to pass."""
        self.will_bytes = 0
        """The footprint of the last will."""
        self.disconnected_at: Instant = 0
        """When its last connection ended."""
        # -- in the journal
        self.number = 0
        """Its name in the journal; 0 if it is not kept there."""
        self.waits_for_sync = False
        """Answers about it wait for the disk."""
        self.sync_delay_us = 0
        """How long its records may wait for others if nobody waits for them."""
        self.last_copy = 0
        """The number of its last copy that is kept."""
        self.subscription_records: dict[str, bytes] = {}
        """The records of its subscriptions, by their text."""

    def release_filters(self) -> None:
        """Its subscriptions are over: their filters count for nobody any more."""
        if self.filter_usage is not None:
            self.filter_usage.release_all()

    @property
    def durability(self) -> Durability:
        """What is promised about it."""
        return (
            Durability(is_persistent=True, waits_for_sync=self.waits_for_sync, sync_delay_us=self.sync_delay_us)
            if self.number
            else MEMORY
        )

    @property
    def is_connected(self) -> bool:
        """Whether the client is connected and neither side said good-bye."""
        return self.connection is not None and not self.connection.closing

    @property
    def is_behind(self) -> bool:
        """Whether what comes next would wait here: the client is away, or does not take what it has got."""
        return not self.is_connected or len(self.outbox) > 0 or self.inflight.held_bytes > BEHIND_BYTES

    def can_send_now(self) -> bool:
        """Whether what comes next is sent, and waits for nobody."""
        connection, inflight = self.connection, self.inflight
        return (
            connection is not None
            and not self.outbox
            and not inflight.unsent
            and inflight.has_room()
            and connection.out_bytes < connection.out_bytes_max
            and not connection.closing
            and inflight.held_bytes < self.outbox.bytes_max
        )

    @property
    def outstanding(self) -> int:
        """Messages that are for the client and have not reached it: unacknowledged, queued, or unwritten at QoS 0."""
        open_ = len(self.inflight) + len(self.outbox)
        return open_ if self.connection is None else open_ + int(self.connection.out_messages)

    def note_unsynced(self, topic: str) -> bool:
        """Note that the remote of this bridge lacks what is retained under *topic*; whether it had all until now."""
        topics = self.unsynced
        if topics is None:
            return False
        if topic not in topics and len(topics) >= UNSYNCED_TOPICS_MAX:
            self.unsynced = None
        else:
            topics.add(topic)
        was_synchronised = self.bridge_sync is BridgeSyncState.SYNCHRONISED
        if was_synchronised:
            self.bridge_sync = BridgeSyncState.RETAINED_PENDING
        return was_synchronised

    def note_uncleared(self, topic: str) -> bool:
        """Note that the remote of this bridge may still retain a message under *topic*; whether that is new."""
        if self.bridge_sync is BridgeSyncState.NOT_CONNECTED or len(self.uncleared) >= UNSYNCED_TOPICS_MAX:
            return False
        is_new = topic not in self.uncleared
        self.uncleared.add(topic)
        return is_new

    def has_room(self, size: int) -> bool:
        """Whether a message that holds *size* bytes need not wait, or may wait in the queue."""
        return self.outbox.has_room(size) or self.can_send_now()

    def takes(self, publication: Publication) -> bool:
        """Whether the client, if it is connected, takes the packet of *publication*.

        False too if fewer than PACKET_OVERHEAD bytes are left, which is what a packet has beside its content.
        """
        most: int = 0 if self.connection is None else self.connection.packet_bytes_max
        if not most:
            return True
        size = len(publication.payload) + len(publication.topic.encode()) + publication.properties_bytes
        return size + PACKET_OVERHEAD <= most

    def must_refuse(self, size: int) -> bool:
        """Whether who publishes a message that holds *size* bytes is to be told that there is no room."""
        return self.outbox.refuses(size) and not self.can_send_now()
