"""Translates the options of bridges: each `connection` becomes a `[[bridge]]`.

A bridge that would be less protected than in Mosquitto is written with `paused = true`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, count
from typing import Final
from urllib.parse import unquote

from edgebridge.bridge.rules import BridgeDirection, BridgeRule, parse_rule
from edgebridge.session.subscription_text import FILTER_PREFIX, parse_subscription
from edgebroker.cli.mosquitto_import.conf_file import ConfLine, LineVerdict, VerdictKind
from edgebroker.cli.mosquitto_import.draft import (
    BridgeDraft,
    ConfContext,
    DraftEntry,
    ImportDraft,
    RuleDraft,
    Value,
    ValueUnusable,
    within,
)
from edgebroker.cli.mosquitto_import.rules import Rule, first_word, is_number, one_of, text, truth, whole
from edgebroker.errors import EdgebrokerError, RuleInvalid
from edgebroker.names import Address

NOTHING: Final = '""'
"""An empty prefix or pattern, as Mosquitto writes it."""


def topic(bridge: BridgeDraft, line: ConfLine) -> LineVerdict:
    """`topic pattern [[[out|in|both] qos] local-prefix remote-prefix]`."""
    words = _topic_words(text(line))
    written = (*words, *("", "out", "0", NOTHING, NOTHING)[len(words) :])
    pattern, direction, qos, local, remote = ("" if word == NOTHING else word for word in written)
    direction = direction.lower()
    if direction not in ("in", "out", "both"):
        raise ValueUnusable("the direction of a topic is in, out or both")
    if qos not in ("0", "1", "2"):
        raise ValueUnusable("the QoS of a topic is 0, 1 or 2")
    if not pattern and not (local and remote):
        raise ValueUnusable("a topic without a pattern needs both prefixes")
    where = ""
    if pattern.startswith(FILTER_PREFIX):
        if direction != "in" or local or remote:
            note = "a filter in a topic goes with direction in and without prefixes: write the rule with `where`"
            return line.missing(note)
        pattern, where = apart(pattern)
    rule = BridgeRule(pattern, BridgeDirection(direction), int(qos), local, remote, where)
    try:
        rule.check()
        rule = parse_rule(str(rule))  # as it will be read
    except RuleInvalid as error:
        return line.missing(str(error))
    bridge.rules.append(RuleDraft(rule, line))
    return line.translated("bridge.topic")


def _topic_words(value: str) -> list[str]:
    """Return up to five words of a `topic`. The pattern may stand in quotes and begin with `#`; others end a remark."""
    quoted = re.match(r'"([^"]+)"(?: |$)', value)
    pattern, rest = (quoted[1], value[quoted.end() :]) if quoted else (value.split()[0], value.partition(" ")[2])
    words = rest.split()
    remark = next((place for place, word in enumerate(words) if word.startswith("#")), len(words))
    if remark == 0 and words:
        raise ValueUnusable("the direction of a topic is in, out or both")
    return [pattern, *words[:remark]][:5]


def apart(pattern: str) -> tuple[str, str]:
    """Split a pattern that begins with `$filter/` into topic filter and condition. Raises ValueUnusable."""
    try:
        request = parse_subscription(pattern)
    except EdgebrokerError as error:
        raise ValueUnusable(str(error)) from error
    return request.topic_filter.text, unquote(pattern.removeprefix(FILTER_PREFIX).partition("/")[0])


SECTION: Final = "bridge"
NAME_MAX: Final = 64
PORT: Final = 1_883
ALWAYS: Final = "a bridge stays connected, and what waits for its remote is kept"
VERSIONS: Final = {"mqttv31": "3.1.1", "mqttv311": "3.1.1", "mqttv50": "5"}

OfBridge = Callable[[BridgeDraft, ConfLine], LineVerdict | None]
"""Applies a line to the draft of its bridge and returns the verdict, or None if it is known only when all lines have
been read. Raises ValueUnusable."""
PROTECTIONS: Final = frozenset(
    """
    bridge_cafile bridge_capath bridge_certfile bridge_identity bridge_insecure bridge_keyfile bridge_psk
    bridge_require_ocsp bridge_tls_use_os_certs bridge_tls_version local_username password remote_password
    remote_username username
    """.split()
)
"""Options that keep a stranger out or a secret in: a bridge is paused if the value of one is not understood."""


def connection(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`connection name`: begins a bridge."""
    given = first_word(line)
    first = draft.connections.get(given)
    name = _own_name(draft, given, line) if first is None else first.keys["name"].value
    context.bridge = BridgeDraft(line, {"name": DraftEntry(name, line)})
    draft.bridges.append(context.bridge)
    if first is not None:  # Mosquitto refuses it; what follows changes nothing of the first
        raise ValueUnusable(f"{first.line.place} has a bridge {given} already: give each a name of its own")
    draft.connections[given] = context.bridge
    if name == given:
        return line.translated(f"{SECTION}.name")
    return line.differs(f"is called {name} here", f"{SECTION}.name")


