"""Parser of AUTOMATON: states, arcs and a register.

AUTOMATON (
[PARTITION BY columns] ORDER BY time [LIFETIME TO column] [NUMBERED BY column]
[REGISTER name TYPE [DEFAULT constant], …]
[ONE ROW PER MATCH | ALL ROWS PER MATCH]
START state FINAL state, …
[SILENT] ARC state TO state [WHEN condition] [SET name = value, …] [FROM time] [TO time] | …
ARC state TO state AT time | …
[ARCS FROM 'file'] [WITHIN length]
)

The file has ARC statements without SILENT and AT, separated by semicolons or not.
"""

from __future__ import annotations

from collections.abc import Iterator

from queries.text.errors import QueryError
from queries.text.lexer import Kind
from queries.text.row_patterns import RowPatternParser
from queries.text.tree import AutomatonArc, AutomatonTable, Expression, RegisterField, Table, Word

CLAUSES_OF_AUTOMATON = (
    "PARTITION BY, ORDER BY, LIFETIME TO, NUMBERED BY, REGISTER, ONE ROW PER MATCH or ALL ROWS PER MATCH, START, "
    "FINAL, ARC or SILENT ARC, ARCS FROM, WITHIN"
)


ARC_WORDS = ("ARC", "SILENT")
"""Words that begin an arc."""


class AutomatonParser(RowPatternParser):
    """Reads AUTOMATON."""

    def _automaton(self, table: Table) -> AutomatonTable:
        """Read the clause, parentheses included."""
        keyword = self._word()
        self._at += 1
        outside = self._in_list, self._parentheses
        self._in_list, self._parentheses = False, 0
        partition = self._partition_columns() if self._starts("PARTITION", "BY") else ()
        if not self._starts("ORDER", "BY"):
            raise self._unexpected(f"ORDER BY and the time column: ORDER BY ts; the clauses are {CLAUSES_OF_AUTOMATON}")
        order = self._column("the time column after ORDER BY")
        until = self._column("the column with the end of a row") if self._starts("LIFETIME", "TO") else None
        number = self._column("the column with the number of a row") if self._starts("NUMBERED", "BY") else None
        register = self._register() if self._accept("REGISTER") else ()
        has_all_rows = self._starts("ALL", "ROWS", "PER", "MATCH")
        if not has_all_rows:
            self._starts("ONE", "ROW", "PER", "MATCH")
        self._clause = "START"
        if not self._accept("START"):
            raise self._unexpected(f"START and a state; the clauses are {CLAUSES_OF_AUTOMATON}")
        start = self._column("the state in which a run begins")
        self._clause = "FINAL"
        if not self._accept("FINAL"):
            raise self._unexpected("FINAL and the states in which a run is accepted")
        finals = [self._column("a state")]
        while self._accept(","):
            finals.append(self._column("a state"))
        arcs: list[AutomatonArc] = []
        while self._token.keyword in ARC_WORDS or not (arcs or self._token.keyword == "ARCS"):
            arcs.append(self._arc())
        rules = self._arcs_file() if self._accept("ARCS") else None
        within = self._within_match() if self._accept("WITHIN") else None
        self._clause = "AUTOMATON"
        if not self._accept(")"):
            raise self._unexpected(f"an operator, or the end of AUTOMATON; the clauses are {CLAUSES_OF_AUTOMATON}")
        self._in_list, self._parentheses = outside
        self._clause = "FROM"
        fields, states = tuple(register), tuple(finals)
        return AutomatonTable(
            table,
            keyword,
            partition,
            order,
            until,
            number,
            fields,
            start,
            states,
            tuple(arcs),
            rules,
            within,
            has_all_rows,
        )

    def _check_begins_arc(self) -> None:
        if self._token.kind is not Kind.END and self._token.keyword not in ARC_WORDS:
            raise self._unexpected("an operator, SET, FROM, TO, or the next ARC")

    def _register(self) -> list[RegisterField]:
        self._clause = "REGISTER"
        fields: list[RegisterField] = []
        while not fields or self._accept(","):
            name = self._column("the name of a field")
            kind = self._column("the type of the field: n INT DEFAULT 0")
            fields.append(RegisterField(name, kind, self._expression_or_null() if self._accept("DEFAULT") else None))
        return fields

    def _arc(self) -> AutomatonArc:
        self._clause = "ARC"
        is_silent = self._accept("SILENT")
        if not self._accept("ARC"):
            raise self._unexpected("ARC and two states: ARC idle TO busy WHEN len > 1000")
        source = self._column("the state that the arc leaves")
        if not self._accept("TO"):
            raise self._unexpected("TO and a state: ARC idle TO busy")
        target = self._column("the state to which the arc leads")
        if self._token.keyword == "AT":
            return self._deadline(source, target, is_silent=is_silent)
        condition = self._expression() if self._accept("WHEN") else None
        changes = self._changes() if self._accept("SET") else ()
        self._clause = "ARC"
        begin = self._expression() if self._accept("FROM") else None
        end = self._expression() if self._accept("TO") else None
        return AutomatonArc(source, target, is_silent, condition, changes, None, begin, end)

    def _arcs_file(self) -> Word:
        """Read FROM and the path of a file with arcs."""
        self._clause = "ARCS FROM"
        if not self._accept("FROM"):
            raise self._unexpected("FROM and a file with arcs: ARCS FROM 'rules.arcs'")
        if self._token.kind not in (Kind.STRING, Kind.QUOTED):
            raise self._unexpected("the path of a file with arcs: ARCS FROM 'rules.arcs'")
        return self._word()

    def whole_arcs(self) -> Iterator[tuple[str, AutomatonArc]]:
        """Read the text as arcs of a file. Yield each with its statement."""
        while self._token.kind is not Kind.END:
            first, token = self._at, self._token
            if token.keyword == "SILENT":
                expected = "ARC; an arc without a row belongs to the automaton"
                raise QueryError("SILENT ARC in a file of arcs", self._sql, token.start, expected)
            arc = self._arc()
            if arc.deadline is not None:
                expected = "WHEN, SET, FROM or TO; an arc with AT belongs to the automaton"
                raise QueryError("AT in a file of arcs", self._sql, arc.deadline.start, expected)
            yield " ".join(self._sql[part.start : part.end] for part in self._tokens[first : self._at]), arc
            if not self._accept(";"):
                self._check_begins_arc()

    def _deadline(self, source: Word, target: Word, *, is_silent: bool) -> AutomatonArc:
        if is_silent:
            raise QueryError("SILENT ARC with AT", self._sql, self._token.start, "ARC a TO b AT time")
        self._at += 1
        deadline = self._expression()
        if self._token.keyword in ("WHEN", "SET"):
            expected = "only a time: the arc applies if no row has come before; earlier arcs change the register"
            raise QueryError(f"{self._token.keyword} after AT", self._sql, self._token.start, expected)
        return AutomatonArc(source, target, False, None, (), deadline)

    def _changes(self) -> tuple[tuple[Word, Expression], ...]:
        changes: list[tuple[Word, Expression]] = []
        while not changes or self._accept(","):
            self._clause = "SET"
            name = self._column("a field of the register")
            if not self._accept("="):
                raise self._unexpected("= and the new value: SET n = n + 1")
            changes.append((name, self._expression_or_null()))
        return tuple(changes)
