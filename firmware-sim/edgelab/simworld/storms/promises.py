"""The promises P1 to P9, checked with full knowledge: published, received, acknowledged, and on disk when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.log_schema import DIGEST, Fate
from edgebroker.storage.deliverylog.reader import LogFile, read_segment
from edgelab.simworld.checkers import all_published, disordered, doubled, unaccounted, unbalanced, unwanted, wants
from edgelab.simworld.participant import Participant, PublishedMessage
from edgelab.simworld.storms.device import CREW, KEEPERS, QOS_ASKED, QUICK_WINDOW, SHARED, StormParticipant
from edgelab.simworld.storms.world import UNTOLD, Disturbance, StormWorld, mark_of

Broken: TypeAlias = tuple[str, str]
"""A promise and what broke it."""
BOUND: Final[Duration] = 2 * SECOND
"""How long a message may be under way between gateways that are connected somehow (P9), or on one gateway (P6)."""
SLOW_BOUND: Final[Duration] = 3 * SECOND
"""What each slow disk may add: a message waits for several syncs of up to 0.4 s."""
REROUTED: Final = frozenset({"cut", "process-death", "off"})
"""Faults that traffic goes around, as docs/overlay.md promises it. What is silent takes longer to be found out."""
FOUND: Final[Duration] = 2 * SECOND
"""After so long everybody knows what is down: a second, and the round trips in which it is told."""
LATE_KINDS: Final = frozenset({"stalled-line", "broken-line", "choked-line", "abandoned-line"})
DISKS: Final = frozenset({"full-disk", "failing-sync"})
HOLIDAY: Final = "holiday"
"""What is wrong with a device that is away of its own accord: it hears later, if not too late."""
CLOCKS: Final = frozenset({"no-clock", "jumped-clock", "drifting-clock"})
UNORDERED: Final = LATE_KINDS | {"delay", "limited-rate", "bandwidth-cliff"}
"""Faults that leave every link up: nothing goes another way, so order is kept (P4)."""


class PromiseChecker:
    """Judges *world* when everything is over."""

    def __init__(self, world: StormWorld) -> None:
        self._world = world
        self._everybody = list(world.devices.values())
        self._readers = [one for one in self._everybody if one.device.kind == "steady"]
        self._crew = [one for one in self._everybody if one.device.kind in CREW]
        self._is_crew_lasting = all(one.kept for one in self._crew)
        """Else a copy may be with a member whose session is not to last: it is not stored, and gone in a restart."""
        self._said = all_published(self._everybody)
        self._spells = list(world.disturbances)
        for one in self._everybody:
            self._spells += [Disturbance(HOLIDAY, one.name, begin, end + BOUND) for begin, end in one.holidays]
        self._bound = BOUND + SLOW_BOUND * len(world.shape.slow_disks)

    def broken(self) -> Iterator[Broken]:
        """Every promise that was not kept."""
        yield from self._world.broken
        yield from self._hasty()
        yield from self._lost()
        yield from self._unsaid()
        yield from self._forgotten()
        yield from self._sessions()
        yield from self._doubled()
        yield from self._shared()
        yield from self._disordered()
        for text in unwanted(list(self._everybody)):
            yield "P5", text
        yield from self._void()
        yield from self._stale()
        yield from self._slow()
        yield from self._pressed()
        yield from self._stopped()
        if not self._world.disturbances:
            for gateway in self._world.gateways:
                if again := gateway.overlay.peers.forwarder.duplicates:
                    yield "P3", f"{gateway.name} was sent {again} events again, and nothing was wrong anywhere"
        for gateway in self._world.gateways:
            for text in unaccounted(gateway, []):
                yield "P7", f"{gateway.name}: {text}"
        yield from self._logs()

    # -- durability -----------------------------------------------------------------------------------------------

    def _hasty(self) -> Iterator[Broken]:
        """P1: acknowledged, wanted by a sure reader, and not on the platter of the publisher's gateway then."""
        kinds = KEEPERS if self._is_crew_lasting else ("steady",)
        keepers = [one for one in self._everybody if one.device.kind in kinds]
        for gateway, payload, at in self._world.observer.early_acks:
            said = self._said[payload]
            for reader in keepers:
                if self._is_owed(reader, said) and (reader.unsure_since is None or at < reader.unsure_since):
                    yield "P1", f"{gateway} acknowledged {said}, which {reader.name} wants, before it was on disk"
                    break

    def _lost(self) -> Iterator[Broken]:
        """P2, and P5 as far as a filter hid what it should have shown."""
        excused = self._world.excused
        for reader in self._readers:
            heard = {one.payload for one in reader.received}
            for publisher in self._everybody:
                for said in publisher.published:
                    is_safe = said.payload in publisher.acknowledged and said.payload not in publisher.refused
                    if not is_safe or said.expiry_s or said.payload in heard or mark_of(said.payload) in excused:
                        continue
                    if self._is_owed(reader, said) and reader.unsure_since is None:
                        yield "P2", f"{reader.name} at {reader.home.name} missed {said} of {publisher.home.name}"

    def _unsaid(self) -> Iterator[Broken]:
        """P2: the will of a device whose line broke while nothing was wrong with any gateway."""
        world = self._world
        if world.disturbed_gateways:
            return
        for device, will in world.wills_due:
            for reader in self._readers:
                heard = {one.payload for one in reader.received}
                if self._is_owed(reader, will) and will.payload not in heard:
                    yield "P2", f"{reader.name} at {reader.home.name} missed the will {will} of {device}"

    def _forgotten(self) -> Iterator[Broken]:
        """P2: who subscribes when everything is over gets what was retained last, wherever that was."""
        world = self._world
        if world.damaged:
            return
        for publisher in self._everybody:
            kept = [said for said in publisher.published if said.retain and said.payload not in publisher.refused]
            if not kept:
                continue
            last = kept[-1]
            for late in world.latecomers:
                found = [heard.payload for heard in late.received if heard.topic == last.topic]
                if last.payload not in found[-1:]:
                    yield "P2", f"{late.name} at {late.home.name} was to get retained {last} and got {found}"

    def _is_owed(self, reader: StormParticipant, said: PublishedMessage) -> bool:
        return said.qos > 0 and any(QOS_ASKED[text] and wants(text, said) for text in reader.device.asks)

    def _sessions(self) -> Iterator[Broken]:
        for one in self._everybody:
            if one.kept and one.sessions_lost > 1 and one.home.name not in self._world.damaged:
                yield "P2", f"{one.name} lost its session at {one.home.name}"

    # -- once, and in order -----------------------------------------------------------------------------------------

    def _doubled(self) -> Iterator[Broken]:
        """P3. Where records were damaged, what was taken before may be taken once more."""
        if not self._world.damaged:
            for text in doubled(list(self._everybody), self._copies):
                yield "P3", text

    def _copies(self, member: Participant, said: PublishedMessage) -> int:
        """How many copies of *said* a member of a crew may be given at most: one for each group."""
        asks = self._world.devices[member.name].device.asks
        return sum(text in SHARED and wants(text, said) for text in asks)

    def _shared(self) -> Iterator[Broken]:
        """P2 and P3 for a crew: of each message one copy for each group, whoever of its members gets it.

        What a member had begun to take at QoS 2 goes to nobody else [MQTT-4.8.2-5], and ends with its session.
        """
        crew, world = self._crew, self._world
        home = crew[0].home.name if crew else ""
        if not crew or home in world.damaged:
            return
        is_kept = {2: self._is_crew_lasting, 1: self._is_crew_lasting or home not in world.disturbed_gateways, 0: False}
        heard = Counter((one.payload, one.qos) for member in crew for one in member.received)
        for publisher in self._everybody:
            for said in (*publisher.published, *publisher.wills):
                copies = Counter(min(said.qos, SHARED[text]) for text in crew[0].device.asks if wants(text, said))
                is_sure = said.payload in publisher.acknowledged and said.payload not in publisher.refused
                is_owed = is_sure and not said.expiry_s and mark_of(said.payload) not in world.excused
                for qos, count in copies.items():
                    times = heard[said.payload, qos]
                    if is_owed and times < count and is_kept[qos]:
                        yield "P2", f"the crew at {home} was to hear {said} {count} times and did {times}"
                    if qos != 1 and said.qos != 1 and times > count and not world.damaged:
                        yield "P3", f"the crew at {home} was to hear {said} {count} times and did {times}"

    def _disordered(self) -> Iterator[Broken]:
        """P4, where it is promised: on one gateway; over links, as long as none was down or there is no other way."""
        world = self._world
        if world.damaged or any(spell.kind in DISKS for spell in world.disturbances):
            return  # a refusal may be lost on its way: then the client says the message again, behind later ones
        unordered = LATE_KINDS if world.shape.is_dynamic else UNORDERED
        has_one_way = len(world.roads) < 2 or all(spell.kind in unordered for spell in world.disturbances)

        def concerns(reader: Participant, said: PublishedMessage) -> bool:
            if world.devices[reader.name].device.kind in CREW:
                return False  # what is handed over comes behind what was said later
            return has_one_way or world.devices[reader.name].home is world.devices[said.publisher].home

        are_clocks_right = not any(spell.kind in CLOCKS for spell in world.disturbances)
        for text in disordered(list(self._everybody), list(self._readers), concerns, are_clocks_right):
            yield "P4", text

    # -- others do not suffer ---------------------------------------------------------------------------------------

    def _void(self) -> Iterator[Broken]:
        """P5: nobody asked for the will of a device that said good-bye, if its DISCONNECT surely came."""
        said = {payload: (one, at) for one in self._everybody for payload, at in one.voided}
        for reader in self._everybody:
            for heard in reader.received:
                if heard.payload in said:
                    one, at = said[heard.payload]
                    spells = self._spells_of(at - BOUND, at + SECOND, {one.name})
                    if not any(spell.where in (one.name, one.home.name) for spell in spells):
                        yield "P5", f"{reader.name} heard the will {heard.payload!r} of {one.name}, which said good-bye"

    def _stale(self) -> Iterator[Broken]:
        """P5: nobody is given what has expired, where clocks are right and nothing was under way for long."""
        world = self._world
        if any(spell.kind in DISKS | CLOCKS for spell in world.disturbances):
            return
        patience = BOUND * (1 + len(world.shape.slow_disks))
        is_quick = not any(spell.where in world.roads for spell in world.disturbances)
        for reader in self._everybody:
            for heard in reader.received:
                said = self._said[heard.payload]
                publisher = world.devices[said.publisher]
                late = heard.at - said.at - said.expiry_s * SECOND
                if not said.expiry_s or heard.is_duplicate or late <= patience:
                    continue
                is_near = is_quick or publisher.home is reader.home
                is_at_once = not said.qos or publisher.acknowledged.get(said.payload, heard.at) - said.at < SECOND
                spells = self._spells_of(said.at, heard.at, {reader.name, publisher.name})
                lines = {spell.where for spell in spells if spell.kind != HOLIDAY}
                if is_near and is_at_once and not lines & {reader.name, publisher.name}:
                    yield "P5", f"{reader.name} heard {said} {late / SECOND:.1f} s after it had expired"

    def _slow(self) -> Iterator[Broken]:
        """P6: on a gateway that nothing happened to, who reads gets it soon, whoever else does not read."""
        for reader in self._readers:
            for publisher, said, at in self._first_hearings(reader):
                if publisher.home is not reader.home or at - said.at <= self._bound:
                    continue
                home = reader.home.name
                spells = self._spells_of(said.at - BOUND, at, {reader.name, publisher.name})
                if not any(spell.where in (home, reader.name, publisher.name) for spell in spells):
                    late = (at - said.at) / SECOND
                    yield "P6", f"{reader.name} heard {said} after {late:.1f} s; {home} was as it should be"

    def _pressed(self) -> Iterator[Broken]:
        """P6: nobody gets more at once than it asked for (MQTT 5.0 section 3.1.2.11.3).

        A device remembers what was under way on earlier connections; where records were damaged, a gateway may not.
        """
        for one in self._everybody:
            if one.home.name in self._world.damaged:
                continue
            if one.device.is_v5 and one.most_received > one.device.window:
                most = one.most_received
                yield "P6", f"{one.name} was sent {most} at once, and its Receive Maximum is {one.device.window}"

    def _stopped(self) -> Iterator[Broken]:
        """P9: while so few roads and gateways are down that all others are connected, messages arrive in time.

        Those that were said FOUND after the last of them went down, so that everybody knows by then.
        """
        tolerated = self._world.gateways.topology.tolerated_connections
        for reader in self._readers:
            for publisher, said, at in self._first_hearings(reader):
                if publisher.home is reader.home or at - said.at <= self._bound:
                    continue
                spells = self._spells_of(said.at - FOUND, at, {reader.name, publisher.name}, is_told=False)
                down = {spell.where for spell in spells}
                is_known = all(spell.kind in REROUTED and spell.begin < said.at - FOUND for spell in spells)
                if is_known and len(down) <= tolerated and not down & {reader.home.name, publisher.home.name}:
                    late = (at - said.at) / SECOND
                    yield "P9", f"{reader.name} heard {said} after {late:.1f} s, while {sorted(down)} were down"

    def _first_hearings(self, reader: StormParticipant) -> Iterator[tuple[StormParticipant, PublishedMessage, int]]:
        """What a quick reader heard of what was acknowledged at once: publisher, what, when.

        None is quick whose window is small and whose gateway's disk is slow: a message of QoS 2 keeps its place in the
        window for two syncs, so three places take less than is said, and what waits grows as long as the storm lasts.
        """
        is_quick = reader.device.is_quick
        if reader.home.name in self._world.shape.slow_disks:
            is_quick = is_quick and reader.device.window >= QUICK_WINDOW
        seen: set[bytes] = set()
        for heard in reader.received if is_quick else ():
            said = self._said[heard.payload]
            publisher = self._world.devices[said.publisher]
            acknowledged = publisher.acknowledged.get(said.payload)
            if heard.payload not in seen and said.qos and acknowledged is not None and acknowledged - said.at < SECOND:
                yield publisher, said, heard.at
            seen.add(heard.payload)

    def _spells_of(self, begin: Instant, end: Instant, devices: set[str], is_told: bool = True) -> list[Disturbance]:
        """What was wrong between *begin* and *end* with roads, gateways, and *devices*.

        Without *is_told*: also what others may not know yet.
        """
        return [
            spell
            for spell in self._spells
            if spell.begin <= end
            and spell.end >= begin
            and not (is_told and spell.kind == UNTOLD)
            and (spell.where in devices or spell.where not in self._world.devices)
        ]

    # -- the books --------------------------------------------------------------------------------------------------

    def _logs(self) -> Iterator[Broken]:
        """P7, message by message: the delivery log of every gateway's last run, closed; and all of them together."""
        logs = {gateway.name: read_segment(gateway.closed_log(), growing=True) for gateway in self._world.gateways}
        for name, log in logs.items():
            for text in unbalanced(log):
                yield "P7", f"{name}: {text}"
        is_once = not any(gateway.overlay.reorder_store.forwarded_early for gateway in self._world.gateways)
        if is_once and not self._world.disturbed_gateways:  # else what earlier runs had in their books is gone
            yield from self._entered_and_left(logs.values())

    def _entered_and_left(self, logs: Iterable[LogFile]) -> Iterator[Broken]:
        """P7 over the overlay: at QoS 2 an event enters a gateway's books once for its publisher, once for each hop."""
        entered: Counter[str] = Counter()
        left: Counter[str] = Counter()
        for log in logs:
            digest = log.tables[DIGEST.name]
            names = ("publisher", "subscriber", "qos", "fate", "count")
            for publisher, subscriber, qos, fate, count in zip(*(digest[name] for name in names), strict=True):
                if qos == 2 and fate == Fate.PUBLISHED:
                    entered[publisher] += count
                elif qos == 2 and fate == Fate.DELIVERED and subscriber.startswith("gateway:"):
                    left[publisher] += count
        for device in self._everybody:
            if device.device.retains:
                continue  # each time a retained message is given to a new subscriber it enters the books anew
            said = sum(one.qos == 2 for one in (*device.published, *device.wills))
            if entered[device.name] > said + left[device.name]:
                hops = f"{said} were said and {left[device.name]} crossed links"
                yield "P7", f"{entered[device.name]} messages of {device.name} entered books at QoS 2; {hops}"
