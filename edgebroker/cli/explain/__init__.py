"""`edgebroker explain`: shows the meaning of a filter, its place in the tree, and the matches of a message."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NoReturn
from unicodedata import combining, east_asian_width

import click
from click.core import ParameterSource

from edgebroker.cli import Refused
from edgebroker.cli.explain.match_trace import MatchTrace, reason_lines, reasons
from edgebroker.cli.explain.meaning import FilterExplanation, compare
from edgebroker.cli.explain.placement import SubscriptionPlacement, SubscriptionTree
from edgebroker.cli.explain.terms import UNREADABLE, SubscriptionForms, judge_event
from edgebroker.cli.parameters import ExistingPath, examples
from edgebroker.errors import FilterInvalid, FilterTooComplex, TopicInvalid
from edgebroker.filters import Extractor, Filter
from edgebroker.filters.names import AttributeName, AttributeSource
from edgebroker.limits import LINKS_MAX
from edgebroker.matching.cells import BUCKET_LIMIT
from edgebroker.matching.drawing import svg as svg_text
from edgebroker.matching.portrait import LINES_MAX, Portrait
from edgebroker.predicate import Value
from edgebroker.topics import TopicFilter, parse_topic_name

_REQUIRED_BY: Final = {
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
"""Parameter -> the parameter that it needs."""
_OPTION_TEXTS: Final = {
    "expression": "a filter, EXPR",
    "other": "--covers",
    "user": "--user-property",
    "lines_max": "--lines",
    "event": "--event PAYLOAD",
    "subscriptions": "--subscriptions S.jsonl",
}


def check_options(given: Collection[str]) -> None:
    """Raises click.UsageError, with a hint, unless the *given* parameters can be combined."""
    if "client" in given and "subscriptions" not in given:
        raise click.UsageError(
            "--client asks about one subscriber among others: say their subscriptions with --subscriptions S.jsonl. "
            "The client identifier of the publisher is --publisher."
        )
    for name in given:
        if name in _REQUIRED_BY and _REQUIRED_BY[name] not in given:
            raise click.UsageError(f"{_option_text(name)} needs {_option_text(_REQUIRED_BY[name])}")
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
            raise click.UsageError(f"{why}: leave out {_option_text(name).partition(' ')[0]}")


def _option_text(name: str) -> str:
    return _OPTION_TEXTS.get(name) or f"--{name.replace('_', '-')}"


SHOWN_BEFORE_MAX: Final = 50
SHOWN_AFTER_MAX: Final = 25
"""Characters shown on either side of the mistake; with an ellipsis at both ends they fit into 80 columns."""


def marked_position(text: str, column: int) -> tuple[str, str]:
    """Returns the part of *text* around *column* (from 1; one past the end is allowed), and a line with a caret.

    Control characters are shown as blanks, so that both are one line.
    """
    offset = min(max(column - 1, 0), len(text))
    start, end = max(0, offset - SHOWN_BEFORE_MAX), offset + SHOWN_AFTER_MAX
    before, after = _printable(text[start:offset]), _printable(text[offset:end])
    if start:
        before = "..." + before
    if end < len(text):
        after += "..."
    return before + after, " " * sum(map(_cell_width, before)) + "^"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _cell_width(character: str) -> int:
    """Returns the columns of a terminal that *character* takes."""
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in ("W", "F") else 1


@dataclass(frozen=True, slots=True)
class ExplainMessage:
    """One publication."""

    payload: str
    """As typed: bytes that are not UTF-8 are kept."""
    topic: str | None
    qos: int
    retain: bool
    publisher: str
    user: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        if self.topic is not None:
            try:
                parse_topic_name(self.topic)
            except TopicInvalid as error:
                raise click.UsageError(f"--topic-name: {error}") from None

    def attributes(self, names: Collection[str]) -> tuple[dict[str, Value], bool]:
        """Returns the attributes *names* that the message has, and whether its payload is asked for and cannot be read.
        Raises click.UsageError if its topic is needed.
        """
        if self.topic is None:
            sources = {name: AttributeName.parse(name).source for name in names}
            topic_attributes = sorted(
                name for name, source in sources.items() if source in (AttributeSource.TOPIC, AttributeSource.LEVEL)
            )
            if topic_attributes:
                raise click.UsageError(
                    f"the filter asks for {topic_attributes[0]}: say the message's topic with --topic-name"
                )
        extractor = Extractor(names)
        attributes = extractor.extract(
            self.payload.encode("utf-8", "surrogateescape"),
            topic=self.topic or "",
            qos=self.qos,
            retain=self.retain,
            client=self.publisher,
            user=self.user,
        )
        return attributes, extractor.is_unreadable


__all__ = ["command"]

EXIT_REFUSED: Final = 2
LABEL: Final = 16
"""Width of the left column."""


@click.command(
    "explain",
    short_help="Show how a filter is understood, where it sits, and why a message matches.",
    epilog=examples(
        "edgebroker explain \"temp > 30 AND site = 'north'\" --event '{\"temp\": 31}'",
        "edgebroker explain 'temp > 30' --covers 'temp > 40'",
    ),
)
@click.argument("expression", metavar="[EXPR]", required=False)
@click.option("--topic", default="#", show_default=True, help="The topic filter to show the subscription with.")
@click.option(
    "--payload",
    "--event",
    "event",
    metavar="PAYLOAD",
    help="Also say what the filter finds of a message with this payload.",
)
@click.option("--topic-name", metavar="TOPIC", help="With --event: the topic of the message.")
@click.option("--qos", type=click.IntRange(0, 2), default=0, help="With --event: its QoS.  [default: 0]")
@click.option("--retain", is_flag=True, help="With --event: it is published retained.")
@click.option("--publisher", default="", metavar="CLIENT", help="With --event: the publisher's client identifier.")
@click.option(
    "--user-property", "user", nargs=2, multiple=True, metavar="NAME VALUE", help="With --event; may be repeated."
)
@click.option("--covers", "other", metavar="EXPR2", help="Also say if EXPR accepts all that EXPR2 does, or why not.")
@click.option(
    "--subscriptions",
    type=ExistingPath(dir_okay=False),
    metavar="S.jsonl",
    help='Explain among these: one {"id": 7, "client": "anna", "topic": "t/#", "where": "a = 2", "link": 3} a line; '
    'only "id" and "topic" must be there.',
)
@click.option("--client", metavar="CLIENT", help="Of --subscriptions: the subscriber asked about.")
@click.option(
    "--links",
    type=click.IntRange(1, LINKS_MAX),
    metavar="K",
    help='Of --subscriptions: how many links there are; those without "link" get 0, 1, ... K-1, 0, ... in turn.',
)
@click.option(
    "--bucket",
    type=click.IntRange(2, BUCKET_LIMIT),
    metavar="N",
    help="Of --subscriptions: let the tree branch from N predicates on, to see a small one do so. A gateway lets "
    "thousands be tested in one place.",
)
@click.option("--portrait", is_flag=True, help="Of --subscriptions: write the search tree.")
@click.option(
    "--lines",
    "lines_max",
    type=click.IntRange(1),
    default=LINES_MAX,
    metavar="N",
    help=f"With --portrait: show N nodes at most, those near the root.  [default: {LINES_MAX}]",
)
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Of --subscriptions: draw the search tree into this file.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
@click.pass_context
def command(
    ctx: click.Context,
    expression: str | None,
    topic: str,
    event: str | None,
    topic_name: str | None,
    qos: int,
    retain: bool,
    publisher: str,
    user: tuple[tuple[str, str], ...],
    other: str | None,
    subscriptions: Path | None,
    links: int | None,
    bucket: int | None,
    client: str | None,
    portrait: bool,
    lines_max: int,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Show how the content filter EXPR is understood, how it is looked up, and how to subscribe with it.

    With --subscriptions: where EXPR would sit among them, and what finding it costs. Without EXPR: what the search does
    with a message (--event) and whom it finds, where the subscriptions of a --client are or why the message misses
    them, or the search tree itself (--portrait, --svg).

    Exit code 0, or 2 if EXPR is no filter; then the place of the mistake is shown.

    \b
    edgebroker explain "temp > 30 AND site IN ('north', 'south')"
    edgebroker explain "temp > 30" --event '{"temp": "31"}'
    edgebroker explain "temp > 30" --covers "temp > 31 AND site = 'north'"
    edgebroker explain "temp > 30" --subscriptions S.jsonl
    edgebroker explain --subscriptions S.jsonl --event '{"temp": 31}' --topic-name t/x --client anna
    edgebroker explain --subscriptions S.jsonl --portrait
    """  # noqa: D301 - click reads \b, the character: keep the lines below it as they are
    check_options({name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE})
    message = None if event is None else ExplainMessage(event, topic_name, qos, retain, publisher, user)
    topic_filter = _topic_filter(topic)
    content_filter = None if expression is None else _parse_filter(expression, as_json)
    other_filter = None if other is None else _parse_filter(other, as_json)
    subscription_tree = None if subscriptions is None else SubscriptionTree.read(subscriptions, links, bucket)
    if content_filter is not None:
        explanation = _explanation(content_filter, topic_filter, subscription_tree, message, other_filter)
        _print(explanation.as_object() if as_json else explanation.lines)
        return
    assert subscription_tree is not None
    if portrait or svg is not None:
        _print_portrait(subscription_tree, svg, portrait, lines_max, as_json)
    elif message is None:
        _print_placements(subscription_tree, client or "", as_json)
    else:
        _print_match_trace(subscription_tree, message, client, as_json)


