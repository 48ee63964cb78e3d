"""The syntax tree of a query: immutable nodes, each with its position in the text.

`queries.binding` resolves names and converts literals. Comparisons of trees ignore positions (`start`). So texts that
differ only in blanks, comments and redundant parentheses have equal trees.

    Query          SELECT items [window] FROM tables [window] WHERE … GROUP BY … HAVING … ORDER BY … LIMIT …
    FromItem       table AS alias [window], with the Join that combines it with the items before it
    Table          Stream, Union, Merge, Subquery or SetOperation
    Expression     Constant, Name, Star, Call, Over, Unary, Operation, Between, In, IsNull, Like, Null, Case,
                   ScalarQuery or Exists
    Window         [RANGE 10 minutes, SLIDE 1 minute, WA ts]
    WindowCall     TUMBLE(ts, INTERVAL '1' MINUTE) in GROUP BY

All nodes are in one module, because their classes refer to each other: a query contains tables, windows and
expressions, and each of these may contain a query. Several modules would import each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from enum import StrEnum

from capture.lazy_dataclasses import dataclass, field_names
from lowlevel.expressions.types import Op
from queries.text.lexer import Kind


@dataclass(frozen=True, slots=True)
class Word:
    """A name as it is written in the text."""

    text: str
    start: int = field(compare=False, repr=False)
    quoted: bool = False

    @property
    def name_in_messages(self) -> str:
        """The word as it is written in messages."""
        return f"'{self.text}'"


# Expressions. The position of an expression is the start of its first name or literal, not of a parenthesis or sign.


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. `kind` is WORD for TRUE and FALSE. `text` is without quotes and sign.

    `minus` is the position of the sign of a negative number, otherwise None.
    """

    kind: Kind
    text: str
    start: int = field(compare=False, repr=False)
    negative: bool = False
    minus: int | None = field(default=None, compare=False, repr=False)

    @property
    def name_in_messages(self) -> str:
        """The literal as it is written in messages."""
        return f"'{self.text}'"


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a column, or a name that AS defines. `table` is the word before the dot."""

    word: Word
    table: Word | None = None

    @property
    def start(self) -> int:
        """Position of the first word."""
        return (self.table or self.word).start


@dataclass(frozen=True, slots=True)
class Star:
    """`*` as the whole select list or as an argument, or with `table` the item `S.*`."""

    start: int = field(compare=False, repr=False)
    table: Word | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an aggregate. `where` is the condition of FILTER after an aggregate.

    Only window functions such as `rank()` have no arguments. `is_final`: FINAL before an aggregate in MATCH_RECOGNIZE.
    """

    function: Word
    arguments: tuple[Expression, ...]
    where: Expression | None = None
    is_final: bool = False

    @property
    def start(self) -> int:
        """Position of the function's name."""
        return self.function.start


@dataclass(frozen=True, slots=True)
class FrameBound:
    """A bound of a frame: a `distance` in rows or values before (PRECEDING) or after (FOLLOWING) the current row.

    `distance` is None for UNBOUNDED. `direction` is None for CURRENT ROW.
    """

    direction: str | None
    distance: Constant | Length | None
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Frame:
    """`ROWS BETWEEN first AND last` in OVER, or RANGE if `by_values` is True."""

    by_values: bool
    first: FrameBound
    last: FrameBound
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Over:
    """`call OVER (PARTITION BY partition ORDER BY order frame)`: an SQL window function."""

    call: Call
    partition: tuple[Expression, ...]
    order: tuple[OrderItem, ...]
    frame: Frame | None = None

    @property
    def start(self) -> int:
        """Position of the function's name."""
        return self.call.start


