"""Parser of queries: converts SQL text to a syntax tree, by recursive descent.

    [WITH name AS (query), …]
    SELECT [DISTINCT] items [window] FROM tables [window] [WHERE …] [GROUP BY …] [HAVING …]
        [CLOSING WHEN …] [FILL number | NULL | PREVIOUS]
        [ORDER BY … [ASC | DESC] [NULLS FIRST | NULLS LAST], …] [LIMIT n] [OFFSET n]
    SELECT … UNION | INTERSECT | EXCEPT [ALL] SELECT … [ORDER BY …] [LIMIT n] [OFFSET n]
    MERGE a.ts : b.ts FROM Main1 a, Main2 b        means SELECT * FROM (MERGE …)

`queries.text.from_clause` reads FROM, and `queries.text.group_by` reads GROUP BY.

An error names SQL syntax that GSQL does not support, and its position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from queries.text import dialects
from queries.text.consistency import ConsistencyParser, find_consistency
from queries.text.errors import QueryError
from queries.text.from_clause import FromParser
from queries.text.group_by import GroupByParser
from queries.text.lexer import CLAUSE_WORDS, SAMPLING_WORDS, UNSUPPORTED, Kind, Token
from queries.text.literals import INT64_MAX
from queries.text.tree import (
    AutomatonArc,
    Condition,
    Consistency,
    Constant,
    Fill,
    FromItem,
    Null,
    Order,
    OrderItem,
    Query,
    SelectItem,
    SetOperation,
    SetOperator,
    Star,
    Supergroups,
    Window,
    Word,
)

CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "CLOSING WHEN", "FILL", "ORDER BY", "LIMIT", "OFFSET")

_CLAUSE_NAMES = {
    "GROUP": "GROUP BY",
    "GROUPBY": "GROUP BY",
    "CLOSING": "CLOSING WHEN",
    "CLOSING_WHEN": "CLOSING WHEN",
    "ORDER": "ORDER BY",
}

MAX_OPERANDS = 50
"""Largest number of queries in one chain of a set operator."""


def parse_query(sql: str, table_groups: Collection[str] = ()) -> Query:
    """Parse `sql` as one query. Raises QueryError for anything else.

    `table_groups`: names in lower case that may be written before a table in FROM, like a schema: `today.talkers`.
    """
    return _QueryParser(sql, table_groups).whole_query()


def parse_arcs(text: str) -> tuple[tuple[str, AutomatonArc], ...]:
    """Parse a text as arcs of an automaton, each with its statement. Raises QueryError for anything else."""
    return tuple(_QueryParser(text, ()).whole_arcs())


class _QueryParser(FromParser, GroupByParser):
    def __init__(self, sql: str, table_groups: Collection[str]) -> None:
        super().__init__(sql, table_groups)
        if len(self._tokens) > 1 and self._tokens[-2].keyword == ";":
            end = self._tokens[-2].start
            self._tokens[-2:] = [Token(Kind.END, "", end, end)]

    def whole_query(self) -> Query:
        """Read the whole text, which may end with one semicolon."""
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
        """Read a query, up to the end of the text or to the closing parenthesis."""
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
        """Read one SELECT, or several with set operations between them, and the ORDER BY of the whole."""
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
        """Read queries and operators of equal precedence, from left to right."""
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
        """Return whether the current token begins `clause`. Raises QueryError for a clause that must come earlier."""
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
            expression = self._expression_or_null()
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

    def _condition(self) -> Condition:
        """Read WHERE, HAVING or another clause with a condition."""
        keyword = self._word()
        self._clause = keyword.text.upper()
        expression = self._expression()
        if not self._at_clause_end():
            raise self._missing_operator()
        return Condition(keyword, expression)

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
        """Read ORDER BY, LIMIT and OFFSET. Raise QueryError if another clause follows."""
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
