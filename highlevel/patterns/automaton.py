"""Augmented finite automata: states, arcs and a register (Chandramouli, Goldstein and Maier, 2010, Definition 1).

A run begins in the state `start` with the initial register, and consumes rows that follow each other in time. An arc
leads from one state to another. Its fence is a condition over the row and the register, its transfer computes the new
register from both. A silent arc (an epsilon arc) consumes no row: its fence and transfer read only the register.

The automaton accepts a sequence of rows if a run over all of them ends in a final state. The result is the register.
Its lifetime is the intersection of the lifetimes of the rows. A row that fits no arc ends the run, so a pattern that
skips rows has an arc from a state to itself.

An arc with a deadline leads to a final state without a row: at the deadline, if no row has come since the last row of
the run and before the deadline. So a pattern can contain an event that does not happen, such as "a request without a
reply" (the end-of-window indicator of Appendix E).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.tree import Column, Expression, Literal, columns_of
from lowlevel.expressions.types import Type, key_type
from lowlevel.punctuation import BEGINNING, END

Transfer = tuple[tuple[str, Expression], ...]
"""Names of fields of the register, each with its new value. Other fields keep their values."""


class PatternError(WiretideError, ValueError):
    """An automaton that contradicts itself or its rows."""


@dataclass(frozen=True)
class Field:
    """A field of the register, with its value before the first row."""

    name: str
    initial: Literal

    @property
    def column(self) -> Column:
        """Expression that reads the field."""
        return Column(self.name, self.initial.type, nullable=True)


@dataclass(frozen=True)
class Arc:
    """An arc. It applies to rows with a time in `[begin, end)`, in ns.

    `deadline`: a time computed from the register, at which the arc applies without a row.
    """

    source: str
    target: str
    fence: Expression = Literal(True, Type.BOOL)
    transfer: Transfer = ()
    is_silent: bool = False
    begin: int = BEGINNING
    end: int = END
    deadline: Expression | None = None

    @property
    def expressions(self) -> Iterator[Expression]:
        """The fence, the new values, and the deadline."""
        yield self.fence
        yield from (value for _, value in self.transfer)
        if self.deadline is not None:
            yield self.deadline


@dataclass(frozen=True)
class Automaton:
    """States, arcs and a register. Validated on construction (PatternError).

    `window`: a run spans less than this time, in ns; None for no limit. Arcs with one source are in the order of
    preference. `last_finals`: states that are final after the last row of the input only. `empty_fence`: if the start
    is final, a run without rows is a result at each row for which this condition is true. `other_states`: states
    without an arc, because the arcs change (`highlevel.patterns.arc_table`).
    """

    start: str
    finals: tuple[str, ...]
    arcs: tuple[Arc, ...]
    register: tuple[Field, ...] = ()
    window: int | None = None
    last_finals: tuple[str, ...] = ()
    empty_fence: Expression = Literal(True, Type.BOOL)
    other_states: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check names and types."""
        if self.window is not None and self.window <= 0:
            raise PatternError(f"got a window of {self.window} ns, expected more than 0: a run has at least one row")
        fields = {field.name: field.initial.type for field in self.register}
        if len(fields) < len(self.register):
            raise PatternError("got two fields of the register with one name, expected different names")
        for name in (*self.finals, *self.last_finals):
            if name not in self.states:
                raise PatternError(f"got the final state {name!r} without an arc, expected {', '.join(self.states)}")
        for arc in self.arcs:
            check_arc(arc, fields)
        check_silent_arcs(self.arcs)
        check_deadlines(self.arcs, self.finals)

    @cached_property
    def states(self) -> tuple[str, ...]:
        """The names of the states: the start, those of the arcs in their order, and those without an arc."""
        names = [self.start, *(name for arc in self.arcs for name in (arc.source, arc.target)), *self.other_states]
        return tuple(dict.fromkeys(names))

    @property
    def expressions(self) -> Iterator[Expression]:
        """The expressions of all arcs, and the condition of a run without rows."""
        yield self.empty_fence
        for arc in self.arcs:
            yield from arc.expressions


def keeps_run(arc: Arc) -> bool:
    """Return whether an arc leads from a state to itself and changes no field."""
    return arc.source == arc.target and all(keeps_field(value, name) for name, value in arc.transfer)


def keeps_field(value: Expression, name: str) -> bool:
    """Return whether a new value of a field is only its old value."""
    return isinstance(value, Column) and value.name == name


def check_deadlines(arcs: Sequence[Arc], finals: Sequence[str]) -> None:
    """Raise PatternError for a deadline that does not end a run, and for two deadlines of a state."""
    timed = [arc for arc in arcs if arc.deadline is not None]
    sources = {arc.source for arc in arcs} if timed else set()
    for arc in timed:
        if arc.target in sources or arc.target not in finals:
            expected = "a final state that no arc leaves: a run ends at its deadline"
            raise PatternError(f"got a deadline from {arc.source} to {arc.target}, expected {expected}")
        if sum(other.source == arc.source for other in timed) > 1:
            raise PatternError(f"got two deadlines of the state {arc.source}, expected one: the earlier time")


def check_silent_arcs(arcs: Sequence[Arc]) -> None:
    """Raise PatternError for a cycle of silent arcs that changes the register: a run would never consume a row."""
    silent = [arc for arc in arcs if arc.is_silent]
    targets: dict[str, set[str]] = {}
    for arc in silent:
        targets.setdefault(arc.source, set()).add(arc.target)
    for arc in silent:
        if arc.transfer and arc.source in reachable(targets, arc.target):
            way = f"{arc.source} to {arc.target}"
            raise PatternError(
                f"got a silent arc from {way} that changes the register in a cycle of silent arcs, expected an arc "
                "of the cycle that consumes a row, or no change of the register"
            )


def check_arc(arc: Arc, fields: Mapping[str, Type]) -> None:
    """Raise PatternError for an arc with wrong names or types. `fields`: the register."""
    way = f"the arc from {arc.source} to {arc.target}"
    if arc.begin >= arc.end:
        raise PatternError(f"got {way} with the lifetime [{arc.begin}, {arc.end}), expected begin < end")
    if arc.fence.type is not Type.BOOL:
        raise PatternError(f"got a fence of type {arc.fence.type} at {way}, expected a condition")
    for name, value in arc.transfer:
        if name not in fields:
            known = ", ".join(fields) or "no field: the register is empty"
            raise PatternError(f"got a new value of {name!r} at {way}, expected a field of the register: {known}")
        if value.type is not fields[name] and key_type(fields[name], value.type) is not fields[name]:
            raise PatternError(f"got {name} of type {value.type} at {way}, expected {fields[name]}")
    if arc.deadline is not None:
        if arc.deadline.type is not Type.TIME:
            raise PatternError(f"got a deadline of type {arc.deadline.type} at {way}, expected a time")
        if arc.is_silent or arc.transfer or arc.fence != Literal(True, Type.BOOL):
            raise PatternError(f"got a deadline with a fence or new values at {way}, expected only a time")
    if arc.is_silent or arc.deadline is not None:
        for expression in arc.expressions:
            for column in columns_of(expression):
                if column.name not in fields:
                    raise PatternError(f"got the column {column.name!r} at {way} without a row, expected a field")


def reachable(targets: Mapping[str, set[str]], state: str) -> set[str]:
    """Return a state, and all states that edges lead to from it. `targets`: the edges."""
    reached, waiting = {state}, [state]
    while waiting:
        for target in targets.get(waiting.pop(), set()) - reached:
            reached.add(target)
            waiting.append(target)
    return reached
