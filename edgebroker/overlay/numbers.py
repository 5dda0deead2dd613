"""The numbers that a gateway gives to its publishers, its advertisements and its questions."""

from __future__ import annotations

from edgebroker.header import HOSTED_MAX, hosted


class Numbers:
    """Those of one gateway. Others remember what they were told of a number, so none comes again for long."""

    def __init__(self, gateway: int, given: int = 0) -> None:
        """given: how many were given before, in earlier runs too."""
        self._gateway = gateway
        self.given = given

    def next(self) -> int:
        """A number that was not used for HOSTED_MAX others."""
        number = self.given % HOSTED_MAX + 1
        self.given += 1
        return hosted(self._gateway, number)
