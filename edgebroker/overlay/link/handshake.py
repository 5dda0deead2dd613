"""The handshake of a connection: each gateway says its name, its federation and the last numbers that it received;
the identity of the peer is checked.

    "EBLK", two bytes of length, a CBOR map

The one who dialled speaks first. The answer is a hello of the same form, or a refusal: the same form with `REFUSED`
alone, a code and a sentence that names the difference. Then both speak frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any, Final

import cbor2

from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError
from edgebroker.overlay.link.codec.cbor import StrictCborReader
from edgebroker.overlay.link.codec.errors import FrameBroken, shown
from edgebroker.overlay.traffic_class import TrafficClass

MAGIC: Final = b"EBLK"
VERSION: Final = 1
HELLO_BYTES_MAX: Final = 4_096
"""A hello has 200 bytes; 60 sections of a topology, each with a digest, are 2 KiB more."""
HEAD_BYTES: Final = len(MAGIC) + 2
RUN_BYTES: Final = 8
"""Bytes that name a run of a gateway, or its store."""
_NAME_MAX: Final = 256


class RefusalCode(IntEnum):
    """Why a hello is refused."""

    VERSION = 1
    """The versions of the protocol differ."""
    FEDERATION = 2
    """The peer belongs to another federation."""
    UNKNOWN = 3
    """No such peer is in the topology, or it has another number there."""
    MISDIRECTED = 4
    """Whoever was dialled is somebody else."""
    UNPROVEN = 5
    """The certificate is another gateway's."""
    TOPOLOGY = 6
    """The topologies differ."""
    CROSSED = 7
    """Both dialled at once, and the other connection stays."""
    STALE = 8
    """A later connection of the peer was there before."""
    TWIN = 9
    """Another gateway of this name is linked."""

    @property
    def wants_somebody(self) -> bool:
        """Whether it goes on until somebody changes something."""
        return self < RefusalCode.CROSSED or self is RefusalCode.TWIN


class HelloRefused(EdgebrokerError):
    """A hello that cannot be taken. `code` says how, the text names the difference."""

    def __init__(self, code: RefusalCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class ReceiveState:
    """What the speaker has received of the one spoken to, and of which of its runs and stores."""

    run: bytes = b""
    """CONTROL was received from this run."""
    store: bytes = b""
    """All other classes were received from this store."""
    upto: Mapping[TrafficClass, int] = field(default_factory=dict)
    """Service -> the last number received, and on disk if it had to be."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What one gateway says of itself."""

    federation: str
    name: str
    number: int
    """In the topology, from 0 to 1023."""
    topology: Mapping[str, bytes]
    """Section -> digest of what it means; what differs is named by section."""
    run: bytes
    """RUN_BYTES, drawn when the gateway started."""
    store: bytes
    """RUN_BYTES that name its journal; those of the run if there is none."""
    count: int
    """Hellos to this peer in this run: a smaller one is older, whenever it arrives."""
    to: str
    """The peer spoken to."""
    heard: ReceiveState = field(default_factory=ReceiveState)
    capabilities: frozenset[str] = frozenset()
    """What the speaker can do if both can: "deflate"."""
    version: int = VERSION


_VERSION, _REFUSED, _FEDERATION, _NAME, _NUMBER, _TOPOLOGY, _RUN, _STORE, _COUNT, _TO, _HEARD, _CAPABILITIES = range(12)


def encode_hello(hello: Hello) -> bytes:
    """*hello* as it goes over the line."""
    heard = hello.heard
    upto = {int(service): number for service, number in heard.upto.items()}
    return _framed(
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
            _HEARD: [heard.run, heard.store, upto],
            _CAPABILITIES: sorted(hello.capabilities),
        }
    )


def encode_refusal(refused: HelloRefused) -> bytes:
    """A refusal as it goes over the line."""
    return _framed({_VERSION: VERSION, _REFUSED: [int(refused.code), str(refused)[:1_000]]})


def hello_bytes(data: bytes | bytearray) -> int | None:
    """How long the hello at the beginning of *data* is; None: too little has come to say.

    Raises FrameBroken: this is something else, or too long.
    """
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise FrameBroken(f"no gateway speaks there: it begins with {bytes(data[:16])!r}")
    if len(data) < HEAD_BYTES:
        return None
    size = int.from_bytes(data[len(MAGIC) : HEAD_BYTES])
    if size > HELLO_BYTES_MAX:
        raise FrameBroken(f"a hello of {size} bytes; the limit is {HELLO_BYTES_MAX}")
    return HEAD_BYTES + size


def decode_hello(data: bytes) -> Hello:
    """The hello that *data* is as a whole. Raises HelloRefused if it is a refusal or of another version,
    FrameBroken.
    """
    reader = StrictCborReader(data[HEAD_BYTES:])
    said = reader.item()
    if type(said) is not dict or reader.at != len(reader.data):
        raise FrameBroken("a hello is one map")
    version = _number(said.get(_VERSION), 32)
    if _REFUSED in said:
        raise _refusal(said[_REFUSED])
    if version != VERSION:
        raise HelloRefused(RefusalCode.VERSION, f"it speaks version {version} of the protocol, we speak {VERSION}")
    topology = said.get(_TOPOLOGY)
    capabilities = said.get(_CAPABILITIES)
    if type(topology) is not dict or type(capabilities) is not list:
        raise FrameBroken("a hello lacks its topology or its capabilities")
    return Hello(
        _name(said.get(_FEDERATION)),
        _name(said.get(_NAME)),
        _number(said.get(_NUMBER), 10),
        {_name(section): _octets(digest, 64) for section, digest in topology.items()},
        _run(said.get(_RUN)),
        _run(said.get(_STORE)),
        _number(said.get(_COUNT), 64),
        _name(said.get(_TO)),
        _heard(said.get(_HEARD)),
        frozenset(map(_name, capabilities)),
        version,
    )


def _framed(said: dict[int, Any]) -> bytes:
    body = cbor2.dumps(said)
    if len(body) > HELLO_BYTES_MAX:
        raise ValueError(f"a hello of {len(body)} bytes; the limit is {HELLO_BYTES_MAX}")
    return MAGIC + len(body).to_bytes(2) + body


def _refusal(value: Any) -> HelloRefused:
    if type(value) is not list or len(value) != 2 or type(value[1]) is not str:
        raise FrameBroken("a refusal is a code and a sentence")
    if type(value[0]) is not int or not RefusalCode.VERSION <= value[0] <= RefusalCode.TWIN:
        raise FrameBroken(f"a refusal of unknown code {shown(value[0])}: {value[1][:200]!r}")
    return HelloRefused(RefusalCode(value[0]), value[1])


def _heard(value: Any) -> ReceiveState:
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


@dataclass(frozen=True, slots=True)
class GatewayIdentity:
    """What one gateway knows of itself and of its peers, as `Hello` says it."""

    federation: str
    name: str
    number: int
    topology: Mapping[str, bytes]
    peers: Mapping[str, int]
    """Name -> number of every gateway there is a link to."""
    run: bytes
    store: bytes

    def check(self, hello: Hello, certified: str | None = None) -> None:
        """Whether *hello* may be taken; *certified* is the name in the peer's certificate, if it showed one.

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
            raise HelloRefused(
                RefusalCode.TOPOLOGY, f"the topologies of {self.name} and {hello.name} differ in {', '.join(differing)}"
            )
