"""A replacement for the standard `dataclass`, which does not compile the methods of a class at import.

The standard library compiles up to six methods of each class: 0.4 ms for a frozen class with slots. A query imports
about 220 such classes and instantiates a third of them, so they took a quarter of its start. Here a class takes
0.02 ms: `__init__` is compiled when it is first used, and the other methods are shared code over the fields.

Frozen classes with slots store their hash when it is first used. Plans are trees of such values, and planning looks up
each node many times.

Only the standard parameters `frozen` and `slots` exist, and fields that are neither InitVar nor KW_ONLY. `field`,
`fields`, `replace`, `asdict` and `is_dataclass` of the standard library work for these classes.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, field, fields, is_dataclass
from dataclasses import dataclass as standard_dataclass
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, slots: bool = False) -> Any:
        """Convert a class with annotated fields to a dataclass. `frozen`: its fields cannot be assigned.

        Raises TypeError as the standard library does, for example for a field without default after one with default.
        """
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, slots=slots)
        own = vars(cls)
        keeps_hash = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
        kept = {"__init__", "__repr__", "__eq__", "__setattr__", "__delattr__", "__getstate__", "__setstate__"} & set(
            own
        )
        _define_fields(cls)
        if slots:
            cls = _with_slots(cls, frozen)
        methods = _make_methods(cls, frozen, slots)
        for name, method in methods.items():
            if not (keeps_hash if name == "__hash__" else name in kept):
                setattr(cls, name, method)
        return cls


@standard_dataclass(init=False, repr=False, eq=False)
class _Standard:
    """A dataclass of the standard library, without generated methods.

    Its field type marks the fields of all classes of this module.
    """

    value: int


_FIELD_MARK = fields(_Standard)[0]._field_type  # type: ignore[attr-defined]
"""The value by which `fields` recognises a field."""


def _define_fields(cls: Any) -> None:
    """Set the attributes of a dataclass that describe its fields: the fields of its bases, then the other fields."""
    members: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        members.update(getattr(base, "__dataclass_fields__", {}))
    for name, annotation in get_annotations(cls).items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        default: Any = getattr(cls, name, MISSING)
        member: Any = default if isinstance(default, Field) else field(default=default)
        if isinstance(default, MemberDescriptorType):  # the slot of a base class
            member.default = MISSING
        elif default is not member and type(default).__hash__ is None:
            raise ValueError(f"mutable default {type(default)} for field {name} is not allowed: use default_factory")
        elif default is member and member.default is MISSING:
            delattr(cls, name)
        elif default is not MISSING:
            setattr(cls, name, member.default)
        member.name, member.type, member.kw_only, member._field_type = name, annotation, False, _FIELD_MARK
        members[name] = member
    cls.__dataclass_fields__ = members
    cls.__dataclass_params__ = _Standard.__dataclass_params__  # type: ignore[attr-defined]
    cls.__match_args__ = tuple(name for name, member in members.items() if member.init)  # type: ignore[misc]


STORED_HASH = "_stored_hash"
"""Name of the slot for the hash of a value."""


def _with_slots(cls: type, frozen: bool) -> type:
    """Return a new class with the same content, and a slot for each field that no base has.

    A frozen class also has a slot for its hash.
    """
    content = dict(vars(cls))
    inherited = {name for base in cls.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
    slots = [name for name in cls.__dataclass_fields__ if name not in inherited]  # type: ignore[attr-defined]
    if frozen and slots and STORED_HASH not in inherited:
        slots.append(STORED_HASH)
    content["__slots__"] = tuple(slots)
    for name in (*cls.__dataclass_fields__, "__dict__", "__weakref__"):  # type: ignore[attr-defined]
        content.pop(name, None)
    made = type(cls)(cls.__name__, cls.__bases__, content)
    made.__qualname__ = cls.__qualname__
    return made


class _Factory:
    """The default of a parameter whose field has a factory, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _make_methods(cls: type, frozen: bool, slots: bool) -> dict[str, Any]:
    members = fields(cls)
    compared = _values_of([member.name for member in members if member.compare])
    methods: dict[str, Any] = {
        "__init__": _LazyInit(cls, members, frozen, slots),
        "__repr__": _make_repr([member.name for member in members if member.repr]),
        "__eq__": _make_eq(compared),
        "__hash__": _make_hash(compared, hasattr(cls, STORED_HASH)) if frozen else None,
    }
    if frozen:
        names = [member.name for member in members]
        methods |= _make_guards(cls, frozenset(names))
        if slots:
            methods |= _make_state(names)
    return methods


