"""The cases of `row_patterns/*.md`: MATCH_RECOGNIZE has the rows of the table, however its rows arrive.

Each case is compared with the table, and with the definition in `tests.references`. It runs in order, in batches with a
restart between them, reversed and shuffled with corrections, and with rows that are inserted and withdrawn again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import wiretide
from highlevel.inline.tables import TableStream, rows_of_leaf
from highlevel.plan.pipeline import Pipeline
from highlevel.plan.plan import Plan
from highlevel.results.user_types import readable
from lowlevel.punctuation import END, Punctuation
from queries.gsql import compile_query
from queries.plans.subqueries import ReadableQuery
from queries.text.errors import QueryError
from queries.text.parser import parse_query
from queries.text.tree import MatchRecognize
from tests.conformance.pattern_cases import SECOND, TYPES, PatternCase, cells, read_pattern_cases
from tests.conftest import Rounds
from tests.references.operator_contract import through_ipc
from tests.references.row_pattern_definition import answer

pytestmark = pytest.mark.filterwarnings("ignore:AFTER MATCH SKIP TO did not apply:RuntimeWarning")

CASES = read_pattern_cases()
PAGES = sorted({case.page for case in CASES})
MAX_DEFINED_ROWS = 20
"""The definition takes exponential time."""

Arrival = dict[str, Any] | int
"""A row, or the watermark after the rows before it."""


def table_of(rows: Sequence[dict[str, Any]], *, columns: Sequence[str]) -> pa.Table:
    kinds = TYPES | {"ts": pa.timestamp("ns"), "op": pa.string()}
    return pa.table({name: pa.array([row[name] for row in rows], kinds[name]) for name in columns})


def columns_of(case: PatternCase) -> list[str]:
    return list(case.rows[0]) if case.rows else ["ts", "kind"]


class Run:
    """A query over rows that arrive one by one."""

    def __init__(self, case: PatternCase, sql: str, extra: Sequence[str] = ()) -> None:
        self._columns = [*columns_of(case), *extra]
        # Every column but the time may be NULL, whatever the rows of the case.
        row = dict.fromkeys(self._columns) | {"ts": 0}
        self._stream = TableStream.read("ticks", table_of([row], columns=self._columns))
        stream, node = self._stream, self._stream.node
        readable = ReadableQuery(stream.columns, stream.times, node, Plan("ticks", sql, node(None)))
        self._plan = compile_query(sql, tables={"ticks": readable})

    def rows(self, arrivals: Sequence[Arrival], restart: int = -1) -> list[dict[str, Any]]:
        """Return the rows of the result. Before the arrival `restart` the state goes through a snapshot."""
        pipeline, items = self._pipeline(), []
        (leaf,) = self._plan.leaves
        for place, arrival in enumerate([*arrivals, END]):
            if place == restart:
                tables = through_ipc(pipeline.snapshot())
                pipeline = self._pipeline()
                pipeline.restore(tables)
            if isinstance(arrival, int):
                items += pipeline.punctuate(0, Punctuation("ticks", arrival))
            else:
                table = TableStream.read("ticks", table_of([arrival], columns=self._columns)).table
                (batch,) = table.to_batches()
                items += pipeline.process_rows(0, rows_of_leaf(leaf, batch))
        return [
            row
            for item in items
            if isinstance(item, pa.RecordBatch)
            for row in readable(pa.Table.from_batches([item]), self._plan.root.columns).to_pylist()
        ]

    def _pipeline(self) -> Pipeline:
        return Pipeline(self._plan, [["ticks"]])


def added_up(case: PatternCase, changes: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the rows that changes add up to. No row is withdrawn before it was returned."""
    total: Counter[tuple[str, ...]] = Counter()
    for change in changes:
        (row,) = cells(case.columns, [change])
        total[row] += change["weight"]
        assert total[row] >= 0, f"{case.title}: {row} was withdrawn before it was returned"
    return sorted(total.elements())


