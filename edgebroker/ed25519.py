"""Ed25519 (RFC 8032): signatures of topology files and of manifests of files.

Python's standard library has no signatures, and `openssl` is not on every gateway. This implementation takes 5 ms to
sign and to verify. Signing takes a time that depends on the secret key: the operator does it on a machine of his own.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from edgebroker.digests import sha512

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

_P: Final = 2**255 - 19
_L: Final = 2**252 + 27742317777372353535851937790883648493
_D: Final = -121665 * pow(121666, -1, _P) % _P
_ROOT: Final = pow(2, (_P - 1) // 4, _P)
_Point: TypeAlias = tuple[int, int, int, int]
"""Extended coordinates (X, Y, Z, T) of x = X/Z, y = Y/Z, xy = T/Z."""


def key_in(text: str, prefix: str) -> bytes | None:
    """Return the key in *text*, hexadecimal digits behind *prefix*; None if there is none."""
    text = text.strip()
    try:
        key = bytes.fromhex(text.removeprefix(prefix)) if text.startswith(prefix) else b""
    except ValueError:
        key = b""
    return key if len(key) == KEY_BYTES else None


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
