"""The tree as published [LM]: what the experiments run, and what the worked examples of the source are checked on.

It is written to be read, in plain Python, and knows only what the source knows: subscriptions of one conjunction each
over a fixed list of attributes, and links. The optimisations of the source are switches, off unless asked for.
"""
