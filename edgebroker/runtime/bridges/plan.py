"""Plans bridges from their settings and the files these name; a second bridge of one client identifier is set aside."""

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
    """Everything a bridge is made of."""

    settings: BridgeSettings
    options: BridgeOptions
    dial_target: DialTarget


@dataclass(slots=True)
class BridgePlans:
    """The bridges that can start, by name, and the entries that are invalid."""

    usable: dict[str, BridgePlan]
    aside: tuple[InvalidEntry, ...] = ()

    def forget(self, name: str) -> None:
        """Removes the bridge *name*."""
        self.usable.pop(name, None)
        self.aside = tuple(entry for entry in self.aside if entry.name != name)

    @property
    def names(self) -> frozenset[str]:
        """The names of all bridges, as far as they can be read."""
        return frozenset(self.usable) | {entry.name for entry in self.aside if entry.name}

    @property
    def are_all_named(self) -> bool:
        """Whether every invalid entry has a readable name, so that `names` is complete."""
        return all(entry.name for entry in self.aside)

    def unchanged_names(self, present: Collection[str]) -> frozenset[str]:
        """Returns those of the *present* bridges that stay as they are, because their new entry is invalid."""
        names = self.names if self.are_all_named else present
        return frozenset(present).intersection(names).difference(self.usable)

    def set_duplicates_aside(
        self,
        present: Mapping[str, BridgeSettings],
        is_paused: Callable[[BridgeSettings], bool],
        added_since: Collection[str] = (),
    ) -> None:
        """Sets aside bridges with the client identifier of another running bridge.

        The remote would end the connection of the one whenever the other connects, without end.

        A *present* bridge that does not change takes precedence, and so does one *added_since* this was planned;
        otherwise the order of the settings counts.
        """
        is_done = False
        while not is_done:  # a bridge that is set aside may keep running with its previous settings
            is_done = True
            stay = self.unchanged_names(present).union(added_since).difference(self.usable)
            running = [present[name] for name in stay if not is_paused(present[name])]
            wanted = [plan.settings for plan in self.usable.values() if not is_paused(plan.settings)]
            for settings in sorted(wanted, key=lambda settings: present.get(settings.name) != settings):
                if other := next(filter(settings.is_same_client_as, running), None):
                    problem = Problem("", 0, "bridge.client_id", settings.is_as_other(other), OWN_CLIENT)
                    del self.usable[settings.name]
                    self.aside += (InvalidEntry(settings.name, (problem,), settings=settings, is_double=True),)
                    is_done = False
                else:
                    running.append(settings)


def bridge_names(settings: Settings) -> frozenset[str]:
    """Returns the names of all bridges of *settings*, as far as they can be read."""
    return frozenset(entry.name for entry in settings.bridges) | {entry.name for entry in settings.aside if entry.name}


class BridgePlanner:
    """Makes the plans of one gateway's bridges."""

    def __init__(self, settings: Settings, identity: str) -> None:
        self._node_name = settings.node.name
        self._limits = settings.limits
        self._identity = identity

    def plan_all(self, listed: Settings, added: Settings) -> BridgePlans:
        """Plans the bridges *listed* in the settings, and those *added* at run time under other names."""
        taken = bridge_names(listed)
        aside = [*listed.aside, *(entry for entry in added.aside if entry.name not in taken)]
        listed_and_added = list(listed.bridges)
        listed_and_added += [entry for entry in added.bridges if entry.name not in taken]
        usable: dict[str, BridgePlan] = {}
        for entry in listed_and_added:
            try:
                usable[entry.name] = self.plan(entry)
            except SettingsRefused as refused:
                aside.append(InvalidEntry(entry.name, tuple(refused.problems), settings=entry))
        return BridgePlans(usable, tuple(aside))

    def plan(self, settings: BridgeSettings) -> BridgePlan:
        """Plans one bridge, and reads the files it names. Raises SettingsRefused with all problems of the files."""
        options, dial_target = None, None
        problems: list[Problem] = []
        with ProblemCollector(problems):
            options = self._options(settings)
        with ProblemCollector(problems):
            dial_target = dial_target_of(settings)
        if options is None or dial_target is None:
            raise SettingsRefused(problems)
        return BridgePlan(settings, options, dial_target)

    def _options(self, settings: BridgeSettings) -> BridgeOptions:
        rules: Sequence[BridgeRule] = settings.topic
        return BridgeOptions(
            name=settings.name,
            client_id=settings.client_id or f"{self._node_name}-{settings.name}-{self._identity}",
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
            answer_max=settings.answer_s_max * SECOND,
            retained_again=settings.retained_again,
            notification_topic=settings.notification_topic or "",
            identity=self._identity,
            remote_alias=self._name_of_remote(settings.addresses[0]),
            sends_origin=settings.origin,
            shaper_options=_shaper_options(settings),
        )

    def _name_of_remote(self, address: str) -> str:
        """Returns an alias for a remote that sends no name of its own. A private address is not unique, so our identity
        is added.
        """
        return address if is_global(Address.parse(address).host) else f"{address}@{self._identity}"


def is_global(host: str) -> bool:
    """Whether *host* means the same machine from everywhere."""
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return "." in host.strip(".") and not host.endswith((".local", ".lan", ".localdomain", ".internal"))


def _shaper_options(settings: BridgeSettings) -> ShaperOptions:
    from edgebroker.overlay.link.options import TLS_RECORD_BYTES  # the same overhead per record as for links

    return ShaperOptions(
        settings.rate_bytes_s,
        settings.rate_messages_s,
        settings.bytes_per_day,
        settings.schedule,
        TLS_RECORD_BYTES if settings.is_tls else 0,
    )
