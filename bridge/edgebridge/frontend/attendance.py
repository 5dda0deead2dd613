"""How many clients are here, and how many came."""

from __future__ import annotations


class Attendance:
    """Counts of clients: those that are here `now`, the most that ever were, and all that were let in."""

    __slots__ = ("admitted", "expired", "most", "now")

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.admitted = 0
        self.expired = 0
        """Sessions whose time was over."""

    def came(self) -> None:
        """A client was let in."""
        self.admitted += 1
        self.now += 1
        self.most = max(self.most, self.now)

    def left(self) -> None:
        """A client that was let in is gone."""
        self.now -= 1
