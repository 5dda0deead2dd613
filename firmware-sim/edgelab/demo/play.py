"""The demo step by step: gateway, subscribers, devices; then all are stopped in the order that loses no message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from edgelab.demo.audit import DevicePublication, LineCounter, audit, read_journal
from edgelab.demo.child import DemoProcess, DemoProcessFailed, child
from edgelab.demo.outcome import DemoOutcome
from edgelab.demo.subscriber import DemoSubscriber, quiet
from edgelab.demo.subscriber_specs import SUBSCRIBER_SPECS
from edgelab.demo.view import DemoState, DemoView

HOST: Final = "127.0.0.1"
LISTEN_S_MAX: Final = 20.0  # starting takes a quarter of a second; on a cold disk or a busy machine much longer
DEVICES_S_MAX: Final = 60.0  # in addition to the run itself: connecting, the last acknowledgements, disconnecting
REPORT_S_MAX: Final = 600.0
SHOW_EVERY_S: Final = 0.25
POLL_EVERY_S: Final = 0.05
HOST_EVERY: Final = "500ms"

DEVICES: Final = ("fleet", "host")
PROCESSES: Final = ("gateway", *DEVICES, "report")
FILES: Final = (
    *(f"{name}.{kind}" for name in PROCESSES for kind in ("out", "log")),
    *(f"{name}.jsonl" for name in DEVICES),
    "report.html",
)
"""The files that the demo writes beside the delivery log in `log/`."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The options of the user. rate: messages per second and device."""

    seconds: float
    devices: int
    rate: float
    seed: int
    folder: Path


def clear(folder: Path) -> None:
    """Create *folder* and delete an earlier demo's files in it, and nothing else. Raises OSError."""
    log = folder / "log"
    log.mkdir(parents=True, exist_ok=True)
    for path in (*(folder / name for name in FILES), *log.glob("*.edl"), *log.glob("*.edl.part")):
        path.unlink(missing_ok=True)


