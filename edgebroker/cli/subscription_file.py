"""Files of subscriptions and events, one JSON object a line, and the tree filled with such subscriptions.

`edgebroker explain` and `edgebroker bench match` read them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NoReturn, TypeAlias

from edgebroker.cli.call_durations import Durations
from edgebroker.errors import EdgebrokerError
from edgebroker.filters import Filter
from edgebroker.limits import LINKS_MAX
from edgebroker.matching.pst import Pst
from edgebroker.predicate import Predicate
from edgebroker.topics import TopicFilter, parse_topic_name

_SUBSCRIPTION_KEYS = frozenset({"id", "topic", "where", "link", "client"})
_EVENT_KEYS = frozenset({"topic", "payload"})
_ALL_EVENTS: tuple[Predicate, ...] = ((),)


class LineInvalid(EdgebrokerError):
    """A line is invalid; the message names file and line and says what is expected."""


@dataclass(frozen=True, slots=True)
class FileSubscription:
    """One line of a file of subscriptions."""

    id: int
    topic_filter: TopicFilter
    predicates: tuple[Predicate, ...]
    link: int | None
    """None if the line has none."""
    where: str | None = None
    """The text of the content filter; None if the line has none."""
    client: str = ""
    """The subscriber; if the line names none, a client of its own, named like the subscription."""


@dataclass(frozen=True, slots=True)
class FileEvent:
    """One line of a file of events."""

    topic: str
    payload: bytes
    """The payload as a client would publish it: JSON without white space."""


class JsonLinesFile:
    """The objects of one file, in order. Blank lines are skipped, but counted.

    `warn` is called with a sentence for each unknown key: it is ignored, because files may have additional keys, but
    reported, because it may be a misspelt `where`.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self.path = path
        self.line = 0
        """The number of the line last read, from 1."""
        self.bytes = 0
        """The number of bytes read."""
        self._warn = warn
        self._warned: set[str] = set()

    def subscriptions(self, links: int | None) -> Iterator[FileSubscription]:
        """Reads *path* as subscriptions. links: the number of links, if it is given. Raises LineInvalid."""
        lines_by_id: dict[int, int] = {}
        for fields in self._objects(_SUBSCRIPTION_KEYS):
            number = fields.get("id")
            if type(number) is not int:
                self._refuse(f'"id" must be a whole number, not {_as_json(number)}')
            if lines_by_id.setdefault(number, self.line) != self.line:
                self._refuse(f"id {number} is already the subscription of line {lines_by_id[number]}; ids must differ")
            yield FileSubscription(
                number,
                self._topic_filter(fields),
                self._predicates(fields),
                self._link(fields, links),
                fields.get("where"),
                str(number) if fields.get("client") is None else self._text(fields, "client"),
            )

    def events(self) -> Iterator[FileEvent]:
        """Reads *path* as events. Raises LineInvalid."""
        for fields in self._objects(_EVENT_KEYS):
            topic = self._text(fields, "topic")
            if "payload" not in fields:
                self._refuse('"payload" is missing; it is the JSON object that is published, {} if it is empty')
            try:
                topic = parse_topic_name(topic)
                payload = json.dumps(fields["payload"], ensure_ascii=False, separators=(",", ":"), allow_nan=False)
                yield FileEvent(topic, payload.encode())
            except EdgebrokerError as error:
                self._refuse(f'"topic": {error}')
            except ValueError as error:  # a number beyond the range of float, or half of a surrogate pair
                self._refuse(f'"payload" cannot be published: {error}')

    def _objects(self, known: frozenset[str]) -> Iterator[dict[str, Any]]:
        with self.path.open("rb") as file:
            for line in file:
                self.line += 1
                self.bytes += len(line)
                if line.isspace():
                    continue
                try:
                    fields = json.loads(line.decode(), parse_constant=_refuse_constant)
                except json.JSONDecodeError as error:
                    self._refuse(f"no JSON: {error.msg} at column {error.colno}")
                except (ValueError, RecursionError) as error:
                    self._refuse(f"no JSON: {error}")
                if not isinstance(fields, dict):
                    self._refuse(f"a JSON object belongs here, not {_as_json(fields)}")
                for key in fields.keys() - known - self._warned:
                    self._warned.add(key)
                    self._warn(
                        f"{self.path}:{self.line}: key {_as_json(key)} is ignored; known are {_quoted_list(known)}"
                    )
                yield fields

    def _topic_filter(self, fields: dict[str, Any]) -> TopicFilter:
        text = self._text(fields, "topic")
        try:
            return TopicFilter.parse(text)
        except EdgebrokerError as error:
            self._refuse(f'"topic": {error}')

    def _predicates(self, fields: dict[str, Any]) -> tuple[Predicate, ...]:
        if fields.get("where") is None:
            return _ALL_EVENTS
        text = self._text(fields, "where")
        try:
            return Filter.parse(text).predicates
        except EdgebrokerError as error:
            self._refuse(f'"where": {error}')

    def _link(self, fields: dict[str, Any], links: int | None) -> int | None:
        link = fields.get("link")
        if link is None:
            return None
        end = LINKS_MAX if links is None else links
        if type(link) is not int or not 0 <= link < end:
            why = "no broker has more" if links is None else f"--links is {links}"
            self._refuse(f'"link" must be a whole number from 0 to {end - 1} ({why}), not {_as_json(link)}')
        return link

    def _text(self, fields: dict[str, Any], key: str) -> str:
        text = fields.get(key)
        if not isinstance(text, str):
            self._refuse(
                f'"{key}" is missing' if key not in fields else f'"{key}" must be a text, not {_as_json(text)}'
            )
        return text

    def _refuse(self, why: str) -> NoReturn:
        raise LineInvalid(f"{self.path}:{self.line}: {why}") from None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number in JSON")


