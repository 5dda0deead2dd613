"""The gateway's membership in a federation: topology, its own name, TLS, and the changes a new topology file brings.

A running gateway accepts a new topology file only where peers can change one by one; the rest needs a restart.
"""

from __future__ import annotations

import ipaddress
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edgebridge.frontend.federation.join import join, rejoin
from edgebridge.frontend.federation.link_setup import BootIdentity
from edgebridge.frontend.frontend import Frontend
from edgebroker.dataclasses import dataclass
from edgebroker.errors import StoreUnusable
from edgebroker.federation.options import (
    DEFAULT_OPTIONS,
    FederationOptions,
    OutboxOptions,
    RelocationMode,
    RelocationOptions,
)
from edgebroker.instants import Instant
from edgebroker.names import Address
from edgebroker.overlay.link.budget import OutboxFull
from edgebroker.overlay.link.handshake import RUN_BYTES, TopologyExchange
from edgebroker.overlay.link.journal_records import StoredLinks
from edgebroker.overlay.topology.diff import difference
from edgebroker.overlay.topology.draft import TopologyInvalid, Uplink
from edgebroker.overlay.topology.topology import Topology
from edgebroker.relocation.placement import PlacementGoal, PlacementPriority
from edgebroker.runtime.journal.store import data_folder
from edgebroker.runtime.private_files import FileUnreadable
from edgebroker.runtime.settings import Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.problems import ProblemCollector
from edgebroker.runtime.settings.reading import read_settings_text
from edgebroker.runtime.settings.sections import DYNAMIC, OverlaySettings, RelocationSettings, SiteRelocation
from edgebroker.runtime.topology_file import parse_topology
from edgebroker.runtime.topology_signature import (
    PUBLIC,
    SignatureInvalid,
    load_key,
    signed_version,
    verify_topology,
)
from edgebroker.topics import TopicFilter

if TYPE_CHECKING:
    from edgebridge.frontend.federation.federation import FederationMember
    from edgebroker.runtime.peers.tls import PeerTls


LEASE_S_MIN: Final = 24 * 3_600
"""Where sessions end sooner: a gateway that is repaired within a day is told nothing anew."""


@dataclass(frozen=True, slots=True)
class FederationMembership:
    """One gateway of one federation."""

    topology: Topology
    name: str
    tls: PeerTls | None
    """None: peers are not authenticated."""
    options: FederationOptions = DEFAULT_OPTIONS
    signed: str = ""
    """The topology file, if its signature was verified."""

    @property
    def version(self) -> int:
        """The version of the signed topology file; 0 if it is not signed."""
        return signed_version(self.signed)

    @property
    def exchange(self) -> TopologyExchange:
        """What links have to know of the file."""
        return TopologyExchange(self.version, self.signed.encode(), bool(self.signed))

    def join(self, frontend: Frontend, now: Instant, stored: StoredLinks | None) -> None:
        """Makes *frontend*, whose clock is set, this gateway. *stored*: the state of links in its journal."""
        journal = frontend.journal.storage
        boot = os.urandom(RUN_BYTES)
        store = boot if journal is None else journal.store[:RUN_BYTES]
        join(
            frontend,
            self.topology,
            self.name,
            BootIdentity(boot, store, random.random, self.exchange),
            now,
            stored,
            self.options,
        )

    def rejoin(self, frontend: Frontend, now: Instant) -> FederationMember:
        """Moves *frontend*, which has left the old topology, to this one."""
        before = frontend.federation
        assert before is not None
        boot = BootIdentity(os.urandom(RUN_BYTES), before.links.identity.store, random.random, self.exchange)
        return rejoin(frontend, self.topology, boot, now, self.options)


ADOPTED_FILE: Final = "topology.toml"
"""In the data folder: the newest signed topology that a peer has handed on."""


def load_membership(settings: Settings, received: str = "") -> FederationMembership:
    """Reads the files that *settings* name. *received*: a signed topology that was handed on; the newest holds. Raises
    SettingsRefused with all their problems.
    """
    path, name = settings.overlay.topology, settings.node.name
    assert path is not None
    topology, tls, signed = None, None, ""
    problems: list[Problem] = []
    with ProblemCollector(problems):
        text, file, signed = _newest_text(settings, received)
        topology = _topology(text, file, name)
        _check_exposure(topology, path, name, settings.overlay)
    with ProblemCollector(problems):
        tls = _load_tls(settings.overlay)
    if topology is None or problems:
        raise SettingsRefused(problems)
    if strangers := [one.peer for one in settings.overlay.outbox if one.peer not in topology.gateway(name).peers()]:
        reason = f"{strangers[0]!r} is no peer of {name}"
        remedy = f"name one of {', '.join(topology.gateway(name).peers())}"
        raise SettingsRefused([Problem(str(path), 0, "overlay.outbox", reason, remedy)])
    sites = [site.name for site in topology.sites]
    if unknown := [one.name for one in settings.relocation.site if one.name not in sites]:
        reason, remedy = f"{unknown[0]!r} is no site of the topology", f"name one of {', '.join(sites)}"
        raise SettingsRefused([Problem(str(path), 0, "relocation.site", reason, remedy)])
    return FederationMembership(topology, name, tls, _options(settings, topology, name), signed)


