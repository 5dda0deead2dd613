"""The name that was meant is the one that the standard library finds, which compares with every name."""

from __future__ import annotations

from difflib import get_close_matches
from random import Random

from edgebroker.names import CHARS_COMPARED, most_alike
from edgebroker.runtime.settings.settings import KEYS


def test_the_most_alike_is_what_difflib_finds_first(chance: Random) -> None:
    for _ in range(500):
        names = list(chance.choice(tuple(KEYS.values())))
        written = list(chance.choice(names))
        for _ in range(chance.randrange(6)):
            written.insert(chance.randrange(len(written) + 1), chance.choice("aeimnst_x"))
            del written[chance.randrange(len(written))]
        name = "".join(written)
        assert most_alike(name, names) == next(iter(get_close_matches(name, names, n=1)), None), (name, names)


def test_the_beginning_of_a_long_name_is_compared() -> None:
    assert most_alike("port" * CHARS_COMPARED, ["port" * (CHARS_COMPARED // 4), "host"]) is not None
    assert most_alike("port" * CHARS_COMPARED, ["port", "host"]) is None
    assert most_alike("", ["port"]) is None
    assert most_alike("port", []) is None
