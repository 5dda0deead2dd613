"""A run against real brokers: assigns devices to them in turn, checks limits on open files, shows the progress."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from random import Random
from time import monotonic_ns
from typing import Final

from edgebroker.instants import Duration
from edgedevices import BrokerUnreachable, InputInvalid
from edgedevices.broker import ANYONE, BrokerAddress, BrokerCredentials, BrokerEndpoint
from edgedevices.ledger import MessageLedger
from edgedevices.message import MessageSource
from edgedevices.mischief import Mischief, Prank
from edgedevices.modem import Modem
from edgedevices.progress import RunProgress
from edgedevices.run import DeviceRun
from edgedevices.server_reference import ReferenceFollower
from edgedevices.session import DeviceIdentity, DeviceSession
from edgedevices.sockets import SocketWorld
from edgedevices.station import Station, StationParts

OTHER_FILES: Final = 32
"""Open files besides connections: terminal, journal, selector, libraries."""


def allow_connections(connections: int) -> None:
    """Raises this process's soft limit of open files, so that it may have *connections*.

    Raises InputInvalid, with remedies, if the hard limit is too low.
    """
    needed = connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputInvalid(
            f"{connections:,} connections need {needed:,} open files, and this process may have {hard:,}: "
            f"raise the hard limit (`ulimit -Hn {needed}` as root, LimitNOFILE= of a systemd unit, "
            f"--ulimit nofile={needed} of a container), or take --devices {max(0, hard - OTHER_FILES - 1)}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def make_run(
    members: Iterable[tuple[MessageSource, DeviceIdentity]],
    ledger: MessageLedger,
    seed: int,
    drain: Duration,
    dropped_every: Duration | None = None,
) -> DeviceRun:
    """Makes a run of sources with permanent connections, without batteries and without audit.

    dropped_every: mean interval in which each drops its connection; None: never.
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
    """Returns device -> its broker, in turn."""
    return {station.name: broker for station, broker in zip(stations, cycle(brokers), strict=False)}


def live(
    run: DeviceRun,
    brokers: Sequence[BrokerAddress],
    progress: RunProgress,
    audit_at: BrokerAddress | None = None,
    access: BrokerCredentials = ANYONE,
    followers: dict[str, ReferenceFollower] | None = None,
) -> None:
    """Executes the run. audit_at: the broker of the control room, the first one by default. followers: filled with a
    follower for each device; None: devices do not go where brokers send them.

    Raises BrokerUnreachable if a broker cannot be reached, refuses all devices or refuses the subscriptions of the
    control room; InputInvalid if this process may not have so many connections.
    """
    allow_connections(len(run.stations))
    places = deal_out(run.devices, brokers)
    if run.control is not None:
        places[run.control.name] = audit_at or brokers[0]
    for address in dict.fromkeys(places.values()):
        address.check_reachable()
    endpoints = {address: address.endpoint() for address in set(places.values())}
    for station in run.stations:
        station.session.credentials = access
    if followers is not None:
        followers |= {station.name: ReferenceFollower(places[station.name]) for station in run.devices}
    world = SocketWorld(
        run,
        lambda station: _endpoint(station, places, endpoints, followers or {}),
        lambda seconds: progress.show(run.ledger, len(run.devices), seconds),
        access.tls,
    )
    try:
        world.live()
    finally:
        progress.close()
    if run.audit_error:
        raise BrokerUnreachable(f"no audit at {audit_at or brokers[0]}: {run.audit_error}")
    if run.devices and run.never_connected == len(run.devices) and not run.interrupted:
        raise BrokerUnreachable(f"no connection to {brokers[0]}: {run.devices[0].modem.last_refusal}")


def _endpoint(
    station: Station,
    places: Mapping[str, BrokerAddress],
    endpoints: dict[BrokerAddress, BrokerEndpoint],
    followers: Mapping[str, ReferenceFollower],
) -> BrokerEndpoint:
    """Returns where *station* connects now: at its broker in *places*, or where that has sent it."""
    follower = followers.get(station.name)
    if follower is None:
        return endpoints[places[station.name]]
    reference, station.session.reference = station.session.reference, None
    address = follower.next_server(reference, monotonic_ns() // 1_000)
    if address not in endpoints:
        try:
            endpoints[address] = address.endpoint()
        except BrokerUnreachable:  # the name in a reference is not known here
            return endpoints[places[station.name]]
    return endpoints[address]
