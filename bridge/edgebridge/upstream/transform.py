"""What becomes of a payload on its way over a bridge: some of its fields, under other names, in the other form."""

from __future__ import annotations

from typing import Final, NamedTuple

from edgebridge.upstream.forms import CborAsJson, Form, cbor_of, cut, json_of
from edgebridge.upstream.plan import plan_of, shaped
from edgebridge.upstream.shape import Shape
from edgebridge.upstream.tally import Tally
from edgebridge.wire.packets import Publish
from edgebridge.wire.properties import Properties, Property, text
from edgebroker.errors import EdgebrokerError
from edgebroker.filters.cbor import MAP
from edgebroker.filters.payloads import NOTHING, json_tree, named_form
from edgebroker.limits import PAYLOAD_PARSE_BYTES_MAX

_CBOR_FIRST: Final = range(0x80, 0xC0)
"""What a CBOR array or map begins with, and no text."""


CONTENT_TYPES: Final = {Form.JSON: "application/json", Form.CBOR: "application/cbor"}


class Unfit(EdgebrokerError):
    """A payload that cannot be transformed, and why."""


class Became(NamedTuple):
    """A payload after its transformation."""

    payload: bytes
    was: Form
    form: Form


class Transform:
    """Of one rule. What it gives depends on the payload and its content type alone."""

    def __init__(self, shape: Shape) -> None:
        """Raises RuleInvalid."""
        self._plan = plan_of(shape.select, shape.rename)
        self._cuts = bool(self._plan.children)
        self._to = Form(shape.convert) if shape.convert else None
        self._passes = shape.unfit == "pass"

    def spoils(self, publish: Publish, tally: Tally) -> str:
        """Give *publish* what its payload becomes; why it does not go on, if it does not."""
        try:
            self.apply(publish)
        except Unfit as error:
            tally.untransformed += self._passes
            return "" if self._passes else f"{error}, under {publish.topic}"
        return ""

    def apply(self, publish: Publish) -> None:
        """Give *publish* what its payload becomes, and properties that fit it. Raises Unfit; then it is as before.

        An empty message that is to be retained stays what it is: it takes away what is retained.
        """
        if not publish.payload and publish.retain:
            return
        became = self.payload(publish.payload, text(publish.properties, Property.CONTENT_TYPE, ""))
        publish.payload = became.payload
        if became.form is not became.was:
            tell_form(publish.properties, became.form, became.payload)

    def payload(self, payload: bytes, content_type: str) -> Became:
        """What *payload* becomes. Raises Unfit."""
        if not payload or len(payload) > PAYLOAD_PARSE_BYTES_MAX:
            raise Unfit(f"{len(payload)} bytes, of which 1 to {PAYLOAD_PARSE_BYTES_MAX} can be transformed")
        named = named_form(content_type)
        was = Form(named) if named else (Form.CBOR if payload[0] in _CBOR_FIRST else Form.JSON)
        to = self._to or was
        try:
            became = self._from_cbor(payload, to) if was is Form.CBOR else self._from_json(payload, to)
        except ValueError as error:
            raise Unfit(f"{was.upper()} that cannot be transformed: {error}") from None
        return Became(became, was, to)

    def _from_cbor(self, payload: bytes, to: Form) -> bytes:
        if self._cuts:
            if payload[0] >> 5 != MAP:
                raise ValueError("no map")
            payload = cut(self._plan, payload)
        elif to is Form.CBOR:
            return cut(self._plan, payload)  # nothing is left out, but it is read to its end
        return payload if to is Form.CBOR else json_of(CborAsJson(payload).whole())

    def _from_json(self, payload: bytes, to: Form) -> bytes:
        tree = json_tree(payload, exact=True)
        if tree is NOTHING:
            raise ValueError("it is broken, too deep, or too much")
        if self._cuts:
            if not isinstance(tree, dict):
                raise ValueError("no object")
            tree = shaped(self._plan, tree)
            tree = {} if not isinstance(tree, dict) else tree
        elif to is Form.JSON:
            return payload
        return json_of(tree) if to is Form.JSON else cbor_of(tree)


def tell_form(properties: Properties, form: Form, payload: bytes) -> None:
    """Let *properties* say that *payload* has *form*, where they said another, or where its first byte does not."""
    if Property.CONTENT_TYPE in properties or (form is Form.CBOR and payload[0] not in _CBOR_FIRST):
        properties[Property.CONTENT_TYPE] = CONTENT_TYPES[form]
    if properties.pop(Property.PAYLOAD_FORMAT_INDICATOR, None) is not None and form is Form.JSON:
        properties[Property.PAYLOAD_FORMAT_INDICATOR] = 1
