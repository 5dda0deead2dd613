"""Settings from TOML text: strict, and with every problem at its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgebroker import limits
from edgebroker.names import most_alike
from edgebroker.runtime.settings.kinds import InvalidValue
from edgebroker.runtime.settings.problems import InvalidEntry, Problem, SettingsRefused
from edgebroker.runtime.settings.schema import Section, Sections, read_value, sections_with
from edgebroker.runtime.settings.toml import KeyLines, line_of_error

FILE_BYTES_MAX = 1 * limits.MIB  # ours has about 1 KiB; a larger file is something else, given by mistake
PROBLEMS_MAX = 10  # told at once; a file of another kind has one in each line, and a hint for each takes 0.1 ms
SIGNS_MAX = 2_800  # of a gateway's settings, 2 us each; a bridge has 30 to 40, a rule of it 2 or 3
SIGNS = "\n=,.[{"  # every line, key, value and part of a name has one; what is in a comment or in quotes is none
ESCAPE = "\\"  # in double quotes takes as long as a sign
CHARACTERS_PER_SIGN = 20  # of names, blanks and what stays in double quotes, which take as long
QUOTES_MAX = 4_000  # where there are more, all that they hold is counted; to look at each pair takes 0.4 us
DIGITS_MAX = 1_000  # of a number; what is longer takes megabytes before it is refused
NESTED_MAX = 99  # lists and tables in each other
PARTS_MAX = 16  # of a dotted name: what tomllib takes for one grows with their square, 32,000 of them keep it minutes
MEND_REMOVED = "leave it out"
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{PARTS_MAX}}}")

_TRIPLE = ('"""', "'''")
_COMMENT_OR_LITERAL = r"""#.*|'[^'\n]*+'?"""  # without its end, so that what is behind it is no string either
_PLAIN = r""""[^"'\\\n]*+\""""  # means the same in single quotes
_ESCAPED = r""""[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?"""
_TEXTS = re.compile(rf"{_COMMENT_OR_LITERAL}|({_PLAIN})|{_ESCAPED}")
_FREE = re.compile(rf"{_COMMENT_OR_LITERAL}|{_PLAIN}|({_ESCAPED})")
_DOUBLE = re.compile(_ESCAPED)
_OPENINGS = re.compile(r"(?:[\[{][^\[\]{}]{0,8}+)++")  # a whole row: to begin anew at each of 99 takes 25 times as long
_LONG_NUMBER = re.compile(rf"[0-9](?<![\w\"'].)[\w.]{{{DIGITS_MAX}}}")  # a digit first: others are skipped quickly


