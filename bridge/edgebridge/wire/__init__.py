"""The MQTT codec: bytes to packets and back, for 3.1.1 and 5. Pure functions; no I/O, no session, no policy."""
