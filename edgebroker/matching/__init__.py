"""The matcher: one parallel search tree (PST) over topic levels and content attributes, with trits for links.

`pst.Pst` is what the node uses, `linkmatch.decide` what a broker with neighbours uses. The names follow Banavar et al.,
"An Efficient Multicast Protocol for Content-Based Publish-Subscribe Systems" (ICDCS 1999), here called [LM].
"""
