"""Files that gateways hand on: content-defined chunks, and the manifest that names them (docs/files.md)."""
