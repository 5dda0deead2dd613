"""Closes the listeners that would let in somebody whom the configuration of Mosquitto kept out.

A line whose option may keep somebody out, and which the settings do not have exactly as it was, binds its listener to
the loopback address, whatever the reason: the option has no equivalent here, its value is not understood, or Mosquitto
has no such option. Options of the whole broker close every listener.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from edgebridge.session.acl import Acl, AclInvalid
from edgebroker.cli.mosquitto_import.bridge_options import OPTIONS as BRIDGES
from edgebroker.cli.mosquitto_import.conf_file import ConfLine, LineVerdict, VerdictKind
from edgebroker.cli.mosquitto_import.draft import DraftEntry, ImportDraft, ListenerDraft
from edgebroker.cli.mosquitto_import.store_options import OPTIONS as STORE
from edgebroker.errors import EdgebrokerError
from edgebroker.runtime.private_files import read_private

HARMLESS: Final = frozenset(
    [
        *BRIDGES,  # a bridge with a line that is not carried over is paused instead
        *STORE,
        *"""
        allow_duplicate_messages auto_id_prefix capath ciphers ciphers_tls1.3 dhparamfile
        disable_client_cert_date_checks enable_control_api http_dir listener_auto_id_prefix max_inflight_bytes
        max_inflight_messages max_keepalive max_packet_size max_qos max_queued_bytes max_queued_messages
        max_topic_alias max_topic_alias_broker maximum_qos memory_limit message_size_limit packet_buffer_size
        persistent_client_expiration queue_qos0_messages retain_available retain_expiry_interval
        upgrade_outgoing_qos websockets_headers_size websockets_log_level
        """.split(),
    ]
)
"""Options that keep nobody out, whatever their value. `capath` does so only with `require_certificate`, whose own line
then closes the listener. An option that is not here may keep somebody out; so may one that Mosquitto does not have,
which may be misspelt."""
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class Exposure:
    """Compares who may come in by each listener with whom Mosquitto lets in."""

    def __init__(self, draft: ImportDraft) -> None:
        self._draft = draft

    def limit(self, findings: list[LineVerdict]) -> list[LineVerdict]:
        """Close listeners; return the verdicts, with a note where a line closes some."""
        return [self._limit(finding) for finding in findings]

    def _limit(self, finding: LineVerdict) -> LineVerdict:
        line, draft = finding.line, self._draft
        if finding.verdict.is_loss and line.name not in HARMLESS and line not in draft.harmless:
            own = draft.owners.get(line)
            closed = self._close([own] if own is not None else draft.used_listeners(), line)
            return _noted(finding, "", closed)
        if not finding.keys:
            return finding
        match finding.keys[0]:
            case "access.password_file":
                why = "elsewhere Mosquitto lets in no user, and here its users come in everywhere"
                return _noted(finding, why, self._close(self._without_passwords(line), line))
            case "access.acl_file" if self._goes_by_unproved_names(finding):
                why = "without a password file no user name is proved, and rules for users hold for nobody"
                open_to_all = [one for one in draft.used_listeners() if one.is_anonymous and not one.names_users]
                return _noted(finding, why, self._close(open_to_all, line))
            case "access.certificate_user":
                why = "elsewhere a certificate names nobody in Mosquitto"
                others = [one for one in draft.used_listeners() if "tls_client" in one.keys and not one.names_users]
                return _noted(finding, why, self._close(others, line))
        return finding

    def _without_passwords(self, line: ConfLine) -> list[ListenerDraft]:
        """The listeners by which nobody comes in: they have no password file, and take no anonymous clients."""
        if line not in self._draft.owners:
            return []
        return [
            one
            for one in self._draft.used_listeners()
            if "password_file" not in one.lines and not one.is_anonymous and not one.names_users
        ]

    def _goes_by_unproved_names(self, finding: LineVerdict) -> bool:
        """Return whether rules name users though no password is checked: Mosquitto believes the name in CONNECT."""
        if self._draft.value("access", "password_file") is not None:
            return False
        try:
            acl = Acl.parse(read_private(Path(str(self._draft.value("access", "acl_file")))))
        except (AclInvalid, EdgebrokerError, OSError):
            return False  # the gateway does not start with it
        return any(acl.users) or any(rule.names_user for rule in acl.patterns)

    def _close(self, listeners: list[ListenerDraft], reason: ConfLine) -> list[ListenerDraft]:
        """Bind *listeners* to the loopback address because of *reason*; return those that had another one."""
        wider = [one for one in listeners if "host" in one.keys and one.keys["host"].value not in LOOPBACK]
        for one in wider:
            why = f"this machine alone, because it is not here as it was: {reason.place}: {reason}"
            one.keys["host"] = DraftEntry("::1" if one.domain == "ipv6" else "127.0.0.1", why)
            one.is_closed = True
        return [one for one in listeners if one.is_closed]


def _noted(finding: LineVerdict, why: str, closed: list[ListenerDraft]) -> LineVerdict:
    if not closed:
        return finding
    places = ", ".join(f"port {one.port}" for one in closed)
    note = "; ".join(filter(None, (finding.note, why, f"{places}: kept to this machine")))
    verdict = VerdictKind.DIFFERS if finding.verdict is VerdictKind.TRANSLATED else finding.verdict
    return replace(finding, verdict=verdict, note=note)
