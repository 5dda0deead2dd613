"""The delivery log (`.edl`): the fate of every message, in compact columnar blocks. Format: docs/edl.md.

`writer.DeliveryLog` turns facts into blocks, in the small steps of `block_builder`; `reader` decodes a file into
columns; `format` and `columns` define the bytes.
"""
