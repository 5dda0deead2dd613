"""Peers on real sockets: who listens, who dials, and what holds both to their word.

    peering = Peering(overlay, topology, settings, reactor, notices)
    await peering.open()
    peering.close()

`line` is one connection, `dialler` opens those that this end dials, `proofs` holds the certificates.
"""
