"""MATCH_RECOGNIZE by the text of SQL:2016: from each row the first of all matches in their order of preference.

It reads the syntax tree of a clause, and shares nothing else with the product: no automaton, no register, no union of
runs. A match is a list of rows, each with its variable. Expressions are evaluated over this list by the definition.
Slow: a pattern such as `(A+)+ B` takes exponential time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

from lowlevel.expressions.types import Op
from queries.text import tree
from queries.text.lexer import Kind
from tests.references.automata import apply_operator

Row = Mapping[str, Any]
"""Values by the name of the column; NULL is None, times are in ns."""

AGGREGATES = ("count", "sum", "avg", "min", "max")


@dataclass(frozen=True)
class Match:
    """The rows of a partition from `start` on that are matched, by the variable and the exclusion of each.

    `unions`: the variables of each union.
    """

    rows: Sequence[Row]
    start: int
    unions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    steps: tuple[tuple[str, bool], ...] = ()
    number: int | None = None

    @property
    def end(self) -> int:
        """The place after the last row."""
        return self.start + len(self.steps)

    def places(self, variable: str | None) -> list[int]:
        """Return the places of the rows of a variable or union, of all rows if it is None."""
        names = self.unions.get(variable or "", frozenset([variable]))
        return [place for place, (name, _) in enumerate(self.steps, self.start) if variable is None or name in names]


def answer(clause: tree.MatchRecognize, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows of the clause: all columns of the result, by their names."""
    partitions: dict[tuple[Any, ...], list[Row]] = {}
    order = clause.order.text
    by_place = sorted(rows, key=lambda row: (row[order], *((row[name] is None, row[name]) for name in sorted(row))))
    for row in by_place:
        partitions.setdefault(tuple(row[word.text] for word in clause.partition), []).append(row)
    return [row for partition in partitions.values() for row in _Clause(clause, partition).rows_of_matches()]


