"""The topology file, the same on every gateway of a federation; docs/topology.md explains every key.

    topology = load_topology(Path("topology.toml"))

Reading is strict, as of settings: every mistake is told with its line and how to mend it.
"""

from edgebroker.world.topology.reading import load_topology, parse_topology

__all__ = ["load_topology", "parse_topology"]
