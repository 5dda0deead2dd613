"""`edgebroker certificate`: issues, renews and revokes certificates of the authority that `init` made."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import click

from edgebroker.cli import Refused
from edgebroker.cli.init import HOST, NAME, own_names
from edgebroker.cli.init.authority import CERTIFICATE_DAYS, Authority, KeyPair
from edgebroker.cli.parameters import examples

_directory = click.option(
    "--dir",
    "directory",
    default=".",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where `init` made ca.crt and ca.key.  [default: here]",
)
_days = click.option(
    "--days", default=CERTIFICATE_DAYS, show_default=True, type=click.IntRange(1, 36_500), help="How long it is valid."
)


@click.group("certificate")
def command() -> None:
    """Make certificates with the authority that `edgebroker init` made."""


@command.command(epilog=examples("edgebroker certificate client pump-3 pump-4 --dir site"))
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_directory
@_days
def client(names: tuple[str, ...], directory: Path, days: int) -> None:
    """A certificate for each client NAME, in DIR/clients. None is overwritten.

    Where `certificate_user = "common name"` is set, whoever shows it is the user NAME.
    """
    _issue(names, directory, "clients", Authority.client, days)


@command.command(
    short_help="A certificate for each gateway NAME of a federation.",
    epilog=examples("edgebroker certificate gateway gw-north gw-south --dir site"),
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_directory
@_days
def gateway(names: tuple[str, ...], directory: Path, days: int) -> None:
    """A certificate for each gateway NAME of a federation, in DIR/gateways. None is overwritten.

    By it and by ca.crt its peers know it: `tls_certificate`, `tls_key` and `tls_ca` under [overlay].
    """
    _issue(names, directory, "gateways", Authority.gateway, days)


@command.command(
    short_help="A new certificate for the gateway itself.",
    epilog=examples("edgebroker certificate server --host 192.168.1.10 --host gateway.local --dir site"),
)
@click.option("--host", "hosts", multiple=True, help="A name or address of this gateway; may be repeated.")
@_directory
@_days
def server(hosts: tuple[str, ...], directory: Path, days: int) -> None:
    """A new certificate for the gateway, in place of DIR/server.crt and DIR/server.key.

    A running gateway shows it after SIGHUP; clients that are connected stay. Who could read the old key may read the
    new one, but for strangers.
    """
    for host in hosts:
        if not HOST.fullmatch(host):
            raise click.UsageError(f"--host {host!r}: write a host name or an IP address")
    authority = _authority(directory)
    names = list(hosts) or own_names()
    with tempfile.TemporaryDirectory(prefix=".certificate-", dir=directory) as scratch:
        pair = authority.server(Path(scratch), names, days)
        for path in (pair.key, pair.certificate):
            _replace(path, directory / path.name)
    click.echo(f"{directory / 'server.crt'}, for {days} days, as {', '.join(names)}")
    click.echo("a running gateway shows it after SIGHUP: systemctl reload edgebroker")


@command.command(
    short_help="Let the certificates of the clients NAME hold no longer.",
    epilog=examples(
        "edgebroker certificate revoke pump-3 --dir site", "edgebroker certificate revoke gw-south --gateway --dir site"
    ),
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--gateway", "is_gateway", is_flag=True, help="Each NAME is a gateway of a federation, not a client.")
@_directory
def revoke(names: tuple[str, ...], is_gateway: bool, directory: Path) -> None:
    """Let the certificates of the clients NAME hold no longer: they are added to the list DIR/ca.crl.

    A gateway looks into it where `tls_client_crl = "ca.crl"` stands, for its peers where `tls_crl = "ca.crl"` stands
    under [overlay], and reads it again on SIGHUP.
    """
    authority = _authority(directory)
    certificates = [directory / ("gateways" if is_gateway else "clients") / f"{name}.crt" for name in names]
    if missing := [str(path) for path in certificates if not path.is_file()]:
        raise Refused(f"{', '.join(missing)}: not there, so it cannot be revoked")
    revoked = authority.revoke(directory, certificates)
    message = f"{revoked} has {', '.join(names)} now: "
    if is_gateway:
        message += (
            "where overlay.tls_crl names it, systemctl reload edgebroker; else name it there, and systemctl restart"
        )
    else:
        message += "name it as tls_client_crl, and systemctl reload edgebroker"
    click.echo(message)


def _issue(
    names: tuple[str, ...],
    directory: Path,
    subfolder: str,
    make: Callable[[Authority, Path, str, int], KeyPair],
    days: int,
) -> None:
    """Issues a certificate for each name, into the folder *subfolder*. Raises Refused."""
    for name in names:
        if not NAME.fullmatch(name):
            raise click.UsageError(f"{name!r}: 1 to 64 letters, digits, '.', '_' or '-'")
    authority = _authority(directory)
    folder = directory / subfolder
    existing = [path for name in names for path in (folder / f"{name}.crt", folder / f"{name}.key") if path.exists()]
    if existing:
        raise Refused(f"{', '.join(map(str, existing))}: there already; nothing is overwritten")
    folder.mkdir(exist_ok=True)
    for name in names:
        pair = make(authority, folder, name, days)
        click.echo(f"{pair.certificate}, {pair.key}")


def _replace(new: Path, path: Path) -> None:
    """Replaces *path* by *new*, with the owner and group of *path* as far as the system permits.

    The gateway's own user may have no other way to read a key that root has renewed.
    """
    with suppress(OSError):
        before = path.stat()
        os.chown(new, before.st_uid, before.st_gid)
        os.chmod(new, before.st_mode & (0o640 if path.suffix == ".key" else 0o644))
    os.replace(new, path)


def _authority(directory: Path) -> Authority:
    """Returns the authority in *directory*. Raises Refused."""
    pair = KeyPair(directory / "ca.crt", directory / "ca.key")
    for path in (pair.certificate, pair.key):
        if not os.access(path, os.R_OK):
            raise Refused(f"{path} is not there or cannot be read: `edgebroker init` makes it; --dir says where")
    return Authority(pair)
