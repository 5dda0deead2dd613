"""What `pub` and `sub` share: the options that say where to connect and as whom, and how failures end the program."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.packets import Connect
from edgebridge.wire.properties import Properties, Property
from edgebroker.cli.client import Unreachable
from edgebroker.errors import EdgebrokerError

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 1883
KEEP_ALIVE_S: Final = 60
EXIT_REFUSED: Final = 1
EXIT_UNREACHABLE: Final = 2

_DIALECTS: Final[dict[str, Dialect]] = {"5": V5, "3.1.1": V311, "311": V311, "mqttv5": V5, "mqttv311": V311}
_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Peer:
    """Where to connect, as whom, in which dialect."""

    host: str
    port: int
    dialect: Dialect
    client_id: str
    username: str | None
    password: str | None

    def introduction(self, clean_start: bool = True, session_expiry_s: int = 0) -> Connect:
        """The CONNECT to begin with. 3.1.1 knows no expiry: there a session that is not clean stays."""
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


def peer_options(command: _Command) -> _Command:
    """Give *command* the options of `Peer`, in the letters of Mosquitto's clients."""
    for option in reversed(
        (
            click.option("-h", "--host", default=DEFAULT_HOST, show_default=True, help="The broker's name or address."),
            click.option(
                "-p", "--port", default=DEFAULT_PORT, show_default=True, type=click.IntRange(1, 65535), help="Its port."
            ),
            click.option(
                "-V",
                "--protocol-version",
                default="5",
                show_default=True,
                type=click.Choice(list(_DIALECTS)),
                help="The version of MQTT to speak.",
            ),
            click.option(
                "-i", "--id", "client_id", default="", help="Client identifier. Default: the broker gives one."
            ),
            click.option("-u", "--username", help="User name."),
            click.option("-P", "--pw", "password", help="Password."),
        )
    ):
        command = option(command)
    return command


def peer_of(options: dict[str, Any]) -> Peer:
    """Take what `peer_options` added out of *options*."""
    dialect = _DIALECTS[options.pop("protocol_version")]
    if dialect is V311 and options["password"] is not None and options["username"] is None:
        raise click.UsageError("MQTT 3.1.1 allows no password without a user name: add -u NAME or use -V 5")
    return Peer(
        host=options.pop("host"),
        port=options.pop("port"),
        dialect=dialect,
        client_id=options.pop("client_id"),
        username=options.pop("username"),
        password=options.pop("password"),
    )


def say(text: str) -> None:
    """One line for people, on stderr."""
    click.echo(f"edgebroker: {text}", err=True)


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run *work* and end the program with its exit code, or with that of what went wrong.

    SIGINT and SIGTERM let *work* disconnect properly, then end the program with 128 and the signal's number.
    """
    received: list[int] = []

    async def interruptible() -> int:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def interrupt(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt, number)
        return await work

    try:
        sys.exit(asyncio.run(interruptible()))
    except asyncio.CancelledError:
        sys.exit(128 + received[0])
    except Unreachable as error:
        say(str(error))
        sys.exit(EXIT_UNREACHABLE)
    except EdgebrokerError as error:
        say(str(error))
        sys.exit(EXIT_REFUSED)
