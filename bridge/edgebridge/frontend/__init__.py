"""MQTT clients in, node events out, and back: connections, sessions and the hot path of PUBLISH."""
