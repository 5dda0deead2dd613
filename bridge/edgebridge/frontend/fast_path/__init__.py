"""The compiled path of ordinary PUBLISH and PUBACK packets.

It reads packets from a chunk, looks up the readers of a topic, and copies batches of QoS 0.
"""
