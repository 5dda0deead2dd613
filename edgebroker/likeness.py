"""Which of the names that there are somebody may have meant, who wrote another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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
