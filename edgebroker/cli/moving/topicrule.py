"""A `topic` line of a bridge: which messages, in which direction, under which names."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from edgebridge.session.carriers import FILTER_PREFIX, parse_subscription
from edgebridge.upstream.rule import Direction, parse_rule
from edgebridge.upstream.rule import Rule as BridgeRule
from edgebridge.upstream.ruleinvalid import RuleInvalid
from edgebroker.errors import EdgebrokerError

from .conffile import Line
from .draft import BridgeDraft, RuleDraft, ValueUnusable
from .findings import Finding, Verdict
from .rules import text

NOTHING: Final = '""'
"""An empty prefix or pattern, as Mosquitto writes it."""


def topic(bridge: BridgeDraft, line: Line) -> Finding:
    """`topic pattern [[[out|in|both] qos] local-prefix remote-prefix]`."""
    words = text(line).split()
    if len(words) > 5:
        raise ValueUnusable("topic takes a pattern, a direction, a QoS and two prefixes")
    written = (*words, *("", "out", "0", NOTHING, NOTHING)[len(words) :])
    pattern, direction, qos, local, remote = ("" if word == NOTHING else word for word in written)
    if direction not in ("in", "out", "both"):
        raise ValueUnusable("the direction of a topic is in, out or both")
    if qos not in ("0", "1", "2"):
        raise ValueUnusable("the QoS of a topic is 0, 1 or 2")
    if not pattern and not (local and remote):
        raise ValueUnusable("a topic without a pattern needs both prefixes")
    where = ""
    if pattern.startswith(FILTER_PREFIX):
        if direction != "in" or local or remote:
            note = "a filter in a topic goes with direction in and without prefixes: write the rule with `where`"
            return Finding(line, Verdict.MISSING, note)
        pattern, where = apart(pattern)
    rule = BridgeRule(pattern, Direction(direction), int(qos), local, remote, where)
    try:
        rule.check()
        rule = parse_rule(str(rule))  # as it will be read
    except RuleInvalid as error:
        return Finding(line, Verdict.MISSING, str(error))
    bridge.rules.append(RuleDraft(rule, line))
    return Finding(line, Verdict.TRANSLATED, "", ("bridge.topic",))


def apart(pattern: str) -> tuple[str, str]:
    """Topic filter and condition of a pattern that begins with `$filter/`. Raises ValueUnusable."""
    try:
        request = parse_subscription(pattern)
    except EdgebrokerError as error:
        raise ValueUnusable(str(error)) from error
    return request.topic_filter.text, unquote(pattern.removeprefix(FILTER_PREFIX).partition("/")[0])
