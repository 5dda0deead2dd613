"""Bulk data to many receivers of one LAN that help to send it on: groups, trees and transfers [LBDD].

Source: Li, Wang, Yin and Yuan, "Load-balancing data distribution in publish/subscribe mode" (J. Southeast Univ. 30(4),
2014). docs/experiments.md explains the method and measures it; no gateway uses this package yet.
"""
