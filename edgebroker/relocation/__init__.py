"""Placing publishers where their readers are: statistics, the choice of a gateway, and the way there [GRAPE].

Source: Cheung and Jacobsen, "Publisher Relocation Algorithms for Minimizing Average Delivery Delay and System Load"
(CSRG-597, 2009), which describes two algorithms, GRAPE and POP. docs/relocation.md explains both.
"""
