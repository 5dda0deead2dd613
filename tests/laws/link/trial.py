"""One history of two gateways and a bad road between them, and what must hold in all of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from edgebroker.errors import JournalDamaged
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, SECOND, Duration
from edgebroker.limits import JOURNAL_PAGE_MESSAGES, KIB
from edgebroker.log_schema import Cause, Fate
from edgebroker.overlay.link.backlog import decode_rows
from edgebroker.overlay.link.class_queue import LinkPage, event_of, events_of
from edgebroker.overlay.link.codec.messages import read_alone
from edgebroker.overlay.link.events import DropEvent, LinkUp
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.link.options import LinkOptions
from edgebroker.overlay.link.outbox import OutboxBounds
from edgebroker.overlay.messages import EventSeries, Forward, Message, Relay, Unadvertise
from edgebroker.overlay.traffic_class import TrafficClass
from edgebroker.storage.journal.journal import Journal
from edgebroker.storage.journal.page_files import decode_page, page_name
from edgelab.simworld.linked import OPTIONS, Eid, LinkedGateway
from edgelab.simworld.roads import Road, RoadConditions
from edgelab.simworld.simulation import Simulation

NAMES = {"east": 0, "west": 1}
OVERSHOOT = 32 * KIB
"""What a budget may be passed by: a quarter of a second, a message in parts, and what CONTROL says besides."""


class Broken(Exception):
    """A law does not hold."""


def check(holds: object, text: str) -> None:
    if not holds:
        raise Broken(text)


class Trial:
    """Two gateways that publish to each other. All that happens depends on *seed* alone."""

    def __init__(self, seed: int, page_messages: int = JOURNAL_PAGE_MESSAGES, write_fails: float = 0.0) -> None:
        """*page_messages*: of an outbox, which are moved to the disk together. *write_fails*: the probability that a
        write to a disk fails.
        """
        self.simulation = Simulation(seed)
        self._journal_options = replace(OPTIONS, page_messages=page_messages)
        self._in_pages: dict[tuple[Journal, int], set[Eid]] = {}
        self.pages = 0
        self._write_fails = write_fails
        self.chance = chance = Random(seed)
        self.per_s = [chance.choice([0, 0, 16_000]) for _ in NAMES]
        road_conditions = RoadConditions(
            chance.choice([(MILLISECOND, MILLISECOND), (10 * MILLISECOND, 80 * MILLISECOND), (300_000, 310_000)]),
            chance.choice([0, 0, 20_000, 200_000]),
            chance.choice([2 * KIB, 64 * KIB]),
        )
        self.bounds = OutboxBounds(
            messages=chance.choice([40, 2_000]),
            live_bytes=chance.choice([4 * KIB, 1 << 20]),
            numbers=chance.choice([4, 8, 1 << 20]),
        )
        self.pace = chance.choice([100 * MILLISECOND, 500 * MILLISECOND])  # between steps
        self.road = Road(self.simulation, road_conditions)
        self.gateways = [self._gateway(name) for name in NAMES]
        for one, other in (self.gateways, reversed(self.gateways)):
            one.roads[other.name] = self.road
            one.others[other.name] = other
            one.watch = self._watch
        self.sequences = dict.fromkeys((0, 1), 0)
        self.words = [0, 0]
        self.told: list[list[int]] = [[], []]  # words in the present conversation
        self.events: dict[Eid, Forward] = {}
        self.given: list[set[Eid]] = [set(), set()]  # numbered events taken by each gateway
        self.bare: set[Eid] = set()
        self.bare_lost: set[Eid] = set()
        self.dropped: set[Eid] = set()
        self.outstanding: list[set[Eid]] = [set(), set()]
        self.perished: set[Eid] = set()  # what was on a disk that is no more
        self.expired: set[Eid] = set()  # in the run that took it
        self.restored: set[Eid] = set()  # what a run found in its journal, promised or not
        self.begun = [0, 0]  # when the present run of each began
        self.sent_before = [0, 0]  # the bytes of earlier runs
        self.seen = [0, 0]  # of what reached each gateway
        self.words_reached = 0
        self.crashes = self.cuts = self.silences = self.disks = 0

    def _gateway(self, name: str) -> LinkedGateway:
        chance = self.chance
        options = LinkOptions(
            dials=name == "east" or chance.random() < 0.6,
            heartbeat=chance.choice([5, 30]) * SECOND,
            batch=chance.choice([0, 200 * MILLISECOND]),
            deflates=chance.random() < 0.5,
            bytes_per_s=self.per_s[NAMES[name]],
            bounds=self.bounds,
        )
        gateway = LinkedGateway(self.simulation, name, NAMES, options, self._journal_options)
        gateway.disk.sync_us = chance.choice([(500, 3_000), (500, 3_000), (100_000, 2_000_000)])
        gateway.disk.sync_fails = chance.choice([0.0, 0.0, 0.05])
        gateway.disk.write_fails = self._write_fails
        return gateway

    # -- what happens ---------------------------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        for gateway in self.gateways:
            gateway.start()
        for _ in range(steps):
            self.simulation.run_until(self.simulation.now + int(self.chance.expovariate(1 / self.pace)))
            self._something()
        self._end()

    def _something(self) -> None:
        chance, road = self.chance, self.road
        kind = chance.random()
        if kind < 0.85:
            for _ in range(chance.choice([1, 1, 5, 30])):
                self._publish(chance.randrange(2))
        elif kind < 0.90:
            road.shake()
            self.cuts += 1
        elif kind < 0.93:
            road.cut()
            self.cuts += 1
            self.simulation.after(self._outage(20 * SECOND), road.mend)
        elif kind < 0.95:
            road.is_silent = True
            self.silences += 1
            self.simulation.after(self._outage(60 * SECOND), road.mend)
        else:
            self._crash(chance.randrange(2))

    def _outage(self, longest: Duration) -> Duration:
        """Half of all last an eighth of the longest: so there is time for what comes after."""
        return int(longest * self.chance.random() ** 3)

    def _crash(self, index: int) -> None:
        gateway = self.gateways[index]
        if gateway.is_off:
            return
        self.crashes += 1
        gateway.crash(self.chance.random() < 0.7)
        if self.chance.random() < 0.2:
            self.disks += 1
            self.perished |= gateway.safe | self.outstanding[index]
            gateway.lose_disk()

        def back() -> None:
            gateway.boot()
            self.outstanding[index] = self._held(gateway)
            self.restored |= self.outstanding[index]
            self.told[index] = []
            self.begun[index] = self.simulation.now
            self.sent_before[index] = gateway.bytes_sent
            gateway.start()
            for _ in range(self.chance.choice([0, 1, 5, 30])):  # devices are back before the uplink is
                self._publish(index)

        self.simulation.after(self._outage(20 * SECOND), back)

    def _publish(self, index: int) -> None:
        chance, gateway = self.chance, self.gateways[index]
        if gateway.is_off:
            return
        peer = self.gateways[1 - index].name
        if chance.random() < 0.05:
            self._publish_series(index, peer)
        elif chance.random() < 0.1:
            self.words[index] += 1
            gateway.publish(peer, Unadvertise((self.words[index],)), TrafficClass.CONTROL)
            self.told[index].append(self.words[index])
        else:
            self._publish_event(index, peer)
        gateway.turn()

    def _publish_event(self, index: int, peer: str) -> None:
        chance, gateway = self.chance, self.gateways[index]
        publisher = index << 22 | chance.randrange(3)
        self.sequences[index] += 1
        header = EventHeader(publisher, self.sequences[index], 0, 0, published_ms=self.simulation.now // 1_000)
        service = chance.choice([TrafficClass.LIVE] * 3 + [TrafficClass.BULK])
        event = Forward(
            header,
            f"{service.name}/{publisher}/{chance.randrange(2)}",
            chance.randbytes(chance.choice([8, 60, 60, 300, 20 * KIB])),
            chance.choice([0, 1, 1, 2]),
            chance.random() < 0.1,
            f"client-{publisher}",
            expires_in_ms=chance.choice([None, None, None, 20_000]),
        )
        message: Message = Relay(0, 1, 3, event) if chance.random() < 0.05 else event
        self.events[header.eid] = event
        cause = gateway.publish(peer, message, service)
        if event.qos == 0:
            self.bare.add(header.eid)
            if cause is not Cause.NONE:
                self.bare_lost.add(header.eid)
        elif cause is Cause.NONE:
            self.given[index].add(header.eid)
            self.outstanding[index].add(header.eid)

    def _publish_series(self, index: int, peer: str) -> None:
        chance, gateway = self.chance, self.gateways[index]
        publisher, count = index << 22 | chance.randrange(3), chance.choice([3, 20, 300])
        qos = int(count == 3)  # more of them make a trial twice as long
        header = EventHeader(publisher, self.sequences[index] + 1, 0, 0, published_ms=self.simulation.now // 1_000)
        self.sequences[index] += count
        payload = chance.randbytes(count * chance.choice([8, 60, 300]))
        first = Forward(header, f"LIVE/{publisher}/0", payload, qos, False, f"client-{publisher}")
        series = EventSeries(first, count)
        eids = {event.header.eid for event in series.events()}
        self.events |= {event.header.eid: event for event in series.events()}
        drops = gateway.links[peer].outbox.drops
        before = len(drops)
        gateway.publish(peer, series, TrafficClass.LIVE)
        if qos:
            eids -= {event.header.eid for drop in drops[before:] for each in drop.messages for event in events_of(each)}
            self.given[index] |= eids
            self.outstanding[index] |= eids
        else:
            self.bare |= eids

    # -- what must hold -------------------------------------------------------------------------------------------

    def _held(self, gateway: LinkedGateway) -> set[Eid]:
        held = set()
        for link in gateway.links:
            for page in link.outbox.backlog.pages:
                if page.entries is None:
                    held |= self._in_page(gateway, page)
            for lane in link.outbox.queues.values():
                for entry in lane.in_memory():
                    if isinstance(entry.message, EventSeries) and not entry.message.first.qos:
                        continue  # all of them are of QoS 0; made one by one, they would take 9 of 10 s of a trial
                    held |= {event.header.eid for event in events_of(entry.message) if event.qos}
        return held

    def _in_page(self, gateway: LinkedGateway, page: LinkPage) -> set[Eid]:
        """The events whose only copies are in the file of *page*."""
        key = gateway.journal, page.number
        if key not in self._in_pages:
            self.pages += 1
            data = gateway.disk.read(page_name(page.number))
            try:
                rows = decode_rows(decode_page(gateway.journal.store, page.number, data))
            except JournalDamaged as error:
                raise Broken(str(error)) from error
            events = [event_of(read_alone(row.item)[0]) for row in rows]
            self._in_pages[key] = {event.header.eid for event in events if event is not None}
        return self._in_pages[key]

    def _watch(self, gateway: LinkedGateway) -> None:
        check(not gateway.journal.pages.damage, f"{gateway.name}: {gateway.journal.pages.damage}")
        index = NAMES[gateway.name]
        other = self.gateways[1 - index]
        for event in gateway.events:
            if isinstance(event, DropEvent):
                for message in event.messages:
                    for dropped in events_of(message):
                        self.dropped.add(dropped.header.eid)
                        if dropped.qos and event.fate is Fate.EXPIRED and dropped.header.eid not in self.restored:
                            self.expired.add(dropped.header.eid)
                        if dropped.qos:
                            check(event.fate is Fate.EXPIRED or event.cause is Cause.QUEUE_FULL, f"{event} of QoS > 0")
            elif isinstance(event, LinkUp) and not event.goes_on:
                self.told[index].clear()
        gateway.events.clear()
        for link in gateway.links:
            lanes = link.outbox.queues.values()
            check(sum(lane.bytes for lane in lanes) <= self.bounds.bytes, "the outbox is larger than its bound")
            check(sum(map(len, lanes)) <= self.bounds.messages + 10_000, "the outbox is longer than its bound")
            check(
                all(
                    lane.waiting_bytes == sum([entry.size for entry in (*lane.waiting, *lane.tail)])
                    and lane.bytes
                    == sum([entry.size for entry in lane.in_memory()])
                    + sum([page.held_bytes for page in lane.pages if page.entries is None])
                    for lane in lanes
                ),
                "the bytes of a lane are wrong",
            )
            self._check_reserved(gateway, link)
        held = self._held(gateway)
        for eid in self.outstanding[index] - held - self.dropped - self.perished:
            check(eid in other.safe, f"{eid} left the outbox and is not on the other disk")
        check(not gateway.again, f"{gateway.again} came again to {gateway.name} while it ran")
        self.outstanding[index] = held
        self._check_stored(index)
        self._check_budget(index)

    def _check_reserved(self, gateway: LinkedGateway, link: Link) -> None:
        """A number that was sent is one that no later run gives to anything else."""
        reserved = gateway.reserved.get(link.peer, 0)
        for service, lane in link.outbox.queues.items():
            if service is not TrafficClass.CONTROL and lane.unacked:
                number = lane.unacked[-1].number
                check(number <= reserved, f"number {number} was sent, and up to {reserved} is reserved on disk")

    def _check_stored(self, index: int) -> None:
        """What reached a gateway at QoS 2 is on the disk of the one that sent it: it is never published again."""
        reached = self.gateways[index].reached
        for message in reached[self.seen[index] :]:
            event = event_of(message)
            if event is not None and event.qos == 2:
                eid = event.header.eid
                is_stored = eid in self.gateways[1 - index].promised or eid in self.restored
                check(is_stored, f"{eid} of QoS 2 was sent before it was on disk")
        self.seen[index] = len(reached)

    def _check_budget(self, index: int) -> None:
        gateway = self.gateways[index]
        per_s = self.per_s[index]
        if per_s:
            seconds = (self.simulation.now - self.begun[index]) / SECOND
            sent = gateway.bytes_sent - self.sent_before[index]
            check(sent <= per_s * (seconds + 1) + OVERSHOOT, f"{sent} bytes in {seconds:.1f} s at {per_s} a second")

    def _end(self) -> None:
        """Everything is well again: what was promised arrives."""
        simulation = self.simulation
        simulation.run_until(simulation.now + 61 * SECOND)
        self.road.mend()
        simulation.run_until(simulation.now + 1_200 * SECOND)
        for index, gateway in enumerate(self.gateways):
            other = self.gateways[1 - index]
            check(gateway.links[other.name].connection is not None, "the link is not up")
            check(not self._held(gateway), f"{len(self._held(gateway))} events still wait at {gateway.name}")
            missing = gateway.promised - self.dropped - self.perished - other.known
            check(not missing, f"{missing} was promised by {gateway.name} and did not arrive")
            check(len(other.kept) == len(set(other.kept)), "an event was kept twice")
            self._check_order(other)
            self._check_words(index)
        reached = [event for gateway in self.gateways for message in gateway.reached for event in events_of(message)]
        both = self.expired & {event.header.eid for event in reached}
        check(not both, f"{both} expired in the books of one gateway and reached the other")
        bare = [event.header.eid for event in reached if event.qos == 0]
        check(len(bare) == len(set(bare)), "an event of QoS 0 came twice")
        check(not set(bare) & self.bare_lost, "an event that was refused came all the same")
        if not self.crashes + self.cuts + self.silences:
            check(set(bare) | self.dropped >= self.bare, "an event of QoS 0 vanished without a cause")

    def _check_order(self, gateway: LinkedGateway) -> None:
        last: dict[tuple[int, str, bool], int] = {}
        for eid in gateway.kept:
            event = self.events[eid]
            flow = (event.header.publisher, event.topic, False)
            check(last.get(flow, 0) < eid[1], f"{eid} came after {last.get(flow)} of the same flow")
            last[flow] = eid[1]

    def _check_words(self, index: int) -> None:
        words = [each.advs[0] for each in self.gateways[1 - index].reached if isinstance(each, Unadvertise)]
        self.words_reached += len(words)
        check(words == sorted(set(words)), "messages of CONTROL came twice or out of order")
        missing = set(self.told[index]) - set(words)
        check(not missing, f"messages {missing} of CONTROL were lost in a conversation that went on")