def disordered(draw: Random, rows: Sequence[dict[str, Any]]) -> list[Arrival]:
    """Return rows in a random order, with watermarks that make no row late."""
    arrivals: list[Arrival] = list(draw.sample(rows, len(rows)))
    for place in range(len(arrivals), 0, -1):
        later = [row["ts"] for row in arrivals[place:] if not isinstance(row, int)]
        if draw.random() < 0.4 and later:
            arrivals.insert(place, min(later))
    return arrivals


def every_case(page: str) -> list[PatternCase]:
    return [case for case in CASES if case.page == page]


def some_cases(page: str, rounds: Rounds) -> list[PatternCase]:
    """Return the cases of a page that `--share` draws."""
    cases = every_case(page)
    return [cases[number] for number in rounds(len(cases))]


def clause_of(case: PatternCase) -> MatchRecognize:
    clause = parse_query(case.query()).tables[0].table
    assert isinstance(clause, MatchRecognize)
    return clause


def test_there_are_at_least_150_different_cases() -> None:
    assert len({(case.clause, str(case.rows)) for case in CASES}) == len(CASES) >= 150


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_are_those_of_the_definition(page: str) -> None:
    for case in every_case(page):
        if len(case.rows) <= MAX_DEFINED_ROWS:
            assert cells(case.columns, answer(clause_of(case), case.rows)) == sorted(case.answer), case.title


@pytest.mark.parametrize("page", PAGES)
def test_the_rows_in_order(page: str) -> None:
    schema = "PROTOCOL ticks { TIME ts (increasing); STRING host; STRING kind; LLONG price; FLOAT level; }"
    for case in every_case(page):
        absent = [name for name in TYPES if name not in columns_of(case)]
        known = "; ".join(part for part in schema.split("; ") if part.split()[-1] not in absent)
        rows = sorted(case.rows, key=lambda row: row["ts"])
        found = wiretide.query(case.query(), table_of(rows, columns=columns_of(case)), schema=known)
        assert found.schema.names == list(case.columns), case.title
        assert cells(case.columns, found.to_pylist()) == sorted(case.answer), case.title


@pytest.mark.parametrize("page", PAGES)
def test_the_rows_in_batches_with_a_restart_between_them(page: str, rounds: Rounds) -> None:
    for case in some_cases(page, rounds):
        arrivals: list[Arrival] = []
        for row in sorted(case.rows, key=lambda row: row["ts"]):
            arrivals += [row["ts"], row]
        restart = Random(case.title).randint(0, len(arrivals))
        assert cells(case.columns, Run(case, case.query()).rows(arrivals, restart)) == sorted(case.answer), case.title


@pytest.mark.parametrize("page", PAGES)
def test_the_rows_reversed_with_corrections_and_a_restart(page: str, rounds: Rounds) -> None:
    for case in some_cases(page, rounds):
        run = Run(case, f"{case.query()} EMIT CHANGES")
        arrivals = sorted(case.rows, key=lambda row: -row["ts"])
        restart = Random(case.title).randint(0, len(arrivals))
        assert added_up(case, run.rows(arrivals, restart)) == sorted(case.answer), case.title


@pytest.mark.parametrize("page", PAGES)
def test_the_rows_shuffled(page: str, rounds: Rounds) -> None:
    """Without corrections rows wait for the watermark; with corrections they are matched at once."""
    for case in some_cases(page, rounds):
        arrivals = disordered(Random(case.title), case.rows)
        assert cells(case.columns, Run(case, case.query()).rows(arrivals)) == sorted(case.answer), case.title
        changes = Run(case, f"{case.query()} EMIT CHANGES").rows(arrivals)
        assert added_up(case, changes) == sorted(case.answer), case.title


