"""edgebroker: publish/subscribe for places with many small gateways and thin uplinks."""

__version__ = "0.1.0"
