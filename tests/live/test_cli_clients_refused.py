"""`edgebroker pub` and `edgebroker sub` when something is wrong: one line that says what, and the exit code.

A scripted broker does what real ones do not do on demand: refuse with a reason, hang up, talk nonsense.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5, V311, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionOption,
)
from edgebridge.wire.properties import Properties, Property, user_properties
from edgebridge.wire.reasons import ReasonCode

pytestmark = pytest.mark.live

PATIENCE_S = 30.0  # how long anything may take before a test gives up; nothing here waits that long when all is well
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: bytes
    err: str


def edgebroker(*arguments: str) -> Outcome:
    command = [sys.executable, "-m", "edgebroker", *arguments]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, env=ENVIRONMENT, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr.decode())


@pytest.mark.parametrize("command", [["sub", "-t", "a"], ["pub", "-t", "a", "-m", "x"]], ids=["sub", "pub"])
def test_no_broker_is_one_line_and_exit_code_2(command: list[str], free_port: int) -> None:
    outcome = edgebroker(*command, "-p", str(free_port))
    assert outcome == Outcome(2, b"", f"edgebroker: cannot reach 127.0.0.1:{free_port}: Connection refused\n")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["pub", "-t", "a/+", "-m", "x"], "a topic to publish to has no wildcards"),
        (["pub", "-t", "a"], "give one of -m TEXT, -f FILE, -s, --stdin-lines, -n"),
        (["pub", "-t", "a", "-m", "x", "-n"], "give one of -m TEXT, -f FILE, -s, --stdin-lines, -n"),
        (["pub", "-t", "a", "-m", "x", "-V", "3.1.1", "-D", "k", "v"], "-D needs MQTT 5"),
        (["pub", "-t", "a", "-m", "x", "-V", "3.1.1", "-P", "secret"], "no password without a user name"),
        (["sub", "-t", "a", "-c"], "-c needs -i ID"),
        (["sub", "-t", "a", "--session-expiry", "5"], "--session-expiry needs -c"),
    ],
)
def test_contradictory_options_are_refused_before_connecting(command: list[str], hint: str, free_port: int) -> None:
    outcome = edgebroker(*command, "-p", str(free_port))
    assert outcome.code == 2
    assert hint in outcome.err


Answer = Callable[[Packet], list[Packet] | bytes | None]


def against(script: Answer, *arguments: str, dialect: Dialect = V5) -> tuple[Outcome, list[Packet]]:
    """Run `edgebroker *arguments*` against a broker that answers each packet by *script*; None hangs up."""
    heard: list[Packet] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framer = Framer(1 << 20)
        while chunk := await reader.read(65_536):
            framer.feed(chunk)
            while frame := framer.next_frame():
                heard.append(decode_packet(*frame, dialect))
                answer = script(heard[-1])
                if answer is None:
                    writer.close()
                    return
                writer.write(
                    answer if isinstance(answer, bytes) else b"".join(encode_packet(p, dialect) for p in answer)
                )
        writer.close()

    async def play() -> Outcome:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, asyncio.timeout(PATIENCE_S):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "edgebroker", arguments[0], "-p", str(port), *arguments[1:]),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
            )
            out, err = await process.communicate()
            assert process.returncode is not None
            return Outcome(process.returncode, out, err.decode().replace(str(port), "PORT"))

    return asyncio.run(play()), heard


def answering(connack: ConnAck, suback: SubAck | None = None, then: Packet | None = None) -> Answer:
    def script(packet: Packet) -> list[Packet] | bytes | None:
        match packet:
            case Connect():
                return [connack]
            case Subscribe() if suback:
                return [SubAck(packet.packet_id, suback.reasons, suback.properties), *([then] if then else [])]
            case Publish(packet_id=number) if number:
                return [PubAck(number, ReasonCode.QUOTA_EXCEEDED, {Property.REASON_STRING: "no room"})]
            case _:
                return []

    return script


WELCOME = ConnAck(properties={Property.USER_PROPERTY: [("filter", "1")]})


def test_a_refused_connection_says_why() -> None:
    properties: Properties = {Property.REASON_STRING: "come back later"}
    outcome, _ = against(answering(ConnAck(False, ReasonCode.SERVER_BUSY, properties)), "sub", "-t", "a")
    message = "edgebroker: 127.0.0.1:PORT refused the connection: come back later (server busy, 0x89)\n"
    assert outcome == Outcome(1, b"", message)


def test_a_refused_filter_prints_the_brokers_reason() -> None:
    refusal = SubAck(1, [ReasonCode.TOPIC_FILTER_INVALID], {Property.REASON_STRING: "column 6: a value is missing"})
    outcome, heard = against(answering(WELCOME, refusal), "sub", "-t", "a/#", "--where", "temp >")
    assert outcome.code == 1
    assert outcome.err == (
        "edgebroker: the broker refused 'a/#': column 6: a value is missing (topic filter invalid, 0x8F)\n"
    )
    (subscribe,) = (packet for packet in heard if isinstance(packet, Subscribe))
    assert user_properties(subscribe.properties) == [("$where", "temp >")]
    assert isinstance(heard[-1], Disconnect)


def test_a_311_broker_gives_no_reason_so_we_look_ourselves() -> None:
    outcome, heard = against(
        answering(ConnAck(), SubAck(1, [0x80])), "sub", "-V", "3.1.1", "-t", "a/#", "--where", "temp / 2", dialect=V311
    )
    assert outcome.code == 1
    assert "the broker refused 'a/#': 'temp / 2', column " in outcome.err
    (subscribe,) = (packet for packet in heard if isinstance(packet, Subscribe))
    assert subscribe.subscriptions == [SubscriptionOption("$filter/temp %2F 2/a/#")]


def test_a_filter_goes_behind_the_group_of_a_shared_subscription() -> None:
    outcome, heard = against(
        answering(ConnAck(), SubAck(1, [0])),
        *("sub", "-V", "3.1.1", "-t", "$share/g/a/#", "--where", "a > 1", "-W", "0"),
        dialect=V311,
    )
    assert outcome == Outcome(0, b"", "")
    (subscribe,) = (packet for packet in heard if isinstance(packet, Subscribe))
    assert subscribe.subscriptions == [SubscriptionOption("$share/g/$filter/a > 1/a/#")]


def test_where_is_never_sent_to_a_broker_that_would_ignore_it() -> None:
    outcome, heard = against(answering(ConnAck(), SubAck(1, [0])), "sub", "-t", "a", "--where", "a > 1")
    message = "edgebroker: the broker at 127.0.0.1:PORT knows no content filters: --where would be ignored\n"
    assert outcome == Outcome(1, b"", message)
    assert not any(isinstance(packet, Subscribe) for packet in heard)


def test_a_refused_message_is_counted() -> None:
    outcome, _ = against(answering(WELCOME), "pub", "-t", "a", "-q", "1", "-m", "x", "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out) == {"published": 1, "acknowledged": 0, "nobody_subscribed": 0, "failed": 1}
    assert outcome.err == "edgebroker: the broker refused the message to 'a': no room (quota exceeded, 0x97)\n"


def test_a_packet_beyond_the_brokers_limit_is_not_sent() -> None:
    outcome, heard = against(
        answering(ConnAck(properties={Property.MAXIMUM_PACKET_SIZE: 20})), "pub", "-t", "a", "-m", "x" * 50
    )
    assert outcome.code == 1
    assert "a packet of 56 bytes is more than the broker's 20" in outcome.err
    assert not any(isinstance(packet, Publish) for packet in heard)


def test_a_broker_that_shuts_down_is_heard() -> None:
    outcome, _ = against(
        answering(WELCOME, SubAck(1, [0]), Disconnect(ReasonCode.SERVER_SHUTTING_DOWN)), "sub", "-t", "a"
    )
    assert outcome == Outcome(1, b"", "edgebroker: the broker ended the connection: server shutting down (0x8B)\n")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "the broker closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n" + b"Content-Type: text/html\r\n" * 4, "the broker sent what cannot be read"),
        (b"\x20\x02\x00\x01", "the broker sent what cannot be read"),
    ],
    ids=["hangs up", "speaks HTTP", "answers in 3.1.1"],
)
def test_what_is_no_mqtt_broker_is_said_so(answer: bytes | None, message: str) -> None:
    outcome, _ = against(lambda packet: answer, "pub", "-t", "a", "-m", "x")
    assert outcome.code == 1
    assert outcome.err.startswith(f"edgebroker: 127.0.0.1:PORT does not answer as an MQTT broker: {message}")


def test_the_servers_keep_alive_is_kept() -> None:
    """[5: MQTT-3.2.2-21] The server's keep-alive holds, not ours: a ping comes within its second."""
    welcome = answering(ConnAck(properties={Property.SERVER_KEEP_ALIVE: 1}), SubAck(1, [0]))

    def script(packet: Packet) -> list[Packet] | bytes | None:
        return [Publish("a", b"after the ping")] if isinstance(packet, PingReq) else welcome(packet)

    outcome, _ = against(script, "sub", "-t", "a", "-C", "1")
    assert outcome == Outcome(0, b"after the ping\n", "")


def test_an_untaken_message_is_not_acknowledged() -> None:
    """What `sub -C 1` does not print stays the broker's."""
    script = answering(WELCOME, SubAck(1, [1]), Publish("a", b"1", 1, packet_id=1))

    def twice(packet: Packet) -> list[Packet] | bytes | None:
        answer = script(packet)
        if isinstance(packet, Subscribe) and isinstance(answer, list):
            answer.append(Publish("a", b"2", 1, packet_id=2))
        return answer

    outcome, heard = against(twice, "sub", "-t", "a", "-q", "1", "-C", "1")
    assert outcome == Outcome(0, b"1\n", "")
    assert [packet for packet in heard if isinstance(packet, PubAck)] == [PubAck(1)]
