"""Subscribes to a broker and records the received messages until it is stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

from edgebridge.wire.packets import Publish, SubscriptionOption
from edgebridge.wire.properties import Property
from edgebroker.errors import TopicInvalid
from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.limits import MIB
from edgebroker.topics import TopicFilter
from edgedevices import BrokerUnreachable, InputInvalid
from edgedevices.broker import BrokerAddress, BrokerCredentials
from edgedevices.ledger import MessageLedger
from edgedevices.modem import Modem
from edgedevices.run import DeviceRun
from edgedevices.session import DeviceDialect, DeviceIdentity, DeviceSession
from edgedevices.sockets import SocketWorld
from edgedevices.station import SilentSource, Station, StationParts
from edgedevices.traffic.recording import RecordedMessage, RecordWriter, encode_properties, now_us

KEEP_ALIVE: Final = 30 * SECOND
SESSION_EXPIRY_S: Final = 300  # MQTT 5: how long the broker keeps our session while a connection is lost
# more than MQTT permits: a message too large for a recording is counted, not refused
PACKET_BYTES_MAX: Final = 257 * MIB
FLUSH_INTERVAL: Final = 10 * SECOND  # a recorder that is killed loses no more than that, however slow the traffic is
SUBACK_TIMEOUT: Final = 10 * SECOND  # from CONNACK to SUBACK
CLIENTS_COUNTED_MAX: Final = 10_000  # names of clients counted for the summary
GAPS_KEPT_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to record, and when to stop (None: never).

    client_level: the topic level, from 1, that names the publisher. client_property: the user property that does.
    """

    topics: Sequence[str] = ("#",)
    qos: int = 2
    client_level: int | None = None
    client_property: str | None = None
    skips_retained: bool = False
    """Leaves out retained messages at the begin (in MQTT 5 they are not even sent)."""
    seconds: float | None = None
    messages: int | None = None


@dataclass(frozen=True, slots=True)
class RecordGap:
    """A time without a connection. at_us: from the beginning. kept: whether the broker still had our session."""

    at_us: Duration
    length_us: Duration
    reason: str
    kept: bool


