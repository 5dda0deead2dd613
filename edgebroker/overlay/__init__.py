"""The overlay: gateways of several sites joined to one broker. Deterministic state machines.

The names follow Shafique, "Adaptive Content-based Routing using Subscription Subgrouping in Structured Overlays"
(arXiv:1604.06853), here called [SCOT].
"""
