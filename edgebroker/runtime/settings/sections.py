"""The sections of the settings file except `bridge`: a frozen dataclass for each, and the kinds of value they need."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from edgebridge.frontend.options import Redirect
from edgebridge.session.durability import MEMORY, SYNC, Durability, batched
from edgebridge.session.queue.outbox import OverflowPolicy
from edgebridge.wire.reasons import ReasonCode
from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.errors import TopicInvalid
from edgebroker.limits import GATEWAY_NUMBER_MAX, JOURNAL_BYTES_MAX, MIB
from edgebroker.names import hostport
from edgebroker.overlay.link.budget import OutboxFull
from edgebroker.runtime.settings.kinds import (
    FILE,
    FOLDER,
    IP_NETWORK,
    Boolean,
    Choice,
    Integer,
    InvalidValue,
    ListOf,
    Text,
    ValueKind,
    string,
    toml_name,
)
from edgebroker.runtime.settings.schema import Activation, Conflict, key
from edgebroker.topics import TopicFilter

BATCH_MS_MAX = 60_000  # for more than a minute of possible loss there is the mode `memory`


@dataclass(frozen=True, slots=True)
class DurabilityKind:
    """A durability: `sync`, `batched:MS` or `memory`."""

    def read(self, value: object, folder: Path) -> Durability:
        text = string(value, f"write {self}")
        if text in ("sync", "memory"):
            return SYNC if text == "sync" else MEMORY
        found = re.fullmatch(r"batched:([0-9]{1,6})", text)
        if not found or not 1 <= int(found[1]) <= BATCH_MS_MAX:
            raise InvalidValue(f"is {text!r}", f"write {self}, with 1 to {BATCH_MS_MAX:,} milliseconds")
        return batched(int(found[1]))

    def __str__(self) -> str:
        return '"sync", "batched:MS" or "memory"'


@dataclass(frozen=True, slots=True)
class ClientDurability:
    """The durability of sessions whose client identifiers match `pattern`."""

    pattern: str
    durability: Durability

    def __str__(self) -> str:
        return f"{self.pattern}={self.durability}"


@dataclass(frozen=True, slots=True)
class ClientDurabilityKind:
    """A durability for some clients: `PATTERN=MODE`, where PATTERN may contain `*` and `?`."""

    def read(self, value: object, folder: Path) -> ClientDurability:
        pattern, equals, mode = string(value, f"write {self}").rpartition("=")
        if not equals or not pattern:
            raise InvalidValue(f"is {value!r}", f"write {self}")
        return ClientDurability(pattern, DurabilityKind().read(mode, folder))

    def __str__(self) -> str:
        return '"PATTERN=MODE", where PATTERN matches client identifiers and MODE is ' + str(DurabilityKind())


def hosts_overlap(host: str, other: str) -> bool:
    """Return whether one port cannot be opened at both hosts.

    Host names other than `localhost` are not resolved: each overlaps only with itself.
    """
    if host.lower() == other.lower():
        return True
    one, another = _ip_address_of(host), _ip_address_of(other)
    if one is None or another is None or one.version != another.version:
        return False
    return one == another or one.is_unspecified or another.is_unspecified


def _ip_address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address("127.0.0.1" if host.lower() == "localhost" else host)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The gateway's name, and how its process waits."""

    removed: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("spin_us", "awake_percent"), "has no effect: a gateway does not wait awake any more"
    )

    name: str = key("gateway", Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "1 to 64 letters, digits, '.', '_' or '-'"))
    gather_us: int = key(limits.GATHER_US, Integer(0, 10_000))


