"""The simulation: the same broker on virtual time, with a network that fails on demand."""
