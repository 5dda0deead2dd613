"""`edgebroker passwd FILE USER`: changes and checks a password file. docs/access.md explains the file."""

from __future__ import annotations

import difflib
import json
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import click

from edgebridge.session.passwordfile import PasswordFile, PasswordInvalid, User, check_password, make_user
from edgebridge.session.passwordhash import SALT_BYTES, Pbkdf2
from edgebroker.cli.parameters import WordChoice, examples
from edgebroker.limits import OPERATOR_FILE_BYTES_MAX
from edgebroker.runtime.private_files import is_open_to_others, read_private, replace_private


@click.command(
    "passwd",
    epilog=examples(
        "edgebroker passwd users anna",
        "head -c 15 /dev/urandom | base64 > pump-3.txt",
        "edgebroker passwd users pump-3 --password-file pump-3.txt",
    ),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("user", required=False)
@click.argument("password", required=False)
@click.option("--password-file", type=click.File("r"), help="Take the password from the first line of a file.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Take the password from the first line of standard input.")
@click.option("--delete", "-D", is_flag=True, help="Delete the user.")
@click.option("-c", "--create", is_flag=True, help="Make FILE, and do nothing if it is there already.")
@click.option("-b", "batch", is_flag=True, help="As mosquitto_passwd's: PASSWORD is on the command line.")
@click.option(
    "-U", "--update", is_flag=True, help="As mosquitto_passwd's: FILE has passwords in plain text; hash each of them."
)
@click.option("--check", is_flag=True, help="Change nothing: is this the password? Without USER: is the file in order?")
@click.option(
    "--hash",
    "kind",
    type=WordChoice(["scrypt", "pbkdf2"]),
    default="scrypt",
    show_default=True,
    help="How it is stored; pbkdf2 is the one that Mosquitto reads too.",
)
@click.option(
    "--scram", is_flag=True, help="Store a secret for SCRAM-SHA-256 too; it is easier to guess from than scrypt."
)
@click.option("--json", "as_json", is_flag=True, help="With --check, for programs: one JSON object.")
def command(
    file: Path,
    user: str | None,
    password: str | None,
    password_file: TextIO | None,
    from_stdin: bool,
    delete: bool,
    create: bool,
    batch: bool,
    update: bool,
    check: bool,
    kind: str,
    scram: bool,
    as_json: bool,
) -> None:
    """Add USER to the password FILE, change the password, or delete or check it. With -U, hash what is plain text.

    The password is asked for twice at a terminal. FILE is made if it is not there, and replaced as a whole: a broker
    never reads half of it. A running gateway reads it again on SIGHUP.

    Exit code 0 if all is well, 1 if a check says no, 2 if nothing could be done.
    """
    if sum((password is not None, password_file is not None, from_stdin)) > 1:
        raise click.UsageError("one of PASSWORD, --password-file and --stdin")
    if delete and (check or scram):
        raise click.UsageError("--delete goes alone")
    if update and (user is not None or password_file or from_stdin or delete or check or create):
        raise click.UsageError("--update takes FILE, and --hash or --scram")
    if batch and password is None:
        raise click.UsageError("-b wants FILE USER PASSWORD")
    if create and file.exists():
        raise click.UsageError(f"{file} is there already, and -c would empty it: leave -c out, and the user is added")
    users = (
        PasswordFile.parse(read_private(file, may_wait=True))
        if file.exists() or check or delete or update
        else PasswordFile()
    )
    if update:
        users = users.hashed(lambda name, plain: _make_user(name, plain, kind, scram))
        _replace(file, users)
    for problem in users.problems:
        if not as_json:
            click.echo(f"{file}: {problem}", err=True)
    if update:
        click.echo(f"{len(users.users)} users")
        return
    if user is None:
        if not check:
            raise click.UsageError("Missing argument 'USER'.")
        _exit_with(as_json, ok=not users.problems, users=len(users.users), problems=list(map(str, users.problems)))
        return
    if delete:
        _check_known(users, user)
        _replace(file, users.without_user(user))
        return
    password = _read_password(password, password_file, from_stdin, needs_confirmation=not check)
    if check:
        _check_known(users, user)
        _exit_with(as_json, ok=users.accepts(user, check_password(password)), user=user)
        return
    _replace(file, users.with_user(_make_user(user, password, kind, scram)))


def _read_password(given: str | None, file: TextIO | None, from_stdin: bool, needs_confirmation: bool) -> str:
    """Returns the password from the command line, *file*, standard input or a prompt. Raises click.UsageError."""
    if given is not None:
        click.echo("warning: a password on the command line is seen by every user of this machine", err=True)
        return given
    if file is not None:
        return file.readline().rstrip("\r\n")
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=needs_confirmation))
    raise click.UsageError("no terminal to ask for the password: use --stdin or --password-file")


def _make_user(name: str, password: str, kind: str, scram: bool) -> User:
    """Returns a user whose password is hashed by *kind*. Raises PasswordInvalid."""
    salt, scram_salt = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(SALT_BYTES) if scram else None
    user = make_user(name, password, salt, scram_salt)
    if kind == "pbkdf2":
        user = replace(user, hash=Pbkdf2.make(check_password(password), secrets.token_bytes(SALT_BYTES)))
    return user


def _replace(file: Path, users: PasswordFile) -> None:
    if is_open_to_others(file):
        click.echo(f"{file} was readable by everybody; now it is not", err=True)
    text = str(users)
    if len(text.encode()) > OPERATOR_FILE_BYTES_MAX:
        raise PasswordInvalid(f"{file} would have more than {OPERATOR_FILE_BYTES_MAX:,} bytes, which no gateway reads")
    replace_private(file, text)


def _check_known(users: PasswordFile, user: str) -> None:
    """Raises PasswordInvalid, with the most similar name, if *user* is not in the file."""
    if user in users.users or any(line.partition(":")[0].strip() == user for line in users.lines):
        return
    nearest = difflib.get_close_matches(user, users.users, n=1)
    raise PasswordInvalid(f"there is no user {user!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else ""))


def _exit_with(as_json: bool, ok: bool, **facts: object) -> None:
    """Prints the result of a check, and exits with its code."""
    if as_json:
        click.echo(json.dumps({"ok": ok, **facts}))
    elif "user" in facts:
        click.echo("right" if ok else "wrong")
    elif ok:
        click.echo(f"{facts['users']} users, no problem")
    sys.exit(0 if ok else 1)
