"""Names of the columns of a result.

AS gives a name; it must differ from the others. Without it an item is named after what it is: `srcIP` in the spelling
of the table of columns (`inner.srcIP`, save where plain names mean the inner layer), `count` for `count(*)`, `sum_len`
for `sum(len)`, the name given in GROUP BY, or `column_3` for another expression in third place. Where such a name is
taken, `_2`, `_3`, … is put behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lowlevel.expressions import Column, Expression
from queries.errors import QueryError
from queries.grammar import Item

BOUNDS = ("window_start", "window_end")
"""What results call the bounds of a window, so that no item may be called that."""


ColumnName = Callable[[str], str | None]
"""How a column of the rows is called in results; None for what is no column."""


def output_names(
    sql: str,
    items: Sequence[Item],
    bound: Sequence[Expression],
    given: Mapping[Expression, str],
    column_name: ColumnName,
    reserved: Sequence[str] = BOUNDS,
) -> list[str]:
    """Name `items`, bound as `bound`; `given` are names given in GROUP BY. A name given twice is a `QueryError`.

    `reserved` are the columns that results have besides.
    """
    taken = set(reserved)
    for item in items:
        if item.alias is not None:
            if item.alias.text.lower() in taken:
                problem = f"the name '{item.alias.text}' is already taken"
                expected = f"a name of its own for each column, none of them {' or '.join(reserved)}"
                raise QueryError(problem, sql, item.alias.start, expected)
            taken.add(item.alias.text.lower())
    names = []
    for place, (item, expression) in enumerate(zip(items, bound, strict=True), 1):
        if item.alias is not None:
            names.append(item.alias.text)
            continue
        wanted = given.get(expression) or _name_of(expression, column_name) or f"column_{place}"
        name, copies = wanted, 1
        while name.lower() in taken:
            copies += 1
            name = f"{wanted}_{copies}"
        taken.add(name.lower())
        names.append(name)
    return names


def _name_of(expression: Expression, column_name: ColumnName) -> str | None:
    """Name of a column, or of the stand-in of an aggregate: `sum(len)` is `sum_len`, `top(len, 3)` is `top_len`."""
    if not isinstance(expression, Column):
        return None
    function, bracket, argument = expression.name.removesuffix(")").partition("(")
    if not bracket:
        return column_name(expression.name)
    if argument == "*":
        return function
    named = column_name(argument.partition(", ")[0])
    return f"{function}_{named}" if named else None
