"""`edgebroker acl FILE`: checks the rules and evaluates them. docs/access.md explains the file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from edgebridge.session.acl import ANONYMOUS_USER, Acl, AclInvalid
from edgebridge.session.authorization import AccessDecision, AclRights
from edgebridge.session.subscription_text import parse_subscription
from edgebroker.cli.parameters import WordChoice, examples
from edgebroker.publication import Publication
from edgebroker.runtime.private_files import read_private
from edgebroker.topics import parse_topic_name


@click.command(
    "acl",
    epilog=examples(
        "edgebroker acl rules", "edgebroker acl rules write pumps/3/state --user pump-3 --payload '{\"temp\": 31}'"
    ),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("access", required=False, type=WordChoice(["read", "write", "subscribe"]))
@click.argument("topic", required=False)
@click.option(
    "-u",
    "--username",
    "--user",
    "user",
    default=ANONYMOUS_USER,
    help="Who; without it, somebody who proved to be nobody in particular.",
)
@click.option("--client", default="client", show_default=True, help="The client identifier.")
@click.option("--payload", help="What the message says: decides where conditions do.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
def command(
    file: Path, access: str | None, topic: str | None, user: str, client: str, payload: str | None, as_json: bool
) -> None:
    """Check an access-control FILE. With ACCESS and TOPIC: may the client do that?

    Exit code 0 if the file is in order and the answer is yes, 1 if not, 2 if nothing could be asked.
    """
    if access and topic is None:
        raise click.UsageError("Missing argument 'TOPIC'.")
    try:
        acl = Acl.parse(read_private(file, may_wait=True))
    except AclInvalid as invalid:
        if as_json:
            click.echo(json.dumps({"ok": False, "problems": list(map(str, invalid.problems))}))
        else:
            for problem in invalid.problems:
                click.echo(f"{file}: {problem}", err=True)
        sys.exit(1)
    if access is None or topic is None:
        rules, users = sum(1 for _ in acl.rules()), len(acl.users) - 1
        click.echo(
            json.dumps({"ok": True, "rules": rules, "users": users}) if as_json else f"{rules} rules, {users} users"
        )
        return
    rights = AclRights(acl).rights(user, client)
    if access == "subscribe":
        is_permitted = rights.subscribe(parse_subscription(topic).topic_filter)
        answer = "yes" if is_permitted else "no"
    else:
        decision = (rights.read if access == "read" else rights.write)(parse_topic_name(topic))
        publication = Publication(client, topic, (payload or "").encode(), 0, False, 0)
        is_permitted = decision.permits(publication)
        answer = "yes" if is_permitted else "no"
        if payload is None and decision.conditions:
            answer, is_permitted = _conditions(decision), True
    click.echo(json.dumps({"ok": is_permitted, "answer": answer}) if as_json else answer)
    sys.exit(0 if is_permitted else 1)


def _conditions(decision: AccessDecision) -> str:
    return "if " + " or ".join(condition.text for condition in decision.conditions)
