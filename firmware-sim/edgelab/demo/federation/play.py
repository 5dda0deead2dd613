"""The demo of a federation step by step: gateways, subscribers, devices and faults; then the end and the audit.

The subscribers select some per cent of the messages of all sites by content.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

from edgebridge.wire.dialect import V5, V311
from edgebroker.cli.topology.toml_text import toml_text
from edgebroker.names import Address, ClientAddress
from edgelab.demo.audit import DevicePublication, Key, LineCounter, accepts, audit, read_journal
from edgelab.demo.child import DemoProcess, DemoProcessFailed, child
from edgelab.demo.federation.board import Board, FederationState, GatewayRow, UplinkRow
from edgelab.demo.federation.gateway_process import JOURNAL, SETTINGS, TOKENS, TOPOLOGY, GatewayProcess
from edgelab.demo.federation.layout import CopyRoute, Pair
from edgelab.demo.federation.listener import SiteSubscriber
from edgelab.demo.federation.log_audit import LogAudit
from edgelab.demo.federation.mishaps import Mishaps
from edgelab.demo.federation.network import FederationNetwork
from edgelab.demo.federation.outcome import FederationOutcome, ReceivedBytes, UplinkTraffic, alternatives
from edgelab.demo.federation.placement_act import DemoPlacement, PlacementAct
from edgelab.demo.play import DEVICES_S_MAX, alongside
from edgelab.demo.subscriber_specs import FilterCarrier, SubscriberSpec
from edgelab.processes import free_ports

SITE_SPECS: Final = (
    SubscriberSpec("cold", "cold-chain/#", 1, V5, "temperature < 3", FilterCarrier.PROPERTY),
    SubscriberSpec("damp", "cold-chain/#", 2, V5, "humidity > 74", FilterCarrier.PROPERTY),
    SubscriberSpec("warm", "cold-chain/#", 1, V311, "temperature BETWEEN 5.1 AND 5.4"),
    SubscriberSpec("truck-3", "cold-chain/truck-3/#", 2, V311, "humidity > 64"),
    SubscriberSpec("late", "cold-chain/+/unit-01", 1, V5, "door_open AND temperature BETWEEN 6 AND 9"),
)
"""Subscriptions, assigned to the sites in turn, and there to gateways in turn."""


JOIN_S_MAX: Final = 30.0
SPREAD_S: Final = 0.5  # interests spread from gateway to gateway of a site within milliseconds
QUIET_S: Final = 1.0
QUIET_S_MAX: Final = 60.0  # for messages queued at a throttled uplink, and devices that reconnect after 15 s
POLL_EVERY_S: Final = 1.0
SHOW_EVERY_S: Final = 0.25
GATEWAY: Final = """[listener]
anonymous = true  # only this demo reaches where it listens
[relocation]
priority = "load"
weight = 100
[http]
token_file = {}
"""
"""The settings of all gateways, besides the options on the command line."""
UNPROMISED: Final = "unpromised"
"""The outcome of messages without a delivery guarantee: QoS 0."""


@dataclass(frozen=True, slots=True)
class FederationPlan:
    """The options of the user. rate: messages per second and device."""

    seconds: float
    devices: int
    rate: float
    seed: int
    folder: Path


class FederationPlay:
    """One run of a plan, whose folder is empty."""

    def __init__(self, plan: FederationPlan, network: FederationNetwork, board: Board) -> None:
        self._plan = plan
        self._board = board
        self._network = network
        self._layout = layout = network.layout
        self._topology = plan.folder / TOPOLOGY
        self._gateways: dict[str, GatewayProcess] = {}
        self._listeners = [
            SiteSubscriber(spec, place) for spec, place in zip(SITE_SPECS, layout.places(), strict=False)
        ]
        self._journal = plan.folder / JOURNAL
        self._mishaps = Mishaps(plan.seconds, network, self._wait_until_joined, board.say)
        self._carried: dict[Pair, int] = {}
        self._crossed: dict[Pair, int] = {}
        self._placement: DemoPlacement | None = None
        self._tallies: dict[str, ReceivedBytes] = {}
        self._troubles: list[str] = []

    async def run(self) -> FederationOutcome:
        """Run the demo. Raises EdgebrokerError if it cannot continue."""
        began = monotonic()
        try:
            async with AsyncExitStack() as stack:
                data = Path(stack.enter_context(TemporaryDirectory(prefix="edgebroker-demo-")))
                await stack.enter_async_context(self._network.open())
                stack.push_async_callback(self._stop)
                await self._start(data)
                async with alongside(self._poll_gateways()):
                    await self._wait_until_joined()
                    async with AsyncExitStack() as subscriptions:
                        for listener in self._listeners:
                            gateway = self._gateways[listener.gateway]
                            await subscriptions.enter_async_context(listener.listening(gateway.host, gateway.port))
                        await asyncio.sleep(SPREAD_S)
                        summary = await self._traffic()
                        if not await self._quiet():
                            self._troubles.append("messages still wait or arrive long after the devices have stopped")
                        await self._place()
                await asyncio.gather(*(gateway.poll_status() for gateway in self._gateways.values()))
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
        ports = free_ports(len(layout.gateways))
        addresses = {
            one.name: Address(network.host(one.name), port) for one, port in zip(layout.gateways, ports, strict=True)
        }
        draft = network.draft()
        reachable = (replace(one, clients=(ClientAddress(False, addresses[one.name]),)) for one in draft.gateways)
        self._topology.write_text(toml_text(replace(draft, gateways=tuple(reachable))), encoding="utf-8")
        (data / TOKENS).write_text(token_hex(), encoding="ascii")
        (data / TOKENS).chmod(0o600)
        (folder / SETTINGS).write_text(GATEWAY.format(json.dumps(str(data / TOKENS))), encoding="utf-8")
        self._board.say(
            f"{len(layout.gateways)} gateways at {len(layout.sites)} sites ({', '.join(layout.sites)}), joined by"
            f" {len(layout.uplinks)} uplinks: {network.medium}; Ctrl-C ends everything"
        )
        for name, address in addresses.items():
            self._gateways[name] = GatewayProcess(name, address, network.inside(name), self._topology, folder, data)
        await asyncio.gather(*(gateway.start() for gateway in self._gateways.values()))

    async def _place(self) -> None:
        """Let a plan move a publisher. What that costs is no part of what devices and subscribers cost."""
        await asyncio.gather(*(gateway.poll_status() for gateway in self._gateways.values()))
        self._carried = {pair: self._network.carried(pair) for pair in self._layout.uplinks}
        self._crossed = {pair: self._events(pair) for pair in self._between()}
        self._board.say("a publisher whose reader is at another site")
        self._placement = await PlacementAct(self._network, self._gateways, self._board.say).run()
        if self._placement.lost:
            self._troubles.append(f"{self._placement.lost} messages of the publisher that was moved are lost")

    async def _wait_until_joined(self) -> None:
        """Wait until all links are up. Raises DemoProcessFailed."""
        deadline = monotonic() + JOIN_S_MAX
        while not all(
            gateway.links and all(row["up"] for row in gateway.links["links"]) for gateway in self._gateways.values()
        ):
            if monotonic() > deadline:
                missing_links = [
                    f"{name} and {row['peer']}: {row['reason'] or 'no answer'}"
                    for name, gateway in self._gateways.items()
                    for row in gateway.links.get("links", ())
                    if not row["up"]
                ]
                raise DemoProcessFailed(
                    f"gateways do not meet within {JOIN_S_MAX:.0f} s: {'; '.join(missing_links[:3])}"
                )
            await asyncio.sleep(SHOW_EVERY_S)

    async def _poll_gateways(self) -> None:
        """Poll the status of all gateways until cancelled."""
        while True:
            await asyncio.gather(*(gateway.poll_status() for gateway in self._gateways.values()))
            await asyncio.sleep(POLL_EVERY_S)

    async def _end(self) -> None:
        gateways = list(self._gateways.values())
        for gateway, code in zip(gateways, await asyncio.gather(*(one.end() for one in gateways)), strict=True):
            if code != 0:
                self._troubles.append(gateway.last_words())

    def _count(self) -> None:
        """Check that no bytes bypassed the links, as far as the kernel counts them."""
        for gateway in self._gateways.values():
            counted = self._network.received(gateway.name)
            if counted is None:
                continue
            tally = self._tallies[gateway.name] = ReceivedBytes(*counted, gateway.bytes_from_peers)
            if not tally.is_possible:
                report = f"{gateway.name} says that it has {tally.reported:,} bytes from peers"
                self._troubles.append(f"{report}, and the kernel counts {tally.counted:,} on its links")

    async def _stop(self) -> None:
        """End all gateways that still run."""
        for gateway in self._gateways.values():
            gateway.kill_now()
        await asyncio.gather(*(gateway.close() for gateway in self._gateways.values()))

    # -- traffic ------------------------------------------------------------------------------------------------

    async def _traffic(self) -> dict[str, Any]:
        """Run the devices, and cause the faults while they publish. Returns the devices' summary."""
        plan = self._plan
        self._board.say(
            f"{plan.devices} devices for {plan.seconds:g} s, {len(self._listeners)} subscribers at other gateways"
        )
        victim = self._gateways[self._victim()]
        async with self._fleet() as fleet, alongside(self._watch()):
            mishaps = asyncio.create_task(self._mishaps.run(victim))
            try:
                async with asyncio.timeout(plan.seconds + DEVICES_S_MAX):
                    await fleet.wait()
                await mishaps  # the killed gateway runs again, and is joined
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
        for gateway in self._gateways.values():
            arguments += ["--broker", gateway.client_address]
        async with child("fleet", plan.folder, "edgedevices", "fleet", *arguments) as fleet:
            yield fleet

    def _victim(self) -> str:
        """Return the gateway to kill: of those with a QoS 2 subscriber, the one with the most neighbours."""
        places = [listener.gateway for listener in self._listeners if listener.spec.qos == 2]
        return max(places, key=lambda name: len(self._layout.topology.gateway(name).neighbours))

    async def _watch(self) -> None:
        """Display the state until cancelled."""
        began, growth, medium = monotonic(), LineCounter(self._journal), str(self._network.medium)
        while True:
            received = [(one.spec.name, len(one.receipts)) for one in self._listeners]
            gateways = [self._gateway_row(gateway) for gateway in self._gateways.values()]
            uplinks = [self._uplink_row(pair, group) for pair, group in self._between().items()]
            self._board.show(FederationState(monotonic() - began, growth.lines(), received, gateways, uplinks, medium))
            await asyncio.sleep(SHOW_EVERY_S)

    def _gateway_row(self, gateway: GatewayProcess) -> GatewayRow:
        status, links = gateway.status, gateway.links.get("links", ())
        down = sum(not row["up"] for row in links)
        state = "killed" if not gateway.is_running else "starts" if not status else f"{down} down" if down else "up"
        return GatewayRow(
            gateway.name,
            state,
            status["sessions"]["connected"] if status else 0,
            status["messages"]["published"] if status else 0,
            status["copies"]["delivered"] if status else 0,
            sum(row["waiting"] for row in links),
            gateway.memory_peak_bytes,
        )

    def _uplink_row(self, sites: Pair, group: list[Pair]) -> UplinkRow:
        wrong = Counter(self._network.wrong[pair] for pair in group if pair in self._network.wrong)
        state = ", ".join(f"{number} of {len(group)} {fault}" for fault, number in wrong.items()) or "up"
        return UplinkRow("-".join(sites), self._events(sites), sum(map(self._network.carried, group)), state)

    def _between(self) -> dict[Pair, list[Pair]]:
        """Return the uplinks by the sites that they join."""
        by_sites: defaultdict[Pair, list[Pair]] = defaultdict(list)
        for pair in self._layout.uplinks:
            by_sites[self._layout.sites_of(pair)].append(pair)
        return dict(by_sites)

    def _events(self, sites: Pair) -> int:
        """Return the events that crossed between two sites, in both directions."""
        return sum(
            self._gateways[one].events_to(other) + self._gateways[other].events_to(one)
            for one, other in self._layout.uplinks
            if self._layout.sites_of((one, other)) == sites
        )

    async def _quiet(self) -> bool:
        """Wait until no event waits for a peer and no subscriber has received anything for QUIET_S.

        Returns False if that does not happen in time.
        """
        deadline = monotonic() + QUIET_S_MAX
        received, since = -1, monotonic()
        while monotonic() - since < QUIET_S:
            if monotonic() > deadline:
                return False
            await asyncio.sleep(SHOW_EVERY_S)
            waiting = any(not gateway.is_idle for gateway in self._gateways.values())
            now_received = sum(len(listener.receipts) for listener in self._listeners)
            if waiting or now_received != received:
                received, since = now_received, monotonic()
        return True

    # -- audit ---------------------------------------------------------------------------------------------------

    def _outcome(self, seconds: float, summary: dict[str, Any]) -> FederationOutcome:
        publications = read_journal(self._journal)
        ports = {gateway.client_address: name for name, gateway in self._gateways.items()}
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
        alternatives_now, alternatives_early = (
            alternatives(widths, messages, lambda one: self._layout.site(origins[one.device]), specs)
            for messages in (publications, early)
        )
        return FederationOutcome(
            seconds=seconds,
            gateways=len(self._gateways),
            devices=self._plan.devices,
            publications=publications,
            accounts=accounts,
            at={one.spec.name: one.gateway for one in self._listeners},
            missed=sum(_missed(one, publications) for one in self._listeners),
            log_audit=LogAudit.read({name: gateway.log for name, gateway in self._gateways.items()}),
            crossings={
                pair: UplinkTraffic(
                    sum(self._carried[uplink] for uplink in group),
                    self._crossed[pair],
                    alternatives_now[pair],
                    sum(mishaps.carried.get(uplink, 0) for uplink in group),
                    alternatives_early[pair],
                )
                for pair, group in between.items()
            },
            memory={name: gateway.memory_peak_bytes for name, gateway in self._gateways.items()},
            delays=self._delays(publications, origins),
            medium=self._network.medium,
            received=self._tallies,
            events=mishaps.messages,
            placement=self._placement,
            troubles=tuple(self._troubles),
        )

    def _delays(self, publications: list[DevicePublication], origins: dict[str, str]) -> dict[CopyRoute, list[int]]:
        """Return the latencies of messages, without those sent in times of faults."""
        sent: dict[Key, DevicePublication] = {one.key: one for one in publications}
        delays: defaultdict[CopyRoute, list[int]] = defaultdict(list)
        for listener in self._listeners:
            for receipt in listener.receipts:
                one = sent.get(receipt.key)
                if one is not None and one.sent_us is not None and self._mishaps.is_calm(one.sent_us):
                    route = self._layout.route(origins[one.device], listener.gateway, one.qos)
                    delays[route].append(receipt.at_us - one.sent_us)
        return dict(delays)

    def _check(self, summary: dict[str, Any], publications: list[DevicePublication]) -> None:
        """Check that all devices took part, that none gave up a QoS 1 or 2 message, and that counters and journal
        agree.
        """
        if summary["never_connected"]:
            self._troubles.append(f"{summary['never_connected']} devices never got a connection")
        failed = sum(bool(one.qos) and not one.is_due for one in publications)
        if failed:
            self._troubles.append(f"{failed:,} messages with QoS 1 or 2 were given up by their devices")
        if summary["published"] != len(publications):
            recorded = f"and note {len(publications):,} in the journal"
            self._troubles.append(f"devices count {summary['published']:,} messages, {recorded}")


def _missed(listener: SiteSubscriber, publications: list[DevicePublication]) -> int:
    """Return the number of QoS 0 messages that left their device, match the listener's subscription, and did not
    arrive.
    """
    spec, seen = listener.spec, {receipt.key for receipt in listener.receipts}
    return sum(
        not one.qos
        and one.is_due
        and spec.topic_filter.matches(one.topic)
        and accepts(spec, one)
        and one.key not in seen
        for one in publications
    )
