"""Parser of GROUP BY: columns and expressions, a window, and grouping sets.

    GROUP BY srcIP, destPort/1024 AS block        GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), srcIP
    GROUP BY ROLLUP (a, b)                        the sets (a, b), (a) and ()
    GROUP BY CUBE (a, b)                          all subsets
    GROUP BY GROUPING SETS ((a, b), c, ())        these sets

GROUP-BY and GROUPBY, which occur in the papers, are accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations, product
from math import prod

from queries.text.errors import QueryError
from queries.text.lexer import Kind
from queries.text.tree import GroupingSet, GroupingSets, SelectItem, WindowCall, Word
from queries.text.windows import CALLS, WindowParser

MAX_SETS = 50
"""Largest number of grouping sets. Each becomes a query of a union."""


class GroupByParser(WindowParser):
    """Reads GROUP BY, and names after AS."""

    def _group_by(self) -> tuple[GroupingSet, WindowCall | None, GroupingSets | None]:
        """Read GROUP BY. Return its items, its window and its grouping sets. With grouping sets there are no items."""
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
            if prod(map(len, items)) > MAX_SETS:
                expected = f"at most {MAX_SETS}: use fewer columns in CUBE, or list the sets with GROUPING SETS"
                raise QueryError(
                    f"{prod(map(len, items))} grouping sets", self._sql, 0 if word is None else word.start, expected
                )
            sets = tuple(_union_of_sets(chosen) for chosen in product(*items))
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
            return [_union_of_sets(elements[:length]) for length in lengths]
        if keyword == "CUBE":  # all subsets
            return [_union_of_sets(chosen) for length in lengths for chosen in combinations(elements, length)]
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
        """Return whether the parentheses that begin at the current token are a list: ',' or ')' follows them."""
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

    def _item_alias(self) -> Word | None:
        """Read AS and a name, which may be in single or double quotes."""
        if not self._accept("AS"):
            return None
        token = self._token
        named = self._is_name(token) or token.kind is Kind.STRING
        if not named or not token.text.strip() or not token.text.isprintable():
            raise self._not_a_name("a name after AS")
        return self._word()


def _union_of_sets(sets: Sequence[GroupingSet]) -> GroupingSet:
    """Return the union of several sets: their items, without repetition."""
    return tuple(dict.fromkeys(chain.from_iterable(sets)))