def read_settings_text(path: Path) -> str:
    """The text of a settings file. Raises SettingsRefused."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise SettingsRefused([Problem(str(path), 0, "", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsRefused([Problem(str(path), line, "", "is not UTF-8", "save it as UTF-8 text")]) from error
    if len(data) > FILE_BYTES_MAX:
        raise SettingsRefused([Problem(str(path), 0, "", f"has more than {FILE_BYTES_MAX:,} bytes")])
    return text


def read_sections(
    known: Sections,
    text: str,
    file: str,
    folder: Path,
    aside: list[InvalidEntry] | None = None,
    signs_max: int | None = None,
    is_own: bool = False,
    warnings: list[Problem] | None = None,
) -> dict[str, Any]:
    """Section name -> its values, a tuple of them for a list. Raises SettingsRefused.

    *signs_max*: how many SIGNS, escapes and dozens of characters there may be, if they have a bound.
    *is_own*: the gateway wrote it, and knows besides which bridges an operator has paused.
    *aside* gets the entries that cannot be used of sections where that harms no other; without it they are refused.
    *warnings* gets one for each key that is ignored because this version does not have it any more.
    """
    # Each search takes 0.5 to 1 ms for 64 KiB, and most files cannot have what is sought.
    if text.count(".") >= PARTS_MAX and (deep := _DEEP.search(text)):
        line = text.count("\n", 0, deep.start()) + 1
        raise SettingsRefused([Problem(file, line, "", f"a name of more than {PARTS_MAX} parts", "ours have two")])
    if max(map(len, text.split("\n"))) > DIGITS_MAX and (long := _LONG_NUMBER.search(text)):
        line = text.count("\n", 0, long.start()) + 1
        raise SettingsRefused([Problem(file, line, "", "a number has thousands of digits")])
    if text.count("[") + text.count("{") > NESTED_MAX and any(
        row[0].count("[") + row[0].count("{") > NESTED_MAX for row in _OPENINGS.finditer(text)
    ):
        raise _nested(file)
    # The whole has no fewer than what is left without comments and strings, and is counted in a tenth of the time.
    if signs_max is not None and _count(text, text) > signs_max and (signs := _signs_in(text)) > signs_max:
        why = f"has {signs:,} lines, keys and values"
        mend = (
            f"settings have {signs_max:,} at most: ends of lines, the signs {' '.join(SIGNS[1:])}, escapes, and each "
        )
        mend += f"{CHARACTERS_PER_SIGN} characters but those of comments and texts"
        raise SettingsRefused([Problem(file, 0, "", why, mend)])
    try:
        content = tomllib.loads(_with_single_quotes(text))
    except tomllib.TOMLDecodeError as error:
        raise SettingsRefused([_not_toml(known, str(error), text, file)]) from error
    except ValueError as error:  # of `int`, which reads 4,300 digits at most
        raise SettingsRefused([Problem(file, 0, "", "a number has thousands of digits")]) from error
    except RecursionError as error:
        raise _nested(file) from error
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
    """One reading of one file. What is wrong is collected in `problems`."""

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
        """The values of what stands at the top of the file as *name*; nothing of use if there are problems."""
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
        """Those entries of a list that can be used; the others go to *aside*. Nothing is added to `problems`."""
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
                    if self._is_own and key == "client_id":  # one of the two may be paused: `Plans.part` sees it
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
        """The entry; *given* gets its keys as far as they can be read."""
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


def _nested(file: str) -> SettingsRefused:
    why = "lists or tables nest too deep"
    return SettingsRefused([Problem(file, 0, "", f"not TOML: {why}", "no key takes more than a list")])


def _with_single_quotes(text: str) -> str:
    """The same in other quotes: tomllib takes 85 ns for a character between double ones, 5 between single ones."""
    if _is_all_counted(text):
        return text
    other = _TEXTS.sub(lambda found: found[0] if found[1] is None else f"'{found[1][1:-1]}'", text)
    return text if "'''" in other else other  # two texts side by side are wrong


def _signs_in(text: str) -> int:
    """What counts in *text*: of strings nothing but escapes, and characters that stay in double quotes.

    A filter has as many signs as it likes.
    """
    if _is_all_counted(text):
        return _count(text, text)
    if (lines := text.count("\n")) > SIGNS_MAX:  # and no comment holds one
        return lines
    text = _FREE.sub(r"\1", text)
    return _count(_DOUBLE.sub("", text), text)


def _is_all_counted(text: str) -> bool:
    """Also what stands in quotes and comments: strings of several lines may hold either, without a pair."""
    return text.count('"') + text.count("'") > QUOTES_MAX or any(quotes in text for quotes in _TRIPLE)


def _count(bare: str, text: str) -> int:
    """Of everything that there is in *text*, of which *bare* stands in no quotes."""
    return sum(map(bare.count, SIGNS)) + text.count(ESCAPE) + len(text) // CHARACTERS_PER_SIGN


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
    """(reason, mend) for a name at the top of the file that is no section."""
    if belongs := list(sections_with(known, name)):
        return "stands outside any section", f"put it under [{'] or ['.join(belongs)}]"
    nearest = most_alike(name, known)
    return "unknown section", f"did you mean [{nearest}]?" if nearest else f"there are {', '.join(known)}"
