"""Bridges on real sockets: one `Bridge` runs each splice of `edgebridge.upstream`, `Bridging` holds them all."""
