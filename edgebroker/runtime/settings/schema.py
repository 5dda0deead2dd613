"""The schema of a section: a frozen dataclass whose fields are the keys.

    @dataclass(frozen=True, slots=True)
    class NodeSettings:
        name: str = key("gateway", Text(...))
        colour: str | None = key(None, Choice(("red", "blue")), Activation.LIVE)

A section whose keys depend on each other may have
- `conflicts(given)`: (key, reason, mend) of every contradiction; *given* are the keys the file names;
- `unused()`: the keys that have no effect beside the others, and are not shown;
- `identities(sections)`, static, where it may stand several times: the identity of each in other settings;
- `clashes(sections)`, static, where it may stand several times: (index, (key, reason, mend)) of contradictions;
- `removed`: key -> reason, of keys that an earlier version had: they are ignored with a warning, whatever their value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import Field, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeAlias

from edgebroker.dataclasses import dataclass
from edgebroker.names import most_alike
from edgebroker.runtime.settings.kinds import InvalidValue, ValueKind

TABLES_MAX: Final = 64
"""The most entries of a list section: each listener opens a socket, and a longer list is the mistake of a program."""

Conflict = tuple[str, str, str]
"""(key, reason, mend)."""


class Activation(Enum):
    """When the new value of a key takes effect after the settings have been reloaded."""

    LIVE = "applied"
    RESTART = "needs restart"


def key(default: object, kind: ValueKind, applied: Activation = Activation.RESTART) -> Any:
    """Declare a key of a section. `None` as *default* means that the key is not set."""
    return field(default=default, metadata={"kind": kind, "applied": applied})


@dataclass(frozen=True, slots=True)
class Section:
    """The schema of one section. `is_list`: the section may occur several times, as `[[name]]`.

    `is_apart`: an invalid entry may be left out while the others are used.
    """

    name: str
    attribute: str
    """The field of `Settings` that holds the section."""
    made: type[Any]
    is_list: bool
    keys: Mapping[str, Field[Any]]
    tables_max: int
    is_apart: bool = False

    @classmethod
    def of(cls, declared: Field[Any]) -> Section:
        """Return the schema of a field of `Settings`, whose default is one section or a tuple of them.

        The field's metadata may give another name for files (`section`), the most entries (`most`), the class of an
        entry where the default is empty (`made`), and whether invalid entries may be left out (`apart`).
        """
        assert callable(declared.default_factory)
        default = declared.default_factory()
        is_list = isinstance(default, tuple)
        made = declared.metadata.get("made") or type(default[0] if is_list else default)
        keys = {one.name: one for one in fields(made)}
        name, most = declared.metadata.get("section", declared.name), declared.metadata.get("most", TABLES_MAX)
        return cls(name, declared.name, made, is_list, keys, most, declared.metadata.get("apart", False))

    def conflicts(self, values: object, given: Set[str]) -> Iterator[Conflict]:
        """Return the contradictions between the keys of the section *values*."""
        find = getattr(values, "conflicts", None)
        return iter(()) if find is None else find(given)

    def clashes(self, several: Sequence[object]) -> Iterator[tuple[int, Conflict]]:
        """Return the contradictions between *several* entries of this section: (index of the later entry, conflict)."""
        find = getattr(self.made, "clashes", None)
        return iter(()) if find is None else find(several)

    def changed_keys(self, values: object) -> Set[str]:
        """Return the keys of the section *values* that differ from their defaults."""
        return {name for name, declared in self.keys.items() if getattr(values, name) != declared.default}

    def shown(self, values: object) -> dict[str, Any]:
        """Return key -> JSON value, without the keys that have no effect beside the others."""
        unused = set(values.unused()) if hasattr(values, "unused") else set()
        return {name: plain(getattr(values, name)) for name in self.keys if name not in unused}


def plain(value: object) -> object:
    """Return a value as JSON can represent it: a tuple as a list, a path as a string."""
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


Sections: TypeAlias = Mapping[str, Section]
"""The schemas by the names of the sections in a file."""


def read_value(known: Sections, section: Section, name: str, value: object, folder: Path) -> object:
    """Return the checked value of a key. Raises InvalidValue."""
    declared = section.keys.get(name)
    if declared is None:
        raise InvalidValue("unknown key", _nearest_key(known, section, name))
    kind: ValueKind = declared.metadata["kind"]
    return kind.read(value, folder)


def _nearest_key(known: Sections, section: Section, name: str) -> str:
    if elsewhere := list(sections_with(known, name)):
        return f"it belongs in [{'] or ['.join(elsewhere)}]"
    nearest = most_alike(name, section.keys)
    return f"did you mean {nearest}?" if nearest else f"[{section.name}] has {', '.join(section.keys)}"


def missing_keys(given: Set[str], **meanings: str) -> Iterator[Conflict]:
    """Yield a conflict for each required key that a section does not have; the meanings say what to write."""
    return ((name, "is missing", meaning) for name, meaning in meanings.items() if name not in given)


def sections_with(known: Sections, name: str) -> Iterator[str]:
    """Return the names of the sections that have a key *name*."""
    return (section.name for section in known.values() if name in section.keys)
