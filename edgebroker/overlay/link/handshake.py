"""The handshake of a connection: each gateway sends its name, its federation and the last numbers that it received; the
identity of the peer is checked.

    "EBLK", two bytes of length, a CBOR map

The end that dialled sends the first hello. The answer is a hello of the same form, or a refusal: the same form with
only `REFUSED`, a code and a sentence that names the difference. Frames follow in both directions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any, Final

from edgebroker.cbor import CborReader, encode_cbor
from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError
from edgebroker.limits import KIB
from edgebroker.overlay.link.codec.errors import FrameBroken, shown
from edgebroker.overlay.link.codec.messages import LINK_CBOR
from edgebroker.overlay.traffic_class import TrafficClass

MAGIC: Final = b"EBLK"
TOPOLOGY_MAGIC: Final = b"EBLT"
"""In front of a signed topology file, which a gateway hands on before its hello or its refusal."""
TOPOLOGY_BYTES_MAX: Final = 128 * KIB
"""The file of a federation of 1,024 gateways has 100 KiB."""
TOPOLOGY_HEAD_BYTES: Final = len(TOPOLOGY_MAGIC) + 4
OFFERS_MAX: Final = 3
"""Times that a peer gets a file which it does not take, until it is seen with this file or a newer one."""
SECTIONS_BYTES_MAX: Final = 2 * KIB
"""Of the digests of single sites and gateways in a hello; a larger topology has one for all of each kind."""
SECTION_DIGEST_BYTES: Final = 4
TOPOLOGY_CAPABILITY: Final = "topology"
"""Named by gateways that take signed topology files."""
VERSION: Final = 1
HELLO_BYTES_MAX: Final = 4_096
"""A hello has 200 bytes; 60 sections of a topology, each with a digest, add 2 KiB."""
HEAD_BYTES: Final = len(MAGIC) + 2
RUN_BYTES: Final = 8
"""The size of a boot id or of a store id."""
_NAME_MAX: Final = 256


class RefusalCode(IntEnum):
    """The reason why a hello is refused."""

    VERSION = 1
    """The versions of the protocol differ."""
    FEDERATION = 2
    """The peer belongs to another federation."""
    UNKNOWN = 3
    """The topology has no such peer, or gives it another number."""
    MISDIRECTED = 4
    """The hello is for another gateway, or another gateway answered the dial."""
    UNPROVEN = 5
    """The certificate belongs to another gateway."""
    TOPOLOGY = 6
    """The topologies differ."""
    CROSSED = 7
    """Both dialled at the same time, and the other connection stays."""
    STALE = 8
    """A later hello of the peer arrived before."""
    TWIN = 9
    """Another gateway of this name is linked."""
    UNSENT = 10
    """The hello acknowledges messages that were never sent."""

    @property
    def wants_somebody(self) -> bool:
        """Whether refusals continue until an operator changes something."""
        return self < RefusalCode.CROSSED or self in (RefusalCode.TWIN, RefusalCode.UNSENT)


class HelloRefused(EdgebrokerError):
    """A hello is refused. `code` gives the reason, the text names the difference."""

    def __init__(self, code: RefusalCode, text: str, topology_version: int = 0, offer: bytes = b"") -> None:
        super().__init__(text)
        self.code = code
        self.topology_version = topology_version
        """Of the gateway that refuses; 0 if its topology is not signed."""
        self.offer = offer
        """What to send before the refusal: a newer topology."""


class TopologyExchange:
    """The signed topology file of a gateway, which its peers are to have, and those that peers handed on."""

    __slots__ = ("_offers", "older", "received", "signed", "takes_files", "version")

    def __init__(self, version: int = 0, signed: bytes = b"", takes_files: bool = False) -> None:
        self.version = version
        """Of the gateway's own file; 0 if it is not signed."""
        self.signed = signed
        """The file."""
        self.takes_files = takes_files
        """Whether the gateway can verify files of peers."""
        self.received: deque[bytes] = deque(maxlen=4)
        """Files of peers, not verified; whoever reads them empties it."""
        self.older: set[str] = set()
        """Peers that get the file when they are dialled next: they have an older one."""
        self._offers: dict[str, int] = {}

    def has_older(self, hello: Hello) -> bool:
        """Return whether the sender of *hello* has an older file, and is to get this one."""
        if hello.topology_version >= self.version:
            self._offers.pop(hello.name, None)
            return False
        return TOPOLOGY_CAPABILITY in hello.capabilities and self.may_offer(hello.name)

    def may_offer(self, peer: str) -> bool:
        """Return whether *peer* is to get the file: not if it cannot be sent, nor if the peer has left it three
        times.
        """
        return 0 < len(self.signed) <= TOPOLOGY_BYTES_MAX and self._offers.get(peer, 0) < OFFERS_MAX

    def offer(self, peer: str) -> bytes:
        """Return the file as bytes to send to *peer*."""
        self._offers[peer] = self._offers.get(peer, 0) + 1
        return TOPOLOGY_MAGIC + len(self.signed).to_bytes(4) + self.signed


