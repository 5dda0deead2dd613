"""The real world: sockets, disks, clocks, settings."""
