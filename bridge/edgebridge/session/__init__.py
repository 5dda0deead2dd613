"""MQTT sessions: what a client has asked for and what it is still owed."""