def _as_json(value: object) -> str:
    """Returns *value* as JSON, cut to fit into a message."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _quoted_list(names: frozenset[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))


CHUNK_SUBSCRIPTIONS = 1_000
"""Subscriptions read before they are inserted: a million parsed filters would take too much memory."""

REMOVED_SHARE = 0.1
REMOVED_SEED = 1

_Insertion: TypeAlias = tuple[int, TopicFilter, tuple[Predicate, ...], int]
"""The arguments of `Pst.insert`."""


@dataclass(slots=True)
class Installation:
    """A tree, and the duration of every change. The number of a subscription in the tree is its position in `ids`, from
    1.
    """

    tree: Pst
    ids: list[int] = field(default_factory=list)
    links: list[int] = field(default_factory=list)
    """The link of every subscription, in the order of `ids`."""
    link_count: int = 0
    inserting: Durations = field(default_factory=Durations)
    removing: Durations = field(default_factory=Durations)
    reinserting: Durations = field(default_factory=Durations)

    @property
    def mask(self) -> int:
        """All links, one bit each."""
        return (1 << self.link_count) - 1


def install(
    tree: Pst, subscriptions: Iterable[FileSubscription], link_count: int | None, on_progress: Callable[[int], None]
) -> Installation:
    """Inserts *subscriptions* into the empty *tree*, removes a tenth of them and inserts these again.

    A subscription without link gets one: 0, 1, 2, ... in turn if *link_count* is given, otherwise 0. on_progress:
    called with the number of subscriptions inserted, now and then.
    """
    installation = Installation(tree, link_count=link_count or 1)
    random_source = random.Random(REMOVED_SEED)
    reinsertions: list[_Insertion] = []
    for chunk in chunks(insertions(subscriptions, installation, link_count)):
        insert(installation.tree, chunk, installation.inserting)
        reinsertions += [
            insertion for insertion in chunk if insertion[0] == 1 or random_source.random() < REMOVED_SHARE
        ]
        on_progress(len(installation.ids))
    random_source.shuffle(reinsertions)
    remove(installation.tree, [number for number, *_ in reinsertions], installation.removing)
    insert(installation.tree, reinsertions, installation.reinserting)
    return installation


def insertions(
    subscriptions: Iterable[FileSubscription], installation: Installation, link_count: int | None
) -> Iterator[_Insertion]:
    """Numbers *subscriptions*, and records them in *installation*."""
    without_link = 0
    for subscription in subscriptions:
        link = subscription.link
        if link is None:
            link = without_link % link_count if link_count else 0
            without_link += 1
        installation.link_count = max(installation.link_count, link + 1)
        installation.ids.append(subscription.id)
        installation.links.append(link)
        yield len(installation.ids), subscription.topic_filter, subscription.predicates, link


def chunks(insertions: Iterator[_Insertion]) -> Iterator[list[_Insertion]]:
    """Yields the insertions in lists of `CHUNK_SUBSCRIPTIONS`."""
    while chunk := list(islice(insertions, CHUNK_SUBSCRIPTIONS)):
        yield chunk


def insert(tree: Pst, insertions: Iterable[_Insertion], spent: Durations) -> None:
    """Executes the insertions and measures each."""
    record, clock, insert_one = spent.ns.append, perf_counter_ns, tree.insert
    for number, topic_filter, predicates, link in insertions:
        started = clock()
        insert_one(number, topic_filter, predicates, link)
        record(clock() - started)


def remove(tree: Pst, numbers: Iterable[int], spent: Durations) -> None:
    """Executes the removals and measures each."""
    record, clock, remove_one = spent.ns.append, perf_counter_ns, tree.remove
    for number in numbers:
        started = clock()
        remove_one(number)
        record(clock() - started)
