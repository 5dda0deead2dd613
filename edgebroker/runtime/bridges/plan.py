"""Plans bridges from their settings and the files these name; two bridges that would be one client are set aside."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from edgebridge.bridge.options import BridgeOptions
from edgebridge.bridge.rules import BridgeRule
from edgebridge.bridge.shaper import ShaperOptions
from edgebridge.frontend.journal.session_journal import DURABLE_MESSAGE_BYTES_MAX
from edgebridge.wire.dialect import V5, V311
from edgebroker.dataclasses import dataclass
from edgebroker.instants import SECOND
from edgebroker.names import Address
from edgebroker.runtime.bridges.connection import DialTarget, dial_target_of, load_password
from edgebroker.runtime.settings import Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.bridge_section import OWN_CLIENT, BridgeSettings
from edgebroker.runtime.settings.problems import InvalidEntry, ProblemCollector


class BridgePlan(NamedTuple):
    """A bridge that is to be."""

    settings: BridgeSettings
    terms: BridgeOptions
    dial_target: DialTarget


@dataclass(slots=True)
class BridgePlans:
    """What may begin, by name, and what cannot be used."""

    usable: dict[str, BridgePlan]
    aside: tuple[InvalidEntry, ...] = ()

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

    def unchanged_names(self, present: Collection[str]) -> frozenset[str]:
        """Those of *present* that stay as they are, because what is planned of them cannot be used."""
        names = self.names if self.are_all_named else present
        return frozenset(present).intersection(names).difference(self.usable)

    def set_duplicates_aside(
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
            stay = self.unchanged_names(present).union(since).difference(self.usable)
            running = [present[name] for name in stay if not rests(present[name])]
            wanted = [plan.settings for plan in self.usable.values() if not rests(plan.settings)]
            for one in sorted(wanted, key=lambda one: present.get(one.name) != one):
                if other := next(filter(one.is_same_client_as, running), None):
                    problem = Problem("", 0, "bridge.client_id", one.is_as_other(other), OWN_CLIENT)
                    del self.usable[one.name]
                    self.aside += (InvalidEntry(one.name, (problem,), settings=one, is_double=True),)
                    are_parted = False
                else:
                    running.append(one)


def bridge_names(settings: Settings) -> frozenset[str]:
    """Of all bridges, as far as they can be read."""
    return frozenset(one.name for one in settings.bridges) | {one.name for one in settings.aside if one.name}


class BridgePlanner:
    """For one gateway."""

    def __init__(self, settings: Settings, identity: str) -> None:
        self._node = settings.node.name
        self._limits = settings.limits
        self._identity = identity

    def plan_all(self, listed: Settings, added: Settings) -> BridgePlans:
        """Of the bridges that are *listed* in the settings, and those *added* that have other names."""
        taken = bridge_names(listed)
        aside = [*listed.aside, *(one for one in added.aside if one.name not in taken)]
        wanted = list(listed.bridges)
        wanted += [one for one in added.bridges if one.name not in taken]
        usable: dict[str, BridgePlan] = {}
        for one in wanted:
            try:
                usable[one.name] = self.plan(one)
            except SettingsRefused as refused:
                aside.append(InvalidEntry(one.name, tuple(refused.problems), settings=one))
        return BridgePlans(usable, tuple(aside))

    def plan(self, settings: BridgeSettings) -> BridgePlan:
        """All that a bridge needs, with what its files say. Raises SettingsRefused with all that is wrong with them."""
        terms, road = None, None
        problems: list[Problem] = []
        with ProblemCollector(problems):
            terms = self._terms(settings)
        with ProblemCollector(problems):
            road = dial_target_of(settings)
        if terms is None or road is None:
            raise SettingsRefused(problems)
        return BridgePlan(settings, terms, road)

    def _terms(self, settings: BridgeSettings) -> BridgeOptions:
        rules: Sequence[BridgeRule] = settings.topic
        return BridgeOptions(
            name=settings.name,
            client_id=settings.client_id or f"{self._node}-{settings.name}-{self._identity}",
            rules=rules,
            dialect=V5 if settings.version == "5" else V311,
            username=settings.username,
            password=load_password(settings),
            keep_alive_s=settings.keep_alive_s,
            inflight_max=settings.inflight_max,
            receive_maximum=self._limits.receive_maximum,
            packet_bytes_max=min(self._limits.packet_bytes_max, DURABLE_MESSAGE_BYTES_MAX),
            retains=self._limits.retained_messages_max > 0,
            try_private=settings.try_private,
            retry_max=settings.retry_s_max * SECOND,
            notification_topic=settings.notification_topic or "",
            identity=self._identity,
            remote_alias=self._name_of_remote(settings.addresses[0]),
            sends_origin=settings.origin,
            shaper_options=_shaper_options(settings),
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


def _shaper_options(settings: BridgeSettings) -> ShaperOptions:
    from edgebroker.overlay.link.options import TLS_RECORD_BYTES  # the same sum as for links

    return ShaperOptions(
        settings.rate_bytes_s,
        settings.rate_messages_s,
        settings.bytes_per_day,
        settings.schedule,
        TLS_RECORD_BYTES if settings.is_tls else 0,
    )
