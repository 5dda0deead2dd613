"""The payload transformation of a bridge rule: it selects, renames and converts fields of JSON and CBOR."""

from __future__ import annotations

from typing import Final, NamedTuple

from edgebridge.bridge.counters import BridgeCounters
from edgebridge.bridge.field_tree import build_field_tree, select_fields
from edgebridge.bridge.json_cbor import VALUES_MAX, CborAsJson, PayloadFormat, cut_fields, encode_json
from edgebridge.bridge.payload_options import PayloadOptions
from edgebridge.wire.packets import Publish
from edgebridge.wire.properties import Properties, Property, text_property
from edgebroker.cbor import MAP, encode_cbor
from edgebroker.errors import EdgebrokerError
from edgebroker.filters.payloads import NOTHING, json_tree, named_form
from edgebroker.limits import PAYLOAD_PARSE_BYTES_MAX

_CBOR_FIRST: Final = range(0x80, 0xC0)
"""What a CBOR array or map begins with, and no text."""


CONTENT_TYPES: Final = {PayloadFormat.JSON: "application/json", PayloadFormat.CBOR: "application/cbor"}


class PayloadUnfit(EdgebrokerError):
    """A payload that cannot be transformed, and why."""


class TransformResult(NamedTuple):
    """A payload after its transformation."""

    payload: bytes
    was: PayloadFormat
    form: PayloadFormat


class Transform:
    """Of one rule. What it gives depends on the payload and its content type alone."""

    def __init__(self, shape: PayloadOptions) -> None:
        """Raises RuleInvalid."""
        self._field_tree = build_field_tree(shape.select, shape.rename)
        self._cuts = bool(self._field_tree.children)
        self._to = PayloadFormat(shape.convert) if shape.convert else None
        self._passes = shape.unfit == "pass"

    def try_apply(self, publish: Publish, tally: BridgeCounters) -> str:
        """Give *publish* what its payload becomes; why it does not go on, if it does not."""
        try:
            self.apply(publish)
        except PayloadUnfit as error:
            tally.untransformed += self._passes
            return "" if self._passes else f"{error}, under {publish.topic}"
        return ""

    def apply(self, publish: Publish) -> None:
        """Give *publish* what its payload becomes, and properties that fit it. Raises Unfit; then it is as before.

        An empty message that is to be retained stays what it is: it takes away what is retained.
        """
        if not publish.payload and publish.retain:
            return
        became = self.payload(publish.payload, text_property(publish.properties, Property.CONTENT_TYPE, ""))
        publish.payload = became.payload
        if became.form is not became.was:
            set_payload_format(publish.properties, became.form, became.payload)

    def payload(self, payload: bytes, content_type: str) -> TransformResult:
        """What *payload* becomes. Raises Unfit."""
        if not payload or len(payload) > PAYLOAD_PARSE_BYTES_MAX:
            raise PayloadUnfit(f"{len(payload)} bytes, of which 1 to {PAYLOAD_PARSE_BYTES_MAX} can be transformed")
        named = named_form(content_type)
        was = (
            PayloadFormat(named) if named else (PayloadFormat.CBOR if payload[0] in _CBOR_FIRST else PayloadFormat.JSON)
        )
        to = self._to or was
        try:
            became = self._from_cbor(payload, to) if was is PayloadFormat.CBOR else self._from_json(payload, to)
        except ValueError as error:
            raise PayloadUnfit(f"{was.upper()} that cannot be transformed: {error}") from None
        return TransformResult(became, was, to)

    def _from_cbor(self, payload: bytes, to: PayloadFormat) -> bytes:
        if self._cuts:
            if payload[0] >> 5 != MAP:
                raise ValueError("no map")
            payload = cut_fields(self._field_tree, payload)
        elif to is PayloadFormat.CBOR:
            return cut_fields(self._field_tree, payload)  # nothing is left out, but it is read to its end
        return payload if to is PayloadFormat.CBOR else encode_json(CborAsJson(payload).whole())

    def _from_json(self, payload: bytes, to: PayloadFormat) -> bytes:
        tree = json_tree(payload, exact=True)
        if tree is NOTHING:
            raise ValueError("it is broken, too deep, or too much")
        if self._cuts:
            if not isinstance(tree, dict):
                raise ValueError("no object")
            tree = select_fields(self._field_tree, tree)
            tree = {} if not isinstance(tree, dict) else tree
        elif to is PayloadFormat.JSON:
            return payload
        if to is PayloadFormat.JSON:
            return encode_json(tree)
        return encode_cbor(tree, has_short_floats=True, values_max=VALUES_MAX)


def set_payload_format(properties: Properties, form: PayloadFormat, payload: bytes) -> None:
    """Let *properties* say that *payload* has *form*, where they said another, or where its first byte does not."""
    if Property.CONTENT_TYPE in properties or (form is PayloadFormat.CBOR and payload[0] not in _CBOR_FIRST):
        properties[Property.CONTENT_TYPE] = CONTENT_TYPES[form]
    if properties.pop(Property.PAYLOAD_FORMAT_INDICATOR, None) is not None and form is PayloadFormat.JSON:
        properties[Property.PAYLOAD_FORMAT_INDICATOR] = 1
