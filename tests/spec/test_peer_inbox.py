"""An unexpected error in a message of a peer costs that message, and none behind it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgebridge.frontend.federation.federation import FederationMember
from edgebridge.wire.packets import Publish
from edgebroker.node.subscriptions import Copy
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.messages import Forward
from edgebroker.publication import plain
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.settings import Settings
from tests.support.gateway_in_process import come, say

from ..support.topologies import TWO_GATEWAYS

PATIENCE_S = 20.0
Story = Callable[[Gateway, Gateway, list[dict[str, Any]]], Awaitable[None]]


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.01)


def federated(folder: Path, story: Story) -> None:
    """Two gateways whose link is up; the errors that their loop was told of."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    path = folder / "topology.toml"
    path.write_text(TWO_GATEWAYS.format(*(one.getsockname()[1] for one in sockets)))
    for one in sockets:
        one.close()

    async def run() -> None:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        defaults = Settings.defaults()
        quiet = replace(defaults, overlay=replace(defaults.overlay, roaming=False))  # only clients publish
        gateways = [
            Gateway(
                quiet.overridden(port=0, topology=path, name=name, data=folder / name),
                tell=lambda line: None,
            )
            for name in ("gw-here", "gw-there")
        ]
        for gateway in gateways:
            await gateway.start()
        try:
            await until(lambda: all(link.connection is not None for link in overlay_of(gateways[0]).links))
            await story(gateways[0], gateways[1], errors)
        finally:
            for gateway in gateways:
                await gateway.stop()

    asyncio.run(run())


def overlay_of(gateway: Gateway) -> FederationMember:
    assert gateway.peer_manager is not None
    return gateway.peer_manager.overlay


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_messages_behind_the_one_that_fails_are_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    async def story(here: Gateway, there: Gateway, errors: list[dict[str, Any]]) -> None:
        overlay = overlay_of(there)
        come(there, "reader", "t")
        writer = come(here, "writer")
        say(here, writer, Publish("t", b"first", qos, packet_id=1 if qos else 0))
        await until(lambda: there.ledger.published == 1)
        received = overlay.peers.received

        def fails(peer: str, message: Any, now: int) -> Any:
            if getattr(message, "payload", b"") == b"1":
                raise RuntimeError("nobody expected this")
            return received(peer, message, now)

        monkeypatch.setattr(overlay.peers, "received", fails)
        overlay.fast_path = None  # the long way
        for number in range(4):
            say(here, writer, Publish("t", b"%d" % number, qos, packet_id=number + 2 if qos else 0))
        await until(lambda: there.ledger.published == 4)
        assert overlay.inbox.failed == 1
        assert [context["message"] for context in errors] == ["edgebroker: Forward of gw-here is given up"]
        assert not there.frontend.journal.is_in_transaction
        link: Link = overlay_of(here).links["gw-there"]
        await until(lambda: not link.outbox.events())  # all were acknowledged: it does not come again
        assert link.connection is not None

    federated(tmp_path, story)


def test_an_error_in_one_connection_ends_that_and_it_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(here: Gateway, there: Gateway, errors: list[dict[str, Any]]) -> None:
        link = overlay_of(here).links["gw-there"]
        before = link.connection

        def fails(*_: object) -> bytes:
            monkeypatch.undo()
            raise RuntimeError("nobody expected this")

        monkeypatch.setattr(link, "pull", fails)
        come(there, "reader", "t")
        writer = come(here, "writer")
        say(here, writer, Publish("t", b"1", 1, packet_id=1))
        await until(lambda: there.ledger.published == 1)
        assert before is not None
        assert before.is_over
        assert "nobody expected this" in before.reason
        assert link.connection is not before
        assert len(errors) == 1

    federated(tmp_path, story)


def test_an_error_amid_a_group_does_not_make_a_group_of_all_that_comes_later(tmp_path: Path) -> None:
    async def story(here: Gateway, there: Gateway, errors: list[dict[str, Any]]) -> None:
        session_journal = here.frontend.journal
        writer = come(here, "writer")
        session_journal.begin_transaction()
        session_journal.open_transaction(0)
        assert session_journal.is_in_transaction
        assert here._reactor is not None
        here._reactor.failed(writer, RuntimeError("nobody expected this"))
        assert not session_journal.is_in_transaction
        assert len(errors) == 1

    federated(tmp_path, story)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_comes_too_late_is_given_to_nobody_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    async def story(here: Gateway, there: Gateway, errors: list[dict[str, Any]]) -> None:
        overlay = overlay_of(there)
        come(there, "reader", "t")
        writer = come(here, "writer")
        received = overlay.peers.received

        def is_late(peer: str, message: Any, now: int) -> Any:
            return received(peer, replace(message, expires_in_ms=0) if isinstance(message, Forward) else message, now)

        monkeypatch.setattr(overlay.peers, "received", is_late)
        overlay.fast_path = None
        say(here, writer, Publish("t", b"late", qos, packet_id=1 if qos else 0))
        await until(lambda: there.ledger.published == 1)
        assert (there.ledger.matched, there.ledger.expired) == (1, 1)

    federated(tmp_path, story)


def test_an_error_leaves_no_copy_to_the_message_that_comes_next(tmp_path: Path) -> None:
    async def story(here: Gateway, there: Gateway, errors: list[dict[str, Any]]) -> None:
        come(here, "reader", "t")
        frontend = here.frontend
        copies = frontend.node.routes.route("t").accept(publication := plain("p", "t", b"1", 1, 0), here.ledger, 0, 0)
        assert len(copies) == 1
        nobody = Copy(copies[0].subscriptions)
        nobody.receiver = object()
        before = frontend.journal.next_lsn()
        with pytest.raises((AttributeError, TypeError)):
            frontend.delivery.deliver(publication, (*copies, nobody), 0)
        assert frontend.journal.next_lsn() == before + 1, "the copy that was sent is kept with its own message"

    federated(tmp_path, story)
