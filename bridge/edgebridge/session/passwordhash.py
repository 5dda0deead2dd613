"""Hashed passwords: our own scrypt, and the two that mosquitto_passwd writes.

    $scrypt$ln=14,r=8,p=1$salt$key          scrypt (RFC 7914) with N = 2^ln, in the notation of the PHC string format
    $7$iterations$salt$key                  PBKDF2 with HMAC-SHA-512 (RFC 8018), as Mosquitto since 2.0
    $6$salt$key                             SHA-512 over password and salt, as Mosquitto before 2.0

Salt and key are base64, with padding in Mosquitto's forms. Checking takes tens of milliseconds for the first two:
never in the loop. scrypt and PBKDF2 let other threads run meanwhile.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Final, TypeAlias

from edgebroker.dataclasses import dataclass

SCRYPT_LOG_N: Final = 14
SCRYPT_R: Final = 8
"""128 x N x r = 16 MiB for as long as a check runs: a Pi has them, a guesser with thousands of cores does not have as
many. A check takes 41 ms on a 2-core cloud machine. 2^15 would double both, and a fleet that comes back after a power
cut would hold 64 MiB in two threads."""
SCRYPT_P: Final = 1
SCRYPT_BYTES_MAX: Final = 64 << 20  # of a line read from a file; OpenSSL's own bound is 32 MiB
SALT_BYTES: Final = 16
PBKDF2_ITERATIONS: Final = 100_000
"""Mosquitto writes 101, which a graphics card tries a million times a second; with these a check takes 58 ms."""
PBKDF2_ITERATIONS_MAX: Final = 5_000_000  # of a line read from a file: 3 s
SHA512_BYTES: Final = 64
FIELD_BYTES_MAX: Final = 1_024  # a salt or key read from a file; real ones have 12 to 64


class HashInvalid(ValueError):
    """A text is no password hash that can be read here."""


@dataclass(frozen=True, slots=True)
class Scrypt:
    """A password hashed with scrypt. `log_n`: the binary logarithm of N."""

    log_n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    @classmethod
    def make(cls, password: bytes, salt: bytes) -> Scrypt:
        """Hash *password* with a fresh *salt* of SALT_BYTES."""
        return cls(
            SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P, salt, _scrypt(password, salt, SCRYPT_LOG_N, SCRYPT_R, SCRYPT_P, 32)
        )

    def accepts(self, password: bytes) -> bool:
        """Whether *password* is the one that was hashed. Takes as long for every password."""
        made = _scrypt(password, self.salt, self.log_n, self.r, self.p, len(self.key))
        return hmac.compare_digest(made, self.key)

    @property
    def cost(self) -> int:
        """About how many microseconds a check takes on a machine that needs 41 ms for N = 2^14."""
        return (1 << self.log_n) * self.r * self.p * 41_000 >> 17

    def __str__(self) -> str:
        salt, key = (b64encode(part).decode().rstrip("=") for part in (self.salt, self.key))
        return f"$scrypt$ln={self.log_n},r={self.r},p={self.p}${salt}${key}"


@dataclass(frozen=True, slots=True)
class Pbkdf2:
    """A password hashed with PBKDF2-HMAC-SHA-512."""

    iterations: int
    salt: bytes
    key: bytes

    @classmethod
    def make(cls, password: bytes, salt: bytes) -> Pbkdf2:
        """Hash *password* with a fresh *salt*; Mosquitto reads the result."""
        return cls(
            PBKDF2_ITERATIONS, salt, hashlib.pbkdf2_hmac("sha512", password, salt, PBKDF2_ITERATIONS, SHA512_BYTES)
        )

    def accepts(self, password: bytes) -> bool:
        """Whether *password* is the one that was hashed."""
        made = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations, SHA512_BYTES)
        return hmac.compare_digest(made, self.key)

    @property
    def cost(self) -> int:
        """About how many microseconds a check takes."""
        return self.iterations * 58 // 100

    def __str__(self) -> str:
        return f"$7${self.iterations}${b64encode(self.salt).decode()}${b64encode(self.key).decode()}"


@dataclass(frozen=True, slots=True)
class SaltedSha512:
    """A password hashed once with SHA-512, as old Mosquitto files have it. Only read, never made."""

    salt: bytes
    key: bytes

    def accepts(self, password: bytes) -> bool:
        """Whether *password* is the one that was hashed."""
        return hmac.compare_digest(hashlib.sha512(password + self.salt).digest(), self.key)

    @property
    def cost(self) -> int:
        """About how many microseconds a check takes."""
        return 2

    def __str__(self) -> str:
        return f"$6${b64encode(self.salt).decode()}${b64encode(self.key).decode()}"


PasswordHash: TypeAlias = Scrypt | Pbkdf2 | SaltedSha512


def read_password_hash(text: str) -> PasswordHash:
    """The hash that *text* spells. Raises HashInvalid, with a reason that does not repeat the text."""
    match text.split("$"):
        case ["", "scrypt", parameters, salt, key]:
            return _read_scrypt(parameters, salt, key)
        case ["", "7", iterations, salt, key]:
            count = _whole(iterations, 1, PBKDF2_ITERATIONS_MAX, "the number of iterations")
            return Pbkdf2(count, _octets(salt, "salt"), _octets(key, "key", SHA512_BYTES))
        case ["", "6", salt, key]:
            return SaltedSha512(_octets(salt, "salt"), _octets(key, "key", SHA512_BYTES))
        case ["", ("scrypt" | "7" | "6") as kind, *parts]:
            raise HashInvalid(f"a ${kind}$ hash has {3 if kind != '6' else 2} parts after it, this one {len(parts)}")
        case ["", "argon2id", *_]:  # Python's standard library has none
            raise HashInvalid("the hash $argon2id$, which Mosquitto 2.1 writes, cannot be checked here")
        case ["", kind, *_]:
            raise HashInvalid(f"the hash ${kind[:20]}$ is not known here, only $scrypt$, $7$ and $6$")
    raise HashInvalid("no hash, but perhaps a password as it is")


def _read_scrypt(parameters: str, salt: str, key: str) -> Scrypt:
    values = {}
    for part in parameters.split(","):
        name, equals, value = part.partition("=")
        if not equals or name in values or name not in ("ln", "r", "p"):
            raise HashInvalid("the parameters of $scrypt$ are written ln=14,r=8,p=1")
        values[name] = _whole(value, 1, {"ln": 20, "r": 64, "p": 16}[name], f"{name} of $scrypt$")
    if len(values) != 3:
        raise HashInvalid("the parameters of $scrypt$ are written ln=14,r=8,p=1")
    log_n, r, p = values["ln"], values["r"], values["p"]
    if 128 * r << log_n > SCRYPT_BYTES_MAX:
        raise HashInvalid(
            f"this $scrypt$ takes {128 * r << log_n >> 20} MiB, at most {SCRYPT_BYTES_MAX >> 20} are given"
        )
    octets = _octets(key, "key")
    if len(octets) < SALT_BYTES:
        raise HashInvalid(f"the key has {len(octets)} bytes; at least {SALT_BYTES} are hard to guess")
    return Scrypt(log_n, r, p, _octets(salt, "salt"), octets)


def _scrypt(password: bytes, salt: bytes, log_n: int, r: int, p: int, size: int) -> bytes:
    # OpenSSL counts a little more than the 128 x N x r bytes of RFC 7914 section 5
    return hashlib.scrypt(password, salt=salt, n=1 << log_n, r=r, p=p, maxmem=2 * SCRYPT_BYTES_MAX, dklen=size)


def _whole(text: str, least: int, most: int, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most):
        raise HashInvalid(f"{what} is a number from {least} to {most:,}")
    return int(text)


def _octets(text: str, what: str, size: int = 0) -> bytes:
    if len(text) > FIELD_BYTES_MAX:
        raise HashInvalid(f"the {what} has {len(text)} characters")
    try:
        octets = b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise HashInvalid(f"the {what} is no base64") from None
    if not octets or (size and len(octets) != size):
        raise HashInvalid(f"the {what} has {len(octets)} bytes" + (f", not {size}" if size else ""))
    return octets
