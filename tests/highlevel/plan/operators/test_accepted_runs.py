"""The operator of AUTOMATON: a file of arcs that changes while rows arrive (ARCS FROM), restarts, and its meters.

Finds: an arc that applies to rows before it was added, an arc with FROM that misses the rows in memory, a removed arc
whose results stay, an arc that a restart applies to other rows, and a wrong file that ends the query, that changes arcs
or that is not counted.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from capture.metrics import Samples
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.automaton_nodes import AcceptedRuns
from highlevel.plan.nodes import nodes_of
from highlevel.plan.operators.accepted_runs import AcceptedRunsOperator
from lowlevel.metrics import WATCHLIST_ENTRIES, WATCHLIST_FAILED, WATCHLIST_RELOADS
from lowlevel.node.node_watchlists import bind_watchlists, count_files, find_watched_files
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import END, Punctuation
from lowlevel.watch import watched_file
from lowlevel.watch.watched_file import Watchlists
from queries.gsql import compile_query
from queries.plans import arcs
from tests.harness.live_pipes import AGREED, START, Pipe
from tests.references.operator_contract import through_ipc

SECOND = 10**9
VERSIONS = count(1)

HITS = """SELECT match_start, match_end, rule FROM (SELECT ts, srcPort, len FROM packets) AUTOMATON (
    ORDER BY ts REGISTER rule INT START idle FINAL hit ARCS FROM '{0}' WITHIN 100 seconds)"""
CHANGES = " WITH CONSISTENCY (WAIT 0, REMEMBER FOREVER) EMIT CHANGES"

SEVEN = "ARC idle TO hit WHEN srcPort = 7 SET rule = 7"


@pytest.fixture(autouse=True)
def _checks_without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_file, "CHECK_INTERVAL", -1.0)


def write(file: Path, text: str) -> None:
    """Rename a new version over the file."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.utime(new, ns=(0, next(VERSIONS)))  # the clock of the file system is too coarse to tell versions apart
    new.replace(file)


def file_counts(samples: Samples) -> tuple[float, float, float]:
    """Return the arcs of the file, its reloads and its failed reloads by the high level."""
    entries, reloads, failed = (
        samples.total(metric, link="") for metric in (WATCHLIST_ENTRIES, WATCHLIST_RELOADS, WATCHLIST_FAILED)
    )
    return entries, reloads, failed


class Stream:
    """The operator of a query with its file of arcs. Times are seconds."""

    def __init__(self, sql: str, file: Path, text: str = "") -> None:
        self.file = file
        self.write(text)
        plan = compile_query(sql.format(file), "q")
        (self.node,) = (node for node in nodes_of(plan.root) if isinstance(node, AcceptedRuns))
        self.operator = self._operator()
        self.total: Counter[tuple[Any, ...]] = Counter()

    def _operator(self) -> AcceptedRunsOperator:
        self.lists = Watchlists(is_followed=True)
        self.lists.read(find_watched_files(self.node))
        return AcceptedRunsOperator(bind_watchlists(self.node, self.lists))

    def write(self, text: str) -> None:
        write(self.file, text)

    @property
    def counts(self) -> tuple[float, float, float]:
        """The arcs of the file, its reloads, and its failed reloads."""
        samples = Samples()
        count_files(samples, self.lists.checked)
        return file_counts(samples)

    def restart(self) -> None:
        tables = through_ipc(self.operator.snapshot())
        self.operator = self._operator()
        self.operator.restore(tables)

    def add(self, *rows: tuple[int, int]) -> list[tuple[Any, ...]]:
        """Add rows of a time and a port. Return the changes of results."""
        columns = {"ts": [time * SECOND for time, _ in rows], "srcPort": [port for _, port in rows]}
        arrays = [
            pa.array(columns.get(column.name, [0] * len(rows)), pa.int64()).cast(ARROW_TYPES[column.type])
            for column in self.node.input.columns
        ]
        schema = pa.schema([pa.field(each.name, ARROW_TYPES[each.type]) for each in self.node.input.columns])
        return self._changes(self.operator.process_rows(0, pa.RecordBatch.from_arrays(arrays, schema=schema)))

    def punctuate(self, time: int) -> list[tuple[Any, ...]]:
        return self._changes(self.operator.punctuate(0, Punctuation("a", END if time == END else time * SECOND)))

    def _changes(self, items: Iterator[Any]) -> list[tuple[Any, ...]]:
        """Return (weight, last row, rule) of each change."""
        found = []
        for batch in items:
            if isinstance(batch, pa.RecordBatch):
                for row in batch.to_pylist():
                    change = row.get("weight", 1), row["match_end"] // SECOND, row["rule"]
                    self.total[change[1:]] += change[0]
                    found.append(change)
        return sorted(found)


