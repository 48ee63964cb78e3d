"""Names of the columns of a result.

A name after AS must be unique. Without AS, an item gets the first of these names that exists:

    given in GROUP BY  the name
    column                its name, `srcIP`; a column of the inner IP header is `inner.srcIP`, unless names without
                          a prefix mean the inner header
    aggregate             `count` for `count(*)`, `sum_len` for `sum(len)`
    other expression      `column_3` in third position

If the name is already used, `_2`, `_3`, … is appended. Two columns with the same name keep the names of their tables:
`A.ts`, `S.ts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from highlevel.aggregation import BOUNDS
from lowlevel.expressions.tree import Column, Expression, Literal
from queries.binding.names import Names
from queries.text.dialects import BEFORE_ITEMS
from queries.text.errors import QueryError
from queries.text.tree import Call, Name, SelectItem, Word

ColumnNamer = Callable[[str], str | None]
"""A function that returns the name of a column in results, or None for other names."""


def check_missing_commas(sql: str, items: Sequence[SelectItem], names: Names) -> None:
    """Raise QueryError for a column after an item: `SELECT srcIP destIP` probably lacks a comma."""
    for item in items:
        if item.implied and item.alias is not None and names.column(item.alias, None) is not None:
            word = _first_word(item)
            if word is not None and word.text.upper() in BEFORE_ITEMS:
                raise QueryError(
                    f"got {word.name_in_messages} in SELECT", sql, word.start, BEFORE_ITEMS[word.text.upper()]
                )
            problem = f"got the column {item.alias.name_in_messages} after an item of SELECT"
            raise QueryError(problem, sql, item.alias.start, "',' before a column, or AS before the name of the item")


def _first_word(item: SelectItem) -> Word | None:
    match item.expression:
        case Name(word=word) | Call(function=word):
            return word
    return None


def output_names(
    sql: str,
    items: Sequence[SelectItem],
    bound: Sequence[Expression],
    given_names: Mapping[Expression, str],
    column_name: ColumnNamer,
    reserved: Sequence[str] = BOUNDS,
) -> list[str]:
    """Return the names of `items`.

    `bound`: their bound expressions. `given_names`: the names that GROUP BY gives to expressions.

    `reserved`: the names of the other columns of the result. Raises QueryError for a name that is given twice, and for
    a name that begins with a dot, because the names of hidden columns begin with a dot.
    """
    taken = set(reserved)
    for item in items:
        if item.alias is not None:
            if item.alias.text.lower() in taken:
                problem = f"the name '{item.alias.text}' is already taken"
                others = f", none of them {' or '.join(reserved)}" if reserved else ""
                raise QueryError(problem, sql, item.alias.start, f"a name of its own for each column{others}")
            if item.alias.text.startswith("."):
                problem = f"the name '{item.alias.text}' begins with a dot"
                raise QueryError(problem, sql, item.alias.start, "another name: names with a dot are internal columns")
            taken.add(item.alias.text.lower())
    names = []
    for position, (item, expression) in enumerate(zip(items, bound, strict=True), 1):
        if item.alias is not None:
            names.append(item.alias.text)
            continue
        wanted = given_names.get(expression) or _name_of(expression, column_name) or ""
        if not wanted or wanted.startswith("."):
            wanted = f"column_{position}"
        name, copies = wanted, 1
        while name.lower() in taken:
            copies += 1
            name = f"{wanted}_{copies}"
        taken.add(name.lower())
        names.append(name)
    return names


def _name_of(expression: Expression, column_name: ColumnNamer) -> str | None:
    """Return the name of a column or of an aggregate: `sum(len)` is `sum_len`, `top(len, 3)` is `top_len`."""
    if not isinstance(expression, Column):
        return None
    function, bracket, argument = expression.name.removesuffix(")").partition("(")
    if not bracket:
        return column_name(expression.name)
    if argument == "*":
        return function
    argument_name = column_name(argument.partition(", ")[0])
    return f"{function}_{argument_name}" if argument_name else None


def find_given_names(items: Sequence[SelectItem], bound: Sequence[Expression]) -> dict[Expression, str]:
    """Return the names of items that are written as one name and mean an expression, not a column or a constant.

    Examples are `time`, `S.time` and `flag`.
    """
    given_names: dict[Expression, str] = {}
    for item, expression in zip(items, bound, strict=True):
        if isinstance(item.expression, Name) and not isinstance(expression, Column | Literal):
            given_names[expression] = item.expression.word.text
    return given_names


def name_without_table(bound: Sequence[Expression], shown_name: ColumnNamer) -> ColumnNamer:
    """Return the function that names the columns of the select list `bound`.

    If another column of the list has the same name, the name contains the table.
    """
    uses = Counter(shown_name(name) for name in {column.name for column in bound if isinstance(column, Column)})

    def column_name(column: str) -> str | None:
        plain = shown_name(column)
        return column if plain is not None and uses[plain] > 1 else plain

    return column_name
