"""`edgebroker init [DIR]`: makes certificates, a first user, settings and a systemd unit; overwrites nothing."""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shlex
import shutil
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from edgebridge.session.passwordfile import PasswordFile, make_user
from edgebridge.session.passwordhash import SALT_BYTES
from edgebroker.cli import Refused
from edgebroker.cli.init.authority import CERTIFICATE_DAYS, Authority, KeyPair
from edgebroker.cli.init.template import FOLDERS, settings_file, unit_file
from edgebroker.cli.output import Unwritable, say
from edgebroker.runtime.private_files import replace_private

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9a-fA-F:.]{2,45}")
TOKEN_BYTES = 24
PASSWORD_BYTES = 15
"""120 random bits, 20 characters: short enough to be typed once into a device."""


Folder = click.Path(path_type=Path, file_okay=False)


@click.command("init")
@click.argument("directory", metavar="[DIR]", default=".", type=Folder)
@click.option("--host", "hosts", multiple=True, help="A name or address of this gateway; may be repeated.")
@click.option("--name", "--node", "node", help="What the gateway is called.  [default: this machine's name]")
@click.option("-u", "--username", "--user", "user", default="admin", show_default=True, help="The first user.")
@click.option("--client", default="example", show_default=True, help="Whom the first client certificate names.")
@click.option("--ca-dir", "ca_folder", type=Folder, metavar="DIR", help="Sign with ca.crt and ca.key of this folder.")
@click.option("--new-ca", "is_second_ca", is_flag=True, help="Make an authority although there is one nearby.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object.")
def command(
    directory: Path,
    hosts: tuple[str, ...],
    node: str | None,
    user: str,
    client: str,
    ca_folder: Path | None,
    is_second_ca: bool,
    as_json: bool,
) -> None:
    """Make a certificate authority, certificates, a first user and settings in DIR (here, if none is named).

    Nothing that is there is overwritten: then exit code 2, and nothing is done. The user's password is made by chance
    and shown this once. Certificates are made by the program `openssl`. One authority does for all gateways: where one
    is found in this folder or next to DIR, say with --ca-dir that it signs for this gateway too.

    \b
    edgebroker init gateway-1
    edgebroker init gateway-2 --ca-dir gateway-1 --host 192.168.1.12
    """  # noqa: D301 - click reads \b, the character: keep the lines below it as they are
    for value, option in ((user, "--username"), (client, "--client"), *(((node, "--name"),) if node else ())):
        if not NAME.fullmatch(value):
            raise click.UsageError(f"{option} {value!r}: 1 to 64 letters, digits, '.', '_' or '-'")
    for host in hosts:
        if not HOST.fullmatch(host):
            raise click.UsageError(f"--host {host!r}: write a host name or an IP address")
    names = list(hosts) or own_names()
    wanted = ["gateway.toml", "users", "http-token", "edgebroker.service", "ca.crt"]
    wanted += ["ca.key"] if ca_folder is None else []  # that stays where it is
    wanted += ["server.crt", "server.key", f"clients/{client}.crt", f"clients/{client}.key"]
    if existing := [name for name in wanted if os.path.lexists(directory / name)]:
        raise Refused(f"{directory} has {', '.join(existing)} already; nothing is overwritten: name another directory")
    authority = None
    if ca_folder is not None:
        authority = Authority(KeyPair(ca_folder / "ca.crt", ca_folder / "ca.key"))
        if missing := [str(path) for path in (authority.pair.certificate, authority.pair.key) if not path.is_file()]:
            raise Refused(f"--ca-dir {ca_folder}: there is no {' and no '.join(missing)}")
    elif not is_second_ca and (found := authority_near(directory)) is not None:
        raise Refused(
            f"there is an authority in {found} already, and who trusts it does not trust another one: "
            f"--ca-dir {shlex.quote(str(found))} lets it sign for this gateway too, --new-ca makes a second one"
        )
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    folders = [directory / name for name in ("clients", *FOLDERS)] + [directory, *directory.parents]
    new_folders = [folder for folder in folders if not os.path.lexists(folder)]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".init-", dir=directory) as scratch:
            name = node or own_node_name()
            make(Path(scratch), directory.resolve(), name, names, user, password, client, authority)
            (directory / "clients").mkdir(exist_ok=True)
            for folder in FOLDERS:  # the unit permits writes to these folders, but the gateway may not create others
                (directory / folder).mkdir(mode=0o700, exist_ok=True)
            for file in wanted:
                os.rename(Path(scratch, file), directory / file)
    except BaseException as error:
        remove_created([directory / name for name in wanted], new_folders)
        if not isinstance(error, OSError):
            raise
        raise Refused(f"cannot write into {directory}: {error.strerror}") from error
    result = {"directory": str(directory), "files": wanted, "hosts": names, "user": user, "password": password}
    try:
        say(json.dumps(result) if as_json else report(directory, names, user, password, client, ca_folder))
    except (Unwritable, BrokenPipeError) as error:
        cause = error if isinstance(error, Unwritable) else "nobody reads standard output"
        remedy = f"edgebroker passwd {shlex.join([str(directory / 'users'), user])}"
        raise Refused(
            f"all is made in {directory}, but the password of {user} is not shown: {cause}; give another one: {remedy}"
        ) from error


