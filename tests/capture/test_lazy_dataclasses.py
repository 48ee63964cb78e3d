"""`dataclass` of `capture.lazy_dataclasses` against the one of the standard library.

Each class text is executed with both decorators, and both classes must behave equally. A difference would be a field
that is lost, a value that is not frozen, or values that are equal in one process and not in another.
"""

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

import pytest

from capture import lazy_dataclasses

CLASSES = {
    "values": "a: int\n    b: str = 'x'\n    c: tuple[int, ...] = ()",
    "one field": "a: int",
    "factory": "a: int\n    b: list = field(default_factory=list)",
    "hidden in repr": "a: int\n    b: int = field(default=3, repr=False)",
    "not compared": "a: int\n    b: int = field(default=3, compare=False)",
    "not in init": "a: int\n    b: int = field(default=3, init=False)",
    "factory not in init": "a: int\n    b: list = field(default_factory=lambda: [1], init=False)",
    "class variable": "kind: ClassVar[str] = 'k'\n    a: int = 0",
    "after init": "a: int\n    def __post_init__(self):\n        if self.a < 0: raise ValueError(self.a)",
    "own repr": "a: int\n    def __repr__(self): return 'mine'",
    "own equality": "a: int\n    def __eq__(self, other): return True",
    "own equality and hash": "a: int\n    def __eq__(self, other): return True\n    def __hash__(self): return 7",
    "own hash": "a: int\n    def __hash__(self): return 7",
    "own init": "a: int\n    def __init__(self, text): object.__setattr__(self, 'a', int(text))",
    "property": "a: int = 1\n    @property\n    def double(self): return 2 * self.a",
}
PARAMETERS = ["", "frozen=True", "slots=True", "frozen=True, slots=True"]
ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((1,), {}), ((1,), {"b": 5}), ((2, 5), {}), ((1, 5, (2,)), {}), ((-1,), {}), ((), {"a": 1}),
    ((1,), {"a": 1}), ((1,), {"unknown": 1}), ((1, 2, 3, 4), {}), ((float("nan"),), {}), (([],), {}),
]  # fmt: skip


@contextmanager
def module_with(source: str, decorator: Callable[..., Any]) -> Iterator[ModuleType]:
    """A module that can be imported by pickle, with the classes of `source`."""
    module = ModuleType("classes_of_test")
    vars(module).update(dataclass=decorator, field=dataclasses.field, ClassVar=__import__("typing").ClassVar)
    sys.modules[module.__name__] = module
    try:
        exec(compile("from __future__ import annotations\n" + source, "classes", "exec"), vars(module))
        yield module
    finally:
        del sys.modules[module.__name__]


def outcome(action: Callable[[], Any]) -> Any:
    """The result of an action, or the class and text of its error."""
    try:
        return action()
    except Exception as error:
        return type(error), str(error)


def behaviour(cls: Any) -> list[Any]:
    """The results of everything that a user of a dataclass does."""
    results: list[Any] = [
        [(member.name, member.type, member.init) for member in dataclasses.fields(cls)],
        [str(parameter) for parameter in inspect.signature(cls).parameters.values()],
        cls.__match_args__,
        cls.__hash__ is None,
    ]
    for arguments, named in ARGUMENTS:
        value = outcome(lambda arguments=arguments, named=named: cls(*arguments, **named))  # type: ignore[misc]
        if isinstance(value, tuple):
            results.append(value)
            continue
        twin = cls(*arguments, **named)
        results += [
            repr(value),
            value == twin,
            value == 1,
            value != twin,
            outcome(lambda value=value, twin=twin: hash(value) == hash(twin)),  # type: ignore[misc]
            {name: getattr(value, name) for name in ("a", "b", "c", "double", "kind") if hasattr(value, name)},
            outcome(lambda value=value: repr(dataclasses.replace(value, a=9))),  # type: ignore[misc]
            outcome(lambda value=value: dataclasses.asdict(value)),  # type: ignore[misc]
            repr(copy.copy(value)),
            repr(pickle.loads(pickle.dumps(value))),
            outcome(lambda value=value: setattr(value, "a", 4)),  # type: ignore[misc]
            # With frozen slots the standard library fails here with a TypeError about its own super().
            isinstance(outcome(lambda value=value: setattr(value, "other", 4)), tuple),  # type: ignore[misc]
            outcome(lambda value=value: delattr(value, "a")),  # type: ignore[misc]
            repr(value) if hasattr(value, "a") else "no attribute a",
        ]
    return [repr(result) for result in results]


