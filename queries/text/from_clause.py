"""Parser of FROM: streams, unions, merges and queries in parentheses, with commas or JOIN between them.

    FROM Main1 [RANGE 3 minutes, WA ts] AS a, Main2 b [RANGE 2 minutes, WA ts]
    FROM A UNION B AS M1, C UNION D AS M2 [RANGE TUMBLING 10 seconds, WA ts],
    FROM syn S [RANGE 3 s, WA ts] LEFT JOIN synack A [RANGE 0 s, WA ts] ON S.srcIP = A.destIP
    FROM (MERGE a.ts : b.ts FROM Main1 a, Main2 b) m
    FROM tap1 UNION tap2 DISTINCT ON (srcIP, destIP, ip_id) WITHIN 10 ms AS p [RANGE 1 minute]
    FROM flows MERGE BY (srcIP, destIP, protocol) WITHIN 31 minutes IDLE 15 seconds
    FROM leases CHANGES BY op
    FROM packets MATCH_RECOGNIZE (PARTITION BY srcIP ORDER BY ts MEASURES … PATTERN (A B+) DEFINE A AS …)
    FROM packets AUTOMATON (PARTITION BY srcIP ORDER BY ts REGISTER n INT … START idle FINAL done ARC idle TO …)

AS before a name is optional. A comma after the last item of a join, which occurs in a paper, is accepted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace

from lowlevel.expressions.types import Op
from lowlevel.kinds import KINDS
from queries.text import dialects
from queries.text.automata import AutomatonParser
from queries.text.errors import QueryError
from queries.text.lexer import UNSUPPORTED, Kind
from queries.text.tree import (
    ChangeLog,
    Condition,
    DistinctOn,
    Expression,
    FromItem,
    Join,
    Length,
    Merge,
    MergeRecords,
    Name,
    Operation,
    Query,
    Stream,
    Subquery,
    Table,
    Union,
    Word,
)
from queries.text.windows import JOIN_PARAMETER, JOIN_PARAMETERS

MAX_DEPTH = 20
"""Largest depth of nested queries and unions."""

GIGASCOPE_JOINS = {
    "INNER_JOIN": "INNER",
    "LEFT_OUTER_JOIN": "LEFT",
    "RIGHT_OUTER_JOIN": "RIGHT",
    "OUTER_JOIN": "FULL",
}
"""Gigascope's names of joins, which are single words."""

OUTER_JOINS = ("LEFT", "RIGHT", "FULL")
JOINS = ("INNER", *OUTER_JOINS, "SEMI", "ANTI")
"""Words before JOIN."""

JOIN_WORDS = ("JOIN", "ON", "USING", *JOINS, *GIGASCOPE_JOINS)
"""Words that can be the name of an item in FROM only if they are quoted or follow AS."""

_AFTER_ITEM = "UNION, DISTINCT ON, MERGE WITHIN, a name, '[', ',', JOIN, WHERE, GROUP BY, HAVING, ORDER BY or the end"


