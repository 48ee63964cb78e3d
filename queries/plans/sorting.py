"""ORDER BY, LIMIT and OFFSET: the sort keys, and the columns that only the sort keys need.

An item of ORDER BY is the name of a result column, its position in the select list, or an expression over the names
that the select list may use. Results of windows are sorted and limited for each window, other rows all together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import BOUNDS, Output
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.answer_nodes import Sort, SortKey
from highlevel.plan.nodes import Node
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.lexer import Kind
from queries.text.tree import Order, OrderItem

ExpressionBinder = Callable[[tree.Expression], Expression]
"""A function that binds an expression over the same names as the select list."""


@dataclass(frozen=True, slots=True)
class Sorting:
    """ORDER BY, LIMIT and OFFSET of a query. `hidden` are outputs after the select list that only sort keys need."""

    order: Order
    keys: tuple[SortKey, ...]
    hidden: tuple[Output, ...]

    @property
    def limits(self) -> bool:
        """Return True if some rows are left out."""
        return self.order.limit is not None or self.order.offset > 0

    @property
    def hidden_names(self) -> tuple[str, ...]:
        """The names of the hidden outputs."""
        return tuple(out.name for out in self.hidden)

    def add_node(self, node: Node, *, windowed: bool = False) -> Sort:
        """Return the sorted rows of `node`, which has the columns of the select list and `hidden`."""
        window_columns = (WINDOW_END, WINDOW_START) if windowed else ()
        return Sort(node, self.keys, window_columns, self.order.limit, self.order.offset, self.hidden_names)


def bind_order(
    sql: str, order: Order, outputs: Sequence[Output], bind: ExpressionBinder, *, is_windowed: bool = False
) -> Sorting:
    """Bind ORDER BY over the select list `outputs`. `is_windowed`: the rows also contain the bounds of windows."""
    keys: list[SortKey] = []
    hidden: list[Output] = []
    for item in order.items:
        name = _column(sql, item, outputs, is_windowed)
        if name is None:
            expression = bind(item.expression)
            if expression.type is Type.BYTES:
                expected = "length(…), or byte(…, n) of them"
                raise QueryError("ORDER BY of bytes", sql, item.expression.start, expected)
            name = next((out.name for out in (*outputs, *hidden) if out.expression == expression), None)
            if name is None:
                name = f".order {len(hidden) + 1}"
                hidden.append(Output(name, expression))
        if name not in (key.column for key in keys):
            keys.append(SortKey(name, item.descending, item.nulls_first))
    return Sorting(order, tuple(keys), tuple(hidden))


def _column(sql: str, item: OrderItem, outputs: Sequence[Output], is_windowed: bool) -> str | None:
    """Return the column that an item states by name or position; None for another expression."""
    expression = item.expression
    match expression:
        case tree.Constant(kind=Kind.NUMBER, negative=False) if expression.text.isdecimal():
            position = int(expression.text)
            if not 1 <= position <= len(outputs):
                shown_count = "1 column" if len(outputs) == 1 else f"{len(outputs)} columns"
                problem = f"ORDER BY {position}, but the select list has {shown_count}"
                raise QueryError(problem, sql, item.expression.start, f"a position from 1 to {len(outputs)}, or a name")
            return outputs[position - 1].name
        case tree.Constant():
            raise QueryError("ORDER BY over a constant", sql, item.expression.start, "a column, for example count(*)")
        case tree.Name(table=None):
            name = expression.word.text.lower()
            if is_windowed and name in BOUNDS:
                return name
            return next((out.name for out in outputs if out.name.lower() == name), None)
    return None