@dataclass(frozen=True, slots=True)
class ReceiveState:
    """The numbers that the sender of a hello has received from its peer, and from which of the peer's runs and
    stores.
    """

    run: bytes = b""
    """The run from which CONTROL was received."""
    store: bytes = b""
    """The store from which all other classes were received."""
    upto: Mapping[TrafficClass, int] = field(default_factory=dict)
    """Class -> the last number received, and on disk if it has to be."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The description that a gateway sends of itself."""

    federation: str
    name: str
    number: int
    """Its number in the topology, 0 to 1023."""
    topology: Mapping[str, bytes]
    """Section -> digest of its meaning; a refusal names the sections that differ."""
    run: bytes
    """The boot id: RUN_BYTES random bytes, drawn when the gateway started."""
    store: bytes
    """The store id: RUN_BYTES that identify its journal; the boot id if there is none."""
    count: int
    """The number of hellos to this peer in this run: a smaller one is older, even if it arrives later."""
    to: str
    """The name of the peer."""
    received: ReceiveState = field(default_factory=ReceiveState)
    capabilities: frozenset[str] = frozenset()
    """Optional features, used if both ends have them: "deflate" and others."""
    version: int = VERSION
    topology_version: int = 0
    """Of the signed topology file; 0 if it is not signed."""
    sections: Mapping[str, bytes] = field(default_factory=dict)
    """Site, gateway, or all of a kind -> SECTION_DIGEST_BYTES of its meaning: a refusal names those that differ."""


(
    _VERSION,
    _REFUSED,
    _FEDERATION,
    _NAME,
    _NUMBER,
    _TOPOLOGY,
    _RUN,
    _STORE,
    _COUNT,
    _TO,
    _RECEIVED,
    _CAPABILITIES,
    _SECTIONS,
) = range(13)


def encode_hello(hello: Hello) -> bytes:
    """Return *hello* as bytes."""
    received = hello.received
    upto = {int(service): number for service, number in received.upto.items()}
    sections = {_SECTIONS: [hello.topology_version, dict(hello.sections)]} if hello.sections else {}
    return _frame(
        {
            _VERSION: hello.version,
            _FEDERATION: hello.federation,
            _NAME: hello.name,
            _NUMBER: hello.number,
            _TOPOLOGY: dict(hello.topology),
            _RUN: hello.run,
            _STORE: hello.store,
            _COUNT: hello.count,
            _TO: hello.to,
            _RECEIVED: [received.run, received.store, upto],
            _CAPABILITIES: sorted(hello.capabilities),
            **sections,
        }
    )


def encode_refusal(refused: HelloRefused) -> bytes:
    """Return a refusal as bytes."""
    fields: dict[int, Any] = {_VERSION: VERSION, _REFUSED: [int(refused.code), str(refused)[:1_000]]}
    if refused.topology_version:
        fields[_SECTIONS] = [refused.topology_version, {}]
    return _frame(fields)


def hello_bytes(data: bytes | bytearray) -> int | None:
    """Return the size of the hello at the beginning of *data*; None if more bytes are needed to tell.

    Raises FrameBroken if it is not a hello, or too long.
    """
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise FrameBroken(f"no gateway speaks there: it begins with {bytes(data[:16])!r}")
    if len(data) < HEAD_BYTES:
        return None
    size = int.from_bytes(data[len(MAGIC) : HEAD_BYTES])
    if size > HELLO_BYTES_MAX:
        raise FrameBroken(f"a hello of {size} bytes; the limit is {HELLO_BYTES_MAX}")
    return HEAD_BYTES + size


