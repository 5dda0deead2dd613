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
from edgebroker.cli.mosquitto_import.rules import Rule, guard, missing, needless, switch, text, truth, whole
from edgebroker.errors import EdgebrokerError, LineError
from edgebroker.runtime.private_files import read_private

PROBLEMS_SHOWN: Final = 3
ONE_FOR_ALL: Final = ("password_file", "acl_file")


def per_listener_settings(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`per_listener_settings true`: later security options belong to the listener before them."""
    draft.is_per_listener = truth(line)
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
        line = one.lines.get("allow_anonymous", draft.allow_anonymous)
        wanted = truth(line) if line is not None else is_local_only
        one.keys["anonymous"] = DraftEntry(wanted, line or "Mosquitto's default")
        if line is not None:
            told[line] = line.translated("listener.anonymous")
    yield from told.values()


def file_of(section: str, key: str, check: Callable[[str], tuple[LineError, ...]], is_whole: bool = False) -> Rule:
    """Return a rule for a file that is used unchanged. *is_whole*: a gateway refuses a file with any problem."""

    def rule(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
        path = draft.path(line)
        context.listener.lines[line.name] = line
        before = draft.value(section, key)
        if before is not None and before != path:
            draft.guards.append(line)
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
    if not (draft.is_per_listener and line.name in ONE_FOR_ALL and finding.keys):
        return finding
    others = [one for one in draft.used_listeners() if line.name not in one.lines]
    if not others:
        return finding
    verdict = VerdictKind.DIFFERS if finding.verdict is VerdictKind.TRANSLATED else finding.verdict
    named = ", ".join(str(one.line or "the default listener") for one in others)
    return replace(finding, verdict=verdict, note=f"{finding.note}; holds for {named} too")


def plugin(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`plugin`: code that authenticates and authorizes clients in Mosquitto."""
    draft.guards.append(line)
    if "dynamic_security" in text(line):
        instead = "write its users with edgebroker passwd and its roles into an access-control file"
    elif "persist" in line.value:
        draft.guards.remove(line)
        return line.needless("the journal keeps what is acknowledged: data.dir")
    else:
        instead = "plug-ins are not loaded: users stand in a password file, rules in an access-control file"
    return line.missing(instead)


def plugin_use(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`plugin_use`: a plug-in that was loaded by `plugin_load`."""
    return line.missing("plug-ins are not loaded")


def auto_id_prefix(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`auto_id_prefix`: the prefix of client identifiers that the broker assigns."""
    if line.value == "auto-":
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


OPTIONS: Final[dict[str, Rule]] = {
    "per_listener_settings": per_listener_settings,
    "allow_anonymous": allow_anonymous,
    "listener_allow_anonymous": allow_anonymous,
    "password_file": file_of("access", "password_file", _passwords),
    "acl_file": file_of("access", "acl_file", _rules, is_whole=True),
    "psk_file": guard("pre-shared keys are not understood: use certificates (edgebroker init)"),
    "allow_zero_length_clientid": switch(
        on=needless("it is so already"),
        off=missing("a client without an identifier is given one, as the standard says"),
    ),
    "auto_id_prefix": auto_id_prefix,
    "listener_auto_id_prefix": auto_id_prefix,
    "clientid_prefixes": guard(
        'give each device a user name of its own; access.client_ids = "user-prefix" then binds identifiers to names'
    ),
    "use_username_as_clientid": switch(
        on=guard('a client keeps its identifier; access.client_ids = "user-prefix" binds it to the user name'),
        off=needless("it is so already"),
    ),
    "check_retain_source": switch(
        on=missing("a retained message is sent to whoever may read it now, whoever published it"),
        off=needless("it is so already"),
    ),
    "plugin": plugin,
    "auth_plugin": plugin,
    "global_plugin": plugin,
    "plugin_load": plugin,
    "plugin_use": plugin_use,
    "auth_plugin_deny_special_chars": needless("a rule never takes + or # in a name for a wildcard"),
    "max_keepalive": max_keepalive,
}
