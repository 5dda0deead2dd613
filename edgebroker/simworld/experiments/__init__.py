"""Experiments of the source [LM], repeated: networks and workloads of our own making, figures to compare.

What the source leaves open is said where it is decided; `docs/experiments.md` tells the whole.
"""
