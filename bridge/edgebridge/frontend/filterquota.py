"""How much the content filters of one client, and of all clients of one user or address, may ask of the matcher.

Every publication that a topic filter matches is held against all content filters on it, whoever subscribed: so what one
asks, all others pay. A user's clients, or those of an address behind which nobody said who he is, have a few clients'
worth together: many identifiers are no way round.
"""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.admission import source_of
from edgebridge.frontend.quota import Quota
from edgebridge.session.carriers import SubscriptionRequest
from edgebridge.session.filterbill import Bill, Tally, Weight
from edgebridge.session.session import Session
from edgebroker.errors import FilterTooComplex

_MEASURES: Final = (
    ("filter_tests_max", "elementary tests", lambda tally, weight: tally.tests + weight.tests),
    ("filter_patterns_max", "LIKE patterns", lambda tally, weight: tally.patterns + weight.patterns),
    ("filter_attributes_max", "different attributes", Tally.attributes_with),
)
"""What is bounded: the setting, what it counts, and how much of it there would be."""


class FiltersTooCostly(FilterTooComplex):
    """A content filter is beyond what its client, or all clients of its user or address, may have together."""


class FilterQuota:
    """Grants content filters, and keeps count of them."""

    def __init__(self, quota: Quota) -> None:
        self.quota = quota
        """May be replaced: what was granted stays granted."""
        self._sources: dict[tuple[str, str], Tally] = {}

    def __len__(self) -> int:
        """Sources that have filters."""
        return len(self._sources)

    def admit(self, session: Session, request: SubscriptionRequest) -> Weight | None:
        """What the filter of *request* weighs; None if it has none. Raises FiltersTooCostly."""
        if request.filter is None:
            return None
        weight = Weight.of(request.filter)
        bill = self._bill(session)
        replaced = bill.release(request.text)
        try:
            self._check(bill.own, weight, 1, "a client")
            whose = f"all clients of {_source(session)[0]} together"
            self._check(bill.shared, weight, self.quota.filter_clients_max, whose)
        finally:
            if replaced is not None:
                bill.charge(request.text, replaced)
        return weight

    def charge(self, session: Session, text: str, weight: Weight | None) -> None:
        """The subscription *text* was granted, with a filter of this *weight* or without one."""
        self.release(session, text)
        if weight is not None:
            self._bill(session).charge(text, weight)

    def release(self, session: Session, text: str) -> Weight | None:
        """The subscription *text* is over; what its filter weighed, None if it had none."""
        bill: Bill | None = session.bill
        return None if bill is None else bill.release(text)

    def _check(self, tally: Tally, weight: Weight, clients: int, whose: str) -> None:
        for name, what, total in _MEASURES:
            most = clients * getattr(self.quota, name)
            if total(tally, weight) > most:
                raise FiltersTooCostly(f"the content filters of {whose} have at most {most:,} {what}")

    def _bill(self, session: Session) -> Bill:
        if session.bill is None:
            session.bill = Bill(self._sources, _source(session))
        bill: Bill = session.bill
        return bill


def _source(session: Session) -> tuple[str, str]:
    """Who answers for the client: ("a user", name), or ("an address", ...); a session from the journal for itself."""
    if session.user:
        return "a user", session.user
    if session.connection is not None:
        return "an address", source_of(session.connection.peer)
    return "a client", session.client_id
