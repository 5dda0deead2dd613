"""The quota of content filters: the matching work that one client, and all clients of one user, may ask for.

A publication whose topic matches is tested against all content filters on that topic, so every publisher pays for the
filters of each subscriber. All clients of a user, or of an address where no user is named, share the quota of a few
clients: many client identifiers are no way round it.
"""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.connection_rate import source_of
from edgebridge.frontend.memory_accounts import MemoryAccounts
from edgebridge.frontend.options import Quota
from edgebridge.session.filter_cost import FilterCost, FilterUsage, UsageTotals
from edgebridge.session.footprint import HeldKind, subscription_bytes
from edgebridge.session.session import Session
from edgebridge.session.subscription_text import SubscriptionRequest
from edgebroker.errors import FilterTooComplex
from edgebroker.instants import Instant

_MEASURES: Final = (
    ("filter_tests_max", "elementary tests", lambda tally, weight: tally.tests + weight.tests),
    ("filter_patterns_max", "LIKE patterns", lambda tally, weight: tally.patterns + weight.patterns),
    ("filter_attributes_max", "different attributes", UsageTotals.attributes_with),
)
"""What is bounded: the setting, what it counts, and how much of it there would be."""


class FiltersTooCostly(FilterTooComplex):
    """A content filter is beyond what its client, or all clients of its user or address, may have together."""


class FilterQuota:
    """Grants content filters, and keeps count of them; and grants the memory of subscriptions with and without one."""

    def __init__(self, quota: Quota, memory_accounts: MemoryAccounts) -> None:
        self.quota = quota
        """May be replaced: what was granted stays granted."""
        self.memory_accounts = memory_accounts
        self._sources: dict[tuple[str, str], UsageTotals] = {}

    def __len__(self) -> int:
        """Sources that have filters."""
        return len(self._sources)

    def admit(self, session: Session, request: SubscriptionRequest) -> FilterCost | None:
        """What the filter of *request* weighs; None if it has none. Raises FiltersTooCostly."""
        if request.filter is None:
            return None
        weight = FilterCost.of(request.filter)
        bill = self._usage(session)
        replaced = bill.release(request.text)
        try:
            self._check(bill.own, weight, 1, "a client")
            whose = f"all clients of {_quota_owner(session)[0]} together"
            self._check(bill.shared, weight, self.quota.filter_clients_max, whose)
        finally:
            if replaced is not None:
                bill.charge(request.text, replaced)
        return weight

    def admits_memory(
        self, session: Session, request: SubscriptionRequest, weight: FilterCost | None, is_known: bool, now: Instant
    ) -> bool:
        """Whether the account of *session* may hold what *request* takes, whose filter has this *weight*.

        *is_known*: it replaces a subscription of the same text, whose filter counts until memory is measured again.
        """
        size = _memory_of(request, weight) if not is_known else 0 if weight is None else weight.held_bytes
        return self.memory_accounts.admits(session.account, size, HeldKind.SUBSCRIPTIONS, now)

    def withdraw_memory(self, session: Session, request: SubscriptionRequest, weight: FilterCost | None) -> None:
        """*request*, a new one whose memory was admitted, is refused for another reason."""
        self.memory_accounts.withdraw(session.account, _memory_of(request, weight), HeldKind.SUBSCRIPTIONS)

    def restores_memory(self, session: Session, request: SubscriptionRequest, weight: FilterCost | None) -> bool:
        """Whether there is room for *request*, which a journal had."""
        size = _memory_of(request, weight)
        return self.memory_accounts.restores(session.account, size, HeldKind.SUBSCRIPTIONS)

    def charge(self, session: Session, text: str, weight: FilterCost | None) -> None:
        """The subscription *text* was granted, with a filter of this *weight* or without one."""
        self.release(session, text)
        if weight is not None:
            self._usage(session).charge(text, weight)

    def release(self, session: Session, text: str) -> FilterCost | None:
        """The subscription *text* is over; what its filter weighed, None if it had none."""
        bill: FilterUsage | None = session.filter_usage
        return None if bill is None else bill.release(text)

    def _check(self, tally: UsageTotals, weight: FilterCost, clients: int, whose: str) -> None:
        for name, what, total in _MEASURES:
            most = clients * getattr(self.quota, name)
            if total(tally, weight) > most:
                raise FiltersTooCostly(f"the content filters of {whose} have at most {most:,} {what}")

    def _usage(self, session: Session) -> FilterUsage:
        if session.filter_usage is None:
            session.filter_usage = FilterUsage(self._sources, _quota_owner(session))
        bill: FilterUsage = session.filter_usage
        return bill


def _memory_of(request: SubscriptionRequest, weight: FilterCost | None) -> int:
    return subscription_bytes(request.text) + (0 if weight is None else weight.held_bytes)


def _quota_owner(session: Session) -> tuple[str, str]:
    """Who answers for the client: ("a user", name), or ("an address", ...); a session from the journal for itself."""
    if session.user:
        return "a user", session.user
    if session.connection is not None:
        return "an address", source_of(session.connection.peer)
    return "a client", session.client_id
