"""Set operations: UNION, INTERSECT and EXCEPT between queries.

    a UNION ALL b      SELECT *             FROM rows
    a UNION b          SELECT DISTINCT x, y FROM rows
    a INTERSECT b      SELECT x, y          FROM rows GROUP BY x, y HAVING bit_or(side) = 3
    a EXCEPT b         SELECT x, y          FROM rows GROUP BY x, y HAVING bit_or(side) = 1
    a INTERSECT ALL b  SELECT x, y, least(count of a, count of b) AS n FROM rows GROUP BY x, y   each row n times
    a EXCEPT ALL b     SELECT x, y, count of a - count of b AS n FROM rows GROUP BY x, y         each row n times

`rows` are the rows of all queries, with the column names of the first query. The column `side` shows the query of a
row: bit i for query i, and for EXCEPT bit 1 for all queries after the first. A group contains equal rows, where NULL
equals NULL. The count of a is `count(*) FILTER (WHERE side = 1)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import BOUNDS, Output
from highlevel.plan.nodes import Apply, Filter, Node, Repeat, TimeOutput, Union
from highlevel.windows.kind import AnyWindow
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from queries.binding.comparisons import Operand
from queries.binding.conditionals import MAX_ARGUMENTS, is_null, with_common_type
from queries.plans.relations import QueryRelation, Relation, RelationNode, conjunction
from queries.plans.subqueries import ReadableQuery
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.lexer import Kind
from queries.text.tree import (
    Call,
    Condition,
    Constant,
    FromItem,
    Name,
    Null,
    Operation,
    Query,
    SelectItem,
    SetOperation,
    SetOperator,
    Star,
    Word,
)

SIDE = ".side"
"""The column with the bit that shows the query of a row."""


@dataclass(frozen=True)
class QueryRows:
    """The rows of several queries with the same number of columns, as a relation.

    `parts`: pairs of a query and its outputs, which have the names of `columns`. `times`: the columns that are time
    columns in every query.
    """

    parts: tuple[tuple[ReadableQuery, tuple[Output, ...]], ...]
    columns: tuple[Column, ...]
    times: tuple[str, ...]

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The columns of the result."""
        return tuple(column.name for column in self.columns if column.name != SIDE)

    def column(self, name: str) -> Column | None:
        """Return a column by its case-insensitive name."""
        return next((column for column in self.columns if column.name.lower() == name.lower()), None)

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Return the union of the rows of all queries, with all columns."""
        time = time or next(iter(self.times), None)
        nodes: list[Node] = []
        for query, outputs in self.parts:
            source = next((_time_of(query, out) for out in outputs if out.name == time), None)
            times = () if time is None or source is None else (TimeOutput(time, source),)
            nodes.append(Apply(query.node(source), outputs, times))
        rows, condition = Union(tuple(nodes)), conjunction(where)
        node = rows if condition is None else Filter(rows, condition)
        return RelationNode(node, {column.name: column.name for column in self.columns})


def window_of(relation: Relation) -> AnyWindow | None:
    """Return the window whose bounds are columns of a set operation."""
    match relation:
        case QueryRows(parts=((query, _), *_)) | QueryRelation(query=query):
            return query.window
    return None


def _time_of(query: ReadableQuery, output: Output) -> str | None:
    """Return the time column of a query that an output contains unchanged; None for other outputs."""
    column = output.expression
    return column.name if isinstance(column, Column) and column.name in query.times else None


def rows_of_queries(sql: str, operation: SetOperation, queries: Sequence[ReadableQuery]) -> QueryRows:
    """Return the rows of all queries. Raises QueryError if columns or windows differ from those of the first query."""
    operator = operation.operator
    selected = [query.plan.root.columns for query in queries]
    for query, own, text in zip(queries[1:], selected[1:], operation.queries[1:], strict=True):
        if query.window != queries[0].window:
            expected = "the same window in all queries, or in none of them"
            raise QueryError(f"{operator} of different windows", sql, text.keyword.start, expected)
        if len(own) != len(selected[0]):
            bounds = 0 if query.window is None else len(BOUNDS)
            problem = f"{operator} of {len(selected[0]) - bounds} and {len(own) - bounds} columns"
            raise QueryError(problem, sql, text.keyword.start, "the same number of columns in all queries")
    operands = [_operands(sql, query, text) for query, text in zip(queries, operation.queries, strict=True)]
    columns: list[Column] = []
    values: list[Sequence[Expression]] = []
    for column, *others in zip(selected[0], *operands, strict=True):
        if all(is_null(operand) for operand in others):
            columns.append(Column(column.name, Type.INT, True))
            values.append([Literal(None, Type.INT)] * len(others))
            continue
        converted = with_common_type(f"{operator} in the column '{column.name}'", others, same_row=False)
        types = {value.type for value in converted}
        common = types.pop() if len(types) == 1 else Type.FLOAT if Type.FLOAT in types else Type.INT
        columns.append(Column(column.name, common, any(value.nullable for value in converted)))
        values.append([_as_type(value, common) for value in converted])
    if operator not in (SetOperator.UNION, SetOperator.UNION_ALL):
        columns.append(Column(SIDE, Type.INT))
        bits = (min(number, 1) if operator.is_except else number for number in range(len(queries)))
        values.append([Literal(1 << bit, Type.INT) for bit in bits])
    parts = []
    for query, row in zip(queries, zip(*values, strict=True), strict=True):
        outputs = tuple(Output(column.name, value) for column, value in zip(columns, row, strict=True))
        parts.append((query, outputs))
    own_times = [{out.name for out in outputs if _time_of(query, out) is not None} for query, outputs in parts]
    times = tuple(column.name for column in columns if all(column.name in names for names in own_times))
    return QueryRows(tuple(parts), tuple(columns), times)


def _operands(sql: str, query: ReadableQuery, text: Query) -> list[Operand]:
    """Return the columns of a query with their positions in the query text.

    Constant texts and NULL can be converted to other types.

    For columns of `*` and for the bounds of windows, this is the position of the first item.
    """
    columns, items = query.plan.root.columns, text.select
    if any(isinstance(item.expression, Star) for item in items):
        return [Operand(sql, items[0].start, column) for column in columns]
    bounds = 0
    if query.window is not None:  # the bounds are the first columns, even if they are items of SELECT
        bounds = len(BOUNDS)
        items = tuple(item for item in items if not _is_bound(item))
    operands = [Operand(sql, text.select[0].start, column) for column in columns[:bounds]]
    for column, item in zip(columns[bounds:], items, strict=True):
        constant = item.expression
        is_text = isinstance(constant, Constant) and constant.kind is Kind.STRING and column.type is Type.TEXT
        value = Literal(constant.text, Type.TEXT) if isinstance(constant, Constant) and is_text else column
        if isinstance(constant, Null):
            value = Literal(None, Type.INT)
        operands.append(Operand(sql, item.start, value))
    return operands


def _is_bound(item: SelectItem) -> bool:
    """Return whether an item is a bound of the window without another name."""
    match item:
        case SelectItem(expression=Name(word=word, table=None), alias=None):
            return word.text.lower() in BOUNDS
    return False


def _as_type(value: Expression, type_: Type) -> Expression:
    """Convert a number to another type. Times are integers, ns."""
    if type_ is Type.FLOAT and value.type is not Type.FLOAT:
        return Binary(Op.MUL, value, Literal(1.0, Type.FLOAT))
    return replace(value, type=type_) if isinstance(value, Column | Literal) else value


def query_over_rows(sql: str, operation: SetOperation, rows: QueryRows) -> Query:
    """Return the query that computes a set operation from the rows of all queries.

    For INTERSECT ALL and EXCEPT ALL its last column contains the number of times that `repeat_rows` returns a row.
    """
    word, operator = operation.words[0], operation.operator
    start = word.start

    def name(column: str) -> Name:
        return Name(Word(column, start, quoted=True))

    def number(value: int) -> Constant:
        return Constant(Kind.NUMBER, str(value), start)

    def rows_with(side: int) -> Call:
        of_side = Operation(Op.EQ, (name(SIDE), number(side)), start)
        return Call(Word("count", start), (Star(start),), of_side)

    def least(counts: tuple[tree.Expression, ...]) -> tree.Expression:
        while len(counts) > 1:
            parts = (counts[at : at + MAX_ARGUMENTS] for at in range(0, len(counts), MAX_ARGUMENTS))
            counts = tuple(Call(Word("least", start), part) if len(part) > 1 else part[0] for part in parts)
        return counts[0]

    items = tuple(SelectItem(name(column)) for column in rows.visible_names)
    query = Query(sql, word, items, (FromItem(operation, start),))
    if operator is SetOperator.UNION:
        return replace(query, distinct=word)
    if operator in (SetOperator.INTERSECT_ALL, SetOperator.EXCEPT_ALL):
        counts = tuple(rows_with(1 << bit) for bit in range(2 if operator.is_except else len(operation.queries)))
        times = Operation(Op.SUB, counts, start) if operator.is_except else least(counts)
        positive = Operation(Op.GT, (times, number(0)), start)
        return replace(query, select=(*items, SelectItem(times)), group_by=items, having=Condition(word, positive))
    sides = 1 if operator is SetOperator.EXCEPT else (1 << len(operation.queries)) - 1
    sum_of_sides = Call(Word("bit_or", start), (name(SIDE),))
    condition = Operation(Op.EQ, (sum_of_sides, number(sides)), start)
    return replace(query, group_by=items, having=Condition(word, condition))


def repeat_rows(groups: ReadableQuery) -> ReadableQuery:
    """Return the rows of INTERSECT ALL or EXCEPT ALL: each group as many times as its last column states."""
    *kept, count = groups.columns

    def node(time: str | None) -> Node:
        rows = groups.node(time)
        outputs = tuple(Output(column.name, column) for column in kept)
        return Apply(Repeat(rows, count.name), outputs, tuple(TimeOutput(name, name) for name in rows.time_columns))

    return replace(groups, columns=tuple(kept), node=node)
