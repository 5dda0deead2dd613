"""What cbor2 reads of CBOR, with the depth and the tags of `edgebroker.cbor.PAYLOAD`, which is held against it."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import cbor2

from edgebroker.limits import PAYLOAD_DEPTH_MAX
from edgebroker.predicate import COMPOSITE

TAGS = (0, 1, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799)
"""That cbor2 would turn into dates, decimals, patterns, addresses, shared references and more."""
BOUNDS: dict[str, Any] = {
    "semantic_decoders": dict.fromkeys(TAGS, lambda value, immutable: COMPOSITE),
    "max_depth": PAYLOAD_DEPTH_MAX,
    # Keys that are no strings could be made to collide by the thousand; a map that has any is refused.
    "strict_hashable_types": True,
}
try:
    cbor2.CBORDecoder(BytesIO(), **BOUNDS)
    IS_BOUNDED = True
except TypeError:  # release 5
    IS_BOUNDED = False


def read_with_cbor2(payload: bytes) -> Any:
    """The one value that *payload* is. Raises ValueError."""
    stream = BytesIO(payload)
    try:
        tree = cbor2.CBORDecoder(stream, **BOUNDS).decode()
    except (cbor2.CBORDecodeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    if stream.tell() != len(payload):
        raise ValueError("bytes after the end")
    return _defined(tree)


def _defined(tree: Any) -> Any:
    """*tree* with None for what is `undefined`: a filter sees no difference."""
    if isinstance(tree, dict):
        return {key: _defined(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_defined(value) for value in tree]
    return None if tree is cbor2.undefined else tree
