"""Dialling: which of two gateways opens the connection, and the addresses that it tries."""

from __future__ import annotations

from edgebroker.dataclasses import dataclass
from edgebroker.names import Address
from edgebroker.overlay.topology.draft import DialPreference, DraftGateway, DraftLink


@dataclass(frozen=True, slots=True)
class DialPlan:
    """`dialler` dials the other, at the first of `addresses` that answers."""

    dialler: str
    addresses: tuple[Address, ...]


class PeerUnreachable(Exception):
    """Neither of two gateways can dial the other: (the one to change, reason, how to mend it)."""


def dial(one: DraftGateway, other: DraftGateway, link: DraftLink | None) -> DialPlan:
    """How the connection between two gateways comes about. `link`: what the file says of just these two.

    Whoever can reach the other may dial. If both can, the more eager one does; and of two like ones that with the lower
    number: a gateway that is added later has a higher one, and is dialled by those that have heard of it, not refused
    by those that have not. Raises Unreachable.
    """
    if link is not None:
        called = other if link.dials == one.name else one
        addresses = link.address or _seen_from(called, other if called is one else one)
        if not addresses:
            reason = f"{link.dials} dials it, but {called.name} has no address there"
            raise PeerUnreachable(called, reason, "give one, or give the link one")
        return DialPlan(link.dials, addresses)
    ways = {
        caller.number: DialPlan(caller.name, addresses)
        for caller, called in ((one, other), (other, one))
        if caller.dials is not DialPreference.NEVER and (addresses := _seen_from(called, caller))
    }
    if not ways:
        raise _neither(one, other)
    eager = {gateway.number: gateway.dials for gateway in (one, other)}
    return ways[min(ways, key=lambda number: (-eager[number], number))]


def _seen_from(called: DraftGateway, caller: DraftGateway) -> tuple[Address, ...]:
    """Where *caller* can reach *called*, the best first."""
    return (*called.lan, *called.address) if called.site == caller.site else called.address


def _neither(one: DraftGateway, other: DraftGateway) -> PeerUnreachable:
    key = "a lan or another address" if one.site == other.site else "an address"
    for caller, called in ((one, other), (other, one)):
        if _seen_from(called, caller) and not _seen_from(caller, called):
            reason = f"{caller.name} never dials, and {called.name} does not reach it"
            return PeerUnreachable(caller, reason, f'give it {key} or dials = "auto"')
    if _seen_from(one, other):
        return PeerUnreachable(
            one, f"neither {one.name} nor {other.name} ever dials", 'give one of them dials = "auto"'
        )
    return PeerUnreachable(
        one, f"neither {one.name} nor {other.name} is reached by the other", f"give one of them {key}"
    )
