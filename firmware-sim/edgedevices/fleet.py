"""A run against real brokers: devices dealt to them in turn, limits on open files checked, progress shown."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Sequence
from itertools import cycle
from random import Random
from typing import Final

from edgebroker.instants import Duration
from edgedevices import BrokerUnreachable, InputInvalid
from edgedevices.broker import ANYONE, BrokerAddress, BrokerCredentials
from edgedevices.ledger import MessageLedger
from edgedevices.message import MessageSource
from edgedevices.mischief import Mischief, Prank
from edgedevices.modem import Modem
from edgedevices.progress import RunProgress
from edgedevices.run import DeviceRun
from edgedevices.session import DeviceIdentity, DeviceSession
from edgedevices.sockets import SocketWorld
from edgedevices.station import Station, StationParts

OWN: Final = 32
"""What a process has open besides connections: terminal, journal, selector, libraries."""


def allow(connections: int) -> None:
    """Let this process have that many connections: raise its soft limit as far as the hard one.

    Raises InputInvalid, with the ways out, if that is not enough.
    """
    needed = connections + OWN
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputInvalid(
            f"{connections:,} connections need {needed:,} open files, and this process may have {hard:,}: "
            f"raise the hard limit (`ulimit -Hn {needed}` as root, LimitNOFILE= of a systemd unit, "
            f"--ulimit nofile={needed} of a container), or take --devices {max(0, hard - OWN - 1)}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def crew(
    members: Iterable[tuple[MessageSource, DeviceIdentity]],
    ledger: MessageLedger,
    seed: int,
    drain: Duration,
    dropped_every: Duration | None = None,
) -> DeviceRun:
    """A run of sources with nothing around them: no radio, no battery, nobody who audits.

    dropped_every: each drops its connection that often, on average; None never.
    """
    habits = [] if dropped_every is None else [Mischief(Prank.DROP, every_us=dropped_every)]
    stations = [
        Station(
            source,
            Modem(DeviceSession(identity, ledger), ledger, Random(f"{seed}/line/{identity.device}")),
            StationParts(gives_up=True),
            Random(f"{seed}/unrest/{identity.device}"),
            mischief=habits,
        )
        for source, identity in members
    ]
    return DeviceRun(stations, ledger, drain)


def deal_out(stations: Sequence[Station], brokers: Sequence[BrokerAddress]) -> dict[str, BrokerAddress]:
    """Device -> its broker, in turn."""
    return {station.name: broker for station, broker in zip(stations, cycle(brokers), strict=False)}


def live(
    run: DeviceRun,
    brokers: Sequence[BrokerAddress],
    progress: RunProgress,
    audit_at: BrokerAddress | None = None,
    access: BrokerCredentials = ANYONE,
) -> None:
    """The whole run. audit_at: where the control room is, the first broker if it is left out.

    Raises BrokerUnreachable if a broker is not there, lets no device in or does not let the control room subscribe;
    InputInvalid if this process may not have so many connections.
    """
    allow(len(run.stations))
    places = deal_out(run.devices, brokers)
    if run.control is not None:
        places[run.control.name] = audit_at or brokers[0]
    for address in dict.fromkeys(places.values()):
        address.check_reachable()
    endpoints = {address: address.endpoint() for address in set(places.values())}
    for station in run.stations:
        station.session.credentials = access
    world = SocketWorld(
        run,
        lambda station: endpoints[places[station.name]],
        lambda seconds: progress.show(run.ledger, len(run.devices), seconds),
        access.tls,
    )
    try:
        world.live()
    finally:
        progress.close()
    if run.deaf:
        raise BrokerUnreachable(f"no audit at {audit_at or brokers[0]}: {run.deaf}")
    if run.devices and run.never_connected == len(run.devices) and not run.interrupted:
        raise BrokerUnreachable(f"no connection to {brokers[0]}: {run.devices[0].modem.last_refusal}")