class Recorder:
    """One subscription at a broker, over as many connections as needed, recorded in one file or several.

    MQTT does not tell a subscriber who published; see `RecordOptions.client_level` and `RecordOptions.client_property`.
    It is the `RunConductor` of its own run.
    """

    def __init__(
        self,
        address: BrokerAddress,
        dialect: DeviceDialect,
        access: BrokerCredentials,
        options: RecordOptions,
        path: Path,
        print_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        """*print_line* is called with a line for people whenever a connection begins or ends. Raises InputInvalid."""
        self._print_line = print_line
        self._address, self._dialect, self._access, self._options, self._path = address, dialect, access, options, path
        for topic in options.topics:
            try:
                TopicFilter.parse(topic)
            except TopicInvalid as error:
                raise InputInvalid(f"--topic: {error}") from error
        self._ledger = MessageLedger()
        self._session, self.station = self._make_station()
        self._writer = RecordWriter(path, str(address))
        self.files = [path]
        """Every file written; the next one begins when the index of the last is full."""
        self._file_bytes = 0
        self._is_done = False  # a limit is reached, or the disk is full
        self._error: Exception | None = None
        self._began_at: Instant = 0
        self._flush_at: Instant = 0
        self._suback_deadline: Instant | None = None
        self._lost: tuple[Instant, str] | None = None
        self.messages = Counter[int]()
        """Recorded messages, per QoS."""
        self.retained = 0
        self.payload_bytes = 0
        self.too_large = 0
        """Received messages that were not recorded."""
        self.connections = 0
        """How often recording began."""
        self.gaps: list[RecordGap] = []
        """The first times without a connection. Messages may be missing in each."""
        self.away_us: Duration = 0
        """Their total duration."""
        self._clients: set[str] = set()

    def live(self) -> dict[str, Any]:
        """Records until interrupted or at a limit. Returns the summary, for `--json`.

        Raises BrokerUnreachable if there never was a connection, InputInvalid if a topic is refused, OSError if the
        disk is full. The file is completed in every case.
        """
        run = DeviceRun([self.station], self._ledger, 0, conductor=self)
        endpoint = self._address.endpoint()
        try:
            SocketWorld(run, lambda station: endpoint, lambda seconds: None, self._access.tls).live()
        finally:
            self.close()
            if not self.connections:
                self._path.unlink(missing_ok=True)  # a file without any message is of no use
        if self._error is not None:
            raise self._error
        if self._session.refused_filter:
            raise InputInvalid(f"{self._address} refuses {self._session.refused_filter}")
        if not self.connections:
            reason = "interrupted" if run.interrupted else self.station.modem.last_refusal
            raise BrokerUnreachable(f"no connection to {self._address}: {reason}")
        return {
            "broker": str(self._address),
            "topics": list(self._options.topics),
            "files": [str(path) for path in self.files],
            "file_bytes": self._file_bytes,
            "seconds": run.seconds,
            "interrupted": run.interrupted,
            "messages": self.messages.total(),
            "qos": {str(qos): number for qos, number in sorted(self.messages.items())},
            "retained": self.retained,
            "clients": len(self._clients),
            "payload_bytes": self.payload_bytes,
            "too_large": self.too_large,
            "connections": self.connections,
            "losses": dict(sorted(self._ledger.losses.items())),
            "away_s": round(self.away_us / SECOND, 3),
            "gaps": [
                {
                    "at_s": round(gap.at_us / SECOND, 3),
                    "seconds": round(gap.length_us / SECOND, 3),
                    "reason": gap.reason,
                    "session_kept": gap.kept,
                }
                for gap in self.gaps
            ],
        }

    def close(self) -> None:
        """Completes the file. Raises OSError."""
        self._writer.close()
        self._file_bytes += self._writer.bytes

    # -- as a `RunConductor` ------------------------------------------------------------------------------------

    @property
    def due(self) -> Instant | None:
        """See `RunConductor`."""
        dues = (self._flush_at, self._ends_at, self._suback_deadline)
        return min(at for at in dues if at is not None)

    @property
    def has_ended(self) -> bool:
        """See `RunConductor`."""
        never = not self.connections and self._session.is_denied
        return self._is_done or never or bool(self._session.refused_filter)

    def begin(self, now: Instant) -> None:
        """See `RunConductor`."""
        self._began_at, self._flush_at = now, now + FLUSH_INTERVAL

    def wake(self, now: Instant) -> Iterable[Station]:
        """See `RunConductor`."""
        if self._ends_at is not None and now >= self._ends_at:
            self._is_done = True
        if self._suback_deadline is not None and now >= self._suback_deadline:
            self._suback_deadline = None
            self.station.modem.cut(f"no SUBACK in {SUBACK_TIMEOUT // SECOND} s", now)
        if now >= self._flush_at:
            self._flush_at = now + FLUSH_INTERVAL
            try:
                self._writer.flush()
            except OSError as error:
                self._fail(error)
        return (self.station,)

    @property
    def _ends_at(self) -> Instant | None:
        seconds = self._options.seconds
        return None if seconds is None or self._is_done else self._began_at + round(seconds * SECOND)

    # -- the connection -----------------------------------------------------------------------------------------

    def _make_station(self) -> tuple[DeviceSession, Station]:
        name = f"record-{uuid4().hex[:12]}"
        # A 3.1.1 session would outlive a recorder that is killed, and collect messages for ever.
        lasts = self._dialect is DeviceDialect.V5
        identity = DeviceIdentity(name, self._dialect, lasts=lasts, keep_alive_us=KEEP_ALIVE, expiry_s=SESSION_EXPIRY_S)
        session = DeviceSession(identity, self._ledger, packet_bytes_max=PACKET_BYTES_MAX)
        session.credentials = self._access
        session.subscriptions = self._subscriptions(first=True)
        session.subscribed_handler = self._on_subscribed
        modem = Modem(session, self._ledger, Random(name))
        modem.state_handler = self._on_state
        station = Station(SilentSource(), modem, StationParts(), Random(name))
        session.publish_handler = self.on_publish
        return session, station

    def _subscriptions(self, first: bool) -> list[SubscriptionOption]:
        options = self._options
        handling = 2 if options.skips_retained or not first else 0  # retained messages are recorded once
        return [
            SubscriptionOption(topic, options.qos, retain_as_published=True, retain_handling=handling)
            for topic in options.topics
        ]

    def _on_state(self, reason: str, now: Instant) -> None:
        """Handles the begin of a connection (no reason), or its end."""
        self._suback_deadline = None
        if reason and self._session.is_subscribed and not self._is_done:
            self._lost = now, reason
            self._print_line(f"{reason}; dialling again")
        elif not reason and self._session.is_subscribed:
            self._begin_recording(now)
        elif not reason:
            self._suback_deadline = now + SUBACK_TIMEOUT

    def _on_subscribed(self) -> None:
        self._suback_deadline = None
        self._session.subscriptions = self._subscriptions(first=False)
        self._begin_recording(now_us())

    def _begin_recording(self, now: Instant) -> None:
        self.connections += 1
        if self._lost is None:
            self._print_line(f"recording {', '.join(self._options.topics)} from {self._address} in {self._writer.path}")
            return
        (lost_at, reason), self._lost = self._lost, None
        gap = RecordGap(lost_at - self._began_at, now - lost_at, reason, self._session.is_resumed)
        self.away_us += gap.length_us
        if len(self.gaps) < GAPS_KEPT_MAX:
            self.gaps.append(gap)
        self._print_line(f"recording again after {gap.length_us / SECOND:.1f} s; {gap_text(gap.kept)}")

    @property
    def _is_reconnected(self) -> bool:
        """Whether this is not the first connection."""
        return self._lost is not None or self.connections > 1

    # -- received messages --------------------------------------------------------------------------------------

    def on_publish(self, publish: Publish) -> None:
        """Records *publish*. An error of the disk ends the run; `live` raises it."""
        options = self._options
        if self._is_done:
            return
        if publish.retain and self._dialect is DeviceDialect.V311 and (options.skips_retained or self._is_reconnected):
            return  # 3.1.1 sets RETAIN only in messages for a new subscription; these are recorded once
        name = self._publisher(publish)
        properties = encode_properties(publish.properties)
        message = RecordedMessage(
            now_us(), name, publish.topic, publish.qos, publish.retain, publish.payload, properties
        )
        try:
            if not self._writer.add(message):
                self.too_large += 1
                return
            if self._writer.is_full:
                self._next_file()
        except Exception as error:
            self._fail(error)
            return
        self.messages[publish.qos] += 1
        self.retained += publish.retain
        self.payload_bytes += len(message.payload)
        if name and len(self._clients) < CLIENTS_COUNTED_MAX:
            self._clients.add(name)
        if options.messages is not None and self.messages.total() >= options.messages:
            self._is_done = True

    def _fail(self, error: Exception) -> None:
        self._error, self._is_done = error, True

    def _publisher(self, publish: Publish) -> str:
        options = self._options
        if options.client_property is not None:
            pairs: Any = publish.properties.get(Property.USER_PROPERTY, ())
            return next((value for name, value in pairs if name == options.client_property), "")
        if options.client_level is not None:
            levels = publish.topic.split("/", options.client_level)
            return levels[options.client_level - 1] if len(levels) >= options.client_level else ""
        return ""

    def _next_file(self) -> None:
        """Continues in a file with the next free number. It is open before the full one is closed."""
        numbered = (self._path.with_stem(f"{self._path.stem}-{number}") for number in count(len(self.files) + 1))
        path = next(path for path in numbered if not path.exists())
        full, self._writer = self._writer, RecordWriter(path, str(self._address))
        self.files.append(path)
        full.close()
        self._file_bytes += full.bytes


def gap_text(kept: bool) -> str:
    """Returns what is missing in a gap, for people."""
    if kept:
        return "the broker had kept our session: of that time, QoS 0 is missing"
    return "the broker had lost our session: what was published in that time is missing"
