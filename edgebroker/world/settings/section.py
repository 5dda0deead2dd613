"""A section of the settings file: a frozen dataclass whose fields are its keys.

    @dataclass(frozen=True, slots=True)
    class NodeSettings:
        name: str = key("gateway", Text(...))
        colour: str | None = key(None, Choice("red", "blue"), Applied.LIVE)

A section whose keys depend on each other has a method `conflicts(given)`: *given* are the keys that the file names, the
answer is (key, reason, mend) of everything that does not go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import Field, dataclass, field, fields
from enum import Enum
from typing import Any

from edgebroker.world.valuekinds import Kind

Conflict = tuple[str, str, str]
"""(key, reason, mend)."""


class Applied(Enum):
    """When a changed key holds after the settings were read again."""

    LIVE = "applied"
    RESTART = "needs restart"


def key(default: object, kind: Kind, applied: Applied = Applied.RESTART) -> Any:
    """A field of a section. `None` as *default* means that the key is not set."""
    return field(default=default, metadata={"kind": kind, "applied": applied})


@dataclass(frozen=True, slots=True)
class Section:
    """What reading needs to know of a section. `is_list`: it may stand several times, as `[[name]]`."""

    name: str
    made: type[Any]
    is_list: bool
    keys: Mapping[str, Field[Any]]

    @classmethod
    def of(cls, declared: Field[Any]) -> Section:
        """The section behind a field of `Settings`, by the field's default: one section, or a tuple of them."""
        assert callable(declared.default_factory)
        default = declared.default_factory()
        is_list = isinstance(default, tuple)
        made = type(default[0] if is_list else default)
        return cls(declared.metadata.get("section", declared.name), made, is_list, {f.name: f for f in fields(made)})

    def conflicts(self, values: object, given: Set[str]) -> Iterator[Conflict]:
        """What does not go together in the section *values*."""
        find = getattr(values, "conflicts", None)
        return iter(()) if find is None else find(given)

    def shown(self, values: object) -> dict[str, Any]:
        """Key -> value, as JSON can hold it: paths as text."""
        return {name: _plain(getattr(values, name)) for name in self.keys}


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
