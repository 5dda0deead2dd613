"""The tree as published [LM], used by the experiments and checked against the worked examples of the paper.

It is plain Python written for readability, with only the concepts of the paper: subscriptions of one conjunction each
over a fixed list of attributes, and links. The optimisations of the paper are options, off by default.
"""
