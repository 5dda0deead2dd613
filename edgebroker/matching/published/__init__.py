"""The tree as published [LM]: the reference that the experiments run and that the product's engine is compared with.

It is written to be read, in plain Python, and knows only what the source knows: subscriptions of one conjunction each
over a fixed list of attributes, and links. The optimisations of the source are switches, off unless asked for.
"""
