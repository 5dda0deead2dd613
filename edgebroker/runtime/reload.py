"""Settings that change while a gateway runs: what holds at once, what needs a restart, and why nothing changed.

    reloading = Reloading(settings, {"access": prepare_access, "listener": listeners.prepare})
    outcome = await reloading.to(Settings.load(path))

Every part of the gateway that can take over new settings has a *preparer*, under the name of its section. All prepare
first: they read files and open sockets, and may refuse. Only when nobody has refused does anything change. A preparer
is called at every reload, for the files that settings name may have changed where the settings have not.
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
"""Keys that are applied at once, but need a restart where nothing is kept: a journal begins with a run."""


def do_nothing() -> None:
    """What is given up where nothing was begun."""


@dataclass(frozen=True, slots=True)
class PreparedChange:
    """A part is ready: *commit* makes the new settings hold and gives lines worth telling; *abandon* undoes it all."""

    commit: Callable[[], Iterable[str]]
    abandon: Callable[[], None] = do_nothing
    effective_settings: Settings | None = None
    """What is to hold in the place of the new settings, where a part of them cannot be used."""


Preparer = Callable[[Settings], Awaitable[PreparedChange]]
"""Raises EdgebrokerError if the new settings cannot be used: then nothing has changed."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A key whose value is another now. A listener that is new or gone is a change of `listener`."""

    key: str
    old: object
    new: object
    applied: Activation

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.old)} -> {_shown(self.new)}"


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """What became of a reload. With `problems` nothing changed; what is `rejected` is as it was, and the rest holds."""

    changes: Sequence[SettingChange] = ()
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = field(default=())
    rejected: Sequence[InvalidEntry] = ()

    def lines(self) -> Iterator[str]:
        """For people."""
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
        """For programs."""
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
    """Takes new settings over. `settings` are those that hold."""

    def __init__(self, settings: Settings, preparers: Mapping[str, Preparer]) -> None:
        self.settings = settings
        self._preparers = preparers
        self._late = WITHOUT_JOURNAL if data_folder(settings) is None else frozenset[str]()

    @property
    def sections(self) -> frozenset[str]:
        """Those that somebody prepares."""
        return frozenset(self._preparers)

    async def apply(self, settings: Settings) -> ReloadOutcome:
        """Let *settings* hold as far as they can without a restart, or not at all."""
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
        """*settings*, but with the values of before where a restart is needed: they still hold."""
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
    """The outcome if the new settings cannot be used at all."""
    if isinstance(error, SettingsRefused):
        return ReloadOutcome(problems=error.problems)
    return ReloadOutcome(problems=[Problem("", 0, "", line) for line in str(error).splitlines()])


def differences(old: Settings, new: Settings, late: Set[str] = frozenset()) -> Iterator[SettingChange]:
    """Every key that changed, in the order of the settings. Sections of a list are the same if their address is.

    *late*: keys that need a restart here, and not elsewhere.
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
    """Each of *after*, with what it is in *before*; None: it is not there."""
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
