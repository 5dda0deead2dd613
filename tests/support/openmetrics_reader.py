"""Reads a page of OpenMetrics 1.0 by the grammar of the specification (openmetrics.io, "Text format", ABNF)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
NUMBER = r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[Ii]nf|NaN)"
ESCAPED = r'(?:[^"\\\n]|\\["\\n])*'
LABEL = rf'([a-zA-Z_][a-zA-Z0-9_]*)="({ESCAPED})"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,{LABEL})*)?\}})? ({NUMBER})")
SUFFIXES = {
    "counter": {"_total", "_created"},
    "gauge": {""},
    "info": {"_info"},
    "histogram": {"_bucket", "_sum", "_count", "_created"},
    "unknown": {""},
}


@dataclass
class Family:
    kind: str = "unknown"
    unit: str = ""
    meaning: str = ""
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)

    def value(self, suffix: str = "", **labels: str) -> float:
        return self.samples[suffix, tuple(sorted(labels.items()))]


def read(page: bytes) -> dict[str, Family]:
    """The families of a page. Raises AssertionError for anything that the specification does not allow."""
    text = page.decode()
    assert text.endswith("\n# EOF\n"), "a page ends with EOF and a line feed"
    families: dict[str, Family] = {}
    name = ""
    for line in text.removesuffix("# EOF\n").splitlines():
        if line.startswith("# "):
            keyword, of, value = line[2:].split(" ", 2)
            assert re.fullmatch(NAME, of), line
            if of != name:
                assert of not in families, f"{of} stands in two places"
                name, families[of] = of, Family()
            family = families[name]
            assert not family.samples, f"what is said of {name} stands before its samples"
            match keyword:
                case "TYPE":
                    assert family.kind == "unknown", line
                    assert value in SUFFIXES, line
                    family.kind = value
                case "UNIT":
                    assert not family.unit, line
                    assert name.endswith(f"_{value}"), line
                    family.unit = value
                case "HELP":
                    assert not family.meaning, line
                    assert re.fullmatch(ESCAPED, value), line
                    family.meaning = value
                case _:
                    raise AssertionError(line)
            continue
        found = SAMPLE.fullmatch(line)
        assert found, line
        family = families[name]
        suffix = found[1].removeprefix(name)
        assert found[1].startswith(name), line
        assert suffix in SUFFIXES[family.kind], line
        labels = re.findall(LABEL, found[2] or "")
        assert len({label for label, _ in labels}) == len(labels), f"a label twice: {line}"
        key = (suffix, tuple(sorted(labels)))
        assert key not in family.samples, f"twice: {line}"
        family.samples[key] = float(found[found.re.groups])
    for name, family in families.items():
        check(name, family)
    return families


def check(name: str, family: Family) -> None:
    values = family.samples
    if family.kind in ("counter", "histogram"):
        assert all(value >= 0 for value in values.values()), name
    if family.kind == "info":
        assert not family.unit
        assert set(values.values()) == {1.0}
    if family.kind == "histogram":
        buckets = [(float(dict(labels)["le"]), value) for (suffix, labels), value in values.items() if labels]
        assert buckets == sorted(buckets), "bounds rise"
        assert [count for _, count in buckets] == sorted(count for _, count in buckets), "and so do the counts"
        assert buckets[-1] == (float("inf"), family.value("_count"))
        assert family.value("_sum") >= 0