PATH_BYTES_MAX = 107  # `sun_path` of Linux has 108 with the final zero; the temporary name to bind takes four more
LIVE = Activation.LIVE
AnyNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """An address where clients connect, and its protocol, TLS and access."""

    name: str | None = key(
        None, Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "1 to 64 letters, digits, '.', '_', '-'"), LIVE
    )
    host: str = key("127.0.0.1", Text(r"[^\s/]{1,253}", "a host name or an IP address"), LIVE)
    port: int = key(1883, Integer(0, 65_535), LIVE)
    path: Path | None = key(None, FILE, LIVE)
    path_mode: str = key("0660", Text(r"0[0-7]{3}", "a file mode like 0660"), LIVE)
    protocol: str = key("mqtt", Choice(("mqtt", "websocket")), LIVE)
    websocket_path: str = key(
        "/mqtt", Text(r"\*|/[!-\"$->@-~]{0,255}", "a path that begins with '/', or '*' for any"), LIVE
    )
    websocket_origins: tuple[str, ...] = key(
        (), ListOf(Text(r"\*|https?://[^\s/]{1,253}", "an origin like https://example.org, or '*'"), 64), LIVE
    )
    tls_certificate: Path | None = key(None, FILE, LIVE)
    tls_key: Path | None = key(None, FILE, LIVE)
    tls_chain: Path | None = key(None, FILE, LIVE)
    tls_client: str = key("none", Choice(("none", "optional", "required")), LIVE)
    tls_client_ca: Path | None = key(None, FILE, LIVE)
    tls_client_crl: Path | None = key(None, FILE, LIVE)
    tls_minimum: str = key("1.2", Choice(("1.2", "1.3")), LIVE)
    tls_ciphers: str | None = key(None, Text(r"[!-~]{1,1024}", '"old-devices", or a list of OpenSSL'), LIVE)
    proxy_protocol: bool = key(False, Boolean(), LIVE)
    proxy_sources: tuple[AnyNetwork, ...] = key(
        (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")), ListOf(IP_NETWORK, 64), LIVE
    )
    anonymous: bool | None = key(None, Boolean(), LIVE)
    connections_max: int | None = key(None, Integer(1, 1_000_000), LIVE)
    durability: Durability | None = key(None, DurabilityKind(), LIVE)

    @property
    def address(self) -> str:
        """The address `host:port`, or the path of the Unix socket."""
        if self.path is not None:
            return str(self.path)
        return hostport(self.host, self.port)

    @property
    def label(self) -> str:
        """The name of the listener in messages."""
        return self.name or self.address

    def admits_anonymous(self, is_local: bool | None = None) -> bool:
        """Return whether clients without user name are admitted; by default only from this machine.

        is_local: whether the listener is bound to loopback addresses; None: as far as `host` tells it. Behind a proxy
        every client seems to connect from the proxy's machine, which may be this one.
        """
        if self.anonymous is not None:
            return self.anonymous
        if self.proxy_protocol:
            return False
        if is_local is None:
            address = _ip_address_of(self.host)
            is_local = address is not None and address.is_loopback
        return self.path is not None or is_local

    def excludes(self, other: ListenerSettings) -> bool:
        """Return whether only one of the two listeners can be opened."""
        if self.path is not None or other.path is not None:
            return self.path == other.path
        return 0 < self.port == other.port and hosts_overlap(self.host, other.host)

    @property
    def is_tls(self) -> bool:
        return self.tls_certificate is not None

    def unused(self) -> Iterator[str]:
        """Yield the keys that have no effect with the others as they are."""
        if self.path is None:
            yield "path_mode"
        else:
            yield from ("host", "port")
        if self.protocol != "websocket":
            yield from ("websocket_path", "websocket_origins")
        if not self.is_tls:
            yield from ("tls_key", "tls_chain", "tls_client", "tls_client_ca", "tls_client_crl")
            yield from ("tls_minimum", "tls_ciphers")
        if not self.proxy_protocol or self.path is not None:
            yield "proxy_sources"

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        """Yield the contradictions between keys; *given* are those that the file names."""
        if self.path is not None:
            for name in sorted({"host", "port"} & given):
                yield name, "stands beside path", "a listener has either host and port or a path"
            if len(os.fsencode(self.path)) > PATH_BYTES_MAX - 4:
                yield "path", f"is longer than {PATH_BYTES_MAX - 4} bytes", "the system allows no more for a socket"
        needed = {
            "path_mode": (self.path is not None, "path"),
            "websocket_path": (self.protocol == "websocket", 'protocol = "websocket"'),
            "websocket_origins": (self.protocol == "websocket", 'protocol = "websocket"'),
            "tls_key": (self.is_tls, "tls_certificate"),
            "tls_chain": (self.is_tls, "tls_certificate"),
            "tls_client": (self.is_tls, "tls_certificate"),
            "tls_client_ca": (self.is_tls, "tls_certificate"),
            "tls_client_crl": (self.tls_client_ca is not None, "tls_client_ca"),
            "tls_minimum": (self.is_tls, "tls_certificate"),
            "tls_ciphers": (self.is_tls, "tls_certificate"),
            "proxy_sources": (self.proxy_protocol and self.path is None, "proxy_protocol = true and a port"),
        }
        for name, (is_useful, what) in needed.items():
            if name in given and not is_useful:
                yield name, f"does nothing without {what}", f"set {what}, or leave the line out"
        if self.is_tls:
            if self.tls_key is None:
                yield "tls_certificate", "stands without tls_key", "name the file with its private key"
            if self.tls_client != "none" and self.tls_client_ca is None:
                yield "tls_client", "needs tls_client_ca", "name the certificates that sign those of clients"
            if self.tls_client != "none" and self.tls_chain is not None:
                remedy = "put its certificates behind the one in tls_certificate"
                yield "tls_chain", "would let in clients with certificates that its own have signed", remedy
            if self.tls_client == "none" and self.tls_client_ca is not None:
                yield "tls_client_ca", "is not asked of anybody", 'set tls_client to "optional" or "required"'

    @staticmethod
    def identities(listeners: Sequence[ListenerSettings]) -> list[tuple[str, int]]:
        """Return what identifies each listener at a reload: its address, and its rank among listeners with port 0."""
        seen: dict[str, int] = {}
        found = []
        for one in listeners:
            seen[one.address] = seen.get(one.address, -1) + 1
            found.append((one.address, seen[one.address]))
        return found

    @staticmethod
    def clashes(listeners: Sequence[ListenerSettings]) -> Iterator[tuple[int, Conflict]]:
        """Yield what two listeners cannot both have: (index of the later one, conflict)."""
        names: set[str] = set()
        for index, one in enumerate(listeners):
            if one.name is not None and one.name in names:
                yield index, ("name", f"is {one.name!r} a second time", "give every listener a name of its own")
            if any(map(one.excludes, listeners[:index])):
                name = "port" if one.path is None else "path"
                yield index, (name, f"{one.address} is taken by a listener above", "choose another")
            names.add(one.name or "")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The delivery log, which is written only with `dir`."""

    dir: Path | None = key(None, FOLDER)
    sample_qos0: int = key(100, Integer(1, 1_000_000))
    segment_bytes_max: int = key(limits.LOG_SEGMENT_BYTES_MAX, Integer(64 * limits.KIB, 64 * limits.MIB))
    bytes_max: int = key(limits.LOG_BYTES_MAX, Integer(0, 1024 * 1024 * limits.MIB))
    segment_age_s_max: int = key(limits.LOG_SEGMENT_AGE_S_MAX, Integer(1, 7 * 24 * 3_600))


@dataclass(frozen=True, slots=True)
class DataSettings:
    """The journal: where it is, what it promises, and how much it may write."""

    dir: Path | None = key(None, FOLDER)
    durability: Durability = key(SYNC, DurabilityKind())
    clients: tuple[ClientDurability, ...] = key((), ListOf(ClientDurabilityKind(), 256))
    commit_ms: int = key(15, Integer(1, 1_000))
    bytes_max: int = key(JOURNAL_BYTES_MAX, Integer(32 * MIB, 64 * 1_024 * MIB))
    card_gb: int = key(32, Integer(1, 16_384))
    card_cycles: int = key(500, Integer(1, 1_000_000))


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The store of chunks of files; with `bytes_max` 0 there is none, and requests for files are refused."""

    bytes_max: int = key(0, Integer(0, 1_048_576 * MIB))
    dir: Path | None = key(None, FOLDER)


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """The limits of `edgebroker.limits` that an operator may change, under the same names."""

    out_bytes_max: int = key(limits.OUT_BYTES_MAX, Integer(16 * limits.KIB, 256 * limits.MIB))
    queue_messages_max: int = key(limits.QUEUE_MESSAGES_MAX, Integer(1, 10_000_000))
    queue_bytes_max: int = key(limits.QUEUE_BYTES_MAX, Integer(1 * limits.KIB, 1_024 * limits.MIB))
    queued_messages_max: int = key(limits.QUEUED_MESSAGES_MAX, Integer(1, 100_000_000))
    queued_bytes_max: int | None = key(limits.QUEUED_BYTES_MAX, Integer(1 * limits.KIB, 1_048_576 * limits.MIB))
    inflight_max: int = key(limits.INFLIGHT_MAX, Integer(1, 65_535))
    receive_maximum: int = key(limits.RECEIVE_MAXIMUM, Integer(1, 65_535))
    packet_bytes_max: int = key(limits.PACKET_BYTES_MAX, Integer(128, 255 * limits.MIB))  # MQTT says 256
    topic_levels_max: int = key(limits.TOPIC_LEVELS_MAX, Integer(8, limits.TOPIC_LEVELS_LIMIT))
    connections_max: int = key(limits.CONNECTIONS_MAX, Integer(1, 1_000_000))
    retained_messages_max: int = key(limits.RETAINED_MESSAGES_MAX, Integer(0, 10_000_000))
    session_expiry_s_max: int = key(limits.SESSION_EXPIRY_S_MAX, Integer(0, 0xFFFF_FFFE))  # 0xFFFFFFFF means never


GROUP_NAME: Final = Text(r"[^/+#\0]{1,256}", "a name of a shared subscription, with * and ?")


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Behaviour that MQTT leaves to the server; `FrontendOptions` has fields of the same names."""

    keep_alive_s_max: int = key(0, Integer(0, 65_535))
    response_prefix: str | None = key(None, Text(r"[^$+#\s\0][^+#\s\0]{0,255}", "a topic prefix without wildcards"))
    payload_format_checked: bool = key(False, Boolean())
    sys_interval_s: int = key(10, Integer(0, 3_600))
    presence: bool = key(False, Boolean())
    sparkplug_rebirth_s: int = key(0, Integer(0, 3_600))
    move_refusal_s: int = key(limits.MOVE_REFUSAL_S, Integer(0, 3_600))
    sharing: str = key("fair", Choice(("fair", "sticky")))
    federated_groups: tuple[str, ...] = key((), ListOf(GROUP_NAME, 256), Activation.LIVE)
    queue_full: str = key("drop-newest", Choice(tuple(OverflowPolicy)))


_SERVER = re.compile(r"(?:\[(?P<ipv6>[^]]+)\]|[^]:/[]+)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class ServerReferences(Text):
    """Server references separated by single spaces, each in the form of MQTT 5.0 section 4.11."""

    def read(self, value: object, folder: Path) -> str:
        text = Text.read(self, value, folder)
        for server in text.split(" "):
            if not _is_server(server):
                raise InvalidValue(
                    f"names {server!r}", f"write {self}; an IPv6 address before a port stands in brackets"
                )
        return text


def _is_server(text: str) -> bool:
    found = _SERVER.fullmatch(text)
    if found is None:
        return _is_ipv6(text)
    port, ipv6 = found["port"], found["ipv6"]
    return (port is None or 0 < int(port) <= 65_535) and (ipv6 is None or _is_ipv6(ipv6))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


_SERVERS = ServerReferences(r"[^\s,]{1,261}( [^\s,]{1,261}){0,7}", "up to 8 host or host:port, apart by single blanks")


@dataclass(frozen=True, slots=True)
class RedirectSettings:
    """Redirection: the Server Reference that clients receive instead of a connection (MQTT 5.0 section 4.11)."""

    use_another_server: str | None = key(None, _SERVERS, Activation.LIVE)
    server_moved: str | None = key(None, _SERVERS, Activation.LIVE)

    @property
    def redirect(self) -> Redirect | None:
        """The redirection, or None."""
        if self.server_moved is not None:
            return Redirect(ReasonCode.SERVER_MOVED, self.server_moved)
        if self.use_another_server is not None:
            return Redirect(ReasonCode.USE_ANOTHER_SERVER, self.use_another_server)
        return None

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        """Yield a contradiction if both keys are set: they have different reason codes."""
        if self.use_another_server is not None and self.server_moved is not None:
            yield "server_moved", "stands beside use_another_server", "leave one of them out"


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Authentication and authorization. Without `password_file` no password is checked.

    Without `acl_file` every client may publish and subscribe everywhere.
    """

    password_file: Path | None = key(None, FILE, Activation.LIVE)
    acl_file: Path | None = key(None, FILE, Activation.LIVE)
    token_keys: Path | None = key(None, FILE, Activation.LIVE)
    certificate_user: str = key("nobody", Choice(("nobody", "common name", "alternative name")), Activation.LIVE)
    client_ids: str = key("owned", Choice(("owned", "user-prefix", "free")), Activation.LIVE)
    check_retain_source: bool = key(True, Boolean(), Activation.LIVE)


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """Limits for each client, for each address and for all clients together; `Quota` has fields of the same names."""

    connect_bytes_max: int = key(limits.CONNECT_BYTES_MAX, Integer(256, 512 * limits.KIB), Activation.LIVE)
    connects_per_s: int = key(limits.CONNECTS_PER_S, Integer(0, 1_000_000), Activation.LIVE)
    connects_per_address_per_s: int = key(limits.CONNECTS_PER_ADDRESS_PER_S, Integer(0, 1_000_000), Activation.LIVE)
    publish_messages_per_s: int = key(0, Integer(0, 10_000_000), Activation.LIVE)
    publish_bytes_per_s: int = key(0, Integer(0, 1_024 * limits.MIB), Activation.LIVE)
    filter_tests_max: int = key(limits.FILTER_TESTS_PER_CLIENT_MAX, Integer(1, 10_000_000), Activation.LIVE)
    filter_patterns_max: int = key(limits.FILTER_PATTERNS_PER_CLIENT_MAX, Integer(0, 1_000_000), Activation.LIVE)
    filter_attributes_max: int = key(limits.FILTER_ATTRIBUTES_PER_CLIENT_MAX, Integer(1, 1_000_000), Activation.LIVE)
    filter_clients_max: int = key(limits.FILTER_CLIENTS_MAX, Integer(1, 100_000), Activation.LIVE)
    subscriptions_max: int = key(limits.SUBSCRIPTIONS_PER_CLIENT_MAX, Integer(1, 1_000_000), Activation.LIVE)
    shared_groups_max: int = key(limits.SHARED_GROUPS_MAX, Integer(0, 100_000), Activation.LIVE)
    sessions_max: int = key(limits.SESSIONS_MAX, Integer(1, 1_000_000), Activation.LIVE)
    packet_bytes_per_s_min: int = key(limits.PACKET_BYTES_PER_S_MIN, Integer(0, 1_000_000), Activation.LIVE)
    memory_bytes_max: int = key(limits.MEMORY_BYTES_MAX, Integer(4 * limits.MIB, 1 << 40), Activation.LIVE)


STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
PEER_TLS_KEYS = ("tls_certificate", "tls_key", "tls_ca")
OUTBOX_KEYS = ("outbox_bytes_max", "outbox_messages_max", "outbox_full", "outbox")


class PeerOutbox(NamedTuple):
    """The bound of the outbox for one peer, and what becomes of more; None: as for all others."""

    peer: str
    bytes_max: int
    policy: OutboxFull | None = None


@dataclass(frozen=True, slots=True)
class PeerOutboxKind:
    """A peer, a number of bytes, and perhaps a policy."""

    def read(self, value: object, folder: Path) -> PeerOutbox:
        text = string(value, f"write {self}")
        found = re.fullmatch(r"(\S{1,64}) +([0-9]{1,15})(?: +(refuse|drop-newest))?", text)
        if not found or int(found[2]) < MIB:
            raise InvalidValue(f"is {text!r}", f"write {self}, with {MIB:,} bytes at least")
        return PeerOutbox(found[1], int(found[2]), None if found[3] is None else OutboxFull(found[3]))

    def __str__(self) -> str:
        return 'text like "gw-yard 1073741824 drop-newest"'


@dataclass(frozen=True, slots=True)
class OverlaySettings:
    """The federation to which this gateway belongs as `node.name`; without `topology` it belongs to none."""

    topology: Path | None = key(None, FILE)
    topology_key: Path | None = key(None, FILE)
    host: str | None = key(None, Text(r"[^\s/]{1,253}", "a host name or an IP address"))
    port: int | None = key(None, Integer(1, 65_535))
    routing: str = key(DYNAMIC, Choice((STATIC, DYNAMIC)))
    lease_s: int | None = key(None, Integer(60, 365 * 24 * 3_600))
    idle_advertisements_max: int = key(limits.IDLE_ADVERTISEMENTS_MAX, Integer(0, 100_000))
    suback_wait_ms: int = key(1_000, Integer(0, 60_000))
    retained_cache_bytes_max: int = key(limits.RETAINED_CACHE_BYTES_MAX, Integer(0, 1_024 * MIB))
    dead_gateway_wills_after_s: int = key(120, Integer(0, 86_400))
    roaming: bool = key(True, Boolean())
    session_wait_ms: int = key(2_000, Integer(0, 60_000))
    outbox_bytes_max: int | None = key(None, Integer(1 * MIB, 1_048_576 * MIB))
    outbox_messages_max: int | None = key(None, Integer(1, 100_000_000))
    outbox_full: str = key(OutboxFull.REFUSE, Choice(tuple(OutboxFull)))
    outbox: tuple[PeerOutbox, ...] = key((), ListOf(PeerOutboxKind(), GATEWAY_NUMBER_MAX))
    tls_certificate: Path | None = key(None, FILE)
    tls_key: Path | None = key(None, FILE)
    tls_ca: Path | None = key(None, FILE)
    tls_crl: Path | None = key(None, FILE)
    insecure: bool = key(False, Boolean())
    strangers_max: int = key(limits.PEER_STRANGERS_MAX, Integer(1, 10_000))
    strangers_per_address_max: int = key(limits.PEER_STRANGERS_PER_ADDRESS_MAX, Integer(1, 10_000))

    @property
    def is_tls(self) -> bool:
        """Whether the gateways authenticate each other with certificates."""
        return self.tls_certificate is not None

    def unused(self) -> Iterator[str]:
        """Yield the keys that have no effect with the others as they are."""
        if self.topology is None:
            yield from (
                "topology_key",
                "host",
                "port",
                "routing",
                "lease_s",
                "idle_advertisements_max",
                "suback_wait_ms",
                "strangers_max",
                "strangers_per_address_max",
                "retained_cache_bytes_max",
                "dead_gateway_wills_after_s",
                "roaming",
                "session_wait_ms",
                *OUTBOX_KEYS,
                *PEER_TLS_KEYS,
            )
        yield from ["insecure"] if self.topology is None or self.is_tls else []
        if not self.is_tls:
            yield "tls_crl"

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        """Yield the contradictions between keys; *given* are those that the file names."""
        if self.topology is None:
            for name in sorted(given - {"topology"}):
                yield name, "does nothing without topology", "name the topology file, or leave the line out"
        elif self.tls_crl is not None and not self.is_tls:
            yield (
                "tls_crl",
                "does nothing without tls_certificate",
                f"set {', '.join(PEER_TLS_KEYS)}, or leave the line out",
            )
        elif self.insecure and self.is_tls:
            yield "insecure", "stands beside tls_certificate", "leave one of them out"
        files = {name: getattr(self, name) for name in PEER_TLS_KEYS}
        if self.is_tls or any(files.values()):
            for name, path in files.items():
                if path is None:
                    yield (
                        next(iter(given & set(PEER_TLS_KEYS))),
                        f"stands without {name}",
                        f"{', '.join(PEER_TLS_KEYS)} go together",
                    )


@dataclass(frozen=True, slots=True)
class PublisherExclusion:
    """Publishers that stay where they are: by client identifier, or by the topics under which they publish."""

    by: str
    """"client" or "topic"."""
    pattern: str
    """With `*` and `?` for clients; a topic filter for topics."""

    def __str__(self) -> str:
        return f"{self.by} {self.pattern}"


@dataclass(frozen=True, slots=True)
class PublisherExclusionKind:
    """`client PATTERN`, where PATTERN may contain `*` and `?`, or `topic FILTER`."""

    def read(self, value: object, folder: Path) -> PublisherExclusion:
        by, _, pattern = string(value, f"write {self}").partition(" ")
        if by not in ("client", "topic") or not pattern:
            raise InvalidValue(f"is {value!r}", f"write {self}")
        if by == "topic":
            try:
                TopicFilter.parse(pattern)
            except TopicInvalid as error:
                raise InvalidValue(str(error), f"write {self}") from error
        return PublisherExclusion(by, pattern)

    def __str__(self) -> str:
        return 'text like "client plc-*" or "topic alarms/#"'


RELOCATION_MODE: Final = Choice(("off", "propose", "apply"))
RELOCATION_PRIORITY: Final = Choice(("delay", "load"))
PERCENT: Final = Integer(0, 100)
EXCLUSIONS: Final = ListOf(PublisherExclusionKind(), 64)


@dataclass(frozen=True, slots=True)
class SiteRelocation:
    """What holds for the gateways of one site instead; None: as for all. Exclusions are additional ones."""

    name: str
    mode: str | None = None
    priority: str | None = None
    weight: int | None = None
    exclude: tuple[PublisherExclusion, ...] = ()

    def __str__(self) -> str:
        values = {key: getattr(self, key) for key in ("mode", "priority", "weight")}
        texts = [f"{key}={value}" for key, value in values.items() if value is not None]
        return " ".join([self.name, *texts, *(f"exclude={one}" for one in self.exclude)])


@dataclass(frozen=True, slots=True)
class SiteRelocationKind:
    """A table with the `name` of a site, and what holds there."""

    def read(self, value: object, folder: Path) -> SiteRelocation:
        if not isinstance(value, dict):
            raise InvalidValue(f"has {toml_name(value)} in it", f"write {self}")
        kinds: dict[str, ValueKind] = {
            "name": Text(r"\S{1,64}", "the name of a site"),
            "mode": RELOCATION_MODE,
            "priority": RELOCATION_PRIORITY,
            "weight": PERCENT,
            "exclude": EXCLUSIONS,
        }
        if "name" not in value:
            raise InvalidValue("has a table without name", 'name the site, as name = "harbour"')
        given: dict[str, Any] = {}
        for name, one in value.items():
            if name not in kinds:
                raise InvalidValue(f"has a table with {name!r}", f"a table has {', '.join(kinds)}")
            try:
                given[name] = kinds[name].read(one, folder)
            except InvalidValue as invalid:
                reason, mend = invalid.args
                raise InvalidValue(f"has a table whose {name} {reason}", mend) from invalid
        return SiteRelocation(**given)

    def __str__(self) -> str:
        return "a table [[relocation.site]]"


@dataclass(frozen=True, slots=True)
class RelocationSettings:
    """How better gateways are found for publishers in a federation."""

    mode: str = key("propose", RELOCATION_MODE, Activation.LIVE)
    priority: str = key("delay", RELOCATION_PRIORITY, Activation.LIVE)
    weight: int = key(50, PERCENT, Activation.LIVE)
    gain_min: int = key(5, PERCENT, Activation.LIVE)
    moves_per_minute: int = key(6, Integer(1, 60), Activation.LIVE)
    exclude: tuple[PublisherExclusion, ...] = key((), EXCLUSIONS, Activation.LIVE)
    site: tuple[SiteRelocation, ...] = key((), ListOf(SiteRelocationKind(), GATEWAY_NUMBER_MAX), Activation.LIVE)

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        """Yield the contradictions between keys; *given* are those that the file names."""
        names = [one.name for one in self.site]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            yield "site", f"has two tables for {name}", "make one of them"


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The HTTP server for metrics, health, status and orders; without `port` there is none."""

    host: str = key("127.0.0.1", Text(r"[^\s/]{1,253}", "a host name or an IP address"))
    port: int | None = key(None, Integer(0, 65_535))
    token_file: Path | None = key(None, FILE, Activation.LIVE)
    health_open: bool = key(True, Boolean(), Activation.LIVE)

    def unused(self) -> Iterator[str]:
        """Yield the keys that have no effect with the others as they are."""
        if self.token_file is None:
            yield "health_open"

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        """Yield the contradictions between keys; *given* are those that the file names."""
        if "health_open" in given and self.token_file is None:
            yield "health_open", "does nothing without token_file", "set token_file, or leave the line out"


@dataclass(frozen=True, slots=True)
class NoticeSettings:
    """The operator's log, which is written to standard error."""

    level: str = key("warning", Choice(("error", "warning", "info", "debug")), Activation.LIVE)
    format: str = key("text", Choice(("text", "json")))
