"""The listener context of a connection: name, durability, and whether anonymous clients are accepted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from socket import AF_INET, SOCK_STREAM

import pytest

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import ClientCertificate, FrontendOptions, ListenerContext
from edgebridge.session.durability import batched
from edgebroker.errors import CannotListen
from edgebroker.instants import SECOND
from edgebroker.limits import CONNECT_TIMEOUT_S
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.listeners.layer import ConnectionRefusalCause, ConnectionRefusals
from edgebroker.runtime.listeners.listener import Listener
from edgebroker.runtime.listeners.tls import certificate_of
from edgebroker.runtime.loop.reactor import Reactor, clock
from edgebroker.runtime.operator_log import OperatorLog
from edgebroker.runtime.settings import Settings


def context_of(text: str, folder: Path) -> ListenerContext:
    """That of the only listener of a settings file."""
    return listener_of(text, folder).context


def listener_of(text: str, folder: Path) -> Listener:
    """The only listener of a settings file. It was open."""

    async def opened() -> Listener:
        [settings] = Settings.parse(f"[listener]\n{text}\n", "f", folder).listeners
        listener = Listener(
            Reactor(Frontend(Node(Ledger()), FrontendOptions(), str)),
            7,
            ConnectionRefusals(OperatorLog(lambda line: None)),
        )
        try:
            await listener.open(settings, None)
            return listener
        finally:
            listener.close()

    return asyncio.run(opened())


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("port = 0", "-p PORT"),
        ('port = 0\nhost = "0.0.0.0"\nanonymous = true', "-p PORT"),
        ('port = 0\nhost = "127.0.0.2"', "-h 127.0.0.2 -p PORT"),
        ("port = 0\nanonymous = false", ""),
        ('port = 0\nprotocol = "websocket"', ""),
    ],
)
def test_nobody_is_told_a_way_in_that_is_none(text: str, hint: str, tmp_path: Path) -> None:
    listener = listener_of(text, tmp_path)
    assert listener.hint == hint.replace("PORT", str(listener.port))


@pytest.mark.parametrize(
    ("text", "lets_in"),
    [
        ("port = 0", True),
        ('port = 0\nhost = "localhost"', True),
        ('port = 0\nhost = "0.0.0.0"', False),
        ('port = 0\nhost = "0.0.0.0"\nanonymous = true', True),
        ("port = 0\nanonymous = false", False),
        ("port = 0\nproxy_protocol = true", False),
        ('path = "s"', True),
        ('path = "s"\nanonymous = false', False),
        ('path = "s"\nproxy_protocol = true', False),
    ],
)
def test_strangers_come_from_this_machine_unless_said_otherwise(text: str, lets_in: bool, tmp_path: Path) -> None:
    assert context_of(text, tmp_path).is_anonymous is lets_in


@pytest.mark.parametrize(("second", "lets_in"), [("127.0.0.2", True), ("0.0.0.0", False)])
def test_a_name_with_several_addresses_is_as_open_as_the_most_open(
    second: str, lets_in: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [*(f"127.0.0.{number}" for number in range(3, 20)), second]

    async def found(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(AF_INET, SOCK_STREAM, 0, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", found)
    assert context_of('port = 0\nhost = "gateway"', tmp_path).is_anonymous is lets_in


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example"])
def test_a_host_that_is_no_name_is_said_to_be_none(host: str, tmp_path: Path) -> None:
    with pytest.raises(CannotListen, match=rf"cannot listen on {host}:0: no such host"):
        context_of(f'port = 0\nhost = "{host}"', tmp_path)


def test_a_listener_context_has_the_name_and_the_durability_of_its_listener(tmp_path: Path) -> None:
    named = context_of('port = 0\nname = "hall"\ndurability = "batched:20"', tmp_path)
    assert (named.name, named.number, named.durability) == ("hall", 7, batched(20))
    plain = context_of('path = "s"', tmp_path)
    assert (plain.name, plain.durability) == (str(tmp_path / "s"), None)


def test_a_connection_has_the_context_of_the_listener_that_accepted_it() -> None:
    frontend = Frontend(Node(Ledger()), FrontendOptions(), str)
    acceptor = ListenerContext("hall", 3)
    connection: Connection = frontend.opened("p", 0, acceptor)
    assert connection.listener_context is acceptor
    assert frontend.opened("p", 0).listener_context.is_anonymous
    assert connection.certificate is None


def test_a_certificate_is_named_by_its_common_name_else_by_an_alternative() -> None:
    shown = {
        "subject": ((("organizationName", 'Wells, "North"'),), (("commonName", "pump-3"),)),
        "subjectAltName": (("DNS", "pump-3.example"), ("IP Address", "192.0.2.1"), ("URI", "urn:dev:1")),
    }
    certificate = certificate_of(shown)
    assert certificate.alternative_names == ("DNS:pump-3.example", "IP:192.0.2.1", "URI:urn:dev:1")
    assert certificate.name == "pump-3"
    assert ClientCertificate("", alternative_names=("URI:urn:dev:1",)).name == "urn:dev:1"
    assert ClientCertificate("").name == ""


def test_refusals_are_all_counted_and_some_are_told() -> None:
    told: list[bytes] = []
    refusals = ConnectionRefusals(OperatorLog(told.append))
    for number in range(100):
        refusals.record(ConnectionRefusalCause.PLAIN, "safe", f"p:{number}", "why")
    refusals.record(ConnectionRefusalCause.UPGRADE, "web", "p:1", "because")
    assert 1 < len(told) < 20
    assert told[-1].endswith(b" warning websocket-upgrade: turned away: because listener=web peer=p:1\n")
    assert refusals.counts == {ConnectionRefusalCause.PLAIN: 100, ConnectionRefusalCause.UPGRADE: 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [("", b""), ('protocol = "websocket"', b""), ('protocol = "websocket"', b"GET /mqtt HTTP/1.1\r\n")],
)
def test_who_never_says_connect_has_ten_seconds_for_all_of_it(text: str, said: bytes) -> None:
    async def story() -> None:
        frontend = Frontend(Node(Ledger()), FrontendOptions(), str)
        reactor = Reactor(frontend)
        reactor.start()
        [settings] = Settings.parse(f"[listener]\nport = 0\n{text}\n", "f", Path("/")).listeners
        listener = Listener(reactor, 1, ConnectionRefusals(OperatorLog(lambda line: None)))
        await listener.open(settings, None)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(said)
        while not frontend.connections:
            await asyncio.sleep(0)
        frontend.fire(clock() + CONNECT_TIMEOUT_S * SECOND + SECOND)
        reactor.schedule_flush()
        with suppress(ConnectionError):  # it is a reset if we had said something that nobody read
            assert await reader.read() == b""
        while listener.connections:
            await asyncio.sleep(0)
        assert not frontend.connections
        writer.close()
        listener.close()
        await reactor.stop()

    async def bounded() -> None:
        await asyncio.wait_for(story(), 30)

    asyncio.run(bounded())
