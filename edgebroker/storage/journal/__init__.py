"""The journal: the durable state, on disk (docs/journal.md). Decisions and bytes only; no I/O, no clock, no MQTT."""
