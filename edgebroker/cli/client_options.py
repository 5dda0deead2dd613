"""Options that `pub`, `sub` and `announce` share: the broker's address, the client's identity, and exit codes."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.packets import Connect
from edgebridge.wire.properties import Properties, Property
from edgebroker.cli.parameters import WordChoice
from edgebroker.cli.transport import BrokerTransport, error_text
from edgebroker.errors import BrokerNoAnswer, EdgebrokerError

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 1883
TLS_PORT: Final = 8883  # IANA's port of secure-mqtt
KEEP_ALIVE_S: Final = 60
EXIT_REFUSED: Final = 1
EXIT_UNREACHABLE: Final = 2

_DIALECTS: Final[dict[str, Dialect]] = {"5": V5, "3.1.1": V311, "311": V311, "mqttv5": V5, "mqttv311": V311}
_FILE: Final = click.Path(path_type=Path)
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The address of the broker, the client's identity and the version of MQTT."""

    transport: BrokerTransport
    dialect: Dialect
    client_id: str
    username: str | None
    password: str | None

    def connect_packet(self, clean_start: bool = True, session_expiry_s: int = 0) -> Connect:
        """Returns the CONNECT. 3.1.1 has no session expiry: a session that is not clean stays there for ever."""
        properties: Properties = {Property.SESSION_EXPIRY_INTERVAL: session_expiry_s} if session_expiry_s else {}
        password = None if self.password is None else self.password.encode()
        return Connect(
            self.client_id,
            clean_start,
            KEEP_ALIVE_S,
            self.username,
            password,
            properties=properties,
            dialect=self.dialect,
        )


def client_options(command: _Command) -> _Command:
    """Adds the options of `ClientOptions` to *command*, with the letters of Mosquitto's clients."""
    for option in reversed(
        (
            click.option("-h", "--host", help=f"The broker's name or address.  [default: {DEFAULT_HOST}]"),
            click.option(
                "-p",
                "--port",
                type=click.IntRange(1, 65535),
                help=f"Its port.  [default: {DEFAULT_PORT}, with TLS {TLS_PORT}]",
            ),
            click.option("--unix", type=_FILE, metavar="PATH", help="Its Unix socket, in place of host and port."),
            click.option("--tls", is_flag=True, help="Speak TLS, and trust whom this machine trusts."),
            click.option("--cafile", type=_FILE, metavar="FILE", help="Speak TLS, and trust who signed with this."),
            click.option("--cert", type=_FILE, metavar="FILE", help="Our own certificate, for mutual TLS."),
            click.option("--key", type=_FILE, metavar="FILE", help="Its private key."),
            click.option("--insecure", is_flag=True, help="Do not check that the certificate is for this host."),
            click.option("--ws", is_flag=True, help="Speak MQTT over WebSocket."),
            click.option("--ws-path", metavar="PATH", help="The path of its URL.  [default: /mqtt]"),
            click.option(
                "-V",
                "--protocol-version",
                default="5",
                show_default=True,
                type=WordChoice(list(_DIALECTS)),
                help="The version of MQTT to speak.",
            ),
            click.option(
                "-i", "--id", "client_id", default="", help="Client identifier. Default: the broker gives one."
            ),
            click.option("-u", "--username", help="User name."),
            click.option("-P", "--pw", "--password", "password", help="Password."),
            click.option(
                "--password-file", type=_FILE, metavar="FILE", help="A file with the password: others see -P."
            ),
        )
    ):
        command = option(command)
    return command


def client_options_of(options: dict[str, Any]) -> ClientOptions:
    """Removes the options of `client_options` from *options*. Raises click.UsageError."""
    dialect = _DIALECTS[options.pop("protocol_version")]
    password_file = options.pop("password_file")
    if password_file is not None:
        if options["password"] is not None:
            raise click.UsageError("give -P or --password-file, not both")
        try:
            options["password"] = password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"--password-file {password_file}: cannot be read: {error}") from None
    if dialect is V311 and options["password"] is not None and options["username"] is None:
        raise click.UsageError("MQTT 3.1.1 allows no password without a user name: add -u NAME or use -V 5")
    return ClientOptions(
        transport=_transport_of(options),
        dialect=dialect,
        client_id=options.pop("client_id"),
        username=options.pop("username"),
        password=options.pop("password"),
    )


def _transport_of(options: dict[str, Any]) -> BrokerTransport:
    host, port, path = options.pop("host"), options.pop("port"), options.pop("unix")
    if path is not None and (host is not None or port is not None):
        raise click.UsageError("--unix stands in place of -h and -p")
    is_websocket, url_path = options.pop("ws"), options.pop("ws_path")
    if url_path is not None and not is_websocket:
        raise click.UsageError("--ws-path needs --ws")
    tls = _tls_of(options)
    return BrokerTransport(
        host or DEFAULT_HOST,
        port or (TLS_PORT if tls is not None else DEFAULT_PORT),
        path,
        tls,
        (url_path or "/mqtt") if is_websocket else "",
    )


def _tls_of(options: dict[str, Any]) -> ssl.SSLContext | None:
    is_wanted, authority = options.pop("tls"), options.pop("cafile")
    certificate, key, is_insecure = options.pop("cert"), options.pop("key"), options.pop("insecure")
    if not is_wanted and authority is None:
        for value, name in ((certificate, "--cert"), (key, "--key"), (is_insecure, "--insecure")):
            if value:
                raise click.UsageError(f"{name} needs --tls or --cafile")
        return None
    if (certificate is None) != (key is None):
        raise click.UsageError("--cert and --key belong together")
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise click.UsageError(f"--cafile {authority}: {error_text(error)}") from None
    context.check_hostname = not is_insecure
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            raise click.UsageError(f"--cert {certificate}, --key {key}: {error_text(error)}") from None
    return context


def say(text: str) -> None:
    """Prints one line for people on stderr."""
    click.echo(f"edgebroker: {text}", err=True)


def run(coroutine: Coroutine[Any, Any, int]) -> None:
    """Runs *coroutine* and exits with its result as exit code, or with that of its error.

    SIGINT and SIGTERM cancel it, so that it disconnects properly; the exit code is then 128 plus the signal's number.
    """
    signals: list[int] = []

    async def interruptible() -> int:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def interrupt(number: int) -> None:
            signals.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt, number)
        return await coroutine

    try:
        sys.exit(asyncio.run(interruptible()))
    except asyncio.CancelledError:
        sys.exit(128 + signals[0])
    except BrokerNoAnswer as error:
        say(str(error))
        sys.exit(EXIT_UNREACHABLE)
    except EdgebrokerError as error:
        say(str(error))
        sys.exit(EXIT_REFUSED)
