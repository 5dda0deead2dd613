"""Translates the options of authentication and authorization. mosquitto.conf(5), "General options"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from edgebridge.session.acl import Acl, AclInvalid
from edgebridge.session.passwordfile import PasswordFile
from edgebroker.cli.mosquitto_import.conf_file import ConfLine, LineVerdict, VerdictKind
from edgebroker.cli.mosquitto_import.draft import ConfContext, DraftEntry, ImportDraft
from edgebroker.cli.mosquitto_import.rules import Rule, missing, needless, switch, text, truth, whole
from edgebroker.errors import EdgebrokerError, LineError
from edgebroker.runtime.private_files import read_private

PROBLEMS_SHOWN: Final = 3
ONE_FOR_ALL: Final = ("password_file", "acl_file")


def per_listener_settings(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`per_listener_settings true`: security options belong to the listener before them. No line takes it back."""
    draft.is_per_listener |= truth(line)
    return line.translated(note="each listener's own" if draft.is_per_listener else "the same for all")


def allow_anonymous(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """`allow_anonymous`: evaluated by `anonymous` for each listener when all lines have been read."""
    truth(line)
    if draft.is_per_listener or line.name == "listener_allow_anonymous":
        context.listener.lines["allow_anonymous"] = line
    else:
        draft.allow_anonymous = line


def anonymous(draft: ImportDraft) -> Iterator[LineVerdict]:
    """Set `anonymous` of each listener: Mosquitto accepts clients without user name only with `allow_anonymous true`.

    Without any listener it accepts them, from this machine.
    """
    is_local_only = not draft.listeners and not draft.default_listener.is_used
    told: dict[ConfLine, LineVerdict] = {}
    for one in draft.used_listeners():
        line = one.lines.get("allow_anonymous", None if draft.is_per_listener else draft.allow_anonymous)
        wanted = truth(line) if line is not None else is_local_only
        one.keys["anonymous"] = DraftEntry(wanted, line or "Mosquitto's default")
        if line is not None:
            told[line] = line.translated("listener.anonymous")
    yield from told.values()


def file_of(section: str, key: str, check: Callable[[str], tuple[LineError, ...]], is_whole: bool = False) -> Rule:
    """Return a rule for a file that is used unchanged. *is_whole*: a gateway refuses a file with any problem."""

    def rule(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
        path = draft.path(line)
        context.listener.lines[key] = line
        before = draft.value(section, key)
        if before is not None and before != path:
            return line.missing(f"one file serves all listeners: {before} is taken, join them")
        name = draft.put(section, key, path, line)
        try:
            problems = check(read_private(Path(path)))
        except (EdgebrokerError, OSError) as error:
            return line.differs(f"kept as it is, but not checked: {error}", name)
        if problems:
            shown = "; ".join(map(str, problems[:PROBLEMS_SHOWN]))
            more = f"; and {len(problems) - PROBLEMS_SHOWN} more" if len(problems) > PROBLEMS_SHOWN else ""
            if is_whole:
                return line.missing(f"to be mended before a gateway starts: {shown}{more}", name)
            return line.differs(f"kept as it is, without what cannot be read: {shown}{more}", name)
        return line.translated(name, note="kept as it is")

    return rule


def for_all(draft: ImportDraft, finding: LineVerdict) -> LineVerdict:
    """Note in the verdict on a file of one listener that it applies to all listeners here."""
    line = finding.line
    key = finding.keys[0].removeprefix("access.") if finding.keys else ""
    if key not in ONE_FOR_ALL or line not in draft.owners:
        return finding
    others = [one for one in draft.used_listeners() if key not in one.lines]
    if not others:
        return finding
    verdict = VerdictKind.DIFFERS if finding.verdict is VerdictKind.TRANSLATED else finding.verdict
    named = ", ".join(str(one.line or "the default listener") for one in others)
    return replace(finding, verdict=verdict, note=f"{finding.note}; holds for {named} too")


def auto_id_prefix(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`auto_id_prefix`: the prefix of client identifiers that the broker assigns."""
    if text(line) == "auto-":
        return line.needless("it is so already")
    return line.missing("identifiers given by the gateway begin with auto-")


def max_keepalive(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`max_keepalive`: the longest keep alive interval."""
    given = whole(line)
    if given in (0, 65_535):
        return line.needless("it is so already")
    name = draft.put("mqtt", "keep_alive_s_max", min(given, 65_535), line)
    note = "of version 5 clients; a 3.1.1 client, which cannot be told, keeps its own, where Mosquitto refuses it"
    return line.differs(note, name)


def _passwords(content: str) -> tuple[LineError, ...]:
    return PasswordFile.parse(content).problems


def _rules(content: str) -> tuple[LineError, ...]:
    try:
        Acl.parse(content)
    except AclInvalid as invalid:
        return invalid.problems
    return ()


def check_retain_source(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`check_retain_source`: whether retained messages of a client that lost its rights are kept back."""
    if truth(line):
        return line.needless("it is so already")
    return line.translated(draft.put("access", "check_retain_source", False, line))


PASSWORD_FILE: Final = file_of("access", "password_file", _passwords)
ACL_FILE: Final = file_of("access", "acl_file", _rules, is_whole=True)

OPTIONS: Final[dict[str, Rule]] = {
    "per_listener_settings": per_listener_settings,
    "allow_anonymous": allow_anonymous,
    "listener_allow_anonymous": allow_anonymous,
    "password_file": PASSWORD_FILE,
    "acl_file": ACL_FILE,
    "psk_file": missing("pre-shared keys are not understood: use certificates (edgebroker init)"),
    "allow_zero_length_clientid": switch(
        on=needless("it is so already"),
        off=missing("a client without an identifier is given one, as the standard says"),
    ),
    "auto_id_prefix": auto_id_prefix,
    "listener_auto_id_prefix": auto_id_prefix,
    "clientid_prefixes": missing(
        'give each device a user name of its own; access.client_ids = "user-prefix" then binds identifiers to names'
    ),
    "use_username_as_clientid": switch(
        on=missing('a client keeps its identifier; access.client_ids = "user-prefix" binds it to the user name'),
        off=needless("it is so already"),
    ),
    "check_retain_source": check_retain_source,
    "enable_control_api": needless("there is no $CONTROL: edgebroker status, client and retained ask by HTTP"),
    "auth_plugin_deny_special_chars": needless("a rule never takes + or # in a name for a wildcard"),
    "max_keepalive": max_keepalive,
}
