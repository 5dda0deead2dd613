"""One measure, one file: what its state is, how two states add, how the state becomes a table."""
