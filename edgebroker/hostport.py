"""A host and a TCP port as one text."""

from __future__ import annotations


def hostport(host: str, port: int) -> str:
    """`host:port`; an IPv6 address stands in brackets, so that it can be told from its port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
