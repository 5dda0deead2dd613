"""An event as cells are looked up in it."""

from __future__ import annotations

from bisect import bisect_right
from math import inf

from edgebroker.matching.cells import ABSENT, EXACT_INTEGER_MAX, OTHERWISE, Cells
from edgebroker.matching.reference.leaves import Leaves
from edgebroker.predicate import Attributes, Composite, Predicate, Value

INSIDE = -1
"""Instead of a cell: the value lies between two floats, so that every test must look at it itself."""


class Event:
    """The attributes of one event."""

    __slots__ = ("_attributes", "_leaves", "_names", "_numbers")

    def __init__(self, leaves: Leaves, attributes: Attributes) -> None:
        self._attributes = attributes
        self._leaves = leaves
        self._names = leaves.names.values
        self._numbers = leaves.strings.numbers

    def cell(self, cells: Cells) -> int:
        """The cell of the value of the attribute that *cells* cuts, or INSIDE."""
        name = self._names[cells.attribute]
        value = self._attributes.get(name) if name is not None else None
        kind = type(value)
        if kind is float and value == value:
            return cells.first_number + bisect_right(cells.cuts, value)  # type: ignore[type-var]
        if kind is str:
            return cells.of_string(self._numbers.get(value, -1))  # type: ignore[arg-type]
        if kind is int and -EXACT_INTEGER_MAX <= value <= EXACT_INTEGER_MAX:  # type: ignore[operator]
            return cells.of_number(value)  # type: ignore[arg-type]
        return self._rare_cell(value, cells)

    def _rare_cell(self, value: Value, cells: Cells) -> int:
        if value is None:
            return ABSENT
        if isinstance(value, Composite) or value != value:  # nothing compares with NaN
            return OTHERWISE
        if isinstance(value, bool):
            return cells.true_cell if value else cells.false_cell
        if isinstance(value, str):
            return cells.of_string(self._numbers.get(value, -1))
        try:
            nearest = float(value)
        except OverflowError:
            nearest = inf
        return cells.of_number(nearest) if nearest == value else INSIDE

    def passes(self, predicate: Predicate) -> bool:
        """Whether every test of *predicate* accepts."""
        get = self._attributes.get
        for test in predicate:
            value = get(test.attribute)
            if test.patterns and isinstance(value, str):
                work = test.pattern_work(value)
                self._leaves.pattern_work += work
                self._leaves.too_long += not work
            if not test.accepts(value):
                return False
        return True
