"""Listens to a broker and writes down what it hears, until it is told to stop."""

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
from edgedevices.traffic.recording import RecordedMessage, RecordWriter, now_us, written

KEEP_ALIVE: Final = 30 * SECOND
SESSION_EXPIRY_S: Final = 300  # MQTT 5: what the broker queues for us while a connection is cut; then it forgets us
PACKET_BYTES_MAX: Final = 257 * MIB  # more than MQTT has: what is too large for a recording is counted, not refused
FLUSH_EVERY: Final = 10 * SECOND  # so that a recorder that dies loses no more than that, however slow the traffic is
ANSWER_WITHIN: Final = 10 * SECOND  # from the connection to SUBACK
CLIENTS_COUNTED_MAX: Final = 10_000  # names of clients kept for the summary
GAPS_KEPT_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to record, and where it ends (None: never).

    client_level: the topic level, from 1, that names the publisher. client_property: the user property that does.
    """

    topics: Sequence[str] = ("#",)
    qos: int = 2
    client_level: int | None = None
    client_property: str | None = None
    skips_retained: bool = False
    """Leave out what the broker had stored when we came (MQTT 5: it is not even sent)."""
    seconds: float | None = None
    messages: int | None = None


@dataclass(frozen=True, slots=True)
class RecordGap:
    """A time in which nothing was heard. at_us: from the beginning. kept: the broker still had our session then."""

    at_us: Duration
    length_us: Duration
    reason: str
    kept: bool


class Recorder:
    """One subscription to a broker, over as many connections as it takes, written to one file or several.

    MQTT tells a subscriber nothing about who published; see `Wanted.client_level` and `Wanted.client_property`.
    It leads its own run: see Conductor.
    """

    def __init__(
        self,
        address: BrokerAddress,
        dialect: DeviceDialect,
        access: BrokerCredentials,
        wanted: RecordOptions,
        path: Path,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """*tell* gets one line for people whenever a connection begins or ends. Raises InputInvalid."""
        self._tell = tell
        self._address, self._dialect, self._access, self._wanted, self._path = address, dialect, access, wanted, path
        for topic in wanted.topics:
            try:
                TopicFilter.parse(topic)
            except TopicInvalid as error:
                raise InputInvalid(f"--topic: {error}") from error
        self._ledger = MessageLedger()
        self._session, self.station = self._listener()
        self._writer = RecordWriter(path, str(address))
        self.files = [path]
        """Every file written; a second one begins when the index of the first is full."""
        self._file_bytes = 0
        self._is_full = False  # there is what was asked for, or the disk takes no more
        self._trouble: Exception | None = None
        self._began: Instant = 0
        self._flush_at: Instant = 0
        self._answer_by: Instant | None = None
        self._lost: tuple[Instant, str] | None = None
        self.messages = Counter[int]()
        """Recorded, per QoS."""
        self.retained = 0
        self.payload_bytes = 0
        self.too_large = 0
        """Heard, and not recorded."""
        self.connections = 0
        """How often it began to listen."""
        self.gaps: list[RecordGap] = []
        """The first times without a connection. Messages may be missing for each."""
        self.away_us: Duration = 0
        """How long all of them took."""
        self._clients: set[str] = set()

    def live(self) -> dict[str, Any]:
        """Record until interrupted or at a limit; the account, for `--json`.

        Raises BrokerUnreachable if no connection was ever made, InputInvalid if a topic is refused, OSError if the disk
        takes no more. The file is closed whole in every case.
        """
        run = DeviceRun([self.station], self._ledger, 0, conductor=self)
        endpoint = self._address.endpoint()
        try:
            SocketWorld(run, lambda station: endpoint, lambda seconds: None, self._access.tls).live()
        finally:
            self.close()
            if not self.connections:
                self._path.unlink(missing_ok=True)  # nobody was heard: a file without a message helps nobody
        if self._trouble is not None:
            raise self._trouble
        if self._session.refused_filter:
            raise InputInvalid(f"{self._address} refuses {self._session.refused_filter}")
        if not self.connections:
            reason = "interrupted" if run.interrupted else self.station.modem.last_refusal
            raise BrokerUnreachable(f"no connection to {self._address}: {reason}")
        return {
            "broker": str(self._address),
            "topics": list(self._wanted.topics),
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
        """Make the file whole. Raises OSError."""
        self._writer.close()
        self._file_bytes += self._writer.bytes

    # -- as a conductor -----------------------------------------------------------------------------------------

    @property
    def due(self) -> Instant | None:
        """See Conductor."""
        dues = (self._flush_at, self._ends_at, self._answer_by)
        return min(at for at in dues if at is not None)

    @property
    def has_ended(self) -> bool:
        """See Conductor."""
        never = not self.connections and self._session.is_denied
        return self._is_full or never or bool(self._session.refused_filter)

    def begin(self, now: Instant) -> None:
        """See Conductor."""
        self._began, self._flush_at = now, now + FLUSH_EVERY

    def wake(self, now: Instant) -> Iterable[Station]:
        """See Conductor."""
        if self._ends_at is not None and now >= self._ends_at:
            self._is_full = True
        if self._answer_by is not None and now >= self._answer_by:
            self._answer_by = None
            self.station.modem.cut(f"no SUBACK in {ANSWER_WITHIN // SECOND} s", now)
        if now >= self._flush_at:
            self._flush_at = now + FLUSH_EVERY
            try:
                self._writer.flush()
            except OSError as error:
                self._fail(error)
        return (self.station,)

    @property
    def _ends_at(self) -> Instant | None:
        seconds = self._wanted.seconds
        return None if seconds is None or self._is_full else self._began + round(seconds * SECOND)

    # -- the connection -----------------------------------------------------------------------------------------

    def _listener(self) -> tuple[DeviceSession, Station]:
        name = f"record-{uuid4().hex[:12]}"
        # A 3.1.1 session would outlive a recorder that is killed, and collect messages for ever.
        lasts = self._dialect is DeviceDialect.V5
        identity = DeviceIdentity(name, self._dialect, lasts=lasts, keep_alive_us=KEEP_ALIVE, expiry_s=SESSION_EXPIRY_S)
        session = DeviceSession(identity, self._ledger, packet_bytes_max=PACKET_BYTES_MAX)
        session.credentials = self._access
        session.subscriptions = self._asks(first=True)
        session.subscribed_handler = self._granted
        modem = Modem(session, self._ledger, Random(name))
        modem.state_handler = self._told
        station = Station(SilentSource(), modem, StationParts(), Random(name))
        session.publish_handler = self.hear
        return session, station

    def _asks(self, first: bool) -> list[SubscriptionOption]:
        wanted = self._wanted
        handling = 2 if wanted.skips_retained or not first else 0  # what was stored is recorded once
        return [
            SubscriptionOption(topic, wanted.qos, retain_as_published=True, retain_handling=handling)
            for topic in wanted.topics
        ]

    def _told(self, reason: str, now: Instant) -> None:
        """A connection has begun (no reason), or ended."""
        self._answer_by = None
        if reason and self._session.is_subscribed and not self._is_full:
            self._lost = now, reason
            self._tell(f"{reason}; dialling again")
        elif not reason and self._session.is_subscribed:
            self._listening(now)
        elif not reason:
            self._answer_by = now + ANSWER_WITHIN

    def _granted(self) -> None:
        self._answer_by = None
        self._session.subscriptions = self._asks(first=False)
        self._listening(now_us())

    def _listening(self, now: Instant) -> None:
        self.connections += 1
        if self._lost is None:
            self._tell(f"recording {', '.join(self._wanted.topics)} from {self._address} in {self._writer.path}")
            return
        (at, reason), self._lost = self._lost, None
        gap = RecordGap(at - self._began, now - at, reason, self._session.is_resumed)
        self.away_us += gap.length_us
        if len(self.gaps) < GAPS_KEPT_MAX:
            self.gaps.append(gap)
        self._tell(f"recording again after {gap.length_us / SECOND:.1f} s; {missed(gap.kept)}")

    @property
    def _is_back(self) -> bool:
        """Whether this is not the first connection."""
        return self._lost is not None or self.connections > 1

    # -- what is heard ------------------------------------------------------------------------------------------

    def hear(self, publish: Publish) -> None:
        """Write *publish* down. Trouble with the disk ends the run; `live` raises it."""
        wanted = self._wanted
        if self._is_full:
            return
        if publish.retain and self._dialect is DeviceDialect.V311 and (wanted.skips_retained or self._is_back):
            return  # 3.1.1 sets the flag on what was stored, and on nothing else; what was stored is recorded once
        name = self._publisher(publish)
        properties = written(publish.properties)
        heard = RecordedMessage(now_us(), name, publish.topic, publish.qos, publish.retain, publish.payload, properties)
        try:
            if not self._writer.add(heard):
                self.too_large += 1
                return
            if self._writer.is_full:
                self._continue()
        except Exception as error:
            self._fail(error)
            return
        self.messages[publish.qos] += 1
        self.retained += publish.retain
        self.payload_bytes += len(heard.payload)
        if name and len(self._clients) < CLIENTS_COUNTED_MAX:
            self._clients.add(name)
        if wanted.messages is not None and self.messages.total() >= wanted.messages:
            self._is_full = True

    def _fail(self, error: Exception) -> None:
        self._trouble, self._is_full = error, True

    def _publisher(self, publish: Publish) -> str:
        wanted = self._wanted
        if wanted.client_property is not None:
            pairs: Any = publish.properties.get(Property.USER_PROPERTY, ())
            return next((value for name, value in pairs if name == wanted.client_property), "")
        if wanted.client_level is not None:
            levels = publish.topic.split("/", wanted.client_level)
            return levels[wanted.client_level - 1] if len(levels) >= wanted.client_level else ""
        return ""

    def _continue(self) -> None:
        """Go on in another file, of the next number that is free. It is open before the full one is closed."""
        numbered = (self._path.with_stem(f"{self._path.stem}-{number}") for number in count(len(self.files) + 1))
        path = next(path for path in numbered if not path.exists())
        full, self._writer = self._writer, RecordWriter(path, str(self._address))
        self.files.append(path)
        full.close()
        self._file_bytes += full.bytes


def missed(kept: bool) -> str:
    """What a gap cost, for people."""
    if kept:
        return "the broker had kept our session: of that time, QoS 0 is missing"
    return "the broker had lost our session: what was published in that time is missing"
