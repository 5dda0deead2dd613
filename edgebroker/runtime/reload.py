"""Applies new settings to a running gateway, as a whole or not at all, and reports which keys need a restart.

    reloader = Reloader(settings, {"access": prepare_access, "listener": listeners.prepare})
    outcome = await reloader.apply(Settings.load(path))

Each part of the gateway that can change its settings has a *preparer*, under the name of its section. First all
preparers read files and open sockets, and may raise. If none has raised, all changes are committed. A preparer is
called at every reload, because the files that settings name may have changed although the settings have not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from typing import Any, Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError
from edgebroker.runtime.journal.store import data_folder
from edgebroker.runtime.settings import SECTIONS, Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.problems import InvalidEntry
from edgebroker.runtime.settings.schema import Activation, Section, plain

WITHOUT_JOURNAL: Final = frozenset({"listener.durability"})
"""Live keys that need a restart on a gateway without a journal: a journal is only opened at the start."""


def do_nothing() -> None:
    """Abandon a change that has prepared nothing."""


@dataclass(frozen=True, slots=True)
class PreparedChange:
    """A prepared change: `commit` applies it and returns lines for the operator, `abandon` undoes the preparation."""

    commit: Callable[[], Iterable[str]]
    abandon: Callable[[], None] = do_nothing
    effective_settings: Settings | None = None
    """The settings to apply instead of the new ones, if a part of those cannot be used."""


Preparer = Callable[[Settings], Awaitable[PreparedChange]]
"""Raises EdgebrokerError if the new settings cannot be used; then it has changed nothing."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A key with a new value. A listener that was added or removed is a change of the key `listener`."""

    key: str
    old: object
    new: object
    applied: Activation

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}"


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """The outcome of a reload. With `problems` nothing was applied; `rejected` entries are still used as before."""

    changes: Sequence[SettingChange] = ()
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = field(default=())
    rejected: Sequence[InvalidEntry] = ()

    def lines(self) -> Iterator[str]:
        """Yield the lines that the gateway prints."""
        if self.problems:
            yield "reload: rejected, the settings of before still hold"
            yield from (f"  {problem}" for problem in self.problems)
            return
        counts = [f"{len(self._of(applied))} {applied.value}" for applied in Activation if self._of(applied)]
        if self.rejected:
            counts.append(f"{len(self.rejected)} rejected")
        yield f"reload: {', '.join(counts) if counts else 'no setting has changed'}"
        for applied in Activation:
            yield from (f"  {applied.value}: {change}" for change in self._of(applied))
        yield from (f"  rejected: {aside.label}: {problem}" for aside in self.rejected for problem in aside.problems)
        yield from (f"  {note}" for note in self.notes)

    def as_json(self) -> dict[str, Any]:
        """Return the object that the gateway prints with `--json`."""
        listed = [
            {"key": change.key, "old": change.old, "new": change.new, "outcome": change.applied.value}
            for change in self.changes
        ]
        problems = [{"file": one.file, "line": one.line, "key": one.key, "reason": one.reason} for one in self.problems]
        taken = {"taken": not self.problems, "changes": listed, "notes": list(self.notes), "problems": problems}
        rejected = [row for aside in self.rejected for row in aside.rows()]
        return {"event": "reloaded", **taken, "rejected": rejected}

    def _of(self, applied: Activation) -> list[SettingChange]:
        return [change for change in self.changes if change.applied is applied]


class Reloader:
    """Applies new settings. `settings` are those in effect."""

    def __init__(self, settings: Settings, preparers: Mapping[str, Preparer]) -> None:
        self.settings = settings
        self._preparers = preparers
        self._late = WITHOUT_JOURNAL if data_folder(settings) is None else frozenset[str]()

    @property
    def sections(self) -> frozenset[str]:
        """The sections that have a preparer."""
        return frozenset(self._preparers)

    async def apply(self, settings: Settings) -> ReloadOutcome:
        """Apply *settings*, except keys that need a restart; if one preparer raises, apply nothing."""
        prepared: list[PreparedChange] = []
        notes = [str(warning) for warning in settings.warnings]
        try:
            for prepare in self._preparers.values():
                one = await prepare(settings)
                prepared.append(one)
                settings = one.effective_settings or settings
        except BaseException as error:
            for done in prepared:
                done.abandon()
            if isinstance(error, EdgebrokerError):
                return rejected_outcome(error)
            raise
        changes = list(differences(self.settings, settings, self._late))
        notes += [note for one in prepared for note in one.commit()]
        self.settings = self._merged(settings)
        return ReloadOutcome(changes, notes=notes, rejected=settings.aside)

    def _merged(self, settings: Settings) -> Settings:
        """Return *settings* with the old values of keys that need a restart: these are still in effect."""
        parts: dict[str, Any] = {}
        for section in SECTIONS.values():
            old, new = getattr(self.settings, section.attribute), getattr(settings, section.attribute)
            if section.is_list:
                late, pairs = _late_keys(section, self._late), _paired(section, old, new)
                new = tuple(replace(one, **{name: getattr(was, name, None) for name in late}) for one, was in pairs)
            else:
                kept = {name: getattr(old, name) for name in section.keys if not _is_live(section, name, self._late)}
                new = replace(new, **kept)
            parts[section.attribute] = new
        return Settings(**parts, aside=settings.aside)


def rejected_outcome(error: EdgebrokerError) -> ReloadOutcome:
    """Return the outcome of a reload that *error* has prevented."""
    if isinstance(error, SettingsRefused):
        return ReloadOutcome(problems=error.problems)
    return ReloadOutcome(problems=[Problem("", 0, "", line) for line in str(error).splitlines()])


def differences(old: Settings, new: Settings, late: Set[str] = frozenset()) -> Iterator[SettingChange]:
    """Yield every changed key, in the order of the settings. `identities` say which entries of a list are the same.

    *late*: live keys that need a restart on this gateway.
    """
    for section in SECTIONS.values():
        before, after = getattr(old, section.attribute), getattr(new, section.attribute)
        if not section.is_list:
            yield from _changed_keys(section, section.name, before, after, late)
            continue
        for one, was in _paired(section, before, after):
            if was is None:
                yield SettingChange(section.name, None, one.label, Activation.LIVE)
                was = replace(one, **dict.fromkeys(_late_keys(section, late)))
            yield from _changed_keys(section, f"{section.name} {one.label}", was, one, late)
        for gone, still in _paired(section, after, before):
            if still is None:
                yield SettingChange(section.name, gone.label, None, Activation.LIVE)


def _paired(section: Section, before: Sequence[Any], after: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return each entry of *after* with the same entry of *before*, or None."""
    identities = section.made.identities
    known = dict(zip(identities(before), before, strict=True))
    return [(one, known.get(identity)) for identity, one in zip(identities(after), after, strict=True)]


def _late_keys(section: Section, late: Set[str]) -> list[str]:
    return [name for name in section.keys if f"{section.name}.{name}" in late]


def _changed_keys(
    section: Section, name: str, before: object, after: object, late: Set[str]
) -> Iterator[SettingChange]:
    for key in section.keys:
        old, new = plain(getattr(before, key)), plain(getattr(after, key))
        if old != new:
            yield SettingChange(
                f"{name}.{key}", old, new, Activation.LIVE if _is_live(section, key, late) else Activation.RESTART
            )


def _is_live(section: Section, key: str, late: Set[str]) -> bool:
    return section.keys[key].metadata["applied"] is Activation.LIVE and f"{section.name}.{key}" not in late


def _shown(value: object) -> str:
    return "not set" if value is None else str(value)
