"""Stories are played four times: in both dialects, with chunks as they were written and with every byte alone."""

from __future__ import annotations

import pytest

from edgebridge.frontend.options import LOCAL_LISTENER, QUOTA, FrontendOptions, ListenerContext, Quota
from edgebridge.session.access import OPEN, AccessPolicy
from edgebridge.wire.dialect import DIALECTS, V5, V311, Dialect
from edgebroker.log_schema import Cause
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.client import SimulatedClient
from edgelab.simworld.conditions import LineConditions, bytewise, whole
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.store import SimulatedStore
from edgelab.simworld.transcript import TranscriptPlayer


class Story:
    """Call it with a script. The broker is made at the first call, with the given terms, and stays."""

    def __init__(self, dialect: Dialect, weather: LineConditions) -> None:
        self.dialect = dialect
        self._weather = weather
        self._player: TranscriptPlayer | None = None

    def __call__(
        self,
        script: str,
        terms: FrontendOptions | None = None,
        access: AccessPolicy = OPEN,
        listener_context: ListenerContext = LOCAL_LISTENER,
        is_stored: bool = False,
        quota: Quota = QUOTA,
        log: DeliveryLog | None = None,
    ) -> None:
        if self._player is None:
            simulation = Simulation()
            store = SimulatedStore(simulation) if is_stored else None
            broker = SimulatedBroker(simulation, terms, log, access, quota, store)
            self._player = TranscriptPlayer(broker, self.dialect, self._weather)
            self.broker.entrance = listener_context
        self._player.play(script)

    @property
    def broker(self) -> SimulatedBroker:
        assert self._player is not None
        return self._player.broker

    @property
    def clients(self) -> dict[str, SimulatedClient]:
        return {} if self._player is None else self._player.clients

    def client(self, name: str) -> SimulatedClient:
        assert self._player is not None
        return self._player.clients[name]

    def dropped(self, cause: Cause) -> int:
        return self.broker.ledger.dropped.get(cause, 0)


@pytest.fixture(params=[whole, bytewise], ids=["whole", "bytewise"])
def weather(request: pytest.FixtureRequest) -> LineConditions:
    return LineConditions(chop=request.param, buffer_bytes=1)


@pytest.fixture(params=DIALECTS, ids=[dialect.version for dialect in DIALECTS])
def play(request: pytest.FixtureRequest, weather: LineConditions) -> Story:
    """Plays a transcript in both dialects."""
    return Story(request.param, weather)


@pytest.fixture
def play_v5(weather: LineConditions) -> Story:
    """Plays a transcript in version 5 only."""
    return Story(V5, weather)


@pytest.fixture
def play_v311(weather: LineConditions) -> Story:
    """Plays a transcript in version 3.1.1 only."""
    return Story(V311, weather)
