"""What every subscription says, asked one by one, and quickly enough to ask a million times.

Each elementary test is asked once about each value (`ElementaryTest.accepts`), and what it says is kept as a set of
*rows*: one bit for each predicate of each subscription. The rows that accept an event are then the intersection over
the attributes. Nothing here knows of the matcher; `Subscription.accepts` checks it in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgebroker.predicate import ElementaryTest

from .cases import Case

Choice = Mapping[str, int]
"""Attribute name -> which of the case's values the event has. A name that is missing is absent."""
ABSENT = -1


class Oracle:
    """The answers of all subscriptions of one case, whichever of them are installed."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.owners: list[int] = []
        """By row: the subscription, as an index into the case's."""
        self.rows: list[int] = []
        """By subscription: its rows, one bit each. None for a subscription without content filter."""
        self.plain: set[int] = set()
        """The subscriptions without content filter."""
        self._tests: dict[str, dict[ElementaryTest, int]] = {name: {} for name in case.values}
        for index, subscription in enumerate(case.subscriptions):
            rows = 0
            if all(subscription.predicates):
                for predicate in subscription.predicates:
                    row = 1 << len(self.owners)
                    rows |= row
                    self.owners.append(index)
                    for test in predicate:
                        of_attribute = self._tests[test.attribute]
                        of_attribute[test] = of_attribute.get(test, 0) | row
            else:
                self.plain.add(index)
            self.rows.append(rows)
        self._everything = (1 << len(self.owners)) - 1
        self.names = [name for name, tests in self._tests.items() if tests]
        """The attributes that anything tests."""
        self._untested = dict.fromkeys(self.names, self._everything)
        for name in self.names:
            for rows in self._tests[name].values():
                self._untested[name] &= ~rows
        self._accepting: dict[tuple[str, int], int] = {}
        self._here: dict[str, tuple[frozenset[int], int]] = {}

    def matching(self, topic: str, choice: Choice, installed: int) -> tuple[set[int], set[int]]:
        """The subscriptions without and with content filter that match.

        installed: the rows of subscriptions that are there. Those without content filter are all told.
        """
        plain, rows = self._meant(topic)
        rows &= installed
        for name in self.names:
            if not rows:
                break
            rows &= self.accepting(name, choice.get(name, ABSENT))
        owners = self.owners
        return set(plain), {owners[row] for row in ones(rows)}

    def accepting(self, name: str, index: int) -> int:
        """The rows that do not refuse an event because of the attribute *name*, which has its value number *index*."""
        key = (name, index)
        rows = self._accepting.get(key)
        if rows is None:
            value = None if index == ABSENT else self._case.values[name][index]
            rows = self._untested[name]
            for test, of_test in self._tests[name].items():
                if test.accepts(value):
                    rows |= of_test
            self._accepting[key] = rows
        return rows

    def _meant(self, topic: str) -> tuple[frozenset[int], int]:
        """The subscriptions without content filter, and the rows of the others, whose topic filter matches."""
        found = self._here.get(topic)
        if found is None:
            here = {index for index, each in enumerate(self._case.subscriptions) if each.topic_filter.matches(topic)}
            rows = 0
            for index in here:
                rows |= self.rows[index]
            found = self._here[topic] = frozenset(here & self.plain), rows
        return found


def ones(bits: int) -> Iterator[int]:
    """The positions of the bits that are set, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
