"""The client of a gateway's HTTP listener: one request, one response (docs/operations.md)."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import click

from edgebroker.cli import Refused
from edgebroker.cli.parameters import LOCAL, HttpAddress, HttpAddressType
from edgebroker.runtime.http.auth import load_tokens
from edgebroker.runtime.settings import Settings

USUAL_PORT = 9883
"""Port of the gateway's HTTP server by default; docs/operations.md sets it there."""
TIMEOUT_S = 10.0
ORDER_HEADER = "Edgebroker-Control"  # the header of orders, see `edgebroker.runtime.http.server`
REFUSED_STATUSES = (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT)
BODY_BYTES_MAX = 16 * 1024 * 1024  # our own have at most 400 KiB; a larger one comes from another program

token_file_option = click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False), help="Where the token is that its door wants."
)


class GatewayNoAnswer(Refused):
    """No answer from the address."""


class GatewayAnswerInvalid(Refused):
    """The answer is not a gateway's, or refuses the request."""


class OrderRefused(GatewayAnswerInvalid):
    """The gateway has not executed the order, because of its arguments."""


class GatewayEndpoint(NamedTuple):
    """The address of a gateway's HTTP server, and a token for it."""

    address: HttpAddress
    token: str = ""

    def __str__(self) -> str:
        return str(self.address)


class GatewayOptions(NamedTuple):
    """The options by which a command finds a gateway."""

    http: HttpAddress | None
    config: Path | None
    token_file: Path | None

    def endpoint(self) -> GatewayEndpoint:
        """Returns the address from the command line, the settings file, or the default port of this machine.

        The token is the first one of the token file. Raises Refused, SettingsRefused.
        """
        settings = None if self.config is None else Settings.load(self.config, apart=True).http
        token_file = self.token_file or (None if settings is None else settings.token_file)
        token = "" if token_file is None else load_tokens(token_file, may_wait=True)[0]
        if self.http is not None:
            return GatewayEndpoint(self.http, token)
        if settings is None:
            return GatewayEndpoint(HttpAddress(LOCAL, USUAL_PORT), token)
        if settings.port is None:
            raise Refused(f"{self.config}: a gateway with these settings answers no questions; set port in [http]")
        host = LOCAL if settings.host in ("0.0.0.0", "::", "") else settings.host
        return GatewayEndpoint(HttpAddress(host, settings.port), token)


def gateway_options(json_help: str = "For programs.") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options of `GatewayOptions` to a command, which gets them as `gateway`, and `--json`."""

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(
            *arguments: Any, http: HttpAddress | None, config: Path | None, token_file: Path | None, **options: Any
        ) -> None:
            function(*arguments, gateway=GatewayOptions(http, config, token_file), **options)

        for option in (
            click.option("--json", "as_json", is_flag=True, help=json_help),
            token_file_option,
            click.option(
                "-c", "--config", type=click.Path(path_type=Path), metavar="FILE", help="Or: the gateway's settings."
            ),
            click.option(
                "--http", type=HttpAddressType(), help="Where the gateway is asked.  [default: 127.0.0.1:9883]"
            ),
        ):
            command = option(command)
        return command

    return decorated


def get_json(endpoint: GatewayEndpoint, path: str, **query: str | int) -> dict[str, Any]:
    """Returns the JSON object at *path*. Raises GatewayNoAnswer, GatewayAnswerInvalid."""
    with open_response(endpoint, path, query) as response:
        return _json_object(endpoint, response)


def post_json(endpoint: GatewayEndpoint, path: str, **query: str) -> dict[str, Any]:
    """Sends an order, and returns the JSON object of the response. Raises GatewayNoAnswer, OrderRefused,
    GatewayAnswerInvalid.
    """
    with open_response(endpoint, path, query, method="POST") as response:
        return _json_object(endpoint, response)


def _json_object(endpoint: GatewayEndpoint, response: http.client.HTTPResponse) -> dict[str, Any]:
    body = response.read(BODY_BYTES_MAX)
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise GatewayAnswerInvalid(f"{endpoint} does not answer as a gateway does")
    return value


@contextmanager
def open_response(
    endpoint: GatewayEndpoint,
    path: str,
    query: Mapping[str, str | int],
    timeout_s: float = TIMEOUT_S,
    method: str = "GET",
) -> Iterator[http.client.HTTPResponse]:
    """Opens the response of *path*. Raises GatewayNoAnswer, GatewayAnswerInvalid, OrderRefused."""
    address, token = endpoint
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    headers = {"Accept": "application/json"} | ({} if method == "GET" else {ORDER_HEADER: "1"})
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    target = f"{path}?{urlencode(query)}" if query else path
    try:
        connection.request(method, target, headers=headers)
        response = connection.getresponse()
        # A failing gateway answers /health with 503 and JSON.
        if response.status != 200 and response.getheader("Content-Type") != "application/json":
            text = response.read(1_000).decode("utf-8", "replace").strip()
            kind = OrderRefused if method != "GET" and response.status in REFUSED_STATUSES else GatewayAnswerInvalid
            raise kind(f"{address} refuses {path}: {text if text.isprintable() else response.status}")
        yield response
    except TimeoutError as error:
        raise GatewayNoAnswer(f"{address} does not answer within {timeout_s:.0f} s") from error
    except (ConnectionError, socket.gaierror, OSError) as error:
        hint = "; is a gateway running with --http?" if isinstance(error, ConnectionRefusedError) else ""
        raise GatewayNoAnswer(f"cannot reach {address}: {error.strerror or error}{hint}") from error
    except http.client.HTTPException as error:
        raise GatewayAnswerInvalid(f"{address} does not answer as a gateway does: {type(error).__name__}") from error
    finally:
        connection.close()