def _explanation(
    content_filter: Filter,
    topic_filter: TopicFilter,
    subscription_tree: SubscriptionTree | None,
    message: ExplainMessage | None,
    other: Filter | None,
) -> FilterExplanation:
    placement = None
    if subscription_tree is not None:
        placement = SubscriptionPlacement.of(subscription_tree, subscription_tree.add(topic_filter, content_filter))
    return FilterExplanation(
        content_filter,
        SubscriptionForms(content_filter.text, topic_filter.text),
        placement,
        None if message is None else judge_event(content_filter, *message.attributes(content_filter.attributes)),
        None if other is None else compare(content_filter, other),
    )


def _print_placements(subscription_tree: SubscriptionTree, client: str, as_json: bool) -> None:
    numbers = subscription_tree.of_client(client)
    subscription_placements = [SubscriptionPlacement.of(subscription_tree, number) for number in numbers]
    ids = subscription_tree.ids(numbers)
    if as_json:
        _print(
            {
                "ok": True,
                "client": client,
                "subscriptions": [{"id": i} | w.as_object() for i, w in zip(ids, subscription_placements, strict=True)],
            }
        )
        return
    for number, identifier, placement in zip(numbers, ids, subscription_placements, strict=True):
        where = subscription_tree.subscription(number).where
        _print([("subscription", f"{identifier}" + (f"   {where}" if where is not None else "")), *placement.lines])


