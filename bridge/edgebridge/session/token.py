"""Signed tokens instead of passwords: whoever has a key of the gateway makes them, and the gateway stores none.

The format is JSON Web Token (RFC 7519) in the compact form, signed with HMAC-SHA-256 and nothing else:

    {"alg": "HS256", "kid": "fleet"} . {"sub": "pump-3", "exp": 1900000000, "acl": ["write pumps/3/#"]} . signature

`sub` (the user) and `exp` (its end) are required, `nbf` and `acl` (what it allows at most, in the words of the
access-control file) are not. A client sends it as its password.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from edgebridge.session.acl import TOKEN_RULES_MAX, Acl, AclInvalid, AclRule, read_rule
from edgebroker.dataclasses import dataclass
from edgebroker.errors import EdgebrokerError, LineError, add_line_error, clipped, numbered_lines
from edgebroker.instants import CLOCK_IS_SET_AFTER, SECOND

TOKEN_BYTES_MAX: Final = 4_096  # one with TOKEN_RULES_MAX rules has about 3,000
KEY_BYTES_MIN: Final = 32  # as long as the digest (RFC 7518 section 3.2)
KEY_BYTES_MAX: Final = 1_024
CLOCK_IS_SET_AFTER_S: Final = CLOCK_IS_SET_AFTER // SECOND
"""A gateway whose clock says less would take tokens that expired long ago."""
NOT_BEFORE_GRACE_S: Final = 60  # clocks of two machines differ by so much without anybody noticing
AUDIENCE: Final = "edgebroker"
_SHAPE: Final = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_KEY_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class TokenInvalid(EdgebrokerError):
    """A token that does not hold; the message says why, for the operator and not for the client."""


class ClockUnknown(TokenInvalid):
    """Whether the token holds cannot be said: the gateway does not know the time."""


@dataclass(frozen=True, slots=True)
class JsonWebToken:
    """What a token says. `until` and `since` are in seconds since 1970."""

    user: str
    until: int
    since: int = 0
    rules: tuple[AclRule, ...] | None = None
    """What it allows at most; None: whatever its user may do."""
    key_id: str = ""

    @property
    def claims(self) -> Acl | None:
        """The rules, for whoever has them put into its rights."""
        return None if self.rules is None else Acl({}, tuple(sorted(self.rules, key=lambda rule: rule.access != 0)))


@dataclass(frozen=True, slots=True)
class TokenKeys:
    """The keys that are trusted, by identifier. One per line: `fleet:base64`; comments begin with #."""

    keys: Mapping[str, bytes] = field(default_factory=dict)
    problems: tuple[LineError, ...] = ()

    @classmethod
    def parse(cls, text: str) -> TokenKeys:
        """Read the whole file. What cannot be read is in `problems`, and no key."""
        keys: dict[str, bytes] = {}
        problems: list[LineError] = []
        twice: set[str] = set()
        for number, line in numbered_lines(text):
            try:
                name, key = _read_key(line)
            except TokenInvalid as error:
                add_line_error(problems, number, str(error), "edgebroker token key makes a line")
                continue
            if name in keys:
                twice.add(name)
                add_line_error(problems, number, f"the key {name} stands twice", "neither holds: delete one")
            keys.setdefault(name, key)
        return cls({name: key for name, key in keys.items() if name not in twice}, tuple(problems))

    def mark(self, key_id: str) -> str:
        """A digest of the key, by which a change is noticed; empty if there is no such key."""
        key = self.keys.get(key_id)
        return "" if key is None else f"{key_id}:{hashlib.sha256(key).hexdigest()}"

    def make(self, token: JsonWebToken, rules: Sequence[str] | None = None) -> str:
        """The token as text, signed with its key; *rules* as `acl` spells them. Raises TokenInvalid."""
        key = self.keys.get(token.key_id)
        if key is None:
            raise TokenInvalid(f"there is no key {clipped(token.key_id)}, only {', '.join(self.keys) or 'none'}")
        claims: dict[str, Any] = {"sub": token.user, "exp": token.until}
        if token.since:
            claims["nbf"] = token.since
        if rules is not None:
            _read_rules(list(rules))
            claims["acl"] = list(rules)
        parts = [_encode_json({"alg": "HS256", "typ": "JWT", "kid": token.key_id}), _encode_json(claims)]
        signed = b".".join(parts)
        text = b".".join((signed, urlsafe_b64encode(signature(key, signed)).rstrip(b"=")))
        if len(text) > TOKEN_BYTES_MAX:
            raise TokenInvalid(f"the token has {len(text):,} bytes, at most {TOKEN_BYTES_MAX:,} are read")
        return text.decode()

    def read(self, text: bytes, unix_s: int) -> JsonWebToken:
        """What the token says, if it holds at *unix_s*. Raises TokenInvalid, ClockUnknown.

        The signature comes before anything else of it is believed, and is compared in constant time.
        """
        if len(text) > TOKEN_BYTES_MAX or not _SHAPE.fullmatch(text):
            raise TokenInvalid("it has not the form of a token")
        signed, _, given = text.rpartition(b".")
        head, _, body = signed.partition(b".")
        header = _read_json(head)
        if header.get("alg") != "HS256" or "crit" in header:
            raise TokenInvalid("it is not signed with HS256 alone")
        key_id = header.get("kid")
        key = self.keys.get(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise TokenInvalid(f"its key {clipped(str(key_id))} is not known")
        if not hmac.compare_digest(signature(key, signed), _octets(given)):
            raise TokenInvalid("its signature is wrong")
        token = _read_claims(_read_json(body), str(key_id))
        if unix_s < CLOCK_IS_SET_AFTER_S:
            raise ClockUnknown("the clock of this machine is not set, so no token can be judged")
        if unix_s >= token.until:
            raise TokenInvalid(f"it expired {unix_s - token.until:,} s ago")
        if unix_s + NOT_BEFORE_GRACE_S < token.since:
            raise TokenInvalid(f"it holds only in {token.since - unix_s:,} s")
        return token


def signature(key: bytes, signed: bytes) -> bytes:
    """HS256 (RFC 7518 section 3.2)."""
    return hmac.digest(key, signed, "sha256")


def is_token(password: bytes) -> bool:
    """Whether *password* has the form of a token."""
    return password.startswith(b"eyJ") and len(password) <= TOKEN_BYTES_MAX and _SHAPE.fullmatch(password) is not None


def key_line(key_id: str, key: bytes) -> str:
    """A line of the key file. Raises TokenInvalid."""
    line = f"{key_id}:{urlsafe_b64encode(key).decode().rstrip('=')}"
    _read_key(line)
    return line


def _read_key(line: str) -> tuple[str, bytes]:
    name, _, spelled = line.partition(":")
    if not _KEY_ID.fullmatch(name):
        raise TokenInvalid("a key begins with its identifier and ':': 1 to 64 letters, digits, '.', '_' or '-'")
    spelled = spelled.strip().rstrip("=")
    size = len(spelled) * 3 // 4  # a file of another kind has thousands of lines that are too short
    if KEY_BYTES_MIN <= size <= KEY_BYTES_MAX:
        return name, _octets(spelled.replace("+", "-").replace("/", "_").encode("utf-8", "replace"))
    raise TokenInvalid(f"a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX:,} bytes, this one {size}")


def _read_claims(claims: dict[str, Any], key_id: str) -> JsonWebToken:
    user = claims.get("sub")
    if not isinstance(user, str) or not user or len(user) > 1_024 or not user.isprintable():
        raise TokenInvalid("it names no user (sub)")
    until, since = _time(claims, "exp", "it does not say when it ends"), 0
    if "nbf" in claims:
        since = _time(claims, "nbf", "it does not say when it begins")
    audience = claims.get("aud", AUDIENCE)
    if AUDIENCE not in (audience if isinstance(audience, list) else [audience]):
        raise TokenInvalid("it is meant for others (aud)")
    rules = _read_rules(claims["acl"]) if "acl" in claims else None
    return JsonWebToken(user, until, since, rules, key_id)


def _time(claims: dict[str, Any], name: str, wrong: str) -> int:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1 << 40:
        raise TokenInvalid(f"{wrong} ({name})")
    return int(value)


def _read_rules(rules: object) -> tuple[AclRule, ...]:
    if not isinstance(rules, list) or len(rules) > TOKEN_RULES_MAX or not all(isinstance(rule, str) for rule in rules):
        raise TokenInvalid(f"its rules (acl) are no list of at most {TOKEN_RULES_MAX} texts")
    try:
        "".join(rules).encode()  # they go to disk with the session
    except UnicodeEncodeError:
        raise TokenInvalid("a rule of it (acl) has half a surrogate pair") from None
    try:
        return tuple(read_rule(rule) for rule in rules)
    except AclInvalid as error:
        wrong = error.problems[0]
        why = f"{wrong.reason}; {wrong.mend}" if wrong.mend else wrong.reason
        raise TokenInvalid(f"a rule of it (acl) cannot be read: {why}") from None


def _encode_json(value: dict[str, Any]) -> bytes:
    return urlsafe_b64encode(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()).rstrip(b"=")


def _read_json(part: bytes) -> dict[str, Any]:
    try:
        value = json.loads(_octets(part).decode())
    except (ValueError, RecursionError):
        raise TokenInvalid("a part of it is no JSON") from None
    if not isinstance(value, dict):
        raise TokenInvalid("a part of it is no JSON object")
    return value


def _octets(part: bytes) -> bytes:
    try:
        octets = urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise TokenInvalid("a part of it is no base64url") from None
    if urlsafe_b64encode(octets).rstrip(b"=") != part:  # one text for each token, no other spelling of it
        raise TokenInvalid("a part of it is no base64url")
    return octets
