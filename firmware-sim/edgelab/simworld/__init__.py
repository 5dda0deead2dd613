"""The simulated world: the same broker on virtual time, with a network that misbehaves on demand."""
