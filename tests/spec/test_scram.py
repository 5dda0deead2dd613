"""SCRAM-SHA-256: the example of RFC 7677 section 3 byte for byte, and everything that must not get through."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from edgebridge.session.scram import (
    MESSAGE_BYTES_MAX,
    ScramExchange,
    ScramInvalid,
    ScramProofWrong,
    ScramSecret,
    saslprep,
)

NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
PROOF = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
SECRET = ScramSecret.make("pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4_096)


def exchange(nonce: str = NONCE) -> ScramExchange:
    return ScramExchange(nonce, {"user": SECRET, "an=na,": SECRET}.get, b"decoy")


def finished(challenge: bytes, password: str, first: bytes = FIRST, header: bytes = b"n,,") -> bytes:
    """What a client that knows *password* answers, written down from RFC 5802 section 3 and not from our code."""
    nonce, salt, iterations = (part.partition(b"=")[2] for part in challenge.split(b","))
    salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), b64decode(salt), int(iterations))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    bare = b"c=" + b64encode(header) + b",r=" + nonce
    said = first.removeprefix(header) + b"," + challenge + b"," + bare
    signature = hmac.digest(hashlib.sha256(client_key).digest(), said, "sha256")
    return bare + b",p=" + b64encode(bytes(one ^ other for one, other in zip(client_key, signature, strict=True)))


def test_the_example_of_rfc_7677() -> None:
    one = exchange()
    assert one.challenge(FIRST) == CHALLENGE
    assert one.prove(FINAL) == PROOF
    assert (one.user, one.secret) == ("user", SECRET)
    assert finished(CHALLENGE, "pencil") == FINAL, "the client of these tests is right too"


@pytest.mark.parametrize(
    ("first", "user"),
    [
        (b"y,,n=user,r=abc", "user"),
        (b"n,a=user,n=user,r=abc", "user"),
        (b"n,,n=an=3Dna=2C,r=abc", "an=na,"),
        (b"n,,n=us\xc2\xader,r=abc", "user"),  # SASLprep takes the soft hyphen out
        (b"n,,n=user,r=abc,x=later", "user"),  # an extension we need not know
    ],
)
def test_what_else_is_a_first_message(first: bytes, user: str) -> None:
    one = exchange()
    challenge = one.challenge(first)
    header = first.partition(b",n=")[0] + b","
    assert one.prove(finished(challenge, "pencil", first, header)).startswith(b"v=")
    assert one.user == user


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"", "first message"),
        (b"n,,n=user", "first message"),
        (b"n=user,r=abc", "first message"),
        (b"n,,n=,r=abc", "first message"),
        (b"n,,m=x,n=user,r=abc", "first message"),  # a mandatory extension (RFC 5802 section 5.1)
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,a=admin,n=user,r=abc", "another user"),
        (b"n,,n=us=er,r=abc", "=3D"),
        (b"n,,n=us\xe2\x80\x83er\xcc\x88\x07,r=abc", "user name"),
        (b"n,,n=user,r=a b", "nonce"),
        (b"n,,n=user,r=a\x7fb", "nonce"),
        (b"n,,n=\xff,r=abc", "UTF-8"),
        (b"n,,n=" + b"u" * MESSAGE_BYTES_MAX + b",r=abc", "at most"),
    ],
)
def test_what_is_no_first_message(first: bytes, why: str) -> None:
    with pytest.raises(ScramInvalid, match=why):
        exchange().challenge(first)


@pytest.mark.parametrize(
    ("was", "becomes", "why"),
    [
        (b"c=biws", b"c=eSws", "c="),  # "y,,": somebody took channel binding out on the way
        (b"c=biws", b"c=", "c="),
        (b"r=rOpr", b"r=xOpr", "nonce"),
        (b",p=dHzb", b",p=????", "base64"),
        (b",p=dHzb", ",p=\u05d0".encode(), "base64"),
        (b",p=", b",q=", "final message"),
    ],
)
def test_what_is_no_final_message(was: bytes, becomes: bytes, why: str) -> None:
    one = exchange()
    one.challenge(FIRST)
    with pytest.raises(ScramInvalid, match=why):
        one.prove(FINAL.replace(was, becomes))


@pytest.mark.parametrize("proof", [b"", b"AAAA", b64encode(bytes(32)), b64encode(b64decode(FINAL[-44:]) + b"x")])
def test_a_wrong_proof(proof: bytes) -> None:
    one = exchange()
    one.challenge(FIRST)
    with pytest.raises(ScramProofWrong, match="wrong user name or password"):
        one.prove(FINAL[:-44] + proof)


def test_a_wrong_password_and_a_user_that_does_not_exist_look_the_same() -> None:
    for first in (FIRST, FIRST.replace(b"user", b"nobody")):
        one = exchange()
        with pytest.raises(ScramProofWrong, match="wrong user name or password"):
            one.prove(finished(one.challenge(first), "pencils", first))
    asked = [exchange(str(number)).challenge(b"n,,n=nobody,r=abc").split(b",")[1:] for number in range(2)]
    assert asked[0] == asked[1], "nobody's salt is always the same"
    assert asked[0] != exchange().challenge(b"n,,n=noone,r=abc").split(b",")[1:]


def test_who_does_not_exist_cannot_be_proved_with_what_we_said() -> None:
    one = exchange()
    challenge = one.challenge(b"n,,n=nobody,r=abc")
    with pytest.raises(ScramProofWrong):
        one.prove(finished(challenge, "anything", b"n,,n=nobody,r=abc"))


def test_a_proof_is_good_for_one_exchange() -> None:
    """The nonce is ours too: what was overheard is of no use."""
    one = exchange("another")
    one.challenge(FIRST)
    with pytest.raises(ScramInvalid, match="nonce"):
        one.prove(FINAL)