def _options(settings: Settings, topology: Topology, name: str) -> FederationOptions:
    """Returns what the settings say of routing, and of what is kept for peers and for how long."""
    overlay = settings.overlay
    lease_s = overlay.lease_s
    if lease_s is None:  # no session behind a link lasts longer, if its gateway has the same limit
        lease_s = max(settings.limits.session_expiry_s_max, LEASE_S_MIN)
    outbox = OutboxOptions(overlay.outbox_bytes_max, overlay.outbox_messages_max, OutboxFull(overlay.outbox_full))
    outboxes = {
        one.peer: OutboxOptions(one.bytes_max, outbox.messages_max, one.policy or outbox.policy)
        for one in overlay.outbox
    }
    return replace(
        DEFAULT_OPTIONS,
        is_dynamic=overlay.routing == DYNAMIC,
        lease_s=lease_s,
        idle_advertisements_max=overlay.idle_advertisements_max,
        suback_wait_ms=overlay.suback_wait_ms,
        retained_cache_bytes_max=overlay.retained_cache_bytes_max,
        dead_gateway_wills_after_s=overlay.dead_gateway_wills_after_s,
        roams=overlay.roaming,
        session_wait_ms=overlay.session_wait_ms,
        outbox=outbox,
        outboxes=outboxes,
        relocation=relocation_options(settings.relocation, topology, name),
    )


def relocation_options(settings: RelocationSettings, topology: Topology, name: str) -> RelocationOptions:
    """Returns what the settings say of the placement of publishers at the gateway *name*."""
    cluster = topology.gateway(name).cluster
    site = next(site.name for site in topology.sites if site.index == cluster)
    special = next((one for one in settings.site if one.name == site), SiteRelocation(site))
    weight = settings.weight if special.weight is None else special.weight
    exclude = settings.exclude + special.exclude
    return RelocationOptions(
        RelocationMode(special.mode or settings.mode),
        PlacementGoal(PlacementPriority(special.priority or settings.priority), weight, settings.gain_min / 100),
        tuple(one.pattern for one in exclude if one.by == "client"),
        tuple(TopicFilter.parse(one.pattern) for one in exclude if one.by == "topic"),
        settings.moves_per_minute,
    )


def _newest_text(settings: Settings, received: str) -> tuple[str, str, str]:
    """Returns the newest topology, the file where it stands, and again the topology if it is signed. Raises
    SettingsRefused, also for a file without a signature where there is a key.
    """
    path = settings.overlay.topology
    assert path is not None
    newest, file = read_settings_text(path), str(path)
    if settings.overlay.topology_key is None:
        return newest, file, ""
    public = load_public_key(settings.overlay.topology_key)
    try:
        version = verify_topology(newest, public)
    except SignatureInvalid as invalid:
        remedy = "sign it: `edgebroker topology sign FILE --key KEY`, or leave overlay.topology_key out"
        raise SettingsRefused([Problem(file, 0, "", str(invalid), remedy)]) from invalid
    for text, where in (_adopted_text(settings), (received, "the topology that a peer handed on")):
        with suppress(SignatureInvalid):
            if signed_version(text) > version:
                version, newest, file = verify_topology(text, public), text, where
    return newest, file, newest


def load_public_key(path: Path) -> bytes:
    """Reads `overlay.topology_key`. Raises SettingsRefused."""
    try:
        return load_key(path, PUBLIC)
    except FileUnreadable as unreadable:
        problem = replace(unreadable.problem, key="overlay.topology_key")
        raise SettingsRefused([problem]) from unreadable
    except SignatureInvalid as invalid:
        remedy = "name the .pub file that `edgebroker topology sign --new-key` made"
        raise SettingsRefused([Problem(str(path), 0, "overlay.topology_key", str(invalid), remedy)]) from invalid


def adopted_file(settings: Settings) -> Path | None:
    """Returns where a topology is kept that a peer has handed on; None where nothing is kept."""
    with suppress(StoreUnusable):
        folder = data_folder(settings)
        return None if folder is None else folder / ADOPTED_FILE
    return None


