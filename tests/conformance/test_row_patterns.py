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


def every_case(page: str) -> list[PatternCase]:
    return [case for case in CASES if case.page == page]


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
def test_the_rows_in_batches_with_a_restart_between_them(page: str) -> None:
    for case in every_case(page):
        arrivals: list[Arrival] = []
        for row in sorted(case.rows, key=lambda row: row["ts"]):
            arrivals += [row["ts"], row]
        restart = Random(case.title).randint(0, len(arrivals))
        assert cells(case.columns, Run(case, case.query()).rows(arrivals, restart)) == sorted(case.answer), case.title


@pytest.mark.parametrize("page", PAGES)
def test_the_rows_reversed_with_corrections_and_a_restart(page: str) -> None:
    for case in every_case(page):
        run = Run(case, f"{case.query()} EMIT CHANGES")
        arrivals = sorted(case.rows, key=lambda row: -row["ts"])
        restart = Random(case.title).randint(0, len(arrivals))
        assert added_up(case, run.rows(arrivals, restart)) == sorted(case.answer), case.title


@pytest.mark.parametrize("page", PAGES)
def test_the_rows_shuffled(page: str) -> None:
    """Without corrections rows wait for the watermark; with corrections they are matched at once."""
    for case in every_case(page):
        draw = Random(case.title)
        arrivals: list[Arrival] = list(draw.sample(case.rows, len(case.rows)))
        for place in range(len(arrivals), 0, -1):
            later = [row["ts"] for row in arrivals[place:] if not isinstance(row, int)]
            if draw.random() < 0.4 and later:
                arrivals.insert(place, min(later))
        assert cells(case.columns, Run(case, case.query()).rows(arrivals)) == sorted(case.answer), case.title
        changes = Run(case, f"{case.query()} EMIT CHANGES").rows(arrivals)
        assert added_up(case, changes) == sorted(case.answer), case.title


@pytest.mark.parametrize("page", PAGES)
def test_the_rows_with_others_that_are_withdrawn(page: str) -> None:
    """Other rows have the values of rows, at the times of rows and between them. Half of the cases have corrections."""
    for case in every_case(page):
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
