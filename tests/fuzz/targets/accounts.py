"""Who may come in and do what: password, access-control and key files, tokens, SCRAM."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode, urlsafe_b64encode
from hashlib import sha256

from edgebridge.session.acl import Acl, AclInvalid
from edgebridge.session.authorization import AclRights
from edgebridge.session.passwordfile import PasswordFile
from edgebridge.session.scram import ScramExchange, ScramFailed, ScramSecret
from edgebridge.session.token import (
    CLOCK_IS_SET_AFTER_S,
    JsonWebToken,
    TokenInvalid,
    TokenKeys,
    is_token,
    key_line,
    signature,
)
from tests.fuzz.frame.target import Target, filled

KEY = "qgs1QcSFOIvzZ3UqBhBGWcPvsJzdjzo6LcJDQ2NcHbXzAhhBmhN3M2H3vGq2ezGZ6jWnOAe4bWx2L1dXb1DTBg=="
PASSWORDS = f"""\
# users
anna:$scrypt$ln=14,r=8,p=1$AAECAwQFBgcICQoLDA0ODw$AAECAwQFBgcICQoLDA0ODwABAgMEBQYHCAkKCwwNDg8
bob:$7$101$Z7wyStXtimbqI8f5${KEY}
carl:$6$P41Ab3+OLioKTJP5${KEY}:$scram-sha-256$i=4096$AAEC${KEY[:43]}=${KEY[:43]}=
"""
RULES = """\
# anonymous
topic read public/#
user anna
topic sensors/+/x
topic read t where temp > 30 AND NOT (site = 'n' OR $size < 100)
topic deny secret/#
user bert
topic subscribe a/#
pattern readwrite devices/%c/%u/#
"""
SEPARATOR = b"\n\n"


def text_of(data: bytes) -> str:
    """As `privatefile.read_private` decodes a file."""
    return data.decode()


def read_passwords(data: bytes) -> None:
    """Every line that lets somebody in is his; a check costs no more than a bound."""
    text = text_of(data)
    users = PasswordFile.parse(text)
    lines = text.split("\n")
    for problem in users.problems:
        assert 1 <= problem.line <= len(lines)
        assert len(str(problem)) < 400
    for name, user in users.users.items():
        assert lines[user.line - 1].removeprefix("\ufeff").partition(":")[0].strip() == name
        assert user.hash.cost < 4_000_000  # microseconds


def read_acl(data: bytes) -> None:
    """What is left of a file without the lines that are wrong can be read, and asked."""
    text = text_of(data)
    lines = text.split("\n")
    while True:
        try:
            AclRights(Acl.parse("\n".join(lines)))
            return
        except AclInvalid as invalid:
            for problem in invalid.problems:
                assert 1 <= problem.line <= len(lines)
                assert lines[problem.line - 1]
                assert len(str(problem)) < 600
                lines[problem.line - 1] = ""


KEYS = TokenKeys.parse("# keys\n" + "\n".join(key_line(name, bytes(range(32))) for name in ("a", "b", "c")) + "\n")
TOKEN = KEYS.make(JsonWebToken("pump", CLOCK_IS_SET_AFTER_S + 9, key_id="b"), ["write a/# where v > 1"]).encode()


def read_keys(data: bytes) -> None:
    """A key file: what cannot be read is a problem with its line, and no key."""
    keys = TokenKeys.parse(text_of(data))
    assert all(problem.line >= 1 for problem in keys.problems)
    assert all(len(key) >= 32 for key in keys.keys.values())


def read_token(data: bytes) -> None:
    """A token that was changed in any way does not hold."""
    is_token(data)
    KEYS.read(data, CLOCK_IS_SET_AFTER_S)
    assert data == TOKEN


def read_claims(data: bytes) -> None:
    """A token of somebody who has a key and says anything: header and claims, with a line break between them."""
    head, _, body = data.partition(b"\n")
    signed = b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in (head, body))
    key = KEYS.keys["b"]
    token = KEYS.read(signed + b"." + urlsafe_b64encode(signature(key, signed)).rstrip(b"="), CLOCK_IS_SET_AFTER_S)
    assert token.user
    assert token.until > CLOCK_IS_SET_AFTER_S
    if token.claims is not None:
        AclRights(token.claims)


HEADER = b'{"alg":"HS256","kid":"b"}\n'
SECRET = ScramSecret.make("pencil", b"salt", 4_096)


def proof_of(first: bytes, nonce: str) -> bytes:
    """client-final-message of who knows the password."""
    salted = __import__("hashlib").pbkdf2_hmac("sha256", b"pencil", b"salt", 4_096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    bare = first.split(b",", 2)[2]
    final = b"c=" + b64encode(first[: len(first) - len(bare)]) + b",r=" + nonce.encode()
    said = bare + f",r={nonce},s={b64encode(b'salt').decode()},i=4096,".encode() + final
    signature_ = hmac.digest(sha256(client_key).digest(), said, "sha256")
    return final + b",p=" + b64encode(bytes(a ^ b for a, b in zip(client_key, signature_, strict=True)))


def read_scram(data: bytes) -> None:
    """Two messages of a client. Only who knows the password gets through, and as who he is."""
    first, _, final = data.partition(SEPARATOR)
    exchange = ScramExchange("server", lambda name: SECRET if name == "anna" else None, b"decoy")
    exchange.challenge(first)
    exchange.prove(final)
    assert exchange.user == "anna"


FIRST = b"n,,n=anna,r=client"
EXCHANGE = FIRST + SEPARATOR + proof_of(FIRST, "clientserver")
TARGETS = (
    Target(
        "password-file",
        read_passwords,
        (PASSWORDS.encode(), b"\xef\xbb\xbfanna:x\n"),
        (UnicodeDecodeError,),
        (b"$scrypt$", b"$7$", b"$6$", b":", b"\n", b"ln=20,r=64,p=9", b"$scram-sha-256$i=", b"=", b"#"),
    ),
    Target(
        "acl-file",
        read_acl,
        (RULES.encode(), b"\xef\xbb\xbfuser a\ntopic b\n"),
        (UnicodeDecodeError,),
        (
            b"topic ",
            b"pattern ",
            b"user ",
            b" where ",
            b"read ",
            b"write ",
            b"deny ",
            b"%c",
            b"%u",
            b"#",
            b"+",
            b"/",
            b"\n",
        ),
    ),
    Target(
        "key-file",
        read_keys,
        (b"# keys\n" + key_line("a", bytes(range(32))).encode() + b"\n" + key_line("b", bytes(40)).encode(),),
        (UnicodeDecodeError,),
        (b":", b"\n", b"=", b"#", b"-_", b"+/"),
    ),
    Target(
        "token",
        read_token,
        (TOKEN,),
        (TokenInvalid,),
        (b".", b"eyJ", b"=", b"-", b"_"),
        bombs={"dots": lambda: filled(b"."), "4 KiB": lambda: filled(b"A", b"eyJ.", b".A", size=4_096)},
    ),
    Target(
        "token-claims",
        read_claims,
        (
            HEADER
            + json.dumps({"sub": "pump", "exp": CLOCK_IS_SET_AFTER_S + 9, "acl": ["write a/# where v > 1"]}).encode(),
            HEADER
            + json.dumps({"sub": "p", "exp": CLOCK_IS_SET_AFTER_S + 9.5, "nbf": 1, "aud": ["edgebroker"]}).encode(),
        ),
        (TokenInvalid,),
        (
            b'"acl":[',
            b'"aud":',
            b'"exp":',
            b'"nbf":',
            b'"sub":',
            b'"kid":',
            b'"crit":',
            b"1e400",
            b"NaN",
            b"null",
            b"[",
            b"{}",
        ),
        bombs={
            "64 KiB": lambda: filled(b"[", HEADER),
            "brackets": lambda: filled(b"[", HEADER, size=2_900),
            "digits": lambda: filled(b"9", HEADER + b'{"exp":', b"}", size=2_900),
            "rules": lambda: HEADER + b'{"sub":"a","exp":1900000000,"acl":[' + b",".join([b'"read a/#"'] * 64) + b"]}",
            "a hard rule": lambda: (
                HEADER
                + b'{"sub":"a","exp":1900000000,"acl":["read a where '
                + b" AND ".join(b"(a%d=1 OR b%d=2)" % (n, n) for n in range(6))
                + b'"]}'
            ),
        },
    ),
    Target(
        "scram",
        read_scram,
        (EXCHANGE, b"y,,n=other=2Cname,r=x,e=t\n\nc=eSws,r=xserver,p=AAAA", b"n,a=anna,n=anna,r=n\n\nc=,r=,p="),
        (ScramFailed,),
        (b",", b"=2C", b"=3D", b"n=", b"a=", b"r=", b"c=biws", b"p=", b"\xc2\xa0", b"\xd7\x90", b"\xc2\xad", SEPARATOR),
        bombs={
            "64 KiB": lambda: filled(b",", b"n,,n=a,r=b"),
            "commas": lambda: filled(b",", b"n,,n=a,r=b", size=4_096),
            "equals signs": lambda: filled(b"=2C", b"n,,n=", b",r=b", size=4_096),
            "a name of U+FDFA": lambda: filled(b"\xef\xb7\xba", b"n,,n=", b",r=b", size=4_096),
            "a name of U+0301": lambda: filled(b"\xcc\x81", b"n,,n=a", b",r=b", size=4_096),
            "marks in no order": lambda: filled(b"\xcc\xa7\xcc\x81", b"n,,n=a", b",r=b", size=4_096),
            "a nonce": lambda: filled(b"x", b"n,,n=a,r=", size=4_096),
        },
    ),
)
