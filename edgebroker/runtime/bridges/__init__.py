"""Bridges on real sockets: a `BridgeRunner` runs each bridge of `edgebridge.bridge`; `BridgeManager` holds all."""