def _own_name(draft: ImportDraft, given: str, line: ConfLine) -> str:
    """Return a valid name for the bridge *given* that no other bridge has."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", given).lstrip("._-")[:NAME_MAX] or f"bridge-{line.number}"
    numbered = (f"{name[: NAME_MAX - 8]}-{number}" for number in count(len(draft.bridges) + 1))
    own = next(one for one in chain([name], numbered) if one not in draft.bridge_names)
    draft.bridge_names.add(own)
    return own


def of_bridge(rule: OfBridge) -> Rule:
    """Return *rule* for an option that must follow a `connection`."""

    def checked(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict | None:
        if context.bridge is None:
            raise ValueUnusable(f"{line.name} stands before any connection")
        return rule(context.bridge, line)

    return checked


def keyed(key: str, read: Callable[[ConfLine], Value], note: str = "") -> Rule:
    """Return a rule that sets *key* to the value that *read* returns. *note* names the difference, if there is one."""

    def rule(bridge: BridgeDraft, line: ConfLine) -> LineVerdict:
        bridge.keys[key] = DraftEntry(read(line), line)
        return LineVerdict(line, VerdictKind.DIFFERS if note else VerdictKind.TRANSLATED, note, (f"{SECTION}.{key}",))

    return of_bridge(rule)


def said(read: Callable[[ConfLine], object], verdict: VerdictKind, note: str) -> Rule:
    """Return a rule that sets nothing: it only checks the value by *read*."""

    def rule(bridge: BridgeDraft, line: ConfLine) -> LineVerdict:
        read(line)
        return LineVerdict(line, verdict, note)

    return of_bridge(rule)


def either(on: tuple[VerdictKind, str], off: tuple[VerdictKind, str]) -> Rule:
    """Return a rule for a boolean that sets nothing, with verdict and note for true (*on*) and for false (*off*)."""
    return of_bridge(lambda bridge, line: LineVerdict(line, *(on if truth(line) else off)))


def file(key: str) -> Rule:
    """Return a rule that sets *key* to the path of a file for TLS."""

    def rule(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict | None:
        path = draft.path(line)
        return keyed(key, lambda line: path)(draft, context, line)

    return rule


def safeguard(instead: str) -> Rule:
    """Return a rule for a protection that has no equivalent: the bridge is paused, and does not connect."""

    def rule(bridge: BridgeDraft, line: ConfLine) -> LineVerdict:
        if first_word(line) in ("false", "0"):
            return line.needless("it is so already")
        bridge.guards.append(line)
        return line.missing(f"{instead}; the bridge is paused until it is safe again")

    return of_bridge(rule)


def addresses(line: ConfLine) -> list[str]:
    """Parse `host[:port]`, or several of them separated by spaces. Raises ValueUnusable."""
    found = []
    first_word(line)
    for word in line.words:
        written = word if is_number(word.rpartition(":")[2]) else f"{word}:{PORT}"
        try:
            Address.parse(written)
        except ValueError:
            raise ValueUnusable(f"{word} is no HOST or HOST:PORT, with a port from 1 to 65,535") from None
        found.append(written)
    return found


def password(bridge: BridgeDraft, line: ConfLine) -> LineVerdict:
    """Name a password file for the bridge and pause it: a settings file contains no passwords."""
    text(line)
    name = f"bridge-{bridge.keys['name'].value}.password"
    bridge.keys["password_file"] = DraftEntry(name, line)
    bridge.guards.append(line)
    note = f"passwords are not copied: write it to {name} beside the settings, then take out paused"
    return line.missing(note, f"{SECTION}.password_file")


def version(bridge: BridgeDraft, line: ConfLine) -> LineVerdict:
    """`bridge_protocol_version`: the version of MQTT."""
    word = one_of(line, *VERSIONS)
    bridge.keys["version"] = DraftEntry(VERSIONS[word], line)
    old = word == "mqttv31"
    note = "a bridge speaks 3.1.1 or 5, and not 3.1" if old else ""
    return LineVerdict(line, VerdictKind.DIFFERS if old else VerdictKind.TRANSLATED, note, (f"{SECTION}.version",))


def restart_timeout(bridge: BridgeDraft, line: ConfLine) -> LineVerdict:
    """`restart_timeout`: one number of seconds, or the least and the greatest."""
    found = line.words
    if not 1 <= len(found) <= 3 or not all(map(is_number, found)):
        raise ValueUnusable("restart_timeout takes a number of seconds, or two")
    most = found[min(1, len(found) - 1)]  # a third number, since 2.1: how long a connection counts as stable
    bridge.keys["retry_s_max"] = DraftEntry(within(SECTION, "retry_s_max", int(most)), line)
    note = "pauses begin at a second, and grow by chance up to this"
    return line.differs(note, f"{SECTION}.retry_s_max")


def outgoing_retain(bridge: BridgeDraft, line: ConfLine) -> LineVerdict:
    """`bridge_outgoing_retain`: applied by `settle`, when all rules are known."""
    if truth(line):
        return line.needless("it is so already")
    bridge.unretained = line
    return line.differs("a rule for both directions retains neither here nor there", "topic.retain")


def silence(is_silent: bool) -> Rule:
    """Return a rule for a boolean that, if it is *is_silent*, lets Mosquitto tell the remote nothing of the bridge."""

    def rule(bridge: BridgeDraft, line: ConfLine) -> LineVerdict:
        if truth(line) is not is_silent:
            return line.differs(_QUIET) if line.name == "notifications" else line.needless("it is so already")
        bridge.silenced = line
        return line.translated(note="no notification_topic: the remote is told nothing")

    return of_bridge(rule)


def notification_topic(bridge: BridgeDraft, line: ConfLine) -> None:
    """`notification_topic`: evaluated by `notifications`, when it is known whether anybody is told."""
    bridge.keys["notification_topic"] = DraftEntry(text(line), line)


def notifications(bridge: BridgeDraft) -> Iterator[LineVerdict]:
    """Take out the notification topic of a bridge that tells its remote nothing."""
    entry = bridge.keys.get("notification_topic")
    if entry is None or isinstance(entry.source, str):
        return
    if bridge.silenced is not None:
        del bridge.keys["notification_topic"]
        yield entry.source.needless(f"nobody is told: {bridge.silenced.place}: {bridge.silenced}")
    else:
        yield entry.source.differs("told to the remote alone", f"{SECTION}.notification_topic")


def start(bridge: BridgeDraft, line: ConfLine) -> LineVerdict:
    """`start_type`: how the bridge is started."""
    word = one_of(line, "automatic", "lazy", "once", "manual")
    if word == "manual":
        bridge.keys["paused"] = DraftEntry(True, line)
        return line.translated(f"{SECTION}.paused")
    return LineVerdict(line, VerdictKind.NEEDLESS if word == "automatic" else VerdictKind.DIFFERS, ALWAYS)


def settle(bridge: BridgeDraft) -> None:
    """Set the keys that depend on several lines, or for which Mosquitto has another default."""
    keys = bridge.keys
    if bridge.guards:
        line = bridge.guards[0]
        keys.setdefault("paused", DraftEntry(True, f"because of {line.place}: {line}"))
    keys.setdefault("version", DraftEntry("3.1.1", "Mosquitto's default; ours is 5"))
    if keys["version"].value != "3.1.1":
        keys.pop("try_private", None)  # version 5 tells a remote what it must know without it
    elif "username" not in keys:
        keys.pop("password_file", None)  # 3.1.1 sends no password without a user name
    secured = next((entry for key, entry in keys.items() if key.startswith("tls_")), None)
    if secured is not None:
        keys.setdefault("tls", DraftEntry(True, secured.source))
    if bridge.unretained is not None:
        for draft in bridge.rules:
            if draft.rule.is_out:
                draft.rule = replace(draft.rule, retain=False)


_STAYS: Final = (VerdictKind.NEEDLESS, "it is so already")
_QUIET: Final = "`edgebroker bridge list` shows bridges here; the remote is told at notification_topic"

OPTIONS: Final[dict[str, Rule]] = {
    "connection": connection,
    "address": keyed("addresses", addresses),
    "addresses": keyed("addresses", addresses),
    "topic": of_bridge(topic),
    "bridge_protocol_version": of_bridge(version),
    "remote_clientid": keyed("client_id", text),
    "clientid": keyed("client_id", text),
    "remote_username": keyed("username", text),
    "username": keyed("username", text),
    "remote_password": of_bridge(password),
    "password": of_bridge(password),
    "local_clientid": said(text, VerdictKind.NEEDLESS, "it is $bridge/ and the bridge's name"),
    "local_username": keyed("local_user", text),
    "local_password": said(text, VerdictKind.NEEDLESS, "a bridge belongs to the gateway and needs no password here"),
    "cleansession": either((VerdictKind.DIFFERS, ALWAYS), _STAYS),
    "local_cleansession": either((VerdictKind.DIFFERS, ALWAYS), _STAYS),
    "keepalive_interval": keyed("keep_alive_s", lambda line: whole(line, 5)),
    "idle_timeout": said(whole, VerdictKind.DIFFERS, ALWAYS),
    "restart_timeout": of_bridge(restart_timeout),
    "round_robin": either(_STAYS, (VerdictKind.DIFFERS, "a bridge stays where it got through while that holds")),
    "start_type": of_bridge(start),
    "threshold": said(whole, VerdictKind.DIFFERS, ALWAYS),
    "try_private": keyed("try_private", truth),
    "notifications": silence(False),
    "notifications_local_only": silence(True),
    "notification_topic": of_bridge(notification_topic),
    "bridge_attempt_unsubscribe": said(truth, VerdictKind.NEEDLESS, "the remote's session is told what is wanted"),
    "bridge_bind_address": said(text, VerdictKind.MISSING, "the system chooses the address: set a route"),
    "bridge_max_packet_size": said(whole, VerdictKind.MISSING, "limits.packet_bytes_max is for bridges too"),
    "bridge_max_topic_alias": said(whole, VerdictKind.NEEDLESS, "bridges use no topic aliases"),
    "bridge_outgoing_retain": of_bridge(outgoing_retain),
    "bridge_receive_maximum": said(
        whole, VerdictKind.NEEDLESS, "inflight_max is what the bridge itself sends unanswered"
    ),
    "bridge_reload_type": said(
        text, VerdictKind.NEEDLESS, "a reload changes the bridges whose settings changed, and no other"
    ),
    "bridge_session_expiry_interval": said(
        whole, VerdictKind.DIFFERS, "the session at the remote is kept as long as it will"
    ),
    "bridge_tcp_keepalive": said(text, VerdictKind.NEEDLESS, "keep_alive_s finds dead connections"),
    "bridge_tcp_user_timeout": said(whole, VerdictKind.NEEDLESS, "keep_alive_s finds dead connections"),
    "bridge_alpn": said(text, VerdictKind.MISSING, "no protocol is named in the TLS handshake"),
    "bridge_cafile": file("tls_ca"),
    "bridge_capath": safeguard("put the certificates of the folder into one file, and name it as tls_ca"),
    "bridge_certfile": file("tls_certificate"),
    "bridge_ciphers": said(text, VerdictKind.MISSING, "the system's choice of ciphers holds"),
    "bridge_ciphers_tls1.3": said(text, VerdictKind.MISSING, "the system's choice of ciphers holds"),
    "bridge_identity": safeguard("use certificates instead of pre-shared keys"),
    "bridge_insecure": either(
        (VerdictKind.MISSING, "the name is always checked: say the right one as tls_server_name"), _STAYS
    ),
    "bridge_keyfile": file("tls_key"),
    "bridge_psk": safeguard("use certificates instead of pre-shared keys"),
    "bridge_require_ocsp": safeguard("certificates are not looked up"),
    "bridge_tls_use_os_certs": keyed("tls", truth),
    "bridge_tls_version": said(text, VerdictKind.NEEDLESS, "TLS 1.2 or later, as both ends can"),
}
