"""Whatever a client says in an exchange, it is answered or refused; and nothing but the right proof is a proof."""

from __future__ import annotations

from base64 import b64encode

from hypothesis import example, given
from hypothesis import strategies as st

from edgebridge.session.scram import MESSAGE_BYTES_MAX, ScramExchange, ScramFailed, ScramProofWrong, ScramSecret

SECRET = ScramSecret.make("pencil", b"salt", 4_096)
WORDS = (b"n", b"y", b"p=tls", b",", b"n=", b"user", b"=2C", b"=", b"a=", b"r=", b"c=", b"biws", b"p=", b"m=", b"\xff")
pieces = st.sampled_from(WORDS)
messages = st.binary(max_size=60) | st.lists(pieces | st.binary(max_size=4), max_size=12).map(b"".join)
proofs = st.binary(max_size=40) | st.binary(min_size=32, max_size=32)


@given(messages, messages)
@example(b"n,,n=" + b"=2C" * MESSAGE_BYTES_MAX + b",r=a", b"")
@example(b"n,,n=\xef\xb7\xba\xef\xb7\xba,r=a", b"")  # one character that SASLprep makes eighteen of
def test_whatever_is_said(first: bytes, final: bytes) -> None:
    exchange = ScramExchange("nonce", {"user": SECRET}.get, b"decoy")
    try:
        challenge = exchange.challenge(first)
        assert challenge.startswith(b"r=")
        exchange.prove(final)
    except ScramFailed:
        return
    raise AssertionError("it proved something")


@given(proofs)
def test_no_proof_but_the_right_one(proof: bytes) -> None:
    exchange = ScramExchange("nonce", {"user": SECRET}.get, b"decoy")
    exchange.challenge(b"n,,n=user,r=abc")
    try:
        exchange.prove(b"c=biws,r=abcnonce,p=" + b64encode(proof))
    except ScramProofWrong:
        return
    raise AssertionError("it proved something")
