"""The node of the sampling operator: groups of windows, from which a condition deletes groups (SUPERGROUP)."""

from __future__ import annotations

from enum import StrEnum

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.plan.nodes import Node
from lowlevel.expressions.tree import Column, Expression, computed_column
from lowlevel.expressions.types import Type


class SampleKind(StrEnum):
    """The aggregate functions of the sampling operator."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    GROUPS = "count_distinct"
    """The number of groups of a supergroup that exist; only a superaggregate can use this function."""


@dataclass(frozen=True, slots=True)
class SampleAggregate:
    """An aggregate of a group, or with `of_supergroup` of all rows of a supergroup. Its value is the column `name`.

    `argument` is an expression over the columns of the input. Without it `count` counts rows. The argument of FIRST is
    an expression over superaggregates, evaluated at the first row of the group.
    """

    name: str
    kind: SampleKind
    type: Type
    argument: Expression | None = None
    of_supergroup: bool = False

    @property
    def column(self) -> Column:
        """The column with the value."""
        return Column(self.name, self.type, nullable=self.kind not in (SampleKind.COUNT, SampleKind.GROUPS))


TICKET = Column(".ticket", Type.INT)
"""The random ticket of an admitted row (`highlevel.sampling.state`), which aggregates of groups can read."""


STATE_VALUE = Column(".value", Type.FLOAT)
"""The value of the state at the end of the window, after HAVING."""


@dataclass(frozen=True, slots=True)
class StateFunctions:
    """Functions with a state, of the family `family` of `highlevel.sampling.families`.

    Superaggregates and groups contain only rows that the state admits. `weight` is a column of the input, or None.
    `due` is the argument of the function in CLEANING WHEN, over superaggregates. `clean` and `finish` are the arguments
    of the functions in CLEANING BY and HAVING, over groups. Each argument is None if the query does not call its
    function. The results of the functions are the columns DUE, KEPT and STATE_VALUE.
    """

    family: str
    size: int
    seed: int
    weight: str | None = None
    due: Expression | None = None
    clean: Expression | None = None
    finish: Expression | None = None


@dataclass(frozen=True)
class Sample(Node):
    """Groups of windows, from which conditions delete groups (Johnson et al. 2005, sampling operator).

    A row updates the superaggregates of its supergroup, then its group. If `when` is true, a condition over
    superaggregates, the groups of the supergroup for which `by` is not true are deleted. At the end of the window
    `having` selects the groups of the result. `keys` and `supergroup` are columns of the input. The window is the time
    column of the input, which is one of the keys; without a time column the whole input is one window.
    """

    input: Node
    keys: tuple[str, ...]
    supergroup: tuple[str, ...]
    aggregates: tuple[SampleAggregate, ...]
    when: Expression | None
    by: Expression | None
    having: Expression | None
    outputs: tuple[Output, ...]
    functions: StateFunctions | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of `outputs`."""
        return tuple(computed_column(out.name, out.expression) for out in self.outputs)

    @property
    def group_columns(self) -> tuple[Column, ...]:
        """The keys and aggregates: the columns that the conditions and outputs read."""
        by_name = {column.name: column for column in self.input.columns}
        return (*(by_name[key] for key in self.keys), *(aggregate.column for aggregate in self.aggregates))

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The output that is the time column of the input, or ()."""
        names = (
            out.name
            for out in self.outputs
            if isinstance(out.expression, Column) and out.expression.name in self.input.time_columns
        )
        return tuple(names)[:1]
