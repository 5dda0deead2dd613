"""The topology of a federation: its sites, gateways, positions and connections, from the file to the checked value."""
