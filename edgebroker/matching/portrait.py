"""The tree as text, for people who want to know how their filters are looked up."""

from __future__ import annotations

from collections.abc import Iterator

from edgebroker.matching.pst import Pst
from edgebroker.matching.published.labels import Key, Label, Wide
from edgebroker.matching.published.nodes import FIRST_LEVEL, LEAF, NONE
from edgebroker.predicate import ANY_RUN, ElementaryTest, Interval, Pattern


def portrait(tree: Pst, lines_max: int = 200) -> str:
    """One line per edge, indented by depth: the test, and at leaves the subscriptions. Cut after *lines_max* lines."""
    lines: list[str] = []
    for line in _lines(tree):
        if len(lines) == lines_max:
            lines.append("...")
            break
        lines.append(line)
    return "\n".join(lines)


def _lines(tree: Pst) -> Iterator[str]:
    nodes = tree.nodes
    stack: list[tuple[int, int, tuple[str, ...]]] = [(nodes.stars[NONE], 0, ())]  # node, depth, content attributes
    while stack:
        node, depth, names = stack.pop()
        if not node:
            continue
        parent = nodes.parents[node]
        rank = nodes.ranks[parent]
        if rank >= 0:
            yield "  " * depth + label_text(names[rank], nodes.labels[node])
            depth += 1
        elif parent:
            yield "  " * depth + _level_text(rank - FIRST_LEVEL + 1, nodes.labels[node])
            depth += 1
            if nodes.ranks[node] >= 0:
                schema = tree.schemas.get(parent if nodes.labels[node] is Wide.STAR else ~parent)
                names = tuple(schema.names) if schema else ()
        if nodes.ranks[node] == LEAF:
            yield "  " * depth + "-> " + ", ".join(map(str, nodes.members[node]))
        stack.append((nodes.stars[node], depth, names))
        stack.extend((child, depth, names) for child in reversed(list(nodes.value_children(node))))


def label_text(name: str, label: Label) -> str:
    """The edge *label* at a node that tests the attribute *name*, in words close to those of a filter."""
    if isinstance(label, Wide):
        return f"{name}: *" if label is Wide.STAR else f"{name} IS NOT NULL"
    if not isinstance(label, ElementaryTest):
        return f"{name} IS NULL" if label is None else f"{name} = {_value_text(label)}"
    if label.intervals == (Interval(),):
        ranges = f"{name} is a {label.kind.name.lower()}" if not label.patterns else ""
    else:
        ranges = " or ".join(_interval_text(name, interval) for interval in label.intervals)
    return " and ".join(filter(None, [ranges, *(_pattern_text(name, pattern) for pattern in label.patterns)]))


def _level_text(level: int, label: Label) -> str:
    if isinstance(label, Wide):
        return f"level {level}: {'#' if label is Wide.STAR else '+'}"
    return f"level {level}: none" if label is None else f"level {level}: {label}"


def _interval_text(name: str, interval: Interval) -> str:
    if interval.is_point:
        return f"{name} = {_value_text(interval.low)}"
    low = "" if interval.low is None else f"{_value_text(interval.low)} {'<=' if interval.low_closed else '<'} "
    high = "" if interval.high is None else f" {'<=' if interval.high_closed else '<'} {_value_text(interval.high)}"
    return f"{low}{name}{high}"


def _pattern_text(name: str, pattern: Pattern) -> str:
    text = "".join(part if isinstance(part, str) else "%" if part == ANY_RUN else "_" for part in pattern.parts)
    return f"{name} {'NOT ' if pattern.negated else ''}LIKE {_value_text(text)}"


def _value_text(value: Key) -> str:
    if isinstance(value, tuple):
        value = value[0]
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
