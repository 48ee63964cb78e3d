"""Parser of MATCH_RECOGNIZE: clauses in the order of SQL:2016, and row patterns.

MATCH_RECOGNIZE (
[PARTITION BY columns] ORDER BY time [MEASURES expression AS name, …]
[ONE ROW PER MATCH | ALL ROWS PER MATCH [SHOW EMPTY MATCHES | OMIT EMPTY MATCHES | WITH UNMATCHED ROWS]]
[AFTER MATCH SKIP TO NEXT ROW | PAST LAST ROW | TO [FIRST | LAST] variable]
PATTERN (pattern) [WITHIN length] [SUBSET name = (variable, …), …] [DEFINE variable AS condition, …]
)

pattern    A B        A, then B         A+ A* A?   once or more, any number, at most once
A | B      A, or else B      A{2} A{2,} A{,3} A{2,3}    these numbers of times
(A B)+     a group           A+? A*? A?? A{2,3}?        as few as possible
^ $        the beginning and the end of the partition   PERMUTE(A, B)   A B | B A
()         no row            {- A -}                    A, which is not among the rows of ALL ROWS PER MATCH
"""

from __future__ import annotations

from queries.text.errors import QueryError
from queries.text.lexer import Kind, Token
from queries.text.literals import duration_of
from queries.text.tree import (
    AfterMatch,
    Expression,
    MatchRecognize,
    PatternAnchor,
    PatternChoice,
    PatternExclusion,
    PatternPermutation,
    PatternRepeat,
    PatternSequence,
    PatternVariable,
    RowPattern,
    RowsPerMatch,
    SelectItem,
    Table,
    Word,
)
from queries.text.windows import WindowParser

MAX_REPEATS = 1_000
"""Largest number in a quantifier."""

MAX_PERMUTED_PATTERNS = 6
"""Largest number of patterns in PERMUTE. Six patterns have 720 orders."""

CLAUSES = (
    "PARTITION BY, ORDER BY, MEASURES, ONE ROW PER MATCH or ALL ROWS PER MATCH, AFTER MATCH SKIP, PATTERN, WITHIN, "
    "SUBSET, DEFINE"
)

