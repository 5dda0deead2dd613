"""The overlay: gateways of several sites that work as one broker. Deterministic state machines without I/O.

The names follow Shafique, "Adaptive Content-based Routing using Subscription Subgrouping in Structured Overlays"
(arXiv:1604.06853), here called [SCOT].
"""
