"""Translates a whole configuration of Mosquitto into settings in TOML.

A comment after each value names the line of the configuration that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edgebroker.cli.http_client import USUAL_PORT
from edgebroker.cli.mosquitto_import.bridge_options import PROTECTIONS, notifications, settle
from edgebroker.cli.mosquitto_import.conf_file import ConfLine, ConfUnreadable, LineVerdict, included_files, read_lines
from edgebroker.cli.mosquitto_import.draft import (
    BridgeDraft,
    ConfContext,
    DraftEntry,
    ImportDraft,
    ValueUnusable,
)
from edgebroker.cli.mosquitto_import.exposure import Exposure
from edgebroker.cli.mosquitto_import.limit_options import packet_sizes
from edgebroker.cli.mosquitto_import.listener_options import ListenerTranslation, opens_default
from edgebroker.cli.mosquitto_import.options import INCLUDE, OverrideTable, is_of_listener, nearest, rule_of
from edgebroker.cli.mosquitto_import.plugin_options import plugins
from edgebroker.cli.mosquitto_import.security_options import anonymous, for_all
from edgebroker.cli.mosquitto_import.store_options import persistence
from edgebroker.runtime.settings import Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.toml import toml_value

_COLUMN: Final = 40
_DOOR: Final = f"""
# `edgebroker status`, `top`, `reload`, `client`, `bridge` and `retained` ask a gateway at this port. Mosquitto has none
# like it, and a gateway does not start where another program has it: take the # away if it is free.
# [http]
# port = {USUAL_PORT}"""
_TOKEN: Final = """\
# token_file = "http-token"               # for what changes something: openssl rand -hex 24 > http-token"""


def toml_text(draft: ImportDraft, source: Path) -> str:
    """Return the settings file as text."""
    lines = [
        f"# Settings of a gateway, translated by `edgebroker import` from {_printable(str(source))}.",
        "# Behind every value stands the line it comes from; docs/settings.md explains the keys.",
    ]
    for one in draft.used_listeners():
        lines += ["", "[[listener]]", *_table(one.keys)]
    for section, keys in draft.sections.items():
        if keys:
            lines += ["", f"[{section}]", *_table(keys)]
    for bridge in draft.bridges:
        lines += ["", *_bridge(bridge)]
    lines += [_DOOR, *([_TOKEN] if draft.sections.get("access") else ())]
    return "\n".join(lines) + "\n"


def _table(keys: Mapping[str, DraftEntry]) -> Iterator[str]:
    for key, entry in keys.items():
        yield _assignment(f"{key} = {toml_value(entry.value)}", entry.source)


def _bridge(bridge: BridgeDraft) -> Iterator[str]:
    if not bridge.rules:
        yield _printable(
            f"# {bridge.line.place}: {bridge.line}: a bridge without a topic that can be carried is left out"
        )
        return
    yield "[[bridge]]"
    yield from _table(bridge.keys)
    yield "topic = ["
    for draft in bridge.rules:
        yield _assignment(f"    {toml_value(str(draft.rule))},", draft.source)
    yield "]"


def _assignment(text: str, source: ConfLine | str) -> str:
    said = f"{source.place}: {source}" if isinstance(source, ConfLine) else source
    return f"{text:<{_COLUMN}}  # {_printable(said)}"


def _printable(text: str) -> str:
    """Return *text* without characters that a TOML comment must not contain."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


UNSAID: Final = {
    "max_inflight_messages": "up to 1,024 messages are under way to a client, 20 in Mosquitto: limits.inflight_max",
    "max_queued_bytes": "4 MiB wait for a client at most, any number in Mosquitto: limits.queue_bytes_max",
    "max_packet_size": "a packet has at most 16 MiB, 256 in Mosquitto 2.0 and 2,000,000 bytes in 2.1: "
    "limits.packet_bytes_max",
    "check_retain_source": "what a client has retained that may not publish it any more is kept back, as the manual of "
    "Mosquitto says and its program does only if it is told: access.check_retain_source",
    "persistence": "what is acknowledged is kept on disk, nothing in Mosquitto: data.durability",
    "persistent_client_expiration": "a session ends after 30 days, never in Mosquitto: limits.session_expiry_s_max",
    "memory_limit": "clients fill 256 MiB at most, any memory there is in Mosquitto: quota.memory_bytes_max",
    "[http]": "edgebroker status, reload and the like are answered at no port: take the # from the last lines written",
}
"""Option -> how the default here differs; reported if the configuration does not set it. [http] exists only here."""


@dataclass(slots=True)
class ImportTranslation:
    """The settings as text, and the content of the report. `problems`: why a gateway would refuse the settings."""

    text: str
    findings: list[LineVerdict]
    unsaid: dict[str, str]
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether the settings have an equivalent for every line, and a gateway accepts them."""
        return not self.problems and not any(finding.verdict.is_loss for finding in self.findings)


