"""A device as a whole: processor, sensors, battery and modem on one clock that is passed in. No I/O.

A world calls `wake` at `due`, and after each call executes `take_orders` on the connection.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random
from typing import Final

from edgebridge.wire.packets import Publish
from edgebroker.instants import SECOND, Duration, Instant
from edgedevices.battery import Battery
from edgedevices.firmware import INSTANT, Firmware, FirmwareEvent, FirmwareState, FirmwareTimes
from edgedevices.message import DeviceMessage, MessageSource
from edgedevices.mischief import BROKEN_PACKETS, JUMP_US, Mischief, Prank, garbage
from edgedevices.modem import Effect, Modem, ModemPhase
from edgedevices.radio import WIRED, RadioKind

FLASH_US: Final[Duration] = 2 * SECOND
"""How long a device writes a received image to its flash."""


@dataclass(frozen=True, slots=True)
class StationParts:
    """The parts of a device, besides its sensors."""

    pace: FirmwareTimes = INSTANT
    radio: RadioKind = WIRED
    batch: int = 1
    """Number of messages for which a radio that is not always on is switched on."""
    starts_online: bool = True
    """Whether the clock of the source starts with the first connection, not with the first boot."""
    tells: bool = False
    """Whether messages have the device's own clock (`clock_s`) and firmware (`version`)."""
    gives_up: bool = False
    """Whether it gives up when a broker refuses it for good, instead of retrying."""
    update_fails: Mapping[int, float] = field(default_factory=dict)
    """By version, the probability that an update to it fails and leaves the old firmware."""


class SilentSource:
    """The source of a station without messages of its own."""

    patient = False
    due_us: Duration | None = None

    def emit(self) -> DeviceMessage:
        """See `MessageSource`."""
        raise LookupError("nothing is due, ever")


