"""The demo of a federation in order: gateways, subscribers, devices and mishaps; then the end and the audit.

The subscribers ask by content for some per cent of the messages of all sites.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

from edgebridge.wire.dialect import V5, V311
from edgebroker.cli.topology.toml_text import toml_text
from edgelab.demo.audit import DevicePublication, Key, LineCounter, accepts, audit, read_journal
from edgelab.demo.child import DemoProcess, DemoProcessFailed, child
from edgelab.demo.federation.board import Board, FederationState, GatewayRow, UplinkRow
from edgelab.demo.federation.gateway_process import JOURNAL, SETTINGS, TOPOLOGY, GatewayProcess
from edgelab.demo.federation.layout import CopyRoute, Pair
from edgelab.demo.federation.listener import SiteSubscriber
from edgelab.demo.federation.log_audit import LogAudit
from edgelab.demo.federation.mishaps import Mishaps
from edgelab.demo.federation.network import FederationNetwork
from edgelab.demo.federation.outcome import FederationOutcome, ReceivedBytes, UplinkTraffic, alternatives
from edgelab.demo.play import DEVICES_S_MAX, alongside
from edgelab.demo.subscriber_specs import FilterCarrier, SubscriberSpec

SITE_SPECS: Final = (
    SubscriberSpec("cold", "cold-chain/#", 1, V5, "temperature < 3", FilterCarrier.PROPERTY),
    SubscriberSpec("damp", "cold-chain/#", 2, V5, "humidity > 74", FilterCarrier.PROPERTY),
    SubscriberSpec("warm", "cold-chain/#", 1, V311, "temperature BETWEEN 5.1 AND 5.4"),
    SubscriberSpec("truck-3", "cold-chain/truck-3/#", 2, V311, "humidity > 64"),
    SubscriberSpec("late", "cold-chain/+/unit-01", 1, V5, "door_open AND temperature BETWEEN 6 AND 9"),
)
"""Dealt to the sites in turn, and there to gateways in turn."""


MEET_S_MAX: Final = 30.0
SPREAD_S: Final = 0.5  # interests are told from gateway to gateway of a site, in milliseconds
QUIET_S: Final = 1.0
QUIET_S_MAX: Final = 60.0  # what waited at a squeezed uplink, and devices that dial again after 15 s
LOOK_EVERY_S: Final = 1.0
SHOW_EVERY_S: Final = 0.25
GATEWAY: Final = "[listener]\nanonymous = true  # only this demo reaches where it listens\n"
"""The settings of all gateways, besides what the command line says."""
UNPROMISED: Final = "unpromised"
"""The outcome of what nobody promises: QoS 0."""


@dataclass(frozen=True, slots=True)
class FederationPlan:
    """What the user asked for. rate: messages per second and device."""

    seconds: float
    devices: int
    rate: float
    seed: int
    folder: Path


class FederationPlay:
    """One run of a plan, whose folder is clear."""

    def __init__(self, plan: FederationPlan, network: FederationNetwork, board: Board) -> None:
        self._plan = plan
        self._board = board
        self._network = network
        self._layout = layout = network.layout
        self._topology = plan.folder / TOPOLOGY
        self._members: dict[str, GatewayProcess] = {}
        self._listeners = [
            SiteSubscriber(spec, place) for spec, place in zip(SITE_SPECS, layout.places(), strict=False)
        ]
        self._journal = plan.folder / JOURNAL
        self._mishaps = Mishaps(plan.seconds, network, self._meet, board.say)
        self._carried: dict[Pair, int] = {}
        self._tallies: dict[str, ReceivedBytes] = {}
        self._troubles: list[str] = []

    async def run(self) -> FederationOutcome:
        """All of it. Raises EdgebrokerError where there is no sense in going on."""
        began = monotonic()
        try:
            async with AsyncExitStack() as stack:
                data = Path(stack.enter_context(TemporaryDirectory(prefix="edgebroker-demo-")))
                await stack.enter_async_context(self._network.open())
                stack.push_async_callback(self._stop)
                await self._start(data)
                async with alongside(self._look()):
                    await self._meet()
                    async with AsyncExitStack() as subscriptions:
                        for listener in self._listeners:
                            member = self._members[listener.gateway]
                            await subscriptions.enter_async_context(listener.listening(member.host, member.port))
                        await asyncio.sleep(SPREAD_S)
                        summary = await self._traffic()
                        if not await self._quiet():
                            self._troubles.append("messages still wait or arrive long after the devices have stopped")
                await asyncio.gather(*(member.poll_status() for member in self._members.values()))
                await self._end()
                self._count()
        finally:
            self._board.close()
        self._board.say("all stopped; now the audits")
        return self._outcome(monotonic() - began, summary)

    # -- gateways -----------------------------------------------------------------------------------------------

    async def _start(self, data: Path) -> None:
        """Start the gateways; journals are in *data*."""
        network, layout, folder = self._network, self._layout, self._plan.folder
        self._topology.write_text(toml_text(network.draft()), encoding="utf-8")
        (folder / SETTINGS).write_text(GATEWAY, encoding="utf-8")
        self._board.say(
            f"{len(layout.gateways)} gateways at {len(layout.sites)} sites ({', '.join(layout.sites)}), joined by"
            f" {len(layout.uplinks)} uplinks: {network.medium}; Ctrl-C ends everything"
        )
        for name in (one.name for one in layout.gateways):
            place = network.host(name), network.inside(name)
            self._members[name] = GatewayProcess(name, *place, self._topology, folder, data)
        await asyncio.gather(*(member.start() for member in self._members.values()))

    async def _meet(self) -> None:
        """Wait until all links are up. Raises ChildFailed."""
        give_up = monotonic() + MEET_S_MAX
        while not all(
            member.links and all(row["up"] for row in member.links["links"]) for member in self._members.values()
        ):
            if monotonic() > give_up:
                apart = [
                    f"{name} and {row['peer']}: {row['reason'] or 'no answer'}"
                    for name, member in self._members.items()
                    for row in member.links.get("links", ())
                    if not row["up"]
                ]
                raise DemoProcessFailed(f"gateways do not meet within {MEET_S_MAX:.0f} s: {'; '.join(apart[:3])}")
            await asyncio.sleep(SHOW_EVERY_S)

    async def _look(self) -> None:
        """Ask all gateways how they are, again and again, until cancelled."""
        while True:
            await asyncio.gather(*(member.poll_status() for member in self._members.values()))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _end(self) -> None:
        members = list(self._members.values())
        for member, code in zip(members, await asyncio.gather(*(one.end() for one in members)), strict=True):
            if code != 0:
                self._troubles.append(member.last_words())

    def _count(self) -> None:
        """Read the counters of all uplinks, and see that nothing came to a gateway by another way."""
        self._carried = {pair: self._network.carried(pair) for pair in self._layout.uplinks}
        for member in self._members.values():
            counted = self._network.received(member.name)
            if counted is None:
                continue
            tally = self._tallies[member.name] = ReceivedBytes(*counted, member.bytes_from_peers)
            if not tally.is_possible:
                heard = f"{member.name} says that it has {tally.said:,} bytes from peers"
                self._troubles.append(f"{heard}, and the kernel counts {tally.counted:,} on its links")

    async def _stop(self) -> None:
        """See that nothing is left of the gateways, whatever happened."""
        for member in self._members.values():
            member.kill_now()
        await asyncio.gather(*(member.close() for member in self._members.values()))

    # -- traffic ------------------------------------------------------------------------------------------------

    async def _traffic(self) -> dict[str, Any]:
        """Run the devices, and the mishaps while they publish. What the devices sum up."""
        plan = self._plan
        self._board.say(
            f"{plan.devices} devices for {plan.seconds:g} s, {len(self._listeners)} subscribers at other gateways"
        )
        victim = self._members[self._victim()]
        async with self._fleet() as fleet, alongside(self._watch()):
            mishaps = asyncio.create_task(self._mishaps.run(victim))
            try:
                async with asyncio.timeout(plan.seconds + DEVICES_S_MAX):
                    await fleet.wait()
                await mishaps  # the gateway that was killed is there again, and joined
            except TimeoutError:
                raise DemoProcessFailed(fleet.last_words()) from None
            finally:
                mishaps.cancel()
                await asyncio.gather(mishaps, return_exceptions=True)
            return fleet.answer()

    @asynccontextmanager
    async def _fleet(self) -> AsyncIterator[DemoProcess]:
        plan = self._plan
        arguments = ["--devices", str(plan.devices), "--rate", f"{plan.rate:g}", "--seconds", f"{plan.seconds:g}"]
        arguments += ["--profile", "cold-chain", "--payload", "mixed", "--seed", str(plan.seed), "--json"]
        arguments += ["--no-progress", "--drain", "20", "--journal", str(self._journal)]
        for member in self._members.values():
            arguments += ["--broker", member.door]
        async with child("fleet", plan.folder, "edgedevices", "fleet", *arguments) as fleet:
            yield fleet

    def _victim(self) -> str:
        """The gateway that will be killed: of those with a subscriber of QoS 2, the one that most of its site need."""
        places = [listener.gateway for listener in self._listeners if listener.spec.qos == 2]
        return max(places, key=lambda name: len(self._layout.topology.gateway(name).neighbours))

    async def _watch(self) -> None:
        """Show how it goes, until cancelled."""
        began, growth, medium = monotonic(), LineCounter(self._journal), str(self._network.medium)
        while True:
            heard = [(one.spec.name, len(one.receipts)) for one in self._listeners]
            gateways = [self._gateway_row(member) for member in self._members.values()]
            uplinks = [self._uplink_row(pair, group) for pair, group in self._between().items()]
            self._board.show(FederationState(monotonic() - began, growth.lines(), heard, gateways, uplinks, medium))
            await asyncio.sleep(SHOW_EVERY_S)

    def _gateway_row(self, member: GatewayProcess) -> GatewayRow:
        status, links = member.status, member.links.get("links", ())
        down = sum(not row["up"] for row in links)
        state = "killed" if not member.is_running else "starts" if not status else f"{down} down" if down else "up"
        return GatewayRow(
            member.name,
            state,
            status["sessions"]["connected"] if status else 0,
            status["messages"]["published"] if status else 0,
            status["copies"]["delivered"] if status else 0,
            sum(row["waiting"] for row in links),
            member.memory_peak_bytes,
        )

    def _uplink_row(self, sites: Pair, group: list[Pair]) -> UplinkRow:
        wrong = Counter(self._network.wrong[pair] for pair in group if pair in self._network.wrong)
        state = ", ".join(f"{number} of {len(group)} {what}" for what, number in wrong.items()) or "up"
        return UplinkRow("-".join(sites), self._events(sites), sum(map(self._network.carried, group)), state)

    def _between(self) -> dict[Pair, list[Pair]]:
        """The uplinks by the sites that they join."""
        found: defaultdict[Pair, list[Pair]] = defaultdict(list)
        for pair in self._layout.uplinks:
            found[self._layout.sites_of(pair)].append(pair)
        return dict(found)

    def _events(self, sites: Pair) -> int:
        """Events that crossed between two sites, both ways."""
        return sum(
            self._members[one].events_to(other) + self._members[other].events_to(one)
            for one, other in self._layout.uplinks
            if self._layout.sites_of((one, other)) == sites
        )

    async def _quiet(self) -> bool:
        """Wait until nothing waits for a peer and nobody has got anything for QUIET_S; False if that never comes."""
        give_up = monotonic() + QUIET_S_MAX
        received, since = -1, monotonic()
        while monotonic() - since < QUIET_S:
            if monotonic() > give_up:
                return False
            await asyncio.sleep(SHOW_EVERY_S)
            waiting = any(not member.is_idle for member in self._members.values())
            now_received = sum(len(listener.receipts) for listener in self._listeners)
            if waiting or now_received != received:
                received, since = now_received, monotonic()
        return True

    # -- judging ------------------------------------------------------------------------------------------------

    def _outcome(self, seconds: float, summary: dict[str, Any]) -> FederationOutcome:
        publications = read_journal(self._journal)
        ports = {member.door: name for name, member in self._members.items()}
        origins = {device: ports[broker] for broker, names in summary["dealt"].items() for device in names}
        self._check(summary, publications)
        promised = [replace(one, outcome=one.outcome if one.qos else UNPROMISED) for one in publications]
        mishaps = self._mishaps

        def may_repeat(listener: SiteSubscriber) -> Callable[[DevicePublication, Any], bool]:
            return lambda one, _: listener.has_broken or origins[one.device] == mishaps.victim

        def went_around(one: DevicePublication) -> bool:
            return one.sent_us is not None and mishaps.went_around(one.sent_us)

        accounts = [
            audit(one.spec, promised, one.receipts, may_repeat=may_repeat(one), went_around=went_around)
            for one in self._listeners
        ]
        specs: defaultdict[str, list[Any]] = defaultdict(list)
        for listener in self._listeners:
            specs[self._layout.site(listener.gateway)].append(listener.spec)
        between = self._between()
        widths = {pair: len(group) for pair, group in between.items()}
        early = [one for one in publications if one.sent_us is not None and one.sent_us < mishaps.killed_us]
        instead, before = (
            alternatives(widths, told, lambda one: self._layout.site(origins[one.device]), specs)
            for told in (publications, early)
        )
        return FederationOutcome(
            seconds=seconds,
            gateways=len(self._members),
            devices=self._plan.devices,
            publications=publications,
            accounts=accounts,
            at={one.spec.name: one.gateway for one in self._listeners},
            missed=sum(_missed(one, publications) for one in self._listeners),
            log_audit=LogAudit.read({name: member.log for name, member in self._members.items()}),
            crossings={
                pair: UplinkTraffic(
                    sum(self._carried[uplink] for uplink in group),
                    self._events(pair),
                    instead[pair],
                    sum(mishaps.carried.get(uplink, 0) for uplink in group),
                    before[pair],
                )
                for pair, group in between.items()
            },
            memory={name: member.memory_peak_bytes for name, member in self._members.items()},
            delays=self._delays(publications, origins),
            medium=self._network.medium,
            received=self._tallies,
            events=mishaps.messages,
            troubles=tuple(self._troubles),
        )

    def _delays(self, publications: list[DevicePublication], origins: dict[str, str]) -> dict[CopyRoute, list[int]]:
        """How long messages took, but for those of times of trouble."""
        sent: dict[Key, DevicePublication] = {one.key: one for one in publications}
        found: defaultdict[CopyRoute, list[int]] = defaultdict(list)
        for listener in self._listeners:
            for receipt in listener.receipts:
                one = sent.get(receipt.key)
                if one is not None and one.sent_us is not None and self._mishaps.is_calm(one.sent_us):
                    road = self._layout.road(origins[one.device], listener.gateway, one.qos)
                    found[road].append(receipt.at_us - one.sent_us)
        return dict(found)

    def _check(self, summary: dict[str, Any], publications: list[DevicePublication]) -> None:
        """Whether the devices all took part, gave nothing up that is promised, and noted what they counted."""
        if summary["never_connected"]:
            self._troubles.append(f"{summary['never_connected']} devices never got a connection")
        failed = sum(bool(one.qos) and not one.is_due for one in publications)
        if failed:
            self._troubles.append(f"{failed:,} messages with QoS 1 or 2 were given up by their devices")
        if summary["published"] != len(publications):
            noted = f"and note {len(publications):,} in the journal"
            self._troubles.append(f"devices count {summary['published']:,} messages, {noted}")


def _missed(listener: SiteSubscriber, publications: list[DevicePublication]) -> int:
    """Messages with QoS 0 that left their device, that the listener asks for, and that it did not get."""
    spec, seen = listener.spec, {receipt.key for receipt in listener.receipts}
    return sum(
        not one.qos
        and one.is_due
        and spec.topic_filter.matches(one.topic)
        and accepts(spec, one)
        and one.key not in seen
        for one in publications
    )
