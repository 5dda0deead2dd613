"""Topology files for tests."""

from __future__ import annotations

TWO_GATEWAYS = """
[federation]
name = "plant"
[factor]
tree = "a"
[[site]]
name = "here"
[[site]]
name = "there"
[[gateway]]
name = "gw-here"
site = "here"
address = "127.0.0.1:{}"
[[gateway]]
name = "gw-there"
site = "there"
address = "127.0.0.1:{}"
"""
"""Two gateways at two sites; `format` takes their ports."""
