"""The table of all options that Mosquitto 2.0 and 2.1 document, and the rule for options that stand twice.

The last line holds, in its listener, in its bridge, or everywhere.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from edgebroker.cli.mosquitto_import.bridge_options import OPTIONS as BRIDGES
from edgebroker.cli.mosquitto_import.conf_file import ConfLine, LineVerdict, VerdictKind
from edgebroker.cli.mosquitto_import.draft import ConfContext, ImportDraft
from edgebroker.cli.mosquitto_import.limit_options import OPTIONS as LIMITS
from edgebroker.cli.mosquitto_import.listener_options import OPTIONS as LISTENERS
from edgebroker.cli.mosquitto_import.plugin_options import OPTIONS as PLUGINS
from edgebroker.cli.mosquitto_import.plugin_options import PREFIXES, plugin_option
from edgebroker.cli.mosquitto_import.rules import Rule
from edgebroker.cli.mosquitto_import.security_options import ONE_FOR_ALL
from edgebroker.cli.mosquitto_import.security_options import OPTIONS as SECURITY
from edgebroker.cli.mosquitto_import.store_options import OPTIONS as STORE
from edgebroker.names import most_alike

OPTIONS: Final[dict[str, Rule]] = LIMITS | STORE | LISTENERS | SECURITY | PLUGINS | BRIDGES
"""By name; `include_dir` is followed where it stands."""

INCLUDE: Final = "include_dir"
NAME_MAX: Final = 40
"""Characters; the longest option has 33, so no option is near a longer name."""


def rule_of(name: str) -> Rule | None:
    """Return the rule for an option, or None if Mosquitto has no option of that name."""
    return plugin_option if name.startswith(PREFIXES) else OPTIONS.get(name)


@lru_cache(1_000)
def nearest(name: str) -> str:
    """Return the option that *name* is a misspelling of; empty if none is similar."""
    if len(name) > NAME_MAX:
        return ""
    return most_alike(name, [*OPTIONS, INCLUDE]) or ""


REPEATED: Final = frozenset(
    """
    auth_plugin connection global_plugin listener log_dest log_type per_listener_settings plugin plugin_load plugin_use
    topic websockets_origin
    """.split()
)
"""Options that may occur several times, and of which no line overrides another."""
_SAME: Final = {
    "addresses": "address",
    "clientid": "remote_clientid",
    "maximum_qos": "max_qos",
    "listener_allow_anonymous": "allow_anonymous",
    "password": "remote_password",
    "retained_persistence": "persistence",
    "username": "remote_username",
}
_OF_THE_DEFAULT: Final = ("port", "bind_address")
_OF_A_LISTENER: Final = (
    "listener_allow_anonymous",
    "listener_auto_id_prefix",
    "plugin_use",
    "use_username_as_clientid",
)
_OF_EACH: Final = (
    *ONE_FOR_ALL,
    "allow_anonymous",
    "allow_zero_length_clientid",
    "auth_plugin",
    "auto_id_prefix",
    "plugin",
    "psk_file",
)
"""Options that belong to one listener after `per_listener_settings true`."""


class OverrideTable:
    """Collects the lines that set one option of one listener, of one bridge, or of the broker."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, ConfLine | str], list[ConfLine]] = {}

    def add(self, draft: ImportDraft, context: ConfContext, line: ConfLine, finding: LineVerdict | None) -> None:
        """Add a line. An invalid value overrides nothing, nor does a second password or access-control file."""
        if line.name in REPEATED or line.name.startswith(PREFIXES):
            return
        if finding is not None and (finding.verdict is VerdictKind.UNKNOWN or _is_left_out(finding)):
            return
        said = _SAME.get(line.name, line.name), _place(draft, context, line.name)
        self._lines.setdefault(said, []).append(line)

    def overridden(self) -> dict[ConfLine, ConfLine]:
        """Return line -> the last line that overrides it."""
        return {line: lines[-1] for lines in self._lines.values() for line in lines[:-1]}


def _is_left_out(finding: LineVerdict) -> bool:
    return finding.line.name in ONE_FOR_ALL and not finding.keys


def _place(draft: ImportDraft, context: ConfContext, name: str) -> ConfLine | str:
    """Return the owner of an option: the line that begins its bridge or its listener, or a word for the others."""
    if name in BRIDGES and context.bridge is not None:
        return context.bridge.line
    return context.listener.line or "the default listener" if is_of_listener(draft, name) else "everywhere"


def is_of_listener(draft: ImportDraft, name: str) -> bool:
    """Return whether an option concerns one listener alone, that before it."""
    is_listeners = name in LISTENERS and name not in _OF_THE_DEFAULT
    return is_listeners or name in _OF_A_LISTENER or (draft.is_per_listener and name in _OF_EACH)