class _LazyInit:
    """The `__init__` of a class: a descriptor that replaces itself by a compiled function at its first use."""

    def __init__(self, cls: type, members: tuple[Field[Any], ...], frozen: bool, slots: bool) -> None:
        self._cls, self._members, self._frozen, self._slots = cls, members, frozen, slots
        self._check_order()

    def _check_order(self) -> None:
        last_with_default = ""
        for member in self._members:
            if not member.init:
                continue
            if member.default is not MISSING or member.default_factory is not MISSING:
                last_with_default = member.name
            elif last_with_default:
                raise TypeError(f"non-default argument {member.name!r} follows default argument {last_with_default!r}")

    def __get__(self, instance: object, owner: type) -> Any:
        function = self._compile()
        self._cls.__init__ = function  # type: ignore[misc]
        return function if instance is None else function.__get__(instance, owner)

    def _compile(self) -> Any:
        parameters, body = ["self"], []
        names: dict[str, Any] = {"_factory": _FACTORY, "_set": object.__setattr__}
        for member in self._members:
            name, value = member.name, member.name
            if member.default_factory is not MISSING:
                names[f"_make_{name}"] = member.default_factory
                value = f"_make_{name}() if {name} is _factory else {name}" if member.init else f"_make_{name}()"
                parameter = f"{name}=_factory"
            elif member.default is not MISSING:
                names[f"_default_{name}"] = member.default
                if not member.init:
                    if not self._slots:
                        continue  # the default is an attribute of the class
                    value = f"_default_{name}"
                parameter = f"{name}=_default_{name}"
            else:
                if not member.init:
                    continue
                parameter = name
            if member.init:
                parameters.append(parameter)
            body.append(f"_set(self, {name!r}, {value})" if self._frozen else f"self.{name} = {value}")
        if hasattr(self._cls, "__post_init__"):
            body.append("self.__post_init__()")
        text = f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"])
        exec(text, names)
        function = names["__init__"]
        function.__qualname__ = f"{self._cls.__qualname__}.__init__"
        function.__module__ = self._cls.__module__
        function.__annotations__ = {member.name: member.type for member in self._members if member.init} | {
            "return": None
        }
        return function


def field_names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass. Return () for other types. This is faster than `fields`."""
    if kind not in _field_names:
        _field_names[kind] = tuple(member.name for member in fields(kind)) if is_dataclass(kind) else ()
    return _field_names[kind]


_field_names: dict[type, tuple[str, ...]] = {}
"""A cache of the field names of types, because a run searches its plans several times for each query."""


def _values_of(names: list[str]) -> Callable[[Any], Any]:
    """Return a function that returns the values of these fields: as a tuple, or the value of a single field."""
    return attrgetter(*names) if names else lambda _: ()


def _make_repr(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def represent(self: Any) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({values})"

    return represent


def _make_eq(values: Callable[[Any], Any]) -> Callable[[Any, Any], bool]:
    def equals(self: Any, other: Any) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        # A tuple finds equal objects by their identity, so values that are not equal to themselves stay equal.
        return (values(self),) == (values(other),)

    return equals


def _make_hash(values: Callable[[Any], Any], has_slot: bool) -> Callable[[Any], int]:
    def compute_hash(self: Any) -> int:
        return hash(values(self))

    def find_hash(self: Any) -> int:
        try:
            return self._stored_hash
        except AttributeError:
            stored = hash(values(self))
            object.__setattr__(self, STORED_HASH, stored)
            return stored

    return find_hash if has_slot else compute_hash


def _make_guards(cls: type, names: frozenset[str]) -> dict[str, Any]:
    """Return methods that refuse to assign or delete fields; classes derived from `cls` may have other attributes."""

    def refuse_assignment(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def refuse_deletion(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    return {"__setattr__": refuse_assignment, "__delattr__": refuse_deletion}


def _make_state(names: list[str]) -> dict[str, Any]:
    """Return the methods of pickle and copy for frozen slots."""

    def list_values(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def restore_values(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": list_values, "__setstate__": restore_values}
