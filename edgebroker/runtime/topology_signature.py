"""The signature of a topology file: Ed25519 (RFC 8032), in the last line of the file.

    # signed VERSION SIGNATURE

It is a comment, so that gateways without the key read the file too. The signature is of all that stands above, and of
the version: the seconds since 1970 at which the operator signed, or one more than those of the signature before. Of two
signed files that with the higher version is the newer one.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Final

from edgebroker.ed25519 import KEY_BYTES, key_in, public_key, sign, verify
from edgebroker.errors import EdgebrokerError
from edgebroker.runtime.private_files import read_private

LINE: Final = "# signed "
PUBLIC: Final = "edgebroker topology key, public: "
SECRET: Final = "edgebroker topology key, secret: "
CONTEXT: Final = b"edgebroker topology\n"
"""Signed in front of each file, so that no signature of the key for anything else is one of a topology."""


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
    key = key_in(read_private(path), prefix)
    if key is None:
        kind = "secret" if prefix == SECRET else "public"
        raise SignatureInvalid(f"is no {kind} key of `edgebroker topology sign`")
    return key
