"""The link codec: messages and events as bytes, and back (docs/link-protocol.md)."""
