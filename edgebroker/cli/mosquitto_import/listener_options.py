"""Translates the options of listeners: address, protocol, certificates. mosquitto.conf(5), "Listeners".

The options are collected first and translated when all lines have been read, because they depend on each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from edgebroker import limits
from edgebroker.cli.mosquitto_import.conf_file import ConfLine, LineVerdict, VerdictKind
from edgebroker.cli.mosquitto_import.draft import (
    ConfContext,
    DraftEntry,
    ImportDraft,
    ListenerDraft,
    Value,
    ValueUnusable,
)
from edgebroker.cli.mosquitto_import.rules import (
    Rule,
    first_word,
    is_number,
    missing,
    needless,
    one_of,
    switch,
    text,
    truth,
    whole,
)
from edgebroker.runtime.listeners.websocket import REQUEST_BYTES_MAX

ORIGIN: Final = re.compile(r"https?://[^\s/]{1,253}")
EVERYWHERE: Final = {"": "0.0.0.0", "ipv4": "0.0.0.0", "ipv6": "::"}
NOBODY_ASKED: Final = "without require_certificate nobody is asked for a certificate"
_TLS_VERSIONS: Final = {"tlsv1.3": "1.3", "tlsv1.2": "1.2", "tlsv1.1": "1.2", "tlsv1": "1.2"}


_NOTHING_SAID: Final = {
    "allow_zero_length_clientid": ("true", "1"),
    "max_connections": ("-1",),
    "max_qos": ("2",),
    "maximum_qos": ("2",),
    "protocol": ("mqtt",),
    "require_certificate": ("false", "0"),
    "use_identity_as_username": ("false", "0"),
    "use_subject_as_username": ("false", "0"),
    "use_username_as_clientid": ("false", "0"),
}
_OPENS_NOTHING: Final = frozenset(
    "http_dir max_topic_alias tls_keyform tls_version websockets_headers_size websockets_log_level".split()
)
_OPEN_PER_LISTENER: Final = ("allow_zero_length_clientid", "password_file", "plugin", "auth_plugin", "psk_file")
"""Options that open the default listener after `per_listener_settings true`."""


def opens_default(line: ConfLine, is_per_listener: bool = False) -> bool:
    """Return whether *line* makes Mosquitto open its default listener, if it stands before the first `listener`.

    An option with its default value does not, and some options never do (tried with 2.0.11).
    """
    if line.name == "listener" or line.name in _OPENS_NOTHING:
        return False
    if line.name in OPTIONS or line.name == "use_username_as_clientid":
        return line.word not in _NOTHING_SAID.get(line.name, ())
    return is_per_listener and line.name in _OPEN_PER_LISTENER and line.word not in _NOTHING_SAID.get(line.name, ())


def listener(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """`listener port [address | path]`: begins a listener."""
    words = line.words
    first_word(line)
    if not is_number(words[0]) or int(words[0]) > 65_535 or len(words) > 2:
        raise ValueUnusable("listener takes a port, and an address or the path of a Unix socket")
    opened = ListenerDraft(line, int(words[0]), is_used=True)
    if len(words) == 2 and opened.port == 0 and "/" in words[1]:
        opened.path = words[1]
    elif len(words) == 2:
        opened.host = words[1]
    draft.listeners.append(opened)
    context.listener = opened


def default_port(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """`port`, deprecated: the port of the default listener."""
    port = whole(line, 1)
    if port > 65_535:
        raise ValueUnusable("port takes a number from 1 to 65,535")
    draft.default_listener.port = port
    _of_default(draft, line)


def bind_address(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """`bind_address`, deprecated: the host of the default listener."""
    draft.default_listener.host = first_word(line)
    _of_default(draft, line)


def _of_default(draft: ImportDraft, line: ConfLine) -> None:
    """Open the default listener: Mosquitto does so even if *line* follows a `listener` (tried with 2.0.11)."""
    draft.default_listener.lines[line.name] = line
    draft.default_listener.is_used = True


def kept(check: Callable[[ImportDraft, ConfLine], object]) -> Rule:
    """Return a rule that checks a line by *check* and keeps it for `ListenerTranslation`."""

    def rule(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
        check(draft, line)
        context.listener.lines[line.name] = line

    return rule


def websockets_origin(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """`websockets_origin`: one more origin that a browser's page may come from."""
    text(line)
    context.listener.origins.append(line)


_A_PATH = kept(lambda draft, line: draft.path(line))
_A_TRUTH = kept(lambda draft, line: truth(line))
_A_WORD = kept(lambda draft, line: first_word(line))


