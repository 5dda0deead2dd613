"""Workloads for the matching engine, as the lines of `edgebroker bench match`: the same for the same seed, endless."""
