"""How many clients are here, how many came, and how many were not let in."""

from __future__ import annotations

from edgebridge.wire.reasons import ReasonCode


class Attendance:
    """Counts of clients: those that are here `now`, the most that ever were, and all that were let in."""

    __slots__ = ("admitted", "expired", "most", "now", "refused")

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.admitted = 0
        self.expired = 0
        """Sessions whose time was over."""
        self.refused: dict[ReasonCode, int] = {}
        """CONNECTs, by the reason that CONNACK gave, or would have given."""

    def came(self) -> None:
        """A client was let in."""
        self.admitted += 1
        self.now += 1
        self.most = max(self.most, self.now)

    def left(self) -> None:
        """A client that was let in is gone."""
        self.now -= 1

    def refuse(self, reason: ReasonCode) -> None:
        """A client was not let in."""
        self.refused[reason] = self.refused.get(reason, 0) + 1