class FromParser(AutomatonParser):
    """Reads FROM. A subclass reads the queries in parentheses."""

    def __init__(self, sql: str, table_groups: Collection[str] = ()) -> None:
        """`table_groups`: names in lower case that may precede the name of a table, as a schema does."""
        super().__init__(sql, "the query")
        self._table_groups = table_groups
        self._depth = 0
        self._joined = False

    @abstractmethod
    def _subquery(self) -> Query:
        """Read a query in parentheses."""

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            expected = f"at most {MAX_DEPTH} levels"
            raise QueryError("queries within each other too deeply", self._sql, self._token.start, expected)

    def _from_items(self) -> tuple[FromItem, ...]:
        self._joined = False
        items = [self._from_item(None)]
        while not self._at_clause_end():
            join = self._join()
            self._joined = True
            if self._at_clause_end() and join.word.text == "," and len(items) > 1:
                break
            items.append(self._from_item(join, items[-1]))
        return tuple(items)

    def _from_item(self, join: Join | None, before: FromItem | None = None) -> FromItem:
        start = self._token.start
        table = self._union()
        alias = self._alias()
        window = None
        if self._token.keyword == "[":
            window = self._window()
            if self._token.keyword in ("UNION", "∪", "[") and not self._begins_operation():
                raise self._window_here(window.start)
        alias = alias or self._alias()
        if join is not None and self._token.keyword == "ON":
            join = self._on(join)
        item = FromItem(table, start, alias, window, join)
        if join is not None and before is not None and self._token.keyword == "USING":
            item = replace(item, join=self._using(join, before, item))
        return item

    def _unknown_parameter(self) -> QueryError:
        """Return the error for an unknown parameter.

        It depends on the kind of window: windows of joins have other parameters than windows of groups.
        """
        closing = next(at for at in range(self._at, len(self._tokens)) if self._tokens[at].keyword == "]")
        following = [token.keyword for token in self._tokens[closing + 1 : closing + 4]]
        if not self._joined and (self._clause != "FROM" or not {",", *JOIN_WORDS}.intersection(following)):
            return super()._unknown_parameter()
        return self._wrong(
            f"got {self._token.name_in_messages} in the window of a join", JOIN_PARAMETER, JOIN_PARAMETERS
        )

    def _union(self) -> Table:
        parts = [self._table()]
        while self._token.keyword in ("UNION", "∪") and self._after_operator() != "SELECT":
            self._at += 2 if self._ahead().keyword == "ALL" else 1
            parts.append(self._table())
        return self._with_suffixes(parts[0] if len(parts) == 1 else Union(tuple(parts)))

    def _with_suffixes(self, table: Table) -> Table:
        """Read CHANGES BY, DISTINCT ON, MERGE, MATCH_RECOGNIZE or AUTOMATON after a table, if it follows."""
        token, following = self._token, self._ahead().keyword
        if token.keyword == "MATCH_RECOGNIZE" and following == "(":
            return self._with_suffixes(self._match_recognize(table))
        if token.keyword == "AUTOMATON" and following == "(":
            return self._with_suffixes(self._automaton(table))
        if token.keyword == "DISTINCT" and following == "ON":
            keyword = self._word()
            self._at += 1
            columns = self._key_columns("DISTINCT ON")
            return self._with_suffixes(DistinctOn(table, keyword, columns, self._within("DISTINCT ON")))
        if token.keyword == "CHANGES" and following == "BY":
            keyword = self._word()
            self._at += 1
            column = self._from_name("the column with the operation or the weight of a change after CHANGES BY")
            return self._with_suffixes(ChangeLog(table, keyword, column))
        if token.keyword != "MERGE" or following not in ("BY", "WITHIN"):
            return table
        keyword = self._word()
        columns = self._key_columns("MERGE BY") if self._accept("BY") else ()
        within = self._within("MERGE")
        idle = self._length_of_time("IDLE") if self._accept("IDLE") else None
        return MergeRecords(table, keyword, columns, within, idle)

    def _key_columns(self, clause: str) -> tuple[Expression, ...]:
        """Read columns in parentheses."""
        if not self._accept("("):
            raise self._unexpected(f"columns in parentheses after {clause}: (srcIP, destIP, ip_id)")
        columns: list[Expression] = []
        while not columns or self._accept(","):
            columns.append(self._in_parentheses())
        if not self._accept(")"):
            raise self._unexpected("',' or ')'")
        self._clause = "FROM"
        return tuple(columns)

    def _within(self, clause: str) -> Length:
        if not self._accept("WITHIN"):
            example = "10 ms" if clause == "DISTINCT ON" else "31 minutes"
            raise self._unexpected(f"WITHIN and a length of time: WITHIN {example}")
        return self._length_of_time("WITHIN")

    def _length_of_time(self, word: str) -> Length:
        start, length = self._token.start, self._length()
        if self._no_unit is not None:
            raise self._no_unit
        if length.unit.lower() in ("row", "rows"):
            raise QueryError(f"{word} {length.number} rows", self._sql, start, "a length of time: 10 ms, 31 minutes")
        return length

    def _table(self) -> Table:
        if self._token.keyword != "(":
            return self._stream()
        if self._ahead().keyword in ("SELECT", "WITH") or self._begins_enclosed("INTERSECT", "EXCEPT"):
            query = self._subquery()
            self._clause = "FROM"
            return Subquery(query)
        self._deeper()
        self._at += 1
        table: Table = self._merge() if self._begins_merge() else self._union()
        self._depth -= 1
        if not self._accept(")"):
            raise self._unexpected_in_from()
        return table

    def _stream(self) -> Stream:
        if self._token.kind is Kind.STRING:
            expected = "the name of a stream; files are bound to names outside the query"
            raise QueryError(f"got {self._token.name_in_messages} in FROM", self._sql, self._token.start, expected)
        word = self._from_name("the name of a stream")
        if self._token.keyword == "(":
            problem = f"a call of '{word.text}' in FROM"
            raise QueryError(problem, self._sql, word.start, "the name of a stream, or a query in parentheses")
        if not self._accept("."):
            return Stream(word)
        if word.text.lower() in self._table_groups:
            table = self._from_name("the name of a table after '.'")
            return Stream(Word(f"{word.text}.{table.text}", word.start, quoted=True))
        kind = self._from_name("a kind of rows after '.'", KINDS)
        if kind.text.lower() not in KINDS:
            raise QueryError(
                f"unknown kind of rows {kind.name_in_messages}", self._sql, kind.start, "a kind", KINDS, kind.text
            )
        return Stream(word, kind.text.lower())

    def _begins_merge(self) -> bool:
        """Return whether MERGE and a column follow. MERGE may also be the name of a stream."""
        name = self._ahead().kind in (Kind.WORD, Kind.QUOTED)
        return self._token.keyword == "MERGE" and name and self._ahead(2).keyword == "."

    def _merge(self) -> Merge:
        keyword = self._word()
        self._clause = "MERGE"
        times = [self._merge_time()]
        joins: list[Join | None] = [None]
        while self._token.keyword == ":":
            joins.append(Join("INNER", Word(",", self._take().start)))
            times.append(self._merge_time())
        if len(times) < 2:
            raise self._unexpected("':' and the time of the next stream: a.ts : b.ts")
        if self._accept("FROM"):
            self._clause = "FROM"
            items = self._from_items()
        elif self._at_clause_end():
            streams = [stream for stream, _ in times]
            items = tuple(
                FromItem(Stream(stream), stream.start, join=join) for stream, join in zip(streams, joins, strict=True)
            )
        else:
            raise self._unexpected("':', FROM or ')'")
        for item in items:
            if item.window is not None:
                raise QueryError(
                    "a window within MERGE", self._sql, item.window.start, "no window: MERGE joins no rows"
                )
            if item.join is not None and item.join.word.text != ",":
                start = item.join.word.start
                raise QueryError("a join within MERGE", self._sql, start, "commas between the streams")
        if len(items) != len(times):
            problem = f"{len(times)} times and {len(items)} streams in MERGE"
            expected = "one time for each stream: MERGE a.ts : b.ts FROM a, b"
            raise QueryError(problem, self._sql, keyword.start, expected)
        return Merge(keyword, tuple(times), items)

    def _merge_time(self) -> tuple[Word, Word]:
        stream = self._from_name("the name of a stream")
        if not self._accept("."):
            raise self._unexpected(f"'.' and its time column: {stream.text}.ts")
        return stream, self._from_name("the name of a column after '.'")

    def _alias(self) -> Word | None:
        if self._accept("AS"):
            return self._from_name("a name after AS, in double quotes if it is a word of SQL")
        if self._is_name(self._token) and self._token.keyword not in JOIN_WORDS:
            if self._ahead().keyword == "JOIN" and self._token.keyword in dialects.JOIN_KINDS:
                raise self._unexpected_in_from()
            return self._from_name("a name")
        return None

    def _join(self) -> Join:
        token = self._token
        keyword = token.keyword
        if keyword not in (",", "JOIN", *JOINS, *GIGASCOPE_JOINS):
            raise self._unexpected_in_from()
        self._at += 1
        word = Word(token.text, token.start)
        if keyword in JOINS:
            if keyword in OUTER_JOINS:
                self._accept("OUTER")
            if not self._accept("JOIN"):
                raise QueryError(
                    f"got {self._token.name_in_messages} after {keyword}", self._sql, self._token.start, "JOIN"
                )
            return Join(keyword, word)
        return Join(GIGASCOPE_JOINS.get(keyword, "INNER"), word, by_where=keyword in GIGASCOPE_JOINS)

    def _on(self, join: Join) -> Join:
        if join.word.text == ",":
            expected = "JOIN before the item, or the condition in WHERE"
            raise QueryError("ON after a comma", self._sql, self._token.start, expected)
        keyword = self._word()
        self._clause = "ON"
        expression = self._expression()
        if self._token.keyword == "[":
            expected = "the window after the item, before ON"
            raise QueryError("a window after ON", self._sql, self._token.start, expected)
        if self._token.keyword not in (",", *JOIN_WORDS) and not self._at_clause_end():
            raise self._missing_operator()
        self._clause = "FROM"
        return replace(join, on=Condition(keyword, expression))

    def _using(self, join: Join, before: FromItem, item: FromItem) -> Join:
        """Read `USING (a, b)`, which means `ON before.a = item.a AND before.b = item.b`."""
        keyword = self._word()
        self._clause = "USING"
        if join.word.text == "," or join.on is not None:
            problem = "USING after ON" if join.on is not None else "USING after a comma"
            raise QueryError(problem, self._sql, keyword.start, "JOIN before the item, and one condition after it")
        for side in (before, item):
            if side.name is None:
                raise QueryError("USING with an item without a name", self._sql, side.start, "AS and a name after it")
        if not self._accept("("):
            raise self._unexpected("'(' and the names of columns")
        equalities: list[Expression] = []
        while not equalities or self._accept(","):
            column = self._from_name("the name of a column")
            sides = (Name(column, Word(side.name or "", column.start, quoted=True)) for side in (before, item))
            equalities.append(Operation(Op.EQ, tuple(sides), column.start))
        if not self._accept(")"):
            raise self._unexpected("',' or ')'")
        whole = equalities[0] if len(equalities) == 1 else Operation(Op.AND, tuple(equalities), keyword.start)
        if self._token.keyword not in (",", *JOIN_WORDS) and not self._at_clause_end():
            raise self._unexpected("a comma, JOIN, WHERE, GROUP BY, HAVING, ORDER BY or the end")
        self._clause = "FROM"
        return replace(join, on=Condition(keyword, whole))

    def _from_name(self, expected: str, choices: Sequence[str] = ()) -> Word:
        if not self._is_name(self._token) or not self._token.text:
            raise self._unexpected(expected, choices)
        return self._word()

    def _unexpected_in_from(self) -> QueryError:
        """Return the error for a token that must not follow an item of FROM."""
        token = self._token
        dialect = self._dialect()
        if dialect is not None:
            return dialect
        if token.keyword in ("UNION", "∪") and self._ahead().keyword != "SELECT":
            problem, expected = "after a name", "one name after the last stream, for the whole union"
        elif token.keyword not in UNSUPPORTED and token.kind in (Kind.WORD, Kind.QUOTED):
            problem, expected = "after a stream", _AFTER_ITEM
        else:
            return self._unexpected("UNION and the name of a stream, or the end of the clause")
        return QueryError(f"got {token.name_in_messages} {problem}", self._sql, token.start, expected)
