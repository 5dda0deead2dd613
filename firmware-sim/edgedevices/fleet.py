"""A run against real brokers: devices dealt to them in turn, limits looked at, progress shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from random import Random

from edgebroker.instants import Duration
from edgedevices.access import ANYONE, Access
from edgedevices.address import Address
from edgedevices.descriptors import allow
from edgedevices.errors import BrokerUnreachable
from edgedevices.identity import Identity
from edgedevices.ledger import Ledger
from edgedevices.message import Source
from edgedevices.mischief import Mischief, Prank
from edgedevices.modem import Modem
from edgedevices.progress import Progress
from edgedevices.run import Run
from edgedevices.session import Session
from edgedevices.sockets import Sockets
from edgedevices.station import Kit, Station


def crew(
    members: Iterable[tuple[Source, Identity]],
    ledger: Ledger,
    seed: int,
    drain: Duration,
    dropped_every: Duration | None = None,
) -> Run:
    """A run of sources with nothing around them: no radio, no battery, nobody who audits.

    dropped_every: each drops its connection that often, on average; None never.
    """
    habits = [] if dropped_every is None else [Mischief(Prank.DROP, every_us=dropped_every)]
    stations = [
        Station(
            source,
            Modem(Session(identity, ledger), ledger, Random(f"{seed}/line/{identity.device}")),
            Kit(gives_up=True),
            Random(f"{seed}/unrest/{identity.device}"),
            mischief=habits,
        )
        for source, identity in members
    ]
    return Run(stations, ledger, drain)


def deal_out(stations: Sequence[Station], brokers: Sequence[Address]) -> dict[str, Address]:
    """Device -> its broker, in turn."""
    return {station.name: broker for station, broker in zip(stations, cycle(brokers), strict=False)}


def live(
    run: Run, brokers: Sequence[Address], progress: Progress, audit_at: Address | None = None, access: Access = ANYONE
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
        station.session.access = access
    world = Sockets(
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
