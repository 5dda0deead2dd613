"""A device's connection as a state machine: dialling, greeting, talking, and pausing when it went wrong.

It has no socket. A world reads `take` (dial, cut, hang up, or bytes to write), and says what came of it: `opened`,
`received`, `written`, `ended`. Of a connection that was cut a world says nothing more.
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

PATIENCE: Final = 20 * SECOND
"""From dialling to CONNACK. A broker that 5,000 devices come back to at once may need a few seconds."""
ANSWER_WITHIN: Final = 10 * SECOND
"""From PINGREQ to anything at all, and from DISCONNECT to the end of the connection."""
PAUSE_LEAST: Final = 250 * MILLISECOND
PAUSE_MOST: Final = 15 * SECOND
AT_ONCE: Final = MILLISECOND
"""The pause of a device that knows none."""
NO_ATTEMPT: Final = "no attempt"
STOOD: Final = 5 * SECOND
"""A connection that lasted as long was a good one: the next pause is short again."""


class ModemOrder(Enum):
    """What a world is to do with the connection."""

    DIAL = "dial"
    HANG_UP = "hang up"
    """End our direction when everything is written; the other end will close."""
    CUT = "cut"
    """Drop it at once, with all that is on its way."""


Effect: TypeAlias = ModemOrder | bytes


class ModemPhase(Enum):
    """Where the connection stands."""

    SILENT = "silent"
    DIALLING = "dialling"
    GREETING = "greeting"
    """CONNECT was sent."""
    TALKING = "talking"
    DROPPING = "dropping"
    """Our direction is closed without a word."""
    LEAVING = "leaving"
    """DISCONNECT was sent."""
    PAUSING = "pausing"
    """It went wrong; the next attempt comes later."""


class ModemEvent(Enum):
    """What changes that."""

    WANTED = "wanted"
    HUSHED = "hushed"
    """The law has the radio be silent: CONNECT would come too late."""
    OPENED = "opened"
    ACCEPTED = "accepted"
    DROPPED = "dropped"
    DONE = "done"
    """Nothing is left to say."""
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
    """Nobody wants to know: one function for all, for there are thousands of modems."""


class Modem:
    """The connection of one session, through one radio."""

    def __init__(
        self,
        session: DeviceSession,
        ledger: MessageLedger,
        chance: Random,
        radio: RadioKind = WIRED,
        pause_most: Duration = PAUSE_MOST,
    ) -> None:
        self.session = session
        self.phase = ModemPhase.SILENT
        self.up = RadioPath(radio, chance)
        self.down = RadioPath(radio, chance)
        self.busy_at: Instant = 0
        """When bytes last went or came."""
        self.connections = 0
        """How often the broker has let it in."""
        self.reconnects_due = 0
        """So many times more it is back at once, and gone at once but for the last time: a reconnect storm."""
        self.is_unreachable = False
        """Whether the last attempt did not even get a connection."""
        self.last_refusal = NO_ATTEMPT
        self.state_handler: Callable[[str, Instant], None] = _no_handler
        """Called with "" when the broker has let it in, and with why when that connection is over."""
        self._ledger = ledger
        self._chance = chance
        self._radio = radio
        self._pause_most = pause_most
        self._effects: list[Effect] = []
        self._until: Instant | None = None  # when patience ends, or a pause
        self._lost_at: Instant | None = None
        self._covered_at: Instant = 0  # before, there is no network
        self._since: Instant = 0
        self._pause: Duration = PAUSE_LEAST
        self._sent_at: Instant = 0
        self._pinged_at: Instant | None = None
        self._closes = False  # our direction ends behind what is still on its way
        self._is_online = False
        self._clears_session = False

    @property
    def is_talking(self) -> bool:
        """Whether the broker has accepted the connection, and nobody has ended it."""
        return self.phase is ModemPhase.TALKING

    @property
    def due(self) -> Instant | None:
        """When `wake` is to be called; None: when something happens."""
        dues = (self._until, self._lost_at, self.up.due, self.down.due, self._alive_until)
        return min((at for at in dues if at is not None), default=None)

    def take_orders(self) -> list[Effect]:
        """What the world is to do, in order."""
        effects, self._effects = self._effects, []
        return effects

    # -- what the device wants ----------------------------------------------------------------------------------

    def dial(self, now: Instant, clears_session: bool = False) -> None:
        """Connect, unless that is going on. *wiping*: only to make the broker forget the session."""
        if self.phase is ModemPhase.SILENT and now < self.up.free_at:
            self._turn(ModemEvent.HUSHED)
            self._until = self.up.free_at
        elif self.phase is ModemPhase.SILENT:
            self._clears_session = clears_session
            self._turn(ModemEvent.WANTED)
            self._until = max(now, self._covered_at) + PATIENCE
            if now >= self._covered_at:
                self._effects.append(ModemOrder.DIAL)
            else:
                self._end("no network", now)

    def disconnect(self, now: Instant, forget: bool = False) -> None:
        """Say good-bye, if the broker is there."""
        if self.phase is ModemPhase.TALKING:
            self.session.disconnect(forget)
            self.flush(now)
            self._turn(ModemEvent.DONE)
            self._close(now)

    def hang_up(self, now: Instant) -> None:
        """End the stream without DISCONNECT, as a device does that loses power: its will is published.

        Our direction is closed, not the socket: what was written still reaches the broker, and a QoS 0 message that
        counts as sent is not lost to a reset.
        """
        if self.phase is ModemPhase.TALKING:
            self._turn(ModemEvent.DROPPED)
            self._close(now)

    def cut(self, reason: str, now: Instant) -> None:
        """Break the connection at once, mid-packet if need be."""
        if self.phase not in (ModemPhase.SILENT, ModemPhase.PAUSING):
            self._effects.append(ModemOrder.CUT)
            self._end(reason, now)

    def pause(self) -> None:
        """Do not dial again until somebody wants to."""
        if self.phase is ModemPhase.PAUSING:
            self._turn(ModemEvent.RESTED)
            self._until = None

    def inject(self, octets: bytes, now: Instant) -> None:
        """Write bytes that are no part of the session."""
        if self.phase is ModemPhase.TALKING:
            self.up.send(octets, now)
            self._transmit(now)

    def flush(self, now: Instant) -> None:
        """Send what the session has to say."""
        if self.phase in (ModemPhase.GREETING, ModemPhase.TALKING, ModemPhase.LEAVING):
            octets = self.session.take_output()
            if octets:
                self.up.send(octets, now)
                self._sent_at = self.busy_at = self.up.arrived_at
            self._transmit(now)

    # -- what the world says ------------------------------------------------------------------------------------

    def opened(self, now: Instant) -> None:
        """The connection is there."""
        self._turn(ModemEvent.OPENED)
        self.session.connect(self._clears_session)
        self.flush(now)
        self._until = max(now, self.up.arrived_at) + PATIENCE

    def received(self, chunk: bytes, now: Instant) -> None:
        """Bytes from the broker."""
        self.down.send(chunk, now)
        self._hear(now)

    def written(self) -> None:
        """The world has got rid of everything it was given."""
        if self.up.due is None:
            self.session.written()

    def ended(self, reason: str, now: Instant) -> None:
        """The connection is over, or there never was one."""
        self._end(reason, now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._transmit(now)
        self._hear(now)
        if self._lost_at is not None and now >= self._lost_at:
            least, most = self._radio.outage_us
            self._covered_at = now + (self._chance.randint(least, most) if most else 0)
            self.cut("radio lost", now)
        if self._until is not None and now >= self._until:
            self._run_out(now)
        alive_until = self._alive_until
        if alive_until is not None and now >= alive_until:
            if self._pinged_at is not None:
                self.cut("no answer to PINGREQ", now)
            else:
                self.session.ping()
                self.flush(now)
                self._pinged_at = self.up.arrived_at

    @property
    def _alive_until(self) -> Instant | None:
        """When the connection needs a sign of life: ours by PINGREQ (section 3.1.2.10), then the broker's."""
        if self.phase is not ModemPhase.TALKING:
            return None
        if self._pinged_at is not None:
            return self._pinged_at + ANSWER_WITHIN
        return self._sent_at + self.session.keep_alive_us * 3 // 4

    def _run_out(self, now: Instant) -> None:
        self._until = None
        if self.phase is ModemPhase.PAUSING:
            self.pause()
        elif self.phase in (ModemPhase.DIALLING, ModemPhase.GREETING):
            self.cut(f"no CONNACK in {PATIENCE // SECOND} s", now)
        else:
            self.cut("connection lost", now)

    def _close(self, now: Instant) -> None:
        self.session.is_up = False
        self._closes = True
        self._until = max(now, self.up.arrived_at) + ANSWER_WITHIN
        self._transmit(now)

    def _transmit(self, now: Instant) -> None:
        if octets := self.up.arrived(now):
            self._effects.append(octets)
        if self._closes and self.up.due is None:
            self._closes = False
            self._effects.append(ModemOrder.HANG_UP)

    def _hear(self, now: Instant) -> None:
        octets = self.down.arrived(now)
        if not octets or self.phase in (ModemPhase.SILENT, ModemPhase.PAUSING, ModemPhase.DIALLING):
            return
        self.busy_at, self._pinged_at = now, None
        try:
            self.session.receive(octets, now)
        except ProtocolError as error:
            self.cut(f"unreadable packet: {error.what}", now)
            return
        if self.session.refusal:
            self.cut(self.session.refusal, now)
        elif self.phase is ModemPhase.GREETING and self.session.is_up:
            self._accept(now)
        self.flush(now)

    def _accept(self, now: Instant) -> None:
        self._turn(ModemEvent.ACCEPTED)
        self._until, self._since = None, now
        if self._clears_session:
            self.disconnect(now)
            return
        self._is_online = True
        self._ledger.connected += 1
        self._ledger.online += 1
        self._ledger.reconnects += self.connections > 0
        self.connections += 1
        self._lost_at = self._radio.next_loss(self._chance, now)
        self.state_handler("", now)
        self.session.send_queued(now)
        self.reconnects_due = max(0, self.reconnects_due - 1)
        if self.reconnects_due:
            self.hang_up(now)

    def _end(self, reason: str, now: Instant) -> None:
        if self.phase is ModemPhase.GREETING and reason == "connection lost":
            reason = "closed before CONNACK"  # who comes too fast for a broker is turned away without a word
        reason = self.session.refusal or reason
        dropped = self.phase is ModemPhase.DROPPING
        good = dropped or (self._is_online and now - self._since >= STOOD)
        if self.phase is not ModemPhase.LEAVING:
            self._ledger.losses["dropped on purpose" if dropped else reason] += 1
            if not self._is_online or self.session.refusal:
                self.last_refusal = reason
        if self._is_online:
            self.state_handler(reason, now)
        self._ledger.online -= self._is_online
        self._is_online = self._closes = False
        self.is_unreachable = self.phase is ModemPhase.DIALLING
        self._turn(ModemEvent.ENDED)
        self.session.connection_lost()
        self.up.lose_all(now)
        self.down.lose_all(now)
        self._lost_at = self._pinged_at = self._until = None
        if self.phase is ModemPhase.PAUSING:
            pause = AT_ONCE if dropped and self.reconnects_due else self._next_pause(good)
            self._until = max(now + pause, self._covered_at, self.up.free_at)

    def _next_pause(self, good: bool) -> Duration:
        """Decorrelated jitter: between the least and three times the last, so that who was cut together comes apart."""
        if good:
            self._pause = PAUSE_LEAST
        self._pause = min(self._pause_most, self._chance.randint(PAUSE_LEAST, 3 * self._pause))
        return self._pause

    def _turn(self, turn: ModemEvent) -> None:
        self.phase = NEXT[self.phase, turn]