def _print_match_trace(
    subscription_tree: SubscriptionTree, message: ExplainMessage, client: str | None, as_json: bool
) -> None:
    assert message.topic is not None
    numbers = [] if client is None else subscription_tree.of_client(client)
    wanted = set(subscription_tree.tree.resolve(message.topic).wanted)
    for number in numbers:
        where = subscription_tree.subscription(number).where
        wanted |= Filter.parse(where).attributes if where is not None else set()
    attributes, is_unreadable = message.attributes(wanted)
    match_trace = MatchTrace(subscription_tree, message.topic, attributes)
    match_reasons = reasons(subscription_tree, numbers, match_trace, message.topic, attributes)
    if as_json:
        answer = {"ok": True, "unreadable": is_unreadable} | match_trace.as_object()
        _print(
            answer
            if client is None
            else answer | {"client": client, "reasons": [asdict(reason) for reason in match_reasons]}
        )
        return
    _print(match_trace.lines)
    if is_unreadable:
        _print([("note", UNREADABLE)])
    for number, line in enumerate(line for reason in match_reasons for line in reason_lines(reason)):
        _print([("" if number else f"client {client}", line)])


def _print_portrait(
    subscription_tree: SubscriptionTree, svg: Path | None, as_text: bool, lines_max: int, as_json: bool
) -> None:
    portrait = Portrait(subscription_tree.tree, subscription_tree.links)
    if svg is not None:
        try:
            svg.write_text(svg_text(portrait), encoding="utf-8")
        except OSError as error:
            raise Refused(f"{svg}: {error.strerror}") from None
    if as_json:
        _print(
            {"ok": True, "census": portrait.census._asdict()}
            | ({"lines": portrait.lines(lines_max)} if as_text else {})
        )
    elif as_text:
        click.echo("\n".join(portrait.lines(lines_max)))


def _print(output: Mapping[str, Any] | Iterable[tuple[str, str]]) -> None:
    """Prints one JSON object, or lines with a title on the left."""
    if isinstance(output, Mapping):
        click.echo(json.dumps(output, ensure_ascii=False))
        return
    for title, text in output:
        click.echo(f"{title:<{LABEL}}{text}")


def _topic_filter(text: str) -> TopicFilter:
    try:
        return TopicFilter.parse(text)
    except TopicInvalid as error:
        raise click.UsageError(f"--topic: {error}") from None


def _parse_filter(expression: str, as_json: bool) -> Filter:
    """Returns the filter; if *expression* is invalid, prints why and exits."""
    try:
        return Filter.parse(expression)
    except (FilterInvalid, FilterTooComplex) as error:
        _exit_refused(expression, error, as_json)


def _exit_refused(expression: str, error: FilterInvalid | FilterTooComplex, as_json: bool) -> NoReturn:
    """Prints why *expression* is invalid, and exits."""
    column = error.column if isinstance(error, FilterInvalid) else None
    if as_json:
        click.echo(json.dumps({"ok": False, "error": str(error), "column": column}, ensure_ascii=False))
    else:
        click.echo(f"edgebroker: {error}", err=True)
        if column is not None:
            for line in marked_position(expression, column):
                click.echo(f"  {line}", err=True)
    sys.exit(EXIT_REFUSED)
