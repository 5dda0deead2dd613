"""Stories are played four times: in both dialects, with chunks as they were written and with every byte alone."""

from __future__ import annotations

import pytest

from edgebridge.frontend.entrance import LOCAL, Entrance
from edgebridge.frontend.quota import QUOTA, Quota
from edgebridge.frontend.terms import Terms
from edgebridge.session.access import OPEN, Access
from edgebridge.wire.dialect import DIALECTS, V5, V311, Dialect
from edgebroker.records import Cause
from edgebroker.simworld.client import Client
from edgebroker.simworld.network import SimulatedBroker
from edgebroker.simworld.simulation import Simulation
from edgebroker.simworld.store import SimulatedStore
from edgebroker.simworld.transcript import Player
from edgebroker.simworld.weather import Weather, bytewise, whole
from edgebroker.storage.deliverylog.writer import DeliveryLog


class Story:
    """Call it with a script. The broker is made at the first call, with the given terms, and stays."""

    def __init__(self, dialect: Dialect, weather: Weather) -> None:
        self.dialect = dialect
        self._weather = weather
        self._player: Player | None = None

    def __call__(
        self,
        script: str,
        terms: Terms | None = None,
        access: Access = OPEN,
        entrance: Entrance = LOCAL,
        is_stored: bool = False,
        quota: Quota = QUOTA,
        log: DeliveryLog | None = None,
    ) -> None:
        if self._player is None:
            simulation = Simulation()
            store = SimulatedStore(simulation) if is_stored else None
            broker = SimulatedBroker(simulation, terms, log, access, quota, store)
            self._player = Player(broker, self.dialect, self._weather)
            self.broker.entrance = entrance
        self._player.play(script)

    @property
    def broker(self) -> SimulatedBroker:
        assert self._player is not None
        return self._player.broker

    @property
    def clients(self) -> dict[str, Client]:
        return {} if self._player is None else self._player.clients

    def client(self, name: str) -> Client:
        assert self._player is not None
        return self._player.clients[name]

    def dropped(self, cause: Cause) -> int:
        return self.broker.ledger.dropped.get(cause, 0)


@pytest.fixture(params=[whole, bytewise], ids=["whole", "bytewise"])
def weather(request: pytest.FixtureRequest) -> Weather:
    return Weather(chop=request.param, buffer_bytes=1)


@pytest.fixture(params=DIALECTS, ids=[dialect.version for dialect in DIALECTS])
def play(request: pytest.FixtureRequest, weather: Weather) -> Story:
    """Plays a transcript in both dialects."""
    return Story(request.param, weather)


@pytest.fixture
def play_v5(weather: Weather) -> Story:
    """Plays a transcript in version 5 only."""
    return Story(V5, weather)


@pytest.fixture
def play_v311(weather: Weather) -> Story:
    """Plays a transcript in version 3.1.1 only."""
    return Story(V311, weather)
