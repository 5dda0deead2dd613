"""The password file: what is read, what is written, what is refused, and what mosquitto_passwd makes of it."""

from __future__ import annotations

import hashlib
import hmac
import shutil
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgebridge.session.passwordfile import PasswordFile, PasswordInvalid, User, check_user_name, make_user
from edgebridge.session.passwordhash import HashInvalid, Pbkdf2, SaltedSha512, Scrypt, read_password_hash
from edgebridge.session.scram import ScramSecret, SecretInvalid, saslprep
from edgebroker.cli import main
from edgebroker.limits import OPERATOR_FILE_BYTES_MAX

MOSQUITTO_PASSWD = shutil.which("mosquitto_passwd")
SALT = bytes(range(16))
WEAK = "$6$" + "AAECAwQFBgcICQoL$" + "A" * 86 + "=="
# What mosquitto_passwd 2.0.11 wrote for these passwords.
BY_MOSQUITTO = """\
# users of the old broker
bob:$7$101$Z7wyStXtimbqI8f5$VCWKzwO1narUwnTy4SqaEbqvxvHsoCyEWfR7H6cwjuNcxeQQ7gcVVe517OHVZc6SpqYEv2J4WSJaLbjsO7P/gA==
carl:$6$P41Ab3+OLioKTJP5$7LsKTO5btwDAGNY6RnOuSk4x9fczTGC3bwtlpwc5zyjUhnzKR8EaZQ7yuqcvWa2JZgKSPXS9NK7jfKEbWsHwng==
"""


def test_lines_of_mosquitto_are_read() -> None:
    users = PasswordFile.parse(BY_MOSQUITTO)
    assert not users.problems
    assert users.accepts("bob", "pä ss:wörd".encode())
    assert users.accepts("carl", b"x")
    assert not users.accepts("bob", b"x")
    assert not users.accepts("carl", b"")
    assert not users.accepts("dora", b"x")


def test_scrypt_is_that_of_rfc_7914() -> None:
    """Section 12, the third vector, as far as our key goes."""
    key = bytes.fromhex("7023bdcb3afd7348461c06cd81fd38eb")
    assert Scrypt(14, 8, 1, b"SodiumChloride", key).accepts(b"pleaseletmein")


def test_what_is_made_is_read_again() -> None:
    user = make_user("anna", "grün 1:2$3", SALT, SALT[::-1])
    again = PasswordFile.parse(f"{user}\n")
    assert not again.problems
    read = again.users["anna"]
    assert (read.hash, read.scram) == (user.hash, user.scram)
    assert str(read) == str(user)
    assert again.accepts("anna", "grün 1:2$3".encode())
    assert not again.accepts("anna", b"gr")


