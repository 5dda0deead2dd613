"""`edgebroker bench federation` starts as many gateways as it says, and counts. Nothing here looks at a speed."""

from __future__ import annotations

import json

from click.testing import CliRunner

from edgebroker.runtime.topology_file import parse_topology
from edgelab.bench import command
from edgelab.bench.federation import IDLE_BYTES_MAX, UP_S_MAX, FederationFigures, table, topology


def test_two_gateways_are_started_and_watched() -> None:
    done = CliRunner().invoke(command, ["federation", "--sites=2", "--gateways=1", "--idle=1", "--json"])
    assert done.exit_code in (0, 1), done.output
    found = json.loads(done.stdout)
    assert (found["gateways"], found["link_ends"]) == (2, 2)
    assert found["up_s"] > 0
    assert found["memory_mib"] > 10


def test_six_sites_of_six_are_240_ends_of_links() -> None:
    made = parse_topology(topology(6, 6, list(range(10_000, 10_036))), "bench.toml")
    assert sum(len(gateway.peers()) for gateway in made.gateways) == 240


def test_both_targets_count() -> None:
    good = FederationFigures(36, 240, UP_S_MAX, 0.5, 40.0, IDLE_BYTES_MAX, 0.3)
    assert good.targets_met
    assert not FederationFigures(36, 240, UP_S_MAX + 1, 0.5, 40.0, IDLE_BYTES_MAX, 0.3).targets_met
    assert not FederationFigures(36, 240, UP_S_MAX, 0.5, 40.0, IDLE_BYTES_MAX + 1, 0.3).targets_met
    assert next(iter(table(good))) == "36 gateways, 240 ends of links"
