"""A scenario file: `load_scenario` reads the sections, strictly; docs/devices.md explains every key."""
