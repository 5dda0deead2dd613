"""Publishes what was recorded: same order, same pace, same QoS and RETAIN, and from the same clients where known."""

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
from edgedevices.traffic.recording import RecordedMessage, RecordFile, decode_properties, is_text

CLIENTS_MAX: Final = 1_000
"""Connections of one playback: many systems allow 1,024 files. Further clients use the connection of the
unknown ones.
"""
ROUND_MIN_US: Final = SECOND
"""Minimum duration of a round: a recording of a single instant may be repeated."""
TURN_MESSAGES_MAX: Final = 64
"""Messages published before sockets and signals are served."""
REFUSALS_TOLD_MAX: Final = 5
FRUITLESS_MAX: Final = 5
"""Connections that end before any acknowledgement: after so many, the broker cannot accept the first message."""


@dataclass(frozen=True, slots=True)
class ReplayMessage(DeviceMessage):
    """A message with its recorded payload (`raw`) and properties."""

    kept: bytes = b""
    """See `RecordedMessage.properties`."""

    def properties(self) -> Properties:
        """See `DeviceMessage`."""
        return decode_properties(self.kept)


@dataclass(frozen=True, slots=True)
class PlaybackOptions:
    """How a recording is played. speed: recorded seconds per second, None is as fast as the broker acknowledges."""

    speed: float | None = 1.0
    loops: bool = False
    """Repeats until stopped; the pause between two rounds is that at the end of the recording."""
    count: int | None = None
    """Number of messages to publish; None: all."""
    prefix: str = ""
    """Prefix of every topic."""
    unknown: str = "replay"
    """The MQTT client identifier for messages whose client is not known."""
    dialect: DeviceDialect = DeviceDialect.V5
    drain_s: float = 10.0


@dataclass(slots=True)
class PlaybackClient:
    """One client of the recording."""

    station: Station
    until: Instant
    """Time limit of its first connection."""
    refusal: str = ""
    """Why it was refused for good; then its messages fail at once, and do not delay the others."""


