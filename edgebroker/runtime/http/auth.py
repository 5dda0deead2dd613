"""Authentication of HTTP requests by the tokens of a file, one token a line; comments begin with #.

Authorization: Bearer TOKEN                 programs
Authorization: Basic base64(name:TOKEN)     browsers, which ask for a password; the name is ignored
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.digests import compare_digest, sha256
from edgebroker.runtime.private_files import is_open_to_others, read_setting_file
from edgebroker.runtime.settings.problems import Problem, SettingsRefused
from edgebroker.runtime.settings.sections import HttpSettings

TOKEN_CHARS_MIN: Final = 16
"""Attempts are not limited, so a token must not be guessable: 16 random letters and digits have 95 bits."""
HEALTH: Final = "/health"
PROBLEMS_MAX: Final = 10
"""Reported at once; a file of another kind has a problem in each line."""
CHALLENGE: Final = ("WWW-Authenticate", 'Bearer realm="edgebroker", Basic realm="edgebroker"')
"""The header of a 401 response (RFC 9110 section 11.6.1)."""


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """`digests`: SHA-256 of the valid tokens. `open_paths` need no token."""

    digests: tuple[bytes, ...]
    open_paths: frozenset[str] = frozenset()

    def admits(self, target: str, authorization: str) -> bool:
        """Whether the header *authorization* has a token that authorizes a request of *target* (path and query)."""
        if target.partition("?")[0] in self.open_paths:
            return True
        digest_given = sha256(_token(authorization)).digest()
        return any(compare_digest(digest_given, digest) for digest in self.digests)


def _token(authorization: str) -> bytes:
    scheme, _, credentials = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip().encode()
    if scheme.lower() == "basic":
        try:
            return b64decode(credentials.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            pass
    return b""


def load_http_access(settings: HttpSettings, warn: Callable[[str], None]) -> HttpAccess | None:
    """Returns the tokens that the settings name; None: no token is needed. Raises SettingsRefused."""
    if settings.token_file is None:
        return None
    tokens = load_tokens(settings.token_file)
    if is_open_to_others(settings.token_file):
        warn(f"{settings.token_file}: everybody on this machine may read it; chmod o-r mends that")
    digests = tuple(sha256(token.encode()).digest() for token in tokens)
    return HttpAccess(digests, frozenset({HEALTH} if settings.health_open else ()))


def load_tokens(file: Path, may_wait: bool = False) -> list[str]:
    """Returns the tokens in *file*, at least one. Raises SettingsRefused."""
    tokens: list[str] = []
    problems: list[Problem] = []
    for number, line in enumerate(read_setting_file(file, "http.token_file", may_wait=may_wait).split("\n"), 1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if len(token) < TOKEN_CHARS_MIN or not (token.isascii() and token.isprintable()) or " " in token:
            reason = f"a token has at least {TOKEN_CHARS_MIN} ASCII characters without blanks"
            problems.append(Problem(str(file), number, "http.token_file", reason, "openssl rand -hex 24"))
            if len(problems) >= PROBLEMS_MAX:
                break
        tokens.append(token)
    if problems:
        raise SettingsRefused(problems)
    if not tokens:
        raise SettingsRefused([Problem(str(file), 0, "http.token_file", "has no token", "openssl rand -hex 24")])
    return tokens