def authority_near(directory: Path) -> Path | None:
    """Returns a folder in which `init` has made an authority: the current one, the parent of *directory*, or one
    beside it.
    """
    parent = directory.absolute().parent
    for folder in (Path(), parent, *sorted(parent.glob("*/"))):
        with suppress(OSError):  # it may not be read
            if all((folder / name).is_file() for name in ("gateway.toml", "ca.crt", "ca.key")):
                return folder
    return None


def make(
    folder: Path,
    final: Path,
    node: str,
    hosts: list[str],
    user: str,
    password: str,
    client: str,
    authority: Authority | None,
) -> None:
    """Writes all files into *folder*, which will be moved to *final*. Without *authority* it makes one. Raises
    OpensslFailed, OSError.
    """
    if authority is None:
        authority = Authority.make(folder, f"{node} authority")
    else:
        shutil.copyfile(authority.pair.certificate, folder / "ca.crt")
    authority.server(folder, hosts)
    (folder / "clients").mkdir()
    authority.client(folder / "clients", client)
    users = PasswordFile().with_user(make_user(user, password, secrets.token_bytes(SALT_BYTES), None))
    replace_private(folder / "users", str(users))
    replace_private(folder / "http-token", secrets.token_hex(TOKEN_BYTES) + "\n")
    (folder / "gateway.toml").write_text(settings_file(node, hosts), encoding="utf-8")
    unit = unit_file(own_program(), str(final), pwd.getpwuid(os.getuid()).pw_name)
    (folder / "edgebroker.service").write_text(unit, encoding="utf-8")


def own_program() -> list[str]:
    """Returns the command that runs us, for the unit: PATH may lead to another installation."""
    script = shutil.which(sys.argv[0])  # a path as it is; a wrapper may leave the name alone
    if script is not None and Path(script).name == "edgebroker":
        return [os.path.abspath(script)]
    return [sys.executable, "-P", "-m", "edgebroker"]


def remove_created(files: list[Path], folders: list[Path]) -> None:
    """Deletes *files*, and those of *folders* that are empty then, as far as the system permits."""
    for path in files:
        with suppress(OSError):
            path.unlink()
    for path in folders:
        with suppress(OSError):
            path.rmdir()


def own_names() -> list[str]:
    """How this machine may be called from outside, and from itself."""
    name = socket.gethostname()
    names = [name, f"{name}.local"] if HOST.fullmatch(name) and "." not in name else [name]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: this only asks which local address would be used
            names.append(probe.getsockname()[0])
        except OSError:
            pass  # no network yet
    return list(dict.fromkeys([*filter(HOST.fullmatch, names), "localhost", "127.0.0.1", "::1"]))


def own_node_name() -> str:
    """Returns this machine's name, if it is valid as a node's name."""
    name = socket.gethostname().partition(".")[0]
    return name if NAME.fullmatch(name) else "gateway"


def report(
    directory: Path, hosts: list[str], user: str, password: str, client: str, ca_folder: Path | None = None
) -> str:
    """Returns what was made and what comes next, for people."""
    prefix = "" if directory == Path() else f"{directory}/"
    pair = f"{prefix}clients/{client}"
    authority = (
        "ca.crt, ca.key       your own authority; devices need ca.crt, only you need ca.key: keep a copy elsewhere"
        if ca_folder is None
        else f"ca.crt               the authority of {ca_folder}; devices need it"
    )
    return f"""\
made in {directory}:
  gateway.toml         settings: a listener for this machine (1883), one with TLS for devices (8883)
  {authority}
  server.crt, .key     the gateway's certificate, for {CERTIFICATE_DAYS} days, as {", ".join(hosts)}
  {f"clients/{client}.*":<20} a client certificate: whoever shows it is the user {client}
  users                the first user: {user}, password: {password}   (it is shown this once)
  http-token           for `status`, `reload` and the like, which find it by --config
  data, delivery-log   what the gateway will write
  edgebroker.service   to start with the machine (systemd): its first lines say how
next:
  edgebroker check {prefix}gateway.toml
  edgebroker run --config {prefix}gateway.toml
  edgebroker status --config {prefix}gateway.toml
  edgebroker sub -h {hosts[0]} --cafile {prefix}ca.crt -u {user} -P PASSWORD -t '#' -v
  edgebroker pub -h {hosts[0]} --cafile {prefix}ca.crt --cert {pair}.crt --key {pair}.key -t a -m hello"""
