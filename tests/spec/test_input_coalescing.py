"""Input coalescing sleeps where it saves work, and delays no client too long, on a clock of its own."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterator

import pytest

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebroker.instants import SECOND
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.listeners.layer import ConnectionRefusals
from edgebroker.runtime.listeners.listener import Listener
from edgebroker.runtime.loop.input_coalescing import InputCoalescer
from edgebroker.runtime.loop.loop import Loop
from edgebroker.runtime.loop.reactor import Reactor
from edgebroker.runtime.operator_log import OperatorLog
from edgebroker.runtime.settings.sections import ListenerSettings

CONNECT = bytes.fromhex("1010 00044d515454 04 02 0000 0004") + b"name"
UNKNOWN_LEVEL = bytes.fromhex("1010 00044d515454 09 02 0000 0004") + b"name"
CONNACK = bytes.fromhex("20020000")
PUBLISH = bytes.fromhex("3004 0001 61") + b"!"
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
SENT_MAX = 200

NAP_US = 100
NAP_MAX_US = 10_000
WORK_US = 15  # of a turn, and of being woken


class Clients:
    """What has come and was not taken yet."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self.taken = 0
        self.is_hurried = False

    def arrived(self) -> int:
        """How many packets have come by now that are not taken."""
        raise NotImplementedError

    def next_at(self) -> int:
        """When the next one comes, if none is there."""
        raise NotImplementedError


class Devices(Clients):
    """Send at a fixed rate, whatever happens."""

    def __init__(self, every_us: int, pieces: int = 1) -> None:
        super().__init__()
        self.every_us = every_us
        self.pieces = pieces

    def arrived(self) -> int:
        return self.now // self.every_us * self.pieces - self.taken

    def next_at(self) -> int:
        return (self.taken // self.pieces + 1) * self.every_us


class Window(Clients):
    """One client sends again as soon as it has heard of the ones before."""

    def __init__(self, size: int, answers_us: int) -> None:
        super().__init__()
        self.size = size
        self.answers_us = answers_us

    def arrived(self) -> int:
        return self.size

    def next_at(self) -> int:
        return self.now


def turns(gathering: InputCoalescer, clients: Clients, until: int) -> Iterator[int]:
    """The nap before each turn."""
    while clients.now < until:
        nap = gathering.delay_us
        if nap:
            clients.now += nap + 50  # what the system adds
        clients.now = max(clients.now, clients.next_at() if not clients.arrived() else 0)
        packets = clients.arrived()
        clients.taken += packets
        clients.now += WORK_US + (clients.answers_us if isinstance(clients, Window) else 0)
        gathering.observe_turn(packets, clients.is_hurried, clients.now)
        yield nap


def share_of_naps(clients: Clients) -> float:
    naps = list(turns(InputCoalescer(NAP_US), clients, 4 * SECOND))
    return sum(map(bool, naps)) / len(naps)


def test_many_devices_are_heard_together() -> None:
    clients = Devices(every_us=50)
    naps = list(turns(InputCoalescer(NAP_US), clients, SECOND))
    assert naps[:17] == [0] * 16 + [NAP_US], "sixteen turns are enough to see it"
    assert sum(map(bool, naps)) > 0.9 * len(naps)
    assert clients.taken > 2.5 * len(naps), "a turn for every third message"


@pytest.mark.parametrize(
    "clients",
    [Devices(every_us=1_000), Devices(every_us=80), Devices(every_us=500, pieces=50)],
    ids=["1,000 a second", "12,500 a second", "gathered already"],
)
def test_others_are_heard_at_once(clients: Clients) -> None:
    assert share_of_naps(clients) == 0


@pytest.mark.parametrize("size", [1, 2, 10])
def test_who_waits_for_what_it_sends_is_hardly_delayed(size: int) -> None:
    """A nap of 150 us instead of a round trip of 30: twice 16 of them are tried, four times a second."""
    clients = Window(size, answers_us=15)
    assert 0 < share_of_naps(clients) < 0.01
    assert clients.taken > 0.97 * 4 * SECOND / 30 * size


def test_what_changes_is_noticed_while_there_are_naps() -> None:
    gathering = InputCoalescer(NAP_US)
    devices = Devices(every_us=50)
    list(turns(gathering, devices, SECOND))
    assert gathering.delay_us
    window = Window(50, answers_us=15)  # a client with many at a time comes instead
    window.now = devices.now
    naps = list(turns(gathering, window, devices.now + SECOND))
    assert sum(map(bool, naps)) <= 32 * 16


def test_a_client_that_may_wait_for_an_answer_ends_it_at_once() -> None:
    gathering = InputCoalescer(NAP_US)
    devices = Devices(every_us=50)
    list(turns(gathering, devices, SECOND))
    assert gathering.delay_us
    gathering.observe_turn(1, True, devices.now)
    assert not gathering.delay_us
    for _ in range(1_000):
        for is_hurried in (*[False] * 15, True):
            gathering.observe_turn(1, is_hurried, devices.now)
            assert not gathering.delay_us, "one turn of sixteen is enough"


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="only Linux has what a poller needs")
@pytest.mark.parametrize("gather_us", [NAP_MAX_US, 0])
def test_a_gateway_counts_what_its_clients_send(gather_us: int) -> None:
    async def story() -> None:
        frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "x")
        reactor = Reactor(frontend, gather_us)
        reactor.start()
        listener = Listener(reactor, 1, ConnectionRefusals(OperatorLog(lambda line: None)))
        await listener.open(ListenerSettings(port=0), None)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        gathering = loop.poller.coalescer
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(CONNECT)
        assert await reader.readexactly(4) == CONNACK
        for sent in range(1, SENT_MAX):
            writer.write(PUBLISH)
            while frontend.input.packets <= sent:
                await asyncio.sleep(0)
            if gathering.delay_us:
                break
        assert gathering.delay_us == gather_us
        stranger, spoken = await asyncio.open_connection("127.0.0.1", listener.port)
        spoken.write(UNKNOWN_LEVEL)
        assert await stranger.read(), "a refusal"
        spoken.close()
        assert gathering.delay_us == gather_us, "nothing is hurried for strangers"
        writer.write(PINGREQ)
        assert await reader.readexactly(2) == PINGRESP
        assert not gathering.delay_us
        writer.close()
        await reactor.stop()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(asyncio.wait_for(story(), 30))
