"""Broken password, key and access-control files, and tokens: the readers answer with problems that name the line,
never with an exception or an open door.
"""

from __future__ import annotations

import random

import pytest

from edgebridge.session.acl import Acl, AclInvalid
from edgebridge.session.passwordfile import PasswordFile
from edgebridge.session.token import CLOCK_IS_SET_AFTER, Token, TokenInvalid, TokenKeys, key_line

ROUNDS = 4_000
KEY = "qgs1QcSFOIvzZ3UqBhBGWcPvsJzdjzo6LcJDQ2NcHbXzAhhBmhN3M2H3vGq2ezGZ6jWnOAe4bWx2L1dXb1DTBg=="
PASSWORDS = f"""\
# users
anna:$scrypt$ln=14,r=8,p=1$AAECAwQFBgcICQoLDA0ODw$AAECAwQFBgcICQoLDA0ODwABAgMEBQYHCAkKCwwNDg8
bob:$7$101$Z7wyStXtimbqI8f5${KEY}
carl:$6$P41Ab3+OLioKTJP5${KEY}:$scram-sha-256$i=4096$AAEC${KEY[:43]}=${KEY[:43]}=
"""
ACL = """\
topic read public/#
user anna
topic sensors/+/x
topic read t where temp > 30 AND NOT (site = 'n' OR $size < 100)
topic deny secret/#
user bert
topic subscribe a/#
pattern readwrite devices/%c/%u/#
"""


def mutated(text: str, chance: random.Random) -> str:
    """*text* with a few characters replaced, repeated, taken out or moved."""
    characters = list(text)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(characters))
        match chance.randrange(5):
            case 0:
                characters[at] = chr(chance.choice((0, 9, 10, 13, 32, 36, 58, 61, 0x7F, 0xD800, 0x1F600)))
            case 1:
                characters[at:at] = characters[at : at + chance.randrange(80)]
            case 2:
                del characters[at : at + chance.randrange(40)]
            case 3:
                characters[at] = chance.choice("$:,=0123456789lnrp#+/")
            case 4:
                characters[at:at] = chance.choice(("$scrypt$", "$7$", ":", "\n", "9" * 30, "ln=20,r=64", "\ufeff"))
        if not characters:
            characters = ["\n"]
    return "".join(characters)


def test_password_files(chance: random.Random) -> None:
    for _ in range(ROUNDS):
        text = mutated(PASSWORDS, chance)
        users = PasswordFile.parse(text)
        lines = text.split("\n")
        for problem in users.problems:
            assert 1 <= problem.line <= len(lines)
            assert len(str(problem)) < 400
        for name, user in users.users.items():
            assert lines[user.line - 1].removeprefix("\ufeff").partition(":")[0].strip() == name
            assert user.hash.cost < 4_000_000  # microseconds: no line can make a check take longer


def test_access_control_files(chance: random.Random) -> None:
    """What is left of a file without the lines that are wrong can be read."""
    refused = 0
    for _ in range(ROUNDS):
        text = mutated(ACL, chance)
        lines = text.split("\n")
        try:
            Acl.parse(text)
        except AclInvalid as invalid:
            refused += 1
            for problem in invalid.problems:
                assert 1 <= problem.line <= len(lines)
                assert len(str(problem)) < 600
                lines[problem.line - 1] = ""
            Acl.parse("\n".join(lines))
    assert ROUNDS // 10 < refused < ROUNDS


def test_key_files_and_tokens(chance: random.Random) -> None:
    """A token that was changed in any way does not hold."""
    text = "# keys\n" + "\n".join(key_line(name, bytes(range(32))) for name in ("a", "b", "c")) + "\n"
    keys = TokenKeys.parse(text)
    whole = keys.make(Token("pump", CLOCK_IS_SET_AFTER + 9, key_id="b"), ["write a/# where v > 1"])
    for _ in range(ROUNDS):
        for problem in TokenKeys.parse(mutated(text, chance)).problems:
            assert problem.line >= 1
        changed = mutated(whole, chance).encode("utf-8", "surrogatepass")
        if changed != whole.encode():
            with pytest.raises(TokenInvalid) as caught:
                keys.read(changed, CLOCK_IS_SET_AFTER)
            assert len(str(caught.value)) < 300