@dataclass(frozen=True, slots=True)
class Unary:
    """NOT, `-` or `~` before an operand. A minus before a number is part of the Constant."""

    op: Op
    operand: Expression
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """A binary operator between two operands, or a chain of one associative operator: `a AND b AND c`."""

    op: Op
    operands: tuple[Expression, ...]
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Between:
    """`operand BETWEEN low AND high`."""

    operand: Expression
    low: Expression
    high: Expression
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class In:
    """`operand IN (values)`, or `operand IN 'prefix'`."""

    operand: Expression
    values: tuple[Expression, ...]
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS NULL`."""

    operand: Expression
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Like:
    """`operand LIKE pattern`, or ILIKE, which ignores the case."""

    operand: Expression
    pattern: Expression
    ignore_case: bool
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """`CAST(operand AS type)` or `operand::type`, or TRY_CAST if `is_try` is True."""

    operand: Expression
    type: Word
    start: int = field(compare=False, repr=False)
    is_try: bool = False


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Texts joined by `||`: at least two operands."""

    operands: tuple[Expression, ...]
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Null:
    """NULL as a result of CASE or as an item of SELECT."""

    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Case:
    """`CASE WHEN condition THEN result … ELSE otherwise END`. With an `operand`, conditions are values to compare."""

    operand: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ScalarQuery:
    """A query in parentheses as a value, or after IN: `IN (SELECT …)`."""

    query: Query
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Exists:
    """`EXISTS (query)`."""

    query: Query
    start: int = field(compare=False, repr=False)


Expression = (
    Constant
    | Name
    | Star
    | Call
    | Over
    | Unary
    | Operation
    | Between
    | In
    | IsNull
    | Like
    | Cast
    | Concatenation
    | Null
    | Case
    | ScalarQuery
    | Exists
)
"""All kinds of expressions."""

ASSOCIATIVE = frozenset({Op.AND, Op.OR, Op.ADD, Op.MUL, Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR})
"""A chain of such an operator is one Operation with many operands. Chains of other operators nest to the left."""


# Windows.


@dataclass(frozen=True, slots=True)
class Length:
    """`10 minutes` or `5 rows`. `tumbling`: TUMBLING precedes it. `unit_start`: the position of the unit."""

    number: str
    unit: str
    start: int = field(compare=False, repr=False)
    unit_start: int = field(compare=False, repr=False)
    tumbling: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """The column by which a window is divided: `ts`, `S.ts`, `row-num` or `rank(ts)`.

    `text` is the attribute in lower case. `word` is its first word, or the word after the dot.
    """

    text: str
    word: Word
    table: Word | None = None


ParameterValue = Length | Attribute | Constant | Word | tuple[Name, ...] | None
"""Values of window parameters."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a window clause: keyword, canonical `name` and value. `start` is the position of the value.

    value        of
    Length       RANGE, SLIDE, SESSION, IDLE, LIFETIME
    Word         RANGE ALL, LATE, BOUNDARY
    Attribute    WA, RATTR, SATTR
    Constant     ORIGIN, CAP
    names        PA, and LIFETIME with columns
    None         SPREAD
    """

    name: str
    keyword: Word
    value: ParameterValue
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Window:
    """A window clause in brackets. `first` is the position of its first parameter."""

    parameters: tuple[Parameter, ...]
    start: int = field(compare=False, repr=False)
    first: int = field(compare=False, repr=False)

    @property
    def has_lifetime(self) -> bool:
        """True if the clause contains LIFETIME."""
        return any(parameter.name == "LIFETIME" for parameter in self.parameters)


@dataclass(frozen=True, slots=True)
class WindowCall:
    """TUMBLE, HOP or SESSION in GROUP BY, and the name after its AS."""

    function: Word
    time: Attribute
    lengths: tuple[Length, ...]
    alias: Word | None = None


# Statements.


@dataclass(frozen=True, slots=True)
class Stream:
    """A name in FROM. `kind` is the word after the dot in lower case, or None."""

    word: Word
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Union:
    """Several tables with UNION between them."""

    parts: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Merge:
    """`MERGE a.ts : b.ts FROM a, b`. `times` are pairs (name of the item, its time column)."""

    keyword: Word
    times: tuple[tuple[Word, Word], ...]
    items: tuple[FromItem, ...]


@dataclass(frozen=True, slots=True)
class Subquery:
    """A query in parentheses."""

    query: Query


class SetOperator(StrEnum):
    """An operation on the rows of queries."""

    UNION_ALL = "UNION ALL"
    UNION = "UNION"
    INTERSECT = "INTERSECT"
    INTERSECT_ALL = "INTERSECT ALL"
    EXCEPT = "EXCEPT"
    EXCEPT_ALL = "EXCEPT ALL"

    @property
    def is_except(self) -> bool:
        """True if the result is the rows of the first query that the other queries lack."""
        return self in (SetOperator.EXCEPT, SetOperator.EXCEPT_ALL)


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Queries with equal set operators between them. `words` are the operators in the text, one fewer than `queries`.

    `a EXCEPT b EXCEPT c` returns the rows of a that are neither in b nor in c.
    """

    operator: SetOperator
    words: tuple[Word, ...] = field(compare=False, repr=False)
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class DistinctOn:
    """`table DISTINCT ON (columns) WITHIN length`: the rows that are not copies of earlier rows."""

    table: Table
    keyword: Word
    columns: tuple[Expression, ...]
    within: Length


@dataclass(frozen=True, slots=True)
class MergeRecords:
    """`table MERGE [BY (columns)] WITHIN length [IDLE length]`: one row for all records of a flow."""

    table: Table
    keyword: Word
    columns: tuple[Expression, ...]
    within: Length
    idle: Length | None


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """`table CHANGES BY column`: the rows that remain after all inserts and withdrawals."""

    table: Table
    keyword: Word
    column: Word


@dataclass(frozen=True, slots=True)
class PatternVariable:
    """A variable of a row pattern: a row for which its condition in DEFINE is true."""

    word: Word

    @property
    def start(self) -> int:
        """Position of the name."""
        return self.word.start


@dataclass(frozen=True, slots=True)
class PatternSequence:
    """Row patterns that follow each other; without parts, the empty pattern, which matches no row."""

    parts: tuple[RowPattern, ...]


@dataclass(frozen=True, slots=True)
class PatternChoice:
    """One of several row patterns (`|`), the first one preferred."""

    parts: tuple[RowPattern, ...]


@dataclass(frozen=True, slots=True)
class PatternRepeat:
    """A row pattern `least` to `most` times (None: without limit), as often as possible unless it is `reluctant`."""

    part: RowPattern
    least: int
    most: int | None
    is_reluctant: bool
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PatternExclusion:
    """`{- part -}`: a row pattern whose rows ALL ROWS PER MATCH does not return."""

    part: RowPattern
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PatternAnchor:
    """`^` or `$`: no row, at the beginning or the end of the partition."""

    text: str
    start: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PatternPermutation:
    """`PERMUTE(A, B)`: the patterns in every order, preferred in the order in which they are written."""

    parts: tuple[RowPattern, ...]


RowPattern = (
    PatternVariable
    | PatternSequence
    | PatternChoice
    | PatternRepeat
    | PatternExclusion
    | PatternAnchor
    | PatternPermutation
)


class RowsPerMatch(StrEnum):
    """The rows that MATCH_RECOGNIZE returns."""

    ONE = "ONE ROW PER MATCH"
    ALL = "ALL ROWS PER MATCH"
    WITHOUT_EMPTY = "ALL ROWS PER MATCH OMIT EMPTY MATCHES"
    WITH_UNMATCHED = "ALL ROWS PER MATCH WITH UNMATCHED ROWS"


@dataclass(frozen=True, slots=True)
class AfterMatch:
    """`AFTER MATCH SKIP`: TO NEXT ROW or PAST LAST ROW, or else to the FIRST or LAST row of a variable."""

    rule: str
    variable: Word | None = None


@dataclass(frozen=True, slots=True)
class MatchRecognize:
    """`table MATCH_RECOGNIZE (…)`: the matches of a row pattern. `within` is the length of a match in ns, or None.

    `has_final_measures`: all measures are FINAL. No text means this.
    """

    table: Table
    keyword: Word
    partition: tuple[Word, ...]
    order: Word
    measures: tuple[SelectItem, ...]
    rows: RowsPerMatch
    skip: AfterMatch
    pattern: RowPattern
    within: int | None
    subsets: tuple[tuple[Word, tuple[Word, ...]], ...]
    definitions: tuple[tuple[Word, Expression], ...]
    has_final_measures: bool = False


@dataclass(frozen=True, slots=True)
class RegisterField:
    """`n INT DEFAULT 0`: a field of the register. Without DEFAULT it begins as NULL."""

    name: Word
    type: Word
    initial: Expression | None


@dataclass(frozen=True, slots=True)
class AutomatonArc:
    """`[SILENT] ARC source TO target [WHEN condition] [SET field = value, …] [FROM time] [TO time]`.

    Or `ARC source TO target AT time`. `begin` and `end` are the times of FROM and TO.
    """

    source: Word
    target: Word
    is_silent: bool
    condition: Expression | None
    changes: tuple[tuple[Word, Expression], ...]
    deadline: Expression | None
    begin: Expression | None = None
    end: Expression | None = None


@dataclass(frozen=True, slots=True)
class AutomatonTable:
    """`table AUTOMATON (…)`: the accepted runs of an automaton. `within` is the length of a run in ns, or None.

    `until`: the column with the end of a row's lifetime. `number`: the column with the number of a row. `rules`: the
    path of a file with arcs. `has_all_rows`: ALL ROWS PER MATCH. `added`: columns of `table` that are returned only, so
    the arcs of a file do not read them.
    """

    table: Table
    keyword: Word
    partition: tuple[Word, ...]
    order: Word
    until: Word | None
    number: Word | None
    register: tuple[RegisterField, ...]
    start: Word
    finals: tuple[Word, ...]
    arcs: tuple[AutomatonArc, ...]
    rules: Word | None
    within: int | None
    has_all_rows: bool = False
    added: tuple[str, ...] = ()


Table = (
    Stream
    | Union
    | Merge
    | Subquery
    | SetOperation
    | DistinctOn
    | MergeRecords
    | ChangeLog
    | MatchRecognize
    | AutomatonTable
)
"""All kinds of tables in FROM."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition with the word that introduces it: WHERE, HAVING or ON."""

    keyword: Word
    expression: Expression


@dataclass(frozen=True, slots=True)
class Join:
    """How an item of FROM is combined with the items before it.

    `kind` is INNER, LEFT, RIGHT, FULL, SEMI or ANTI. `word` is the first word of the join, or its comma. `by_where` is
    True for Gigascope's syntax, in which WHERE may contain the condition of an outer join.
    """

    kind: str
    word: Word
    on: Condition | None = None
    by_where: bool = False


@dataclass(frozen=True, slots=True)
class FromItem:
    """One item of FROM: its table, its name after AS, its window, and its join with the items before it."""

    table: Table
    start: int = field(compare=False, repr=False)
    alias: Word | None = None
    window: Window | None = None
    join: Join | None = None

    @property
    def name(self) -> str | None:
        """The name after AS, otherwise the name of the stream, or None."""
        if self.alias is not None:
            return self.alias.text
        return self.table.word.text if isinstance(self.table, Stream) else None


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One item of SELECT or GROUP BY, and its name. `implied`: the name is written without AS."""

    expression: Expression
    alias: Word | None = None
    implied: bool = field(default=False, compare=False, repr=False)

    @property
    def start(self) -> int:
        """Position of the expression."""
        return self.expression.start


GroupingSet = tuple[SelectItem, ...]
"""The items by which a query groups. () makes one group of all rows."""


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """All sets of ROLLUP, CUBE and GROUPING SETS in GROUP BY. `keyword` is the first of these words."""

    sets: tuple[GroupingSet, ...]
    keyword: Word = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OrderItem:
    """One item of ORDER BY. If the expression is a number, it is the position of a column in the result."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """ORDER BY, LIMIT and OFFSET. `keyword` is their first word. `limit` is None for all rows after the offset."""

    keyword: Word
    items: tuple[OrderItem, ...] = ()
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Fill:
    """FILL and the value for empty windows: a number, NULL, or the word PREVIOUS."""

    keyword: Word
    value: Constant | Null | Word


@dataclass(frozen=True, slots=True)
class Consistency:
    """WITH CONSISTENCY and EMIT. `keyword` is their first word.

    `level`: STRONG, MIDDLE or WEAK. `emit`: CHANGES or FINAL. `options`: WAIT, REMEMBER and EARLY; their values are
    lengths of time or the word FOREVER.
    """

    keyword: Word
    options: tuple[Parameter, ...] = ()
    level: Word | None = None
    emit: Word | None = None


@dataclass(frozen=True, slots=True)
class Supergroups:
    """The clauses of the sampling operator: SUPERGROUP, CLEANING WHEN and CLEANING BY. `keyword` is the first word."""

    keyword: Word
    items: tuple[SelectItem, ...] = ()
    when: Condition | None = None
    by: Condition | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A query. A missing part is None or empty.

    `sql` is the text to which positions refer. `keyword` is SELECT, or MERGE for `MERGE a.ts : b.ts`, which means
    `SELECT * FROM (MERGE a.ts : b.ts)`. Queries with a set operator between them become `SELECT *` from a SetOperation,
    with their ORDER BY and the `keyword` of the first query. `window` is the window clause of the groups: it follows an
    item of SELECT, or the only item of FROM. `call` is the window in GROUP BY. `queries` are the queries of WITH. With
    `grouping_sets`, `group_by` is empty.
    """

    sql: str = field(compare=False, repr=False)
    keyword: Word
    select: tuple[SelectItem, ...]
    tables: tuple[FromItem, ...]
    window: Window | None = None
    where: Condition | None = None
    group_by: tuple[SelectItem, ...] = ()
    call: WindowCall | None = None
    having: Condition | None = None
    distinct: Word | None = None
    queries: tuple[tuple[Word, Query], ...] = ()
    order: Order | None = None
    supergroups: Supergroups | None = None
    grouping_sets: GroupingSets | None = None
    closing: Condition | None = None
    fill: Fill | None = None
    consistency: Consistency | None = None

    @property
    def reads_lifetimes(self) -> bool:
        """True if the window clause contains LIFETIME."""
        return self.window is not None and self.window.has_lifetime

    @property
    def selects_all(self) -> bool:
        """True if the select list is `*`."""
        first = self.select[0].expression
        return isinstance(first, Star) and first.table is None


def first_word(table: Table) -> Word:
    """Return the word to which messages about a table point."""
    match table:
        case Stream(word=word):
            return word
        case Union(parts=parts):
            return first_word(parts[0])
        case Merge(keyword=keyword):
            return keyword
        case Subquery(query=query):
            return query.keyword
        case SetOperation(queries=queries):
            return queries[0].keyword
        case DistinctOn(table=inner) | MergeRecords(table=inner) | ChangeLog(table=inner):
            return first_word(inner)
        case MatchRecognize(table=inner) | AutomatonTable(table=inner):
            return first_word(inner)


def streams_of(table: Table) -> list[Stream] | None:
    """Return the streams whose union is the table, or None if the table is not a union of streams.

    A merge counts as the union of its items: it has the same rows, and no stream waits for another stream.
    """
    match table:
        case Stream():
            return [table]
        case Union(parts=parts):
            tables = parts
        case Merge(items=items):
            tables = tuple(item.table for item in items)
        case _:
            return None
    streams: list[Stream] = []
    for part in tables:
        inner = streams_of(part)
        if inner is None:
            return None
        streams += inner
    return streams


def has_names(expression: Expression) -> bool:
    """Return True if an expression contains the name of a column. Then its value may differ from row to row."""
    pending: list[object] = [expression]
    while pending:
        node = pending.pop()
        if isinstance(node, Name):
            return True
        if isinstance(node, tuple):
            pending += node
        else:
            pending += [getattr(node, name) for name in field_names(type(node))]
    return False


def calls_in(expression: Expression) -> Iterator[Call]:
    """Yield the calls in an expression, the outer ones first."""
    pending: list[object] = [expression]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending += reversed(node)
        elif isinstance(node, Over):  # its call is not an aggregate, but its arguments may be
            pending += [*(item.expression for item in node.order), node.partition, node.call.arguments]
        elif isinstance(node, Call | Unary | Operation | Between | In | IsNull | Like | Cast | Concatenation | Case):
            if isinstance(node, Call):
                yield node
            pending += [getattr(node, part.name) for part in reversed(fields(node))]
