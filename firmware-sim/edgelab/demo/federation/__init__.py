"""The demo with several sites: real gateways, joined by uplinks that can be disturbed, and an audit of all messages."""
