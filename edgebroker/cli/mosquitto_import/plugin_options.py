"""Translates plug-ins: those of Mosquitto 2.1 that read a password file, an access-control file or keep the state.

Others are not loaded here, so each closes the listeners that use it, as every line does that may keep somebody out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PureWindowsPath
from typing import Final

from edgebroker.cli.mosquitto_import.conf_file import ConfLine, LineVerdict
from edgebroker.cli.mosquitto_import.draft import ConfContext, ImportDraft, PluginDraft, ValueUnusable
from edgebroker.cli.mosquitto_import.rules import Rule, first_word
from edgebroker.cli.mosquitto_import.security_options import ACL_FILE, PASSWORD_FILE

PREFIXES: Final = ("auth_opt_", "plugin_opt_")
"""Of the options of a plug-in. What follows is the plug-in's own name."""
PERSISTENCE: Final = "persist_sqlite"
DYNAMIC_SECURITY: Final = "dynamic_security"
SPARKPLUG: Final = "sparkplug_aware"
_FILES: Final[dict[str, Rule]] = {"password_file": PASSWORD_FILE, "acl_file": ACL_FILE}
"""The plug-ins that read one file, which their option of the same name gives. mosquitto_password_file(7)."""
_NOT_LOADED: Final = "plug-ins are not loaded: users stand in a password file, rules in an access-control file"


def plugin(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """`plugin`, `global_plugin`, `auth_plugin`: loads a plug-in for all, or for the listener before it."""
    context.plugin = _loaded(draft, line, first_word(line))
    if line in draft.owners:
        context.plugin.listeners.append(context.listener)
    else:
        context.plugin.is_global = True


def plugin_load(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """`plugin_load name path`: loads a plug-in that `plugin_use` gives to listeners."""
    if len(line.words) < 2:
        raise ValueUnusable("plugin_load takes a name and a path")
    context.plugin = draft.plugin_names[line.word] = _loaded(draft, line, line.words[1])


def plugin_use(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """`plugin_use name`: the listener before it uses a plug-in."""
    context.plugin = draft.plugin_names.get(first_word(line))
    if context.plugin is None:
        raise ValueUnusable(f"no plugin_load before it has the name {line.word}")
    context.plugin.listeners.append(context.listener)
    context.plugin.options[f"plugin_use {line.number}"] = line


def plugin_option(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """`plugin_opt_...`, `auth_opt_...`: an option of the plug-in before it."""
    if context.plugin is None:
        raise ValueUnusable(f"{line.name} stands before any plugin")
    context.plugin.options[line.name.removeprefix(PREFIXES[0]).removeprefix(PREFIXES[1])] = line


def _loaded(draft: ImportDraft, line: ConfLine, path: str) -> PluginDraft:
    kind = PureWindowsPath(path).stem.removeprefix("mosquitto_")  # it takes both kinds of slash for separators
    one = PluginDraft(line, kind)
    draft.plugins.append(one)
    return one


def plugins(draft: ImportDraft) -> Iterator[LineVerdict]:
    """Carry over the plug-ins, and yield the verdicts on their lines."""
    for one in draft.plugins:
        if one.kind in _FILES:
            yield from _file_plugin(draft, one)
        elif one.kind == PERSISTENCE:
            draft.store["plugin"] = one.line
            for line in one.options.values():
                yield line.needless("the journal names its own files, and syncs what is acknowledged")
        else:
            lines = [one.line, *one.options.values()]
            if one.kind == SPARKPLUG:
                draft.harmless.update(lines)
            yield from (line.missing(_instead(one.kind)) for line in lines)


def _instead(kind: str) -> str:
    if kind == DYNAMIC_SECURITY:
        return "write its users with edgebroker passwd and its roles into an access-control file"
    if kind == SPARKPLUG:
        return "birth and death certificates are not kept below $sparkplug/certificates"
    return _NOT_LOADED


def _file_plugin(draft: ImportDraft, one: PluginDraft) -> Iterator[LineVerdict]:
    """Carry over the file of a plug-in as the option of the same name would."""
    options = dict(one.options)
    named = options.pop(one.kind, None)
    uses = [line for line in options.values() if line.name == "plugin_use"]
    if named is None:
        yield from (line.missing(f"name its file as plugin_opt_{one.kind}") for line in (one.line, *uses))
    elif not (one.is_global or one.listeners):
        yield from (line.needless("no listener uses the plug-in") for line in (one.line, named))
    else:
        if not one.is_global:
            draft.owners[named] = one.listeners[0]
        for listener in one.listeners or [draft.default_listener]:
            finding = _FILES[one.kind](draft, ConfContext(listener), named)
        assert finding is not None
        if finding.verdict.is_loss:
            draft.owners.pop(named, None)  # several listeners may use it: all are closed
        yield finding
        yield from (line.needless(f"access.{one.kind} does what the plug-in does") for line in (one.line, *uses))
    for line in options.values():
        if line.name != "plugin_use":
            yield line.missing(_NOT_LOADED)


OPTIONS: Final[dict[str, Rule]] = {
    "plugin": plugin,
    "auth_plugin": plugin,
    "global_plugin": plugin,
    "plugin_load": plugin_load,
    "plugin_use": plugin_use,
}
