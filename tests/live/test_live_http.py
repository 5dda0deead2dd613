"""The HTTP door of a running gateway, asked by another implementation (http.client) and by raw sockets."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from edgebroker.cli.parameters import HttpAddress

pytestmark = pytest.mark.live

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def options() -> tuple[str, ...]:
    return ("--http", "0")


class Browser:
    """One request, one answer."""

    def __init__(self, address: HttpAddress) -> None:
        self.address = address

    def get(self, target: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
        line = http.client.HTTPConnection(*self.address, timeout=PATIENCE_S)
        line.request(method, target, headers=headers)
        answer = line.getresponse()
        body = answer.read().decode()
        assert answer.getheader("Connection") == "close"
        assert answer.getheader("Cache-Control") == "no-store"
        line.close()
        return answer.status, answer.getheader("Content-Type") or "", body

    def json(self, target: str, status: int = 200) -> dict[str, Any]:
        code, kind, body = self.get(target)
        assert (code, kind) == (status, "application/json"), body
        found: dict[str, Any] = json.loads(body)
        return found

    def raw(self, said: bytes) -> bytes:
        """Everything that comes back after *said*."""
        with socket.create_connection(self.address, PATIENCE_S) as line:
            line.sendall(said)
            heard = b""
            while data := line.recv(65_536):
                heard += data
            return heard


@pytest.fixture(scope="module")
def browser(gateway: Any) -> Browser:
    return Browser(HttpAddress(**gateway.listening["http"]))


def test_a_gateway_is_silent_unless_asked_to_answer(start_gateway: Callable[..., Any]) -> None:
    assert "http" not in start_gateway().listening


def test_metrics_are_open_metrics(browser: Browser) -> None:
    code, kind, body = browser.get("/metrics")
    assert (code, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert body.endswith("# EOF\n")
    assert "edgebroker_connections 0\n" in body


def test_health_says_ok(browser: Browser) -> None:
    found = browser.json("/health")
    assert (found["status"], found["reasons"]) == ("ok", [])
    assert found["checks"]["listening"]["ok"]
    assert found["checks"]["loop_lag"]["limit_ms"] == 500


def test_status_and_clients_tell_of_a_guest(browser: Browser, guest: Callable[..., Any]) -> None:
    one = guest("one", keep=True)
    one.subscribe("a/#", 1)
    one.vanish()
    two = guest("two")
    two.publish("a/b", b"x", 1)
    found = browser.json("/status")
    assert (found["messages"]["published"], found["copies"]["made"], found["copies"]["open"]) == (1, 1, 1)
    assert found["sessions"] == {"connected": 1, "away": 1}
    assert (found["queue"]["messages"], found["queue"]["longest"]) == (1, 1)
    assert [row["client"] for row in found["clients"]] == ["one"], "only who has a queue stands out"
    assert found["health"]["status"] == "ok"
    rows = browser.json("/clients?sort=client")["clients"]
    assert [(row["client"], row["connected"], row["queue"], row["subscriptions"]) for row in rows] == [
        ("one", False, 1, 1),
        ("two", True, 0, 0),
    ]
    assert (rows[1]["version"], rows[1]["peer"].partition(":")[0]) == ("5", "127.0.0.1")
    assert len(browser.json("/clients?sort=queue&limit=1")["clients"]) == 1
    assert [row["client"] for row in browser.json("/clients")["clients"]] == ["one", "two"]


def test_head_has_no_body(browser: Browser) -> None:
    for target in ("/health", "/nowhere"):
        code, _, body = browser.get(target, method="HEAD")
        assert (code in (200, 404), body) == (True, "")


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("/", 404, "there are /metrics, /health, /status, /clients, /client, /blocked, /readers, "),
        ("/status?sort=queu", 400, "sort is 'queu'; did you mean queue?"),
        ("/status?srt=queue", 400, "/status knows no 'srt'; did you mean sort?"),
        ("/clients?limit=0", 400, "limit is '0'; write a number, 1 to 1,000"),
        ("/clients?limit=" + "9" * 5_000, 400, "write a number"),
        ("/clients?sort", 400, "not a path with a query"),
        ("/metrics?x=1", 400, "it takes no question"),
        ("//[", 400, "not a path with a query"),
    ],
)
def test_what_cannot_be_answered_says_why(browser: Browser, target: str, code: int, words: str) -> None:
    found, kind, body = browser.get(target)
    assert (found, kind) == (code, "text/plain; charset=utf-8")
    assert words in body


def test_other_methods_are_refused(browser: Browser) -> None:
    assert browser.get("/status", method="DELETE")[0] == 405
    heard = browser.raw(b"POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello")
    assert heard.startswith(b"HTTP/1.1 405 ")


def test_a_name_that_only_points_here_is_refused(browser: Browser) -> None:
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]", "[::1]:9"):
        assert browser.get("/health", Host=host)[0] == 200, host
    for host in ("evil.example", "evil.example:80", "192.0.2.1", "localhost.evil.example", "[2001:db8::1]:9"):
        assert browser.get("/health", Host=host)[0] == 403, host


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", 431),
        (b"x" * 100_000, 431),
        (b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02ab" * 1_000, 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, bytes) else str(value),
)
def test_bad_requests_are_answered_and_closed(browser: Browser, said: bytes, code: int) -> None:
    assert browser.raw(said).startswith(b"HTTP/1.1 %d " % code)


def test_a_second_request_on_the_same_connection_is_not_answered(browser: Browser) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert browser.raw(request * 3).count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("target", ["/health", "/clients?sort=client", "/trace?seconds=1"])
def test_who_says_good_bye_with_the_request_gets_the_answer(browser: Browser, target: str) -> None:
    with socket.create_connection(browser.address, PATIENCE_S) as line:
        line.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        line.shutdown(socket.SHUT_WR)
        heard = b""
        while data := line.recv(65_536):
            heard += data
    assert heard.startswith(b"HTTP/1.1 200 OK\r\n")


def test_the_old_version_is_answered(browser: Browser) -> None:
    assert browser.raw(b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_who_says_nothing_does_not_keep_others_out(browser: Browser) -> None:
    """More than 32 connections at one time are refused; they are let in again when the silent ones are gone."""
    silent = [socket.create_connection(browser.address, PATIENCE_S) for _ in range(32)]
    heard = browser.raw(b"")
    assert heard.startswith(b"HTTP/1.1 503 ")
    for line in silent:
        line.close()
    while (code := browser.get("/health")[0]) == 503:
        pass
    assert code == 200


def test_a_port_in_use_is_refused_in_one_line(gateway: Any, browser: Browser) -> None:
    command = [sys.executable, "-m", "edgebroker", "run", "--port", "0", "--http", str(browser.address)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"Error: cannot listen on {browser.address}: the port is in use")
