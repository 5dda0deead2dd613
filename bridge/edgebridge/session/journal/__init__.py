"""Journal records of sessions: their encoding, and the state that recovery builds from them (docs/journal.md)."""
