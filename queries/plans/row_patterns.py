"""MATCH_RECOGNIZE after a table in FROM: the matches of a row pattern, as a table.

    A (B | C)+     start ──A──► A               a state for each variable in the pattern
                   A     ──B──► B, ──C──► C     the arcs of a state are in the order of preference
                   B     ──B──► B, ──C──► C
                   C     ──B──► B, ──C──► C

A row can take an arc into the state of a variable if it satisfies the variable's condition (the *fence* of the arc).
The arc updates the values that measures and conditions need (the *register*); see `highlevel.patterns.automaton`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.patterns.automaton import Arc, Automaton, PatternError
from highlevel.patterns.compilation import compile_automaton
from highlevel.plan.nodes import Apply, Filter, TimeOutput
from highlevel.plan.pattern_nodes import (
    FIRST_ROW,
    MATCH_END,
    MATCH_START,
    ROW_NUMBER,
    MatchedRows,
    Matches,
    Neighbour,
    SkipRule,
)
from lowlevel.expressions.tree import (
    Binary,
    Column,
    Conditional,
    Expression,
    IsNull,
    Literal,
    Unary,
    columns_of,
    computed_column,
    integer_sums,
    transform,
)
from lowlevel.expressions.types import Op, Type
from queries.binding.names import Names, Scope
from queries.binding.row_patterns import RowPatternBinder
from queries.plans.pattern_positions import Positions
from queries.plans.relations import (
    LinkRelation,
    NamedTable,
    Relation,
    RelationNode,
    TableNames,
    conjunction,
    names_in,
)
from queries.text import tree
from queries.text.errors import QueryError

ONE_ROW = tree.RowsPerMatch.ONE

START = "start"

IS_FIRST = Column(FIRST_ROW, Type.BOOL)
ALWAYS = Literal(True, Type.BOOL)


@dataclass(frozen=True)
class MatchRelation:
    """The matches of a row pattern, or their rows. `measures` are expressions over the fields of the automaton.

    `final_fields`: the fields that FINAL reads. `excluded`: the states of excluded rows.
    """

    inner: Relation
    order: str
    keys: tuple[str, ...]
    rows_per_match: tree.RowsPerMatch
    automaton: Automaton
    final_fields: tuple[str, ...]
    excluded: tuple[str, ...]
    skip: SkipRule
    skip_field: str
    neighbours: tuple[Neighbour, ...]
    measures: tuple[Output, ...]
    reads_match_number: bool

    @property
    def times(self) -> tuple[str, ...]:
        """The end of the match; with ALL ROWS PER MATCH the time of the returned row."""
        return (MATCH_END,) if self.rows_per_match is ONE_ROW else (self.order,)

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The partition columns, the times of the first and last row, and the measures.

        ALL ROWS PER MATCH adds the time of the row after the partition columns, and the other columns at the end.
        """
        order = () if self.rows_per_match is ONE_ROW else (self.order,)
        names = (*self.keys, *order, MATCH_START, MATCH_END, *(out.name for out in self.measures))
        return tuple(dict.fromkeys(names + self._other_columns))

    @property
    def _other_columns(self) -> tuple[str, ...]:
        """The columns of the rows that can be returned."""
        if self.rows_per_match is ONE_ROW:
            return ()
        return tuple(name for name in self.inner.visible_names if name not in (MATCH_START, MATCH_END))

    def column(self, name: str) -> Column | None:
        """Return a column of a match."""
        lower = name.lower()
        for key in self.keys:
            if key.lower() == lower:
                return self.inner.column(key)
        is_partial = self.rows_per_match is tree.RowsPerMatch.WITH_UNMATCHED
        columns = [Column(name, Type.TIME, nullable=is_partial) for name in (MATCH_START, MATCH_END)]
        columns += [computed_column(out.name, out.expression) for out in self.measures]
        of_match = next((column for column in columns if column.name.lower() == lower), None)
        return of_match if of_match is not None or self.rows_per_match is ONE_ROW else self.inner.column(name)

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Make the node that returns the matches. Conditions on partition columns select rows of the input."""
        below = [each for each in where if names_in([each]) <= set(self.keys)]
        above = [each for each in where if each not in below]
        sources = {each.name: each.column for each in self.neighbours}
        fields = {field.name for field in self.automaton.register}
        used = {sources.get(name, name) for name in names_in(self.automaton.expressions)}
        used -= fields | {ROW_NUMBER, FIRST_ROW}
        of_match = {MATCH_START, MATCH_END, *(out.name for out in self.measures)}
        others = {*needed, *names_in(above)} - of_match - {*self.keys, self.order}
        shown = () if self.rows_per_match is ONE_ROW else (*self.keys, self.order, *sorted(others))
        used |= {*self.keys, self.order, *shown}
        placed = self.inner.make_node(used, self.order, below)
        computed = self.inner.computed if isinstance(self.inner, LinkRelation) else {}
        outputs = []
        for name in sorted(used):
            column = computed_column(name, computed[name]) if name in computed else self.inner.column(name)
            assert column is not None, name
            outputs.append(Output(name, replace(column, name=placed.names[name])))
        rows = Apply(placed.node, tuple(outputs), (TimeOutput(self.order, placed.names[self.order]),))
        sums = integer_sums(measure.expression for measure in self.measures)
        common = (
            rows,
            self.automaton,
            self.keys,
            self.skip,
            self.skip_field,
            self.neighbours,
            self.reads_match_number,
            sums,
        )
        matches = Matches(*common)
        if self.rows_per_match is not ONE_ROW:
            has_empty = self.rows_per_match is not tree.RowsPerMatch.WITHOUT_EMPTY
            has_unmatched = self.rows_per_match is tree.RowsPerMatch.WITH_UNMATCHED
            matches = MatchedRows(*common, shown, self.final_fields, self.excluded, has_empty, has_unmatched)
        by_name = {column.name: column for column in matches.columns}
        kept = [Output(name, by_name[name]) for name in dict.fromkeys((*self.keys, *shown, MATCH_START, MATCH_END))]
        (time,) = self.times
        node = Apply(matches, (*kept, *self.measures), (TimeOutput(time, time),))
        condition = conjunction(above)
        named = node if condition is None else Filter(node, condition)
        return RelationNode(named, {name: name for name in self.visible_names})


def row_pattern_matches(sql: str, clause: tree.MatchRecognize, inner: Relation) -> MatchRelation:
    """Bind MATCH_RECOGNIZE. Raises QueryError for wrong names, types and patterns."""
    names: Names = (
        inner.names(None)
        if isinstance(inner, LinkRelation)
        else TableNames(sql, [NamedTable("", inner)], qualify=False)
    )
    scope = Scope(names)
    order = _order_column(sql, clause, inner)
    keys = tuple(_partition_column(sql, word, inner) for word in clause.partition)
    variables: dict[str, str] = {}
    for word in _variables(clause.pattern):
        variables.setdefault(word.text.lower(), word.text)
    subsets = _subsets(sql, clause, variables)
    definitions = _definitions(sql, clause, variables)
    computing = inner.move_byte_functions_down if isinstance(inner, LinkRelation) else lambda bound: bound
    has_all_rows = clause.rows is not ONE_ROW
    binder = RowPatternBinder(
        sql,
        variables,
        subsets,
        scope.resolve_in_row,
        computing,
        has_all_rows=has_all_rows,
        has_final_measures=clause.has_final_measures,
    )
    conditions = {variable: binder.condition(variable, condition) for variable, condition in definitions.items()}
    measures = []
    taken = {
        MATCH_START,
        MATCH_END,
        *(name.lower() for name in (*keys, *(inner.visible_names if has_all_rows else ()))),
    }
    for item in clause.measures:
        assert item.alias is not None
        if item.alias.text.lower() in taken:
            expected = f"another name: {MATCH_START} and {MATCH_END} are the times of a match"
            if has_all_rows:
                expected = "another name: ALL ROWS PER MATCH returns the columns of the rows"
            raise QueryError(f"a second column '{item.alias.text}'", sql, item.alias.start, expected)
        taken.add(item.alias.text.lower())
        measure = binder.measure(item.expression)
        if any(column.type is Type.BYTES for column in columns_of(measure)):
            expected = "columns of other types, or count(A.*) with a condition on the bytes in DEFINE"
            raise QueryError("a measure of bytes", sql, item.start, expected)
        if clause.rows is tree.RowsPerMatch.WITH_UNMATCHED:
            in_no_match = IsNull(Column(MATCH_START, Type.TIME, nullable=True))
            measure = Conditional(in_no_match, Literal(None, measure.type), measure)
        measures.append(Output(item.alias.text, measure))
    skip, skip_field = _bind_skip(clause, binder)
    read = names_in(out.expression for out in measures) | {skip_field, *binder.final_fields}
    automaton, excluded = _automaton(sql, clause, variables, binder, conditions, read)
    columns = names_in(automaton.expressions)
    neighbours = tuple(each for name, each in binder.neighbours.items() if name in columns)
    return MatchRelation(
        inner,
        order,
        keys,
        clause.rows,
        automaton,
        tuple(binder.final_fields),
        excluded,
        skip,
        skip_field,
        neighbours,
        tuple(measures),
        binder.reads_match_number,
    )


def _order_column(sql: str, clause: tree.MatchRecognize, inner: Relation) -> str:
    column = inner.column(clause.order.text)
    if column is None or column.name not in inner.times:
        problem = f"ORDER BY {clause.order.text} in MATCH_RECOGNIZE"
        expected = "the time column of the rows" if inner.times else "rows with a time: a query that selects ts"
        raise QueryError(problem, sql, clause.order.start, expected, inner.times, clause.order.text)
    return column.name


def _partition_column(sql: str, word: tree.Word, inner: Relation) -> str:
    column = inner.column(word.text)
    if column is None:
        expected = "a column of the rows"
        raise QueryError(f"unknown column '{word.text}'", sql, word.start, expected, inner.visible_names, word.text)
    if column.type is Type.BYTES:
        raise QueryError("PARTITION BY bytes", sql, word.start, "columns of other types")
    return column.name


def _variables(pattern: tree.RowPattern) -> list[tree.Word]:
    match pattern:
        case tree.PatternVariable(word):
            return [word]
        case tree.PatternRepeat(part=part) | tree.PatternExclusion(part=part):
            return _variables(part)
        case tree.PatternSequence(parts) | tree.PatternChoice(parts) | tree.PatternPermutation(parts):
            return [word for part in parts for word in _variables(part)]
        case tree.PatternAnchor():
            return []


def _subsets(sql: str, clause: tree.MatchRecognize, variables: dict[str, str]) -> dict[str, frozenset[str]]:
    """Return the variables of each union."""
    subsets: dict[str, frozenset[str]] = {}
    taken = set(variables)
    for name, words in clause.subsets:
        if name.text.lower() in taken:
            expected = "a name that no variable of PATTERN and no other union has"
            raise QueryError(f"SUBSET {name.text}", sql, name.start, expected)
        taken.add(name.text.lower())
        members = []
        for word in words:
            variable = variables.get(word.text.lower())
            if variable is None:
                choices = tuple(variables.values())
                raise QueryError(
                    f"'{word.text}' in SUBSET", sql, word.start, "a variable of PATTERN", choices, word.text
                )
            members.append(variable)
        subsets[name.text] = frozenset(members)
    return subsets


def _definitions(sql: str, clause: tree.MatchRecognize, variables: dict[str, str]) -> dict[str, tree.Expression]:
    """Return the condition of each defined variable."""
    definitions: dict[str, tree.Expression] = {}
    for word, condition in clause.definitions:
        variable = variables.get(word.text.lower())
        if variable is None:
            expected = "a variable of PATTERN"
            choices = tuple(variables.values())
            raise QueryError(f"'{word.text}' in DEFINE", sql, word.start, expected, choices, word.text)
        if variable in definitions:
            raise QueryError(f"'{word.text}' is defined twice", sql, word.start, "one condition for each variable")
        definitions[variable] = condition
    return definitions


def _bind_skip(clause: tree.MatchRecognize, binder: RowPatternBinder) -> tuple[SkipRule, str]:
    word = clause.skip.variable
    if word is None:
        return SkipRule(clause.skip.rule), ""
    variable = binder.variable(word, f"AFTER MATCH SKIP TO {word.text}")
    return SkipRule.TO_FIELD, binder.row_of(variable, first=clause.skip.rule == "FIRST")


def _automaton(
    sql: str,
    clause: tree.MatchRecognize,
    variables: dict[str, str],
    binder: RowPatternBinder,
    conditions: dict[str, Expression],
    read_fields: set[str],
) -> tuple[Automaton, tuple[str, ...]]:
    """Return the automaton of a pattern, and its states of excluded rows.

    `read_fields`: the fields that measures and SKIP need.
    """
    start = clause.keyword.start
    positions = Positions(sql, start)
    begin = positions.add(clause.pattern, 0)
    first, later = (positions.following_at_start(begin, is_first=is_first) for is_first in (True, False))
    order = positions.reachable(list(dict.fromkeys(first.positions + later.positions)))
    of_positions = {position: variables[positions.variables[position].lower()] for position in order}
    names: dict[int, str] = {}
    counts = Counter(of_positions.values())
    numbers: Counter[str] = Counter()
    for position, variable in of_positions.items():
        numbers[variable] += 1
        names[position] = f"{variable}{numbers[variable]}" if counts[variable] > 1 else variable
    transfers = {name: dict(binder.transfer(name)) for name in variables.values()}
    tested = {name: _condition_after_row(conditions[name], transfers[name]) for name in conditions}
    fields = {field.name for field in binder.register}
    for column in (column for condition in tested.values() for column in columns_of(condition)):
        if column.type is Type.BYTES and column.name in fields:
            expected = "functions of the bytes of the tested row"
            raise QueryError(f"{column.name} in DEFINE: bytes of an earlier row", sql, start, expected)
    fences = {name: binder.move_byte_functions_down(condition) for name, condition in tested.items()}
    needed = _needed_fields(read_fields | names_in(fences.values()), transfers.values())
    changed = {
        variable: tuple((name, value) for name, value in transfer.items() if name in needed)
        for variable, transfer in transfers.items()
    }
    tests = {variable: fences.get(variable, ALWAYS) for variable in transfers}

    def arcs_from(source: str, targets: Sequence[int], tests: Mapping[str, Expression]) -> list[Arc]:
        variables_of = [of_positions[position] for position in targets]
        return [
            Arc(source, names[position], tests[variable], changed[variable])
            for position, variable in zip(targets, variables_of, strict=True)
        ]

    if first == later:
        arcs = arcs_from(START, first.positions, tests)
    else:
        arcs = arcs_from(START, first.positions, _with_condition(IS_FIRST, tests))
        arcs += arcs_from(START, later.positions, _with_condition(Unary(Op.NOT, IS_FIRST), tests))
    ends = {each: positions.following(positions.node_after[each]) for each in order}
    for each, following in ends.items():
        arcs += arcs_from(names[each], following.positions, tests)
    finals = tuple(names[each] for each in order if ends[each].may_end)
    last_finals = tuple(names[each] for each in order if ends[each].may_end_last)
    if first.may_end:
        finals = (START, *finals)
    if not finals and not last_finals:
        place, *_ = positions.anchor_starts()
        raise QueryError("a pattern that no rows match", sql, place, "^ before the first row, and $ after the last one")
    excluded = tuple(names[each] for each in order if each in positions.excluded)
    register = tuple(field for field in binder.register if field.name in needed)
    empty_fence = ALWAYS if first.may_end == later.may_end else IS_FIRST
    automaton = Automaton(START, finals, tuple(arcs), register, clause.within, last_finals, empty_fence)
    try:
        compile_automaton(automaton)
    except PatternError as error:
        problem, _, expected = str(error).partition(", expected ")
        raise QueryError(problem.removeprefix("got "), sql, start, expected) from None
    return automaton, excluded


def _with_condition(condition: Expression, tests: Mapping[str, Expression]) -> dict[str, Expression]:
    """Return `tests`, each combined with `condition` by AND."""
    return {
        variable: condition if test == ALWAYS else Binary(Op.AND, condition, test) for variable, test in tests.items()
    }


def _condition_after_row(condition: Expression, transfer: Mapping[str, Expression]) -> Expression:
    """Replace each field that the row changes by its new value in `condition`."""

    def new_value(part: Expression) -> Expression | None:
        return transfer.get(part.name) if isinstance(part, Column) else None

    return transform(condition, new_value)


def _needed_fields(read_fields: set[str], transfers: Collection[Mapping[str, Expression]]) -> set[str]:
    """Return the fields that are read, and those from which they are computed."""
    while True:
        values = (value for transfer in transfers for name, value in transfer.items() if name in read_fields)
        more = read_fields | names_in(values)
        if more == read_fields:
            return read_fields
        read_fields = more
