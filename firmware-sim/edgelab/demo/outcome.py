"""The outcome of the demo: key figures as text and as JSON, and every reason why it failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from edgelab.demo.audit import NAMED_MAX, DevicePublication, SubscriberAccount

PERCENTILES: Final = ("p50", "p90", "p99")
FINDINGS: Final = ("lost", "duplicates", "wrong", "reordered")


def found_end_to_end(publications: Sequence[DevicePublication], accounts: Sequence[SubscriberAccount]) -> Iterator[str]:
    """Yield the findings of the end-to-end audit as problems of a demo."""
    if not publications:
        yield "the devices published nothing"
    for account in accounts:
        for finding in FINDINGS:
            messages = getattr(account, finding)
            if messages:
                yield f"{account.spec.name}: {finding} {len(messages):,}, first {messages[0]}"


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """All results of the demo. `report` is the JSON of `edgeanalytics report` without its tables."""

    seconds: float
    devices: int
    publications: Sequence[DevicePublication]
    accounts: Sequence[SubscriberAccount]
    report: dict[str, Any]
    report_path: str
    troubles: tuple[str, ...] = ()
    """Failures of processes and connections."""

    @property
    def deliveries(self) -> int:
        """Return the messages received by all subscribers together."""
        return sum(account.received for account in self.accounts)

    def found(self, finding: str) -> int:
        """Return the number of messages of all subscribers with this *finding* (one of FINDINGS)."""
        return sum(len(getattr(account, finding)) for account in self.accounts)

    def problems(self) -> list[str]:
        """Return every reason why the demo failed; empty if it succeeded."""
        return [*self.troubles, *self._found_end_to_end(), *self._found_by_spark()]

    def _found_end_to_end(self) -> Iterator[str]:
        failed = sum(not publication.is_due for publication in self.publications)
        if failed:
            yield f"{failed:,} messages were given up by their devices"
        yield from found_end_to_end(self.publications, self.accounts)

    def _found_by_spark(self) -> Iterator[str]:
        report = self.report
        if not report:
            return  # `troubles` contains the reason
        if not report["ok"]:
            yield f"the report's audit: {report['verdict']}"
        unjudged = {state: count for state, count in report["runs"].items() if state != "complete"}
        if unjudged or not report["runs"]:
            yield f"the report could not judge the run: {unjudged or 'there is none'}"
        if report["damages"]:
            yield f"the delivery log has {report['damages']:,} damaged places"
        expected = {
            "published": len(self.publications),
            "copies": self.deliveries,
            "delivered": self.deliveries,
            "filtered": 0,
        }
        for name, number in expected.items():
            if report[name] != number:
                yield f"the delivery log says {report[name]:,} {name}, devices and subscribers say {number:,}"

    # -- as text ------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """Yield the key figures."""
        by_qos = Counter(publication.qos for publication in self.publications)
        dealt = ", ".join(f"{by_qos[qos]:,} with QoS {qos}" for qos in sorted(by_qos))
        filtering = [account for account in self.accounts if account.spec.where]
        candidates, wanted = (sum(getattr(one, name) for one in filtering) for name in ("candidates", "wanted"))
        held = f"; filters held back {1 - wanted / candidates:.0%} of {candidates:,}" if candidates else ""
        yield f"messages    {len(self.publications):,} from {self.devices} devices and this machine: {dealt}"
        yield f"deliveries  {self.deliveries:,} to {len(self.accounts)} subscribers{held}"
        yield ""
        yield from self._table()
        yield ""
        for number, (qos, waits) in enumerate(sorted(self.report.get("latency_us", {}).items())):
            shown = "   ".join(f"{name} {duration(waits[name])}" for name in PERCENTILES)
            yield f"{'' if number else 'latency':<12}QoS {qos}   {shown}"
        found = {finding: self.found(finding) for finding in FINDINGS}
        counts = f"lost {found['lost']:,}, duplicates {found['duplicates']:,}, wrong {found['wrong']:,}"
        yield f"audit       end to end: {counts}, out of order {found['reordered']:,}"
        if self.report:
            yield f"            by Spark:   {self.report['verdict']}; {self.report['delivered']:,} delivered"
            yield f"report      {self.report_path}"
        for problem in self.problems():
            yield f"FAILED      {problem}"

    def _table(self) -> Iterator[str]:
        headings = ("subscriber", "asks for", "how", "matching", "wanted", "received")
        rows = [
            (
                account.spec.name,
                account.spec.where or account.spec.topic,
                account.spec.manner,
                *(f"{number:,}" for number in (account.candidates, account.wanted, account.received)),
            )
            for account in self.accounts
        ]
        widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        for row in (headings, *rows):
            cells = [
                cell.ljust(width) if at < 3 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            yield "  ".join(cells).rstrip()

    # -- as JSON ------------------------------------------------------------------------------------------------

    def as_object(self) -> dict[str, Any]:
        """Return all figures, for `--json`."""
        problems = self.problems()
        return {
            "ok": not problems,
            "problems": problems,
            "seconds": round(self.seconds, 3),
            "published": len(self.publications),
            "deliveries": self.deliveries,
            **{finding: self.found(finding) for finding in FINDINGS},
            "subscribers": [_account_object(account) for account in self.accounts],
            "report_path": self.report_path,
            "report": self.report,
        }


def _account_object(account: SubscriberAccount) -> dict[str, Any]:
    spec = account.spec
    return {
        "name": spec.name,
        "topic": spec.topic,
        "where": spec.where,
        "carrier": spec.carrier.value if spec.where else None,
        "qos": spec.qos,
        "mqtt": spec.dialect.version,
        "matching": account.candidates,
        "wanted": account.wanted,
        "received": account.received,
        "repeated": account.repeated,
        **{finding: len(getattr(account, finding)) for finding in FINDINGS},
        "named": {finding: getattr(account, finding)[:NAMED_MAX] for finding in FINDINGS},
    }


def duration(us: int) -> str:
    """Format microseconds with three digits, in the unit that suits: "850 us", "1.25 ms", "12.5 s"."""
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if us >= size:
            return f"{us / size:.3g} {unit}" if us < 1_000 * size else f"{us / size:,.0f} {unit}"
    return f"{us} us"