def test_a_scram_secret_is_that_of_rfc_7677() -> None:
    """Section 3: user `user`, password `pencil`; the client's proof and the server's signature fit the keys."""
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    secret = ScramSecret.make("pencil", salt, 4_096)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(secret.stored_key, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == secret.stored_key
    assert hmac.digest(secret.server_key, message, "sha256") == b64decode(
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert ScramSecret.read(str(secret)) == secret


@pytest.mark.parametrize(
    ("given", "prepared"), [("I\u00adX", "IX"), ("user", "user"), ("\u00aa", "a"), ("\u2168", "IX")]
)
def test_saslprep(given: str, prepared: str) -> None:
    """RFC 4013 section 3."""
    assert saslprep(given) == prepared


@pytest.mark.parametrize("given", ["\u0007", "\u0627\u0031", ""])
def test_saslprep_prohibits(given: str) -> None:
    with pytest.raises(SecretInvalid):
        saslprep(given)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("anna", "there is no ':' after a user name"),
        ("anna:", "no hash, but perhaps a password as it is"),
        ("anna:hunter2", "no hash, but perhaps a password as it is"),
        (f":{WEAK}", "a user name is not empty"),
        ("anna:$1$salt$key", "the hash $1$ is not known here"),
        ("anna:$6$AAAA", "a $6$ hash has 2 parts after it, this one 1"),
        ("anna:$7$0$AAAA$AAAA", "the number of iterations is a number from 1 to 5,000,000"),
        ("anna:$7$99999999999$AAAA$AAAA", "the number of iterations is a number from 1"),
        ("anna:$7$101$AAAA$AAAA", "the key has 3 bytes, not 64"),
        ("anna:$7$101$????$AAAA", "the salt is no base64"),
        ("anna:$scrypt$ln=14,r=8$AAAA$AAAA", "are written ln=14,r=8,p=1"),
        ("anna:$scrypt$ln=14,r=8,p=1,p=1$AAAA$AAAA", "are written ln=14,r=8,p=1"),
        ("anna:$scrypt$ln=20,r=64,p=1$AAAA$AAAA", "takes 8192 MiB, at most 64 are given"),
        ("anna:$scrypt$ln=14,r=8,p=1$AAAA$AAAA", "the key has 3 bytes; at least 16 are hard to guess"),
        (f"anna:{WEAK}:scram", "a SCRAM secret is written $scram-sha-256$"),
        (f"anna:{WEAK}:$scram-sha-256$i=1$AAAA$AAAA$AAAA", "has 4,096 to 10,000,000 iterations, not 1"),
        (f"anna:{WEAK}:$scram-sha-256$i=4096${'A' * 2_000}$AAAA$AAAA", "its salt 1 to 1,024"),
    ],
)
def test_a_bad_line_is_a_problem_and_opens_to_nobody(line: str, reason: str) -> None:
    users = PasswordFile.parse(f"# first\n{line}\nbob:{WEAK}\n")
    assert [problem.line for problem in users.problems] == [2]
    assert reason in str(users.problems[0])
    assert "hunter2" not in str(users.problems[0])
    assert list(users.users) == ["bob"]


def test_the_same_problem_of_lines_in_a_row_is_told_once() -> None:
    """A file of another kind has it in thousands of lines, and a reload tells all that is wrong."""
    users = PasswordFile.parse("x\ny\n\n# z\nz\na:$9$x\n" + "b\n" * 1_000)
    assert [str(problem).partition(": ")[0] for problem in users.problems] == [
        "lines 1 to 2",
        "line 5",
        "line 6",
        "lines 7 to 1006",
    ]


def test_a_user_twice_is_none() -> None:
    users = PasswordFile.parse(f"anna:{WEAK}\nbob:{WEAK}\nanna:{WEAK}\n")
    assert list(users.users) == ["bob"]
    assert str(users.problems[0]).startswith("line 3: the user 'anna' stands in line 1 too; neither line holds")


@pytest.mark.parametrize("name", ["", " a", "a ", "a:b", "#a", "a\nb", "a\0", "x" * 1_025])
def test_names_that_a_line_cannot_hold(name: str) -> None:
    with pytest.raises(PasswordInvalid):
        check_user_name(name)


class Counted:
    """A hash of the cost *cost* that counts how often it is asked."""

    def __init__(self, cost: int) -> None:
        self.cost = cost
        self.asked = 0

    def accepts(self, password: bytes) -> bool:
        self.asked += 1
        return password == b"right"


def test_a_wrong_name_costs_what_a_wrong_password_costs() -> None:
    """Every question is answered after one check of each cost that there is, whoever is named."""
    slow, middle, quick = kinds = Counted(58_000), Counted(41_000), Counted(2)
    users: Any = {"slow": _user("slow", slow), "middle": _user("middle", middle), "quick": _user("quick", quick)}
    file = PasswordFile(users, decoys=kinds)  # type: ignore[arg-type]
    for name, password, right in (
        ("slow", b"right", True),
        ("slow", b"wrong", False),
        ("middle", b"right", True),
        ("middle", b"wrong", False),
        ("quick", b"right", True),
        ("quick", b"wrong", False),
        ("nobody", b"right", False),
    ):
        before = [one.asked for one in kinds]
        assert file.accepts(name, password) is right
        assert [one.asked for one in kinds] == [asked + 1 for asked in before], name


