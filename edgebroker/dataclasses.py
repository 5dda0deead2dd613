"""`dataclass`, as in the standard library, but each method of a class is compiled when it is first called.

The standard library compiles five to seven methods of every class when the class is defined. A gateway imports more
than a hundred such classes and creates objects of forty before it listens: 40 % of its start time went into methods
that nobody called. Here a class costs an eighth of that, and a method its share on its first call.

Three options are not supported and are refused as unknown arguments: `order`, `kw_only` and `unsafe_hash`. Everything
else (`field`, `fields`, `replace`, `asdict`, `match`) is the standard library's own and accepts these classes.
"""

from __future__ import annotations

import dataclasses as standard
from collections.abc import Callable
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

Method = Callable[..., Any]


def lazy_dataclass(cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True) -> Any:
    """Return *cls* as a dataclass with the fields that its annotations name. The arguments mean what they mean in the
    standard library.
    """
    if cls is None:
        return lambda cls: lazy_dataclass(cls, frozen=frozen, slots=slots, eq=eq)
    # The standard library makes fields, slots and patterns. Every method that it would compile is switched off.
    cls = standard.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    own = vars(cls)
    _install_if_absent(cls, "__init__", _init_frozen if frozen else _init)
    _install_if_absent(cls, "__repr__", _repr)
    if eq:
        unhashable = own.get("__hash__") is None  # also true of a class that defines its own __eq__
        _install_if_absent(cls, "__eq__", _eq)
        if unhashable and frozen:
            _install_lazily(cls, "__hash__", _hash)
        elif unhashable:
            cls.__hash__ = None  # type: ignore[assignment]
    if frozen:
        cls.__setattr__ = _refuse_to_set  # type: ignore[method-assign, assignment]
        cls.__delattr__ = _refuse_to_delete  # type: ignore[method-assign, assignment]
        if slots and "__getstate__" not in own:  # copy and pickle would set each attribute, which `frozen` refuses
            cls.__getstate__ = _state  # type: ignore[method-assign, assignment]
            cls.__setstate__ = _set_state  # type: ignore[attr-defined]
    return cls


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = lazy_dataclass


def _install_if_absent(cls: type, name: str, make: Callable[[type], Method]) -> None:
    """Install `make(cls)` lazily as the method *name*, unless the class defines that method itself."""
    if name not in vars(cls):
        _install_lazily(cls, name, make)


def _install_lazily(cls: type, name: str, make: Callable[[type], Method]) -> None:
    """Install `make(cls)` as the method *name* of *cls* on its first call."""

    def first(self: object, *args: object, **kwargs: object) -> Any:
        method = make(cls)
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(self, *args, **kwargs)

    setattr(cls, name, first)


def _compiled(lines: list[str], scope: dict[str, Any]) -> Method:
    """Compile *lines* and return the function; the first line must name it `method`."""
    exec("\n ".join(lines), scope)
    method: Method = scope["method"]
    return method


def _init(cls: type) -> Method:
    return _compiled(*_init_source(cls, {}))


def _init_frozen(cls: type) -> Method:
    """Return the `__init__` of a frozen class.

    It sets slots by their descriptors, which takes two thirds of the time of `object.__setattr__`.
    """
    members = {each.name: getattr(cls, each.name, None) for each in standard.fields(cls)}
    slots = {name: slot.__set__ for name, slot in members.items() if isinstance(slot, MemberDescriptorType)}
    return _compiled(*_init_source(cls, {name: slots.get(name, object.__setattr__) for name in members}))


def _init_source(cls: type, setters: dict[str, Method]) -> tuple[list[str], dict[str, Any]]:
    """Return the source of `__init__` and the names that it uses. Fields without an entry in *setters* are
    assigned to.
    """
    scope: dict[str, Any] = {"__missing": standard.MISSING}
    parameters, body = ["self"], []
    for each in standard.fields(cls):
        name = value = each.name
        if each.default_factory is not standard.MISSING:
            scope[f"__factory_{name}"] = each.default_factory
            made = f"__factory_{name}()"
            value = f"{made} if {name} is __missing else {name}" if each.init else made
            default = "=__missing"
        elif each.default is not standard.MISSING:
            scope[f"__default_{name}"] = each.default
            default = f"=__default_{name}"
            value = name if each.init else f"__default_{name}"
        elif each.init:
            default = ""
        else:
            continue  # `__post_init__` sets it
        if each.init:
            parameters.append(name + default)
        if setter := setters.get(name):
            scope[f"__set_{name}"] = setter
            target = f"self, {name!r}" if setter is object.__setattr__ else "self"
            body.append(f"__set_{name}({target}, {value})")
        else:
            body.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    return [f"def method({', '.join(parameters)}):", *(body or ["pass"])], scope


def _eq(cls: type) -> Method:
    names = _compared(cls)
    ours, theirs = (_tuple(side, names) for side in ("self", "other"))
    return _compiled(
        [
            "def method(self, other):",
            f"return {ours} == {theirs} if other.__class__ is self.__class__ else NotImplemented",
        ],
        {},
    )


def _hash(cls: type) -> Method:
    return _compiled(["def method(self):", f"return hash({_tuple('self', _compared(cls))})"], {})


def _tuple(side: str, names: list[str]) -> str:
    return f"({''.join(f'{side}.{name},' for name in names)})"


def _repr(cls: type) -> Method:
    shown = [each.name for each in standard.fields(cls) if each.repr]

    @recursive_repr()
    def method(self: object) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    return method


def _compared(cls: type) -> list[str]:
    return [each.name for each in standard.fields(cls) if each.compare]


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise standard.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise standard.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in standard.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for each, value in zip(standard.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
