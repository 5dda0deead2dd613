"""Queues of QoS 1 and 2 messages that wait for one session: bounds, overflow policies and their choice."""
