"""Signed tokens: what holds, what does not, and why."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgebridge.session.token import (
    CLOCK_IS_SET_AFTER_S,
    ClockUnknown,
    JsonWebToken,
    TokenInvalid,
    TokenKeys,
    is_token,
    key_line,
    signature,
)
from edgebroker.cli import main

NOW = CLOCK_IS_SET_AFTER_S + 1_000
KEYS = TokenKeys.parse("\n".join(("# keys", key_line("old", bytes(32)), key_line("fleet", bytes(range(64))))))
TOKEN = KEYS.make(JsonWebToken("pump-3", NOW + 100, key_id="fleet")).encode()


def forged(header: object, claims: object, key: bytes = bytes(range(64))) -> bytes:
    parts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    signed = b".".join(parts)
    return signed + b"." + urlsafe_b64encode(signature(key, signed)).rstrip(b"=")


HEADER = {"alg": "HS256", "kid": "fleet"}
CLAIMS = {"sub": "pump-3", "exp": NOW + 100}


def test_the_signature_is_that_of_rfc_7515() -> None:
    """Appendix A.1."""
    key = urlsafe_b64decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow==")
    signed = (
        b"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9."
        b"eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
    )
    assert urlsafe_b64encode(signature(key, signed)) == b"dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk="


def test_what_is_made_holds() -> None:
    assert not KEYS.problems
    assert is_token(TOKEN)
    assert KEYS.read(TOKEN, NOW) == JsonWebToken("pump-3", NOW + 100, key_id="fleet")
    assert KEYS.read(forged(HEADER, CLAIMS), NOW).user == "pump-3"
    rules = KEYS.read(
        KEYS.make(JsonWebToken("a", NOW + 1, key_id="old"), ["write a/# where b > 1", "deny c"]).encode(), NOW
    ).rules
    assert rules is not None
    assert [rule.topic_filter.text for rule in rules] == ["a/#", "c"]


@pytest.mark.parametrize(
    ("token", "at", "reason"),
    [
        (TOKEN, NOW + 100, "it expired 0 s ago"),
        (forged(HEADER, {**CLAIMS, "nbf": NOW + 61}), NOW, "it holds only in 61 s"),
        (TOKEN, 0, "the clock of this machine is not set"),
        (b"", NOW, "it has not the form of a token"),
        (TOKEN + b"=", NOW, "it has not the form of a token"),
        (b"a." * 3_000, NOW, "it has not the form of a token"),
        (TOKEN[:-1] + (b"A" if TOKEN[-1:] != b"A" else b"E"), NOW, "its signature is wrong"),
        (TOKEN.partition(b".")[0] + b".e30." + TOKEN.rpartition(b".")[2], NOW, "its signature is wrong"),
        (forged(HEADER, CLAIMS, b"x" * 64), NOW, "its signature is wrong"),
        (forged({"alg": "none", "kid": "fleet"}, CLAIMS), NOW, "it is not signed with HS256 alone"),
        (forged({"alg": "HS512", "kid": "fleet"}, CLAIMS), NOW, "it is not signed with HS256 alone"),
        (forged({**HEADER, "crit": ["x"]}, CLAIMS), NOW, "it is not signed with HS256 alone"),
        (forged({"alg": "HS256"}, CLAIMS), NOW, "its key 'None' is not known"),
        (forged({"alg": "HS256", "kid": ["fleet"]}, CLAIMS), NOW, "is not known"),
        (forged([], CLAIMS), NOW, "a part of it is no JSON object"),
        (b"eyJ9.e30.AAAA", NOW, "a part of it is no JSON"),
        (forged(HEADER, {"exp": NOW + 100}), NOW, "it names no user (sub)"),
        (forged(HEADER, {**CLAIMS, "sub": 7}), NOW, "it names no user (sub)"),
        (forged(HEADER, {"sub": "a"}), NOW, "it does not say when it ends (exp)"),
        (forged(HEADER, {**CLAIMS, "exp": True}), NOW, "it does not say when it ends (exp)"),
        (forged(HEADER, {**CLAIMS, "exp": float("nan")}), NOW, "it does not say when it ends (exp)"),
        (forged(HEADER, {**CLAIMS, "aud": "another"}), NOW, "it is meant for others (aud)"),
        (forged(HEADER, {**CLAIMS, "acl": "read #"}), NOW, "its rules (acl) are no list of at most 64 texts"),
        (forged(HEADER, {**CLAIMS, "acl": ["read #"] * 65}), NOW, "its rules (acl) are no list of at most 64 texts"),
        (forged(HEADER, {**CLAIMS, "acl": ["read \ud800"]}), NOW, "a rule of it (acl) has half a surrogate pair"),
        (forged(HEADER, {**CLAIMS, "acl": ["reed # a"]}), NOW, "a rule of it (acl) cannot be read: 'reed' is no kind"),
    ],
)
def test_what_does_not_hold(token: bytes, at: int, reason: str) -> None:
    with pytest.raises(TokenInvalid) as caught:
        KEYS.read(token, at)
    assert reason in str(caught.value)
    assert isinstance(caught.value, ClockUnknown) is ("clock" in reason)


@pytest.mark.parametrize("last", b"ABCDEFGH")
def test_one_token_has_one_spelling(last: int) -> None:
    """The last character of 32 bytes in base64 has two bits that mean nothing: they must be 0."""
    other = TOKEN[:-1] + bytes([last])
    if other != TOKEN:
        with pytest.raises(TokenInvalid):
            KEYS.read(other, NOW)


def test_a_key_file_with_bad_lines() -> None:
    keys = TokenKeys.parse(
        "\n".join(("nokey", "a:AAAA", " b c:AAAA", key_line("x", bytes(32)), "", key_line("x", bytes(33))))
    )
    assert [problem.line for problem in keys.problems] == [1, 2, 3, 6]
    assert not keys.keys


def run(*arguments: object, given: str = "") -> Any:
    return CliRunner().invoke(main, ["token", *map(str, arguments)], input=given)


def test_the_commands(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    assert run("key", file, "fleet").exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert "is there already" in run("key", file, "fleet").output
    token = run("make", file, "pump-3", "--for", "15m", "--allow", "write pumps/3/#").output.strip()
    checked = run("check", file, token)
    assert checked.exit_code == 0
    assert checked.output.startswith("holds: pump-3, key fleet, for ")
    assert json.loads(run("check", file, "--json", given=token + "\n").output)["rules"] == 1
    wrong = run("check", file, token[:-2])
    assert (wrong.exit_code, wrong.output[:14]) == (1, "does not hold:")
    assert run("make", file, "pump-3", "--for", "x").exit_code == 2
    assert run("make", file, "pump-3", "--key", "other").exit_code == 2
    misspelt = run("make", file, "pump-3", "--allow", "wirte a/#")
    assert (misspelt.exit_code, "did you mean 'write'?" in misspelt.stderr) == (2, True)
