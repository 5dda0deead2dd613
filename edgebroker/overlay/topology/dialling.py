"""Dialling: which of two gateways opens the connection, and the addresses that it tries."""

from __future__ import annotations

from edgebroker.dataclasses import dataclass
from edgebroker.names import Address
from edgebroker.overlay.topology.draft import DialPreference, DraftGateway, DraftLink


@dataclass(frozen=True, slots=True)
class DialPlan:
    """`dialler` dials the other gateway, at the first of `addresses` that answers."""

    dialler: str
    addresses: tuple[Address, ...]


class PeerUnreachable(Exception):
    """Neither of two gateways can dial the other: (the gateway to change, reason, remedy)."""


def dial(one: DraftGateway, other: DraftGateway, link: DraftLink | None) -> DialPlan:
    """Return which of two gateways dials. `link`: the exception in the file for just these two, if any.

    A gateway that can reach the other may dial. If both can, the one with the stronger preference does; of two equal
    ones that with the lower number: a gateway that is added later has a higher number, so it is dialled by gateways
    that know it already, and not refused by those that do not. Raises PeerUnreachable.
    """
    if link is not None:
        called = other if link.dials == one.name else one
        addresses = link.address or _addresses_for(called, other if called is one else one)
        if not addresses:
            reason = f"{link.dials} dials it, but {called.name} has no address there"
            raise PeerUnreachable(called, reason, "give one, or give the link one")
        return DialPlan(link.dials, addresses)
    plans = {
        caller.number: DialPlan(caller.name, addresses)
        for caller, called in ((one, other), (other, one))
        if caller.dials is not DialPreference.NEVER and (addresses := _addresses_for(called, caller))
    }
    if not plans:
        raise _unreachable(one, other)
    preference = {gateway.number: gateway.dials for gateway in (one, other)}
    return plans[min(plans, key=lambda number: (-preference[number], number))]


def _addresses_for(called: DraftGateway, caller: DraftGateway) -> tuple[Address, ...]:
    """Return the addresses at which *caller* can reach *called*, the best first."""
    return (*called.lan, *called.address) if called.site == caller.site else called.address


def _unreachable(one: DraftGateway, other: DraftGateway) -> PeerUnreachable:
    key = "a lan or another address" if one.site == other.site else "an address"
    for caller, called in ((one, other), (other, one)):
        if _addresses_for(called, caller) and not _addresses_for(caller, called):
            reason = f"{caller.name} never dials, and {called.name} does not reach it"
            return PeerUnreachable(caller, reason, f'give it {key} or dials = "auto"')
    if _addresses_for(one, other):
        return PeerUnreachable(
            one, f"neither {one.name} nor {other.name} ever dials", 'give one of them dials = "auto"'
        )
    return PeerUnreachable(
        one, f"neither {one.name} nor {other.name} is reached by the other", f"give one of them {key}"
    )
