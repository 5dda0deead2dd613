"""The text format of OpenMetrics 1.0, which Prometheus and its kin read.

    page = Exposition()
    page.family("edgebroker_copies_dropped", "counter", "Copies given up, by cause.")
    page.sample("_total", 3, cause="queue_full")
    page.text()

The caller keeps the rules of the format that are about names: a unit is the end of its family's name, the samples of a
family stand together, a counter's end in `_total`. The tests read each page with the specification's grammar.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

CONTENT_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Exposition:
    """One page of metrics, written from top to bottom."""

    __slots__ = ("_lines", "_name")

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._name = ""

    def family(self, name: str, kind: str, meaning: str, unit: str = "") -> None:
        """Begin the metric *name* of *kind* (counter, gauge, histogram, info); its samples follow."""
        self._name = name
        self._lines.append(f"# TYPE {name} {kind}")
        if unit:
            self._lines.append(f"# UNIT {name} {unit}")
        self._lines.append(f"# HELP {name} {meaning.translate(_ESCAPES)}")

    def sample(self, suffix: str, value: int | float, **labels: str) -> None:
        """One value of the present family. *suffix* is `_total`, `_bucket` and so on, or empty."""
        shown = ""
        if labels:
            pairs = (f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
            shown = "{" + ",".join(pairs) + "}"
        self._lines.append(f"{self._name}{suffix}{shown} {value}")

    def counter(self, name: str, meaning: str, value: int | float, unit: str = "") -> None:
        """A family of one counter."""
        self.family(name, "counter", meaning, unit)
        self.sample("_total", value)

    def gauge(self, name: str, meaning: str, value: int | float, unit: str = "") -> None:
        """A family of one gauge."""
        self.family(name, "gauge", meaning, unit)
        self.sample("", value)

    def histogram(
        self, name: str, meaning: str, unit: str, bounds: Iterable[float], counts: Iterable[int], total: float
    ) -> None:
        """A family of one histogram. *counts* has one number for each of *bounds*, and one for what is beyond them.

        They are the observations in each bucket alone; the page shows them added up, as the format wants it.
        """
        self.family(name, "histogram", meaning, unit)
        below = 0
        for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
            below += count
            self.sample("_bucket", below, le=bound)
        self.sample("_sum", total)
        self.sample("_count", below)

    def text(self) -> bytes:
        """The whole page."""
        return "\n".join([*self._lines, "# EOF", ""]).encode("utf-8", "replace")
