"""Options of the front end: those of a listener, the redirect of clients, the limits of MQTT, and the quota.

A world makes these frozen values from the settings. Every connection keeps the listener context that held when it
came.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, Literal

from edgebridge.session.credentials import AuthenticationResult
from edgebridge.session.durability import SYNC, Durability
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.wire.packets import Connect
from edgebridge.wire.properties import Property, number
from edgebridge.wire.reasons import ReasonCode
from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.tokenbucket import Meter

BRIDGE_CLIENT_PREFIX: Final = "$bridge/"
"""Client identifiers that begin so are those of the gateway's own bridges."""
CLIENT_ID_REFUSED: Final = "this client identifier cannot be used here"
"""The same whatever the rule: a client does not learn whether a session has the identifier, or whether its client is
connected."""


@dataclass(frozen=True, slots=True)
class ListenerContext:
    """The terms of one listener. Every connection has those that held when it came."""

    name: str = "local"
    """What people call the listener: its name in the settings, else its address."""
    number: int = 0
    """Which listener of this run; the same as long as its address stays."""
    is_anonymous: bool = True
    """Whether a client may come in that names no user."""
    durability: Durability | None = None
    """What is promised to clients that come in here; None: what the front end's terms say."""
    verdict: AuthenticationResult | None = None
    """Who comes in here, if nobody needs to be asked: a part of this gateway, whose session lasts as long as it
    wishes."""
    has_tls: bool | None = False
    """Whether clients come in with TLS; None: it is not known, because a proxy may have ended it."""
    is_websocket: bool = False


class FrontendHost:
    """What the process around a front end offers to it. These defaults are those of a process that offers nothing."""

    def disk_work_due(self) -> None:
        """Carry out what `SessionJournal.take_work` returns, at once or soon."""

    def file_work_due(self) -> None:
        """Carry out what the store of chunks wants done on the disk (`ChunkStore.take_work`), at once or soon."""

    def unix_us(self) -> int:
        """The wall clock, in microseconds since 1970; 0 where there is none."""
        return 0

    def clock_us(self) -> Instant:
        """The clock that `now` comes from, read again, in microseconds; 0 where there is none."""
        return 0

    def peer_message_failed(self, peer: str, what: object, error: Exception) -> None:
        """A message of *peer* could not be handled, which is a fault of ours. Raises *error* if nobody takes it."""
        raise error

    def gateway_identity(self) -> str:
        """The name by which bridges recognise this gateway; empty: it is not told."""
        return ""

    def facts(self) -> Mapping[str, int]:
        """Counters of the process for `$SYS`, by topic behind `$SYS/broker/`."""
        return {}


NO_HOST: Final = FrontendHost()