_QUANTIFIERS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class RowPatternParser(WindowParser):
    """Reads MATCH_RECOGNIZE."""

    _has_unmatched = False
    """True in a clause WITH UNMATCHED ROWS."""

    def _match_recognize(self, table: Table) -> MatchRecognize:
        """Read the clause, parentheses included."""
        keyword = self._word()
        self._at += 1
        outside = self._in_row_pattern, self._in_list, self._parentheses
        self._in_row_pattern, self._in_list, self._parentheses = True, False, 0
        partition = self._partition_columns() if self._starts("PARTITION", "BY") else ()
        if not self._starts("ORDER", "BY"):
            raise self._unexpected("ORDER BY and the time column: ORDER BY ts")
        order = self._column("the time column after ORDER BY")
        if self._token.keyword in ("DESC", ",", "NULLS"):
            raise self._unexpected("one time column in rising order: ORDER BY ts")
        self._accept("ASC")
        measures = self._measures() if self._accept("MEASURES") else ()
        rows = self._rows_per_match()
        self._has_unmatched = rows is RowsPerMatch.WITH_UNMATCHED
        skip = self._after_match() if self._starts("AFTER", "MATCH", "SKIP") else AfterMatch("PAST LAST ROW")
        if self._token.keyword in ("INITIAL", "SEEK"):
            raise self._refused("no INITIAL and SEEK: all matches are returned")
        self._clause = "PATTERN"
        if not self._accept("PATTERN") or not self._accept("("):
            raise self._unexpected(f"PATTERN and a row pattern in parentheses; the clauses are {CLAUSES}")
        pattern = self._choice_of_patterns()
        if not self._accept(")"):
            raise self._unexpected("a variable, a quantifier (* + ? {2,3}), '|' or ')'")
        within = self._within_match() if self._accept("WITHIN") else None
        subsets = self._subsets() if self._accept("SUBSET") else ()
        definitions = self._definitions() if self._accept("DEFINE") else ()
        self._clause = "MATCH_RECOGNIZE"
        if not self._accept(")"):
            raise self._unexpected(f"the end of MATCH_RECOGNIZE, or its clauses in the order {CLAUSES}")
        self._in_row_pattern, self._in_list, self._parentheses = outside
        self._clause = "FROM"
        return MatchRecognize(
            table, keyword, partition, order, measures, rows, skip, pattern, within, subsets, definitions
        )

    def _starts(self, *words: str) -> bool:
        """Step over words if they follow."""
        self._clause = " ".join(words)
        if any(self._ahead(index).keyword != word for index, word in enumerate(words)):
            return False
        self._at += len(words)
        return True

    def _refused(self, remedy: str) -> QueryError:
        token = self._token
        return QueryError(f"{token.keyword} in MATCH_RECOGNIZE is not supported", self._sql, token.start, remedy)

    def _column(self, expected: str) -> Word:
        if not self._is_name(self._token) or not self._token.text:
            raise self._not_a_name(expected)
        return self._word()

    def _partition_columns(self) -> tuple[Word, ...]:
        columns = [self._column("a column")]
        while self._accept(","):
            columns.append(self._column("a column"))
        if self._token.keyword == "(":
            raise self._unexpected("columns; a query in FROM computes others: FROM (SELECT …) MATCH_RECOGNIZE (…)")
        return tuple(columns)

    def _measures(self) -> tuple[SelectItem, ...]:
        self._clause = "MEASURES"
        items: list[SelectItem] = []
        while not items or self._accept(","):
            expression = self._expression()
            if not self._accept("AS"):
                raise self._unexpected("an operator, or AS and the name of the measure")
            items.append(SelectItem(expression, self._column("the name of the measure")))
        return tuple(items)

    def _rows_per_match(self) -> RowsPerMatch:
        if not self._starts("ALL", "ROWS", "PER", "MATCH"):
            self._starts("ONE", "ROW", "PER", "MATCH")
            return RowsPerMatch.ONE
        if self._starts("OMIT", "EMPTY", "MATCHES"):
            return RowsPerMatch.WITHOUT_EMPTY
        if self._starts("WITH", "UNMATCHED", "ROWS"):
            return RowsPerMatch.WITH_UNMATCHED
        self._starts("SHOW", "EMPTY", "MATCHES")
        return RowsPerMatch.ALL

    def _after_match(self) -> AfterMatch:
        self._clause = "AFTER MATCH SKIP"
        if self._starts("TO", "NEXT", "ROW"):
            return AfterMatch("TO NEXT ROW")
        if self._starts("PAST", "LAST", "ROW"):
            return AfterMatch("PAST LAST ROW")
        self._clause = "AFTER MATCH SKIP"
        if not self._accept("TO"):
            raise self._unexpected("TO NEXT ROW, PAST LAST ROW, TO FIRST A, TO LAST A or TO A")
        rule = "LAST"
        if self._token.keyword in ("FIRST", "LAST") and self._is_name(self._ahead()) and not self._at_pattern(1):
            rule = self._take().keyword
        return AfterMatch(rule, self._column("a variable of PATTERN"))

    def _at_pattern(self, count: int) -> bool:
        """Return whether PATTERN and '(' follow after `count` tokens."""
        return self._ahead(count).keyword == "PATTERN" and self._ahead(count + 1).keyword == "("

    def _within_match(self) -> int:
        self._clause = "WITHIN"
        start = self._token.start
        if self._token.keyword == "INTERVAL":
            within = int(self._duration().text)
        else:
            length = self._length()
            if self._no_unit is not None:
                raise self._no_unit
            if length.unit.lower() in ("row", "rows"):
                raise QueryError(
                    "WITHIN a number of rows", self._sql, start, "a length of time, or a quantifier: A{1,9}"
                )
            within = duration_of(self._sql, length)
        return within

    def _subsets(self) -> tuple[tuple[Word, tuple[Word, ...]], ...]:
        subsets: list[tuple[Word, tuple[Word, ...]]] = []
        while not subsets or self._accept(","):
            self._clause = "SUBSET"
            name = self._column("the name of a union of variables")
            if not (self._accept("=") and self._accept("(")):
                raise self._unexpected("variables in parentheses: SUBSET U = (A, B)")
            variables = [self._column("a variable of PATTERN")]
            while self._accept(","):
                variables.append(self._column("a variable of PATTERN"))
            if not self._accept(")"):
                raise self._unexpected("',' or ')' after a variable")
            subsets.append((name, tuple(variables)))
        return tuple(subsets)

    def _definitions(self) -> tuple[tuple[Word, Expression], ...]:
        definitions: list[tuple[Word, Expression]] = []
        while not definitions or self._accept(","):
            self._clause = "DEFINE"
            variable = self._column("a variable of PATTERN")
            if not self._accept("AS"):
                raise self._unexpected("AS and a condition: DEFINE A AS len > 1000")
            definitions.append((variable, self._expression()))
        return tuple(definitions)

    # --- patterns ---

    def _choice_of_patterns(self) -> RowPattern:
        self._nest()
        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())
        self._nesting -= 1
        return parts[0] if len(parts) == 1 else PatternChoice(tuple(parts))

    def _sequence(self) -> RowPattern:
        parts: list[RowPattern] = []
        while not parts or self._at_part():
            parts.append(self._quantified())
        return parts[0] if len(parts) == 1 else PatternSequence(tuple(parts))

    def _at_part(self) -> bool:
        is_name = self._token.kind in (Kind.WORD, Kind.QUOTED)
        return self._token.keyword in ("(", "^", "$") or self._begins_exclusion() or is_name

    def _quantified(self) -> RowPattern:
        token = self._token
        if token.keyword == "PERMUTE" and self._ahead().keyword == "(":
            part: RowPattern = self._permutation()
        elif token.keyword in ("^", "$"):
            self._at += 1
            part = PatternAnchor(token.text, token.start)
        elif self._accept("("):
            part = PatternSequence(()) if self._token.keyword == ")" else self._choice_of_patterns()
            if not self._accept(")"):
                raise self._unexpected("a variable, a quantifier (* + ? {2,3}), '|' or ')'")
        elif self._begins_exclusion():
            if self._has_unmatched:
                expected = "the pattern without {- -}, or ALL ROWS PER MATCH"
                raise QueryError("{- -} with UNMATCHED ROWS", self._sql, token.start, expected)
            self._at += 2
            part = PatternExclusion(self._choice_of_patterns(), token.start)
            if not (self._accept("-") and self._accept("}")):
                raise self._unexpected("a variable, a quantifier (* + ? {2,3}), '|', or -} after the excluded rows")
        else:
            part = PatternVariable(self._column("a variable of the row pattern"))
        while self._token.keyword in _QUANTIFIERS or (self._token.keyword == "{" and not self._begins_exclusion()):
            part = self._repeat(part, token)
        return part

    def _permutation(self) -> RowPattern:
        """Read PERMUTE(A, B, …)."""
        start = self._token.start
        self._at += 2
        parts = [self._choice_of_patterns()]
        while self._accept(","):
            parts.append(self._choice_of_patterns())
        if not self._accept(")"):
            raise self._unexpected("a variable, a quantifier (* + ? {2,3}), '|', ',' or ')'")
        if len(parts) > MAX_PERMUTED_PATTERNS:
            problem = f"PERMUTE of {len(parts)} patterns"
            raise QueryError(problem, self._sql, start, f"at most {MAX_PERMUTED_PATTERNS}; or count(A.*) in DEFINE")
        return PatternPermutation(tuple(parts))

    def _begins_exclusion(self) -> bool:
        return self._token.keyword == "{" and self._ahead().keyword == "-"

    def _repeat(self, part: RowPattern, token: Token) -> PatternRepeat:
        mark = self._take()
        least, most = _QUANTIFIERS[mark.keyword] if mark.keyword != "{" else self._bounds(mark)
        return PatternRepeat(part, least, most, self._accept("?"), token.start)

    def _bounds(self, mark: Token) -> tuple[int, int | None]:
        """Read the numbers after '{', and '}'."""
        least = self._bound()
        most = least
        if self._accept(","):
            most = self._bound()
            if least is None and most is None:
                raise QueryError(
                    "{,} without a number", self._sql, mark.start, "{2}, {2,}, {,3} or {2,3}; or * in its place"
                )
        elif least is None:
            raise self._unexpected("a number: {2}, {2,}, {,3} or {2,3}")
        if not self._accept("}"):
            raise self._unexpected("'}'")
        if most is not None and (most < (least or 0) or most == 0):
            problem = f"{{{'' if least is None else least},{most}}} in PATTERN"
            raise QueryError(problem, self._sql, mark.start, "a lower bound, and an upper bound of at least 1 and this")
        return least or 0, most

    def _bound(self) -> int | None:
        token = self._token
        if token.kind is not Kind.NUMBER:
            return None
        if not token.text.isdecimal() or int(token.text) > MAX_REPEATS:
            problem = f"got {token.name_in_messages} times in PATTERN"
            raise QueryError(problem, self._sql, token.start, f"an integer of at most {MAX_REPEATS}")
        self._at += 1
        return int(token.text)
