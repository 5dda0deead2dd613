"""Names and addresses: types for the names of clients, nodes and subscriptions, the known name that is most like
an unknown one, and a host with its TCP port.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple, NewType

ClientId = NewType("ClientId", str)
"""What a client calls itself (MQTT: Client Identifier). Unique in one broker."""

NodeName = NewType("NodeName", str)
"""What an operator calls a gateway."""

SubscriptionNumber = NewType("SubscriptionNumber", int)
"""A broker-local number of one (client, subscription) pair; never used twice in one run."""


ALIKE: Final = 0.6
"""So much of both names is the same, at least; `difflib` asks for as much."""
CHARS_COMPARED: Final = 64
"""Of the name that was written. Ours are shorter, and 64 KiB of a name take 8 ms else."""


def most_alike(name: str, names: Iterable[str]) -> str | None:
    """The one of *names* that is most like *name*; None if none is like it.

    What `difflib.get_close_matches` finds first. That compares with all names whose letters are about the same, 25 us
    for each; here those that have most letters in common come first, and whoever cannot be better any more is left out.
    """
    from difflib import SequenceMatcher  # 0.2 MiB that only a slip costs

    name = name[:CHARS_COMPARED]
    letters = [(letter, name.count(letter)) for letter in set(name)]
    once = [letter for letter, count in letters if count == 1]  # most, and to find one takes a tenth of counting it
    more = [(letter, count) for letter, count in letters if count > 1]
    candidates = []
    for each in names:
        common = sum([letter in each for letter in once]) + sum(
            [min(count, each.count(letter)) for letter, count in more]
        )
        at_most = 2 * common / (len(name) + len(each) or 1)  # `quick_ratio`, in a tenth of its time
        if at_most >= ALIKE:
            candidates.append((at_most, each))
    matcher = SequenceMatcher()
    matcher.set_seq2(name)
    found = (ALIKE, "")
    for at_most, each in sorted(candidates, reverse=True):
        if at_most < found[0]:
            break
        matcher.set_seq1(each)
        found = max(found, (matcher.ratio(), each))
    return found[1] or None


def hostport(host: str, port: int) -> str:
    """`host:port`; an IPv6 address stands in brackets, so that it can be told from its port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([^\s\[\]/:,]{1,253})):([0-9]{1,5})")


class Address(NamedTuple):
    """A host name or IP address, and a TCP port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`host:port`, `10.0.0.1:port` or `[2001:db8::1]:port`. Raises ValueError."""
        found = _ADDRESS.fullmatch(text)
        if not found or not 1 <= int(found[3]) <= 65_535:
            raise ValueError(f"{text!r} is not host:port")
        return cls(found[1] or found[2], int(found[3]))

    def __str__(self) -> str:
        return hostport(self.host, self.port)
