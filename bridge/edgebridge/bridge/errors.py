"""The error of a bridge rule that cannot be used: reason and remedy."""

from __future__ import annotations

from edgebroker.errors import EdgebrokerError


class RuleInvalid(EdgebrokerError):
    """A rule that cannot be used: (reason, how to mend it)."""

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(f"{reason}; {mend}")
        self.reason = reason
        self.mend = mend