class DemoPlay:
    """One run of a plan."""

    def __init__(self, plan: DemoPlan, view: DemoView) -> None:
        self._plan = plan
        self._view = view
        self._subscribers = [DemoSubscriber(spec) for spec in SUBSCRIBER_SPECS]
        self._journals = [plan.folder / f"{name}.jsonl" for name in DEVICES]
        self._troubles: list[str] = []

    async def run(self) -> DemoOutcome:
        """Run the demo. Raises EdgebrokerError if it cannot continue."""
        began = monotonic()
        async with AsyncExitStack() as stack:
            gateway = await stack.enter_async_context(self._gateway())
            port = await listening(gateway)
            async with AsyncExitStack() as subscriptions:
                for subscriber in self._subscribers:
                    await subscriptions.enter_async_context(subscriber.listening(HOST, port))
                self._view.say(
                    f"gateway on {HOST}:{port}, {len(self._subscribers)} subscribers, {self._plan.devices} devices"
                    f" for {self._plan.seconds:g} s; Ctrl-C ends everything"
                )
                async with alongside(self._watch()):
                    summaries = await self._devices(port, gateway)
                    if not await quiet(self._subscribers):
                        self._troubles.append("subscribers still receive messages long after the devices have stopped")
                self._troubles += [
                    f"{subscriber.spec.name}: {subscriber.failure}"
                    for subscriber in self._subscribers
                    if subscriber.failure is not None
                ]
            self._view.close()
            code = await gateway.end()
            if code != 0:
                self._troubles.append(gateway.last_words())
        self._view.say("all stopped; now both audits, the second one by Spark over the delivery log")
        async with self._report() as reporting:
            publications = [publication for path in self._journals for publication in read_journal(path)]
            reconnected = any(summary["reconnects"] for summary in summaries)
            accounts = [
                audit(one.spec, publications, one.receipts, may_repeat=lambda *_: reconnected)
                for one in self._subscribers
            ]
            report = await self._reported(reporting)
        self._check(summaries, publications)
        return DemoOutcome(
            seconds=monotonic() - began,
            devices=self._plan.devices,
            publications=publications,
            accounts=accounts,
            report=report,
            report_path=str(self._plan.folder / "report.html"),
            troubles=tuple(self._troubles),
        )

    def _gateway(self) -> AbstractAsyncContextManager[DemoProcess]:
        arguments = ("--host", HOST, "--port", "0", "--log-dir", str(self._plan.folder / "log"), "--json")
        return child("gateway", self._plan.folder, "edgebroker", "run", *arguments)

    def _report(self) -> AbstractAsyncContextManager[DemoProcess]:
        folder = self._plan.folder
        arguments = (str(folder / "log"), "--out", str(folder / "report.html"), "--json")
        return child("report", folder, "edgeanalytics", "report", *arguments)

    # -- devices ------------------------------------------------------------------------------------------------

    async def _devices(self, port: int, gateway: DemoProcess) -> list[dict[str, Any]]:
        """Run the fleet and this machine's own telemetry until they have ended. Returns their summaries."""
        plan = self._plan
        common = ["--seconds", f"{plan.seconds:g}", "--broker", f"{HOST}:{port}", "--json", "--no-progress"]
        fleet = [*("--devices", str(plan.devices)), *("--profile", "cold-chain"), *("--rate", f"{plan.rate:g}")]
        fleet += [*("--qos", "mix"), *("--payload", "mixed"), *("--mqtt", "mixed"), *("--seed", str(plan.seed))]
        own = {"fleet": fleet, "host": ["--every", HOST_EVERY]}
        async with AsyncExitStack() as stack:
            devices = [
                await stack.enter_async_context(
                    child(name, plan.folder, "edgedevices", name, *own[name], *common, "--journal", str(journal))
                )
                for name, journal in zip(DEVICES, self._journals, strict=True)
            ]
            await self._until_ended(devices, gateway)
            return [device.answer() for device in devices]

    async def _until_ended(self, devices: list[DemoProcess], gateway: DemoProcess) -> None:
        """Wait for all *devices*. Raises DemoProcessFailed if the gateway ends first or they do not end in time."""
        ended = asyncio.gather(*(device.wait() for device in devices))
        broken = asyncio.create_task(gateway.wait())
        try:
            limit_s = self._plan.seconds + DEVICES_S_MAX
            await asyncio.wait((ended, broken), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                culprit = gateway if broken.done() else next(one for one in devices if one.returncode is None)
                for device in devices:
                    device.kill()  # on SIGTERM they would wait for acknowledgements that nobody sends
                raise DemoProcessFailed(culprit.last_words())
        finally:
            for waiting in (ended, broken):
                waiting.cancel()
            await asyncio.gather(ended, broken, return_exceptions=True)

    async def _watch(self) -> None:
        """Display the state until cancelled."""
        began = monotonic()
        growths = [LineCounter(path) for path in self._journals]
        while True:
            received = tuple(len(subscriber.receipts) for subscriber in self._subscribers)
            # Journals grow by blocks of some kilobytes; a received message counts as published.
            published = max(received[0], sum(growth.lines() for growth in growths))
            self._view.show(DemoState(monotonic() - began, published, received))
            await asyncio.sleep(SHOW_EVERY_S)

    # -- audit ---------------------------------------------------------------------------------------------------

    async def _reported(self, reporting: DemoProcess) -> dict[str, Any]:
        """Return the report without its tables; empty, with an entry in the troubles, if there is no report."""
        try:
            async with alongside(self._print_progress(reporting)), asyncio.timeout(REPORT_S_MAX):
                await reporting.wait()
            report = reporting.answer()
        except TimeoutError:
            self._troubles.append(f"report: not done in {REPORT_S_MAX:.0f} s")
            return {}
        except DemoProcessFailed as failure:
            self._troubles.append(str(failure))
            return {}
        report.pop("tables", None)
        return report

    async def _print_progress(self, reporting: DemoProcess) -> None:
        """Print the progress of the report until cancelled: Spark needs some time."""
        shown = 0
        while True:
            for line in reporting.messages()[shown:]:
                shown += 1
                self._view.say(line)
            await asyncio.sleep(SHOW_EVERY_S)

    def _check(self, summaries: list[dict[str, Any]], publications: list[DevicePublication]) -> None:
        """Check that all devices took part, and that counters and journals agree."""
        absent = sum(summary["never_connected"] for summary in summaries)
        if absent:
            self._troubles.append(f"{absent} devices never got a connection")
        published = sum(summary["published"] for summary in summaries)
        if published != len(publications):
            self._troubles.append(f"devices count {published:,} messages, and note {len(publications):,} in journals")


async def listening(gateway: DemoProcess) -> int:
    """Return the port on which *gateway* listens, as soon as it prints it. Raises DemoProcessFailed if it ends or is
    too slow.
    """
    deadline = monotonic() + LISTEN_S_MAX
    while gateway.returncode is None and monotonic() < deadline:
        if gateway.has_answered:
            port: int = gateway.answer()["port"]
            return port
        await asyncio.sleep(POLL_EVERY_S)
    raise DemoProcessFailed(gateway.last_words())


@asynccontextmanager
async def alongside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run *work*, which never ends, while the block runs."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
