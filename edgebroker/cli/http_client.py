"""The client of a gateway's HTTP listener: one request, one answer (docs/operations.md)."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import click

from edgebroker.cli import Refused
from edgebroker.cli.http_address import LOCAL, HttpAddress, HttpAddressType
from edgebroker.runtime.http.auth import load_tokens
from edgebroker.runtime.settings import Settings

USUAL_PORT = 9883
"""Where a gateway is asked if nothing else is said; docs/operations.md sets it there."""
PATIENCE_S = 10.0
CONTROL = "Edgebroker-Control"  # as `edgebroker.runtime.http.server` wants it of whoever wants something done
NOT_DONE = (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT)
BODY_BYTES_MAX = 16 * 1024 * 1024  # ours has at most 400 KiB; more comes from something else

token_file_option = click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False), help="Where the token is that its door wants."
)


def gateway_options(function: Callable[..., None]) -> Callable[..., None]:
    """The options by which a command finds the gateway, and `--json`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="For programs."),
        token_file_option,
        click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Or: the gateway's settings."),
        click.option("--http", type=HttpAddressType(), help="Where the gateway is asked.  [default: 127.0.0.1:9883]"),
    ):
        function = option(function)
    return function


class GatewayNoAnswer(Refused):
    """Nobody answers at the address."""


class GatewayAnswerInvalid(Refused):
    """Somebody answers, who is no gateway or refuses the question."""


class OrderRefused(GatewayAnswerInvalid):
    """The gateway has not done it, because of what it was to be done with."""


class GatewayEndpoint(NamedTuple):
    """Whom to ask, and the token that its door may want."""

    address: HttpAddress
    token: str = ""

    def __str__(self) -> str:
        return str(self.address)


def gateway_endpoint(given: HttpAddress | None, config: Path | None, token_file: Path | None) -> GatewayEndpoint:
    """Whom to ask: what the command line says, else the settings file, else the usual port of this machine.

    Of several tokens in a file the first is shown.
    """
    settings = None if config is None else Settings.load(config, apart=True).http
    token_file = token_file or (None if settings is None else settings.token_file)
    token = "" if token_file is None else load_tokens(token_file, may_wait=True)[0]
    if given is not None:
        return GatewayEndpoint(given, token)
    if settings is None:
        return GatewayEndpoint(HttpAddress(LOCAL, USUAL_PORT), token)
    if settings.port is None:
        raise Refused(f"{config}: a gateway with these settings answers no questions; set port in [http]")
    host = LOCAL if settings.host in ("0.0.0.0", "::", "") else settings.host
    return GatewayEndpoint(HttpAddress(host, settings.port), token)


def get_json(asked: GatewayEndpoint, path: str, **query: str | int) -> dict[str, Any]:
    """The JSON object that *path* answers. Raises NoAnswer, BadAnswer."""
    with open_response(asked, path, query) as answer:
        return _object(asked, answer)


def post_json(asked: GatewayEndpoint, path: str, **query: str) -> dict[str, Any]:
    """Have something done; the JSON object that is answered. Raises NoAnswer, OrderRefused, BadAnswer."""
    with open_response(asked, path, query, method="POST") as answer:
        return _object(asked, answer)


def _object(asked: GatewayEndpoint, answer: http.client.HTTPResponse) -> dict[str, Any]:
    body = answer.read(BODY_BYTES_MAX)
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise GatewayAnswerInvalid(f"{asked} does not answer as a gateway does")
    return found


@contextmanager
def open_response(
    asked: GatewayEndpoint,
    path: str,
    query: Mapping[str, str | int],
    patience_s: float = PATIENCE_S,
    method: str = "GET",
) -> Iterator[http.client.HTTPResponse]:
    """The answer of *path*, to be read. Raises NoAnswer, BadAnswer."""
    address, token = asked
    line = http.client.HTTPConnection(*address, timeout=patience_s)
    headers = {"Accept": "application/json"} | ({} if method == "GET" else {CONTROL: "1"})
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    target = f"{path}?{urlencode(query)}" if query else path
    try:
        line.request(method, target, headers=headers)
        answer = line.getresponse()
        # A gateway that is not well says so with 503, and in JSON.
        if answer.status != 200 and answer.getheader("Content-Type") != "application/json":
            said = answer.read(1_000).decode("utf-8", "replace").strip()
            kind = OrderRefused if method != "GET" and answer.status in NOT_DONE else GatewayAnswerInvalid
            raise kind(f"{address} refuses {path}: {said if said.isprintable() else answer.status}")
        yield answer
    except TimeoutError as error:
        raise GatewayNoAnswer(f"{address} does not answer within {patience_s:.0f} s") from error
    except (ConnectionError, socket.gaierror, OSError) as error:
        hint = "; is a gateway running with --http?" if isinstance(error, ConnectionRefusedError) else ""
        raise GatewayNoAnswer(f"cannot reach {address}: {error.strerror or error}{hint}") from error
    except http.client.HTTPException as error:
        raise GatewayAnswerInvalid(f"{address} does not answer as a gateway does: {type(error).__name__}") from error
    finally:
        line.close()
