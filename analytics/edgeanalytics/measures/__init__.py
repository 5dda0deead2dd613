"""The measures, one per file: the state of each, how two states are merged, and how the state becomes a table."""