def test_A07_an_arc_without_times_applies_after_the_newest_row(tmp_path: Path) -> None:
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs")
    assert stream.add((1, 7), (5, 7)) == []
    stream.write(SEVEN)
    assert stream.add((3, 7), (5, 7)) == []  # late rows use the arcs of their time
    assert stream.add((6, 7)) == [(1, 6, 7)]
    stream.write("")
    assert stream.add((8, 7), (4, 7)) == []
    assert stream.add((6, 7)) == [(1, 6, 7)]  # a late row still uses the removed arc; it has another place


def test_A08_an_arc_from_an_earlier_time_finds_the_rows_in_memory_and_its_removal_withdraws_them(
    tmp_path: Path,
) -> None:
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs")
    stream.add((1, 7), (5, 7), (6, 8), (9, 7))
    stream.write(f"{SEVEN} FROM '1970-01-01T00:00:05Z';")
    assert stream.add() == [(1, 5, 7), (1, 9, 7)]
    stream.write(f"{SEVEN} FROM '1970-01-01T00:00:05Z' TO '1970-01-01T00:00:09Z'")
    assert stream.add((7, 7)) == [(-1, 9, 7), (1, 7, 7)]
    stream.write("")
    stream.add((6, 7))
    assert +stream.total == Counter()
    assert not -stream.total


def test_A08_rows_below_the_watermark_keep_their_results(tmp_path: Path) -> None:
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs", f"{SEVEN} FROM '1970-01-01'")
    assert stream.add((1, 7), (5, 7)) == [(1, 1, 7), (1, 5, 7)]
    stream.punctuate(4)
    stream.write("ARC idle TO hit WHEN srcPort = 8 SET rule = 8 FROM '1970-01-01'")
    stream.add((1, 8), (4, 8), (6, 7))
    assert +stream.total == Counter({(1, 7): 1, (4, 8): 1})


def test_A08_an_arc_to_a_new_state_continues_runs_in_memory(tmp_path: Path) -> None:
    begin = "ARC idle TO seen WHEN srcPort = 1 SET rule = len"
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs", begin)
    assert stream.add((1, 1), (2, 2), (3, 3)) == []
    more = "ARC seen TO more WHEN srcPort = 2 FROM '1970-01-01'; ARC more TO hit WHEN srcPort = 3 SET rule = rule + 5"
    stream.write(f"{begin}; {more} FROM '1970-01-01'")
    assert stream.add() == [(1, 3, 5)]


def test_EX5_A07_a_count_that_changes_in_the_file_counts_for_runs_that_have_begun(tmp_path: Path) -> None:
    sql = HITS.replace("ARCS FROM", "ARC idle TO seen SET rule = 1 ARCS FROM")
    rules = "ARC seen TO seen WHEN rule < {0} SET rule = rule + 1; ARC seen TO hit WHEN rule = {0}"
    stream = Stream(sql + CHANGES, tmp_path / "r.arcs", rules.format(2))
    assert stream.add((1, 0), (2, 0)) == []
    stream.write(rules.format(3))
    assert stream.add((3, 0)) == []
    assert stream.add((4, 0)) == [(1, 4, 3)]


@pytest.mark.parametrize("restarts", [0, 1])
def test_A08_a_version_that_spells_a_state_otherwise_continues_the_same_runs(tmp_path: Path, restarts: int) -> None:
    sql = HITS.replace("FINAL hit", "FINAL done")
    arcs = "ARC idle TO Seen WHEN srcPort = 1;\nARC seen TO done WHEN srcPort = 2 SET rule = 2;\n"
    stream = Stream(sql + CHANGES, tmp_path / "r.arcs", arcs)
    stream.add((1, 1))
    stream.write(f"ARC idle TO SEEN WHEN srcPort = 5;\n{arcs}")
    for _ in range(restarts):
        stream.restart()
    assert stream.add((2, 2)) == [(1, 2, 2)]
    assert stream.add((3, 5), (4, 2)) == [(1, 4, 2)]
    stream.write("")  # the state is in no arc, but has a run in memory
    stream.add((5, 1))
    stream.write("ARC idle TO SEEN WHEN srcPort = 5")
    stream.add((6, 5))
    for _ in range(restarts):
        stream.restart()
    stream.write("ARC idle TO SEEN WHEN srcPort = 5; ARC SEEN TO done WHEN srcPort = 3 SET rule = 3")
    assert stream.add((7, 3)) == [(1, 7, 3)]


