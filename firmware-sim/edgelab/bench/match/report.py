"""The progress and the outcome of `edgebroker bench match`, for programs and for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from edgebroker.cli.call_durations import clock_us
from edgebroker.cli.subscription_file import Installation
from edgelab.bench.match.rounds import MatchAnswers, RoundDurations

ERASE_LINE = "\r\x1b[K"


class BenchProgress:
    """One line that changes, on a terminal only; and remarks, everywhere."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_terminal = self._stream.isatty()
        self._shown = ""

    def show(self, doing: str) -> None:
        """Replace the line by *doing*; an empty text clears it."""
        if self._is_terminal and doing != self._shown:
            self._shown = doing
            self._stream.write(ERASE_LINE + doing)
            self._stream.flush()

    def remark(self, sentence: str) -> None:
        """Print *sentence* on a line of its own."""
        doing = self._shown
        self.show("")
        self._stream.write(sentence + "\n")
        self._stream.flush()
        self.show(doing)


RSS_UNIT = 1 if sys.platform == "darwin" else 1024
MIB = 1024 * 1024

Figures = Mapping[str, float | int | str | bool]

_TIMES: Final = {
    "match": "attributes at hand -> ids of all matching subscriptions",
    "decide": "attributes at hand -> links",
    "end_to_end": "JSON bytes -> ids of all matching subscriptions",
    "resolve": "a topic seen for the first time",
    "insert": "subscribe, while the tree fills",
    "reinsert": "subscribe, the tree full",
    "remove": "unsubscribe, the tree full",
}
"""What is timed -> in words."""


def figures(installed: Installation, answers: MatchAnswers, timings: RoundDurations, rounds: int) -> Figures:
    """Everything that was measured and counted. Times in us, medians; `_p99_us` beside them."""
    count, events = len(installed.ids), len(answers.events)
    census = installed.tree.census()
    spent = {
        "match": timings.matching,
        "decide": timings.deciding,
        "end_to_end": timings.end_to_end,
        "resolve": timings.resolving,
        "insert": installed.inserting,
        "reinsert": installed.reinserting,
        "remove": installed.removing,
    }
    return {
        "kernel": installed.tree.kernel.KIND,
        "subscriptions": count,
        "events": events,
        "links": installed.link_count,
        "rounds": rounds,
        **{f"{name}_us": round(durations.median_us(), 3) for name, durations in spent.items()},
        **{f"{name}_p99_us": round(durations.p99_us(), 3) for name, durations in spent.items()},
        "clock_us": round(clock_us(), 3),
        "bytes_per_subscription": round(census.bytes / count, 1),
        "nodes": census.nodes,
        "leaves": census.leaves,
        "buckets": census.buckets,
        "match_steps": round(answers.match_steps, 2),
        "decide_steps": round(answers.decide_steps, 2),
        "matches": answers.matches,
        "matches_per_event": round(answers.matches / events, 3),
        "decide_agrees": not answers.disagreements,
        "rss_mib": round(rss_mib(), 1),
        "digest": answers.digest,
    }


def rss_mib() -> float:
    """The most memory this process has had resident, in MiB; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0.0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT / MIB


def as_table(found: Figures) -> str:
    """The same for people."""
    lines = [
        f"{found['subscriptions']:,} subscriptions, {found['events']:,} events, {found['links']} links, "
        f"{found['rounds']} rounds, {found['kernel']} kernel",
        "",
        f"{'':<12}{'median':>12}{'p99':>12}  us per call; {found['clock_us']} us of each are the clock's",
        *(
            f"{name.replace('_', ' '):<12}{found[f'{name}_us']:>12,.2f}{found[f'{name}_p99_us']:>12,.2f}  {words}"
            for name, words in _TIMES.items()
        ),
        "",
        f"matches      {found['matches']:,}, {found['matches_per_event']:,} per event",
        f"steps        {found['match_steps']:,} to match, {found['decide_steps']:,} to decide (means)",
        f"tree         {found['nodes']:,} nodes, {found['leaves']:,} leaves in {found['buckets']:,} buckets, "
        f"{found['bytes_per_subscription']:,} bytes per subscription",
        f"process      {found['rss_mib']:,} MiB resident at most",
        f"digest       {found['digest']}",
    ]
    return "\n".join(lines)
