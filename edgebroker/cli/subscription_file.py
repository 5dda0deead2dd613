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
_EVERYTHING: tuple[Predicate, ...] = ((),)


class LineInvalid(EdgebrokerError):
    """A line cannot be used; the message names file and line and says what belongs there."""


@dataclass(frozen=True, slots=True)
class FileSubscription:
    """One line of S, read and checked."""

    id: int
    topic_filter: TopicFilter
    predicates: tuple[Predicate, ...]
    link: int | None
    """As the line says; None if it says nothing."""
    where: str | None = None
    """The content filter as the line says it; None if it says nothing."""
    client: str = ""
    """Who subscribes; where the line says nothing, a client of its own, named like the subscription."""


@dataclass(frozen=True, slots=True)
class FileEvent:
    """One line of E, read and checked."""

    topic: str
    payload: bytes
    """The payload as a client would publish it: JSON without white space."""


class JsonLinesFile:
    """The objects of one file, in order. Blank lines count as lines and are skipped.

    `tell` gets one sentence for each key that is not known: it is ignored, since files may carry more than we read,
    and told, since it may be `where` spelt wrong.
    """

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        self.path = path
        self.line = 0
        """The number of the line last read, from 1."""
        self.bytes = 0
        """How much of the file has been read."""
        self._tell = tell
        self._told: set[str] = set()

    def subscriptions(self, links: int | None) -> Iterator[FileSubscription]:
        """Read *path* as S.  links: how many there are, if that is given.  Raises LineInvalid."""
        seen: dict[int, int] = {}
        for fields in self._objects(_SUBSCRIPTION_KEYS):
            number = fields.get("id")
            if type(number) is not int:
                self._refuse(f'"id" must be a whole number, not {_spelt(number)}')
            if seen.setdefault(number, self.line) != self.line:
                self._refuse(f"id {number} is already the subscription of line {seen[number]}; ids must differ")
            yield FileSubscription(
                number,
                self._topic_filter(fields),
                self._predicates(fields),
                self._link(fields, links),
                fields.get("where"),
                str(number) if fields.get("client") is None else self._text(fields, "client"),
            )

    def events(self) -> Iterator[FileEvent]:
        """Read *path* as E. Raises LineInvalid."""
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
            except ValueError as error:  # a number beyond floats, or half of a surrogate pair
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
                    self._refuse(f"a JSON object belongs here, not {_spelt(fields)}")
                for key in fields.keys() - known - self._told:
                    self._told.add(key)
                    self._tell(f"{self.path}:{self.line}: key {_spelt(key)} is ignored; known are {_listed(known)}")
                yield fields

    def _topic_filter(self, fields: dict[str, Any]) -> TopicFilter:
        text = self._text(fields, "topic")
        try:
            return TopicFilter.parse(text)
        except EdgebrokerError as error:
            self._refuse(f'"topic": {error}')

    def _predicates(self, fields: dict[str, Any]) -> tuple[Predicate, ...]:
        if fields.get("where") is None:
            return _EVERYTHING
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
            self._refuse(f'"link" must be a whole number from 0 to {end - 1} ({why}), not {_spelt(link)}')
        return link

    def _text(self, fields: dict[str, Any], key: str) -> str:
        text = fields.get(key)
        if not isinstance(text, str):
            self._refuse(f'"{key}" is missing' if key not in fields else f'"{key}" must be a text, not {_spelt(text)}')
        return text

    def _refuse(self, why: str) -> NoReturn:
        raise LineInvalid(f"{self.path}:{self.line}: {why}") from None


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number in JSON")


def _spelt(value: object) -> str:
    """*value* as JSON, cut to what fits into a message."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _listed(names: frozenset[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))


CHUNK = 1_000
"""Subscriptions read before they are inserted: the memory of a million parsed filters is not needed at once."""

REMOVED_SHARE = 0.1
REMOVED_SEED = 1

_Insertion: TypeAlias = tuple[int, TopicFilter, tuple[Predicate, ...], int]
"""The arguments of `Pst.insert`."""


@dataclass(slots=True)
class Installation:
    """The tree, and the duration of every change. In the tree a subscription's number is its place in `ids`, from 1."""

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
        """Every link, one bit each."""
        return (1 << self.link_count) - 1


def install(
    tree: Pst, subscriptions: Iterable[FileSubscription], link_count: int | None, tell: Callable[[int], None]
) -> Installation:
    """Insert *subscriptions* into the empty *tree*, remove a tenth of them and insert it again.

    A subscription without link gets one: 0, 1, 2, ... in turn if *link_count* says how many there are, else 0.
    *tell* gets the number of subscriptions that are in the tree, now and then.
    """
    installed = Installation(tree, link_count=link_count or 1)
    chance = random.Random(REMOVED_SEED)
    coming_back: list[_Insertion] = []
    for chunk in chunks(insertions(subscriptions, installed, link_count)):
        insert(installed.tree, chunk, installed.inserting)
        coming_back += [one for one in chunk if one[0] == 1 or chance.random() < REMOVED_SHARE]
        tell(len(installed.ids))
    chance.shuffle(coming_back)
    remove(installed.tree, [number for number, *_ in coming_back], installed.removing)
    insert(installed.tree, coming_back, installed.reinserting)
    return installed


def insertions(
    subscriptions: Iterable[FileSubscription], installed: Installation, link_count: int | None
) -> Iterator[_Insertion]:
    """Number *subscriptions*, and enter into *installed* who they are."""
    without_link = 0
    for subscription in subscriptions:
        link = subscription.link
        if link is None:
            link = without_link % link_count if link_count else 0
            without_link += 1
        installed.link_count = max(installed.link_count, link + 1)
        installed.ids.append(subscription.id)
        installed.links.append(link)
        yield len(installed.ids), subscription.topic_filter, subscription.predicates, link


def chunks(insertions: Iterator[_Insertion]) -> Iterator[list[_Insertion]]:
    """The insertions in lists of CHUNK."""
    while chunk := list(islice(insertions, CHUNK)):
        yield chunk


def insert(tree: Pst, insertions: Iterable[_Insertion], spent: Durations) -> None:
    """Time each insertion by itself."""
    keep, clock, insert_one = spent.ns.append, perf_counter_ns, tree.insert
    for number, topic_filter, predicates, link in insertions:
        began = clock()
        insert_one(number, topic_filter, predicates, link)
        keep(clock() - began)


def remove(tree: Pst, numbers: Iterable[int], spent: Durations) -> None:
    """Time each removal by itself."""
    keep, clock, remove_one = spent.ns.append, perf_counter_ns, tree.remove
    for number in numbers:
        began = clock()
        remove_one(number)
        keep(clock() - began)
