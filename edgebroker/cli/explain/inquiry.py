"""What was asked of `edgebroker explain`, and whether the options make a question."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import click

_NEEDS: Final = {
    "topic_name": "event",
    "qos": "event",
    "retain": "event",
    "publisher": "event",
    "user": "event",
    "other": "expression",
    "topic": "expression",
    "links": "subscriptions",
    "bucket": "subscriptions",
    "portrait": "subscriptions",
    "svg": "subscriptions",
    "lines_max": "portrait",
}
"""Parameter -> the one without which it says nothing."""
_SPELT: Final = {
    "expression": "a filter, EXPR",
    "other": "--covers",
    "user": "--user-property",
    "lines_max": "--lines",
    "event": "--event PAYLOAD",
    "subscriptions": "--subscriptions S.jsonl",
}


def check(given: Collection[str]) -> None:
    """Raise click.UsageError, saying how to ask, unless the parameters *given* make a question together."""
    if "client" in given and "subscriptions" not in given:
        raise click.UsageError(
            "--client asks about one subscriber among others: say their subscriptions with --subscriptions S.jsonl. "
            "The client identifier of the publisher is --publisher."
        )
    for name in given:
        if name in _NEEDS and _NEEDS[name] not in given:
            raise click.UsageError(f"{_spelt(name)} needs {_spelt(_NEEDS[name])}")
    if "expression" in given:
        _refuse_together(given, "a filter, EXPR, is explained by itself", ("client", "portrait", "svg"))
    elif "subscriptions" not in given:
        raise click.UsageError("say a filter, EXPR, or whose subscriptions it is about with --subscriptions S.jsonl")
    elif "portrait" in given or "svg" in given:
        _refuse_together(given, "the tree is shown by itself", ("event", "client"))
    elif "event" in given:
        if "topic_name" not in given:
            raise click.UsageError("which subscriptions match depends on the topic: say it with --topic-name")
    elif "client" not in given:
        raise click.UsageError(
            "say what to explain of the subscriptions: EXPR, --event PAYLOAD, --client CLIENT, --portrait or --svg FILE"
        )


def _refuse_together(given: Collection[str], why: str, others: Collection[str]) -> None:
    for name in others:
        if name in given:
            raise click.UsageError(f"{why}: leave out {_spelt(name).partition(' ')[0]}")


def _spelt(name: str) -> str:
    return _SPELT.get(name) or f"--{name.replace('_', '-')}"
