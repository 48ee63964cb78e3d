"""A replacement for the standard `dataclass`, which does not compile the methods of a class at import.

The standard library compiles up to six methods of each class: 0.4 ms for a frozen class with slots. A query imports
about 240 such classes and instantiates a third of them, so they took a quarter of its start. Here a class takes
0.01 ms, because the parts that depend on its fields are made when they are first used:

    descriptions of fields    one `Field` for each, for `fields` of the standard library
    `__init__`                classes whose fields have the same form share its code, with other names
    the other methods         functions that all classes share

Frozen classes with slots store their hash when it is first used. Plans are trees of such values, and planning looks up
each node many times.

Only the standard parameters `frozen` and `slots` exist, and fields that are neither InitVar nor KW_ONLY, and have no
`hash`. `field`, `fields`, `replace`, `asdict` and `is_dataclass` of the standard library work for these classes.
"""

from __future__ import annotations

from copy import copy
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields, is_dataclass
from dataclasses import dataclass as standard_dataclass
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, NamedTuple

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
        _check_bases(cls, frozen)
        members = _members_of(cls)
        _check_order(members)
        content = dict(vars(cls))
        added: dict[str, Any] = {
            name: method for name, method in _METHODS[frozen, slots].items() if name not in content
        }
        if "__hash__" not in content or (content["__hash__"] is None and "__eq__" in content):
            added["__hash__"] = (_find_hash if slots and members else _compute_hash) if frozen else None
        if "__init__" not in content:
            added["__init__"] = _LazyInit(members, frozen, slots)
        added["__dataclass_fields__"] = described = _LazyFields(members)
        added["__dataclass_params__"] = _PARAMETERS[frozen]
        added["__match_args__"] = tuple([member.name for member in members.values() if member.is_parameter])
        if slots:
            cls = _with_slots(cls, content | added, members, frozen)
        else:
            for name, value in added.items():
                setattr(cls, name, value)
        described.cls = cls
        if "__init__" in added:
            added["__init__"].cls = cls
        return cls


class _Member(NamedTuple):
    """A field as the class declares it. `default` is a value, or a `Field`, or MISSING."""

    name: str
    annotation: Any
    default: Any

    @property
    def is_parameter(self) -> bool:
        """Whether `__init__` has a parameter for the field."""
        return not isinstance(self.default, Field) or self.default.init

    @property
    def value(self) -> Any:
        """The default value, or MISSING."""
        return self.default.default if isinstance(self.default, Field) else self.default

    @property
    def factory(self) -> Any:
        """The function that makes the default value, or MISSING."""
        return self.default.default_factory if isinstance(self.default, Field) else MISSING


def _members_of(cls: type) -> dict[str, _Member]:
    """Return the fields of a class: first the fields of its bases, then its own fields.

    Remove `Field` from its attributes.
    """
    members: dict[str, _Member] = {}
    for base in cls.__mro__[-1:0:-1]:
        described = vars(base).get("__dataclass_fields__")
        if isinstance(described, _LazyFields):
            members |= described.members
        elif described is not None:
            own = [member for member in described.values() if member._field_type is _FIELD_MARK]  # not ClassVar
            members |= {member.name: _Member(member.name, member.type, member) for member in own}
    annotations = cls.__annotations__  # only those of the class itself
    for name, value in vars(cls).items():
        if isinstance(value, Field) and name not in annotations:
            raise TypeError(f"{name!r} is a field but has no type annotation")
    for name, annotation in annotations.items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        default = getattr(cls, name, MISSING)
        if isinstance(default, MemberDescriptorType):  # the slot of a base class
            default = MISSING
        member = members[name] = _Member(name, annotation, default)
        if isinstance(default, Field):
            if member.value is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, member.value)
        if type(member.value).__hash__ is None:
            raise ValueError(
                f"mutable default {type(member.value)} for field {name} is not allowed: use default_factory"
            )
    for member in members.values():
        if isinstance(member.default, Field):
            if member.default.hash not in (None, member.default.compare):
                raise TypeError(f"field {member.name!r}: got hash={member.default.hash}, expected no hash: use compare")
            if member.default.kw_only is True:
                raise TypeError(f"field {member.name!r}: got kw_only=True, expected a positional field")
    return members


