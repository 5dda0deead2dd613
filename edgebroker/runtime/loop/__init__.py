"""The event loop of a gateway process: asyncio with a poller for client sockets, and the reactor."""
