"""Static and dynamic routing beside each other while publishers burst: which runs, and what they say [SCOT]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Final

from edgebroker.simworld.experiments.burst import BURST, FASTEST, Outcome, burst
from edgebroker.simworld.experiments.finding import Finding

SEEDS: Final = 5
SLOWER: Final = {80_000: "-17.7 %", 60_000: "-21 %"}
"""Events in a minute -> the published gain."""
BURSTING: Final = (1, 2, 3, 5)
"""Publishers at once."""
PAIRS: Final = 8
"""Seeds with which several burst. Two at once gain 15 % with one seed and lose 1 % with another: a few seeds do not
tell whether three gain less."""
SCALE: Final = 0.02
PERCENT: Final = "{:+.1%}"
EXACT: Final = "{:+.2%}"
SHARE: Final = "{:.1%}"
RATIO: Final = "{:.2f}"
COUNT: Final = "{:,.0f}"


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One run but for the routing."""

    seed: int
    per_minute: int = FASTEST
    bursting: int = 1


Both = tuple[Outcome, Outcome]
"""With static and with dynamic routing."""


def cases(seeds: int) -> list[Case]:
    """The burst for every seed, a slower one for the first, and for the first PAIRS one, two ... publishers at once."""
    return [
        *(Case(seed) for seed in range(1, max(seeds, PAIRS) + 1)),
        *(Case(1, per_minute=rate) for rate in SLOWER),
        *(Case(seed, bursting=number) for number in BURSTING[1:] for seed in range(1, PAIRS + 1)),
    ]


def run(case: Case, is_dynamic: bool, scale: float) -> Outcome:
    """One run."""
    return burst(case.seed, is_dynamic, scale, case.per_minute, case.bursting)


def gain(both: Both) -> float:
    """How much shorter the mean delay is with dynamic routing: -0.2 is a fifth shorter."""
    static, dynamic = both
    return dynamic.mean_s / static.mean_s - 1


def findings(outcomes: Mapping[Case, Both], seeds: int = SEEDS) -> list[Finding]:
    """What the source says, what we find; of one publisher that bursts, with *seeds* seeds."""
    main = _main(outcomes, seeds)
    pairs = {case.seed for case in outcomes if case.bursting > 1}
    gains = [fmean(gain(outcomes[Case(seed, bursting=number)]) for seed in pairs) for number in BURSTING]
    earlier = fmean(1 - _settling(dynamic) / _settling(static) for static, dynamic in main)
    load = fmean(dynamic.host_load / static.host_load - 1 for static, dynamic in main)
    rises = sum(after <= before for before, after in pairwise(gains))
    sooner = sum(dynamic.soon > static.soon for static, dynamic in main)
    return [
        Finding("mean delay, dynamic against static", "-17.5 %", fmean(map(gain, main)), PERCENT, -0.3, -0.1),
        *(
            Finding(f"  {rate:,} a minute", said, gain(outcomes[Case(1, per_minute=rate)]), PERCENT)
            for rate, said in SLOWER.items()
        ),
        Finding("stable after the burst, earlier by", "239 s", earlier, PERCENT, low=0.1),
        Finding("messages", "+0.3 %", _more_messages(main), EXACT, -0.02, 0.02),
        Finding("what leaves the publisher's broker", "-61 %", load, PERCENT),
        Finding("delivered within a second, static", "44.1 %", fmean(static.soon for static, _ in main), SHARE),
        Finding("delivered within a second, dynamic", "53.8 %", fmean(dynamic.soon for _, dynamic in main), SHARE),
        Finding("  more, in so many runs", "", sooner, COUNT, len(main), len(main)),
        *(
            Finding(f"mean delay, {number} of them burst", "less gain" if number > 1 else "", each, PERCENT)
            for number, each in zip(BURSTING, gains, strict=True)
        ),
        Finding("  steps without less gain", "0", rises, COUNT, 0, 0),
    ]


def beyond(outcomes: Mapping[Case, Both], seeds: int = SEEDS) -> list[Finding]:
    """What a product should reach; of one publisher that bursts, with *seeds* seeds."""
    main = _main(outcomes, seeds)
    mean = fmean(dynamic.mean_s / static.mean_s for static, dynamic in main)
    slow = fmean(dynamic.p99_s / static.p99_s for static, dynamic in main)
    wrong = sum(one.wrong for both in outcomes.values() for one in both)
    return [
        Finding("mean delay, dynamic / static", "", mean, RATIO, high=0.7),
        Finding("delay of 99 %, dynamic / static", "", slow, RATIO, high=0.8),
        Finding("deliveries lost or doubled", "", wrong, COUNT, 0, 0),
        Finding("more messages", "", _more_messages(main), EXACT, high=0.01),
    ]


def _main(outcomes: Mapping[Case, Both], seeds: int) -> list[Both]:
    return [outcomes[Case(seed)] for seed in range(1, seeds + 1)]


def _more_messages(main: Sequence[Both]) -> float:
    return fmean(dynamic.messages / static.messages - 1 for static, dynamic in main)


def _settling(outcome: Outcome) -> float:
    """From the end of the burst until all is stable."""
    return max(0.0, outcome.stable_s - BURST / FASTEST * 60)


def labels(case: Case, is_dynamic: bool) -> Iterator[str]:
    """What is being done, in words."""
    yield "dynamic" if is_dynamic else "static"
    yield f"seed {case.seed}"
    yield f"{case.per_minute:,} a minute"
    if case.bursting > 1:
        yield f"{case.bursting} publishers"
