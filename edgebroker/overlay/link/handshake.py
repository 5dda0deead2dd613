"""The handshake of a connection: each gateway sends its name, its federation and the last numbers that it received; the
identity of the peer is checked.

    "EBLK", two bytes of length, a CBOR map

The end that dialled sends the first hello. The answer is a hello of the same form, or a refusal: the same form with
only `REFUSED`, a code and a sentence that names the difference. Frames follow in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any, Final

from edgebroker.cbor import CborReader, encode_cbor
from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError
from edgebroker.overlay.link.codec.errors import FrameBroken, shown
from edgebroker.overlay.link.codec.messages import LINK_CBOR
from edgebroker.overlay.traffic_class import TrafficClass

MAGIC: Final = b"EBLK"
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

    def __init__(self, code: RefusalCode, text: str) -> None:
        super().__init__(text)
        self.code = code


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


_VERSION, _REFUSED, _FEDERATION, _NAME, _NUMBER, _TOPOLOGY, _RUN, _STORE, _COUNT, _TO, _RECEIVED, _CAPABILITIES = range(
    12
)


def encode_hello(hello: Hello) -> bytes:
    """Return *hello* as bytes."""
    received = hello.received
    upto = {int(service): number for service, number in received.upto.items()}
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
        }
    )


def encode_refusal(refused: HelloRefused) -> bytes:
    """Return a refusal as bytes."""
    return _frame({_VERSION: VERSION, _REFUSED: [int(refused.code), str(refused)[:1_000]]})


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


def decode_hello(data: bytes) -> Hello:
    """Decode *data*, a whole hello. Raises HelloRefused if it is a refusal or of another version, else FrameBroken."""
    reader = CborReader(data[HEAD_BYTES:], LINK_CBOR)
    fields = reader.item()
    if type(fields) is not dict or reader.at != len(reader.data):
        raise FrameBroken("a hello is one map")
    version = _number(fields.get(_VERSION), 32)
    if _REFUSED in fields:
        raise _refusal(fields[_REFUSED])
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
    )


def _frame(fields: dict[int, Any]) -> bytes:
    body = encode_cbor(fields)
    if len(body) > HELLO_BYTES_MAX:
        raise ValueError(f"a hello of {len(body)} bytes; the limit is {HELLO_BYTES_MAX}")
    return MAGIC + len(body).to_bytes(2) + body


def _refusal(value: Any) -> HelloRefused:
    if type(value) is not list or len(value) != 2 or type(value[1]) is not str:
        raise FrameBroken("a refusal is a code and a sentence")
    if type(value[0]) is not int or not RefusalCode.VERSION <= value[0] <= RefusalCode.UNSENT:
        raise FrameBroken(f"a refusal of unknown code {shown(value[0])}: {value[1][:200]!r}")
    return HelloRefused(RefusalCode(value[0]), value[1])


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
            raise HelloRefused(
                RefusalCode.TOPOLOGY, f"the topologies of {self.name} and {hello.name} differ in {', '.join(differing)}"
            )