def test_a_run_is_a_partial_match_only_until_its_deadline_and_a_field_may_have_the_name_state(tmp_path: Path) -> None:
    sql = """SELECT match_start, match_end, rule FROM (SELECT ts, srcPort, len FROM packets) AUTOMATON (
        ORDER BY ts REGISTER rule INT, state TIME START idle FINAL missing
        ARC idle TO waiting WHEN srcPort = 1 SET state = ts
        ARC waiting TO waiting WHEN srcPort = 2
        ARC waiting TO missing AT state + INTERVAL '3 seconds' WITHIN 100 seconds)"""
    stream = Stream(sql + CHANGES, tmp_path / "r.arcs")
    stream.add((1, 1), (2, 2))
    (run,) = stream.operator.list_partial_matches().to_pylist()
    assert (run["run_state"], run["match_end"]) == ("waiting", 2 * SECOND)
    assert stream.operator.partial_matches.number == 1
    stream.add((5, 2))
    assert stream.operator.list_partial_matches().to_pylist() == []
    assert stream.operator.partial_matches.number == 0


def test_A08_a_condition_of_a_file_may_have_thousands_of_parts(tmp_path: Path) -> None:
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs")
    parts = " AND ".join(f"srcPort <> {port}" for port in range(1000, 3000))
    stream.write(f"ARC idle TO hit WHEN {parts} SET rule = 1")
    assert stream.add((1, 7), (2, 1000)) == [(1, 1, 1)]


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_A08_a_restart_keeps_the_times_of_arcs(tmp_path: Path, restarts: int) -> None:
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs")
    steps: list[tuple[str | None, list[tuple[int, int]]]] = [
        (None, [(1, 7), (2, 8)]),
        (SEVEN, [(4, 7), (1, 7)]),
        (f"{SEVEN}; ARC idle TO hit WHEN srcPort = 8 SET rule = 8 FROM '1970-01-01T00:00:02Z'", [(5, 8)]),
        ("", [(3, 7), (6, 7), (1, 8)]),
        (SEVEN, [(5, 7), (8, 7)]),
    ]
    for text, rows in steps:
        if text is not None:
            stream.write(text)
        stream.add(*rows)
        for _ in range(restarts):
            stream.restart()
    assert +stream.total == Counter({(4, 7): 1, (3, 7): 1, (5, 7): 1, (8, 7): 1})


def test_A08_without_changes_an_arc_applies_to_rows_that_wait(tmp_path: Path) -> None:
    stream = Stream(HITS, tmp_path / "r.arcs")
    stream.add((1, 7), (5, 7))
    assert stream.punctuate(3) == []
    stream.write(f"{SEVEN} FROM '1970-01-01'; ARC idle TO hit WHEN srcPort = 7 SET rule = 0")
    stream.add((6, 7))
    stream.restart()
    assert stream.punctuate(END) == [(1, 5, 7), (1, 6, 0), (1, 6, 7)]


def test_A08_a_wrong_file_leaves_the_arcs_as_they_were(tmp_path: Path) -> None:
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs", SEVEN)
    stream.write("ARC idle TO hit WHEN port = 7")
    with pytest.warns(
        RuntimeWarning, match=r"r\.arcs: line 1, column 22: unknown column 'port'.*the arcs stay as they were"
    ):
        assert stream.add((1, 7)) == [(1, 1, 7)]
    stream.write("")
    assert stream.add((2, 7)) == []


EIGHT = "ARC idle TO hit WHEN srcPort = 8 SET rule = 8"

WRONG_VERSIONS = {
    "cut in a word": (f"{SEVEN};\nARC idle TO hit WH", "line 2, column 17: "),
    "cut in an expression": (f"{SEVEN};\n\nARC idle TO hit WHEN srcPort =", "line 3, column 31: "),
    "cut in a text": (f"{SEVEN};\n{EIGHT} FROM '1970-0", "line 2, column 52: "),
    "cut in a comment": (f"{SEVEN};\n/* rules of", "line 2, column 1: "),
    "another type": (f"{SEVEN};\n{EIGHT};\nARC idle TO hit WHEN srcPort SET rule = 1", "line 3, column 22: "),
    "an unknown field": (f"{SEVEN};\n{EIGHT}, rules = 1", "line 2, column 48: "),
    "a function of earlier rows": (f"{SEVEN};\n{EIGHT};\n\nARC idle TO hit WHEN exp(rule) > 1", "line 4, column 5: "),
    "bytes": (f"{SEVEN};\n{EIGHT};\n\0", "line 3, column 1: "),
}