@pytest.mark.parametrize("parameters", PARAMETERS)
@pytest.mark.parametrize("body", CLASSES.values(), ids=list(CLASSES))
def test_a_class_behaves_like_one_of_the_standard_library(body: str, parameters: str) -> None:
    source = f"@dataclass({parameters})\nclass C:\n    '''A class.'''\n    {body}\n"
    with module_with(source, dataclasses.dataclass) as module:
        expected = behaviour(module.C)
    with module_with(source, lazy_dataclasses.dataclass) as module:
        assert behaviour(module.C) == expected


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_derived_classes_behave_like_those_of_the_standard_library(parameters: str) -> None:
    source = f"""
@dataclass({parameters})
class Base:
    '''A class.'''
    a: int
    b: int = 1
    def __post_init__(self):
        object.__setattr__(self, 'a', self.a)

@dataclass({parameters})
class C(Base):
    '''A derived class.'''
    c: tuple[int, ...] = ()
    b: int = 2
    def __post_init__(self):
        Base.__post_init__(self)

class Plain(C):
    def __init__(self, a):
        super().__init__(a)
"""
    with module_with(source, dataclasses.dataclass) as module:
        expected = [behaviour(module.Base), behaviour(module.C), outcome(lambda: repr(module.Plain(3))),
                    module.C(1, 2) == module.Base(1, 2)]  # fmt: skip
    with module_with(source, lazy_dataclasses.dataclass) as module:
        compared = [behaviour(module.Base), behaviour(module.C), outcome(lambda: repr(module.Plain(3))),
                    module.C(1, 2) == module.Base(1, 2)]  # fmt: skip
    assert compared == expected


def test_a_frozen_value_with_slots_computes_its_hash_once_in_each_process() -> None:
    computed = []

    class Part:
        def __hash__(self) -> int:
            computed.append(self)
            return 7

    source = "@dataclass(frozen=True, slots=True)\nclass C:\n    a: object\n    b: int = 1\n"
    with module_with(source, lazy_dataclasses.dataclass) as module:
        value = module.C(Part())
        assert hash(value) == hash(value) == hash((value.a, 1))
        assert len(computed) == 2, "once for the value, once for the tuple"
        restored = pickle.loads(pickle.dumps(module.C("a")))
        assert hash(restored) == hash(("a", 1))
        assert hash(dataclasses.replace(value, b=2)) == hash((value.a, 2)) != hash(value)


def test_a_derived_class_that_is_used_first_does_not_compile_the_init_of_its_base_for_itself() -> None:
    source = """
@dataclass(frozen=True)
class Base:
    '''A class.'''
    a: int

@dataclass(frozen=True)
class C(Base):
    '''A derived class.'''
    b: int = 2
"""
    with module_with(source, lazy_dataclasses.dataclass) as module:
        assert repr(module.C(1)) == "C(a=1, b=2)"
        assert repr(module.Base(1)) == "Base(a=1)"
        assert module.C.__init__ is not module.Base.__init__


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("a: int = 1\n    b: int", "non-default argument 'b' follows default argument"),
        ("a: list = []", "mutable default <class 'list'> for field a is not allowed"),
        ("a: list = field(default=[])", "mutable default <class 'list'> for field a is not allowed"),
        ("a = field(default=1)", "'a' is a field but has no type annotation"),
        ("a: int = field(hash=False)", "field 'a': got hash=False, expected no hash: use compare"),
        ("a: int = field(kw_only=True)", "field 'a': got kw_only=True, expected a positional field"),
    ],
)
def test_wrong_fields_are_errors_when_the_class_is_made(body: str, message: str) -> None:
    with (
        pytest.raises((TypeError, ValueError), match=message),
        module_with(f"@dataclass(frozen=True)\nclass C:\n    '''A class.'''\n    {body}\n", lazy_dataclasses.dataclass),
    ):
        pass


DECORATORS = [lazy_dataclasses.dataclass, dataclasses.dataclass]


@pytest.mark.parametrize("base", DECORATORS)
@pytest.mark.parametrize("derived", DECORATORS)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_class_and_its_base_are_both_frozen_or_not(base: Any, derived: Any, frozen: bool) -> None:
    @base(frozen=not frozen)
    class Base:
        a: int

    kinds = ("non-frozen", "frozen")
    with pytest.raises(TypeError, match=f"^cannot inherit {kinds[frozen]} dataclass from a {kinds[not frozen]} one$"):

        @derived(frozen=frozen)
        class Derived(Base):
            b: int


@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_class_with_a_base_of_the_standard_library(decorator: Any) -> None:
    @dataclasses.dataclass
    class Base:
        kind: ClassVar[int] = 3
        a: int = 1

    @decorator
    class Derived(Base):
        b: int = 2

    assert repr(Derived(5)).endswith("Derived(a=5, b=2)")
    assert (Base.kind, Derived.kind, [member.name for member in dataclasses.fields(Base)]) == (3, 3, ["a"])
    assert Derived.__dataclass_params__.eq


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_a_class_without_fields_has_one_value(parameters: str) -> None:
    with module_with(f"@dataclass({parameters})\nclass C:\n    pass\n", lazy_dataclasses.dataclass) as module:
        assert module.C() == module.C()
        assert repr(module.C()) == "C()"
        assert repr(pickle.loads(pickle.dumps(module.C()))) == "C()"


def test_the_init_of_a_class_is_compiled_when_it_is_first_used() -> None:
    with module_with(
        "@dataclass(frozen=True)\nclass C:\n    '''A class.'''\n    a: int\n", lazy_dataclasses.dataclass
    ) as m:
        assert not inspect.isfunction(vars(m.C)["__init__"])
        assert m.C(1).a == 1
        assert inspect.isfunction(vars(m.C)["__init__"])
