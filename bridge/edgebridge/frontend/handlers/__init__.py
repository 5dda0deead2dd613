"""Handlers of MQTT control packets, and the rules that decide on their answers."""
