"""Reads settings from TOML text: strictly, and with every problem at its line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgebroker.limits import OPERATOR_FILE_BYTES_MAX
from edgebroker.names import most_alike
from edgebroker.runtime.settings.kinds import InvalidValue
from edgebroker.runtime.settings.problems import InvalidEntry, Problem, SettingsRefused
from edgebroker.runtime.settings.schema import Section, Sections, read_value, sections_with
from edgebroker.runtime.settings.toml import KeyLines, line_of_error

PROBLEMS_MAX = 10  # reported at once; a file of another format has one in each line
MEND_REMOVED = "leave it out"


def read_settings_text(path: Path) -> str:
    """Return the text of a settings file. Raises SettingsRefused."""
    try:
        with path.open("rb") as file:
            data = file.read(OPERATOR_FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise SettingsRefused([Problem(str(path), 0, "", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsRefused([Problem(str(path), line, "", "is not UTF-8", "save it as UTF-8 text")]) from error
    if len(data) > OPERATOR_FILE_BYTES_MAX:
        raise SettingsRefused([Problem(str(path), 0, "", f"has more than {OPERATOR_FILE_BYTES_MAX:,} bytes")])
    return text


def read_sections(
    known: Sections,
    text: str,
    file: str,
    folder: Path,
    aside: list[InvalidEntry] | None = None,
    is_own: bool = False,
    warnings: list[Problem] | None = None,
) -> dict[str, Any]:
    """Return section name -> its values, a tuple of them for a list. Raises SettingsRefused.

    *file* names the file in problems, and paths in it are relative to *folder*. *is_own*: the gateway itself wrote the
    file, and two bridges in it may have one client identifier if one of them is paused.
    *aside* receives the invalid entries of sections whose entries are independent (`Section.is_apart`); without it
    they are refused like all others.
    *warnings* receives one for each key that is ignored because this version does not have it any more.
    """
    try:
        content = tomllib.loads(text)
        repr(content)  # as a message would show it: raises ValueError and RecursionError, too
    except tomllib.TOMLDecodeError as error:
        raise SettingsRefused([_not_toml(known, str(error), text, file)]) from error
    except ValueError as error:  # int and str convert at most 4,300 digits
        raise SettingsRefused([Problem(file, 0, "", "a number has thousands of digits")]) from error
    except RecursionError as error:
        why = "not TOML: lists or tables nest too deep"
        raise SettingsRefused([Problem(file, 0, "", why, "no key takes more than a list")]) from error
    reader = _SettingsReader(known, text, file, folder, aside, is_own)
    sections = {}
    for name, values in content.items():
        sections[name] = reader.section(name, values)
        if len(reader.problems) >= PROBLEMS_MAX:
            break
    if reader.problems:
        raise SettingsRefused(sorted(reader.problems, key=lambda problem: problem.line))
    if warnings is not None:
        warnings += reader.warnings
    return sections


class _SettingsReader:
    """Reads the sections of one file; `problems` collects what is wrong."""

    def __init__(
        self, known: Sections, text: str, file: str, folder: Path, aside: list[InvalidEntry] | None, is_own: bool
    ) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._text = text
        self._lines: KeyLines | None = None  # most files have no problem
        self._aside = aside
        self._is_own = is_own
        self._known = known
        self._file = file
        self._folder = folder

    def section(self, name: str, values: object) -> Any:
        """Return the values of the top-level table or array *name*; meaningless if `problems` has grown."""
        section = self._known.get(name)
        if section is None:
            self._problem((name,), name, *_unknown_section(self._known, name))
        elif section.is_apart and self._aside is not None:
            return self._apart(section, values, self._aside)
        elif isinstance(values, dict):
            made = self._table(section, values, (name,), {})
            return (made,) if section.is_list else made
        elif not (section.is_list and isinstance(values, list) and all(isinstance(one, dict) for one in values)):
            self._problem((name,), name, "is a section", f"write {_header(section)} on a line")
        elif not 1 <= len(values) <= section.tables_max:
            self._problem((name,), name, f"has {len(values)} entries", f"write 1 to {section.tables_max}")
        else:
            tables = tuple(self._table(section, one, (name, index), {}) for index, one in enumerate(values))
            if None not in tables:
                for index, (key, reason, mend) in section.clashes(tables):
                    self._problem((name, index, key), f"{name}.{key}", reason, mend)
            return tables
        return None

    def _apart(self, section: Section, values: object, aside: list[InvalidEntry]) -> tuple[Any, ...]:
        """Return the valid entries of a list, and append the invalid ones to *aside*; `problems` stays as it was."""
        problems, self.problems = self.problems, []
        name = section.name
        tables = [values] if isinstance(values, dict) else values
        made: list[Any] = []
        if not (isinstance(tables, list) and all(isinstance(one, dict) for one in tables)):
            self._problem((name,), name, "is a section", f"write {_header(section)} on a line")
        elif len(tables) > section.tables_max:
            self._problem((name,), name, f"has {len(tables)} entries", f"write 1 to {section.tables_max}")
        else:
            for index, one in enumerate(tables):
                given: dict[str, Any] = {}
                path = (name,) if isinstance(values, dict) else (name, index)
                entry = self._table(section, one, path, given)
                clashes = () if self.problems else section.clashes([*made, entry])
                for _, (key, reason, mend) in clashes:
                    if self._is_own and key == "client_id":  # `BridgePlans.set_duplicates_aside` decides: one may rest
                        continue
                    self._problem((*path, key), f"{name}.{key}", reason, mend)
                if self.problems:
                    aside.append(InvalidEntry(str(given.get("name", "")), tuple(self.problems), given))
                else:
                    made.append(entry)
                self.problems = []
        if self.problems:
            aside.append(InvalidEntry("", tuple(self.problems)))
        self.problems = problems
        return tuple(made)

    def _table(
        self, section: Section, values: dict[str, Any], path: tuple[str | int, ...], given: dict[str, Any]
    ) -> Any:
        """Return the entry of one table, or None if a key of it is invalid; *given* receives the valid keys."""
        before = len(self.problems)
        removed: Mapping[str, str] = getattr(section.made, "removed", {})
        for name, value in values.items():
            if name in removed:
                self.warnings.append(self._placed((*path, name), f"{section.name}.{name}", removed[name], MEND_REMOVED))
                continue
            try:
                given[name] = read_value(self._known, section, name, value, self._folder)
            except InvalidValue as error:
                self._problem((*path, name), f"{section.name}.{name}", *error.args)
                if len(self.problems) >= PROBLEMS_MAX:
                    break
        if len(self.problems) > before:
            return None
        made = section.made(**given)
        for name, reason, mend in section.conflicts(made, given.keys()):
            self._problem((*path, name), f"{section.name}.{name}", reason, mend)
        return made

    def _problem(self, path: tuple[str | int, ...], name: str, reason: str, mend: str) -> None:
        self.problems.append(self._placed(path, name, reason, mend))

    def _placed(self, path: tuple[str | int, ...], name: str, reason: str, mend: str) -> Problem:
        if self._lines is None:
            self._lines = KeyLines(self._text)
        return Problem(self._file, self._lines.line(*path), name, reason, mend)


def _header(section: Section) -> str:
    return f"[[{section.name}]]" if section.is_list else f"[{section.name}]"


def _not_toml(known: Sections, message: str, text: str, file: str) -> Problem:
    reason, line = line_of_error(message, text)
    mend = ""
    if "twice" in reason or "overwrite" in reason:
        several = [section for section in known.values() if section.is_list and f"('{section.name}',)" in reason]
        mend = f"write {_header(several[0])} each time" if several else "a key or section may stand only once"
    return Problem(file, line, "", f"not TOML: {reason}", mend)


def _unknown_section(known: Sections, name: str) -> tuple[str, str]:
    """Return (reason, mend) for a top-level name that is no section."""
    if belongs := list(sections_with(known, name)):
        return "stands outside any section", f"put it under [{'] or ['.join(belongs)}]"
    nearest = most_alike(name, known)
    return "unknown section", f"did you mean [{nearest}]?" if nearest else f"there are {', '.join(known)}"
