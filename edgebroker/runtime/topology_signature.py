"""The signature of a topology file: Ed25519 (RFC 8032), in the last line of the file.

    # signed VERSION SIGNATURE

It is a comment, so that gateways without the key read the file too. The signature is of all that stands above, and of
the version: the seconds since 1970 at which the operator signed, or one more than those of the signature before. Of two
signed files that with the higher version is the newer one.

Python's standard library has no signatures, and `openssl` is not on every gateway. This implementation takes 5 ms to
sign and to verify. Signing takes a time that depends on the secret key: the operator does it on a machine of his own.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Final, TypeAlias

from edgebroker.digests import sha512
from edgebroker.errors import EdgebrokerError
from edgebroker.runtime.private_files import read_private

LINE: Final = "# signed "
PUBLIC: Final = "edgebroker topology key, public: "
SECRET: Final = "edgebroker topology key, secret: "
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
CONTEXT: Final = b"edgebroker topology\n"
"""Signed in front of each file, so that no signature of the key for anything else is one of a topology."""

_P: Final = 2**255 - 19
_L: Final = 2**252 + 27742317777372353535851937790883648493
_D: Final = -121665 * pow(121666, -1, _P) % _P
_ROOT: Final = pow(2, (_P - 1) // 4, _P)
_Point: TypeAlias = tuple[int, int, int, int]
"""Extended coordinates (X, Y, Z, T) of x = X/Z, y = Y/Z, xy = T/Z."""


class SignatureInvalid(EdgebrokerError):
    """A file is not signed with the key, or a key cannot be read; the text says why."""


# -- files ------------------------------------------------------------------------------------------------------------


def signed_version(text: str) -> int:
    """Return the version that the last line of a topology file names; 0 if it is not signed. Nothing is verified."""
    return _split(text)[1]


def sign_topology(text: str, secret: bytes, now_s: int) -> str:
    """Return *text* with a signature; one that it has is replaced. *now_s*: seconds since 1970."""
    body, version, _ = _split(text)
    version = max(now_s, version + 1)
    signature = sign(secret, _message(body, version))
    return f"{body}{LINE}{version} {base64.b64encode(signature).decode()}\n"


def verify_topology(text: str, public: bytes) -> int:
    """Return the version of a signed topology file. Raises SignatureInvalid."""
    body, version, signature = _split(text)
    if not version:
        raise SignatureInvalid("is not signed")
    if not verify(public, _message(body, version), signature):
        raise SignatureInvalid("is signed with another key, or was changed after it was signed")
    return version


def _split(text: str) -> tuple[str, int, bytes]:
    """Return what stands above the signature, with a line break at its end; the version, and the signature."""
    body = text if text.endswith("\n") or not text else text + "\n"
    above, _, last = body[:-1].rpartition("\n")
    number, _, encoded = last.removeprefix(LINE).partition(" ")
    if not last.startswith(LINE) or not (number.isascii() and number.isdecimal() and len(number) <= 12):
        return body, 0, b""
    try:
        return f"{above}\n", int(number), base64.b64decode(encoded, validate=True)
    except ValueError:
        return body, 0, b""


def _message(body: str, version: int) -> bytes:
    return CONTEXT + f"{version}\n{body}".encode()


def new_key_texts() -> tuple[str, str]:
    """Return the contents of two files for a new key: the secret one, and the public one for all gateways."""
    secret = os.urandom(KEY_BYTES)
    return f"{SECRET}{secret.hex()}\n", f"{PUBLIC}{public_key(secret).hex()}\n"


def load_key(path: Path, prefix: str) -> bytes:
    """Return the key in a file that begins with *prefix*. Raises SignatureInvalid, FileUnreadable."""
    text = read_private(path).strip()
    try:
        key = bytes.fromhex(text.removeprefix(prefix)) if text.startswith(prefix) else b""
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        kind = "secret" if prefix == SECRET else "public"
        raise SignatureInvalid(f"is no {kind} key of `edgebroker topology sign`")
    return key


# -- Ed25519 ----------------------------------------------------------------------------------------------------------


def public_key(secret: bytes) -> bytes:
    """Return the public key of a secret one (RFC 8032 section 5.1.5)."""
    return _encoded(_times(_expanded(secret)[0], _BASE))


def sign(secret: bytes, message: bytes) -> bytes:
    """Return the signature of *message* (section 5.1.6)."""
    scalar, prefix = _expanded(secret)
    public = _encoded(_times(scalar, _BASE))
    nonce = _hashed(prefix + message)
    commitment = _encoded(_times(nonce, _BASE))
    return commitment + ((nonce + _hashed(commitment + public + message) * scalar) % _L).to_bytes(32, "little")


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether *signature* is one of *message* with the secret key of *public* (section 5.1.7)."""
    if len(signature) != SIGNATURE_BYTES or len(public) != KEY_BYTES:
        return False
    owner, commitment = _decoded(public), _decoded(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if owner is None or commitment is None or scalar >= _L:
        return False
    challenge = _hashed(signature[:32] + public + message)
    one, other = _times(scalar, _BASE), _sum(commitment, _times(challenge, owner))
    return (one[0] * other[2] - other[0] * one[2]) % _P == 0 == (one[1] * other[2] - other[1] * one[2]) % _P


def _expanded(secret: bytes) -> tuple[int, bytes]:
    digest = sha512(secret).digest()
    return int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | 1 << 254, digest[32:]


def _hashed(data: bytes) -> int:
    return int.from_bytes(sha512(data).digest(), "little") % _L


def _sum(one: _Point, other: _Point) -> _Point:
    a, b = (one[1] - one[0]) * (other[1] - other[0]) % _P, (one[1] + one[0]) * (other[1] + other[0]) % _P
    c, d = 2 * one[3] * other[3] * _D % _P, 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(factor: int, point: _Point) -> _Point:
    total: _Point = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            total = _sum(total, point)
        point = _sum(point, point)
        factor >>= 1
    return total


def _encoded(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decoded(data: bytes) -> _Point | None:
    """Return the point that *data* encodes; None if there is none (section 5.1.3)."""
    y, is_odd = int.from_bytes(data, "little") & ((1 << 255) - 1), data[31] >> 7
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (not x and is_odd):
        return None
    if x & 1 != is_odd:
        x = _P - x
    return x, y, 1, x * y % _P


_BASE_Y: Final = 4 * pow(5, -1, _P) % _P
_BASE: Final = _decoded(_BASE_Y.to_bytes(32, "little")) or (0, 1, 1, 0)
