"""A device as a whole: processor, sensors, battery and modem on one clock that is handed in. No I/O.

A world calls `wake` whenever `due` says so, and after each call does what `take` tells it to do with the connection.
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
"""How long a device writes to its flash, when an image has arrived."""


@dataclass(frozen=True, slots=True)
class StationParts:
    """What a device is made of, besides its sensors."""

    pace: FirmwareTimes = INSTANT
    radio: RadioKind = WIRED
    batch: int = 1
    """A radio that is not always on is switched on for that many messages."""
    starts_online: bool = True
    """Whether the clock of the source starts with the first connection, not with the first boot."""
    tells: bool = False
    """Whether messages say what the device thinks of its clock (`clock_s`) and its firmware (`version`)."""
    gives_up: bool = False
    """Whether it leaves when a broker refuses it for good, instead of asking again and again."""
    update_fails: Mapping[int, float] = field(default_factory=dict)
    """By version, the likelihood that an update to it leaves the old firmware."""


class SilentSource:
    """The source of what says only what it is told to say, or only listens."""

    patient = False
    due_us: Duration | None = None

    def emit(self) -> DeviceMessage:
        """See Source."""
        raise LookupError("nothing is due, ever")


class Station:
    """One device. *boots_at* counts from `begin`; what is None of *battery* has mains."""

    def __init__(
        self,
        source: MessageSource,
        modem: Modem,
        kit: StationParts,
        chance: Random,
        boots_at: Duration = 0,
        battery: Battery | None = None,
        mischief: Sequence[Mischief] = (),
    ) -> None:
        self.source = source
        self.modem = modem
        self.session = modem.session
        self.firmware = Firmware(kit.pace)
        self.battery = battery
        self.boots = 0
        self.updates_failed = 0
        self.pranks = Counter[Prank](one.prank for one in mischief if one.prank is Prank.DUPLICATE_ID)
        """How often it did what it should not."""
        self._kit = kit
        self._chance = chance
        self._boots_at: Instant | None = None
        self._boots_after = boots_at
        self._mischief = mischief
        self._pranks_due: list[tuple[Instant, Mischief]] = []
        self._started: Instant | None = None
        self._update: int | None = None  # the version of an image that has arrived
        self._clock_off: Duration = 0
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
        """Whether it will not say anything more by itself."""
        is_sent_away = self._is_stopped and self.session.is_denied
        return (
            self.is_gone or is_sent_away or (self.source.due_us is None and self.firmware.state is FirmwareState.SLEEP)
        )

    @property
    def is_drained(self) -> bool:
        """Whether everything it said has its fate."""
        return self.session.is_drained

    @property
    def is_over(self) -> bool:
        """Whether it has left, as far as it is going to: a broker that is not there is not waited for."""
        has_left = self.modem.phase is ModemPhase.SILENT and not self._wish()[0]
        return self.is_gone or (self._is_stopped and self.is_drained and (has_left or self.modem.is_unreachable))

    @property
    def due(self) -> Instant | None:
        """When `wake` is to be called; None: when something happens."""
        if self.is_gone:
            return None
        firmware = self.firmware
        dues = [firmware.until, self.modem.due, self._source_due, self._quiet_at]
        if firmware.state is FirmwareState.OFF:
            dues.append(None if self._is_stopped else self._boots_at)
        elif self.battery is not None:
            dues.append(self.battery.empty_at)
        if self._pranks_due and firmware.runs and not self._is_stopped:
            dues.append(self._pranks_due[0][0])
        return min((at for at in dues if at is not None), default=None)

    def take_orders(self) -> list[Effect]:
        """What the world is to do, in order."""
        return self.modem.take_orders()

    # -- the run ------------------------------------------------------------------------------------------------

    def begin(self, now: Instant) -> None:
        """The run begins: this device boots in a while."""
        self._boots_at = now + self._boots_after

    def stop(self) -> None:
        """Measure nothing more; leave when everything is said."""
        if not self._is_stopped and not self.is_gone:
            self._is_stopped = True
            self.session.enqueue_offline()

    def give_up(self, cause: str) -> None:
        """Book what has no fate as failed, and leave."""
        self._is_stopped = True
        self.session.fail_all(cause)

    # -- what happens -------------------------------------------------------------------------------------------

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        if self.is_gone:
            return
        if self._is_empty(now):
            self._perish(now)
            return
        self.modem.wake(now)
        self._run(now)
        self._misbehave(now)
        self._govern(now)

    def opened(self, now: Instant) -> None:
        """The connection is there."""
        self.modem.opened(now)
        self._govern(now)

    def received(self, chunk: bytes, now: Instant) -> None:
        """Bytes from the broker."""
        self.modem.received(chunk, now)
        if self._kit.gives_up and self.session.is_denied:
            self.give_up(self.modem.last_refusal)
        self._run(now)
        self._govern(now)

    def written(self, now: Instant) -> None:
        """The world has got rid of everything it was given."""
        self.modem.written()
        self._govern(now)

    def ended(self, reason: str, now: Instant) -> None:
        """The connection is over, or there never was one."""
        self.modem.ended(reason, now)
        self._govern(now)

    @property
    def _source_due(self) -> Instant | None:
        if self._started is None or self._is_stopped or self.firmware.state is not FirmwareState.SLEEP:
            return None
        due_us = self.source.due_us
        if due_us is None or (self.source.patient and not self.session.has_room):
            return None
        return self._started + due_us

    @property
    def _quiet_at(self) -> Instant | None:
        """When a radio that is not always on has listened for long enough."""
        if self._kit.radio.always_on or self._is_stopped or not self.firmware.runs:
            return None
        if not self.modem.is_talking or not self.is_drained:
            return None
        return self.modem.busy_at + self._kit.radio.listen_us

    def _run(self, now: Instant) -> None:
        """Let the processor go on as far as it can."""
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
        """What the processor was doing is done."""
        state = self.firmware.handle(FirmwareEvent.DONE, now)
        if state is FirmwareState.SENSE:
            self.session.enqueue(self._message(now))
        elif state is FirmwareState.UPDATE:
            self._reboot(now)
        elif self.boots == 1:
            if not self._kit.starts_online:
                self._started = now
            firsts = [(one.first(now, self._chance), one) for one in self._mischief]
            self._pranks_due = sorted(((at, one) for at, one in firsts if at is not None), key=lambda due: due[0])

    def _reboot(self, now: Instant) -> None:
        """A flashed device starts anew, without having said good-bye."""
        if self._update is not None and self._chance.random() < self._kit.update_fails.get(self._update, 0.0):
            self.updates_failed += 1
        elif self._update is not None:
            self.firmware.version = self._update
        self._update = None
        self.boots += 1
        self.modem.cut("restarted", now)

    def _message(self, now: Instant) -> DeviceMessage:
        message = self.source.emit()
        if self._kit.tells:
            clock_us = now - (self._started or 0) + self._clock_off
            body = {**message.body, "clock_s": clock_us // 1_000 / 1_000, "version": self.firmware.version}
            message = replace(message, body=body)
        if self._is_garbling:
            self._is_garbling = False
            message = replace(message, raw=garbage(self._chance))
        return message

    def _on_publish(self, publish: Publish) -> None:
        """An image has arrived, or something that is none."""
        version = image_version(publish.payload)
        if version is not None and version > self.firmware.version:
            self._update = version

    def _perish(self, now: Instant) -> None:
        self.firmware.handle(FirmwareEvent.EMPTIED, now)
        self.modem.cut("battery empty", now)
        self.modem.pause()
        self.session.fail_all("battery empty")

    def _misbehave(self, now: Instant) -> None:
        while self._pranks_due and self._pranks_due[0][0] <= now and self.firmware.runs and not self._is_stopped:
            _, mischief = self._pranks_due.pop(0)
            self.pranks[mischief.prank] += 1
            _PLAY[mischief.prank](self, mischief, now)
            again = mischief.next(now, self._chance)
            if again is not None:
                self._pranks_due = sorted([*self._pranks_due, (again, mischief)], key=lambda due: due[0])

    # -- the connection -----------------------------------------------------------------------------------------

    def _govern(self, now: Instant) -> None:
        """See that the radio is on or off, as it should be, and that the battery feels it."""
        modem = self.modem
        if self.firmware.runs:
            if self._started is None and self.session.was_up:
                self._started = now
            self.session.send_queued(now)
            modem.flush(now)
            quiet_at = self._quiet_at
            wanted, clears_session = self._wish()
            if wanted:
                modem.dial(now, clears_session)
            elif modem.is_talking and (quiet_at is None or quiet_at <= now):
                modem.disconnect(now, forget=self._is_stopped)
            elif not modem.is_talking:
                modem.pause()
        if self.battery is not None:
            self._pay(self.battery, now)
            if self._is_empty(now):  # that was the last transmission
                self._perish(now)

    def _is_empty(self, now: Instant) -> bool:
        if self.battery is None or self.firmware.state in (FirmwareState.OFF, FirmwareState.EMPTY):
            return False
        empty_at = self.battery.empty_at
        return empty_at is not None and empty_at <= now

    def _wish(self) -> tuple[bool, bool]:
        """(whether a connection is wanted, whether only to be forgotten)."""
        session, identity = self.session, self.session.identity
        if self._is_stopped and session.is_drained:
            return (not self.modem.is_talking and session.was_up and not session.is_clean), True
        # Also in MQTT 5: Mosquitto (2.0.11) does not save a session that a clean start began, however long it lasts.
        clears_session = identity.lasts and not session.was_up and not session.is_clean
        is_due = self._is_stopped or self._kit.radio.always_on or len(session.queue) >= self._kit.batch
        is_unsaid = bool(session.in_flight) or (self.modem.is_talking and not session.is_drained)
        return is_due or is_unsaid, clears_session

    def _pay(self, battery: Battery, now: Instant) -> None:
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
        self._clock_off += self._chance.randint(*JUMP_US)

    def _drop(self, _: Mischief, now: Instant) -> None:
        self.modem.hang_up(now)

    def _storm(self, mischief: Mischief, now: Instant) -> None:
        self.modem.reconnects_due = mischief.times
        self.modem.hang_up(now)

    def _garble(self, _: Mischief, __: Instant) -> None:
        self._is_garbling = True

    def _babble(self, _: Mischief, now: Instant) -> None:
        self.modem.inject(self._chance.choice(BROKEN_PACKETS), now)


_PLAY: Final[dict[Prank, Callable[[Station, Mischief, Instant], None]]] = {
    Prank.CLOCK_JUMP: Station._jump,
    Prank.DROP: Station._drop,
    Prank.RECONNECT_STORM: Station._storm,
    Prank.GARBAGE_PAYLOAD: Station._garble,
    Prank.GARBAGE_PACKET: Station._babble,
}
"""How each is done; an identifier that is somebody else's is no deed."""


def image(version: int, count: int, chance: Random) -> bytes:
    """A firmware of *count* random bytes, behind a line that says its version and digest."""
    content = chance.randbytes(count)
    head = {"version": version, "blake2b": blake2b(content, digest_size=16).hexdigest()}
    return json.dumps(head).encode() + b"\n" + content


def image_version(payload: bytes) -> int | None:
    """The version of a firmware that arrived whole; None: it is none, or damaged."""
    head, _, content = payload.partition(b"\n")
    try:
        said = json.loads(head)
        version, digest = said["version"], said["blake2b"]
    except (ValueError, KeyError, TypeError, RecursionError):  # the last: `[[[[...`
        return None
    whole = blake2b(content, digest_size=16).hexdigest() == digest
    return version if whole and isinstance(version, int) else None
