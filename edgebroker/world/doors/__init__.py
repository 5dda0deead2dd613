"""The ways in: sockets, and what stands between a socket and the front end.

A `Listener` accepts, and gives every client a stack: the socket, then as its settings say the PROXY header, TLS and
WebSocket, each a `Layer`, and on top the `Door` of the reactor. A plain TCP listener has no layer at all.
"""