@pytest.mark.parametrize("name", WRONG_VERSIONS)
def test_A08_each_wrong_version_is_counted_and_reported_once_with_its_line(name: str, tmp_path: Path) -> None:
    text, line = WRONG_VERSIONS[name]
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs", SEVEN)
    assert stream.add((1, 7)) == [(1, 1, 7)]
    for attempt in (1, 2):
        stream.write(text)
        with warnings.catch_warnings(record=True) as printed:
            warnings.simplefilter("default")  # which prints a text once for each place in a module
            for time in (2, 3, 4):
                assert stream.add((attempt * 10 + time, 7), (attempt * 10 + time, 8)) == [(1, attempt * 10 + time, 7)]
        (message,) = printed
        assert str(message.message).startswith(f"{stream.file}: {line}"), message
        assert str(message.message).endswith("; the arcs stay as they were")
        assert stream.counts == (1, attempt - 1, attempt)
        stream.write(f"-- {attempt}\n{SEVEN}")
        assert stream.add((attempt * 10 + 5, 7)) == [(1, attempt * 10 + 5, 7)]
    stream.write(f"{SEVEN};{EIGHT}")
    assert stream.add((31, 7), (31, 8)) == [(1, 31, 7), (1, 31, 8)]
    assert stream.counts == (2, 3, 2)


def test_A08_an_arc_from_the_target_of_a_deadline_is_refused_with_its_line(tmp_path: Path) -> None:
    sql = HITS.replace(
        "rule INT START idle FINAL hit",
        """rule INT, due TIME START idle FINAL hit, missing
        ARC idle TO waiting WHEN srcPort = 1 SET due = ts ARC waiting TO missing AT due + INTERVAL '5 seconds'""",
    )
    stream = Stream(sql + CHANGES, tmp_path / "r.arcs", SEVEN)
    stream.write(f"{SEVEN};\n\nARC missing TO hit WHEN srcPort = 9")
    with pytest.warns(RuntimeWarning, match=r"line 3, column 5: a deadline from waiting to missing; expected a final"):
        assert stream.add((1, 7)) == [(1, 1, 7)]


def test_A08_each_removal_of_the_file_is_counted_and_reported_once(tmp_path: Path) -> None:
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs", SEVEN)
    kept = tmp_path / "kept"
    for attempt in (1, 2):
        stream.file.rename(kept)
        with warnings.catch_warnings(record=True) as printed:
            warnings.simplefilter("default")
            for time in (1, 2, 3):
                assert stream.add((attempt * 10 + time, 7)) == [(1, attempt * 10 + time, 7)]
        (message,) = printed
        problem = (
            f"{stream.file}: cannot be read as a file of arcs: No such file or directory; the arcs stay as they were"
        )
        assert str(message.message) == problem
        assert stream.counts == (1, 0, attempt)
        kept.rename(stream.file)
        assert stream.add((attempt * 10 + 4, 7)) == [(1, attempt * 10 + 4, 7)]
    stream.write("")
    assert stream.add((31, 7)) == []
    assert stream.counts == (0, 1, 2)


def test_A08_several_queries_report_a_wrong_version_once(tmp_path: Path) -> None:
    streams = [Stream(HITS + end, tmp_path / "r.arcs", SEVEN) for end in (CHANGES, "")]
    streams[0].write("ARC idle")
    with warnings.catch_warnings(record=True) as printed:
        warnings.simplefilter("default")
        for stream in streams:
            stream.add((1, 7))
            assert stream.counts == (1, 0, 1)
    assert len(printed) == 1


def test_A08_a_live_query_continues_with_its_arcs_and_its_counters_show_wrong_versions(tmp_path: Path) -> None:
    file, pipe = tmp_path / "r.arcs", Pipe(tmp_path / "pipe")
    write(file, "ARC idle TO hit SET rule = 1")
    run = InlineRun([compile_query(HITS.format(file), "q")], [Input("tap", pipe.path)], slack=0)
    results = ((row["match_end"], row["rule"]) for _, batch in run.results() for row in batch.to_pylist())
    pipe.write(*[1] * AGREED)
    steps: list[tuple[str | None, int, str, tuple[int, int, int]]] = [
        ("ARC idle TO hit SET rule = 2", 2, "", (1, 1, 0)),
        ("ARC idle TO hit\nSET rule =", 2, "line 2", (1, 1, 1)),
        (None, 2, "cannot be read", (1, 1, 2)),
        ("ARC idle TO hit SET rule = 3; ARC idle TO hit SET rule = 3", 3, "", (1, 2, 2)),
    ]
    for number, (text, rule, problem, counts) in enumerate(steps, 1):
        if text is None:
            file.unlink()
        else:
            write(file, text)
        with warnings.catch_warnings(record=True) as printed:
            warnings.simplefilter("always")
            pipe.write(number * 10, number * 10 + 1)
            assert next(used for time, used in results if time == START + number * 10 * SECOND) == rule
        assert [problem in str(each.message) for each in printed] == ([True] if problem else [])
        assert file_counts(run.samples()) == counts
    pipe.close()
    assert [rule for _, rule in results] == [3]


