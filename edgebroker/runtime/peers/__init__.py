"""Peers of a federation on real sockets: listening, dialling, TLS and the gateway's place in the topology.

manager = PeerManager(membership, settings, reactor, operator_log)
await manager.open()
await manager.stop()
"""
