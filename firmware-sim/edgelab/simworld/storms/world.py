"""The world of a storm: a federation with its disks, roads and devices, and the effects of faults on them.

An observer watches every disk and every line, so that an acknowledgement before the write is detected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from edgebridge.frontend.admin import RetainedClearError, clear_retained
from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.dialect import V5
from edgebridge.wire.framing import Framer
from edgebridge.wire.reasons import FAILURE
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions, OutboxOptions
from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgebroker.limits import JOURNAL_PAGE_MESSAGES
from edgebroker.overlay.link.handshake import Hello, ReceiveState, encode_hello
from edgebroker.storage.journal.recovery import RecoveryPass, recover
from edgebroker.storage.journal.segment_scan import SegmentScan
from edgelab.simworld.broker import ClientLine
from edgelab.simworld.client import PACKET_BYTES_MAX
from edgelab.simworld.conditions import FAIR
from edgelab.simworld.disk import Disk
from edgelab.simworld.gateways import SimulatedGateway, SimulatedGateways
from edgelab.simworld.participant import Participant, PublishedMessage
from edgelab.simworld.roads import NOBODY, Road, RoadConditions, Wire, WireEnd
from edgelab.simworld.simulation import Action, Simulation
from edgelab.simworld.store import OPTIONS, SimulatedStore
from edgelab.simworld.storms.device import CREW, StormDevice, StormParticipant
from edgelab.simworld.storms.shape import FederationShape

MARK: Final = re.compile(rb"<[a-z]+-\d+/\d+>")
"""The mark at the end of every payload, by which the message is found wherever it is stored."""
PUBACK: Final = 4
PUBREC: Final = 5


def marks(octets: bytes) -> list[bytes]:
    """Return the marks of messages whose end is in *octets*."""
    return MARK.findall(octets)


def mark_of(payload: bytes) -> bytes:
    """Return the mark of one message."""
    (mark,) = MARK.findall(payload)
    return bytes(mark)


class StormObserver:
    """Watches disks and lines."""

    def __init__(self, gateways: SimulatedGateways, devices: Mapping[str, StormParticipant]) -> None:
        self.stored: dict[str, set[bytes]] = {}
        """Gateway -> marks that were written to its platter."""
        self.early_acks: list[tuple[str, bytes, Instant]] = []
        """Gateway, payload and time of acknowledgements before the message was on the platter."""
        self._devices = devices
        self._framers: dict[ClientLine, Framer] = {}
        for gateway in gateways:
            seen = self.stored[gateway.name] = set()
            assert gateway.store is not None
            gateway.store.disk.watch = partial(_note_marks, seen)
            gateway.watch = partial(self._written, gateway.name)

    def _written(self, gateway: str, line: ClientLine, data: bytes) -> None:
        framer = self._framers.get(line)
        if framer is None:
            framer = self._framers[line] = Framer(PACKET_BYTES_MAX)
        framer.feed(data)
        while (frame := framer.next_frame()) is not None:
            first, body = frame
            if first >> 4 in (PUBACK, PUBREC) and (len(body) < 3 or body[2] < FAILURE):
                self._acknowledged(gateway, line, int.from_bytes(body[:2]))

    def _acknowledged(self, gateway: str, line: ClientLine, packet_id: int) -> None:
        device = self._devices.get(line.peer)
        if device is None or device.client.line is not line:
            return
        payload = device.pending_payload(packet_id)
        # Who walks may have its acknowledgement from another gateway than the one that took the message.
        stored = self.stored.values() if device.has_walked else (self.stored[gateway],)
        if payload is not None and not any(mark_of(payload) in seen for seen in stored):
            self.early_acks.append((gateway, payload, device.home.simulation.now))


def _note_marks(seen: set[bytes], octets: bytes) -> None:
    seen.update(marks(octets))


TERMS: Final = FrontendOptions(out_bytes_max=4_096, inflight_max=20)
"""Limits so small that they are reached for clients that do not read: QoS 0 beyond them is dropped, QoS 1 and 2
wait.
"""
ROOM: Final = 1 << 40
PACKET_BYTES: Final = 256
"""The largest packet of a storm."""
HELD_BYTES_MAX: Final = TERMS.out_bytes_max + TERMS.inflight_max * PACKET_BYTES
"""The most bytes in front of a client that does not read: QoS 0 up to its limit, and a window of QoS 1 and 2."""
SLOW_SYNC: Final = (20 * MILLISECOND, 400 * MILLISECOND)
PLACES: Final = 5
APART: Final = 0.618
ASK_DELAYS: Final = (MILLISECOND, 20 * MILLISECOND, 80 * MILLISECOND)
"""Those of links inside a site, of uplinks over fibre and over a mobile network."""
UNTOLD: Final = "untold"
"""The disturbance of a gateway that lost its power, until its peers must have detected it."""
FOUND_OUT: Final[Duration] = 14 * SECOND
"""The longest time after its return, by heartbeats (docs/link-protocol.md)."""
DEAD_AFTER_S: Final = 1
"""In every other storm, a gateway is dead so soon, so that others publish its clients' wills."""
SESSION_WAIT_MS: Final = 3_600_000
"""No gateway is dead for so long, so that each client that walks finds its session."""
LATE_PACE: Final[Duration] = SECOND // 20


