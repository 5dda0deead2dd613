"""The options of one bridge, the session it uses at our front end, and the capabilities of the remote broker."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import field
from typing import Final, Protocol

from edgebridge.bridge.rules import BridgeRule
from edgebridge.bridge.shaper import UNSHAPED, ShaperOptions
from edgebridge.session.session import BridgeSyncState
from edgebridge.wire.dialect import V5, Dialect
from edgebridge.wire.packets import ConnAck
from edgebridge.wire.properties import Property, number, user_properties
from edgebridge.wire.user_properties import BRIDGE_PROPERTY, GATEWAY_CHARS_MAX
from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import PACKET_BYTES_MAX, RECEIVE_MAXIMUM

LOCAL_PREFIX: Final = "$bridge/"
"""With its name behind it, the client that a bridge is to our own front end."""
U16_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """The settings of one bridge, as far as the splice is concerned."""

    name: str
    client_id: str
    """Towards the remote."""
    rules: Sequence[BridgeRule]
    dialect: Dialect = V5
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    keep_alive_s: int = 60
    inflight_max: int | None = None
    """Unacknowledged messages towards the remote, if it takes as many; None: see `handshake.window_to`."""
    receive_maximum: int = RECEIVE_MAXIMUM
    """The same towards our own front end."""
    packet_bytes_max: int = PACKET_BYTES_MAX
    """The largest packet that our front end takes."""
    retains: bool = True
    """Whether our front end retains messages."""
    try_private: bool = True
    """Towards 3.1.1: say first that this is a bridge, as Mosquitto's do."""
    retry_max: Duration = 60 * SECOND
    answer_max: Duration = 60 * SECOND
    """So long the remote may leave a message or a subscription unanswered."""
    retained_again: bool = True
    """Whether a remote that is no edgebroker is sent all that is retained with every connection."""
    notification_topic: str = ""
    """Where the remote is told whether the bridge is there, retained: "1" or "0"; empty: nowhere."""
    stands_by: bool = False
    """Whether another gateway's bridge of its pair is active: this one subscribes to nothing, at either end, and
    carries only what waits for it already.
    """
    identity: str = ""
    """Of this gateway, the same in every run."""
    remote_alias: str = ""
    """What to call the remote if it does not say who it is: the same for all bridges to it."""
    sends_origin: bool = True
    """Whether messages carry where they come from."""
    shaper_options: ShaperOptions = UNSHAPED
    """What it may cost."""

    @property
    def local_client_id(self) -> str:
        """Who the bridge is to our own front end."""
        return LOCAL_PREFIX + self.name

    @property
    def announced_topic(self) -> str:
        """Where this bridge tells whether it is there: nowhere while it stands by, for the active one does."""
        return "" if self.stands_by else self.notification_topic

    @property
    def wants_exactly_once(self) -> bool:
        """Whether something goes out at QoS 2."""
        return any(rule.is_out and rule.qos == 2 for rule in self.rules)


class LocalSession(Protocol):
    """What our own front end remembers of the bridge."""

    def is_known(self) -> bool:
        """Whether it has a session."""

    @property
    def sync_state(self) -> BridgeSyncState:
        """How far the remote is synchronised with it."""

    def mark_in_doubt(self, now: Instant) -> None:
        """The remote is about to be asked for the session: if we are killed then, it may have begun another."""

    def clear_doubt(self, now: Instant) -> None:
        """It has refused us, and begun nothing."""

    def is_sending_retained(self) -> bool:
        """Whether something of that still waits to be sent."""

    def watch_retained(self) -> None:
        """From now on note which retained messages are dropped, if the remote has all others."""

    def lost_retained(self) -> Set[str] | None:
        """Topics of retained messages that were dropped since the remote had all; None: it may lack any."""

    def waiting_retained(self) -> Set[str]:
        """Topics of which what is retained waits for the remote, or is on its way to it."""

    def has_outstanding(self) -> bool:
        """Whether something for the remote has not arrived."""

    def begin_retained_sync(self, now: Instant, lost: Set[str] | None = None, only_lost: bool = False) -> None:
        """The remote is to be told all that is retained, once, but for what waits for it already.

        *lost*: the remote had all, but for these topics; those of which nothing is retained any more are cleared there.
        *only_lost*: of the others only what went at QoS 0 is told, which may not have arrived.
        """

    def complete_retained_sync(self, now: Instant) -> None:
        """It has been told."""

    def subscribed(self) -> Sequence[str]:
        """The texts of its subscriptions."""

    def received(self) -> Sequence[int]:
        """Packet identifiers of the QoS 2 messages that it published and did not release."""

    def retransmit_released(self, now: Instant) -> int:
        """The remote forgot that it has messages whose PUBREC came: they are sent again. How many."""

    def oldest(self) -> tuple[int, str, int] | None:
        """Packet identifier, topic and bytes of the message that waits longest for its answer."""

    def can_retain(self, topic: str, size: int) -> bool:
        """Whether there is room for a message of *topic* with *size* bytes among those that are retained."""

    def window(self) -> int:
        """How many messages it may have on their way at once."""

    def unix_us(self, now: Instant) -> int:
        """Microseconds since 1970, as far as the gateway knows."""

    def is_too_old(self, packet_id: int, now: Instant) -> bool:
        """Whether the message that it sent us under this identifier has waited for longer than any may."""

    def free_packet_ids(self, count: int) -> Sequence[int]:
        """Packet identifiers of which no message is on its way, nor will be soon."""


@dataclass(frozen=True, slots=True)
class RemoteCapabilities:
    """What the remote allows, from its CONNACK; version 3.1.1 says nothing and allows everything."""

    dialect: Dialect
    session_present: bool = False
    is_in_doubt: bool = False
    """Whether it may have begun a session for us since it was heard last: then it hides that it lost the one before."""
    receive_maximum: int = U16_MAX
    maximum_qos: int = 2
    retains: bool = True
    packet_bytes_max: int = 0
    """0: any."""
    keep_alive_s: int = 0
    tests_filters: bool = False
    """Whether it tests content filters."""
    has_subscription_identifiers: bool = False
    """Whether it tells by which subscription a message comes."""
    gateway_identity: str = ""
    """Which gateway it is, if it is one."""

    @classmethod
    def of(cls, connack: ConnAck, dialect: Dialect, keep_alive_s: int, is_in_doubt: bool = False) -> RemoteCapabilities:
        """Read the answer to a CONNECT that asked for *keep_alive_s*. *is_in_doubt*: another one had no answer."""
        said = connack.properties
        user = dict(user_properties(said))
        return cls(
            dialect,
            connack.session_present,
            is_in_doubt and connack.session_present,
            number(said, Property.RECEIVE_MAXIMUM, U16_MAX),
            number(said, Property.MAXIMUM_QOS, 2),
            bool(number(said, Property.RETAIN_AVAILABLE, 1)),
            number(said, Property.MAXIMUM_PACKET_SIZE, 0),
            number(said, Property.SERVER_KEEP_ALIVE, keep_alive_s),
            user.get("filter") == "1",
            dialect.has_properties and bool(number(said, Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE, 1)),
            user.get(BRIDGE_PROPERTY, "")[:GATEWAY_CHARS_MAX],
        )
