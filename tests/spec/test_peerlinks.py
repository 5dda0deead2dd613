"""The terms of links as a topology lays them down."""

from __future__ import annotations

import pytest

from edgebridge.frontend.peerlinks import terms_of
from edgebroker.overlay.plan import plan
from edgebroker.overlay.topology import Topology
from edgebroker.overlay.uplink import UPLINKS


@pytest.mark.parametrize(("kind", "deflates"), [("lan", False), ("wan", True), ("metered", True)])
def test_what_leaves_a_site_is_deflated_unless_the_network_is_ones_own(kind: str, deflates: bool) -> None:
    topology = Topology(plan("plant", {"north": 2, "south": 2}, UPLINKS[kind], 1))
    assert terms_of(topology, "gw-north1", "gw-south1").deflates is deflates
    assert not terms_of(topology, "gw-north1", "gw-north2").deflates
