"""Options that stand more than once: the last one holds, in its listener, in its bridge, or everywhere."""

from __future__ import annotations

from typing import Final

from .bridgeoptions import OPTIONS as BRIDGES
from .conffile import Line
from .draft import Context, Draft
from .findings import Finding, Verdict
from .listeneroptions import OPTIONS as LISTENERS
from .options import FREE
from .securityoptions import ONE_FOR_ALL

REPEATED: Final = frozenset(
    """
    auth_plugin connection global_plugin listener log_dest log_type per_listener_settings plugin plugin_load plugin_use
    topic
    """.split()
)
"""Those of which every line counts."""
_SAME: Final = {
    "addresses": "address",
    "clientid": "remote_clientid",
    "listener_allow_anonymous": "allow_anonymous",
    "password": "remote_password",
    "retained_persistence": "persistence",
    "username": "remote_username",
}
_OF_THE_DEFAULT: Final = ("port", "bind_address")
_OF_A_LISTENER: Final = ("listener_allow_anonymous", "listener_auto_id_prefix", "use_username_as_clientid")
_OF_EACH: Final = (*ONE_FOR_ALL, "allow_anonymous", "allow_zero_length_clientid", "auto_id_prefix", "psk_file")
"""A listener's own after `per_listener_settings true`."""


class Overriding:
    """Which lines say the same thing in the same place."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, Line | str], list[Line]] = {}

    def take(self, draft: Draft, context: Context, line: Line, finding: Finding | None) -> None:
        """One more line. One that is not understood overrides nothing, nor does a second file where there is one."""
        if line.name in REPEATED or line.name.startswith(FREE):
            return
        if finding is not None and (finding.verdict is Verdict.UNKNOWN or _is_left_out(finding)):
            return
        said = _SAME.get(line.name, line.name), _place(draft, context, line.name)
        self._lines.setdefault(said, []).append(line)

    def overridden(self) -> dict[Line, Line]:
        """Line -> the later one that holds."""
        return {line: lines[-1] for lines in self._lines.values() for line in lines[:-1]}


def _is_left_out(finding: Finding) -> bool:
    return finding.line.name in ONE_FOR_ALL and not finding.keys


def _place(draft: Draft, context: Context, name: str) -> Line | str:
    """What an option belongs to: the line that begins its bridge or its listener, or a word."""
    if name in BRIDGES and context.bridge is not None:
        return context.bridge.line
    is_listeners = name in LISTENERS and name not in _OF_THE_DEFAULT
    if is_listeners or name in _OF_A_LISTENER or (draft.is_per_listener and name in _OF_EACH):
        return context.listener.line or "the default listener"
    return "everywhere"