class _Clause:
    """The clause over the rows of one partition."""

    def __init__(self, clause: tree.MatchRecognize, rows: Sequence[Row]) -> None:
        self._clause = clause
        self._rows = rows
        self._order = clause.order.text
        self._unions = {
            word.text.lower(): frozenset(part.text.lower() for part in parts) for word, parts in clause.subsets
        }
        self._conditions = {word.text.lower(): condition for word, condition in clause.definitions}

    def rows_of_matches(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all matches, and then those of no match."""
        kind, unmatched = self._clause.rows, set(range(len(self._rows)))
        start = number = 0
        while start < len(self._rows):
            empty = Match(self._rows, start, self._unions)
            match = next(self._matches(self._clause.pattern, empty, is_excluded=False), None)
            if match is None:
                start += 1
                continue
            number += 1
            match = replace(match, number=number)
            unmatched -= {start, *range(start, match.end)}
            if kind is tree.RowsPerMatch.ONE:
                yield self._row(match, match, None)
            elif not match.steps and kind is not tree.RowsPerMatch.WITHOUT_EMPTY:
                yield self._row(match, match, start)
            for place, (_, is_excluded) in enumerate(match.steps, start):
                if kind is not tree.RowsPerMatch.ONE and not is_excluded:
                    so_far = replace(match, steps=match.steps[: place - start + 1])
                    yield self._row(so_far, match, place)
            start = self._next_start(match)
        if kind is tree.RowsPerMatch.WITH_UNMATCHED:
            for place in sorted(unmatched):
                names = ["match_start", "match_end", *(_alias(item) for item in self._clause.measures)]
                yield dict(self._rows[place]) | dict.fromkeys(names)

    def _row(self, match: Match, final: Match, place: int | None) -> dict[str, Any]:
        first = self._rows[final.start]
        last = self._rows[max(final.start, final.end - 1)]
        times = {"match_start": first[self._order], "match_end": last[self._order]}
        measures = {_alias(item): _Values(match, final).value(item.expression) for item in self._clause.measures}
        if place is not None:
            return dict(self._rows[place]) | times | measures
        return {word.text: first[word.text] for word in self._clause.partition} | times | measures

    def _next_start(self, match: Match) -> int:
        skip = self._clause.skip
        if skip.rule == "PAST LAST ROW":
            return max(match.end, match.start + 1)
        if skip.variable is None:
            return match.start + 1
        places = match.places(skip.variable.text.lower())
        if not places:
            return match.start + 1
        return max(match.start + 1, places[0] if skip.rule == "FIRST" else places[-1])

    def _matches(self, pattern: tree.RowPattern, before: Match, *, is_excluded: bool) -> Iterator[Match]:
        """Yield the matches of `before` and then `pattern`, preferred ones first."""
        match pattern:
            case tree.PatternVariable(word):
                longer = self._with_row(before, word.text.lower(), is_excluded=is_excluded)
                if longer is not None:
                    yield longer
            case tree.PatternSequence(parts):
                yield from self._sequence(parts, before, is_excluded=is_excluded)
            case tree.PatternChoice(parts):
                for part in parts:
                    yield from self._matches(part, before, is_excluded=is_excluded)
            case tree.PatternExclusion(part):
                yield from self._matches(part, before, is_excluded=True)
            case tree.PatternAnchor("^"):
                if before.end == 0:
                    yield before
            case tree.PatternAnchor():
                if before.end == len(self._rows):
                    yield before
            case tree.PatternPermutation(parts):
                for order in permutations(parts):
                    yield from self._sequence(order, before, is_excluded=is_excluded)
            case tree.PatternRepeat():
                yield from self._repeated(pattern, before, 0, is_excluded=is_excluded)
            case _:
                raise TypeError(pattern)

    def _sequence(self, parts: Sequence[tree.RowPattern], before: Match, *, is_excluded: bool) -> Iterator[Match]:
        if not parts:
            yield before
            return
        for match in self._matches(parts[0], before, is_excluded=is_excluded):
            yield from self._sequence(parts[1:], match, is_excluded=is_excluded)

    def _repeated(self, repeat: tree.PatternRepeat, before: Match, times: int, *, is_excluded: bool) -> Iterator[Match]:
        """Yield the matches after `times` repetitions. One of no row ends the repetitions that are not required."""

        def longer() -> Iterator[Match]:
            if repeat.most is None or times < repeat.most:
                for match in self._matches(repeat.part, before, is_excluded=is_excluded):
                    if match.end == before.end and times >= repeat.least:
                        yield match
                    else:
                        yield from self._repeated(repeat, match, times + 1, is_excluded=is_excluded)

        if times >= repeat.least and repeat.is_reluctant:
            yield before
        yield from longer()
        if times >= repeat.least and not repeat.is_reluctant:
            yield before

    def _with_row(self, before: Match, variable: str, *, is_excluded: bool) -> Match | None:
        """Return the match with the next row as one of a variable, if it is one."""
        place, within = before.end, self._clause.within
        if place == len(self._rows):
            return None
        if within is not None and self._rows[place][self._order] >= self._rows[before.start][self._order] + within:
            return None
        longer = replace(before, steps=(*before.steps, (variable, is_excluded)))
        condition = self._conditions.get(variable)
        return longer if condition is None or _Values(longer, longer).value(condition) is True else None


class _Values:
    """Expressions over the rows of a match so far, or with FINAL over all its rows."""

    def __init__(self, match: Match, final: Match, place: int | None = None) -> None:
        """`place`: the row of all columns, for arguments of navigation and aggregates."""
        self._match = match
        self._final = final
        self._place = place

    def value(self, expression: tree.Expression) -> Any:
        match expression:
            case tree.Constant(kind=Kind.NUMBER, text=text, negative=is_negative):
                number = float(text) if "." in text else int(text)
                return -number if is_negative else number
            case tree.Constant(kind=Kind.WORD, text=text):
                return text.upper() == "TRUE"
            case tree.Constant(text=text):
                return text
            case tree.Null():
                return None
            case tree.Name(word, table):
                return self._column(word.text, None if table is None else table.text.lower())
            case tree.Unary(Op.NOT, operand):
                value = self.value(operand)
                return None if value is None else not value
            case tree.Unary(Op.NEG, operand):
                value = self.value(operand)
                return None if value is None else -value
            case tree.IsNull(operand):
                return self.value(operand) is None
            case tree.Between(operand, low, high):
                value = self.value(operand)
                return apply_operator(
                    Op.AND,
                    apply_operator(Op.GE, value, self.value(low)),
                    apply_operator(Op.LE, value, self.value(high)),
                )
            case tree.In(operand, values):
                found: Any = False
                for each in values:
                    found = apply_operator(Op.OR, found, apply_operator(Op.EQ, self.value(operand), self.value(each)))
                return found
            case tree.Case(None, branches, otherwise):
                results = (result for condition, result in branches if self.value(condition) is True)
                return self.value(next(results, otherwise))
            case tree.Operation(op, operands):
                first, *others = map(self.value, operands)
                for other in others:
                    first = apply_operator(op, first, other)
                return first
            case tree.Call():
                return self._call(expression)
        raise TypeError(expression)

    def _column(self, name: str, variable: str | None) -> Any:
        if self._place is not None:
            return self._match.rows[self._place][name]
        places = self._match.places(variable)
        return self._match.rows[places[-1]][name] if places else None

    def _call(self, call: tree.Call) -> Any:
        name = call.function.text.lower()
        match = self._final if call.is_final else self._match
        if name == "abs":
            value = self.value(call.arguments[0])
            return None if value is None else abs(value)
        if name == "match_number":
            return match.number
        if name == "classifier":
            names = [argument.word.text.lower() for argument in call.arguments if isinstance(argument, tree.Name)]
            places = match.places(next(iter(names), None))
            return match.steps[places[-1] - match.start][0].upper() if places else None
        if name in AGGREGATES:
            return self._aggregate(name, match, call.arguments[0])
        place, argument = self._place_of(call, match)
        return None if place is None else _Values(match, match, place).value(argument)

    def _place_of(self, call: tree.Call, match: Match) -> tuple[int | None, tree.Expression]:
        """Return the place of the row of a navigation, None if there is none, and the expression over this row."""
        name, (argument, *offsets) = call.function.text.lower(), call.arguments
        is_physical = name in ("prev", "next")
        offset = int(offsets[0].text) if offsets else int(is_physical)
        places = match.places(_variable(argument))
        if not is_physical:
            index = offset if name == "first" else -1 - offset
            return places[index] if offset < len(places) else None, argument
        place = places[-1] if places else None
        if isinstance(argument, tree.Call) and argument.function.text.lower() in ("first", "last"):
            place, argument = self._place_of(argument, self._final if argument.is_final else match)
        if place is None:
            return None, argument
        place += offset if name == "next" else -offset
        return place if 0 <= place < len(match.rows) else None, argument

    def _aggregate(self, name: str, match: Match, argument: tree.Expression) -> Any:
        if isinstance(argument, tree.Star):
            return len(match.places(None if argument.table is None else argument.table.text.lower()))
        every = (_Values(match, match, place).value(argument) for place in match.places(_variable(argument)))
        values = [value for value in every if value is not None]
        if name == "count":
            return len(values)
        if not values:
            return None
        return {"sum": sum, "min": min, "max": max, "avg": lambda each: sum(each) / len(each)}[name](values)


def _alias(item: tree.SelectItem) -> str:
    assert item.alias is not None
    return item.alias.text


def _variable(expression: tree.Expression) -> str | None:
    """Return the variable of the columns of an argument."""
    match expression:
        case tree.Name(_, table):
            return None if table is None else table.text.lower()
        case tree.Operation(operands=parts) | tree.Call(arguments=parts):
            found = (_variable(part) for part in parts)
            return next((variable for variable in found if variable is not None), None)
        case tree.Unary(operand=operand) | tree.IsNull(operand=operand):
            return _variable(operand)
        case tree.Case(branches=branches, otherwise=otherwise):
            parts = (*(part for branch in branches for part in branch), otherwise)
            return next((variable for part in parts if (variable := _variable(part)) is not None), None)
    return None
