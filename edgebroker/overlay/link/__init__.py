"""Links: reliable, ordered and prioritised delivery of messages between two gateways (docs/link-protocol.md)."""