def _adopted_text(settings: Settings) -> tuple[str, str]:
    """Returns the topology that a peer handed on in an earlier run, and its file; empty if there is none."""
    path = adopted_file(settings)
    if path is not None:
        with suppress(OSError, UnicodeDecodeError):
            return path.read_text(encoding="utf-8"), str(path)
    return "", ""


def _topology(text: str, file: str, name: str) -> Topology:
    """Returns the topology of *text*, which has a gateway *name*. Raises SettingsRefused."""
    topology = parse_topology(text, file)
    try:
        topology.gateway(name)
    except TopologyInvalid as invalid:
        mistake = invalid.mistakes[0]
        problem = Problem(file, 0, "gateway", mistake.reason, f"{mistake.mend}; --name or node.name says who this is")
        raise SettingsRefused([problem]) from invalid
    return topology


def listen_addresses(topology: Topology, name: str, settings: OverlaySettings) -> Iterator[Address]:
    """Yields the addresses where gateway *name* listens for peers; none if no peer dials it."""
    peers = topology.gateway(name).peers()
    if all(topology.connection(name, peer).dial.dialler == name for peer in peers):
        return
    gateway = next(entry for entry in topology.draft.gateways if entry.name == name)
    known = (*gateway.lan, *gateway.address)
    hosts = [settings.host] if settings.host is not None else [address.host for address in known]
    ports = [settings.port] if settings.port is not None else [address.port for address in known]
    if settings.host is None and settings.port is None:
        yield from dict.fromkeys(known)
    else:
        yield from dict.fromkeys(Address(host, port) for host in hosts for port in ports)


def exposed_to(topology: Topology, name: str, settings: OverlaySettings) -> str:
    """Returns where gateway *name* meets peers other than on this machine, as text; empty if it does not."""
    for address in listen_addresses(topology, name, settings):
        if not _is_loopback(address.host):
            return f"{name} awaits peers at {address}"
    for peer in topology.gateway(name).peers():
        dial = topology.connection(name, peer).dial
        for address in dial.addresses if dial.dialler == name else ():
            if not _is_loopback(address.host):
                return f"{name} dials {peer} at {address}"
    return ""


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower() == "localhost"


def _check_exposure(topology: Topology, path: Path, name: str, settings: OverlaySettings) -> None:
    """Checks that peers elsewhere than on this machine prove who they are. Raises SettingsRefused."""
    if settings.is_tls or settings.insecure:
        return
    if exposed := exposed_to(topology, name, settings):
        reason = f"{exposed} without TLS: whoever is on the way could read, change and delete messages"
        remedy = (
            "set tls_certificate, tls_key and tls_ca under [overlay] (`edgebroker certificate gateway` makes the"
            " files), or insecure = true where everybody in the network is trusted"
        )
        raise SettingsRefused([Problem(str(path), 0, "overlay.insecure", reason, remedy)])


def _load_tls(settings: OverlaySettings) -> PeerTls | None:
    """Returns the TLS of the settings; None if they have none. Raises SettingsRefused."""
    if not settings.is_tls:
        return None
    from edgebroker.runtime.peers.tls import load_peer_tls  # OpenSSL: 4 MiB, only with TLS

    return load_peer_tls(settings)


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """`membership` is the new one; `lines` describe each difference for the operator.

    `is_new_run`: peers, or the terms agreed with them, differ, so that all links are set up anew.
    """

    membership: FederationMembership
    lines: tuple[str, ...]
    is_new_run: bool


def prepare_change(old: FederationMembership, settings: Settings, received: str = "") -> MembershipChange:
    """Reads the files again that *settings* name. *received*: a signed topology that a peer has handed on. Raises
    SettingsRefused, also for changes that running gateways cannot adopt.
    """
    path = settings.overlay.topology
    assert path is not None
    new = load_membership(settings, received or old.signed)
    changes = difference(old.topology, new.topology)
    if not_live := [change.text for change in changes if not change.is_live]:
        remedy = "a federation takes that only if all its gateways are stopped, and started with the new file"
        raise SettingsRefused([Problem(str(path), 0, "", text, remedy) for text in not_live])
    lines = [f"topology: {change.text}" for change in changes]
    if new.signed and not received and signed_version(read_settings_text(path)) < new.version:
        lines.append(f"topology: {path} is older than the signed topology that holds, and is not used")
    return MembershipChange(new, tuple(lines), _link_terms(old) != _link_terms(new))


def _link_terms(membership: FederationMembership) -> tuple[str, int, list[tuple[bool, Uplink]]]:
    """Returns what a gateway and its peers must agree on before they set up links."""
    topology, name = membership.topology, membership.name
    connections = [topology.connection(name, peer) for peer in topology.gateway(name).peers()]
    return (
        topology.digest,
        membership.version,
        [(connection.dial.dialler == name, connection.uplink) for connection in connections],
    )
