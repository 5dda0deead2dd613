"""Traffic of real brokers, recorded and replayed: `.edl` files with payloads. docs/devices.md, docs/edl.md."""
