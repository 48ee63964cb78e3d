"""Window functions (OVER): divide the select list into columns below the node `Over` and columns above it.

SELECT srcIP, sum(len) * 100.0 / sum(sum(len)) OVER () AS share       the select list
srcIP, .over 1 = sum(len), .over 2 = sum(len) * 100.0                 below: columns of the groups
.function 1 = sum(.over 1) OVER ()                                    the functions
srcIP, share = .over 2 / .function 1                                  above: the outputs of Over
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.answer_nodes import Over, RowFunction, SortKey
from highlevel.plan.nodes import Node
from lowlevel.expressions.tree import Column, Expression, Literal, columns_of, computed_column, transform
from queries.binding.window_functions import BoundFunction


@dataclass(frozen=True, slots=True)
class OverStep:
    """A select list with window functions. `below` are the columns of the rows that the functions read."""

    below: tuple[Output, ...]
    functions: tuple[RowFunction, ...]
    outputs: tuple[Output, ...]

    def add_node(self, node: Node, *, windowed: bool = False) -> Over:
        """Return the node Over above `node`, which has the columns `below`.

        With windows, a function uses only the rows of one window, unless it is ordered by a bound of the windows.
        """
        if not windowed:
            return Over(node, self.functions, self.outputs)
        bounds = [
            out.name
            for out in self.below
            if isinstance(out.expression, Column) and out.expression.name in (WINDOW_END, WINDOW_START)
        ]
        functions = []
        for function in self.functions:
            # All windows have the same length, so both bounds give the same order.
            order = tuple(replace(key, column=WINDOW_END) if key.column in bounds else key for key in function.order)
            compares_windows = bool(order) and order[0].column == WINDOW_END
            partition = function.partition if compares_windows else (WINDOW_END, WINDOW_START, *function.partition)
            functions.append(replace(function, partition=partition, order=order))
        return Over(node, tuple(functions), self.outputs, (WINDOW_END, WINDOW_START))


def split_select(
    outputs: Sequence[Output],
    functions: Sequence[BoundFunction],
    lift: Callable[[Expression, int], Expression] = lambda expression, _start: expression,
) -> OverStep:
    """Divide a select list.

    `lift` converts an expression of a function and its position, in the same way as the outputs.
    """
    names = {function.name: f".function {number}" for number, function in enumerate(functions, 1)}
    below: list[Output] = [out for out in outputs if not _uses(out.expression, names)]

    def column_of(expression: Expression) -> Column:
        """Return the column below Over with the value of an expression."""
        existing = next((out for out in below if out.expression == expression), None)
        if existing is None:
            existing = Output(f".over {len(below) + 1}", expression)
            below.append(existing)
        return computed_column(existing.name, expression)

    def above(part: Expression) -> Expression | None:
        if isinstance(part, Column) and part.name in names:
            return Column(names[part.name], part.type, part.nullable)
        if isinstance(part, Literal) or _uses(part, names):
            return None
        return column_of(part)

    row_functions = tuple(
        RowFunction(
            names[function.name],
            function.kind,
            function.type,
            None if function.argument is None else column_of(lift(function.argument, function.start)).name,
            tuple(column_of(lift(key, function.start)).name for key in function.partition),
            tuple(
                SortKey(column_of(lift(key.expression, function.start)).name, key.descending, key.nulls_first)
                for key in function.order
            ),
            function.distance,
            function.frame,
        )
        for function in functions
    )
    selected = tuple(
        Output(
            out.name, transform(out.expression, above) if _uses(out.expression, names) else column_of(out.expression)
        )
        for out in outputs
    )
    return OverStep(tuple(below), row_functions, selected)


def _uses(expression: Expression, names: dict[str, str]) -> bool:
    return any(column.name in names for column in columns_of(expression))