def test_A08_a_misspelt_state_in_the_file_is_one_warning_with_its_line(tmp_path: Path) -> None:
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs", SEVEN)
    idel = "ARC idel\n  TO hit WHEN srcPort = 8"
    versions = (f"\n\n{idel}", f"{EIGHT};\n{idel}; {idel} SET rule = 3", f"{idel}; ARC Hot TO hit", "", idel)
    printed = [warnings_of(stream, time, f"{SEVEN};{text}") for time, text in enumerate(versions, 1)]
    of_state = "{0}: line {1}: an arc leaves '{2}', which no run reaches; expected an arc TO {2}".format
    expected = [[(3, "idel")], [], [(2, "Hot")], [], [(1, "idel")]]
    assert printed == [[of_state(stream.file, line, state) for line, state in found] for found in expected]


def warnings_of(stream: Stream, time: int, text: str) -> list[str]:
    """Write a version, use it, and return the warnings."""
    stream.write(text)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for row in range(2):
            assert (1, time * 10 + row, 7) in stream.add((time * 10 + row, 7))
    return [str(each.message) for each in found]


def test_A08_a_file_has_at_most_20000_arcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arcs, "MAX_ARCS", 3)
    texts = [f"ARC idle TO hit WHEN srcPort = {port} SET rule = {port}" for port in range(4)]
    stream = Stream(HITS + CHANGES, tmp_path / "r.arcs", ";".join([*texts[:3], texts[0]]))
    stream.write(";".join(texts))
    with pytest.warns(RuntimeWarning, match="got 4 arcs in a file, expected at most 3"):
        assert stream.add((1, 2), (2, 3)) == [(1, 1, 2)]


def test_A20_the_meters_count_rows_changes_late_rows_and_memory(tmp_path: Path) -> None:
    stream = Stream(HITS.replace("ARCS FROM", "ARC idle TO seen ARCS FROM") + CHANGES, tmp_path / "r.arcs", SEVEN)
    operator = stream.operator
    stream.add((1, 0), (5, 7), (6, 0))
    # A row begins a run in `seen`, and the row with port 7 also one in `hit`.
    assert (operator.received, operator.results, operator.late, operator.rows_held) == (3, 1, 0, 4)
    memory = operator.bytes
    stream.punctuate(6)
    stream.add((2, 7), (8, 7))
    assert (operator.received, operator.results, operator.late) == (5, 2, 1)
    stream.add(*((10 + second % 80, 0) for second in range(9_000)))
    assert operator.rows_held > 9_000
    assert operator.bytes > memory
    stream.punctuate(END)
    assert operator.rows_held == 0


def test_A10_rows_that_wait_longer_cause_fewer_corrections_and_none_if_they_wait_for_the_watermark(
    tmp_path: Path,
) -> None:
    draw = Random("sigma")
    rows = [(time, draw.choice((1, 2, 3))) for time in range(200)]
    late = sorted(rows, key=lambda row: row[0] + draw.choice((0, 0, 0, 5, 30)))
    text = "ARC idle TO seen WHEN srcPort = 1 SET rule = len; ARC seen TO hit WHEN srcPort = 2"
    withdrawn, totals = [], []
    for wait in ("0", "10 seconds", "FOREVER"):
        stream = Stream(
            f"{HITS} WITH CONSISTENCY (WAIT {wait}, REMEMBER FOREVER) EMIT CHANGES", tmp_path / "r.arcs", text
        )
        changes = [change for row in late for change in stream.add(row)] + stream.punctuate(END)
        withdrawn.append(sum(weight < 0 for weight, *_ in changes))
        totals.append(+stream.total)
    expected = Counter((time, 0) for (_, one), (time, two) in pairwise(rows) if (one, two) == (1, 2))
    assert totals == [expected] * 3
    assert withdrawn[0] > withdrawn[1] > withdrawn[2] == 0
