"""Bridge sections. A gateway dials nobody yet, so they become a commented section, ready for when it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .conffile import Line
from .draft import BridgeDraft, Context, Draft, Entry, Value, ValueUnusable
from .findings import Finding, Verdict
from .rules import Rule, one_of, text, truth, whole

KEPT: Final = "kept as a comment: a gateway dials no other broker yet"
PORT: Final = 1_883
_NOTHING: Final = '""'
"""An empty prefix or pattern, as Mosquitto writes it."""


def connection(draft: Draft, context: Context, line: Line) -> Finding:
    """A bridge begins."""
    context.bridge = BridgeDraft(line, {"name": Entry(text(line), line)})
    draft.bridges.append(context.bridge)
    instead = f"{KEPT}; leave the bridge to a Mosquitto beside it (docs/moving.md)"
    return Finding(line, Verdict.MISSING, instead)


def of_bridge(rule: Callable[[BridgeDraft, Line], None], note: str = KEPT) -> Rule:
    """A rule for a line that must stand behind `connection`."""

    def checked(draft: Draft, context: Context, line: Line) -> Finding:
        if context.bridge is None:
            raise ValueUnusable(f"{line.name} stands before any connection")
        rule(context.bridge, line)
        return Finding(line, Verdict.MISSING, note)

    return checked


def keyed(key: str, read: Callable[[Line], Value]) -> Rule:
    """A value of the bridge under our name for it."""

    def rule(bridge: BridgeDraft, line: Line) -> None:
        bridge.keys[key] = Entry(read(line), line)

    return of_bridge(rule)


def addresses(line: Line) -> list[str]:
    """`host[:port]`, several with spaces between."""
    found = text(line).split()
    return [one if one.rpartition(":")[2].isdigit() else f"{one}:{PORT}" for one in found]


def topic(bridge: BridgeDraft, line: Line) -> None:
    """`topic pattern [[[out|in|both] qos] local-prefix remote-prefix]`."""
    words = text(line).split()
    if len(words) > 5:
        raise ValueUnusable("topic takes a pattern, a direction, a QoS and two prefixes")
    pattern, direction, qos, local, remote = (*words, *("", "out", "0", _NOTHING, _NOTHING)[len(words) :])
    if direction not in ("in", "out", "both"):
        raise ValueUnusable("the direction of a topic is in, out or both")
    if qos not in ("0", "1", "2"):
        raise ValueUnusable("the QoS of a topic is 0, 1 or 2")
    plain = ["" if word == _NOTHING else word for word in (pattern, direction, qos, local, remote)]
    if not plain[0] and not (plain[3] and plain[4]):
        raise ValueUnusable("a topic without a pattern needs both prefixes")
    bridge.rules.append(Entry(plain, line))


def start(line: Line) -> str:
    """How the bridge begins."""
    return one_of(line, "automatic", "lazy", "once", "manual")


def protocol(line: Line) -> str:
    """The version of MQTT."""
    return {"mqttv31": "3.1", "mqttv311": "3.1.1", "mqttv50": "5"}[one_of(line, "mqttv31", "mqttv311", "mqttv50")]


def seconds(line: Line) -> list[str]:
    """One number, or base and cap."""
    found = text(line).split()
    if not 1 <= len(found) <= 2 or not all(word.isdigit() for word in found):
        raise ValueUnusable("restart_timeout takes a number of seconds, or two")
    return found


OPTIONS: Final[dict[str, Rule]] = {
    "connection": connection,
    "address": keyed("addresses", addresses),
    "addresses": keyed("addresses", addresses),
    "topic": of_bridge(topic),
    "bridge_protocol_version": keyed("protocol_version", protocol),
    "remote_clientid": keyed("client_id", text),
    "clientid": keyed("client_id", text),
    "remote_username": keyed("username", text),
    "username": keyed("username", text),
    "remote_password": keyed("password", text),
    "password": keyed("password", text),
    "local_clientid": keyed("local_client_id", text),
    "local_username": keyed("local_username", text),
    "local_password": keyed("local_password", text),
    "cleansession": keyed("clean_start", truth),
    "local_cleansession": keyed("local_clean_start", truth),
    "keepalive_interval": keyed("keep_alive_s", lambda line: whole(line, 5)),
    "idle_timeout": keyed("idle_s", whole),
    "restart_timeout": keyed("retry_s", seconds),
    "round_robin": keyed("round_robin", truth),
    "start_type": keyed("start", start),
    "threshold": keyed("start_at_messages", whole),
    "try_private": keyed("try_private", truth),
    "notifications": keyed("notifications", truth),
    "notifications_local_only": keyed("notifications_local_only", truth),
    "notification_topic": keyed("notification_topic", text),
    "bridge_attempt_unsubscribe": keyed("attempt_unsubscribe", truth),
    "bridge_bind_address": keyed("bind_address", text),
    "bridge_max_packet_size": keyed("packet_bytes_max", whole),
    "bridge_max_topic_alias": keyed("topic_alias_maximum", whole),
    "bridge_outgoing_retain": keyed("outgoing_retain", truth),
    "bridge_receive_maximum": keyed("receive_maximum", whole),
    "bridge_reload_type": keyed("reload", lambda line: one_of(line, "lazy", "immediate")),
    "bridge_session_expiry_interval": keyed("session_expiry_s", whole),
    "bridge_tcp_keepalive": keyed("tcp_keepalive", lambda line: text(line).split()),
    "bridge_tcp_user_timeout": keyed("tcp_user_timeout", whole),
    "bridge_alpn": keyed("tls_alpn", text),
    "bridge_cafile": keyed("tls_ca", text),
    "bridge_capath": keyed("tls_ca_folder", text),
    "bridge_certfile": keyed("tls_certificate", text),
    "bridge_ciphers": keyed("tls_ciphers", text),
    "bridge_ciphers_tls1.3": keyed("tls_ciphersuites", text),
    "bridge_identity": keyed("psk_identity", text),
    "bridge_insecure": keyed("tls_insecure", truth),
    "bridge_keyfile": keyed("tls_key", text),
    "bridge_psk": keyed("psk", text),
    "bridge_require_ocsp": keyed("tls_require_ocsp", truth),
    "bridge_tls_use_os_certs": keyed("tls_use_os_certs", truth),
    "bridge_tls_version": keyed("tls_minimum", text),
}
