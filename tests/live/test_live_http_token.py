"""The HTTP door with a token: who is answered, what stays open, and that a reload changes it."""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.parameters import HttpAddress

from .conftest import command_line
from .test_live_http import Browser

pytestmark = pytest.mark.live

OLD, NEW = "correct-horse-battery", "staple-and-something-more"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(token: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"me:{token}".encode()).decode()}


def test_only_who_has_the_token_is_answered(start_gateway: Callable[..., Any], tmp_path: Path) -> None:
    settings, tokens = tmp_path / "gateway.toml", tmp_path / "http-token"
    tokens.write_text(f"# for the collector\n{OLD}\n")
    tokens.chmod(0o600)
    settings.write_text('[http]\nport = 0\ntoken_file = "http-token"\n')
    gateway = start_gateway("--config", str(settings))
    address = HttpAddress(**gateway.listening["http"])
    browser = Browser(address)

    for path in ("/metrics", "/status", "/clients", "/trace", "/absent", "/health/", "/x/../health", "/status?/health"):
        for headers in ({}, bearer(NEW), basic(NEW), bearer(""), {"Authorization": OLD}, {"Authorization": "Basic *"}):
            code, _, body = browser.get(path, **headers)
            assert (code, body) == (401, "this door wants a token: Authorization: Bearer TOKEN\n"), path
    assert b"\r\nWWW-Authenticate: Bearer realm=" in browser.raw(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for headers in (bearer(OLD), basic(OLD)):
        assert browser.get("/status", **headers)[0] == 200
    assert browser.get("/health")[0] == 200, "a load balancer has no token"

    assert command_line("status", "--http", str(address), "--token-file", str(tokens))[0] == 0
    bounds = ("--warn-lag-ms", "60000", "--crit-lag-ms", "60000")  # how late the loop is, is this machine's affair
    code, told = command_line("check", "--http", str(address), "--token-file", str(tokens), *bounds)
    assert code == 0, told
    traced = command_line("trace", "--http", str(address), "--token-file", str(tokens), "--seconds", "1")
    assert traced == (0, "")
    running = tmp_path / "running.toml"
    running.write_text(f'[http]\nport = {address.port}\ntoken_file = "http-token"\n')
    assert command_line("top", "--config", str(running), "--count", "1")[0] == 0
    code, told = command_line("status", "--http", str(address))
    assert (code, "this door wants a token" in told) == (2, True), told
    assert command_line("check", "--http", str(address))[0] == 3

    tokens.write_text(f"{NEW}\n{OLD}\n")  # while collectors change over
    assert gateway.reload()["taken"]
    assert [browser.get("/status", **bearer(token))[0] for token in (OLD, NEW)] == [200, 200]
    tokens.write_text(f"{NEW}\n")
    settings.write_text('[http]\nport = 0\ntoken_file = "http-token"\nhealth_open = false\n')
    assert [one["outcome"] for one in gateway.reload()["changes"]] == ["applied"]
    assert [browser.get("/health", **bearer(token))[0] for token in (OLD, NEW)] == [401, 200]
    tokens.write_text("short\n")
    [problem] = gateway.reload()["problems"]
    assert (problem["key"], problem["line"]) == ("http.token_file", 1)
    assert browser.get("/health", **bearer(NEW))[0] == 200, "what held before still holds"
    settings.write_text("[http]\nport = 0\n")
    assert gateway.reload()["taken"]
    assert browser.get("/status")[0] == 200
    gateway.stop()


def test_a_trace_ends_with_its_token(start_gateway: Callable[..., Any], tmp_path: Path) -> None:
    """What clients say is shown to nobody whose token a reload took away, however long he wanted to watch."""
    settings, tokens = tmp_path / "gateway.toml", tmp_path / "http-token"
    tokens.write_text(f"{OLD}\n{NEW}\n")
    tokens.chmod(0o600)
    settings.write_text('[listener]\nport = 0\n[http]\nport = 0\ntoken_file = "http-token"\n')
    gateway = start_gateway("--config", str(settings))
    address = HttpAddress(**gateway.listening["http"])
    with ExitStack() as stack:
        watching = {}
        for token in (OLD, NEW):
            connection = HTTPConnection(address.host, address.port, timeout=30)
            stack.callback(connection.close)
            connection.request("GET", "/trace?seconds=20", headers=bearer(token))
            watching[token] = connection.getresponse()

        assert [shown.readline() for shown in watching.values()] == [b"\n", b"\n"]  # they watch
        tokens.write_text(f"{NEW}\n")
        assert gateway.reload()["taken"]
        with socket.create_connection(("127.0.0.1", gateway.port)) as line:
            line.sendall(bytes.fromhex("100d 00044d515454 04 02 0000 0001 61"))
            assert line.recv(4) == b"\x20\2\0\0"
        seen = b""
        while b'"CONNECT"' not in seen:
            told = watching[NEW].readline()
            assert told, seen
            seen += told
        with suppress(ConnectionError):
            try:
                rest = watching[OLD].read()
            except IncompleteRead as cut:
                rest = cut.partial
            assert b'"CONNECT"' not in rest
    gateway.stop()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no token"),
        ("# nothing\n\n", "has no token"),
        ("fifteen-letters\n", "a token has at least 16 ASCII characters without blanks"),
        ("sixteen or more letters\n", "a token has at least 16 ASCII characters without blanks"),
        ("sixteen-löttersä\n", "a token has at least 16 ASCII characters without blanks"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_without_good_tokens_is_refused(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "http-token").write_text(text)
    settings = tmp_path / "gateway.toml"
    settings.write_text('[listener]\nport = 0\n[http]\nport = 0\ntoken_file = "http-token"\n')
    for command in (("check", str(settings)), ("run", "--config", str(settings))):
        code, told = command_line(*command)
        assert (code, why in told) == (2, True), told


def test_where_clients_say_who_they_are_pages_want_a_token(start_gateway: Callable[..., Any], tmp_path: Path) -> None:
    """Every user of this machine could read who is connected and what is published."""
    settings = tmp_path / "gateway.toml"
    (tmp_path / "users").write_text("")
    settings.write_text('[listener]\nport = 0\n[http]\nport = 0\n[access]\npassword_file = "users"\n')
    gateway = start_gateway("--config", str(settings))
    browser = Browser(HttpAddress(**gateway.listening["http"]))
    for path in ("/status", "/clients", "/client?name=a", "/trace", "/retained", "/readers?topic=a", "/links"):
        code, _, body = browser.get(path)
        assert (code, "set http.token_file" in body) == (403, True), path
    for path in ("/metrics", "/health"):
        assert browser.get(path)[0] == 200, path
    gateway.stop()
