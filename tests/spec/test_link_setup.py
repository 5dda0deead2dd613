"""The options of links as a topology defines them."""

from __future__ import annotations

import pytest

from edgebridge.frontend.federation.link_setup import link_options
from edgebroker.overlay.topology.draft import UPLINKS
from edgebroker.overlay.topology.planner import plan
from edgebroker.overlay.topology.topology import Topology


@pytest.mark.parametrize(("kind", "deflates"), [("lan", False), ("wan", True), ("metered", True)])
def test_what_leaves_a_site_is_deflated_unless_the_network_is_ones_own(kind: str, deflates: bool) -> None:
    topology = Topology(plan("plant", {"north": 2, "south": 2}, UPLINKS[kind], 1))
    assert link_options(topology, "gw-north1", "gw-south1").deflates is deflates
    assert not link_options(topology, "gw-north1", "gw-north2").deflates
