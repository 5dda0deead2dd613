"""A configuration of Mosquitto as a whole: read, translated, and what became of every line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from edgebroker.world.settings import Problem, Settings, SettingsRefused

from .bridgeoptions import settle
from .conffile import ConfUnreadable, Line, included_files, read_lines
from .draft import Context, Draft, Entry, ListenerDraft, ValueUnusable
from .findings import Finding, Verdict
from .limitoptions import packet_sizes
from .listeneroptions import Settling, opens_default
from .options import HINTS_MAX, INCLUDE, nearest, rule_of
from .overriding import Overriding
from .securityoptions import anonymous, for_all
from .storeoptions import persistence
from .tomltext import toml_text

UNSAID: Final = {
    "max_inflight_messages": "up to 1,024 messages are under way to a client, 20 in Mosquitto: limits.inflight_max",
    "max_queued_bytes": "4 MiB wait for a client at most, any number in Mosquitto: limits.queue_bytes_max",
    "max_packet_size": "a packet has at most 16 MiB, 256 in Mosquitto: limits.packet_bytes_max",
    "persistent_client_expiration": "a session ends after 30 days, never in Mosquitto: limits.session_expiry_s_max",
    "memory_limit": "clients fill 256 MiB at most, any memory there is in Mosquitto: quota.memory_bytes_max",
    "[http]": "edgebroker status, reload and the like are answered at no port: take the # from the last lines written",
}
"""Option -> how our default differs, to be said where the configuration leaves the option out. [http] is ours alone."""


@dataclass(slots=True)
class Translation:
    """The settings as text, and the report's content. `problems`: why a gateway would refuse the text as it is."""

    text: str
    findings: list[Finding]
    unsaid: dict[str, str]
    problems: list[Problem] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was asked for is in the settings, and a gateway takes them."""
        return not self.problems and not any(finding.verdict.is_loss for finding in self.findings)


def translate(path: Path) -> Translation:
    """Translate the configuration in *path*, with what it includes. Raises ConfUnreadable."""
    draft, overriding = Draft(path.parent), Overriding()
    taken = _taken(draft, overriding, path, is_main=True)
    draft.forget(overriding.overridden())
    findings = _settled(draft, taken)
    text = toml_text(draft, path)
    said = {finding.line.name for finding in findings}
    unsaid = {name: note for name, note in UNSAID.items() if name not in said}
    translation = Translation(text, findings, unsaid)
    try:
        Settings.parse(text, "the settings written", path.parent)
    except SettingsRefused as refused:
        translation.problems = refused.problems
    return translation


def _taken(draft: Draft, overriding: Overriding, path: Path, is_main: bool) -> list[tuple[Line, Finding | None]]:
    """The lines of one file in turn, each with its finding, or None if that is seen at the end."""
    taken: list[tuple[Line, Finding | None]] = []
    context = Context(draft.default_listener)
    unknown = 0
    for line in read_lines(path):
        if line.name == INCLUDE and is_main:
            taken += _included(draft, overriding, line)
            continue
        if opens_default(line):
            context.listener.is_used = True
        try:
            rule = rule_of(line.name)
            if rule is None:
                unknown += 1
            found = _unknown(line, unknown <= HINTS_MAX) if rule is None else rule(draft, context, line)
        except ValueUnusable as error:
            found = Finding(line, Verdict.UNKNOWN, str(error))
        overriding.take(draft, context, line, found)
        taken.append((line, found))
    return taken


def _included(draft: Draft, overriding: Overriding, line: Line) -> list[tuple[Line, Finding | None]]:
    """`include_dir`: only from the main file, as in Mosquitto."""
    folder = Path(draft.path(line))
    try:
        files = included_files(folder)
    except ConfUnreadable as error:
        return [(line, Finding(line, Verdict.UNKNOWN, str(error)))]
    taken: list[tuple[Line, Finding | None]] = [
        (line, Finding(line, Verdict.TRANSLATED, ", ".join(file.name for file in files) or "holds no file *.conf"))
    ]
    for file in files:
        taken += _taken(draft, overriding, file, is_main=False)
    return taken


def _unknown(line: Line, is_hinted: bool) -> Finding:
    if line.name == INCLUDE:
        return Finding(line, Verdict.UNKNOWN, "stands in an included file, where Mosquitto does not follow it")
    meant = nearest(line.name) if is_hinted else ""
    return Finding(line, Verdict.UNKNOWN, f"did you mean {meant}?" if meant else "Mosquitto has no such option")


def _settled(draft: Draft, taken: list[tuple[Line, Finding | None]]) -> list[Finding]:
    """The findings in the order of the lines, those of listeners and anonymity included."""
    late: dict[Line, Finding] = {}
    used = draft.used_listeners()
    if draft.default_listener not in used:
        unopened = "it stands before the first listener, and is nobody's"
        late = {line: Finding(line, Verdict.NEEDLESS, unopened) for line in draft.default_listener.lines.values()}
    for one in used:
        late |= {finding.line: finding for finding in Settling(draft, one).findings()}
    late |= {finding.line: finding for finding in (*anonymous(draft), *persistence(draft), *packet_sizes(draft))}
    overridden = {
        line: Finding(line, Verdict.NEEDLESS, f"overridden by {by.place}: {by}")
        for line, by in draft.overridden.items()
    }
    for bridge in draft.bridges:
        settle(bridge)
    if draft.guards:
        for one in draft.used_listeners():
            _keep_to_this_machine(one, draft.guards[0])
    its_own = "every listener has a line of its own"
    return [
        for_all(draft, overridden.get(line) or found or late.get(line) or Finding(line, Verdict.NEEDLESS, its_own))
        for line, found in taken
    ]


def _keep_to_this_machine(one: ListenerDraft, reason: Line) -> None:
    """Never more open than it was: who was kept out by something we do not have is kept out by the loopback address."""
    if "host" in one.keys:
        why = f"this machine alone, because there is no equivalent of {reason.place}: {reason}"
        one.keys["host"] = Entry("::1" if one.domain == "ipv6" else "127.0.0.1", why)
