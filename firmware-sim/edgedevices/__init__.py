"""edgedevices: MQTT devices to try a gateway with. Simulated fleets, this machine's telemetry, recorded CSV files."""
