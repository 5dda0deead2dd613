"""What an event (a publication, seen by a filter) may hold: attribute name -> value. An absent attribute is NULL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias


class Composite:
    """The value of an attribute that is present but cannot be compared: an object, an array, bytes, NaN.

    `x IS NOT NULL` holds for it; every comparison with it is unknown.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "COMPOSITE"


COMPOSITE: Final = Composite()

Value: TypeAlias = bool | int | float | str | Composite | None
"""A value a filter can meet. None is NULL: the attribute is absent or null."""

Attributes: TypeAlias = Mapping[str, Value]
"""Canonical attribute name -> value. A name that is missing is NULL."""
