"""What bridges are to do: from their settings, and from what their files say."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from edgebridge.frontend.keeping import KEPT_BYTES_MAX
from edgebridge.upstream.rule import Rule
from edgebridge.upstream.terms import Terms
from edgebridge.upstream.toll import Dues
from edgebridge.wire.dialect import V5, V311
from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND
from edgebroker.overlay.address import Address
from edgebroker.world.bridging.road import Road, password_of, road_of
from edgebroker.world.settings import Problem, Settings, SettingsRefused
from edgebroker.world.settings.aside import Aside
from edgebroker.world.settings.bridge import OWN_CLIENT, BridgeSettings
from edgebroker.world.settings.problems import Collecting


class Plan(NamedTuple):
    """A bridge that is to be."""

    settings: BridgeSettings
    terms: Terms
    road: Road


@dataclass(slots=True)
class Plans:
    """What may begin, by name, and what cannot be used."""

    usable: dict[str, Plan]
    aside: tuple[Aside, ...] = ()

    def forget(self, name: str) -> None:
        """There is no such bridge."""
        self.usable.pop(name, None)
        self.aside = tuple(one for one in self.aside if one.name != name)

    @property
    def names(self) -> frozenset[str]:
        """Of all, as far as they are known."""
        return frozenset(self.usable) | {one.name for one in self.aside if one.name}

    @property
    def are_all_named(self) -> bool:
        """Whether a bridge that is not among `names` is none."""
        return all(one.name for one in self.aside)

    def kept_back(self, present: Collection[str]) -> frozenset[str]:
        """Those of *present* that stay as they are, because what is planned of them cannot be used."""
        names = self.names if self.are_all_named else present
        return frozenset(present).intersection(names).difference(self.usable)

    def part(
        self,
        present: Mapping[str, BridgeSettings],
        rests: Callable[[BridgeSettings], bool],
        since: Collection[str] = (),
    ) -> None:
        """Set aside who would be the same client as another that runs: each would throw the other out, without end.

        Who is *present* and is to go on as it is comes first, and so does who was added *since* this was planned; else
        the order counts.
        """
        are_parted = False
        while not are_parted:  # one that is set aside may go on with its settings of before
            are_parted = True
            stay = self.kept_back(present).union(since).difference(self.usable)
            running = [present[name] for name in stay if not rests(present[name])]
            wanted = [plan.settings for plan in self.usable.values() if not rests(plan.settings)]
            for one in sorted(wanted, key=lambda one: present.get(one.name) != one):
                if other := next(filter(one.is_same_client_as, running), None):
                    problem = Problem("", 0, "bridge.client_id", one.is_as_other(other), OWN_CLIENT)
                    del self.usable[one.name]
                    self.aside += (Aside(one.name, (problem,), settings=one, is_double=True),)
                    are_parted = False
                else:
                    running.append(one)


def names_in(settings: Settings) -> frozenset[str]:
    """Of all bridges, as far as they can be read."""
    return frozenset(one.name for one in settings.bridges) | {one.name for one in settings.aside if one.name}


class Planning:
    """For one gateway."""

    def __init__(self, settings: Settings, identity: str) -> None:
        self._node = settings.node.name
        self._limits = settings.limits
        self._identity = identity

    def plans(self, listed: Settings, added: Settings) -> Plans:
        """Of the bridges that are *listed* in the settings, and those *added* that have other names."""
        taken = names_in(listed)
        aside = [*listed.aside, *(one for one in added.aside if one.name not in taken)]
        wanted = list(listed.bridges)
        wanted += [one for one in added.bridges if one.name not in taken]
        usable: dict[str, Plan] = {}
        for one in wanted:
            try:
                usable[one.name] = self.plan(one)
            except SettingsRefused as refused:
                aside.append(Aside(one.name, tuple(refused.problems), settings=one))
        return Plans(usable, tuple(aside))

    def plan(self, settings: BridgeSettings) -> Plan:
        """All that a bridge needs, with what its files say. Raises SettingsRefused with all that is wrong with them."""
        terms, road = None, None
        problems: list[Problem] = []
        with Collecting(problems):
            terms = self._terms(settings)
        with Collecting(problems):
            road = road_of(settings)
        if terms is None or road is None:
            raise SettingsRefused(problems)
        return Plan(settings, terms, road)

    def _terms(self, settings: BridgeSettings) -> Terms:
        rules: Sequence[Rule] = settings.topic
        return Terms(
            name=settings.name,
            client_id=settings.client_id or f"{self._node}-{settings.name}-{self._identity}",
            rules=rules,
            dialect=V5 if settings.version == "5" else V311,
            username=settings.username,
            password=password_of(settings),
            keep_alive_s=settings.keep_alive_s,
            inflight_max=settings.inflight_max,
            receive_maximum=self._limits.receive_maximum,
            packet_bytes_max=min(self._limits.packet_bytes_max, KEPT_BYTES_MAX),
            retains=self._limits.retained_messages_max > 0,
            try_private=settings.try_private,
            retry_max=settings.retry_s_max * SECOND,
            notification_topic=settings.notification_topic or "",
            identity=self._identity,
            remote=self._name_of_remote(settings.addresses[0]),
            tells_origin=settings.origin,
            dues=_dues(settings),
        )

    def _name_of_remote(self, address: str) -> str:
        """What to call a remote that does not say who it is. Elsewhere a private address is another machine's."""
        return address if is_global(Address.parse(address).host) else f"{address}@{self._identity}"


def is_global(host: str) -> bool:
    """Whether *host* means the same wherever it is said."""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host.strip(".") and not host.endswith((".local", ".lan", ".localdomain", ".internal"))


def _dues(settings: BridgeSettings) -> Dues:
    from edgebroker.overlay.link.terms import TLS_RECORD_BYTES  # the same sum as for links

    return Dues(
        settings.rate_bytes_s,
        settings.rate_messages_s,
        settings.bytes_per_day,
        settings.schedule,
        TLS_RECORD_BYTES if settings.is_tls else 0,
    )
