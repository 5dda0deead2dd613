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
ROW_OF_THREE = """
[federation]
name = "plant"
[factor]
tree = "a-b-c"
[[site]]
name = "hall"
[[gateway]]
name = "gw-a"
site = "hall"
positions = ["a"]
address = "127.0.0.1:{}"
[[gateway]]
name = "gw-b"
site = "hall"
positions = ["b"]
address = "127.0.0.1:{}"
[[gateway]]
name = "gw-c"
site = "hall"
positions = ["c"]
address = "127.0.0.1:{}"
"""
"""Three gateways of one site in a row: gw-a and gw-c have no link with each other; `format` takes their ports."""
ONE_SITE = """
[federation]
name = "plant"
[factor]
tree = "a-b"
[[site]]
name = "here"
[[gateway]]
name = "gw-here"
site = "here"
positions = ["a"]
address = "127.0.0.1:{}"
[[gateway]]
name = "gw-there"
site = "here"
positions = ["b"]
address = "127.0.0.1:{}"
"""
"""Two gateways of one site; `format` takes their ports."""
