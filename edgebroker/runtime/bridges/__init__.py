"""Bridges on real sockets: a `BridgeRunner` runs each `edgebridge.bridge.bridge.Bridge`; `BridgeManager` owns all of
them.
"""
