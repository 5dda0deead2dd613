"""edgebroker: publish/subscribe for places with many small gateways and thin uplinks."""

__version__ = "0.2.0+source"
"""The newest release and `source`. A build has its own version here, and its commit below: setup.py writes both."""
__commit__ = ""
PURE_COSTS = "it carries a fifth to four fifths of what a compiled build does (docs/upgrading.md)"
"""Measured with `edgebroker bench mqtt --pure`: a fifth of the QoS 0 messages that come in batches (173,000 a second,
compiled 966,000), four fifths of those that come one by one (49,000 and 62,400).
"""