def test_the_decoys_are_of_each_cost_and_the_costliest_is_the_first() -> None:
    users = [User(name, SaltedSha512(b"s", bytes(64))) for name in ("old", "older")]
    iterations = {"a": 100_000, "b": 101, "c": 100_000}
    users += [User(name, Pbkdf2(count, b"s", bytes(64))) for name, count in iterations.items()]
    users += [User("d", Scrypt(14, 8, 1, b"s", bytes(32)))]
    file = PasswordFile.parse("\n".join(map(str, users)))
    assert file.decoys == tuple(file.users[name].hash for name in ("a", "d", "b", "old"))
    assert file.decoy == file.users["a"].hash
    assert PasswordFile().decoy is None


def _user(name: str, kept: Any) -> Any:
    user = make_user(name, "x", SALT)
    object.__setattr__(user, "hash", kept)
    return user


def test_other_lines_stay_as_they_are() -> None:
    before = PasswordFile.parse(BY_MOSQUITTO)
    more = before.with_user(make_user("anna", "secret", SALT))
    assert str(more).startswith(BY_MOSQUITTO)
    assert list(more.users) == ["bob", "carl", "anna"]
    changed = more.with_user(make_user("bob", "new", SALT))
    assert list(changed.users) == ["bob", "carl", "anna"]
    assert changed.accepts("bob", b"new")
    assert str(changed).startswith("# users of the old broker\nbob:$scrypt$")
    assert str(changed.without_user("bob").without_user("anna")) == BY_MOSQUITTO.replace(
        BY_MOSQUITTO.splitlines()[1] + "\n", ""
    )
    with pytest.raises(PasswordInvalid):
        before.without_user("dora")


def test_a_user_that_stood_twice_stands_once_after_a_change() -> None:
    users = PasswordFile.parse(f"anna:{WEAK}\nanna:{WEAK}\n").with_user(make_user("anna", "x", SALT))
    assert not users.problems
    assert list(users.users) == ["anna"]


# -- the command ----------------------------------------------------------------------------------------------


def run(*arguments: object, given: str = "") -> Any:
    return CliRunner().invoke(main, ["passwd", *map(str, arguments)], input=given)


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    assert run(file, "anna", "--stdin", given="grün\n").exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["passwords"]
    assert run(file, "anna", "--check", "--stdin", given="grün").exit_code == 0
    assert run(file, "anna", "--check", "--stdin", given="blau").exit_code == 1
    answer = run(file, "anna", "--check", "--stdin", "--json", given="blau")
    assert (answer.exit_code, answer.stdout) == (1, '{"ok": false, "user": "anna"}\n')
    assert run(file, "--check").output == "1 users, no problem\n"
    wrong = run(file, "ana", "--delete")
    assert (wrong.exit_code, wrong.output) == (2, "Error: there is no user 'ana'; did you mean 'anna'?\n")
    assert run(file, "anna", "--delete").exit_code == 0
    assert file.read_text() == ""


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o640, 0o640), (0o660, 0o640), (0o644, 0o600)])
def test_the_group_of_a_service_may_go_on_reading(tmp_path: Path, before: int, after: int) -> None:
    file = tmp_path / "passwords"
    file.touch()
    file.chmod(before)
    assert run(file, "anna", "--stdin", given="x\n").exit_code == 0
    assert file.stat().st_mode & 0o777 == after


