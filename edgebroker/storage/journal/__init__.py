"""The journal: what was acknowledged, on disk (docs/journal.md). Decisions and bytes; no I/O, no clock, no MQTT."""
