"""Durable sessions: what the front end appends to the journal, and how it restores its state from there."""
