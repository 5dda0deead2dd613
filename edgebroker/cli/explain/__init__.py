"""`edgebroker explain`: how a content filter is understood, looked up and written, and what it says about an event."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any, Final, NoReturn

import click

from edgebroker.cli.explain.caret import pointed
from edgebroker.cli.explain.comparison import Comparison, compare
from edgebroker.cli.explain.verdict import TRUTHS, Verdict, judge
from edgebroker.cli.explain.ways import Ways
from edgebroker.cli.explain.words import INDEX_WORDS, words
from edgebroker.errors import FilterInvalid, FilterTooComplex, TopicInvalid
from edgebroker.filters import Extractor, Filter, explain
from edgebroker.filters.names import AttributeName, Source
from edgebroker.topics import TopicFilter, parse_topic_name

__all__ = ["command"]

EXIT_REFUSED: Final = 2
LABEL: Final = 16
"""Width of the left column."""

_SOURCES: Final = {
    Source.PAYLOAD: "in the payload",
    Source.TOPIC: "the topic",
    Source.LEVEL: "a level of the topic",
    Source.QOS: "QoS as published",
    Source.RETAIN: "retain as published",
    Source.SIZE: "bytes of the payload",
    Source.CLIENT: "the publisher's client identifier",
    Source.USER: "an MQTT 5 user property",
}


@click.command("explain", short_help="Show how a content filter is understood.")
@click.argument("expression", metavar="EXPR")
@click.option("--topic", default="#", show_default=True, help="The topic filter to show the subscription with.")
@click.option("--event", metavar="PAYLOAD", help="Also say what the filter finds of a message with this payload.")
@click.option("--topic-name", metavar="TOPIC", help="With --event: the topic of the message.")
@click.option("--qos", type=click.IntRange(0, 2), default=0, help="With --event: its QoS.  [default: 0]")
@click.option("--retain", is_flag=True, help="With --event: it is published retained.")
@click.option("--client", default="", help="With --event: the publisher's client identifier.")
@click.option(
    "--user-property", "user", nargs=2, multiple=True, metavar="NAME VALUE", help="With --event; may be repeated."
)
@click.option("--covers", "other", metavar="EXPR2", help="Also say if EXPR accepts all that EXPR2 does, or why not.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
def command(expression: str, topic: str, as_json: bool, event: str | None, other: str | None, **about: Any) -> None:
    """Show how the content filter EXPR is understood, how it is looked up, and how to subscribe with it.

    Exit code 0, or 2 if EXPR is no filter; then the place of the mistake is shown.

    \b
    edgebroker explain "temp > 30 AND site IN ('north', 'south')"
    edgebroker explain "temp > 30" --event '{"temp": "31"}'
    edgebroker explain "temp > 30" --covers "temp > 31 AND site = 'north'"
    """  # noqa: D301 - click reads \b, the character: keep the lines below it as they are
    try:
        TopicFilter.parse(topic)
    except TopicInvalid as error:
        raise click.UsageError(f"--topic: {error}") from None
    content_filter = _read(expression, as_json)
    comparison = None if other is None else compare(content_filter, _read(other, as_json))
    verdict = None if event is None else judge(content_filter, _attributes(content_filter, event, **about))
    ways = Ways(expression, topic)
    told = (content_filter, ways, verdict, comparison)
    click.echo(_json(*told) if as_json else "\n".join(_lines(*told)))


def _read(expression: str, as_json: bool) -> Filter:
    """The filter; if *expression* is none, say why and end."""
    try:
        return Filter.parse(expression)
    except (FilterInvalid, FilterTooComplex) as error:
        _refuse(expression, error, as_json)


def _refuse(expression: str, error: FilterInvalid | FilterTooComplex, as_json: bool) -> NoReturn:
    """Say why *expression* is no filter, and end."""
    column = error.column if isinstance(error, FilterInvalid) else None
    if as_json:
        click.echo(json.dumps({"ok": False, "error": str(error), "column": column}, ensure_ascii=False))
    else:
        click.echo(f"edgebroker: {error}", err=True)
        if column is not None:
            for line in pointed(expression, column):
                click.echo(f"  {line}", err=True)
    sys.exit(EXIT_REFUSED)


def _attributes(
    content_filter: Filter,
    event: str,
    topic_name: str | None,
    qos: int,
    retain: bool,
    client: str,
    user: tuple[tuple[str, str], ...],
) -> dict[str, Any]:
    """The attributes of the event that the options describe."""
    if topic_name is None:
        sources = {name: AttributeName.parse(name).source for name in content_filter.attributes}
        asked = sorted(name for name, source in sources.items() if source in (Source.TOPIC, Source.LEVEL))
        if asked:
            raise click.UsageError(f"the filter asks for {asked[0]}: say the message's topic with --topic-name")
    else:
        try:
            parse_topic_name(topic_name)
        except TopicInvalid as error:
            raise click.UsageError(f"--topic-name: {error}") from None
    extractor = Extractor(content_filter.attributes)
    payload = event.encode("utf-8", "surrogateescape")  # bytes of the command line that are no UTF-8 stay what they are
    return extractor.extract(payload, topic=topic_name or "", qos=qos, retain=retain, client=client, user=user)


def _lines(content_filter: Filter, ways: Ways, verdict: Verdict | None, comparison: Comparison | None) -> list[str]:
    """The explanation for people."""
    explanation = explain(content_filter)
    lines = [f"{'understood as':<{LABEL}}{explanation.canonical}"]
    several = len(content_filter.predicates) > 1
    title = "true if either" if several else "true if"
    for predicate, tests in zip(content_filter.predicates, explanation.conjunctions, strict=True):
        rows = [
            (f"{test.attribute} {words(test)}", INDEX_WORDS[told.index])
            for test, told in zip(predicate, tests, strict=True)
        ]
        width = max((len(text) for text, _ in rows), default=0)
        for text, index in rows:
            lines.append(f"{title:<{LABEL}}{text:<{width}}   {index}")
            title = "  and"
        title = "or"
    if explanation.remark:
        lines.append(f"{'note':<{LABEL}}{explanation.remark}")
    for number, name in enumerate(explanation.attributes):
        source = _SOURCES[AttributeName.parse(name).source]
        lines.append(f"{'needs' if number == 0 else '':<{LABEL}}{name} ({source})")
    for number, (needs, line) in enumerate(ways.commands):
        lines.append(f"{'subscribe' if number == 0 else '':<{LABEL}}{needs:<11}{line}")
    if verdict is not None:
        width = max(map(len, TRUTHS.values()))
        for number, one in enumerate(verdict.terms):
            label = "this event" if number == 0 else ""
            lines.append(f"{label:<{LABEL}}{one.truth:<{width}} {one.term}, for {one.because}")
        outcome = "delivered" if verdict.delivered else "not delivered"
        lines.append(f"{'':<{LABEL}}{verdict.truth:<{width}} in all: {outcome}")
    if comparison is not None:
        lines += [f"{'' if line else 'compared with':<{LABEL}}{text}" for line, text in enumerate(comparison.lines)]
    return lines


def _json(content_filter: Filter, ways: Ways, verdict: Verdict | None, comparison: Comparison | None) -> str:
    explanation = explain(content_filter)
    told: dict[str, Any] = {
        "ok": True,
        "text": explanation.text,
        "canonical": explanation.canonical,
        "attributes": {name: AttributeName.parse(name).source.value for name in explanation.attributes},
        "conjunctions": [
            [asdict(told) | {"words": words(test)} for test, told in zip(predicate, tests, strict=True)]
            for predicate, tests in zip(content_filter.predicates, explanation.conjunctions, strict=True)
        ],
        "remark": explanation.remark,
        "subscribe": {
            "topic": ways.subscription,
            "where": {"topic": ways.topic, "$where": ways.expression},
            "commands": [line for _, line in ways.commands],
        },
    }
    if verdict is not None:
        told["event"] = asdict(verdict)
    if comparison is not None:
        told["covers"] = asdict(comparison)
    return json.dumps(told, ensure_ascii=False)