def socket_domain(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`socket_domain`: IPv4 or IPv6 alone."""
    context.listener.domain = one_of(line, "ipv4", "ipv6")
    context.listener.lines[line.name] = line
    return line.translated("listener.host")


def protocol_versions(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`accept_protocol_versions`: some of 3, 4 and 5, which are MQTT 3.1, 3.1.1 and 5."""
    first_word(line)
    if {"3", "4", "5"} <= {*" ".join(line.words).replace(",", " ").split()}:
        return line.needless("it is so already")
    return line.missing("MQTT 3.1, 3.1.1 and 5 are spoken on every listener")


def max_qos(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`max_qos`, `maximum_qos`: the highest QoS of a PUBLISH that a listener takes."""
    if one_of(line, "0", "1", "2") == "2":
        return line.needless("it is so already")
    return line.missing("every QoS is taken on every listener")


def tls_keyform(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`tls_keyform pem`: Mosquitto takes any other word than `engine` for this one."""
    return line.missing("keys are read from files, in PEM") if text(line) == "engine" else line.needless("it is so")


class ListenerTranslation:
    """Translates the collected options of one listener."""

    def __init__(self, draft: ImportDraft, one: ListenerDraft) -> None:
        self._draft = draft
        self._one = one

    def findings(self) -> Iterator[LineVerdict]:
        """Set the listener's keys, and yield the verdicts on its lines."""
        yield from self._place()
        yield from self._terms()
        lines = self._one.lines
        if "psk_hint" in lines:
            yield lines["psk_hint"].missing("pre-shared keys are not understood: use certificates (edgebroker init)")
        yield from self._certificates()
        yield from self._proxy()

    def _set(self, key: str, value: Value, source: ConfLine | str) -> str:
        self._one.keys[key] = DraftEntry(value, source)
        return f"listener.{key}"

    def _place(self) -> Iterator[LineVerdict]:
        """Set host and port, or the path of a Unix socket."""
        one = self._one
        opened = one.line or one.lines.get("port")
        if one.path:
            assert one.line is not None
            yield one.line.translated(self._set("path", one.path, one.line))
            return
        bound = one.lines.get("bind_address")
        by_default = "Mosquitto's default listener"
        if one.host:
            host = self._set("host", one.host, bound or one.line or by_default)
        else:
            unnamed = f"every interface: {opened.place}: {opened} names no address" if opened else by_default
            host = self._set("host", EVERYWHERE[one.domain], one.lines.get("socket_domain") or unnamed)
        port = self._set("port", one.port, opened or by_default)
        if bound is not None:
            yield bound.translated(host, note="the default listener")
        if opened is None:
            return
        named = "" if opened is one.line else "the default listener"
        if one.host or one.domain:
            yield opened.translated(*((port,) if bound or not one.host else (host, port)), note=named)
        else:
            note = 'every interface, by IPv4; for IPv6 too write another [[listener]] with host = "::"'
            yield opened.differs("; ".join(filter(None, (named, note))), host, port)

    def _terms(self) -> Iterator[LineVerdict]:
        lines = self._one.lines
        if (line := lines.get("protocol")) is not None:
            if line.word == "mqtt":
                yield line.needless("it is so already")
            elif line.word == "websockets":
                key = self._set("protocol", "websocket", line)
                path = self._set("websocket_path", "*", line)
                asked = bool(self._one.origins)
                strangers = "a browser's page comes from the same host: name others as listener.websocket_origins"
                yield LineVerdict(
                    line,
                    VerdictKind.TRANSLATED if asked else VerdictKind.DIFFERS,
                    "" if asked else strangers,
                    (key, path),
                )
            else:
                yield line.missing(f"MQTT and WebSocket are spoken, not {line.word}: take the listener out")
        if (line := lines.get("max_connections")) is not None:
            if whole(line, -1) <= 0:  # 0 keeps nobody out either (tried with 2.0.11)
                note = "nothing is without limit here: limits.connections_max bounds all listeners together"
                yield line.differs(note)
            else:
                key = self._set("connections_max", whole(line), line)
                yield line.translated(key)
        yield from self._origins()

    def _origins(self) -> Iterator[LineVerdict]:
        """Set `websocket_origins`: Mosquitto compares each with the whole header, and knows no wildcard."""
        known: list[str] = []
        for line in self._one.origins:
            if "protocol" not in self._one.keys:
                yield line.needless("only browsers name an origin, and they speak WebSocket")
            elif ORIGIN.fullmatch(line.value) is None:
                yield line.missing("an origin is written like https://example.org")
            else:
                known.append(line.value)
                yield line.translated(self._set("websocket_origins", list(known), line))

    def _proxy(self) -> Iterator[LineVerdict]:
        """Set `proxy_protocol`."""
        line = self._one.lines.get("enable_proxy_protocol")
        if line is None:
            return
        if line.word == "1":
            yield line.missing("version 1 is not understood: let the proxy send version 2")
        else:
            note = "the header is believed from this machine alone, unless listener.proxy_sources names others"
            yield line.differs(note, self._set("proxy_protocol", True, line))

    def _certificates(self) -> Iterator[LineVerdict]:
        """Set the keys of TLS, if there are both a certificate and a key."""
        lines = self._one.lines
        has_tls = "certfile" in lines and "keyfile" in lines
        for name, key in (("certfile", "tls_certificate"), ("keyfile", "tls_key")):
            if name in lines and has_tls:
                written = self._set(key, self._draft.path(lines[name]), lines[name])
                yield lines[name].translated(written)
            elif name in lines:
                yield lines[name].missing("certfile and keyfile belong together")
        asked = lines.get("require_certificate")
        is_asked = asked is not None and truth(asked)
        if asked is not None:
            if not is_asked:
                yield asked.needless("it is so already")
            elif not has_tls:
                yield asked.missing("without certfile and keyfile there is no TLS")
            elif "cafile" in lines:
                yield asked.translated(self._set("tls_client", "required", asked))
            else:
                yield asked.missing("name the certificates that sign those of clients: cafile")
        if (line := lines.get("cafile")) is not None:
            if not has_tls:
                yield line.missing("without certfile and keyfile there is no TLS")
            elif is_asked:
                key = self._set("tls_client_ca", self._draft.path(line), line)
                yield line.translated(key)
            else:
                key = self._set("tls_chain", self._draft.path(line), line)
                yield line.translated(key, note=f"completes the chain that is sent; {NOBODY_ASKED}")
        if (line := lines.get("capath")) is not None:
            yield line.missing("put its certificates into one file: listener.tls_client_ca, or listener.tls_chain")
        if (line := lines.get("crlfile")) is not None:
            if "tls_client_ca" in self._one.keys:
                key = self._set("tls_client_crl", self._draft.path(line), line)
                yield line.translated(key)
            else:
                yield line.needless(NOBODY_ASKED)
        if (line := lines.get("tls_version")) is not None:
            if not has_tls:
                yield line.needless("without certificates there is no TLS")
            else:
                least = _TLS_VERSIONS[line.word]
                is_same = line.word.endswith(least)
                note = "" if is_same else "older versions are not spoken"
                key = self._set("tls_minimum", least, line)
                yield LineVerdict(line, VerdictKind.TRANSLATED if is_same else VerdictKind.DIFFERS, note, (key,))
        for name in ("use_identity_as_username", "use_subject_as_username"):
            if name in lines:
                yield self._identity(name, has_tls)

    def _identity(self, name: str, has_tls: bool) -> LineVerdict:
        line = self._one.lines[name]
        if not truth(line):
            return line.needless("it is so already")
        if not has_tls and "psk_hint" not in self._one.lines:
            return line.needless("without TLS it does nothing")
        if name == "use_subject_as_username":
            return line.missing("a certificate names its user by its common name or an alternative name")
        if "tls_client" not in self._one.keys:
            return line.missing("nobody is asked for a certificate, and without one Mosquitto lets nobody in")
        self._one.names_users = True
        written = self._draft.put("access", "certificate_user", "common name", line)
        return line.translated(written, note="on every listener that asks for certificates")


OPTIONS: Final[dict[str, Rule]] = {
    "listener": listener,
    "port": default_port,
    "bind_address": bind_address,
    "socket_domain": socket_domain,
    "cafile": _A_PATH,
    "certfile": _A_PATH,
    "crlfile": _A_PATH,
    "keyfile": _A_PATH,
    "max_connections": kept(lambda draft, line: whole(line, -1)),
    "protocol": _A_WORD,  # an unknown protocol, too: its listener is not opened to everybody
    "psk_hint": _A_WORD,
    "require_certificate": _A_TRUTH,
    "tls_version": kept(lambda draft, line: one_of(line, *_TLS_VERSIONS)),
    "use_identity_as_username": _A_TRUTH,
    "use_subject_as_username": _A_TRUTH,
    "websockets_origin": websockets_origin,
    "accept_protocol_versions": protocol_versions,
    "enable_proxy_protocol": kept(lambda draft, line: one_of(line, "1", "2")),
    "proxy_protocol_v2_require_tls": switch(
        on=missing("whether the proxy was spoken to by TLS is not looked at: let the proxy do"),
        off=needless("it is so already"),
    ),
    "bind_interface": missing("write the address of the interface as listener.host"),
    "capath": _A_PATH,
    "ciphers": needless("what Python's ssl module chooses for a server: no weak ciphers"),
    "ciphers_tls1.3": needless("what Python's ssl module chooses for a server: no weak ciphers"),
    "dhparamfile": needless("keys are agreed on with elliptic curves"),
    "disable_client_cert_date_checks": missing("a client's certificate must be in date"),
    "http_dir": missing("files are not served: let a web server do that"),
    "max_qos": max_qos,
    "maximum_qos": max_qos,  # its name since 2.1
    "max_topic_alias": needless(f"{limits.TOPIC_ALIAS_MAXIMUM} aliases are granted to each client"),
    "max_topic_alias_broker": needless(f"a client that takes aliases is sent {limits.OUT_ALIASES_MAX} at most"),
    "mount_point": missing("a listener does not move topics: let clients use the prefix themselves"),
    "tls_engine": missing("keys are read from files"),
    "tls_engine_kpass_sha1": missing("keys are read from files"),
    "tls_keyform": tls_keyform,
    "websockets_headers_size": needless(f"the head of a request may have {REQUEST_BYTES_MAX:,} bytes"),
    "websockets_log_level": needless("there is no second library with a log of its own"),
}
