"""The runtime of a gateway process: event loop, sockets, disk, clock and settings around the sans-I/O packages."""
