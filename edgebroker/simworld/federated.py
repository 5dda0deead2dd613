"""Transcripts with the clients of a whole federation: each speaks to the gateway that is its home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgebroker.instants import MILLISECOND, Duration

from .client import Client
from .gateways import Gateways
from .transcript import Player

PAUSE: Final[Duration] = 100 * MILLISECOND
"""After each action: a few hops of a millisecond, and a sync at each gateway."""


class Federated(Player):
    """Plays transcripts against *gateways*; *homes*: client -> gateway."""

    def __init__(self, gateways: Gateways, homes: Mapping[str, str]) -> None:
        super().__init__(next(iter(gateways)))
        self.gateways = gateways
        self._homes = homes

    def _client(self, name: str) -> Client:
        if name not in self.clients:
            self.clients[name] = Client(name, self.gateways[self._homes[name]], self.weather)
            self.clients[name].dialect = self.dialect
        return self.clients[name]

    def _act(self, action: str) -> None:
        super()._act(action)
        simulation = self.gateways.simulation
        simulation.run_until(simulation.now + PAUSE)
