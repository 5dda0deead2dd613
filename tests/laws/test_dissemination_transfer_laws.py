"""Laws of transfers in random groups: whatever relays do, every live member ends with the right bytes [LBDD 2.3, 2.4].

EDGEBROKER_LBDD_TRANSFERS=10000 EDGEBROKER_LBDD_SIZE=6000 runs as many and longer transfers; a failure prints the
command that repeats one.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

from edgebroker.dissemination.messages import GroupMessage, StreamSlice, StreamStart, encode_message, read_message
from edgebroker.dissemination.stream_children import StreamOptions
from edgebroker.dissemination.stream_source import content_of
from edgebroker.instants import MINUTE, SECOND
from edgelab.experiment.lbdd_world import GroupNetwork, LinkModel

TRANSFERS = int(os.environ.get("EDGEBROKER_LBDD_TRANSFERS", "6"))
FIRST = int(os.environ.get("EDGEBROKER_LBDD_FIRST", "0"))
"""The first transfer, so that one can be run alone."""
SLICE = 16
SIZE_MAX = int(os.environ.get("EDGEBROKER_LBDD_SIZE", "2400"))
RATE = SLICE * 8 * 100.0
"""100 slices a second."""
FAULTS = ("kill", "lie", "withhold", "slow", "leave", "join", "start anew")


class TransferTrial:
    """A group of 2 to 24 members, one or two streams at once, and some faults."""

    def __init__(self, number: int, faults: tuple[str, ...] = FAULTS) -> None:
        chance = self.chance = Random(f"transfer {number}")
        self.members = [f"n{each}" for each in range(chance.randrange(2, 25))]
        options = StreamOptions(window=chance.choice((2, 4, 8)), ring=chance.choice((8, 16, 64)))
        links = LinkModel(RATE, lambda message: len(message.content))
        self.network = GroupNetwork(["broker", *self.members, "late1", "late2"], links, options)
        self.network.corrupt = self.corrupt
        self.network.found_group("g", self.members, chance.choice((0, 2, 3, 4)))
        self.network.run(3 * SECOND)
        self.liars: dict[str, float] = {}
        self.mute: set[str] = set()
        self.gone: set[str] = set()
        self.streams: dict[int, tuple[str, bytes, set[str]]] = {}
        """Stream -> its source, its content, and who is to get it."""
        for _ in range(chance.choice((0, 1, 2, 3)) if faults else 0):
            getattr(self, f"plan_{chance.choice(faults).replace(' ', '_')}")()
        sources = ["broker", chance.choice(self.members)] if chance.random() < 0.4 else ["broker"]
        for stream, source in enumerate(sources, 1):
            self.begin(stream, source)

    def begin(self, stream: int, source: str) -> None:
        view = self.network.memberships["g"].view
        data = self.chance.randbytes(self.chance.choice((0, 5, SLICE, 40, 400, 2_000, SIZE_MAX)))
        rates = self.network.links.rates
        rates[source] = max(rates.get(source, RATE), RATE / 20)  # with RATE / 1,000 it would take hours
        self.streams[stream] = source, data, {*view.nodes} - {source}
        self.network.publish(source, stream, view, content_of(data, SLICE))

    # -- faults --------------------------------------------------------------------------------------------------------

    def soon(self) -> float:
        return self.network.now + self.chance.uniform(0, 5) * SECOND

    def plan_kill(self) -> None:
        node = self.chance.choice(self.members)
        self.gone.add(node)
        self.network.at(self.soon(), lambda: self.network.kill(node))

    def plan_leave(self) -> None:
        node = self.chance.choice(self.members)
        self.gone.add(node)
        world = self.network

        def leave() -> None:
            if node not in world.dead:
                world.perform(node, world.nodes[node].leave("g", world.instant))

        world.at(self.soon(), leave)

    def plan_join(self) -> None:
        world = self.network
        node = self.chance.choice(("late1", "late2"))
        world.at(self.soon(), lambda: world.join(node, "g"))

    def plan_start_anew(self) -> None:
        """A member dies and comes back, without what it had."""
        node = self.chance.choice(self.members)
        self.gone.add(node)
        self.network.at(self.soon(), lambda: self.network.restart(node, "g", self.network.now + SECOND))

    def plan_lie(self) -> None:
        self.liars[self.chance.choice(self.members)] = self.chance.choice((0.02, 0.3, 1.0))

    def plan_withhold(self) -> None:
        self.mute.add(self.chance.choice(self.members))

    def plan_slow(self) -> None:
        self.network.links.rates[self.chance.choice(self.members)] = RATE / self.chance.choice((3, 20, 1_000))

    def corrupt(self, sender: str, to: str, message: GroupMessage) -> GroupMessage | None:
        message = read_message(encode_message(message))
        is_content = isinstance(message, StreamSlice | StreamStart)
        if is_content and sender in self.mute and not self.is_source(sender, message):
            return None
        is_lie = is_content and self.chance.random() < self.liars.get(sender, 0) and not self.is_source(sender, message)
        if is_lie and isinstance(message, StreamSlice | StreamStart) and message.content:
            return replace(message, content=message.content[:-1] + bytes([message.content[-1] ^ 1]))
        return message

    def is_source(self, sender: str, message: GroupMessage) -> bool:
        return isinstance(message, StreamSlice | StreamStart) and self.streams[message.stream][0] == sender

    # -- the law -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        network = self.network

        def is_done() -> bool:
            return all(
                (node, stream) in network.finished
                for stream, (source, _, receivers) in self.streams.items()
                for node in (*receivers - self.gone, source)
                if source not in self.gone
            )

        done = network.run_until(is_done, network.now + 20 * MINUTE)
        for stream, (source, data, receivers) in self.streams.items():
            for node in receivers:
                got = b"".join(network.delivered.get((node, stream), []))
                assert data.startswith(got), f"{node} has wrong bytes of {source}"
                if node not in self.gone and source not in self.gone:
                    finished = (node, stream) in network.finished
                    assert finished, f"{node} has {len(got)} of {len(data)} bytes of stream {stream}"
                    assert got == data
        assert done, f"a source waits for reports: {self.missing()}"

    def missing(self) -> dict[int, set[str]]:
        found = {}
        for stream, (source, _, _) in self.streams.items():
            sending = self.network.nodes[source].source(stream)
            found[stream] = set() if sending is None else sending.missing
        return found


def run_trial(number: int, faults: tuple[str, ...]) -> TransferTrial:
    trial = TransferTrial(number, faults)
    try:
        trial.run()
    except Exception as error:
        bounds = f"EDGEBROKER_LBDD_TRANSFERS=1 EDGEBROKER_LBDD_SIZE={SIZE_MAX}"
        repeat = f"EDGEBROKER_LBDD_FIRST={number} {bounds} pytest {__file__}"
        pytest.fail(f"transfer {number}: {error!r}\n{repeat}")
    return trial


def test_every_live_member_ends_with_the_right_bytes() -> None:
    for number in range(FIRST, FIRST + TRANSFERS):
        run_trial(number, FAULTS)


def test_without_failures_each_member_gets_one_copy_of_each_slice() -> None:
    for number in range(FIRST, FIRST + TRANSFERS // 2):
        trial = run_trial(number, ())
        copies = 0
        for _, data, receivers in trial.streams.values():
            copies += -(-len(data) // SLICE) * len(receivers)
        assert sum(trial.network.copies.values()) == copies
