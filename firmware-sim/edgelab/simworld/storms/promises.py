"""The promises P1 to P9, checked with full knowledge: of all messages, acknowledgements, and times of writes to
disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from edgebroker.instants import SECOND, Duration, Instant
from edgebroker.log_schema import DIGEST, Fate, MessageOrigin
from edgebroker.overlay.link.connection import HELLO_TIMEOUT
from edgebroker.overlay.reorder_buffer import WAIT_MAX
from edgebroker.storage.deliverylog.reader import LogFile, read_segment
from edgelab.simworld.checkers import all_published, disordered, doubled, unaccounted, unbalanced, unwanted, wants
from edgelab.simworld.participant import Participant, PublishedMessage
from edgelab.simworld.storms.device import CREW, KEEPERS, QOS_ASKED, QUICK_WINDOW, SHARED, StormParticipant
from edgelab.simworld.storms.world import UNTOLD, Disturbance, StormWorld, mark_of

Broken: TypeAlias = tuple[str, str]
"""A promise and a description of its violation."""
BOUND: Final[Duration] = 2 * SECOND
"""The longest time in transit between gateways that are connected somehow (P9), or on one gateway (P6)."""
SLOW_BOUND: Final[Duration] = 3 * SECOND
"""The time that each slow disk may add: a message waits for several syncs of up to 0.4 s."""
METERED_DETOUR: Final[Duration] = SECOND
"""The time that a route around a failure may add where a site has a metered uplink: a message waits up to a second for
others to share a packet at each of the two links of that route, and BOUND has room for one of them.
"""
REROUTED: Final = frozenset({"cut", "process-death", "off"})
"""Faults that are bypassed, as docs/overlay.md promises. Silent faults take longer to be detected."""
FOUND: Final[Duration] = 2 * SECOND
"""The time after which all gateways know a failure: a second, and the round trips of its propagation."""
LATE_KINDS: Final = frozenset({"stalled-line", "broken-line", "choked-line", "abandoned-line"})
DISKS: Final = frozenset({"full-disk", "failing-sync"})
HOLIDAY: Final = "holiday"
"""The disturbance of a device that is disconnected on purpose: it receives messages later, unless they expire."""
WALK: Final = "walk"
CLOCKS: Final = frozenset({"no-clock", "jumped-clock", "drifting-clock"})
UNORDERED: Final = LATE_KINDS | {"delay", "limited-rate", "bandwidth-cliff"}
"""Faults that leave every link up, so order is kept (P4): what goes around a slow one waits for its predecessor."""
ORDERED: Final = UNORDERED | {"cut", "flicker", "half-open", "silence", "one-way", "flapping"}
"""Faults of links around which order is kept too, if each site has one gateway: what was on its way is sent again."""


class PromiseChecker:
    """Checks the promises on *world* after the storm."""

    def __init__(self, world: StormWorld) -> None:
        self._world = world
        self._devices = list(world.devices.values())
        self._readers = [one for one in self._devices if one.device.kind == "steady"]
        self._crew = [one for one in self._devices if one.device.kind in CREW]
        self._is_crew_lasting = all(one.kept for one in self._crew)
        """Whether all sessions of the crew last; otherwise a copy may belong to a session that is not stored, and is
        lost in a restart.
        """
        self._published = all_published(self._devices)
        self._disturbances = list(world.disturbances)
        for one in self._devices:
            self._disturbances += [Disturbance(HOLIDAY, one.name, begin, end + BOUND) for begin, end in one.holidays]
        self._walkers = {one.where for one in self._disturbances if one.kind == WALK}
        """Devices that were at several gateways: of messages on their way nobody knows how far they had to go."""
        for name in self._walkers:
            self._disturbances.append(Disturbance(WALK, name, 0, world.simulation.now))
        self._bound = BOUND + SLOW_BOUND * len(world.shape.slow_disks)
        if len(set(world.shape.uplinks)) > 1:  # what another site hands on waits for two batches of a second each
            self._bound += SECOND

    def broken(self) -> Iterator[Broken]:
        """Yield every broken promise."""
        yield from self._world.broken
        yield from self._lasting_strangers()
        yield from self._early_acknowledgements()
        yield from self._lost_messages()
        yield from self._missing_wills()
        yield from self._missing_retained()
        yield from self._sessions()
        yield from self._doubled()
        yield from self._shared()
        yield from self._disordered()
        for text in unwanted(list(self._devices)):
            yield "P5", text
        yield from self._cancelled_wills()
        yield from self._expired_deliveries()
        yield from self._slow_deliveries()
        yield from self._exceeded_windows()
        yield from self._blocked_deliveries()
        if not self._world.disturbances:
            for gateway in self._world.gateways:
                if duplicates := gateway.overlay.peers.forwarder.duplicates:
                    yield "P3", f"{gateway.name} was sent {duplicates} events again, and nothing was wrong anywhere"
        for gateway in self._world.gateways:
            for text in unaccounted(gateway, []):
                yield "P7", f"{gateway.name}: {text}"
        yield from self._logs()

    # -- durability -----------------------------------------------------------------------------------------------

    def _early_acknowledgements(self) -> Iterator[Broken]:
        """P1: acknowledged, due to a certain subscriber, and not yet on the platter of the publisher's gateway."""
        kinds = KEEPERS if self._is_crew_lasting else ("steady",)
        keepers = [one for one in self._devices if one.device.kind in kinds]
        for gateway, payload, at in self._world.observer.early_acks:
            published = self._published[payload]
            for reader in keepers:
                if self._is_due(reader, published) and (reader.unsure_since is None or at < reader.unsure_since):
                    yield "P1", f"{gateway} acknowledged {published}, which {reader.name} wants, before it was on disk"
                    break

    def _lost_messages(self) -> Iterator[Broken]:
        """P2, and P5 if a filter wrongly rejected a message."""
        excused = self._world.excused
        for reader in self._readers:
            received = {one.payload for one in reader.received}
            for publisher in self._devices:
                for published in publisher.published:
                    is_safe = published.payload in publisher.acknowledged and published.payload not in publisher.refused
                    if (
                        not is_safe
                        or published.expiry_s
                        or published.payload in received
                        or mark_of(published.payload) in excused
                    ):
                        continue
                    if self._is_due(reader, published) and reader.unsure_since is None:
                        yield "P2", f"{reader.name} at {reader.home.name} missed {published} of {publisher.home.name}"

    def _missing_wills(self) -> Iterator[Broken]:
        """P2: the will of a device whose line broke while no gateway was disturbed."""
        world = self._world
        if world.disturbed_gateways:
            return
        for device, will in world.wills_due:
            for reader in self._readers:
                received = {one.payload for one in reader.received}
                if self._is_due(reader, will) and will.payload not in received:
                    yield "P2", f"{reader.name} at {reader.home.name} missed the will {will} of {device}"

    def _missing_retained(self) -> Iterator[Broken]:
        """P2: a client that subscribes after the storm receives the message that was retained last, from any
        gateway.
        """
        world = self._world
        if world.damaged:
            return
        for publisher in self._devices:
            retained = [
                published
                for published in publisher.published
                if published.retain and published.payload not in publisher.refused
            ]
            if not retained:
                continue
            last = retained[-1]
            for latecomer in world.last_comers if last.topic in world.cleared else ():
                if payloads := [one.payload for one in latecomer.received if one.topic == last.topic]:
                    where = f"{latecomer.name} at {latecomer.home.name}"
                    yield "P2", f"{where} was to get nothing of {last.topic}, which was cleared, and got {payloads}"
            for latecomer in world.latecomers:
                payloads = [received.payload for received in latecomer.received if received.topic == last.topic]
                if last.payload not in payloads[-1:]:
                    yield (
                        "P2",
                        f"{latecomer.name} at {latecomer.home.name} was to get retained {last} and got {payloads}",
                    )

    def _is_due(self, reader: StormParticipant, published: PublishedMessage) -> bool:
        return published.qos > 0 and any(QOS_ASKED[text] and wants(text, published) for text in reader.device.asks)

    def _sessions(self) -> Iterator[Broken]:
        for one in self._devices:
            if one.kept and one.sessions_lost > 1 and one.home.name not in self._world.damaged:
                yield "P2", f"{one.name} lost its session at {one.home.name}"

    # -- once, and in order -----------------------------------------------------------------------------------------

    def _doubled(self) -> Iterator[Broken]:
        """P3. Where records were damaged, an accepted message may be accepted once more."""
        if not self._world.damaged:
            for text in doubled(list(self._devices), self._copies):
                yield "P3", text

    def _copies(self, member: Participant, published: PublishedMessage) -> int:
        """Return the most copies of *published* that a member of a crew may receive: one for each group."""
        asks = self._world.devices[member.name].device.asks
        return sum(text in SHARED and wants(text, published) for text in asks)

    def _shared(self) -> Iterator[Broken]:
        """P2 and P3 for a crew: of each message one copy for each group, to any of its members.

        A copy whose QoS 2 exchange a member had begun is sent to no other member [MQTT-4.8.2-5], and ends with its
        session.
        """
        crew, world = self._crew, self._world
        homes = {one.home.name for one in crew}
        home = " and ".join(sorted(homes))
        if not crew or homes & world.damaged.keys() or (world.is_crew_spread and world.damaged):
            return
        is_calm = not homes & world.disturbed_gateways
        is_kept = {2: self._is_crew_lasting, 1: self._is_crew_lasting or is_calm, 0: False}
        received = Counter((one.payload, one.qos) for member in crew for one in member.received)
        for publisher in self._devices:
            for published in (*publisher.published, *publisher.wills):
                copies = Counter(
                    min(published.qos, SHARED[text]) for text in crew[0].device.asks if wants(text, published)
                )
                is_sure = published.payload in publisher.acknowledged and published.payload not in publisher.refused
                is_due = is_sure and not published.expiry_s and mark_of(published.payload) not in world.excused
                for qos, count in copies.items():
                    times = received[published.payload, qos]
                    if is_due and times < count and is_kept[qos]:
                        yield "P2", f"the crew at {home} was to hear {published} {count} times and did {times}"
                    if qos != 1 and published.qos != 1 and times > count and not world.damaged:
                        yield "P3", f"the crew at {home} was to hear {published} {count} times and did {times}"

    def _disordered(self) -> Iterator[Broken]:
        """P4, where it is promised: on one gateway; over links, if none was down or there is no other route, or if no
        gateway was and each is a site of its own.
        """
        world = self._world
        if world.damaged or any(disturbance.kind in DISKS for disturbance in world.disturbances):
            return  # a refusal may be lost on its way: then the client sends the message again, after later ones
        is_simple = all(len(site) == 1 for site in world.shape.sites)
        kept = ORDERED if is_simple else UNORDERED
        kinds = {disturbance.kind for disturbance in world.disturbances} - {WALK}
        has_one_way = len(world.roads) < 2 or kinds <= kept

        def concerns(reader: Participant, published: PublishedMessage) -> bool:
            if reader.name in self._walkers or published.publisher in self._walkers:
                return False
            if world.devices[reader.name].device.kind in CREW:
                return False  # a copy that is handed over follows messages published later
            return has_one_way or world.devices[reader.name].home is world.devices[published.publisher].home

        are_clocks_right = not any(disturbance.kind in CLOCKS for disturbance in world.disturbances)
        for text in disordered(list(self._devices), list(self._readers), concerns, are_clocks_right):
            yield "P4", text

    # -- isolation --------------------------------------------------------------------------------------------------

    def _cancelled_wills(self) -> Iterator[Broken]:
        """P5: the will of a device that disconnected is not published, if its DISCONNECT surely arrived."""
        cancelled = {payload: (one, at) for one in self._devices for payload, at in one.voided}
        for reader in self._devices:
            for received in reader.received:
                if received.payload in cancelled:
                    one, at = cancelled[received.payload]
                    if self._world.shape.outbox_messages is not None and not one.device.is_v5:
                        continue  # its connection may have ended before, because a message was refused
                    if self._may_seem_dead(one.home.name):
                        continue  # its keeper cannot know that it said good-bye
                    disturbances = self._disturbances_between(at - BOUND, at + SECOND, {one.name})
                    if not any(disturbance.where in (one.name, one.home.name) for disturbance in disturbances):
                        yield (
                            "P5",
                            f"{reader.name} heard the will {received.payload!r} of {one.name}, which said good-bye",
                        )

    def _may_seem_dead(self, home: str) -> bool:
        """Return whether every road of the gateway *home*, or its other end, was disturbed, in a storm in which others
        publish the wills of a gateway soon.
        """
        disturbed = {disturbance.where for disturbance in self._world.disturbances}
        roads = [(road, *road.split("~")) for road in self._world.roads if home in road.split("~")]
        return self._world.has_impatient_keepers and all(disturbed & ({*road} - {home}) for road in roads)

    def _expired_deliveries(self) -> Iterator[Broken]:
        """P5: no expired message is delivered, if clocks are right and nothing was in transit for long."""
        world = self._world
        if any(disturbance.kind in DISKS | CLOCKS for disturbance in world.disturbances):
            return
        patience = BOUND * (1 + len(world.shape.slow_disks))
        is_quick = not any(disturbance.where in world.roads for disturbance in world.disturbances)
        for reader in self._devices:
            for received in reader.received:
                published = self._published[received.payload]
                publisher = world.devices[published.publisher]
                late = received.at - published.at - published.expiry_s * SECOND
                if not published.expiry_s or received.is_duplicate or late <= patience:
                    continue
                is_near = is_quick or publisher.home is reader.home
                is_at_once = (
                    not published.qos
                    or publisher.acknowledged.get(published.payload, received.at) - published.at < SECOND
                )
                disturbances = self._disturbances_between(published.at, received.at, {reader.name, publisher.name})
                lines = {disturbance.where for disturbance in disturbances if disturbance.kind != HOLIDAY}
                if is_near and is_at_once and not lines & {reader.name, publisher.name}:
                    yield "P5", f"{reader.name} heard {published} {late / SECOND:.1f} s after it had expired"

    def _slow_deliveries(self) -> Iterator[Broken]:
        """P6: on an undisturbed gateway a subscriber that reads receives messages soon, even if others do not read."""
        for reader in self._readers:
            for publisher, published, at in self._first_receptions(reader):
                if publisher.home is not reader.home or at - published.at <= self._bound:
                    continue
                home = reader.home.name
                disturbances = self._disturbances_between(published.at - BOUND, at, {reader.name, publisher.name})
                if not any(disturbance.where in (home, reader.name, publisher.name) for disturbance in disturbances):
                    late = (at - published.at) / SECOND
                    yield "P6", f"{reader.name} heard {published} after {late:.1f} s; {home} was as it should be"

    def _exceeded_windows(self) -> Iterator[Broken]:
        """P6: no client receives more messages at once than its Receive Maximum (MQTT 5.0 section 3.1.2.11.3).

        A device also counts messages of earlier connections; where records were damaged, a gateway may not.
        """
        for one in self._devices:
            if one.home.name in self._world.damaged:
                continue
            if one.device.is_v5 and one.most_received > one.device.window:
                most = one.most_received
                yield "P6", f"{one.name} was sent {most} at once, and its Receive Maximum is {one.device.window}"

    def _lasting_strangers(self) -> Iterator[Broken]:
        """P6: who does not say who they are is not connected for longer than a hello may take."""
        for wire, begun in self._world.strangers:
            if wire.is_open[1] and self._world.simulation.now - begun > HELLO_TIMEOUT + SECOND:
                yield "P6", f"a stranger has been connected since {begun / SECOND:.1f} s, and has not said who it is"

    def _blocked_deliveries(self) -> Iterator[Broken]:
        """P9: while so few roads and gateways are down that all others are connected, messages arrive in time.

        Only messages published FOUND after the last failure count, when all gateways know it, and WAIT_MAX after
        anything that holds messages up without a way around.
        """
        tolerated = self._world.gateways.topology.tolerated_connections
        bound = self._bound + (METERED_DETOUR if "metered" in self._world.shape.uplinks else 0)
        for reader in self._readers:
            for publisher, published, at in self._first_receptions(reader):
                if publisher.home is reader.home or at - published.at <= bound:
                    continue
                disturbances = self._disturbances_between(
                    published.at - FOUND, at, {reader.name, publisher.name}, is_told=False
                )
                down = {disturbance.where for disturbance in disturbances}
                is_known = all(
                    disturbance.kind in REROUTED and disturbance.begin < published.at - FOUND
                    for disturbance in disturbances
                )
                earlier = self._disturbances_between(published.at - WAIT_MAX, published.at, set(), is_told=False)
                if any(disturbance.kind not in REROUTED for disturbance in earlier):
                    continue  # it may have waited for its predecessor, which a slow road held up
                if is_known and len(down) <= tolerated and not down & {reader.home.name, publisher.home.name}:
                    late = (at - published.at) / SECOND
                    yield "P9", f"{reader.name} heard {published} after {late:.1f} s, while {sorted(down)} were down"

    def _first_receptions(self, reader: StormParticipant) -> Iterator[tuple[StormParticipant, PublishedMessage, int]]:
        """Yield the first receptions of a quick reader, of messages acknowledged at once: publisher, message, time.

        A reader with a small window at a gateway with a slow disk is not quick: a QoS 2 message occupies the window for
        two syncs, so a window of three carries less than is published, and the queue grows throughout the storm.
        """
        is_quick = reader.device.is_quick
        if reader.home.name in self._world.shape.slow_disks:
            is_quick = is_quick and reader.device.window >= QUICK_WINDOW
        seen: set[bytes] = set()
        for received in reader.received if is_quick else ():
            published = self._published[received.payload]
            publisher = self._world.devices[published.publisher]
            acknowledged = publisher.acknowledged.get(published.payload)
            if (
                received.payload not in seen
                and published.qos
                and acknowledged is not None
                and acknowledged - published.at < SECOND
            ):
                yield publisher, published, received.at
            seen.add(received.payload)

    def _disturbances_between(
        self, begin: Instant, end: Instant, devices: set[str], is_told: bool = True
    ) -> list[Disturbance]:
        """Return the disturbances of roads, gateways, and *devices* between *begin* and *end*.

        Without *is_told*: also those that other gateways may not know yet.
        """
        return [
            disturbance
            for disturbance in self._disturbances
            if disturbance.begin <= end
            and disturbance.end >= begin
            and not (is_told and disturbance.kind == UNTOLD)
            and (disturbance.where in devices or disturbance.where not in self._world.devices)
        ]

    # -- accounting -------------------------------------------------------------------------------------------------

    def _logs(self) -> Iterator[Broken]:
        """P7, message by message: the closed delivery log of every gateway's last run; and all of them together."""
        logs = {gateway.name: read_segment(gateway.closed_log(), growing=True) for gateway in self._world.gateways}
        for name, log in logs.items():
            for text in unbalanced(log):
                yield "P7", f"{name}: {text}"
        is_once = not any(gateway.overlay.reorder_store.forwarded_early for gateway in self._world.gateways)
        if is_once and not self._world.disturbed_gateways:  # otherwise the records of earlier runs are missing
            yield from self._entered_and_left(logs.values())

    def _entered_and_left(self, logs: Iterable[LogFile]) -> Iterator[Broken]:
        """P7 over the overlay: at QoS 2 an event is logged by a gateway once for its publisher, once for each hop."""
        entered: Counter[str] = Counter()
        left: Counter[str] = Counter()
        for log in logs:
            digest = log.tables[DIGEST.name]
            names = ("publisher", "subscriber", "qos", "fate", "count", "origin")
            for publisher, subscriber, qos, fate, count, origin in zip(*(digest[name] for name in names), strict=True):
                # what waited for the answers of other clusters is in the books again when it leaves
                if qos == 2 and fate == Fate.PUBLISHED and origin != MessageOrigin.RESUMED:
                    entered[publisher] += count
                elif qos == 2 and fate == Fate.DELIVERED and subscriber.startswith("gateway:"):
                    left[publisher] += count
        for device in self._devices:
            if device.device.retains:
                continue  # a retained message is logged again for each new subscriber
            published = sum(one.qos == 2 for one in (*device.published, *device.wills))
            if entered[device.name] > published + left[device.name]:
                hops = f"{published} were said and {left[device.name]} crossed links"
                yield "P7", f"{entered[device.name]} messages of {device.name} entered books at QoS 2; {hops}"
