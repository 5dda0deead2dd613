"""A fleet as a file says it: `load_scenario` reads the sections, strictly; docs/devices.md explains every key."""
