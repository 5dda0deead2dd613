"""What the front end allows its clients."""

from __future__ import annotations

from fnmatch import fnmatchcase

from edgebridge.frontend.entrance import Entrance
from edgebridge.session.durability import SYNC, Durability
from edgebridge.session.outbox import QueueFull
from edgebridge.wire.packets import Connect
from edgebridge.wire.properties import Property, number
from edgebroker import limits
from edgebroker.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Terms:
    """The limits of `edgebroker.limits` that concern clients, under the same names, and what MQTT leaves to us."""

    out_bytes_max: int = limits.OUT_BYTES_MAX
    queue_messages_max: int = limits.QUEUE_MESSAGES_MAX
    queue_bytes_max: int = limits.QUEUE_BYTES_MAX
    inflight_max: int = limits.INFLIGHT_MAX
    receive_maximum: int = limits.RECEIVE_MAXIMUM
    topic_alias_maximum: int = limits.TOPIC_ALIAS_MAXIMUM
    packet_bytes_max: int = limits.PACKET_BYTES_MAX
    client_id_bytes_max: int = limits.CLIENT_ID_BYTES_MAX
    connect_timeout_s: int = limits.CONNECT_TIMEOUT_S
    session_expiry_s_max: int = limits.SESSION_EXPIRY_S_MAX
    connections_max: int = limits.CONNECTIONS_MAX
    sessions_max: int = limits.SESSIONS_MAX
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
    sharing: str = "fair"
    """How a shared subscription chooses: "fair", or "sticky" for one member per publisher and topic."""
    durability: Durability = SYNC
    """What is promised to clients whose listener and name say nothing else."""
    durability_by_client: tuple[tuple[str, Durability], ...] = ()
    """(pattern with `*` and `?` for a client identifier, what is promised); the first that fits counts."""
    queue_full: QueueFull = QueueFull.DROP_NEWEST
    queued_messages_max: int = limits.QUEUED_MESSAGES_MAX
    queued_bytes_max: int = limits.QUEUED_BYTES_MAX

    def expiry_s(self, connect: Connect) -> int:
        """How long a session outlives its connection; version 5 clients ask for it, at most they get what we grant."""
        if not connect.dialect.has_properties:
            return 0 if connect.clean_start else self.session_expiry_s_max
        return min(number(connect.properties, Property.SESSION_EXPIRY_INTERVAL, 0), self.session_expiry_s_max)

    def durability_of(self, client_id: str, entrance: Entrance) -> Durability:
        """What is promised to a client: by its name, else by the door it came in by, else as to all."""
        for pattern, durability in self.durability_by_client:
            if fnmatchcase(client_id, pattern):
                return durability
        return entrance.durability or self.durability
