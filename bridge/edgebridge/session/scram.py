"""The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677): both sides prove that they know the secret, without
telling it.

    exchange = ScramExchange(nonce, secret_of, decoy)
    challenge = exchange.challenge(client_first)
    proof = exchange.prove(client_final)      # and now exchange.user is who the client says

A few hashes, some 20 us: the costly one, from the password to the salted password, is the client's.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from edgebridge.session.scramsecret import SCRAM_ITERATIONS, ScramSecret, SecretInvalid, saslprep
from edgebroker.errors import EdgebrokerError

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


class ScramWrong(ScramFailed):
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
        secret = self.secret or self._nobodys()
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
        secret = self.secret or self._nobodys()
        said = f"{self._said},{final['bare']}".encode()
        signature = hmac.digest(secret.stored_key, said, "sha256")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        is_right = hmac.compare_digest(hashlib.sha256(client_key).digest(), secret.stored_key)
        if not is_right or len(proof) != len(signature) or self.secret is None:
            raise ScramWrong("wrong user name or password")
        return b"v=" + b64encode(hmac.digest(secret.server_key, said, "sha256"))

    def _nobodys(self) -> ScramSecret:
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