def _check_bases(cls: type, frozen: bool) -> None:
    """Raise TypeError if only one of a class and its base is frozen, as the standard library does."""
    for base in cls.__mro__[1:]:
        parameters = vars(base).get("__dataclass_params__")
        if parameters is not None and parameters.frozen != frozen:
            is_not = ("non-frozen", "frozen")
            raise TypeError(f"cannot inherit {is_not[frozen]} dataclass from a {is_not[not frozen]} one")


def _check_order(members: dict[str, _Member]) -> None:
    last_with_default = ""
    for member in members.values():
        if not member.is_parameter:
            continue
        if member.value is not MISSING or member.factory is not MISSING:
            last_with_default = member.name
        elif last_with_default:
            raise TypeError(f"non-default argument {member.name!r} follows default argument {last_with_default!r}")


STORED_HASH = "_stored_hash"
"""Name of the slot for the hash of a value."""


def _with_slots(cls: type, content: dict[str, Any], members: dict[str, _Member], frozen: bool) -> type:
    """Return a new class with this content, and a slot for each field that no base has.

    A frozen class also has a slot for its hash.
    """
    inherited = {name for base in cls.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
    slots = [name for name in members if name not in inherited]
    if frozen and slots and STORED_HASH not in inherited:
        slots.append(STORED_HASH)
    for name in (*members, "__dict__", "__weakref__"):
        content.pop(name, None)
    return type(cls)(
        cls.__name__, cls.__bases__, content | {"__slots__": tuple(slots), "__qualname__": cls.__qualname__}
    )


@standard_dataclass(init=False, repr=False, eq=False)
class _Standard:
    """A dataclass of the standard library, without generated methods.

    Its field type marks the fields of all classes of this module.
    """

    value: int


_PARAMETERS = {frozen: copy(_Standard.__dataclass_params__) for frozen in (False, True)}  # type: ignore[attr-defined]
"""The parameters that a class shows to other dataclasses, by `frozen`."""

for _frozen, _parameters in _PARAMETERS.items():
    _parameters.frozen, _parameters.init, _parameters.repr, _parameters.eq = _frozen, True, True, True

_FIELD_MARK = fields(_Standard)[0]._field_type  # type: ignore[attr-defined]
"""The value by which `fields` recognises a field."""


class _LazyFields:
    """`__dataclass_fields__` of a class: a descriptor that replaces itself by the descriptions of the fields."""

    cls: Any

    def __init__(self, members: dict[str, _Member]) -> None:
        self.members = members

    def __get__(self, instance: object, owner: type) -> dict[str, Field[Any]]:
        described: dict[str, Any] = {}
        for name, annotation, default in self.members.values():
            member: Any = default if isinstance(default, Field) else field(default=default)
            member.name, member.type, member.kw_only, member._field_type = name, annotation, False, _FIELD_MARK
            described[name] = member
        self.cls.__dataclass_fields__ = described
        return described


class _Factory:
    """The default of a parameter whose field has a factory, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _LazyInit:
    """The `__init__` of a class: a descriptor that replaces itself by a function at its first use."""

    cls: Any

    def __init__(self, members: dict[str, _Member], frozen: bool, slots: bool) -> None:
        self._members, self._frozen, self._slots = members.values(), frozen, slots

    def __get__(self, instance: object, owner: type) -> Any:
        function = self._make()
        self.cls.__init__ = function
        return function if instance is None else function.__get__(instance, owner)

    def _make(self) -> Any:
        # The default of a field that is no parameter is an attribute of the class, except in classes with slots.
        assigned = [
            member
            for member in self._members
            if member.is_parameter or member.factory is not MISSING or (self._slots and member.value is not MISSING)
        ]
        parameters = [member for member in assigned if member.is_parameter]
        forms = tuple((member.is_parameter, member.factory is not MISSING) for member in assigned)
        code = _compile_init(forms, self._frozen, hasattr(self.cls, "__post_init__"))
        names: dict[str, Any] = {"_factory": _FACTORY, "_set": object.__setattr__}
        for index, member in enumerate(assigned):
            names[f"_default{index}"] = member.value if member.factory is MISSING else member.factory
        defaults = [_FACTORY if member.factory is not MISSING else member.value for member in parameters]
        function = FunctionType(
            _rename(code, [member.name for member in assigned]),
            names,
            "__init__",
            tuple([default for default in defaults if default is not MISSING]),
        )
        function.__qualname__ = f"{self.cls.__qualname__}.__init__"
        function.__module__ = self.cls.__module__
        function.__annotations__ = {member.name: member.annotation for member in parameters} | {"return": None}
        return function


@cache
def _compile_init(forms: tuple[tuple[bool, bool], ...], frozen: bool, has_post_init: bool) -> CodeType:
    """Return the code of an `__init__` for fields `field0`, `field1` and so on.

    Each field has two properties: it is a parameter, and it has a factory.
    """
    parameters, body = ["self"], []
    for index, (is_parameter, has_factory) in enumerate(forms):
        value = f"_default{index}()" if has_factory else f"_default{index}"
        if is_parameter:
            parameters.append(f"field{index}")
            value = f"{value} if field{index} is _factory else field{index}" if has_factory else f"field{index}"
        body.append(f"_set(self, 'field{index}', {value})" if frozen else f"self.field{index} = {value}")
    if has_post_init:
        body.append("self.__post_init__()")
    names: dict[str, Any] = {}
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), names)
    code: CodeType = names["__init__"].__code__
    return code


def _rename(code: CodeType, names: list[str]) -> CodeType:
    """Replace the names `field0`, `field1` and so on in code."""
    name_of = {f"field{index}": name for index, name in enumerate(names)}
    return code.replace(
        co_consts=tuple([name_of.get(value, value) if isinstance(value, str) else value for value in code.co_consts]),
        co_names=tuple([name_of.get(name, name) for name in code.co_names]),
        co_varnames=tuple([name_of.get(name, name) for name in code.co_varnames]),
    )


def field_names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass. Return () for other types. This is faster than `fields`."""
    if kind not in _field_names:
        _field_names[kind] = tuple(member.name for member in fields(kind)) if is_dataclass(kind) else ()
    return _field_names[kind]


_field_names: dict[type, tuple[str, ...]] = {}
"""A cache of the field names of types, because a run searches its plans several times for each query."""


@cache
def _compared_values(kind: type) -> Callable[[Any], Any]:
    """Return a function that returns the values of the compared fields: as a tuple, or the value of a single field."""
    names = [member.name for member in fields(kind) if member.compare]
    return attrgetter(*names) if names else lambda _: ()


@recursive_repr()
def _represent(self: Any) -> str:
    values = ", ".join([f"{member.name}={getattr(self, member.name)!r}" for member in fields(self) if member.repr])
    return f"{type(self).__qualname__}({values})"


def _equals(self: Any, other: Any) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = _compared_values(self.__class__)
    # A tuple finds equal objects by their identity, so values that are not equal to themselves stay equal.
    return (values(self),) == (values(other),)


def _compute_hash(self: Any) -> int:
    return hash(_compared_values(self.__class__)(self))


def _find_hash(self: Any) -> int:
    try:
        return self._stored_hash
    except AttributeError:
        stored = _compute_hash(self)
        object.__setattr__(self, STORED_HASH, stored)
        return stored


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    """Refuse to assign fields. Instances of classes that are derived from a dataclass may have other attributes."""
    if "__dataclass_params__" in vars(type(self)) or name in field_names(type(self)):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_deletion(self: Any, name: str) -> None:
    if "__dataclass_params__" in vars(type(self)) or name in field_names(type(self)):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _list_values(self: Any) -> list[Any]:
    return [getattr(self, name) for name in field_names(type(self))]


def _restore_values(self: Any, state: list[Any]) -> None:
    for name, value in zip(field_names(type(self)), state, strict=True):
        object.__setattr__(self, name, value)


_ANY: dict[str, Any] = {"__repr__": _represent, "__eq__": _equals}
_FROZEN: dict[str, Any] = _ANY | {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
_METHODS: dict[tuple[bool, bool], dict[str, Any]] = {
    (False, False): _ANY,
    (False, True): _ANY,
    (True, False): _FROZEN,
    (True, True): _FROZEN | {"__getstate__": _list_values, "__setstate__": _restore_values},
}
"""The shared methods of a class, by `frozen` and `slots`. The last two methods are for pickle and copy."""
