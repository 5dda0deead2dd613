"""TLS between a socket and a door.

OpenSSL works on bytes in memory (`ssl.MemoryBIO`), so one layer serves every event loop, TLS may follow a PROXY
header, and a failed handshake can say who failed and why. It also holds less: asyncio's TLS keeps a
buffer of 256 KiB for every connection, here an idle one has what OpenSSL itself needs.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress

from edgebridge.frontend.entrance import Certificate
from edgebroker.world.doors.layer import Layer
from edgebroker.world.doors.refusals import Refusals, Turned
from edgebroker.world.reactor import Door

READ_BYTES = 64 * 1024
"""Asked of OpenSSL at once; it gives one record, at most 16 KiB."""
SLICE_BYTES = 16 * 1024
"""Given to OpenSSL at once: its buffers in memory never shrink, so one large message would keep a megabyte as long as
the client stays. A record holds as much."""
HANDSHAKE_RECORD, HIGHEST_RECORD = 20, 24
"""The first byte of every TLS record is between these (RFC 8446 section 5.1); an MQTT CONNECT begins with 16."""


class TlsLayer(Layer):
    """The server's side of TLS. Nothing goes up before the handshake is complete."""

    __slots__ = ("_incoming", "_is_begun", "_is_open", "_is_over", "_outgoing", "_refusals", "_tls")

    def __init__(self, above: Door | Layer, context: ssl.SSLContext, refusals: Refusals) -> None:
        super().__init__(above)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._refusals = refusals
        self._is_begun = False
        self._is_open = False
        self._is_over = False

    def data_received(self, data: bytes) -> None:
        """Bytes of TLS arrived."""
        if self._is_over:
            return
        if not self._is_begun:
            self._is_begun = True
            if not HANDSHAKE_RECORD <= data[0] <= HIGHEST_RECORD:
                self._refuse(Turned.PLAIN, f"the first byte is 0x{data[0]:02x}; this listener speaks TLS alone")
                return
        pieces: list[bytes] = []
        for at in range(0, len(data), SLICE_BYTES):
            self._incoming.write(data if len(data) <= SLICE_BYTES else data[at : at + SLICE_BYTES])
            if self._is_open or self._shake():
                self._read(pieces)
            if self._is_over:
                break
        self._send()
        if pieces:
            self.above.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._is_over:
            self.below.close()

    def write(self, data: bytes) -> None:
        """Send *data*, if the peer is there to read it."""
        if not self._is_open or self._is_over:
            return
        if len(data) <= SLICE_BYTES:
            self._tls.write(data)
            self.below.write(self._outgoing.read())
            return
        records = []
        for at in range(0, len(data), SLICE_BYTES):
            self._tls.write(data[at : at + SLICE_BYTES])
            records.append(self._outgoing.read())
        self.below.write(b"".join(records))

    def close(self) -> None:
        """Say that we are done, which tells the peer that nothing was cut off, and close."""
        if self._is_open and not self._is_over:
            self._is_over = True
            with suppress(ssl.SSLError):  # it wants the peer's good-bye, for which nobody waits
                self._tls.unwrap()
            self._send()
        self.below.close()

    # -- inside -------------------------------------------------------------------------------------------------

    def _read(self, pieces: list[bytes]) -> None:
        """Append to *pieces* what can be read."""
        read, incoming = self._tls.read, self._incoming
        try:
            while piece := read(READ_BYTES):
                pieces.append(piece)
                if not incoming.pending and not self._tls.pending():
                    return  # to be told so by an exception would take longer than to read what came
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:  # what was read before it still counts
            self._note(Turned.HANDSHAKE, _why(error))
        self._is_over = True  # by an error, or because the peer said good-bye

    def _shake(self) -> bool:
        """One step of the handshake; whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except ssl.SSLError as error:
            self._send()  # the alert that tells the client
            cause = Turned.HANDSHAKE
            if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
                cause = Turned.NO_CERTIFICATE
            elif isinstance(error, ssl.SSLCertVerificationError):
                cause = Turned.CERTIFICATE
            self._refuse(cause, _why(error))
            return False
        self._is_open = True
        self._send()
        if shown := self._tls.getpeercert():
            self.door.connection.certificate = certificate_of(shown)
        return True

    def _send(self) -> None:
        if self._outgoing.pending:
            self.below.write(self._outgoing.read())

    def _refuse(self, cause: Turned, why: str) -> None:
        self._is_over = True
        self._note(cause, why)
        self.below.close()

    def _note(self, cause: Turned, why: str) -> None:
        connection = self.door.connection
        self._refusals.note(cause, connection.entrance.name, connection.peer, why)


def _why(error: ssl.SSLError) -> str:
    return getattr(error, "verify_message", "") or (error.reason or str(error)).replace("_", " ").lower()


def certificate_of(shown: Mapping[str, object]) -> Certificate:
    """What `SSLObject.getpeercert()` says of a verified certificate."""
    names = [pair for part in _tuples(shown.get("subject")) for pair in _tuples(part)]
    common = next((str(value) for name, value in names if name == "commonName"), "")
    subject = ",".join(f"{_SHORT.get(str(name), name)}={_escaped(str(value))}" for name, value in reversed(names))
    others = tuple(f"{_KINDS.get(str(kind), kind)}:{value}" for kind, value in _tuples(shown.get("subjectAltName")))
    return Certificate(common, subject, others)


_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "userId": "UID",
    "domainComponent": "DC",
}
_KINDS = {"IP Address": "IP"}


def _tuples(value: object) -> tuple[tuple[object, object], ...]:
    return value if isinstance(value, tuple) else ()


def _escaped(value: str) -> str:
    """As in RFC 4514: what would read as structure gets a backslash."""
    return "".join(f"\\{character}" if character in ',+"\\<>;=' else character for character in value)