def topology_bytes(data: bytes | bytearray) -> int | None:
    """Return the size of the topology file at the beginning of *data*, with its head; None if more bytes are needed to
    tell. Raises FrameBroken if it is too long.
    """
    if len(data) < TOPOLOGY_HEAD_BYTES:
        return None
    size = int.from_bytes(data[len(TOPOLOGY_MAGIC) : TOPOLOGY_HEAD_BYTES])
    if size > TOPOLOGY_BYTES_MAX:
        raise FrameBroken(f"a topology of {size} bytes; the limit is {TOPOLOGY_BYTES_MAX}")
    return TOPOLOGY_HEAD_BYTES + size


def decode_hello(data: bytes) -> Hello:
    """Decode *data*, a whole hello. Raises HelloRefused if it is a refusal or of another version, else FrameBroken."""
    reader = CborReader(data[HEAD_BYTES:], LINK_CBOR)
    fields = reader.item()
    if type(fields) is not dict or reader.at != len(reader.data):
        raise FrameBroken("a hello is one map")
    version = _number(fields.get(_VERSION), 32)
    if _REFUSED in fields:
        raise _refusal(fields[_REFUSED], _topology_sections(fields.get(_SECTIONS))[0])
    if version != VERSION:
        raise HelloRefused(RefusalCode.VERSION, f"it speaks version {version} of the protocol, we speak {VERSION}")
    topology = fields.get(_TOPOLOGY)
    capabilities = fields.get(_CAPABILITIES)
    if type(topology) is not dict or type(capabilities) is not list:
        raise FrameBroken("a hello lacks its topology or its capabilities")
    return Hello(
        _name(fields.get(_FEDERATION)),
        _name(fields.get(_NAME)),
        _number(fields.get(_NUMBER), 10),
        {_name(section): _octets(digest, 64) for section, digest in topology.items()},
        _run(fields.get(_RUN)),
        _run(fields.get(_STORE)),
        _number(fields.get(_COUNT), 64),
        _name(fields.get(_TO)),
        _receive_state(fields.get(_RECEIVED)),
        frozenset(map(_name, capabilities)),
        version,
        *_topology_sections(fields.get(_SECTIONS)),
    )


def _frame(fields: dict[int, Any]) -> bytes:
    body = encode_cbor(fields)
    if len(body) > HELLO_BYTES_MAX:
        raise ValueError(f"a hello of {len(body)} bytes; the limit is {HELLO_BYTES_MAX}")
    return MAGIC + len(body).to_bytes(2) + body


def _topology_sections(value: Any) -> tuple[int, dict[str, bytes]]:
    """Return the version of a topology and the digests of its sections; (0, {}) of a gateway that does not tell."""
    if value is None:
        return 0, {}
    if type(value) is not list or len(value) != 2 or type(value[1]) is not dict:
        raise FrameBroken("the sections of a topology are its version and a map")
    digests = {_name(section): _octets(digest, SECTION_DIGEST_BYTES) for section, digest in value[1].items()}
    return _number(value[0], 64), digests


def _refusal(value: Any, topology_version: int) -> HelloRefused:
    if type(value) is not list or len(value) != 2 or type(value[1]) is not str:
        raise FrameBroken("a refusal is a code and a sentence")
    if type(value[0]) is not int or not RefusalCode.VERSION <= value[0] <= RefusalCode.UNSENT:
        raise FrameBroken(f"a refusal of unknown code {shown(value[0])}: {value[1][:200]!r}")
    return HelloRefused(RefusalCode(value[0]), value[1], topology_version)


def _receive_state(value: Any) -> ReceiveState:
    if type(value) is not list or len(value) != 3 or type(value[2]) is not dict:
        raise FrameBroken("what was heard is a run, a store and a map")
    upto = {}
    for service, number in value[2].items():
        if type(service) is not int or not TrafficClass.CONTROL <= service <= TrafficClass.LOGS:
            raise FrameBroken(f"there is no class {shown(service)}")
        upto[TrafficClass(service)] = _number(number, 64)
    return ReceiveState(_octets(value[0], RUN_BYTES), _octets(value[1], RUN_BYTES), upto)


def _name(value: Any) -> str:
    if type(value) is not str or not 0 < len(value) <= _NAME_MAX:
        raise FrameBroken(f"no name of 1 to {_NAME_MAX} characters: {shown(value)}")
    return value


