"""A device's connection as a state machine: dialling, handshake, connected, and a pause after a failure.

It has no socket. A world executes `take_orders` (dial, cut, hang up, or bytes to write), and reports the results:
`opened`, `received`, `written`, `ended`. About a connection that was cut a world reports nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Final, TypeAlias

from edgebridge.wire.errors import ProtocolError
from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgedevices.ledger import MessageLedger
from edgedevices.radio import WIRED, RadioKind, RadioPath
from edgedevices.session import DeviceSession

CONNECT_TIMEOUT: Final = 20 * SECOND
"""From dialling to CONNACK. A broker to which 5,000 devices reconnect at once may need a few seconds."""
REPLY_TIMEOUT: Final = 10 * SECOND
"""From PINGREQ to any packet, and from DISCONNECT to the end of the connection."""
PAUSE_MIN: Final = 250 * MILLISECOND
PAUSE_MAX: Final = 15 * SECOND
AT_ONCE: Final = MILLISECOND
"""The pause of a device without a configured one."""
NO_ATTEMPT: Final = "no attempt"
STABLE_AFTER: Final = 5 * SECOND
"""A connection that lasted as long was stable: the next pause is short again."""


class ModemOrder(Enum):
    """Commands to a world about the connection."""

    DIAL = "dial"
    HANG_UP = "hang up"
    """Shut down our direction when everything is written; the peer will close."""
    CUT = "cut"
    """Close at once, and drop everything on its way."""


Effect: TypeAlias = ModemOrder | bytes


class ModemPhase(Enum):
    """States of the connection."""

    SILENT = "silent"
    DIALLING = "dialling"
    GREETING = "greeting"
    """CONNECT was sent."""
    TALKING = "talking"
    DROPPING = "dropping"
    """Our direction is shut down without DISCONNECT."""
    LEAVING = "leaving"
    """DISCONNECT was sent."""
    PAUSING = "pausing"
    """After a failure: the next attempt comes later."""


class ModemEvent(Enum):
    """Events of the connection."""

    WANTED = "wanted"
    HUSHED = "hushed"
    """The duty cycle requires silence: CONNECT would be sent too late."""
    OPENED = "opened"
    ACCEPTED = "accepted"
    DROPPED = "dropped"
    DONE = "done"
    """All messages are sent."""
    ENDED = "ended"
    RESTED = "rested"


NEXT: Final[dict[tuple[ModemPhase, ModemEvent], ModemPhase]] = {
    (ModemPhase.SILENT, ModemEvent.WANTED): ModemPhase.DIALLING,
    (ModemPhase.SILENT, ModemEvent.HUSHED): ModemPhase.PAUSING,
    (ModemPhase.DIALLING, ModemEvent.OPENED): ModemPhase.GREETING,
    (ModemPhase.DIALLING, ModemEvent.ENDED): ModemPhase.PAUSING,
    (ModemPhase.GREETING, ModemEvent.ACCEPTED): ModemPhase.TALKING,
    (ModemPhase.GREETING, ModemEvent.ENDED): ModemPhase.PAUSING,
    (ModemPhase.TALKING, ModemEvent.DROPPED): ModemPhase.DROPPING,
    (ModemPhase.TALKING, ModemEvent.DONE): ModemPhase.LEAVING,
    (ModemPhase.TALKING, ModemEvent.ENDED): ModemPhase.PAUSING,
    (ModemPhase.DROPPING, ModemEvent.ENDED): ModemPhase.PAUSING,
    (ModemPhase.LEAVING, ModemEvent.ENDED): ModemPhase.SILENT,
    (ModemPhase.PAUSING, ModemEvent.RESTED): ModemPhase.SILENT,
}


def _no_handler(reason: str, now: Instant) -> None:
    """Does nothing: one function for thousands of modems."""


class Modem:
    """The connection of one session, through one radio."""

    def __init__(
        self,
        session: DeviceSession,
        ledger: MessageLedger,
        random_source: Random,
        radio: RadioKind = WIRED,
        pause_max: Duration = PAUSE_MAX,
    ) -> None:
        self.session = session
        self.phase = ModemPhase.SILENT
        self.up = RadioPath(radio, random_source)
        self.down = RadioPath(radio, random_source)
        self.busy_at: Instant = 0
        """When bytes were last sent or received."""
        self.connections = 0
        """How often the broker accepted the connection."""
        self.reconnects_due = 0
        """Remaining connections of a reconnect storm: each but the last is dropped at once."""
        self.is_unreachable = False
        """Whether the last attempt did not even get a TCP connection."""
        self.last_refusal = NO_ATTEMPT
        self.state_handler: Callable[[str, Instant], None] = _no_handler
        """Called with "" when the broker accepts the connection, and with the reason when it has ended."""
        self._ledger = ledger
        self._random = random_source
        self._radio = radio
        self._pause_max = pause_max
        self._effects: list[Effect] = []
        self._deadline: Instant | None = None  # end of a timeout or of a pause
        self._lost_at: Instant | None = None
        self._network_at: Instant = 0  # until then there is no network
        self._accepted_at: Instant = 0
        self._pause: Duration = PAUSE_MIN
        self._sent_at: Instant = 0
        self._pinged_at: Instant | None = None
        self._closes_when_sent = False  # shuts down our direction after everything is sent
        self._is_online = False
        self._clears_session = False

    @property
    def is_talking(self) -> bool:
        """Whether the broker has accepted the connection, and neither side has ended it."""
        return self.phase is ModemPhase.TALKING

    @property
    def due(self) -> Instant | None:
        """When to call `wake`; None: only after an event."""
        dues = (self._deadline, self._lost_at, self.up.due, self.down.due, self._keep_alive_deadline)
        return min((at for at in dues if at is not None), default=None)

    def take_orders(self) -> list[Effect]:
        """Returns the commands for the world, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- commands of the device ---------------------------------------------------------------------------------

    def dial(self, now: Instant, clears_session: bool = False) -> None:
        """Connects, unless a connection exists. *clears_session*: only to make the broker delete the session."""
        if self.phase is ModemPhase.SILENT and now < self.up.free_at:
            self._transition(ModemEvent.HUSHED)
            self._deadline = self.up.free_at
        elif self.phase is ModemPhase.SILENT:
            self._clears_session = clears_session
            self._transition(ModemEvent.WANTED)
            self._deadline = max(now, self._network_at) + CONNECT_TIMEOUT
            if now >= self._network_at:
                self._effects.append(ModemOrder.DIAL)
            else:
                self._end("no network", now)

    def disconnect(self, now: Instant, forget: bool = False) -> None:
        """Sends DISCONNECT, if connected."""
        if self.phase is ModemPhase.TALKING:
            self.session.disconnect(forget)
            self.flush(now)
            self._transition(ModemEvent.DONE)
            self._close(now)

    def hang_up(self, now: Instant) -> None:
        """Ends the stream without DISCONNECT, as a device that loses power: its will is published.

        Only our direction is shut down: what was written still reaches the broker, and a QoS 0 message that counts as
        sent is not lost to a reset.
        """
        if self.phase is ModemPhase.TALKING:
            self._transition(ModemEvent.DROPPED)
            self._close(now)

    def cut(self, reason: str, now: Instant) -> None:
        """Breaks the connection at once, possibly in the middle of a packet."""
        if self.phase not in (ModemPhase.SILENT, ModemPhase.PAUSING):
            self._effects.append(ModemOrder.CUT)
            self._end(reason, now)

    def pause(self) -> None:
        """Ends the pause without dialling again."""
        if self.phase is ModemPhase.PAUSING:
            self._transition(ModemEvent.RESTED)
            self._deadline = None

    def inject(self, data: bytes, now: Instant) -> None:
        """Writes bytes that are not part of the session."""
        if self.phase is ModemPhase.TALKING:
            self.up.send(data, now)
            self._transmit(now)

    def flush(self, now: Instant) -> None:
        """Sends the session's output."""
        if self.phase in (ModemPhase.GREETING, ModemPhase.TALKING, ModemPhase.LEAVING):
            data = self.session.take_output()
            if data:
                self.up.send(data, now)
                self._sent_at = self.busy_at = self.up.arrived_at
            self._transmit(now)

    # -- reports of the world ------------------------------------------------------------------------------------

    def opened(self, now: Instant) -> None:
        """Reports that the TCP connection is open."""
        self._transition(ModemEvent.OPENED)
        self.session.connect(self._clears_session)
        self.flush(now)
        self._deadline = max(now, self.up.arrived_at) + CONNECT_TIMEOUT

    def received(self, chunk: bytes, now: Instant) -> None:
        """Reports bytes from the broker."""
        self.down.send(chunk, now)
        self._receive_arrived(now)

    def written(self) -> None:
        """Reports that all bytes were passed to the system."""
        if self.up.due is None:
            self.session.written()

    def ended(self, reason: str, now: Instant) -> None:
        """Reports that the connection has ended or could not be opened."""
        self._end(reason, now)

    def wake(self, now: Instant) -> None:
        """Handles timers."""
        self._transmit(now)
        self._receive_arrived(now)
        if self._lost_at is not None and now >= self._lost_at:
            least, most = self._radio.outage_us
            self._network_at = now + (self._random.randint(least, most) if most else 0)
            self.cut("radio lost", now)
        if self._deadline is not None and now >= self._deadline:
            self._on_deadline(now)
        alive_until = self._keep_alive_deadline
        if alive_until is not None and now >= alive_until:
            if self._pinged_at is not None:
                self.cut("no answer to PINGREQ", now)
            else:
                self.session.ping()
                self.flush(now)
                self._pinged_at = self.up.arrived_at

    @property
    def _keep_alive_deadline(self) -> Instant | None:
        """When the connection needs a packet: ours by PINGREQ (section 3.1.2.10), then the broker's."""
        if self.phase is not ModemPhase.TALKING:
            return None
        if self._pinged_at is not None:
            return self._pinged_at + REPLY_TIMEOUT
        return self._sent_at + self.session.keep_alive_us * 3 // 4

    def _on_deadline(self, now: Instant) -> None:
        self._deadline = None
        if self.phase is ModemPhase.PAUSING:
            self.pause()
        elif self.phase in (ModemPhase.DIALLING, ModemPhase.GREETING):
            self.cut(f"no CONNACK in {CONNECT_TIMEOUT // SECOND} s", now)
        else:
            self.cut("connection lost", now)

    def _close(self, now: Instant) -> None:
        self.session.is_up = False
        self._closes_when_sent = True
        self._deadline = max(now, self.up.arrived_at) + REPLY_TIMEOUT
        self._transmit(now)

    def _transmit(self, now: Instant) -> None:
        if data := self.up.arrived(now):
            self._effects.append(data)
        if self._closes_when_sent and self.up.due is None:
            self._closes_when_sent = False
            self._effects.append(ModemOrder.HANG_UP)

    def _receive_arrived(self, now: Instant) -> None:
        data = self.down.arrived(now)
        if not data or self.phase in (ModemPhase.SILENT, ModemPhase.PAUSING, ModemPhase.DIALLING):
            return
        self.busy_at, self._pinged_at = now, None
        try:
            self.session.receive(data, now)
        except ProtocolError as error:
            self.cut(f"unreadable packet: {error.what}", now)
            return
        if self.session.refusal:
            self.cut(self.session.refusal, now)
        elif self.phase is ModemPhase.GREETING and self.session.is_up:
            self._accept(now)
        self.flush(now)

    def _accept(self, now: Instant) -> None:
        self._transition(ModemEvent.ACCEPTED)
        self._deadline, self._accepted_at = None, now
        if self._clears_session:
            self.disconnect(now)
            return
        self._is_online = True
        self._ledger.connected += 1
        self._ledger.online += 1
        self._ledger.reconnects += self.connections > 0
        self.connections += 1
        self._lost_at = self._radio.next_loss(self._random, now)
        self.state_handler("", now)
        self.session.send_queued(now)
        self.reconnects_due = max(0, self.reconnects_due - 1)
        if self.reconnects_due:
            self.hang_up(now)

    def _end(self, reason: str, now: Instant) -> None:
        if self.phase is ModemPhase.GREETING and reason == "connection lost":
            reason = "closed before CONNACK"  # a busy broker closes the sockets of clients that connect too fast
        reason = self.session.refusal or reason
        dropped = self.phase is ModemPhase.DROPPING
        was_stable = dropped or (self._is_online and now - self._accepted_at >= STABLE_AFTER)
        if self.phase is not ModemPhase.LEAVING:
            self._ledger.losses["dropped on purpose" if dropped else reason] += 1
            if not self._is_online or self.session.refusal:
                self.last_refusal = reason
        if self._is_online:
            self.state_handler(reason, now)
        self._ledger.online -= self._is_online
        self._is_online = self._closes_when_sent = False
        self.is_unreachable = self.phase is ModemPhase.DIALLING
        self._transition(ModemEvent.ENDED)
        self.session.connection_lost()
        self.up.lose_all(now)
        self.down.lose_all(now)
        self._lost_at = self._pinged_at = self._deadline = None
        if self.phase is ModemPhase.PAUSING:
            pause = AT_ONCE if dropped and self.reconnects_due else self._next_pause(was_stable)
            self._deadline = max(now + pause, self._network_at, self.up.free_at)

    def _next_pause(self, was_stable: bool) -> Duration:
        """Returns a pause with decorrelated jitter: between the minimum and three times the last, so that devices do
        not reconnect at the same time.
        """
        if was_stable:
            self._pause = PAUSE_MIN
        self._pause = min(self._pause_max, self._random.randint(PAUSE_MIN, 3 * self._pause))
        return self._pause

    def _transition(self, event: ModemEvent) -> None:
        self.phase = NEXT[self.phase, event]