@pytest.mark.parametrize("page", PAGES)
def test_the_rows_with_others_that_are_withdrawn(page: str, rounds: Rounds) -> None:
    """Other rows have the values of rows, at the times of rows and between them. Half of the cases have corrections."""
    for case in some_cases(page, rounds):
        draw = Random(case.title)
        log = [{**row, "op": "+"} for row in case.rows]
        for _ in range(draw.randint(1, 3) if case.rows else 0):
            row, other = draw.choices(case.rows, k=2)
            wrong = {**other, "ts": row["ts"] + draw.choice([0, SECOND // 2])}
            log += [{**wrong, "op": "+"}, {**wrong, "op": "-"}]
        draw.shuffle(log)
        log.sort(key=lambda row: row["op"] == "-")
        columns = ", ".join(columns_of(case))
        sql = case.query(f"(SELECT {columns} FROM ticks CHANGES BY op)")
        restart = draw.randint(0, len(log))
        if draw.random() < 0.5:
            found = cells(case.columns, Run(case, sql, ["op"]).rows(log, restart))
        else:
            found = added_up(case, Run(case, f"{sql} EMIT CHANGES", ["op"]).rows(log, restart))
        assert found == sorted(case.answer), case.title


def test_damaged_clauses_are_refused_or_computed_and_never_fail_otherwise(rounds: Rounds) -> None:
    """Tokens of the cases are removed, repeated, exchanged or replaced by others."""
    words = sorted({word for case in CASES for word in split(case.clause)} | {"^", "$", "SUBSET", "PERMUTE", "{", "-"})
    messages = {}
    for seed in rounds(600):
        draw = Random(f"damaged {seed}")
        case = draw.choice(CASES)
        parts = split(case.clause)
        for _ in range(draw.randint(1, 3)):
            place, other = draw.randrange(len(parts)), draw.randrange(len(parts))
            kind = draw.randrange(4)
            if kind == 0 and len(parts) > 1:
                del parts[place]
            elif kind == 1:
                parts.insert(place, parts[other])
            elif kind == 2:
                parts[place], parts[other] = parts[other], parts[place]
            else:
                parts[place] = draw.choice(words)
        sql = f"SELECT * FROM ticks MATCH_RECOGNIZE ({' '.join(parts)})"
        try:
            Run(case, sql).rows(case.rows[:6])
        except QueryError as error:
            messages[seed] = str(error)
        except Exception as error:
            error.add_note(f"damaged {seed}: {sql}")
            raise
    assert len(messages) > 100
    assert [each for each in messages.items() if "expected" not in each[1] and "valid" not in each[1]] == []


def split(clause: str) -> list[str]:
    """Return the tokens of a clause."""
    for mark in "()+*?|{},=<>-.":
        clause = clause.replace(mark, f" {mark} ")
    return clause.replace("<  =", "<=").replace(">  =", ">=").replace("<  >", "<>").split()


class RandomClause:
    """A random clause over rows with `kind` and `price`, with repetitions of parts that can match no row."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.used: list[str] = []
        self.has_exclusion = False
        pattern = self._choice(3)
        self.used = sorted(set(self.used)) or ["A"]
        pattern = pattern if any(name in pattern for name in "ABC") else f"{pattern} A"
        rows = draw.choice(["ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ALL ROWS PER MATCH OMIT EMPTY MATCHES"])
        if draw.random() < 0.2 and not self.has_exclusion:
            rows = "ALL ROWS PER MATCH WITH UNMATCHED ROWS"
        target = draw.choice(self.used)
        skip = draw.choice(["PAST LAST ROW", "TO NEXT ROW", f"TO FIRST {target}", f"TO LAST {target}"])
        within = draw.choice(["", "", "WITHIN 4 seconds"])
        define = ", ".join(f"{name} AS {self._condition(name)}" for name in self.used if draw.random() < 0.9)
        subset = f"SUBSET U = ({', '.join(self.used)})" if draw.random() < 0.4 else ""
        self.columns = ["match_start", *("ts" for _ in range(rows != "ONE ROW PER MATCH")), "x", "y", "m"]
        measures = f"{self._measure(subset)} AS x, {self._measure(subset)} AS y, match_number() AS m"
        self.text = (
            f"ORDER BY ts MEASURES {measures} {rows} AFTER MATCH SKIP {skip} PATTERN ({pattern}) {within} {subset} "
            f"{define and 'DEFINE'} {define}"
        )

    def _choice(self, depth: int) -> str:
        return " | ".join(self._sequence(depth) for _ in range(self.draw.choice([1, 1, 2])))

    def _sequence(self, depth: int) -> str:
        return " ".join(self._quantified(depth) for _ in range(self.draw.randint(1, 3)))

    def _quantified(self, depth: int) -> str:
        kind = self.draw.random()
        if kind < 0.04:
            return self.draw.choice(["^", "$", "()"])
        if kind < 0.08 and self.draw.random() < 0.5:
            self.used += ["A", "B"]
            return "PERMUTE(A, B)"
        if depth and kind < 0.4:
            part = self._choice(depth - 1)
            self.has_exclusion |= kind < 0.12
            part = f"{{- {part} -}}" if kind < 0.12 else f"({part})"
        else:
            part = self.draw.choice("ABC")
            self.used.append(part)
        mark = self.draw.choice(["", "", "*", "+", "?", "{2}", "{1,2}", "{,2}", "{2,}"])
        return part + mark + ("?" if mark and self.draw.random() < 0.4 else "")

    def _condition(self, name: str) -> str:
        other = self.draw.choice(self.used)
        return self.draw.choice(
            [
                f"kind = '{name.lower()}'", f"kind <> '{name.lower()}'", "price > 1", f"price >= prev({name}.price)",
                f"price <> {other}.price OR {other}.price IS NULL", f"count({other}.*) < 3", "sum(price) < 7",
                "price > first(price)", "next(price) > price", f"price = last({other}.price, 1)",
                "prev(price, 2) IS NULL",
            ]
        )  # fmt: skip

    def _measure(self, subset: str) -> str:
        name = "U" if subset and self.draw.random() < 0.5 else self.draw.choice(self.used)
        measure = self.draw.choice(
            [
                "count(*)", f"count({name}.*)", f"sum({name}.price)", f"first({name}.price, 1)", f"last({name}.price)",
                f"{name}.price", f"max({name}.price)",
            ]
        )  # fmt: skip
        if self.draw.random() < 0.25 and "(" in measure:
            return f"FINAL {measure}"
        others = ["classifier()", f"classifier({name})", "prev(price, 2)", "next(price)"]
        others += [f"next(first({name}.price, 1), 2)", f"prev(FINAL last({name}.price), 1)"]
        return self.draw.choice([measure, measure, *others])


@pytest.mark.parametrize("part", range(4))
def test_random_clauses_have_the_rows_of_the_definition(part: int, rounds: Rounds) -> None:
    """Rows arrive in any order, with watermarks between them and a restart; some queries correct their matches."""
    compared, seeds = 0, rounds(40)
    for seed in seeds:
        draw = Random(f"row pattern {part} {seed}")
        clause = RandomClause(draw)
        rows = tuple(
            {"ts": second * SECOND, "kind": draw.choice("aab"), "price": draw.choice([0, 1, 2, 3, None])}
            for second in range(draw.randint(1, 8))
        )
        case = PatternCase("random", f"{part} {seed}", rows, clause.text, tuple(clause.columns), ())
        expected = cells(case.columns, answer(clause_of(case), rows))
        has_changes = draw.random() < 0.3
        try:
            run = Run(case, case.query() + " EMIT CHANGES" * has_changes)
        except QueryError as error:
            assert "a pattern that no rows match" in str(error), case.clause  # noqa: PT017  # of random anchors
            continue
        arrivals = disordered(draw, rows)
        answers = run.rows(arrivals, draw.randint(0, len(arrivals)))
        found = added_up(case, answers) if has_changes else cells(case.columns, answers)
        assert found == expected, f"{case.title}: {case.clause}\n{rows}"
        compared += bool(expected)
    assert compared > len(seeds) / 4