def _number(value: Any, bits: int) -> int:
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise FrameBroken(f"no number of {bits} bits: {shown(value)}")
    return value


def _run(value: Any) -> bytes:
    octets = _octets(value, RUN_BYTES)
    if len(octets) != RUN_BYTES:
        raise FrameBroken(f"a run or a store is named by {RUN_BYTES} bytes")
    return octets


def _octets(value: Any, size: int) -> bytes:
    if type(value) is not bytes or len(value) > size:
        raise FrameBroken(f"no byte string of at most {size}: {shown(value)}")
    return value


DIFFERENCES_SHOWN: Final = 6
"""Sections that a refusal names: its text has 1,000 characters."""
DAY_S: Final = 24 * 3_600


@dataclass(frozen=True, slots=True)
class GatewayIdentity:
    """The identity of one gateway and of its peers, as in `Hello`."""

    federation: str
    name: str
    number: int
    topology: Mapping[str, bytes]
    peers: Mapping[str, int]
    """Name -> number of every gateway with a link."""
    run: bytes
    store: bytes
    sections: Mapping[str, bytes] = field(default_factory=dict)
    topologies: TopologyExchange = field(default_factory=TopologyExchange)

    def check(self, hello: Hello, certified: str | None = None) -> None:
        """Check whether *hello* is acceptable; *certified* is the name in the peer's certificate, if it sent one.

        Raises HelloRefused, which names the difference.
        """
        if hello.federation != self.federation:
            raise HelloRefused(
                RefusalCode.FEDERATION,
                f"{hello.name} belongs to federation {hello.federation!r}, not {self.federation!r}",
            )
        if hello.to != self.name:
            raise HelloRefused(RefusalCode.MISDIRECTED, f"{hello.name} wants {hello.to!r}, and this is {self.name!r}")
        if hello.name not in self.peers:
            raise HelloRefused(RefusalCode.UNKNOWN, f"{self.name} has no link to a gateway {hello.name!r}")
        if hello.number != self.peers[hello.name]:
            raise HelloRefused(
                RefusalCode.UNKNOWN,
                f"{hello.name} has number {hello.number}, and {self.peers[hello.name]} in the topology of {self.name}",
            )
        if certified is not None and certified != hello.name:
            raise HelloRefused(RefusalCode.UNPROVEN, f"the certificate of {certified!r} does not prove {hello.name!r}")
        sections = sorted({*self.topology, *hello.topology})
        differing = [name for name in sections if self.topology.get(name) != hello.topology.get(name)]
        if differing:
            topologies = self.topologies
            raise HelloRefused(
                RefusalCode.TOPOLOGY,
                f"the topologies of {self.name} and {hello.name} differ in {self._difference(hello, differing)}",
                topologies.version,
                topologies.offer(hello.name) if topologies.has_older(hello) else b"",
            )

    def _difference(self, hello: Hello, differing: list[str]) -> str:
        """Return what differs, and which of the two is older."""
        if self.sections and hello.sections:
            names = sorted({*self.sections, *hello.sections})
            differing = [name for name in names if self.sections.get(name) != hello.sections.get(name)] or differing
        told = [
            f"{name} ({self.name} has none)"
            if name in hello.sections and name not in self.sections
            else f"{name} ({hello.name} has none)"
            if name in self.sections and hello.sections and name not in hello.sections
            else name
            for name in differing[:DIFFERENCES_SHOWN]
        ]
        more = f" and {len(differing) - DIFFERENCES_SHOWN} more" if len(differing) > DIFFERENCES_SHOWN else ""
        return ", ".join(told) + more + self._age(hello)

    def _age(self, hello: Hello) -> str:
        """Return which topology is older, as far as signatures tell."""
        own, other = self.topologies.version, hello.topology_version
        if not own and not other:
            return "; neither is signed, so none tells which is older" if hello.sections else ""
        if not own or not other:
            return f"; that of {self.name if not own else hello.name} is not signed"
        if own == other:
            return ""
        span = abs(own - other)
        unit, size = ("days", DAY_S) if span >= 2 * DAY_S else ("minutes", 60) if span >= 120 else ("s", 1)
        return f"; that of {hello.name if own > other else self.name} is {span // size} {unit} older"