def test_the_command_refuses(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    for arguments, given, reason in (
        ((file, "anna"), "", "no terminal to ask for the password"),
        ((file,), "", "Missing argument 'USER'"),
        ((file, "a:b", "--stdin"), "x\n", "a user name has no ':'"),
        ((file, "anna", "--stdin"), "\n", "the password is empty"),
        ((file, "anna", "x", "--stdin"), "x\n", "one of PASSWORD"),
        ((file, "anna", "-b"), "", "-b wants FILE USER PASSWORD"),
        ((__file__, "anna", "-c", "--stdin"), "x\n", "leave -c out"),
        ((file, "anna", "--delete"), "", "cannot be read"),
        ((tmp_path / "no" / "passwords", "anna", "--stdin"), "x\n", "cannot be written"),
    ):
        answer = run(*arguments, given=given)
        assert answer.exit_code == 2, arguments
        assert reason in answer.output
    assert not file.exists()


def test_a_password_on_the_command_line_is_warned_of(tmp_path: Path) -> None:
    answer = run("-c", "-b", tmp_path / "passwords", "anna", "secret")  # as to mosquitto_passwd
    assert answer.exit_code == 0
    assert "is seen by every user of this machine" in answer.output


def test_passwords_in_plain_text_are_hashed(tmp_path: Path) -> None:
    """As `mosquitto_passwd -U` does, without the blanks around them. Hashes and comments stay, also broken ones."""
    file = tmp_path / "passwords"
    kept = str(make_user("old", "known", b"s" * 12))
    file.write_text(f"# anna:no\nanna: secret one \n\n{kept}\neve:$7$101$oops$x\nbob:a:b\n")
    answer = run(file, "-U", "--scram")
    assert (answer.exit_code, "line 5" in answer.output, "3 users" in answer.output) == (0, True, True)
    lines = file.read_text().split("\n")
    assert (lines[0], lines[3], lines[4]) == ("# anna:no", kept, "eve:$7$101$oops$x")
    for name, password in (("anna", "secret one"), ("old", "known"), ("bob", "a:b")):
        assert run(file, name, "--check", "--stdin", given=password).exit_code == 0, name
    assert PasswordFile.parse(file.read_text()).users["anna"].scram is not None
    assert run(file, "-U").exit_code == 0
    assert file.read_text().split("\n") == lines


def test_a_password_that_cannot_be_hashed_leaves_the_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.write_text("anna:secret\nbob: \n")
    answer = run(file, "--update")
    assert (answer.exit_code, answer.output) == (2, "Error: line 2: the password is empty\n")
    assert file.read_text() == "anna:secret\nbob: \n"
    assert "--update takes FILE" in run(file, "anna", "-U").output


def test_a_file_with_bad_lines_is_mended(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.write_text(f"anna:plain\nbob:{WEAK}\n")
    file.chmod(0o644)
    checked = run(file, "--check")
    assert checked.exit_code == 1
    assert "line 1: no hash, but perhaps a password as it is" in checked.output
    changed = run(file, "anna", "--stdin", given="x\n")
    assert "was readable by everybody" in changed.output
    assert file.stat().st_mode & 0o777 == 0o600
    assert run(file, "--check").output == "2 users, no problem\n"


@pytest.mark.skipif(MOSQUITTO_PASSWD is None, reason="mosquitto_passwd is not installed")
def test_mosquitto_passwd_writes_what_we_read(tmp_path: Path) -> None:
    file = tmp_path / "passwords"
    file.touch()
    given = [("u1", "x"), ("u 2", "pä ss:wörd$"), ("u3", "a" * 200), ("ü4", "%c#+/")]
    for number, (user, password) in enumerate(given):
        kind = ["-H", "sha512"] if number % 2 else []
        subprocess.run([str(MOSQUITTO_PASSWD), *kind, "-b", str(file), user, password], check=True)
    users = PasswordFile.parse(file.read_text())
    assert not users.problems
    assert {type(user.hash) for user in users.users.values()} == {Pbkdf2, SaltedSha512}
    for user, password in given:
        assert users.accepts(user, password.encode()), user
        assert not users.accepts(user, password.encode() + b"x")
        assert str(read_password_hash(str(users.users[user].hash))) == str(users.users[user].hash)


def test_a_hash_is_read_as_a_whole() -> None:
    with pytest.raises(HashInvalid):
        read_password_hash(WEAK + "$")


def test_the_command_writes_no_file_that_a_gateway_would_not_read(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("#" * (OPERATOR_FILE_BYTES_MAX - 50))
    done = run(file, "anna", "--stdin", given="secret\n")
    assert (done.exit_code, "would have more than 1,048,576 bytes" in done.output) == (2, True)
    assert file.stat().st_size == OPERATOR_FILE_BYTES_MAX - 50