class Station:
    """One device. *boots_at* counts from `begin`. *battery*: None means mains power."""

    def __init__(
        self,
        source: MessageSource,
        modem: Modem,
        parts: StationParts,
        random_source: Random,
        boots_at: Duration = 0,
        battery: Battery | None = None,
        mischief: Sequence[Mischief] = (),
    ) -> None:
        self.source = source
        self.modem = modem
        self.session = modem.session
        self.firmware = Firmware(parts.pace)
        self.battery = battery
        self.boots = 0
        self.updates_failed = 0
        self.pranks = Counter[Prank](
            mischief_item.prank for mischief_item in mischief if mischief_item.prank is Prank.DUPLICATE_ID
        )
        """How often it misbehaved."""
        self._parts = parts
        self._random = random_source
        self._boots_at: Instant | None = None
        self._boots_after = boots_at
        self._mischief = mischief
        self._pranks_due: list[tuple[Instant, Mischief]] = []
        self._started: Instant | None = None
        self._update: int | None = None  # version of a received image
        self._clock_error: Duration = 0
        self._is_garbling = False
        self._airtime_paid: Duration = 0
        self._is_stopped = False
        self.session.publish_handler = self._on_publish

    @property
    def name(self) -> str:
        """The device's name."""
        return self.session.identity.device

    @property
    def is_gone(self) -> bool:
        """Whether its battery is empty."""
        return self.firmware.state is FirmwareState.EMPTY

    @property
    def has_begun(self) -> bool:
        """Whether the clock of its source is running."""
        return self._started is not None

    @property
    def has_ended(self) -> bool:
        """Whether it will not publish anything more by itself."""
        is_refused = self._is_stopped and self.session.is_denied
        return self.is_gone or is_refused or (self.source.due_us is None and self.firmware.state is FirmwareState.SLEEP)

    @property
    def is_drained(self) -> bool:
        """Whether every message has its fate."""
        return self.session.is_drained

    @property
    def is_over(self) -> bool:
        """Whether it has disconnected, as far as possible: an unreachable broker is not waited for."""
        has_left = self.modem.phase is ModemPhase.SILENT and not self._wanted_connection()[0]
        return self.is_gone or (self._is_stopped and self.is_drained and (has_left or self.modem.is_unreachable))

    @property
    def due(self) -> Instant | None:
        """When to call `wake`; None: only after an event."""
        if self.is_gone:
            return None
        firmware = self.firmware
        dues = [firmware.until, self.modem.due, self._source_due, self._idle_at]
        if firmware.state is FirmwareState.OFF:
            dues.append(None if self._is_stopped else self._boots_at)
        elif self.battery is not None:
            dues.append(self.battery.empty_at)
        if self._pranks_due and firmware.runs and not self._is_stopped:
            dues.append(self._pranks_due[0][0])
        return min((at for at in dues if at is not None), default=None)

    def take_orders(self) -> list[Effect]:
        """Returns the commands for the world, in order."""
        return self.modem.take_orders()

    # -- the run ------------------------------------------------------------------------------------------------

    def begin(self, now: Instant) -> None:
        """Begins the run: the device boots after its delay."""
        self._boots_at = now + self._boots_after

    def stop(self) -> None:
        """Stops measuring; disconnects when every message has its fate."""
        if not self._is_stopped and not self.is_gone:
            self._is_stopped = True
            self.session.enqueue_offline()

    def give_up(self, cause: str) -> None:
        """Records messages without a fate as failed, and disconnects."""
        self._is_stopped = True
        self.session.fail_all(cause)

    # -- events ---------------------------------------------------------------------------------------------------

    def wake(self, now: Instant) -> None:
        """Handles timers."""
        if self.is_gone:
            return
        if self._is_empty(now):
            self._switch_off(now)
            return
        self.modem.wake(now)
        self._run(now)
        self._misbehave(now)
        self._update_radio(now)

    def opened(self, now: Instant) -> None:
        """Reports that the TCP connection is open."""
        self.modem.opened(now)
        self._update_radio(now)

    def received(self, chunk: bytes, now: Instant) -> None:
        """Reports bytes from the broker."""
        self.modem.received(chunk, now)
        if self._parts.gives_up and self.session.is_denied:
            self.give_up(self.modem.last_refusal)
        self._run(now)
        self._update_radio(now)

    def written(self, now: Instant) -> None:
        """Reports that all bytes were passed to the system."""
        self.modem.written()
        self._update_radio(now)

    def ended(self, reason: str, now: Instant) -> None:
        """Reports that the connection has ended or could not be opened."""
        self.modem.ended(reason, now)
        self._update_radio(now)

    @property
    def _source_due(self) -> Instant | None:
        if self._started is None or self._is_stopped or self.firmware.state is not FirmwareState.SLEEP:
            return None
        due_us = self.source.due_us
        if due_us is None or (self.source.patient and not self.session.has_room):
            return None
        return self._started + due_us

    @property
    def _idle_at(self) -> Instant | None:
        """When a radio that is not always on has listened for long enough."""
        if self._parts.radio.always_on or self._is_stopped or not self.firmware.runs:
            return None
        if not self.modem.is_talking or not self.is_drained:
            return None
        return self.modem.busy_at + self._parts.radio.listen_us

    def _run(self, now: Instant) -> None:
        """Advances the processor as far as it can."""
        firmware = self.firmware
        while True:
            source_due = self._source_due
            if firmware.until is not None:
                if firmware.until > now:
                    return
                self._finish(now)
            elif firmware.state is FirmwareState.OFF:
                if self._boots_at is None or self._boots_at > now or self._is_stopped:
                    return
                firmware.handle(FirmwareEvent.POWER, now)
                self.boots += 1
            elif self._update is not None:
                firmware.handle(FirmwareEvent.ORDER, now, FLASH_US)
            elif source_due is not None and source_due <= now:
                firmware.handle(FirmwareEvent.DUE, now)
            else:
                return

    def _finish(self, now: Instant) -> None:
        """Completes the processor's present activity."""
        state = self.firmware.handle(FirmwareEvent.DONE, now)
        if state is FirmwareState.SENSE:
            self.session.enqueue(self._message(now))
        elif state is FirmwareState.UPDATE:
            self._reboot(now)
        elif self.boots == 1:
            if not self._parts.starts_online:
                self._started = now
            firsts = [(mischief_item.first(now, self._random), mischief_item) for mischief_item in self._mischief]
            self._pranks_due = sorted(
                ((at, mischief_item) for at, mischief_item in firsts if at is not None), key=lambda due: due[0]
            )

    def _reboot(self, now: Instant) -> None:
        """Restarts a flashed device, without DISCONNECT."""
        if self._update is not None and self._random.random() < self._parts.update_fails.get(self._update, 0.0):
            self.updates_failed += 1
        elif self._update is not None:
            self.firmware.version = self._update
        self._update = None
        self.boots += 1
        self.modem.cut("restarted", now)

    def _message(self, now: Instant) -> DeviceMessage:
        message = self.source.emit()
        if self._parts.tells:
            clock_us = now - (self._started or 0) + self._clock_error
            body = {**message.body, "clock_s": clock_us // 1_000 / 1_000, "version": self.firmware.version}
            message = replace(message, body=body)
        if self._is_garbling:
            self._is_garbling = False
            message = replace(message, raw=garbage(self._random))
        return message

    def _on_publish(self, publish: Publish) -> None:
        """Handles a received image, or another payload."""
        version = image_version(publish.payload)
        if version is not None and version > self.firmware.version:
            self._update = version

    def _switch_off(self, now: Instant) -> None:
        self.firmware.handle(FirmwareEvent.EMPTIED, now)
        self.modem.cut("battery empty", now)
        self.modem.pause()
        self.session.fail_all("battery empty")

    def _misbehave(self, now: Instant) -> None:
        while self._pranks_due and self._pranks_due[0][0] <= now and self.firmware.runs and not self._is_stopped:
            _, mischief = self._pranks_due.pop(0)
            self.pranks[mischief.prank] += 1
            _PRANK_HANDLERS[mischief.prank](self, mischief, now)
            again = mischief.next(now, self._random)
            if again is not None:
                self._pranks_due = sorted([*self._pranks_due, (again, mischief)], key=lambda due: due[0])

    # -- the connection -----------------------------------------------------------------------------------------

    def _update_radio(self, now: Instant) -> None:
        """Switches the radio on or off as needed, and updates the battery's current."""
        modem = self.modem
        if self.firmware.runs:
            if self._started is None and self.session.was_up:
                self._started = now
            self.session.send_queued(now)
            modem.flush(now)
            idle_at = self._idle_at
            wanted, clears_session = self._wanted_connection()
            if wanted:
                modem.dial(now, clears_session)
            elif modem.is_talking and (idle_at is None or idle_at <= now):
                modem.disconnect(now, forget=self._is_stopped)
            elif not modem.is_talking:
                modem.pause()
        if self.battery is not None:
            self._update_battery(self.battery, now)
            if self._is_empty(now):  # by the last transmission
                self._switch_off(now)

    def _is_empty(self, now: Instant) -> bool:
        if self.battery is None or self.firmware.state in (FirmwareState.OFF, FirmwareState.EMPTY):
            return False
        empty_at = self.battery.empty_at
        return empty_at is not None and empty_at <= now

    def _wanted_connection(self) -> tuple[bool, bool]:
        """Returns (whether a connection is wanted, whether only to delete the session)."""
        session, identity = self.session, self.session.identity
        if self._is_stopped and session.is_drained:
            return (not self.modem.is_talking and session.was_up and not session.is_clean), True
        # Also in MQTT 5: Mosquitto (2.0.11) does not save a session that a clean start began, whatever its expiry.
        clears_session = identity.lasts and not session.was_up and not session.is_clean
        is_due = self._is_stopped or self._parts.radio.always_on or len(session.queue) >= self._parts.batch
        has_output = bool(session.in_flight) or (self.modem.is_talking and not session.is_drained)
        return is_due or has_output, clears_session

    def _update_battery(self, battery: Battery, now: Instant) -> None:
        kind, airtime = battery.kind, self.modem.up.spent_us(now)
        currents = {
            FirmwareState.BOOT: kind.boot_ma,
            FirmwareState.SENSE: kind.sense_ma,
            FirmwareState.UPDATE: kind.update_ma,
        }
        current_ma = (
            0.0 if self.firmware.state is FirmwareState.OFF else currents.get(self.firmware.state, kind.sleep_ma)
        )
        if self.modem.phase not in (ModemPhase.SILENT, ModemPhase.PAUSING):
            current_ma += kind.listen_ma
        battery.consume(kind.send_ma, airtime - self._airtime_paid)
        self._airtime_paid = airtime
        battery.draw(current_ma, now)

    # -- pranks -------------------------------------------------------------------------------------------------

    def _jump(self, _: Mischief, __: Instant) -> None:
        self._clock_error += self._random.randint(*JUMP_US)

    def _drop(self, _: Mischief, now: Instant) -> None:
        self.modem.hang_up(now)

    def _storm(self, mischief: Mischief, now: Instant) -> None:
        self.modem.reconnects_due = mischief.times
        self.modem.hang_up(now)

    def _garble(self, _: Mischief, __: Instant) -> None:
        self._is_garbling = True

    def _babble(self, _: Mischief, now: Instant) -> None:
        self.modem.inject(self._random.choice(BROKEN_PACKETS), now)


_PRANK_HANDLERS: Final[dict[Prank, Callable[[Station, Mischief, Instant], None]]] = {
    Prank.CLOCK_JUMP: Station._jump,
    Prank.DROP: Station._drop,
    Prank.RECONNECT_STORM: Station._storm,
    Prank.GARBAGE_PAYLOAD: Station._garble,
    Prank.GARBAGE_PACKET: Station._babble,
}
"""Handlers of misbehaviour; a duplicate client identifier needs none."""


def image(version: int, count: int, random_source: Random) -> bytes:
    """Returns a firmware of *count* random bytes, behind a line with its version and digest."""
    content = random_source.randbytes(count)
    head = {"version": version, "blake2b": blake2b(content, digest_size=16).hexdigest()}
    return json.dumps(head).encode() + b"\n" + content


def image_version(payload: bytes) -> int | None:
    """Returns the version of an intact firmware; None for other payloads."""
    head, _, content = payload.partition(b"\n")
    try:
        fields = json.loads(head)
        version, digest = fields["version"], fields["blake2b"]
    except (ValueError, KeyError, TypeError, RecursionError):  # the last: `[[[[...`
        return None
    whole = blake2b(content, digest_size=16).hexdigest() == digest
    return version if whole and isinstance(version, int) else None
