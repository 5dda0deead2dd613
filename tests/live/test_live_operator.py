"""`edgebroker client` and `edgebroker retained`: what an operator sees of a running gateway, and has done there."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.parameters import HttpAddress

from .conftest import V5, Guest, command_line
from .test_live_http import Browser

pytestmark = pytest.mark.live


def test_clients_and_retained_messages(start_gateway: Callable[..., Any], tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "data"), "--http", "0")
    gateway = start_gateway(*options)

    def said(*words: str) -> tuple[int, str]:
        return command_line(*words, "--http", str(HttpAddress(**gateway.listening["http"])))

    reader, writer = Guest(gateway.port, V5, "reader", keep=True), Guest(gateway.port, V5, "writer")
    reader.connect()
    reader.subscribe("t/#", 1)
    writer.connect()
    code, told = said("client", "readers", "t/1")
    assert (code, told.splitlines()[1]) == (0, "reader  here   1    yes      t/#")
    assert said("client", "disconnect", "reader") == (0, "reader is disconnected; its session waits\n")
    assert reader.is_gone()
    for topic in ("t/1", "t/2"):
        writer.publish(topic, b"12345678", 1, retain=True)
    code, told = said("client", "list", "rea*", "--state", "away")
    assert (code, "reader  away" in told, "writer" in told) == (0, True, False), told
    assert said("client", "list", "no*") == (1, "none of 2 clients matches 'no*'\n")
    assert said("client", "list", "--state", "slow") == (1, "none of 2 clients is slow\n")
    assert said("client", "list", "wri*", "--state", "away")[1] == "none of 2 clients matches 'wri*' and is away\n"
    code, told = said("client", "show", "reader")
    assert code == 0
    assert "reader is away for" in told
    assert "waiting    2 messages" in told
    assert "subscribed t/# (QoS 1)" in told
    assert "t/2      waits  1    8 B" in told
    code, _, told = Browser(HttpAddress(**gateway.listening["http"])).get("/client?name=raeder")
    assert (code, told) == (400, "there is no client 'raeder'; did you mean reader?\n")
    found = json.loads(said("retained", "list", "t/+", "--sort", "bytes", "--json")[1])
    assert [(one["topic"], one["publisher"], one["bytes"]) for one in found["messages"]] == [
        ("t/1", "writer", 8),
        ("t/2", "writer", 8),
    ]
    code, told = said("retained", "clear", "t/#")
    assert (code, "2 retained messages match t/#; --yes clears them" in told) == (2, True)
    assert said("retained", "clear", "t/#", "--yes") == (0, "2 cleared\n")
    assert said("client", "end", "reader") == (0, "the session of reader is ended; 4 messages dropped\n")
    gateway.process.send_signal(signal.SIGKILL)  # what was answered is on disk
    gateway.process.wait()
    gateway = start_gateway(*options)
    assert said("retained", "list", "t/#")[1].startswith("0 of ")
    assert said("client", "list") == (1, "there are no clients\n")
    gateway.stop()


def test_where_clients_have_users_only_a_token_changes_anything(
    start_gateway: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "users").touch(0o600)
    (tmp_path / "gateway.toml").write_text('[http]\nport = 0\n[access]\npassword_file = "users"\n')
    gateway = start_gateway("--config", str(tmp_path / "gateway.toml"))
    order = {"method": "POST", "Edgebroker-Control": "1"}
    for target in ("/clients?do=end&name=x", "/retained?do=clear&topic=x", "/bridges?do=pause&name=x", "/reload"):
        code, _, said = Browser(HttpAddress(**gateway.listening["http"])).get(target, **order)
        assert (code, said) == (
            403,
            "clients must say who they are here, and so must you: set http.token_file\n",
        )
    gateway.stop()


def test_what_is_wrong_is_said(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway("--http", "0")
    browser = Browser(HttpAddress(**gateway.listening["http"]))
    order = {"method": "POST", "Edgebroker-Control": "1"}
    for target, status, why in (
        ("/clients?do=disconect&name=x", 400, "did you mean disconnect?"),
        ("/clients?do=end&name=x", 400, "there is no client 'x'"),
        ("/clients?do=end&nam=x", 400, "did you mean name?"),
        ("/retained?do=clear", 400, "which topic? say topic="),
        ("/retained?do=clear&topic=a%23", 400, "'#' must be the whole last level"),
        ("/retained?do=clear&topic=%24SYS/%23", 409, "the broker's own"),
    ):
        code, _, body = browser.get(target, **order)
        assert (code, why in body) == (status, True), (target, body)
    assert browser.get("/clients?do=end&name=x", method="POST")[0] == 403, "a page of some browser could ask"
    assert browser.get("/clients?after=a")[0] == 400
    gateway.stop()


def test_who_reloads_hears_what_became_of_it(start_gateway: Callable[..., Any], tmp_path: Path) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text("[http]\nport = 0\n")
    gateway = start_gateway("--config", str(settings))
    address = str(HttpAddress(**gateway.listening["http"]))
    settings.write_text("[http]\nport = 0\n[quota]\nconnect_bytes_max = 4096\n[limits]\ninflight_max = 64\n")
    code, told = command_line("reload", "--http", address)
    assert (code, told.splitlines()[0]) == (0, "reload: 1 applied, 1 needs restart")
    assert told.splitlines()[2] == "  needs restart: limits.inflight_max: 1024 -> 64"
    settings.write_text("[limits]\ninflight = 64\n")
    code, told = command_line("reload", "--http", address)
    assert (code, "gateway.toml:2: limits.inflight: unknown key; did you mean inflight_max?" in told) == (1, True), told
    code, told = command_line("reload", "--config", str(settings))
    assert (code, told.splitlines()[0]) == (1, "reload: rejected, the settings of before still hold"), "answered"
    gateway.process.send_signal(signal.SIGTERM)
    assert b'"reason": "unknown key"' in gateway.process.communicate()[0], "the gateway says it too"


def test_who_is_unknown_is_no_reason_to_leave_the_others(start_gateway: Callable[..., Any]) -> None:
    gateway = start_gateway("--memory", "--http", "0")
    http = str(HttpAddress(**gateway.listening["http"]))

    def said(*words: str) -> tuple[int, list[str]]:
        code, told = command_line(*words, "--http", http)
        return code, sorted(told.splitlines())  # standard error and output, in whatever order

    for name in ("one", "two"):
        Guest(gateway.port, V5, name, keep=True).connect()
    names = ("one", "nobody", "two", "neither", "one")
    refused = [f"Error: {http} refuses /clients: there is no client '{name}'" for name in ("neither", "nobody")]
    done = [f"{name} is disconnected; its session waits" for name in ("one", "two")]
    assert said("client", "disconnect", *names) == (2, sorted(refused + done))
    code, told = said("client", "end", "--json", *names)
    ended = [json.loads(line)["client"] for line in told if line.startswith("{")]
    assert (code, [line for line in told if not line.startswith("{")], ended) == (2, refused, ["one", "two"])
    code, told = said("client", "block", "one", "$bridge/x", "two")
    assert (code, sum("is kept out for 1 h" in line for line in told)) == (2, 2), told
    code, told = said("client", "unblock", "neither", "one", "two")
    assert (code, sum("may come again" in line for line in told)) == (2, 2), told
    assert said("client", "end", "nobody", "neither") == (2, refused)
    gateway.kill()
    code, told = said("client", "end", *names)
    assert (code, len(told)) == (2, 1), "that nobody answers is told once"
