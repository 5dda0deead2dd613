"""The delivery log (`.edl`): what became of every message, in compact columnar blocks. Format: docs/edl.md.

`writer.DeliveryLog` turns facts into blocks, in the small steps of `making`; `reader` turns a file's bytes back into
columns; `format` and `columns` hold the bytes both agree on.
"""
