"""Our `dataclass` is the standard library's in all that can be seen, and makes no method before it is called."""

from __future__ import annotations

import copy
import dataclasses as standard
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from edgebroker.dataclasses import lazy_dataclass

KINDS = [{"frozen": frozen, "slots": slots, "eq": eq} for frozen in (0, 1) for slots in (0, 1) for eq in (0, 1)]
Decorator = Callable[..., Any]


def sensor(decorate: Decorator) -> type:
    @decorate
    class Sensor:
        """All kinds of fields."""

        unit: ClassVar[str] = "K"
        name: str
        value: float = 1.5
        tags: list[str] = field(default_factory=list)
        seen: int = field(default=0, compare=False)
        secret: str = field(default="s", repr=False)
        made: int = field(default=7, init=False)
        notes: dict[str, int] = field(default_factory=dict, init=False)
        length: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "length", len(self.name))

    return Sensor


def own_methods(decorate: Decorator) -> type:
    @decorate
    class Own:
        """Writes its own methods."""

        a: int
        b: int = 2

        def __init__(self, a: int) -> None:
            object.__setattr__(self, "a", a + 1)
            object.__setattr__(self, "b", 3)

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    return Own


def bare(decorate: Decorator) -> type:
    @decorate
    class Bare:
        """No field at all."""

    return Bare


def one(decorate: Decorator) -> type:
    @decorate
    class One:
        """One field."""

        a: Any

    return One


def heir(decorate: Decorator) -> type:
    @decorate
    class Parent:
        """First."""

        a: int
        b: int = 2

    @decorate
    class Heir(Parent):  # type: ignore[misc, valid-type]
        """Then."""

        b: int = 3
        c: tuple[int, ...] = ()

    return Heir


def equal_by_itself(decorate: Decorator) -> type:
    @decorate
    class Odd:
        """Writes __eq__ and leaves __hash__ to the decorator."""

        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Odd) and (self.a - other.a) % 2 == 0

    return Odd


CALLS: list[tuple[Callable[[Decorator], type], tuple[Any, ...], dict[str, Any]]] = [
    (sensor, ("abc",), {}),
    (sensor, ("abc", 2, ["x"], 3), {"secret": "t"}),
    (sensor, (), {}),
    (sensor, ("a",), {"made": 3}),
    (sensor, ("a",), {"unknown": 3}),
    (sensor, ("a", 1.0, [], 0, "s", 1), {}),
    (own_methods, (1,), {}),
    (bare, (), {}),
    (bare, (1,), {}),
    (one, (1,), {}),
    (one, ([],), {}),
    (one, (None,), {"a": 1}),
    (heir, (1,), {}),
    (heir, (1, 2), {"c": (3,)}),
    (equal_by_itself, (1,), {}),
]


def outcome(act: Callable[[], Any]) -> Any:
    """What *act* returns, or the kind of error that it raises."""
    try:
        return act()
    except Exception as error:
        return type(error)


def portrait(cls: type, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """All that can be seen of an object of *cls*."""
    made = outcome(lambda: cls(*arguments, **named))
    if not isinstance(made, cls):
        return {"refused": made}
    twin = cls(*arguments, **named)
    names = [each.name for each in standard.fields(made)]
    first = names[0] if names else "a"
    seen = {
        "shown": repr(made),
        "values": [getattr(made, name) for name in names],
        "equal": made == twin,
        "unequal": made != twin,
        "to others": (made == 1, made == object()),
        "to another": outcome(lambda: made == standard.replace(made, **{first: "other"})),
        "ignored": outcome(lambda: made == standard.replace(made, seen=99)),
        "same hash": outcome(lambda: hash(made) == hash(twin)),
        "asdict": outcome(lambda: standard.asdict(made)),
        "replaced": repr(outcome(lambda: standard.replace(made, **{first: "b"}))),
        "match": cls.__match_args__,
        "slots": getattr(cls, "__slots__", None),
        "has dict": hasattr(made, "__dict__"),
        "copied": repr(copy.copy(made)),
        # With slots, the standard library trips over its own super() and refuses what is no field with a TypeError.
        "set": outcome(lambda: setattr(made, first, 4)) is None,
        "set new": outcome(lambda: setattr(made, "brandnew", 4)) is None,
        "deleted": outcome(lambda: delattr(made, first)) is None,
        "gone": outcome(lambda: repr(made)),
    }
    if seen["same hash"] is True and cls.__eq__ is not object.__eq__ and names:
        seen["hash"] = hash(twin)
    return seen


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(name for name, on in kind.items() if on) or "plain")
@pytest.mark.parametrize(("make", "arguments", "named"), CALLS)
def test_a_class_cannot_be_told_from_one_of_the_standard_library(
    kind: dict[str, bool], make: Callable[[Decorator], type], arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    ours = portrait(make(lazy_dataclass(**kind)), arguments, named)
    theirs = portrait(make(standard.dataclass(**kind)), arguments, named)
    assert ours == theirs


@lazy_dataclass(frozen=True, slots=True)
class Reading:
    """Importable by name, as pickle wants it."""

    name: str
    values: tuple[int, ...] = ()
    next: Any = None


@lazy_dataclass(slots=True)
class Ring:
    """May hold itself."""

    inside: Any = None


def test_frozen_objects_with_slots_are_pickled_and_copied() -> None:
    reading = Reading("a", (1, 2), Reading("b"))
    assert pickle.loads(pickle.dumps(reading)) == reading
    copied = copy.deepcopy(reading)
    assert copied == reading
    assert copied.next is not reading.next


def test_a_frozen_object_says_which_field_is_not_to_be_changed() -> None:
    reading = Reading("a")
    with pytest.raises(standard.FrozenInstanceError, match="cannot assign to field 'name'"):
        reading.name = "b"
    with pytest.raises(standard.FrozenInstanceError, match="cannot delete field 'name'"):
        del reading.name


def test_an_object_that_holds_itself_is_shown() -> None:
    ring = Ring()
    ring.inside = [ring]
    assert repr(ring) == "Ring(inside=[...])"


def test_matched_by_position() -> None:
    match Reading("a", (1,)):
        case Reading(name, values):
            assert (name, values) == ("a", (1,))


def test_no_method_is_made_before_it_is_called() -> None:
    cls = sensor(lazy_dataclass(frozen=True, slots=True))
    before = {name: vars(cls)[name] for name in ("__init__", "__eq__", "__hash__", "__repr__")}
    made = cls("abc")
    assert vars(cls)["__init__"] is not before["__init__"]
    assert all(vars(cls)[name] is before[name] for name in ("__eq__", "__hash__", "__repr__"))
    assert made == made.__class__("abc")
    assert vars(cls)["__eq__"] is not before["__eq__"]
    assert vars(cls)["__init__"].__qualname__ == f"{cls.__qualname__}.__init__"


def test_what_is_left_out_is_refused() -> None:
    with pytest.raises(TypeError, match="kw_only"):
        lazy_dataclass(kw_only=True)  # type: ignore[call-arg]
