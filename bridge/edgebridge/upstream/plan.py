"""Which fields of a payload go on, and what they are called then: the tree that `select` and `rename` of a rule make.

Fields are named as in filters (`position.lat`, `tags[0]`, `"odd key"`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from edgebridge.upstream.ruleinvalid import RuleInvalid
from edgebroker.errors import FilterInvalid
from edgebroker.filters.names import AttributeName, Source, Step
from edgebroker.limits import PAYLOAD_DEPTH_MAX

NOTHING: Final = object()
"""Of this part nothing goes on."""


class FieldTwice(ValueError):
    """A field gets a name that another has already."""


class Part:
    """A part of a payload. `children` are those of its own parts about which something is said."""

    __slots__ = ("children", "name", "others")

    def __init__(self, others: bool) -> None:
        self.children: dict[Step, Part] = {}
        self.name: str | None = None
        """What it is called from now on; None: as before."""
        self.others = others
        """Whether what is not among the children goes on."""


def plan_of(select: Sequence[str], rename: Iterable[tuple[str, str]]) -> Part:
    """The whole payload. Without *select* all fields go on. Raises RuleInvalid."""
    root = Part(not select)
    for text in select:
        part = root
        for step in _path(text, "select"):
            part = part.children.setdefault(step, Part(False))
        part.others = True
    for text, name in rename:
        steps = _path(text, "rename")
        if isinstance(steps[-1], int):
            raise RuleInvalid(f"`rename` of {text}, which has no name but a place", "name the field that holds it")
        above = part = root
        for step in steps:
            if step not in part.children and not part.others:
                raise RuleInvalid(f"`rename` of {text}, which `select` leaves out", "add it to `select`")
            above, part = part, part.children.setdefault(step, Part(True))
        new = _path(name, "rename")
        if len(new) != 1:
            raise RuleInvalid(
                f"`rename` of {text} to {name}, which is a path", f'a field stays where it is: write "\\"{name}\\""'
            )
        part.name = str(new[0])
        if sum(one.name == part.name for one in above.children.values()) > 1:
            raise RuleInvalid(f"`rename` of two fields to {name}", "give each a name of its own")
    return root


def shaped(part: Part, tree: Any) -> Any:
    """What goes on of *tree*, which is JSON; NOTHING: nothing of it. Raises FieldTwice."""
    if not part.children:
        return tree
    kept: Any = NOTHING
    if isinstance(tree, dict):
        kept = {}
        for key, value in tree.items():
            child = part.children.get(key)
            if child is not None:
                value = shaped(child, value)
                key = key if child.name is None else child.name
            elif not part.others:
                continue
            if value is NOTHING:
                continue
            if key in kept:
                raise FieldTwice(f"{key[:40]!r} is there twice")
            kept[key] = value
    elif isinstance(tree, list):
        kept = [
            shaped(part.children[index], one) if index in part.children else one
            for index, one in enumerate(tree)
            if part.others or index in part.children
        ]
        kept = [one for one in kept if one is not NOTHING]
    elif part.others:
        return tree
    return kept if kept or part.others else NOTHING


def _path(text: str, of: str) -> tuple[Step, ...]:
    try:
        name = AttributeName.parse(text)
    except FilterInvalid as error:
        raise RuleInvalid(f"in `{of}`, {error}", "docs/filters.md says how fields are named") from None
    if name.source is not Source.PAYLOAD:
        raise RuleInvalid(f"`{of}` of {text}, which is no field of the payload", "name fields, as temp or pos.lat")
    if len(name.steps) > PAYLOAD_DEPTH_MAX:
        raise RuleInvalid(f"`{of}` of a field {len(name.steps)} deep", f"payloads are read {PAYLOAD_DEPTH_MAX} deep")
    return name.steps
