"""What a server keeps to authenticate a user by SCRAM-SHA-256 without knowing the password (RFC 5802, RFC 7677).

    $scram-sha-256$i=32768$salt$StoredKey$ServerKey

Whoever has the file can try passwords against it at the price of PBKDF2, which has no cost in memory; so a password
file has it only for users for whom it was asked.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from typing import Final

from edgebroker.dataclasses import dataclass

SCRAM_ITERATIONS: Final = 32_768
"""Paid by the client at each authentication: 8 ms on a PC. RFC 7677 asks for 4,096 at least and hopes for 15,000."""
SCRAM_ITERATIONS_MIN: Final = 4_096
SCRAM_ITERATIONS_MAX: Final = 10_000_000
SCRAM_PREFIX: Final = "$scram-sha-256$"
_PROHIBITED: Final = (  # RFC 4013 section 2.3
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class SecretInvalid(ValueError):
    """A text is no SCRAM secret, or a password cannot be used with SCRAM."""


@dataclass(frozen=True, slots=True)
class ScramSecret:
    """One user's secret: `stored_key` = H(ClientKey) and `server_key` as in RFC 5802 section 3."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def make(cls, password: str, salt: bytes, iterations: int = SCRAM_ITERATIONS) -> ScramSecret:
        """The secret of *password* with a fresh *salt*. Raises SecretInvalid for what SASLprep prohibits."""
        salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        return cls(iterations, salt, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))

    @classmethod
    def read(cls, text: str) -> ScramSecret:
        """The secret that *text* spells. Raises SecretInvalid."""
        parts = text.removeprefix(SCRAM_PREFIX).split("$")
        if not text.startswith(SCRAM_PREFIX) or len(parts) != 4:
            raise SecretInvalid(f"a SCRAM secret is written {SCRAM_PREFIX}i=32768$salt$StoredKey$ServerKey")
        count = parts[0].removeprefix("i=")
        if not (count.isascii() and count.isdigit() and len(count) <= 9):
            raise SecretInvalid("the iterations of a SCRAM secret are written i=32768")
        iterations = int(count)
        if not SCRAM_ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
            raise SecretInvalid(
                f"a SCRAM secret has {SCRAM_ITERATIONS_MIN:,} to {SCRAM_ITERATIONS_MAX:,} iterations, not {count}"
            )
        try:
            salt, stored, server = (b64decode(part, validate=True) for part in parts[1:])
        except (binascii.Error, ValueError):
            raise SecretInvalid("a part of the SCRAM secret is no base64") from None
        if not salt or len(stored) != 32 or len(server) != 32:
            raise SecretInvalid("StoredKey and ServerKey of a SCRAM secret have 32 bytes, its salt at least 1")
        return cls(iterations, salt, stored, server)

    def __str__(self) -> str:
        parts = (b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"{SCRAM_PREFIX}i={self.iterations}$" + "$".join(parts)


def saslprep(text: str) -> str:
    """*text* as both sides of SCRAM must spell it (RFC 4013). Raises SecretInvalid for what is prohibited."""
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    if not prepared:
        raise SecretInvalid("the password is empty")
    # Each character once: U+FDFA becomes 18, and a name of 4 KiB, by somebody unknown, would take 20 ms.
    different = dict.fromkeys(prepared)
    for character in different:
        if any(prohibits(character) for prohibits in _PROHIBITED):
            raise SecretInvalid(f"SCRAM does not allow the character U+{ord(character):04X} in a password")
    if any(map(stringprep.in_table_d1, different)) and (  # RFC 3454 section 6: writing from right to left
        any(map(stringprep.in_table_d2, different))
        or not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1]))
    ):
        raise SecretInvalid("the password mixes writing directions in a way that SCRAM does not allow")
    return prepared