def translate(path: Path) -> ImportTranslation:
    """Translate the configuration in *path* and the files that it includes. Raises ConfUnreadable."""
    draft, overriding = ImportDraft(path.parent), OverrideTable()
    taken = _taken(draft, overriding, path, is_main=True)
    draft.discard(overriding.overridden())
    findings = _settled(draft, taken)
    text = toml_text(draft, path)
    said = {finding.line.name for finding in findings}
    unsaid = {name: note for name, note in UNSAID.items() if name not in said}
    translation = ImportTranslation(text, findings, unsaid)
    try:
        Settings.parse(text, "the settings written", path.parent)
    except SettingsRefused as refused:
        translation.problems = refused.problems
    return translation


def _taken(
    draft: ImportDraft, overriding: OverrideTable, path: Path, is_main: bool
) -> list[tuple[ConfLine, LineVerdict | None]]:
    """Translate the lines of one file; return each with its verdict, or None if `_settled` determines it."""
    taken: list[tuple[ConfLine, LineVerdict | None]] = []
    context = ConfContext(draft.default_listener)
    for line in read_lines(path):
        if line.name == INCLUDE and is_main:
            taken += _included(draft, overriding, line)
            continue
        if context.listener is draft.default_listener and opens_default(line, draft.is_per_listener):
            draft.openers.append(line)
        if is_of_listener(draft, line.name):
            draft.owners[line] = context.listener
        try:
            rule = rule_of(line.name)
            found = _unknown(line) if rule is None else rule(draft, context, line)
        except ValueUnusable as error:
            found = line.unknown(str(error))
            if context.bridge is not None and line.name in PROTECTIONS:
                context.bridge.guards.append(line)
        overriding.add(draft, context, line, found)
        taken.append((line, found))
    return taken


def _included(
    draft: ImportDraft, overriding: OverrideTable, line: ConfLine
) -> list[tuple[ConfLine, LineVerdict | None]]:
    """Translate the files of an `include_dir`, which Mosquitto reads only in the main file."""
    folder = Path(draft.path(line))
    try:
        files = included_files(folder)
    except ConfUnreadable as error:
        return [(line, line.unknown(str(error)))]
    taken: list[tuple[ConfLine, LineVerdict | None]] = [
        (line, line.translated(note=", ".join(file.name for file in files) or "holds no file *.conf"))
    ]
    for file in files:
        taken += _taken(draft, overriding, file, is_main=False)
    return taken


def _unknown(line: ConfLine) -> LineVerdict:
    if line.name == INCLUDE:
        return line.unknown("stands in an included file, where Mosquitto does not follow it")
    meant = nearest(line.name)
    return line.unknown(f"did you mean {meant}?" if meant else "Mosquitto has no such option")


def _settled(draft: ImportDraft, taken: list[tuple[ConfLine, LineVerdict | None]]) -> list[LineVerdict]:
    """Evaluate the options that depend on each other; return the verdicts on all lines in their order."""
    late = {finding.line: finding for finding in plugins(draft)}
    used = draft.used_listeners()
    if draft.default_listener not in used:
        unopened = "it stands before the first listener, and is nobody's"
        late |= {
            line: line.needless(unopened)
            for line in (*draft.default_listener.lines.values(), *draft.default_listener.origins)
        }
    for one in used:
        late |= {finding.line: finding for finding in ListenerTranslation(draft, one).findings()}
    late |= {finding.line: finding for finding in (*anonymous(draft), *persistence(draft), *packet_sizes(draft))}
    overridden = {line: line.needless(f"overridden by {by.place}: {by}") for line, by in draft.overridden.items()}
    for bridge in draft.bridges:
        late |= {finding.line: finding for finding in notifications(bridge)}
        settle(bridge)
    its_own = "every listener has a line of its own"
    if draft.is_per_listener:
        its_own = "per_listener_settings: it is no listener's"
    findings = [
        for_all(draft, overridden.get(line) or found or late.get(line) or line.needless(its_own))
        for line, found in taken
    ]
    return Exposure(draft).limit(findings)
