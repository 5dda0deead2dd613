"""The tree of payload fields that `select` and `rename` of a bridge rule describe, and its use on JSON.

Fields are named as in filters (`position.lat`, `tags[0]`, `"odd key"`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from edgebroker.errors import FilterInvalid, RuleInvalid
from edgebroker.filters.names import AttributeName, AttributeSource, Step
from edgebroker.limits import PAYLOAD_DEPTH_MAX

NO_FIELDS: Final = object()
"""Of this part nothing goes on."""


class DuplicateField(ValueError):
    """A field gets a name that another has already."""


class FieldNode:
    """A part of a payload. `children` are those of its own parts about which something is said."""

    __slots__ = ("children", "name", "others")

    def __init__(self, others: bool) -> None:
        self.children: dict[Step, FieldNode] = {}
        self.name: str | None = None
        """What it is called from now on; None: as before."""
        self.others = others
        """Whether what is not among the children goes on."""


def build_field_tree(select: Sequence[str], rename: Iterable[tuple[str, str]]) -> FieldNode:
    """The whole payload. Without *select* all fields go on. Raises RuleInvalid."""
    root = FieldNode(not select)
    for text in select:
        part = root
        for step in _path(text, "select"):
            part = part.children.setdefault(step, FieldNode(False))
        part.others = True
    for text, name in rename:
        steps = _path(text, "rename")
        if isinstance(steps[-1], int):
            raise RuleInvalid(f"`rename` of {text}, which has no name but a place", "name the field that holds it")
        above = part = root
        for step in steps:
            if step not in part.children and not part.others:
                raise RuleInvalid(f"`rename` of {text}, which `select` leaves out", "add it to `select`")
            above, part = part, part.children.setdefault(step, FieldNode(True))
        new = _path(name, "rename")
        if len(new) != 1:
            raise RuleInvalid(
                f"`rename` of {text} to {name}, which is a path", f'a field stays where it is: write "\\"{name}\\""'
            )
        part.name = str(new[0])
        if sum(one.name == part.name for one in above.children.values()) > 1:
            raise RuleInvalid(f"`rename` of two fields to {name}", "give each a name of its own")
    return root


def select_fields(part: FieldNode, tree: Any) -> Any:
    """What goes on of *tree*, which is JSON; NOTHING: nothing of it. Raises FieldTwice."""
    if not part.children:
        return tree
    kept: Any = NO_FIELDS
    if isinstance(tree, dict):
        kept = {}
        for key, value in tree.items():
            child = part.children.get(key)
            if child is not None:
                value = select_fields(child, value)
                key = key if child.name is None else child.name
            elif not part.others:
                continue
            if value is NO_FIELDS:
                continue
            if key in kept:
                raise DuplicateField(f"{key[:40]!r} is there twice")
            kept[key] = value
    elif isinstance(tree, list):
        kept = [
            select_fields(part.children[index], one) if index in part.children else one
            for index, one in enumerate(tree)
            if part.others or index in part.children
        ]
        kept = [one for one in kept if one is not NO_FIELDS]
    elif part.others:
        return tree
    return kept if kept or part.others else NO_FIELDS


def _path(text: str, of: str) -> tuple[Step, ...]:
    try:
        name = AttributeName.parse(text)
    except FilterInvalid as error:
        raise RuleInvalid(f"in `{of}`, {error}", "docs/filters.md says how fields are named") from None
    if name.source is not AttributeSource.PAYLOAD:
        raise RuleInvalid(f"`{of}` of {text}, which is no field of the payload", "name fields, as temp or pos.lat")
    if len(name.steps) > PAYLOAD_DEPTH_MAX:
        raise RuleInvalid(f"`{of}` of a field {len(name.steps)} deep", f"payloads are read {PAYLOAD_DEPTH_MAX} deep")
    return name.steps
