"""The commands for people: one module per command."""
