"""Parser of queries: SQL text to a syntax tree, by recursive descent.

    [WITH name AS (query), …]
    SELECT [DISTINCT] items [window] FROM tables [window] [WHERE …] [GROUP BY …] [HAVING …]
        [CLOSING WHEN …] [FILL number | NULL | PREVIOUS]
        [ORDER BY … [ASC | DESC] [NULLS FIRST | NULLS LAST], …] [LIMIT n] [OFFSET n]
    SELECT … UNION | INTERSECT | EXCEPT [ALL] SELECT … [ORDER BY …] [LIMIT n] [OFFSET n]
    MERGE a.ts : b.ts FROM Main1 a, Main2 b        means SELECT * FROM (MERGE …)

Commas or JOIN separate the items of FROM:

    FROM Main1 [RANGE 3 minutes, WA ts] AS a, Main2 b [RANGE 2 minutes, WA ts]
    FROM A UNION B AS M1, C UNION D AS M2 [RANGE TUMBLING 10 seconds, WA ts],
    FROM syn S [RANGE 3 s, WA ts] LEFT JOIN synack A [RANGE 0 s, WA ts] ON S.srcIP = A.destIP
    FROM (MERGE a.ts : b.ts FROM Main1 a, Main2 b) m
    FROM tap1 UNION tap2 DISTINCT ON (srcIP, destIP, ip_id) WITHIN 10 ms AS p [RANGE 1 minute]
    FROM flows MERGE BY (srcIP, destIP, protocol) WITHIN 31 minutes IDLE 15 seconds
    FROM leases CHANGES BY op
    FROM packets MATCH_RECOGNIZE (PARTITION BY srcIP ORDER BY ts MEASURES … PATTERN (A B+) DEFINE A AS …)

Three forms that occur in the papers are accepted: GROUP-BY, GROUPBY, and a comma after the last item of a join. AS
before a name in FROM is optional. An error names SQL syntax that GSQL does not support, and its position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import chain, combinations, product
from math import prod

from lowlevel.expressions.types import Op
from lowlevel.kinds import KINDS
from queries.text import dialects
from queries.text.consistency import ConsistencyParser, find_consistency
from queries.text.errors import QueryError
from queries.text.lexer import CLAUSE_WORDS, SAMPLING_WORDS, UNSUPPORTED, Kind, Token
from queries.text.literals import INT64_MAX
from queries.text.row_patterns import RowPatternParser
from queries.text.tree import (
    ChangeLog,
    Condition,
    Consistency,
    Constant,
    DistinctOn,
    Expression,
    Fill,
    FromItem,
    GroupingSet,
    GroupingSets,
    Join,
    Length,
    Merge,
    MergeRecords,
    Name,
    Null,
    Operation,
    Order,
    OrderItem,
    Query,
    SelectItem,
    SetOperation,
    SetOperator,
    Star,
    Stream,
    Subquery,
    Supergroups,
    Table,
    Union,
    Window,
    WindowCall,
    Word,
)
from queries.text.windows import CALLS, JOIN_PARAMETER, JOIN_PARAMETERS

CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "CLOSING WHEN", "FILL", "ORDER BY", "LIMIT", "OFFSET")

_CLAUSE_NAMES = {
    "GROUP": "GROUP BY",
    "GROUPBY": "GROUP BY",
    "CLOSING": "CLOSING WHEN",
    "CLOSING_WHEN": "CLOSING WHEN",
    "ORDER": "ORDER BY",
}

MAX_DEPTH = 20
"""Largest depth of nested queries and unions."""

MAX_OPERANDS = 50
"""Queries with one set operator between them, at most."""

GIGASCOPE_JOINS = {
    "INNER_JOIN": "INNER",
    "LEFT_OUTER_JOIN": "LEFT",
    "RIGHT_OUTER_JOIN": "RIGHT",
    "OUTER_JOIN": "FULL",
}
"""Joins as Gigascope spells them: in one word."""

OUTER_JOINS = ("LEFT", "RIGHT", "FULL")
JOINS = ("INNER", *OUTER_JOINS, "SEMI", "ANTI")
"""Words before JOIN."""

JOIN_WORDS = ("JOIN", "ON", "USING", *JOINS, *GIGASCOPE_JOINS)
"""Words that cannot be the name of an item, unless they are quoted or follow AS."""

_BEHIND_ITEM = "UNION, DISTINCT ON, MERGE WITHIN, a name, '[', ',', JOIN, WHERE, GROUP BY, HAVING, ORDER BY or the end"


def parse_query(sql: str, table_groups: Collection[str] = ()) -> Query:
    """Parse `sql` as one query. Raises QueryError for anything else.

    `table_groups`: names in lower case that may precede the name of a table in FROM, as a schema does: `today.talkers`.
    """
    return _QueryParser(sql, table_groups).whole_query()


class _QueryParser(RowPatternParser):
    def __init__(self, sql: str, table_groups: Collection[str] = ()) -> None:
        super().__init__(sql, "the query")
        self._table_groups = table_groups
        self._depth = 0
        self._joined = False
        if len(self._tokens) > 1 and self._tokens[-2].keyword == ";":
            end = self._tokens[-2].start
            self._tokens[-2:] = [Token(Kind.END, "", end, end)]

    def whole_query(self) -> Query:
        """Read the text; one semicolon may end it."""
        consistency = self._consistency()
        query = self._query()
        if self._token.kind is not Kind.END:
            raise self._unexpected("the end of the query")
        return query if consistency is None else replace(query, consistency=consistency)

    def _consistency(self) -> Consistency | None:
        """Read WITH CONSISTENCY and EMIT at the end of the text, and remove them."""
        position = find_consistency(self._sql, self._tokens)
        if position is None:
            return None
        clauses = self._tokens[position:]
        self._tokens[position:] = [Token(Kind.END, "", clauses[0].start, clauses[0].start)]
        return ConsistencyParser(self._sql, clauses).consistency()

    def _query(self) -> Query:
        """Read a query up to its end, or to the parenthesis that closes it."""
        token = self._token
        self._deeper()
        if token.keyword == "WITH":
            queries = self._with()
            query = replace(self._query(), queries=queries)
        elif self._begins_merge():
            merge = self._merge()
            star = SelectItem(Star(token.start))
            query = Query(self._sql, merge.keyword, (star,), (FromItem(merge, token.start),))
        elif token.keyword in UNSUPPORTED:
            raise self._unsupported(UNSUPPORTED[token.keyword], token)
        elif token.keyword not in ("SELECT", "("):
            raise QueryError(
                f"got {token.name_in_messages}",
                self._sql,
                token.start,
                dialects.STATEMENTS.get(token.keyword, "SELECT"),
            )
        else:
            query = self._operations()
        self._depth -= 1
        return query

    # --- set operations ---

    def _operations(self) -> Query:
        """Read queries with set operations between them, or one SELECT, and ORDER BY for the whole."""
        first, depth = self._token, self._depth
        query = self._chain(("UNION", "EXCEPT"), lambda: self._chain(("INTERSECT",), self._set_operand))
        if first.keyword == "(" and query.tables[0].start != first.start:
            raise QueryError("got '('", self._sql, first.start, "SELECT, or UNION, INTERSECT or EXCEPT after ')'")
        order = self._order()
        if order is not None and self._begins_operation():
            clause = _CLAUSE_NAMES.get(order.keyword.text.upper(), order.keyword.text.upper())
            problem = f"{clause} before {self._token.keyword}"
            expected = "it after the last SELECT, or this SELECT in parentheses"
            raise QueryError(problem, self._sql, order.keyword.start, expected)
        self._depth = depth
        return query if order is None else replace(query, order=order)

    def _chain(self, keywords: Sequence[str], read: Callable[[], Query]) -> Query:
        """Read queries with operators of one precedence between them, from left to right."""
        start = self._token.start
        queries, words, last = [read()], list[Word](), SetOperator.UNION

        def whole() -> Query:
            operation = SetOperation(last, tuple(words), tuple(queries))
            return Query(self._sql, queries[0].keyword, (SelectItem(Star(start)),), (FromItem(operation, start),))

        while self._token.keyword in keywords and self._begins_operation():
            word, operator = self._operator()
            if words and operator is not last:
                self._deeper()
                queries, words = [whole()], []
            if len(queries) == MAX_OPERANDS:
                expected = f"at most {MAX_OPERANDS} queries with {operator} between them"
                raise QueryError(f"query {MAX_OPERANDS + 1} of a set operation", self._sql, word.start, expected)
            last = operator
            words.append(word)
            queries.append(read())
        return whole() if words else queries[0]

    def _operator(self) -> tuple[Word, SetOperator]:
        word, keyword = self._word(), self._tokens[self._at - 1].keyword
        if self._accept("ALL"):
            return word, SetOperator(f"{keyword} ALL")
        self._accept("DISTINCT")
        return word, SetOperator(keyword)

    def _set_operand(self) -> Query:
        """Read SELECT without ORDER BY, or a query in parentheses."""
        token = self._token
        if token.keyword == "SELECT":
            return self._select()
        if token.keyword != "(":
            expected = "SELECT, or a query in parentheses"
            raise QueryError(f"got {token.name_in_messages} after a set operator", self._sql, token.start, expected)
        return self._subquery()

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            expected = f"at most {MAX_DEPTH} levels"
            raise QueryError("queries within each other too deeply", self._sql, self._token.start, expected)

    def _with(self) -> tuple[tuple[Word, Query], ...]:
        queries: list[tuple[Word, Query]] = []
        while not queries or self._token.keyword == ",":
            self._at += 1
            self._clause = "WITH"
            if not self._is_name(self._token) or not self._token.text:
                raise self._unexpected("the name of a query")
            name = self._word()
            if not self._accept("AS") or self._token.keyword != "(":
                raise self._unexpected("AS and a query in parentheses")
            queries.append((name, self._subquery()))
        return tuple(queries)

    def _subquery(self) -> Query:
        """Read a query in parentheses."""
        self._at += 1
        query = self._query()
        if not self._accept(")"):
            raise self._unexpected("')' after a query in parentheses")
        return query

    def _inner_query(self) -> Query:
        """Read a query in parentheses within an expression."""
        outside = self._clause, self._in_list, self._parentheses, self._joined
        self._in_list, self._parentheses = False, 0
        query = self._subquery()
        self._clause, self._in_list, self._parentheses, self._joined = outside
        return query

    # --- clauses ---

    def _select(self) -> Query:
        keyword = self._word()
        self._clause = "SELECT"
        distinct = self._word() if self._token.keyword == "DISTINCT" else None
        select, windows = self._select_list()
        if self._token.keyword != "FROM":
            raise self._dialect() or QueryError(
                "the query has no FROM", self._sql, self._token.start, "FROM and the names of streams"
            )
        self._at += 1
        self._clause = "FROM"
        tables = self._from_items()
        if len(tables) == 1 and tables[0].window is not None:
            windows.append(tables[0].window)
            tables = (replace(tables[0], window=None),)
        if len(windows) > 1:
            expected = "one window clause for the query"
            raise QueryError("a second window clause", self._sql, windows[1].start, expected)
        where = self._condition() if self._begins("WHERE", "FROM") else None
        group_by, call, sets = self._group_by() if self._begins("GROUP BY", "WHERE") else ((), None, None)
        first = self._token
        items = self._supergroup() if first.keyword == "SUPERGROUP" else ()
        having = self._condition() if self._begins("HAVING", "GROUP BY") else None
        closing = self._closing() if self._begins("CLOSING WHEN", "HAVING") else None
        cleaning = self._token
        when, by = self._cleaning("WHEN"), self._cleaning("BY")
        supergroups = None
        if items or when or by:
            token = first if items else cleaning
            supergroups = Supergroups(Word(token.text, token.start), items, when, by)
        fill = self._fill() if self._begins("FILL", "CLOSING WHEN") else None
        window = windows[0] if windows else None
        query = Query(self._sql, keyword, select, tables, window, where, group_by, call, having, distinct)
        query = replace(query, supergroups=supergroups, grouping_sets=sets, closing=closing, fill=fill)
        if sets is not None and supergroups is not None:
            expected = "GROUP BY with columns only"
            raise QueryError("grouping sets in a query that samples", self._sql, sets.keyword.start, expected)
        if closing is not None:
            for part, clause in ((supergroups, "SUPERGROUP or CLEANING"), (sets, "grouping sets"), (fill, "FILL")):
                if part is not None:
                    problem, expected = f"{clause} together with CLOSING WHEN", "one of the two"
                    raise QueryError(problem, self._sql, part.keyword.start, expected)
        if fill is not None and supergroups is not None:
            expected = "a query without SUPERGROUP and CLEANING"
            raise QueryError("FILL in a query that samples", self._sql, fill.keyword.start, expected)
        if fill is not None and having is not None:
            expected = "WHERE in a query over this one: SELECT * FROM (SELECT … FILL 0) WHERE …"
            raise QueryError("FILL together with HAVING", self._sql, fill.keyword.start, expected)
        return query

    def _supergroup(self) -> tuple[SelectItem, ...]:
        """Read SUPERGROUP and its columns."""
        self._at += 1
        self._clause = "SUPERGROUP"
        items = [self._group_item()]
        while self._accept(","):
            items.append(self._group_item())
        return tuple(items)

    def _cleaning(self, second: str) -> Condition | None:
        """Read `CLEANING WHEN` or `CLEANING BY` and its condition, if it follows."""
        word = self._token
        if word.keyword == "CLEANING" and self._ahead().keyword == second:
            self._at += 1
        elif word.keyword == "CLEANING" and self._ahead().keyword not in ("WHEN", "BY"):
            self._at += 1
            raise self._unexpected("WHEN or BY after CLEANING")
        elif word.keyword != f"CLEANING_{second}":
            return None
        return replace(self._condition(), keyword=Word(f"CLEANING {second}", word.start))

    def _closing(self) -> Condition:
        """Read CLOSING WHEN and its condition."""
        word = self._token
        if word.keyword == "CLOSING":
            self._at += 1
            if self._token.keyword != "WHEN":
                raise self._unexpected("WHEN after CLOSING")
        condition = replace(self._condition(), keyword=Word("CLOSING WHEN", word.start))
        self._clause = "CLOSING WHEN"
        return condition

    def _begins(self, clause: str, before: str) -> bool:
        """Return whether the current token begins a clause. Raises QueryError for a clause that must be earlier."""
        token = self._token
        if token.keyword in SAMPLING_WORDS or token.keyword not in CLAUSE_WORDS or token.keyword == "SELECT":
            return False
        name = _CLAUSE_NAMES.get(token.keyword, token.keyword)
        if CLAUSES.index(name) > CLAUSES.index(before):
            return name == clause
        problem = f"{name} is given twice" if self._clause == name else f"{name} after {self._clause}"
        raise QueryError(problem, self._sql, token.start, "the clauses in the order " + ", ".join(CLAUSES))

    def _select_list(self) -> tuple[tuple[SelectItem, ...], list[Window]]:
        """Read the items of SELECT and the windows after them."""
        windows: list[Window] = []
        if self._token.keyword == "*" and (self._ahead().keyword in ("[", "FROM") or self._ahead().kind is Kind.END):
            select = [SelectItem(Star(self._take().start))]
            self._select_window(windows)
            return tuple(select), windows
        select = []
        while not select or self._accept(","):
            self._in_list = True
            expression = self._result()
            self._in_list = False
            self._select_window(windows)
            implied = self._is_name(self._token) and self._token.text.isprintable() and bool(self._token.text.strip())
            alias = self._word() if implied else self._item_alias()
            self._select_window(windows)
            select.append(SelectItem(expression, alias, implied))
            if alias is None and self._token.keyword != "," and not self._at_clause_end():
                self._in_list = True
                raise self._missing_operator()
            if self._token.keyword != "," and not self._at_clause_end():
                raise self._unexpected("',' or FROM")
        return tuple(select), windows

    def _select_window(self, windows: list[Window]) -> None:
        if self._token.keyword == "[":
            windows.append(self._window())
            if self._token.keyword not in (",", "AS", "[") and not self._at_clause_end():
                raise self._window_here(windows[-1].start)

    def _item_alias(self) -> Word | None:
        """Read AS and a name, which may be in quotes of any kind."""
        if not self._accept("AS"):
            return None
        token = self._token
        named = self._is_name(token) or token.kind is Kind.STRING
        if not named or not token.text.strip() or not token.text.isprintable():
            raise self._not_a_name("a name after AS")
        return self._word()

    def _condition(self) -> Condition:
        """Read WHERE, HAVING or another clause with a condition."""
        keyword = self._word()
        self._clause = keyword.text.upper()
        expression = self._expression()
        if not self._at_clause_end():
            raise self._missing_operator()
        return Condition(keyword, expression)

    def _group_by(self) -> tuple[GroupingSet, WindowCall | None, GroupingSets | None]:
        """Read GROUP BY: its items, its window and its grouping sets. With grouping sets it has no items."""
        self._clause = "GROUP BY"
        if self._take().keyword == "GROUP":
            self._accept("-")
            if not self._accept("BY"):
                start = self._tokens[self._at - 1].start
                raise QueryError("got 'GROUP' without BY", self._sql, start, "GROUP BY and columns")
        items: list[list[GroupingSet]] = []
        call: WindowCall | None = None
        word: Word | None = None
        while True:
            if self._token.keyword in CALLS and self._ahead().keyword == "(":
                if call is not None:
                    start = self._token.start
                    raise QueryError("a second window in GROUP BY", self._sql, start, "one window for the query")
                call = self._window_call()
            elif self._begins_grouping_sets():
                word = word or Word(self._token.text, self._token.start)
                items.append(self._grouping_sets())
            else:
                items.append([(self._group_item(),)])
            if self._accept(","):
                continue
            if prod(map(len, items)) > MAX_OPERANDS:
                expected = f"at most {MAX_OPERANDS}: use fewer columns in CUBE, or list the sets with GROUPING SETS"
                raise QueryError(
                    f"{prod(map(len, items))} grouping sets", self._sql, 0 if word is None else word.start, expected
                )
            sets = tuple(_combined(chosen) for chosen in product(*items))
            return (sets[0], call, None) if word is None else ((), call, GroupingSets(sets, word))

    def _begins_grouping_sets(self) -> bool:
        keyword, following = self._token.keyword, self._ahead().keyword
        return (keyword in ("ROLLUP", "CUBE") and following == "(") or (keyword == "GROUPING" and following == "SETS")

    def _grouping_sets(self) -> list[GroupingSet]:
        """Read ROLLUP (…), CUBE (…) or GROUPING SETS (…)."""
        keyword = self._take().keyword
        self._accept("SETS")
        elements = self._elements(allow_sets=keyword == "GROUPING")
        if not self._at_clause_end() and self._token.keyword != ",":
            raise self._unexpected("',' or the end of the clause")
        lengths = range(len(elements), -1, -1)
        if keyword == "ROLLUP":  # all prefixes
            return [_combined(elements[:length]) for length in lengths]
        if keyword == "CUBE":  # all subsets
            return [_combined(chosen) for length in lengths for chosen in combinations(elements, length)]
        return elements

    def _elements(self, *, allow_sets: bool) -> list[GroupingSet]:
        """Read a list in parentheses.

        Its elements are expressions or lists of expressions. With `allow_sets` an element may also be an empty list.
        """
        if not self._accept("("):
            raise self._unexpected("'(' and columns")
        elements: list[GroupingSet] = []
        while not elements or self._accept(","):
            if allow_sets and self._begins_grouping_sets():
                elements += self._grouping_sets()
            elif self._token.keyword == "(" and self._closes_a_list():
                elements.append(self._list(empty=allow_sets))
            else:
                elements.append((SelectItem(self._in_parentheses()),))
        if not self._accept(")"):
            raise self._unexpected("an operator, ',' or ')'")
        return elements

    def _closes_a_list(self) -> bool:
        """Return whether ',' or ')' follows the parentheses that begin at the current token: they are a list."""
        depth, at = 0, self._at
        while True:
            depth += {"(": 1, ")": -1}.get(self._tokens[at].keyword, 0)
            at += 1
            if not depth:
                return self._tokens[at].keyword in (",", ")")

    def _list(self, *, empty: bool) -> GroupingSet:
        start = self._take().start
        items: list[SelectItem] = []
        if self._accept(")"):
            if not empty:
                raise QueryError("got '()'", self._sql, start, "columns; GROUPING SETS may contain ()")
            return ()
        while not items or self._accept(","):
            items.append(SelectItem(self._in_parentheses()))
        if not self._accept(")"):
            raise self._unexpected("an operator, ',' or ')'")
        return tuple(items)

    def _group_item(self) -> SelectItem:
        self._in_list = True
        expression = self._expression()
        alias = self._item_alias()
        if alias is None and self._token.keyword != "," and not self._at_clause_end():
            raise self._missing_operator()
        self._in_list = False
        if self._token.keyword != "," and not self._at_clause_end():
            raise self._unexpected("',' or the end of the clause")
        return SelectItem(expression, alias)

    def _fill(self) -> Fill:
        """Read FILL and its value."""
        keyword = self._word()
        self._clause = "FILL"
        token = self._token
        minus = self._take() if token.keyword == "-" else None
        value: Constant | Null | Word
        if self._token.kind is Kind.NUMBER:
            value = self._literal(minus)
        elif minus is None and token.keyword == "NULL":
            value = Null(self._take().start)
        elif minus is None and token.keyword == "PREVIOUS":
            value = self._word()
        else:
            raise QueryError(
                f"got {token.name_in_messages} in FILL", self._sql, token.start, "a number, NULL or PREVIOUS"
            )
        if not self._at_clause_end():
            raise self._unexpected("ORDER BY, LIMIT, OFFSET or the end of the query")
        return Fill(keyword, value)

    def _order(self) -> Order | None:
        """Read ORDER BY, LIMIT and OFFSET, and check that no clause follows."""
        word = Word(self._token.text, self._token.start)
        order: Order | None = None
        if self._begins("ORDER BY", "FILL"):
            order = Order(word, self._order_by())
        if self._begins("LIMIT", "ORDER BY"):
            order = replace(order or Order(word), limit=self._number_of_rows())
        if self._begins("OFFSET", "LIMIT"):
            order = replace(order or Order(word), offset=self._number_of_rows())
        self._begins("", "OFFSET")
        return order

    def _order_by(self) -> tuple[OrderItem, ...]:
        """Read the clause ORDER BY."""
        self._clause = "ORDER BY"
        self._at += 1
        if not self._accept("BY"):
            start = self._tokens[self._at - 1].start
            raise QueryError("got 'ORDER' without BY", self._sql, start, "ORDER BY and columns")
        items = self._order_items()
        if not self._at_clause_end():
            raise self._unexpected("ASC, DESC, NULLS FIRST, NULLS LAST, ',' or the end of the clause")
        return items

    def _number_of_rows(self) -> int:
        """Read LIMIT or OFFSET and its number."""
        self._clause = self._take().keyword
        token = self._token
        if token.kind is not Kind.NUMBER or not token.text.isdecimal() or int(token.text) > INT64_MAX:
            too_large = token.kind is Kind.NUMBER and token.text.isdecimal()
            expected = f"a number of rows, at most {INT64_MAX}" if too_large else "a number of rows, 0 or more"
            raise QueryError(f"got {token.name_in_messages} in {self._clause}", self._sql, token.start, expected)
        self._at += 1
        if self._token.keyword == ",":
            expected = "the end of the clause; LIMIT 10 OFFSET 5 leaves out the first five rows"
            raise QueryError(f"got ',' in {self._clause}", self._sql, self._token.start, expected)
        if not self._at_clause_end():
            raise self._unexpected("the end of the clause")
        return int(token.text)

    # --- FROM ---

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
        """Return the error for an unknown parameter. Windows of joins have other parameters than windows of groups."""
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
        """Read CHANGES BY, DISTINCT ON, MERGE or MATCH_RECOGNIZE after a table, if it follows."""
        token, following = self._token, self._ahead().keyword
        if token.keyword == "MATCH_RECOGNIZE" and following == "(":
            return self._with_suffixes(self._match_recognize(table))
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
        """Return whether MERGE and a column follow. The word may also be the name of a stream."""
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
        """Return the error for a token that cannot follow an item of FROM."""
        token = self._token
        dialect = self._dialect()
        if dialect is not None:
            return dialect
        if token.keyword in ("UNION", "∪") and self._ahead().keyword != "SELECT":
            problem, expected = "after a name", "one name after the last stream, for the whole union"
        elif token.keyword not in UNSUPPORTED and token.kind in (Kind.WORD, Kind.QUOTED):
            problem, expected = "after a stream", _BEHIND_ITEM
        else:
            return self._unexpected("UNION and the name of a stream, or the end of the clause")
        return QueryError(f"got {token.name_in_messages} {problem}", self._sql, token.start, expected)


def _combined(sets: Sequence[GroupingSet]) -> GroupingSet:
    """Return the items of several sets, equal ones once."""
    return tuple(dict.fromkeys(chain.from_iterable(sets)))