LOCAL_LISTENER = ListenerContext()
"""Where nobody said otherwise: a client of the same process."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """What a client proved by TLS, to us or to the proxy in front of us (which we trust to tell the truth)."""

    common_name: str
    alternative_names: tuple[str, ...] = ()
    """As `DNS:pump-3.example`, `URI:urn:dev:1`, `IP:192.0.2.1`, `email:a@example`."""

    @property
    def name(self) -> str:
        """The one name to know the client by: the common name, else the first alternative name without its kind."""
        return self.common_name or (self.alternative_names[0].partition(":")[2] if self.alternative_names else "")


RedirectReason = Literal[ReasonCode.USE_ANOTHER_SERVER, ReasonCode.SERVER_MOVED]


@dataclass(frozen=True, slots=True)
class Redirect:
    """`reason` says whether it is for now or for good; `reference` lists `host` or `host:port`, apart by blanks."""

    reason: RedirectReason
    reference: str

    @property
    def why(self) -> str:
        """In words, for who reads reason strings and not references."""
        lasts = "has moved to" if self.reason == ReasonCode.SERVER_MOVED else "sends its clients for now to"
        return f"this server {lasts} {self.reference}"


@dataclass(frozen=True, slots=True)
class FrontendOptions:
    """The limits of `edgebroker.limits` that concern clients, under the same names, and what MQTT leaves to us."""

    out_bytes_max: int = limits.OUT_BYTES_MAX
    queue_messages_max: int = limits.QUEUE_MESSAGES_MAX
    queue_bytes_max: int = limits.QUEUE_BYTES_MAX
    inflight_max: int = limits.INFLIGHT_MAX
    receive_maximum: int = limits.RECEIVE_MAXIMUM
    topic_alias_maximum: int = limits.TOPIC_ALIAS_MAXIMUM
    packet_bytes_max: int = limits.PACKET_BYTES_MAX
    client_id_bytes_max: int = limits.CLIENT_ID_BYTES_MAX
    topic_levels_max: int = limits.TOPIC_LEVELS_MAX
    connect_timeout_s: int = limits.CONNECT_TIMEOUT_S
    session_expiry_s_max: int = limits.SESSION_EXPIRY_S_MAX
    connections_max: int = limits.CONNECTIONS_MAX
    retained_messages_max: int = limits.RETAINED_MESSAGES_MAX
    retained_bytes_max: int = limits.RETAINED_BYTES_MAX
    keep_alive_s_max: int = 0
    """The longest keep alive of version 5 clients, who are told of another; 0: any, and none at all."""
    response_prefix: str | None = None
    """What clients that ask where to have responses sent are told; `%c` is their identifier."""
    payload_format_checked: bool = False
    """Whether payloads that are said to be UTF-8 are refused if they are not."""
    sys_interval_s: int = 0
    """How often $SYS is written; 0: never."""
    presence: bool = False
    """Whether $SYS tells of each client that comes or goes."""
    sparkplug_rebirth_s: int = 0
    """How often edge nodes of Sparkplug whose aliases are not known are asked to be born again; 0: never."""
    move_refusal_s: int = limits.MOVE_REFUSAL_S
    """How long a client that was sent to another gateway is refused here; 0: not at all."""
    sharing: str = "fair"
    """How a shared subscription chooses: "fair", or "sticky" for one member per publisher and topic."""
    federated_groups: tuple[str, ...] = ()
    """Names of groups, with `*` and `?`, whose members may be at any gateway of the federation."""
    durability: Durability = SYNC
    """What is promised to clients whose listener and name say nothing else."""
    durability_by_client: tuple[tuple[str, Durability], ...] = ()
    """(pattern with `*` and `?` for a client identifier, what is promised); the first that fits counts."""
    queue_full: OverflowPolicy = OverflowPolicy.DROP_NEWEST
    queued_messages_max: int = limits.QUEUED_MESSAGES_MAX
    queued_bytes_max: int | None = limits.QUEUED_BYTES_MAX
    """The same in bytes; None: a quarter of what is free on the disk."""

    def queue_bounds(self, is_durable: bool) -> tuple[int, int]:
        """Return how many messages, and of how many bytes, may wait for a client. What is in memory alone gets less."""
        if is_durable:
            return self.queue_messages_max, self.queue_bytes_max
        return (
            min(self.queue_messages_max, limits.MEMORY_QUEUE_MESSAGES_MAX),
            min(self.queue_bytes_max, limits.MEMORY_QUEUE_BYTES_MAX),
        )

    def expiry_s(self, connect: Connect) -> int:
        """How long a session outlives its connection; version 5 clients ask for it, at most they get what we grant."""
        if not connect.dialect.has_properties:
            return 0 if connect.clean_start else self.session_expiry_s_max
        return min(number(connect.properties, Property.SESSION_EXPIRY_INTERVAL, 0), self.session_expiry_s_max)

    def durability_of(self, client_id: str, listener_context: ListenerContext) -> Durability:
        """What is promised to a client: by its name, else by the door it came in by, else as to all."""
        for pattern, durability in self.durability_by_client:
            if fnmatchcase(client_id, pattern):
                return durability
        return listener_context.durability or self.durability


@dataclass(frozen=True, slots=True)
class Quota:
    """The bounds of section `quota` of the settings, under the same names. 0 is no bound where that is said."""

    connect_bytes_max: int = limits.CONNECT_BYTES_MAX
    connects_per_s: int = limits.CONNECTS_PER_S
    """0: no bound; so many seconds' worth as CONNECTS_BURST_S says may come at once."""
    connects_per_address_per_s: int = limits.CONNECTS_PER_ADDRESS_PER_S
    """0: no bound."""
    publish_messages_per_s: int = 0
    """Per client; 0: no bound."""
    publish_bytes_per_s: int = 0
    """Per client; 0: no bound."""
    filter_tests_max: int = limits.FILTER_TESTS_PER_CLIENT_MAX
    """Elementary tests in all content filters of one client; `session.filterbill` says how they are counted."""
    filter_patterns_max: int = limits.FILTER_PATTERNS_PER_CLIENT_MAX
    """`LIKE` patterns in them that are no plain prefix."""
    filter_attributes_max: int = limits.FILTER_ATTRIBUTES_PER_CLIENT_MAX
    """Different attributes that they ask for."""
    filter_clients_max: int = limits.FILTER_CLIENTS_MAX
    """All clients of one user, or of one address if nobody is asked who he is, have so many times that together."""
    subscriptions_max: int = limits.SUBSCRIPTIONS_PER_CLIENT_MAX
    """Of one client."""
    shared_groups_max: int = limits.SHARED_GROUPS_MAX
    """Groups of shared subscriptions that all clients of one user, or of one address, may make together."""
    sessions_max: int = limits.SESSIONS_MAX
    """Of all clients; half of them of one user, or of one address where no user is named."""
    packet_bytes_per_s_min: int = limits.PACKET_BYTES_PER_S_MIN
    """The least rate of a packet that is not whole, after CONNECT_TIMEOUT_S; 0: no bound."""
    memory_bytes_max: int = limits.MEMORY_BYTES_MAX
    """What input, output, queues and retained messages of all clients may hold together."""

    def meter(self, now: Instant) -> Meter | None:
        """What counts a client's publications; None if it may publish as fast as it likes."""
        if not (self.publish_messages_per_s or self.publish_bytes_per_s):
            return None
        return Meter(self.publish_messages_per_s, self.publish_bytes_per_s, now)


QUOTA = Quota()
"""The default."""
