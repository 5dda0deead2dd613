"""The laboratory: benchmarks, the demo, experiments and the simulated world. No gateway needs this package."""