class Disturbance(NamedTuple):
    """A period with a fault."""

    kind: str
    where: str
    begin: Instant
    end: Instant


class StormWorld:
    """Everything in a storm. `devices` and `roads` by name; the name of a road is that of its ends, as `a0~a1`."""

    def __init__(
        self,
        seed: int,
        shape: FederationShape,
        devices: Iterable[StormDevice],
        page_messages: int = JOURNAL_PAGE_MESSAGES,
        roams: bool = False,
    ) -> None:
        """roams: devices walk. Otherwise gateways keep no directory of sessions, which would change every storm."""
        devices = tuple(devices)
        self.simulation = Simulation(seed)
        self.shape = shape
        self.is_crew_spread = len({one.home for one in devices if one.kind in CREW}) > 1
        """Whether the group of the crew is shared over the federation."""
        self.has_impatient_keepers = bool(seed % 2)
        """Whether a gateway counts as dead after DEAD_AFTER_S."""
        self.gateways = SimulatedGateways(
            self.simulation,
            shape.topology(),
            is_stored=True,
            journal_options=replace(OPTIONS, page_messages=page_messages),
            is_logged=True,
            options=replace(TERMS, federated_groups=("crew",)) if self.is_crew_spread else TERMS,
            federation_options=FederationOptions(
                is_dynamic=shape.is_dynamic,
                lease_s=shape.lease_s,
                dead_gateway_wills_after_s=(
                    DEAD_AFTER_S if self.has_impatient_keepers else DEFAULT_OPTIONS.dead_gateway_wills_after_s
                ),
                roams=roams,
                session_wait_ms=SESSION_WAIT_MS,
                outbox=OutboxOptions(messages_max=shape.outbox_messages),
            ),
        )
        self.roads: dict[str, Road] = {"~".join(sorted(ends)): road for ends, road in self.gateways.roads.items()}
        self.devices = {one.name: StormParticipant(one, self.gateways[one.home], seed) for one in devices}
        self.observer = StormObserver(self.gateways, self.devices)
        self.disturbances: list[Disturbance] = []
        self.broken: list[tuple[str, str]] = []
        """Broken promises detected during the storm, with descriptions."""
        self.damaged: dict[str, Instant] = {}
        """Gateway -> the time of the first damage to its journal."""
        self.excused: set[bytes] = set()
        """Marks of messages on a damaged disk, which need not be delivered any more."""
        self.wills_due: list[tuple[str, PublishedMessage]] = []
        """Device and will of each line that broke while it was connected."""
        self.latecomers: list[StormParticipant] = []
        """Devices that connect after the storm, and subscribe to retained messages."""
        self.cleared: set[str] = set()
        """Topics that `clear_elsewhere` cleared."""
        self.last_comers: list[StormParticipant] = []
        """Devices that connect when all that was retained has been cleared."""
        self.strangers: list[tuple[Wire, Instant]] = []
        """Connections of strangers to gateways, and when they were opened."""
        self.is_over = False
        """Whether the faults are over, so that everything recovers."""

    @property
    def is_connected(self) -> bool:
        """Return whether every link is up, and both of its ends have the same connection."""
        return all(
            (wire := gateway.wire_to(peer)) is not None and wire is other.wire_to(gateway.name)
            for gateway in self.gateways
            for peer, other in ((link.peer, self.gateways[link.peer]) for link in gateway.overlay.links)
        )

    @property
    def disturbed_gateways(self) -> set[str]:
        """Return the gateways that were off, or whose disk failed."""
        return {disturbance.where for disturbance in self.disturbances if disturbance.where in self.gateways.by_name}

    def after(self, delay: Duration, action: Action) -> None:
        """Plan *action* for *delay* from now."""
        self.simulation.after(delay, action)

    def schedule_fault(self, when: Instant, kind: str, where: str, lasts: Duration, strike: Action) -> None:
        """Plan a fault of *kind*, which lasts at most *lasts*, and record it."""

        def happen() -> None:
            self.record_disturbance(kind, where, lasts)
            strike()

        self.simulation.at(when, happen)

    def store(self, gateway: str) -> SimulatedStore:
        """Return the disk of a gateway, over all its runs."""
        store = self.gateways[gateway].store
        assert store is not None
        return store

    def record_disturbance(self, kind: str, where: str, lasts: Duration) -> None:
        """Record a disturbance that begins now."""
        now = self.simulation.now
        self.disturbances.append(Disturbance(kind, where, now, now + lasts))

    def slow_down(self) -> None:
        """Make slow disks slow from now on."""
        for name in self.shape.slow_disks:
            self.store(name).disk.sync_us = SLOW_SYNC

    # -- strangers --------------------------------------------------------------------------------------------------

    def visit(self, name: str, says: bytes) -> None:
        """Open a connection to gateway *name*, by somebody who says no more than *says*."""
        Road(self.simulation, RoadConditions()).connect(
            partial(self._visited, says), self.gateways[name].answer, _failed
        )

    def _visited(self, says: bytes, wire: Wire) -> WireEnd:
        self.strangers.append((wire, self.simulation.now))
        if says:
            wire.lanes[0].write(says)
        return NOBODY

    def pretend(self, claimed: str, target: str, ahead: int) -> None:
        """Greet gateway *target* as if this were *claimed*, and acknowledge messages that it never sent: *ahead* more
        than it did.
        """
        own, links = self.gateways[claimed].overlay.links.identity, self.gateways[target].overlay.links
        received = {service: queue.sent_upto + ahead for service, queue in links[claimed].outbox.queues.items()}
        state = ReceiveState(links.identity.run, links.identity.store, received)
        count = self.roads["~".join(sorted((claimed, target)))].dials + 1  # as many hellos as dials at most
        hello = Hello(own.federation, claimed, own.number, own.topology, own.run, own.store, count, target, state)
        self.visit(target, encode_hello(hello))

    # -- roads ----------------------------------------------------------------------------------------------------

    def set_conditions(self, where: str, road_conditions: RoadConditions, lasts: Duration) -> None:
        """Change the conditions of a road for a while."""
        road = self.roads[where]
        road.conditions = road_conditions
        self.after(lasts, partial(_set_conditions, road, RoadConditions()))

    def shake(self, where: str) -> None:
        """Break every connection over a road, unless the storm is over."""
        if not self.is_over:
            self.roads[where].shake()

    # -- gateways -------------------------------------------------------------------------------------------------

    def power_off(self, name: str, is_power_cut: bool, lasts: Duration) -> bool:
        """Switch a gateway off for a while. Returns False if it is off already, or the storm is over."""
        gateway = self.gateways[name]
        if gateway.is_off or self.is_over:
            return False
        gateway.power_off(is_power_cut)
        self.record_disturbance("off", name, lasts)
        if is_power_cut:
            self.record_disturbance(UNTOLD, name, lasts + FOUND_OUT)
        self.after(lasts, partial(self.power_on, gateway))
        return True

    def power_on(self, gateway: SimulatedGateway) -> None:
        """Start a new run of a gateway, if it is off."""
        if gateway.is_off:
            gateway.power_on()

    def corrupt_journal(self, name: str, place: float) -> None:
        """Flip a bit in the journal of a gateway that is off. P8: recovery must report it, and alter nothing.

        Before that, other bits are tried, one at a time.
        """
        disk, now = self.store(name).disk, self.simulation.now
        # Much of a journal is zeros up to the next sector, where a flipped bit has no effect.
        bits = [
            (file_name, 8 * at)
            for file_name in disk.names()
            for at, octet in enumerate(disk.files[file_name].cache)
            if octet
        ]
        if not bits:
            return
        before: list[tuple[int, bytes]] = []
        recover(disk, lambda lsn, record: before.append((lsn, record)))
        written = _records_on(disk)
        after: list[tuple[int, bytes]] = []
        for number in reversed(range(PLACES)):
            position = (place + number * APART) % 1
            file_name, bit = bits[int(position * len(bits))]
            bit += int(position * 8 * len(bits)) % 8
            disk.flip(file_name, bit)
            after.clear()
            report = recover(disk, lambda lsn, record: after.append((lsn, record)))
            if altered := [lsn for lsn, record in after if (lsn, record) not in written]:
                self.broken.append(("P8", f"{name} was given records {altered} that nobody wrote, after a bit flipped"))
            is_reported = report is None or report.damage or report.torn is not None or report.strangers
            if before != after and not is_reported:
                lost = len(before) - len(after)
                self.broken.append(("P8", f"{name} lost {lost} records by a flipped bit, and recovery told nothing"))
            if number:
                disk.flip(file_name, bit)  # flip back: only the last flip remains
        if before == after:
            return
        self.damaged.setdefault(name, now)
        for _, record in before:
            self.excused.update(marks(record))
        for device in self.devices.values():
            if device.home is self.gateways[name]:
                device.unsure_since = now if device.unsure_since is None else device.unsure_since
                device.subscribed.clear()  # recovery reports the damage to the operator, and devices subscribe again

    def fill_disk(self, name: str, room: int, lasts: Duration) -> None:
        """Limit the disk of a gateway to *room* more bytes, for a while."""
        store = self.store(name)
        store.disk.bytes_max = store.disk.bytes_used + room

        def free() -> None:
            store.disk.bytes_max = ROOM

        self.after(lasts, free)

    def fail_disk(self, name: str, share: float, lasts: Duration) -> None:
        """Let syncs and writes of a gateway's disk fail, for a while."""
        store = self.store(name)
        store.disk.sync_fails, store.disk.write_fails = share, share / 4

        def heal() -> None:
            store.disk.sync_fails = store.disk.write_fails = 0.0

        self.after(lasts, heal)

    # -- the end --------------------------------------------------------------------------------------------------

    def end_faults(self) -> None:
        """End all faults, for the rest of the run."""
        self.measure()
        self.is_over = True
        for road in self.roads.values():
            road.conditions = RoadConditions()
            road.mend()
        for gateway in self.gateways:
            disk = self.store(gateway.name).disk
            disk.bytes_max, disk.sync_fails, disk.write_fails = ROOM, 0.0, 0.0
            self.power_on(gateway)
        for device in self.devices.values():
            device.is_resting = True
            if device.client.line is not None and device.client.line.to_client.stalled:
                device.client.line.resume()

    def stall(self, name: str, lasts: Duration) -> None:
        """Let a device stop reading for a while."""
        client = self.devices[name].client
        line = client.line
        if line is None:
            return
        line.stall()

        def resume() -> None:
            self.measure()
            if line is client.line and line.to_client.stalled:
                line.resume()

        self.after(lasts, resume)

    def measure(self) -> None:
        """P6: check that the output buffered for clients that do not read is within its bound."""
        for gateway in self.gateways:
            for connection in gateway.frontend.connections.values():
                if connection.out_bytes > HELD_BYTES_MAX:
                    bytes_ = f"{connection.out_bytes:,} bytes"
                    self.broken.append(
                        ("P6", f"{gateway.name} holds {bytes_} for {connection.peer}, who does not read")
                    )

    def break_line(self, name: str) -> None:
        """Break the line of a device, unless the storm is over; its gateway notices at once, and publishes its will."""
        device = self.devices[name]
        if self.is_over:
            return
        if device.is_ready and device.wills:
            self.wills_due.append((name, device.wills[-1]))
        device.cut()

    def walk(self, name: str, share: float) -> None:
        """Let a device connect to another gateway: the one at *share*, from 0 to 1, of all others."""
        device = self.devices[name]
        if not self.is_over:
            others = [one for one in self.gateways if one is not device.home]
            device.walk(others[int(share * len(others))])

    def add_latecomers(self, gateways: Iterable[str], kind: str = "late") -> None:
        """Connect a new device at each of *gateways*, which subscribes to everything that is retained. *kind*: the
        first part of its name.
        """
        self.latecomers += [self._latecomer(kind, name) for name in gateways]

    def clear_elsewhere(self) -> None:
        """Clear what each device had retained, at the next gateway of its site, which others may do as well."""
        for device in self.devices.values():
            if device.device.retains:
                home = self.gateways.topology.gateway(device.home.name)
                site = sorted({home.name, *home.neighbours})
                where = site[(site.index(home.name) + 1) % len(site)]
                topic = f"kept/{device.name}"
                with suppress(RetainedClearError):  # its disk may still be full
                    self.gateways[where].operate(partial(clear_retained, topic=topic, now=self.simulation.now))
                    self.cleared.add(topic)

    def forget_clearings(self) -> None:
        """Leave out of what everybody received that something was cleared: only its publisher knows what is due."""
        for one in (*self.devices.values(), *self.latecomers, *self.last_comers):
            one.received = [received for received in one.received if received.payload]

    def add_last_comers(self, gateways: Iterable[str]) -> None:
        """As `add_latecomers`, after `clear_elsewhere`."""
        self.last_comers += [self._latecomer("last", name) for name in gateways]

    def ask(self, home: str) -> None:
        """Let a client of the gateway *home* subscribe. As soon as it has SUBACK, a client of each other gateway
        publishes what it wants, under a topic prefix that was in use before: P2, unless SUBACK waited in vain. Links
        have different delays.
        """
        for road in self.gateways.roads.values():
            delay = self.simulation.random.choice(ASK_DELAYS)
            road.conditions = RoadConditions((delay, delay))
        asker = Participant(f"asker-{home}", self.gateways[home], V5, False, 20, FAIR)
        others = [one for one in self.gateways if one.name != home]
        answerers = [Participant(f"answerer-{one.name}", one, V5, False, 20, FAIR) for one in others]
        for each in (asker, *answerers):
            each.connect()
        self.run_for(SECOND)
        for answerer in answerers:
            answerer.publish("answers/to/nobody", b"", 0)
        self.run_for(2 * SECOND)
        in_vain = self.gateways[home].overlay.held_subacks.outcomes["timed_out"]
        asker.subscribe("answers/to/asker", 0)
        if not self.run_until(2 * SECOND, lambda: bool(asker.subscribed), MILLISECOND):
            self.broken.append(("P2", f"{asker.name} has no SUBACK after two seconds"))
        for answerer in answerers:
            answerer.publish("answers/to/asker", answerer.name.encode(), 0)
        self.run_for(2 * SECOND)
        for device in self.devices.values():  # one that wants everything
            device.received = [each for each in device.received if each.topic != "answers/to/asker"]
        answers = {received.payload.decode() for received in asker.received}
        missing = [answerer.name for answerer in answerers if answerer.name not in answers]
        if missing and self.is_connected and self.gateways[home].overlay.held_subacks.outcomes["timed_out"] == in_vain:
            self.broken.append(("P2", f"{asker.name} has SUBACK, and gets nothing from {', '.join(missing)}"))

    def _latecomer(self, kind: str, gateway: str) -> StormParticipant:
        device = StormDevice(
            f"{kind}-{gateway}", "late", gateway, True, False, 20, ("kept/#",), LATE_PACE, 0, False, False, False
        )
        latecomer = StormParticipant(device, self.gateways[gateway], self.simulation.seed)
        latecomer.is_resting = True
        latecomer.begin()
        return latecomer

    def run_for(self, length: Duration) -> None:
        """Advance the time by *length*."""
        self.simulation.run_until(self.simulation.now + length)

    def run_until(self, longest: Duration, is_done: Callable[[], bool], step: Duration = SECOND // 4) -> bool:
        """Advance the time until *is_done*, but no longer than *longest*. Returns whether it is."""
        end = self.simulation.now + longest
        while not is_done() and self.simulation.now < end:
            self.run_for(step)
        return is_done()


def _failed() -> None:
    """Nobody listens there, and a stranger does not mind."""


def _set_conditions(road: Road, road_conditions: RoadConditions) -> None:
    road.conditions = road_conditions


def _records_on(disk: Disk) -> set[tuple[int, bytes]]:
    """Return all records in the files of a journal, also obsolete ones.

    If the header that marks them as obsolete is damaged, recovery begins with them.
    """
    written: set[tuple[int, bytes]] = set()
    survey = SegmentScan(disk)
    if survey.segments:
        replay = RecoveryPass(disk, survey, lambda lsn, records: written.update(enumerate(records, lsn)))
        replay.report.replay_from = min(header.first_lsn for _, header in survey.segments)
        replay.run()
    return written
