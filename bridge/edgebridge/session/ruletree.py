"""The rules of one user by topic level, so that a decision looks only at rules that may match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from edgebridge.session.acl import Rule
from edgebroker.topics import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL

_HERE: Final = ""
"""The key of the rules that end at a node. Levels have keys that start with "/"."""


class RuleTree:
    """Rules found by topic name, in the order in which they were given."""

    __slots__ = ("_root", "_rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._root: dict[str, Any] = {}
        for number, rule in enumerate(rules):
            node = self._root
            for level in rule.topic_filter.levels:
                node = node.setdefault(SEPARATOR + level, {})
            node.setdefault(_HERE, []).append(number)

    def matching(self, topic: str) -> list[Rule]:
        """The rules whose topic filter matches the topic name *topic*."""
        found: list[int] = []
        names = topic.split(SEPARATOR)
        nodes = [self._root]
        for depth, name in enumerate(names):
            below: list[dict[str, Any]] = []
            for node in nodes:
                if depth or not name.startswith("$"):  # no wildcard in front matches those [MQTT-4.7.2-1]
                    found += node.get(SEPARATOR + MULTI_LEVEL, _NOTHING).get(_HERE, ())
                    if SEPARATOR + SINGLE_LEVEL in node:
                        below.append(node[SEPARATOR + SINGLE_LEVEL])
                if SEPARATOR + name in node:
                    below.append(node[SEPARATOR + name])
            nodes = below
        for node in nodes:
            found += node.get(_HERE, ())
            found += node.get(SEPARATOR + MULTI_LEVEL, _NOTHING).get(_HERE, ())  # `a/#` matches `a` too
        return [self._rules[number] for number in sorted(found)]


_NOTHING: Final[dict[str, Any]] = {}
