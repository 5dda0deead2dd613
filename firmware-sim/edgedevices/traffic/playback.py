"""Says again what was recorded: same order, same pace, same QoS and RETAIN, and from the same clients where known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from edgebridge.wire.properties import Properties
from edgebroker.instants import SECOND, Duration, Instant
from edgedevices import BrokerUnreachable
from edgedevices.broker import ANYONE, BrokerAddress, BrokerCredentials
from edgedevices.ledger import MessageLedger
from edgedevices.message import DeviceMessage, PayloadForm, is_publishable
from edgedevices.modem import Modem
from edgedevices.progress import RunProgress
from edgedevices.run import FIRST_CONNECTION, DeviceRun
from edgedevices.session import DeviceDialect, DeviceIdentity, DeviceSession
from edgedevices.sockets import SocketWorld
from edgedevices.station import SilentSource, Station, StationParts
from edgedevices.traffic.recording import RecordedMessage, RecordFile, is_text, readable

CLIENTS_MAX: Final = 1_000
"""Connections of one playback: many systems allow 1,024 files. Who comes later speaks through that of the unknown."""
ROUND_MIN_US: Final = SECOND
"""A recording of a single instant, repeated, still takes a second a round."""
TURN_MESSAGES_MAX: Final = 64
"""Said at most before sockets and signals have their turn."""
REFUSALS_TOLD_MAX: Final = 5
FRUITLESS_MAX: Final = 5
"""Connections that end before anything is acknowledged: after so many, the broker cannot bear the first message."""


@dataclass(frozen=True, slots=True)
class ReplayMessage(DeviceMessage):
    """A message with the payload (`raw`) and the properties that it had."""

    kept: bytes = b""
    """See Heard.properties."""

    def properties(self) -> Properties:
        """See Message."""
        return readable(self.kept)


@dataclass(frozen=True, slots=True)
class PlaybackOptions:
    """How a recording is played. speed: recorded seconds per second, None is as fast as the broker acknowledges."""

    speed: float | None = 1.0
    loops: bool = False
    """Begin again at the end, until stopped; the pause between two rounds is that at the end of the recording."""
    count: int | None = None
    """Stop after that many messages."""
    prefix: str = ""
    """Put in front of every topic."""
    unknown: str = "replay"
    """The MQTT client identifier for messages whose client is not known."""
    dialect: DeviceDialect = DeviceDialect.V5
    drain_s: float = 10.0


@dataclass(slots=True)
class PlaybackClient:
    """One client of the recording."""

    station: Station
    until: Instant
    """It is not waited for any longer if it has had no connection by then."""
    refusal: str = ""
    """Why it never got in, once that is certain: then its messages fail one after the other, and delay nobody."""


class Playback:
    """Plays *recording*. Messages of one client keep their order, and so do those of the unknown. See Conductor.

    tell: gets one line for people for each of the first clients that the broker refuses.
    """

    def __init__(
        self,
        recording: RecordFile,
        ledger: MessageLedger,
        manner: PlaybackOptions,
        access: BrokerCredentials = ANYONE,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._recording, self._ledger, self._manner = recording, ledger, manner
        self._access, self._tell = access, tell
        self._stations: list[Station] = []
        self.run = DeviceRun(self._stations, ledger, round(manner.drain_s * SECOND), conductor=self)
        self._parts: dict[str, PlaybackClient] = {}
        self._rest = self._score()
        self._next: tuple[Duration, RecordedMessage] | None = None
        self._began: Instant | None = None  # when the broker let the first client in: then the clock starts
        self._said = 0
        self._refused = 0
        self.rounds = 0
        """Rounds begun."""
        self.late_us: Duration = 0
        """How late the latest message was said, behind its time: the broker's or this machine's slowness."""
        self.not_publishable = 0
        """Recorded messages whose topic nobody may publish to, or of no QoS; only damaged or made-up files have any."""

    def live(self, address: BrokerAddress, progress: RunProgress) -> dict[str, Any]:
        """The whole playback; what is known at its end besides the ledger. Raises BrokerUnreachable."""
        run, endpoint = self.run, address.endpoint()
        world = SocketWorld(
            run,
            lambda station: endpoint,
            lambda seconds: progress.show(self._ledger, len(self._stations), seconds),
            self._access.tls,
        )
        try:
            world.live()
        finally:
            progress.close()
        for part in self._parts.values():
            self._judge(part, 0)  # who was refused after its last message
        if self._stations and run.never_connected == len(self._stations) and not run.interrupted:
            raise BrokerUnreachable(f"no connection to {address}: {self._stations[0].modem.last_refusal}")
        return {
            "seconds": run.seconds,
            "interrupted": run.interrupted,
            "clients": len(self._parts),
            "never_connected": run.never_connected,
            "rounds": self.rounds,
            "late_s": round(self.late_us / SECOND, 3),
            "not_publishable": self.not_publishable,
        }

    # -- as a conductor -----------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """See Conductor."""
        return self._next is None

    @property
    def due(self) -> Instant | None:
        """See Conductor. A client of which much is waiting is waited for, so that nothing is dropped here."""
        if self._next is None:
            return None
        part = self._parts.get(self._name(self._next[1]))
        session = None if part is None or part.refusal else part.station.session
        at = 0 if self._began is None else self._due_at(self._began)
        if part is None or session is None or session.is_denied:
            return at
        if not session.was_up and (self._began is None or not session.has_room):
            return max(at, part.until)
        return at if session.has_room or session.connections_without_ack > FRUITLESS_MAX else None

    def begin(self, now: Instant) -> None:
        """See Conductor."""
        self._next = next(self._rest, None)

    def wake(self, now: Instant) -> Iterable[Station]:
        """See Conductor."""
        stirred: dict[Station, None] = {}
        for _ in range(TURN_MESSAGES_MAX):
            due = self.due
            if due is None or due > now or self._next is None:
                break
            part = self._part(self._name(self._next[1]), now)
            stirred[part.station] = None
            self._judge(part, now)
            if self._began is None and not part.refusal:
                if not part.station.session.was_up:
                    break  # it has just been told to connect
                self._began = now
            if not (part.refusal or part.station.session.has_room):
                break  # it was only to be freed of what it cannot get rid of
            self._say(part, self._next[1], now)
            self._next = None if self._said == self._manner.count else next(self._rest, None)
        return stirred

    def _due_at(self, began: Instant) -> Instant:
        if self._manner.speed is None or self._next is None:
            return began
        return began + round(self._next[0] / self._manner.speed)

    def _judge(self, part: PlaybackClient, now: Instant) -> None:
        """Note that a client will not get in any more."""
        session = part.station.session
        if session.connections_without_ack > FRUITLESS_MAX:
            session.fail_oldest(f"refused: {FRUITLESS_MAX} connections ended over it")
        if part.refusal or not (session.is_denied or (not session.was_up and now >= part.until)):
            return
        part.refusal = part.station.modem.last_refusal
        part.station.give_up(part.refusal)
        self._refused += 1
        if self._refused <= REFUSALS_TOLD_MAX:
            self._tell(f"client {part.station.name}: {part.refusal}; its messages are counted as failed")

    def _say(self, part: PlaybackClient, heard: RecordedMessage, now: Instant) -> None:
        if self._began is not None and self._manner.speed is not None:
            self.late_us = max(self.late_us, now - self._due_at(self._began))
        topic = self._manner.prefix + heard.topic
        if heard.qos > 2 or not is_publishable(topic):
            self.not_publishable += 1
            return
        self._said += 1
        message = ReplayMessage(
            device=part.station.name,
            seq=self._said,
            topic=topic,
            body={},
            form=PayloadForm.JSON,
            qos=heard.qos,
            retain=heard.retain,
            raw=heard.payload,
            kept=heard.properties,
        )
        if part.refusal:
            self._ledger.publish(message)
            self._ledger.fail(message, part.refusal)
        else:
            part.station.session.enqueue(message)

    def _name(self, heard: RecordedMessage) -> str:
        """Who says *heard*; "" is whoever speaks for the unknown."""
        client = heard.client
        if client in self._parts or (len(self._parts) < CLIENTS_MAX and is_text(client)):
            return client
        return ""

    def _part(self, client: str, now: Instant) -> PlaybackClient:
        """What *client* has to say, from the first time on."""
        part = self._parts.get(client)
        if part is None:
            identity = DeviceIdentity(client or self._manner.unknown, self._manner.dialect)
            session = DeviceSession(identity, self._ledger)
            session.credentials = self._access
            chance = Random(f"replay/{identity.device}")
            station = Station(SilentSource(), Modem(session, self._ledger, chance), StationParts(gives_up=True), chance)
            part = self._parts[client] = PlaybackClient(station, now + FIRST_CONNECTION)
            self._stations.append(station)
            station.begin(now)
        return part

    def _score(self) -> Iterator[tuple[Duration, RecordedMessage]]:
        """Every message and when it is due, in recorded microseconds from the start; for ever if it loops."""
        round_us = max(self._recording.length_us, ROUND_MIN_US)
        while True:
            began_us = self.rounds * round_us - self._recording.first_us
            self.rounds += 1
            for heard in self._recording.messages_in_order():
                yield began_us + heard.t_us, heard
            if not self._manner.loops:
                return
