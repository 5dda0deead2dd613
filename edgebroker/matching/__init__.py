"""The matcher: one parallel search tree (PST) over topic levels and content attributes, with trits for links.

`pst.Pst` is the tree; `Pst.match` finds subscriptions, `Pst.decide` finds links. The names follow Banavar et al., "An
Efficient Multicast Protocol for Content-Based Publish-Subscribe Systems" (ICDCS 1999), here called [LM].
"""