class Playback:
    """Plays *recording*. Messages of one client keep their order, and so do those of unknown clients. See
    `RunConductor`.

    print_line: called with a line for people for each of the first clients that the broker refuses.
    """

    def __init__(
        self,
        recording: RecordFile,
        ledger: MessageLedger,
        options: PlaybackOptions,
        access: BrokerCredentials = ANYONE,
        print_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._recording, self._ledger, self._options = recording, ledger, options
        self._access, self._print_line = access, print_line
        self._stations: list[Station] = []
        self.run = DeviceRun(self._stations, ledger, round(options.drain_s * SECOND), conductor=self)
        self._clients: dict[str, PlaybackClient] = {}
        self._schedule = self._timed_messages()
        self._next: tuple[Duration, RecordedMessage] | None = None
        self._started: Instant | None = None  # when the broker accepted the first client: the start of the schedule
        self._published = 0
        self._refused = 0
        self.rounds = 0
        """Rounds begun."""
        self.late_us: Duration = 0
        """The greatest delay of a message: slowness of the broker or of this machine."""
        self.not_publishable = 0
        """Recorded messages with an invalid topic or QoS; only damaged or made-up files have any."""

    def live(self, address: BrokerAddress, progress: RunProgress) -> dict[str, Any]:
        """Executes the playback. Returns the fields of the summary beside the ledger's. Raises BrokerUnreachable."""
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
        for player in self._clients.values():
            self._check_refused(player, 0)  # refused after its last message
        if self._stations and run.never_connected == len(self._stations) and not run.interrupted:
            raise BrokerUnreachable(f"no connection to {address}: {self._stations[0].modem.last_refusal}")
        return {
            "seconds": run.seconds,
            "interrupted": run.interrupted,
            "clients": len(self._clients),
            "never_connected": run.never_connected,
            "rounds": self.rounds,
            "late_s": round(self.late_us / SECOND, 3),
            "not_publishable": self.not_publishable,
        }

    # -- as a `RunConductor` ------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """See `RunConductor`."""
        return self._next is None

    @property
    def due(self) -> Instant | None:
        """See `RunConductor`. A client with a full queue delays the playback, so that nothing is dropped here."""
        if self._next is None:
            return None
        player = self._clients.get(self._client_of(self._next[1]))
        session = None if player is None or player.refusal else player.station.session
        due_at = 0 if self._started is None else self._due_at(self._started)
        if player is None or session is None or session.is_denied:
            return due_at
        if not session.was_up and (self._started is None or not session.has_room):
            return max(due_at, player.until)
        return due_at if session.has_room or session.connections_without_ack > FRUITLESS_MAX else None

    def begin(self, now: Instant) -> None:
        """See `RunConductor`."""
        self._next = next(self._schedule, None)

    def wake(self, now: Instant) -> Iterable[Station]:
        """See `RunConductor`."""
        woken: dict[Station, None] = {}
        for _ in range(TURN_MESSAGES_MAX):
            due = self.due
            if due is None or due > now or self._next is None:
                break
            player = self._client(self._client_of(self._next[1]), now)
            woken[player.station] = None
            self._check_refused(player, now)
            if self._started is None and not player.refusal:
                if not player.station.session.was_up:
                    break  # it is about to connect
                self._started = now
            if not (player.refusal or player.station.session.has_room):
                break  # its queue is full: only its blocking message was to be dropped
            self._publish(player, self._next[1], now)
            self._next = None if self._published == self._options.count else next(self._schedule, None)
        return woken

    def _due_at(self, began: Instant) -> Instant:
        if self._options.speed is None or self._next is None:
            return began
        return began + round(self._next[0] / self._options.speed)

    def _check_refused(self, player: PlaybackClient, now: Instant) -> None:
        """Records a client that the broker will not accept any more."""
        session = player.station.session
        if session.connections_without_ack > FRUITLESS_MAX:
            session.fail_oldest(f"refused: {FRUITLESS_MAX} connections ended over it")
        if player.refusal or not (session.is_denied or (not session.was_up and now >= player.until)):
            return
        player.refusal = player.station.modem.last_refusal
        player.station.give_up(player.refusal)
        self._refused += 1
        if self._refused <= REFUSALS_TOLD_MAX:
            self._print_line(f"client {player.station.name}: {player.refusal}; its messages are counted as failed")

    def _publish(self, player: PlaybackClient, recorded: RecordedMessage, now: Instant) -> None:
        if self._started is not None and self._options.speed is not None:
            self.late_us = max(self.late_us, now - self._due_at(self._started))
        topic = self._options.prefix + recorded.topic
        if recorded.qos > 2 or not is_publishable(topic):
            self.not_publishable += 1
            return
        self._published += 1
        message = ReplayMessage(
            device=player.station.name,
            seq=self._published,
            topic=topic,
            body={},
            form=PayloadForm.JSON,
            qos=recorded.qos,
            retain=recorded.retain,
            raw=recorded.payload,
            kept=recorded.properties,
        )
        if player.refusal:
            self._ledger.publish(message)
            self._ledger.fail(message, player.refusal)
        else:
            player.station.session.enqueue(message)

    def _client_of(self, recorded: RecordedMessage) -> str:
        """Returns the client of *recorded*; "" for the one that publishes for all unknown clients."""
        client = recorded.client
        if client in self._clients or (len(self._clients) < CLIENTS_MAX and is_text(client)):
            return client
        return ""

    def _client(self, client: str, now: Instant) -> PlaybackClient:
        """Returns the player of *client*, made at its first message."""
        player = self._clients.get(client)
        if player is None:
            identity = DeviceIdentity(client or self._options.unknown, self._options.dialect)
            session = DeviceSession(identity, self._ledger)
            session.credentials = self._access
            chance = Random(f"replay/{identity.device}")
            station = Station(SilentSource(), Modem(session, self._ledger, chance), StationParts(gives_up=True), chance)
            player = self._clients[client] = PlaybackClient(station, now + FIRST_CONNECTION)
            self._stations.append(station)
            station.begin(now)
        return player

    def _timed_messages(self) -> Iterator[tuple[Duration, RecordedMessage]]:
        """Yields every message and its due time, in recorded microseconds from the start; without end if it loops."""
        round_us = max(self._recording.length_us, ROUND_MIN_US)
        while True:
            began_us = self.rounds * round_us - self._recording.first_us
            self.rounds += 1
            for recorded in self._recording.messages_in_order():
                yield began_us + recorded.t_us, recorded
            if not self._options.loops:
                return
