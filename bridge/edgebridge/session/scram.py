"""SCRAM-SHA-256, server side (RFC 5802, RFC 7677): stored secrets, SASLprep (RFC 4013) and one exchange.

    exchange = ScramExchange(nonce, secret_of, decoy)
    challenge = exchange.challenge(client_first)
    proof = exchange.prove(client_final)      # afterwards exchange.user is authenticated

A secret is written as $scram-sha-256$i=32768$salt$StoredKey$ServerKey. Whoever has the file can try passwords at the
price of PBKDF2, so a password file holds secrets only for users that asked for SCRAM. An exchange takes about 20 us:
the client computes the salted password.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError

SCRAM_ITERATIONS: Final = 32_768
"""Paid by the client at each authentication: 8 ms on a PC. RFC 7677 asks for 4,096 at least and hopes for 15,000."""
SCRAM_ITERATIONS_MIN: Final = 4_096
SCRAM_ITERATIONS_MAX: Final = 10_000_000
SALT_BYTES_MAX: Final = 1_024  # clients receive it; ours have 16
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
        if not 1 <= len(salt) <= SALT_BYTES_MAX or len(stored) != 32 or len(server) != 32:
            why = f"StoredKey and ServerKey of a SCRAM secret have 32 bytes, its salt 1 to {SALT_BYTES_MAX:,}"
            raise SecretInvalid(why)
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


MESSAGE_BYTES_MAX: Final = 4 * 1024  # a user name of 1 KiB may be three times as long when it is escaped

_FIRST: Final = re.compile(
    r"(?P<header>(?P<binding>[^,]*),(?P<as>[^,]*),)(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[^,]+)(?:,.*)?)"
)
_FINAL: Final = re.compile(r"(?P<bare>c=(?P<header>[^,]*),r=(?P<nonce>[^,]+)(?:,.*)?),p=(?P<proof>[^,]*)")
_NONCE: Final = re.compile(r"[!-+\--~]+")  # printable, but no comma (RFC 5802 section 7)
_BAD_ESCAPE: Final = re.compile(r"=(?!2C|3D)")


class ScramFailed(EdgebrokerError):
    """The exchange is over and proved nothing."""


class ScramInvalid(ScramFailed):
    """A message is not what RFC 5802 section 7 says; the text names what is wrong with it."""


class ScramProofWrong(ScramFailed):
    """The proof is wrong: another password, or there is no such user. Nobody is told which."""


class ScramExchange:
    """One exchange. What is needed by chance, the *nonce*, is the world's affair."""

    def __init__(self, nonce: str, secret_of: Callable[[str], ScramSecret | None], decoy: bytes) -> None:
        """*nonce*: printable characters without comma, never used before.

        *decoy* is secret, and lasting: who asks for a user that does not exist gets the same salt each time.
        """
        self.user = ""
        """Who the client says it is; who it is once `prove` has returned."""
        self.secret: ScramSecret | None = None
        """What the proof is checked against; None if there is no such user."""
        self._nonce = nonce
        self._secret_of = secret_of
        self._decoy = decoy
        self._header = ""
        self._said = ""

    def challenge(self, client_first: bytes) -> bytes:
        """server-first-message, the answer to client-first-message. Raises ScramInvalid."""
        first = _FIRST.fullmatch(_text(client_first))
        if first is None:
            raise ScramInvalid("the client's first message is no n,,n=user,r=nonce")
        if first["binding"] not in ("n", "y"):
            raise ScramInvalid("channel binding is not supported: use n,,")
        name = _name(first["name"])
        if first["as"] and _name(first["as"].removeprefix("a=")) != name:
            raise ScramInvalid("nobody may act for another user: leave a= out")
        if not _NONCE.fullmatch(first["nonce"]):
            raise ScramInvalid("a nonce is made of printable ASCII characters without comma")
        self.user = name
        self.secret = self._secret_of(name)
        self._header = first["header"]
        self._nonce = first["nonce"] + self._nonce
        secret = self.secret or self._decoy_secret()
        answer = f"r={self._nonce},s={b64encode(secret.salt).decode()},i={secret.iterations}"
        self._said = f"{first['bare']},{answer}"
        return answer.encode()

    def prove(self, client_final: bytes) -> bytes:
        """server-final-message, the answer to client-final-message. Raises ScramInvalid, ScramWrong."""
        final = _FINAL.fullmatch(_text(client_final))
        if final is None:
            raise ScramInvalid("the client's final message is no c=binding,r=nonce,p=proof")
        if final["header"] != b64encode(self._header.encode()).decode():
            raise ScramInvalid("c= is not what the first message began with")
        if final["nonce"] != self._nonce:
            raise ScramInvalid("r= is not the nonce of this exchange")
        try:
            proof = b64decode(final["proof"], validate=True)
        except ValueError:  # no base64 (binascii.Error), or not even ASCII
            raise ScramInvalid("p= is no base64") from None
        secret = self.secret or self._decoy_secret()
        said = f"{self._said},{final['bare']}".encode()
        signature = hmac.digest(secret.stored_key, said, "sha256")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        is_right = hmac.compare_digest(hashlib.sha256(client_key).digest(), secret.stored_key)
        if not is_right or len(proof) != len(signature) or self.secret is None:
            raise ScramProofWrong("wrong user name or password")
        return b"v=" + b64encode(hmac.digest(secret.server_key, said, "sha256"))

    def _decoy_secret(self) -> ScramSecret:
        """A secret as anybody might have, for who does not exist: nothing proves to know it."""
        salt, key = (hmac.digest(self._decoy, what + self.user.encode(), "sha256") for what in (b"salt ", b"key "))
        return ScramSecret(SCRAM_ITERATIONS, salt[:16], key, key)


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramInvalid(f"a message has at most {MESSAGE_BYTES_MAX:,} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramInvalid("a message is no UTF-8") from None


def _name(escaped: str) -> str:
    """A user's name from a message, where `=2C` is a comma and `=3D` an equals sign."""
    if _BAD_ESCAPE.search(escaped):
        raise ScramInvalid("in a user name '=' is written =3D and ',' =2C")
    try:
        return saslprep(escaped.replace("=2C", ",").replace("=3D", "="))
    except SecretInvalid as error:
        raise ScramInvalid(f"the user name: {error}") from None
