"""Durable storage formats: the journal and the delivery log. Decisions and bytes only; no I/O, no MQTT."""
