"""Listeners: the sockets that accept clients, and the layers between a socket and the front end.

A `Listener` gives each client a stack: the socket; then, as its settings ask for, the PROXY header, TLS and WebSocket,
each a `Layer`; and on top the `ClientProtocol` of the reactor. A plain TCP listener has no layers.
"""
