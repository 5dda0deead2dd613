"""edgebridge: everything MQTT. The broker itself (`edgebroker`) knows nothing of it."""
