"""`edgebroker token`: makes keys, and makes and checks tokens signed with them. docs/access.md explains both."""

from __future__ import annotations

import json
import secrets
import sys
import time
from pathlib import Path

import click

from edgebridge.session.token import KEY_BYTES_MIN, JsonWebToken, TokenInvalid, TokenKeys, key_line
from edgebroker.cli import Refused
from edgebroker.cli.parameters import DurationType, examples
from edgebroker.runtime.private_files import read_private, replace_private


@click.group("token", help="Make and check signed tokens, and keys for them.")
def command() -> None:
    """The group; see its commands."""


@command.command(
    "key", short_help="Add a new key called KEY_ID to FILE.", epilog=examples("edgebroker token key keys 2027")
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("key_id")
def make_key(file: Path, key_id: str) -> None:
    """Add a new key called KEY_ID to FILE, which is made if it is not there.

    Whoever can read the file can make tokens: it is readable by its owner alone.
    """
    text = read_private(file, may_wait=True) if file.exists() else ""
    if key_id in TokenKeys.parse(text).keys:
        raise Refused(
            f"{file}: the key {key_id} is there already: give the new one another name, and delete the old later"
        )
    line = key_line(key_id, secrets.token_bytes(KEY_BYTES_MIN))
    replace_private(file, text + ("" if not text or text.endswith("\n") else "\n") + line + "\n")


@command.command("make", epilog=examples("edgebroker token make keys pump-3 --for 30d --allow 'write pumps/3/#'"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("user")
@click.option(
    "--for", "duration", type=DurationType(), default="30d", show_default=True, help="How long: 90s, 15m, 12h, 30d."
)
@click.option("--key", "key_id", help="Which key signs; without it the last of the file.")
@click.option(
    "--allow", "rules", multiple=True, metavar="RULE", help="Allows at most this: 'write pumps/3/#'. May be repeated."
)
def make(file: Path, user: str, duration: int, key_id: str | None, rules: tuple[str, ...]) -> None:
    """Print a token for USER, signed with a key of FILE. A client sends it as its password."""
    keys = _keys(file)
    if key_id is None:
        key_id = list(keys.keys)[-1] if keys.keys else ""
    until = int(time.time()) + duration
    click.echo(keys.make(JsonWebToken(user, until, key_id=key_id), list(rules) if rules else None))


@command.command(
    "check",
    short_help="Does TOKEN hold, for the keys of FILE?",
    epilog=examples("edgebroker token check keys < token.txt"),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("token", required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
def check(file: Path, token: str | None, as_json: bool) -> None:
    """Does TOKEN (without it, the first line of standard input) hold, for the keys of FILE?

    Exit code 0 if it does, 1 if not.
    """
    text = (token if token is not None else sys.stdin.readline()).strip()
    now = int(time.time())
    try:
        claims = _keys(file).read(text.encode(), now)
    except TokenInvalid as error:
        click.echo(json.dumps({"ok": False, "reason": str(error)}) if as_json else f"does not hold: {error}")
        sys.exit(1)
    rules = None if claims.rules is None else len(claims.rules)
    if as_json:
        click.echo(
            json.dumps({"ok": True, "user": claims.user, "key": claims.key_id, "until": claims.until, "rules": rules})
        )
    else:
        allows = "whatever its user may do" if rules is None else f"at most {rules} rules"
        click.echo(f"holds: {claims.user}, key {claims.key_id}, for {claims.until - now:,} s, {allows}")


def _keys(file: Path) -> TokenKeys:
    keys = TokenKeys.parse(read_private(file, may_wait=True))
    for problem in keys.problems:
        click.echo(f"{file}: {problem}", err=True)
    return keys
