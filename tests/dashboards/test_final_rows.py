"""`--final-to`: the final rows of a query with changes, in the pass that returns the changes.

The tests detect a final row that a later change corrects, a row that is missing at the end, rows that are counted
twice, and a file that appears although the query failed.
"""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from capture.errors import InputError
from dashboards import request
from dashboards.final_rows import FinalRows
from highlevel.metrics import LATE_PARTIALS
from tests.harness.command_line import run
from tests.harness.disordered_links import write_disordered

GROUPS = "SELECT srcIP, count(*) AS n [RANGE 10 seconds] FROM packets GROUP BY srcIP"
CLAUSES = ["", "WITH CONSISTENCY (WAIT 1 second, REMEMBER 3 seconds)", "WITH CONSISTENCY (REMEMBER 1 hour)"]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packets that are up to 12 seconds late."""
    return write_disordered(tmp_path_factory.mktemp("final") / "late.pcap", Random(4), packets=20_000, late=12)


def rows_of(text: str) -> Counter[str]:
    return Counter(text.splitlines())


@pytest.mark.parametrize("clause", CLAUSES)
def test_the_file_has_the_rows_of_emit_final_and_the_output_the_changes(capture: Path, clause: str) -> None:
    file = capture.parent / "final.jsonl"
    arguments = ("--format", "json", "--threads", "1")
    status, changes, errors = run(
        "query", capture, f"{GROUPS} {clause} EMIT CHANGES", "--final-to", file, *arguments, cwd=capture.parent
    )
    assert status == 0, errors
    _, alone, errors_alone = run("query", capture, f"{GROUPS} {clause} EMIT CHANGES", *arguments, cwd=capture.parent)
    assert (changes, errors) == (alone, errors_alone), "the file changes neither the output nor the warnings"
    emit = f"{clause} EMIT FINAL" if clause else ""
    _, final, _ = run("query", capture, f"{GROUPS} {emit}", *arguments, cwd=capture.parent)
    assert rows_of(file.read_text()) == rows_of(final)
    totals: Counter[tuple] = Counter()
    for *row, weight, _ in (json.loads(line).values() for line in changes.splitlines()):
        totals[tuple(row)] += weight
    assert +totals == Counter(tuple(json.loads(line).values()) for line in final.splitlines())


def test_late_rows_are_counted_once_and_times_are_times(capture: Path, tmp_path: Path) -> None:
    clause = "WITH CONSISTENCY (REMEMBER 1 second) EMIT CHANGES"
    plan, inputs = request.bind(f"{GROUPS} {clause}", "outer", None, [capture], {}, False)
    samples = []
    rows = FinalRows(tmp_path / "final.parquet", plan, None, live=False)
    with rows.answer(inputs, None, 1, None, None) as answer:
        list(answer.batches)
        samples.append(answer.samples())
    from dashboards.answer import answer as answer_alone

    with answer_alone(plan, inputs, threads=1) as alone:
        list(alone.batches)
        samples.append(alone.samples())
    late, expected = (each.total(LATE_PARTIALS) for each in samples)
    assert late == expected > 0
    assert str(pq.read_schema(tmp_path / "final.parquet").field("window_end").type) == "timestamp[ns, tz=UTC]"


@pytest.mark.parametrize(
    ("sql", "name", "message"),
    [
        (GROUPS, "final.csv", "got a query without changes, expected EMIT CHANGES at its end"),
        (f"{GROUPS} EMIT CHANGES", "final.csv.gz", "expected a name with one of .txt, .csv, .json"),
        (f"{GROUPS} EMIT CHANGES", "none/final.csv", "cannot be written: No such file"),
        ("SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP", "final.om", "got a query without changes"),
    ],
)
def test_what_has_no_final_rows_is_refused(capture: Path, sql: str, name: str, message: str, tmp_path: Path) -> None:
    status, text, errors = run("query", capture, sql, "--final-to", tmp_path / name, "--format", "csv", cwd=tmp_path)
    assert (status != 0, text) == (True, "")
    assert message in " ".join(errors.split())
    assert list(tmp_path.iterdir()) == []


LOG = """{"ts": "2024-05-01T10:00:01Z", "n": 1}
{"ts": "2024-05-01T10:01:40Z", "n": 2}
{"ts": "2024-05-01T10:00:09Z", "n": 4}
"""


def test_a_table_has_a_file_of_final_rows_too(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(LOG)
    (tmp_path / "schema").write_text("PROTOCOL log { TIME ts (banded_increasing(5 minutes)); UINT n; }")
    sql = "SELECT sum(n) AS total FROM log [RANGE 1 minute]"
    arguments = ("--schema", "schema", "--format", "csv", "--final-to", "final.csv")
    status, changes, errors = run("query", "log.jsonl", f"{sql} EMIT CHANGES", *arguments, cwd=tmp_path)
    assert (status, errors) == (0, "")
    assert changes.splitlines()[0] == "window_start,window_end,total,weight,final"
    _, final, _ = run("query", "log.jsonl", sql, "--schema", "schema", "--format", "csv", cwd=tmp_path)
    assert (tmp_path / "final.csv").read_text() == final
    assert [line.split(",")[-1] for line in final.splitlines()] == ["total", "5", "2"]
    for query, file in ((sql, "other.csv"), (f"{sql} EMIT CHANGES", "answer.csv")):
        options = ("--schema", "schema", "-o", "answer.csv", "--final-to", file)
        status, _, errors = run("query", "log.jsonl", query, *options, cwd=tmp_path)
        assert status != 0, errors
        assert not (tmp_path / file).exists()


def test_an_output_never_replaces_an_input_or_another_output(capture: Path, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(LOG)
    (tmp_path / "other.jsonl").symlink_to("log.jsonl")
    (tmp_path / "sub").mkdir()
    (tmp_path / "schema").write_text("PROTOCOL log { TIME ts (banded_increasing(5 minutes)); UINT n; }")
    sql = "SELECT sum(n) AS total FROM log [RANGE 1 minute] EMIT CHANGES"
    for options, message in (
        (("--final-to", "log.jsonl"), "--final-to log.jsonl: got the input"),
        (("-o", "other.jsonl"), "--output other.jsonl: got the input"),
        (("-o", "same.csv", "--final-to", "sub/../same.csv"), "got the file of --output"),
    ):
        status, text, errors = run("query", "log.jsonl", sql, "--schema", "schema", *options, cwd=tmp_path)
        assert (status, text) == (2, "")
        assert message in " ".join(errors.split())
        assert (tmp_path / "log.jsonl").read_text() == LOG
    content = capture.read_bytes()
    status, _, errors = run("query", capture, GROUPS, "-o", capture, "--format", "csv", cwd=tmp_path)
    assert (status, capture.read_bytes() == content) == (2, True), errors
    assert "got the input" in errors
    assert (
        run("query", "log.jsonl", sql, "--schema", "schema", "-o", "/dev/null", "--final-to", "new.csv", cwd=tmp_path)[
            0
        ]
        == 0
    )


def test_an_error_of_the_file_ends_the_query(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InputError("the disk is full")

    monkeypatch.setattr("dashboards.final_rows.write_answer", fail)
    plan, inputs = request.bind(f"{GROUPS} EMIT CHANGES", "outer", None, [capture], {}, False)
    rows = FinalRows(tmp_path / "final.csv", plan, None, live=False)
    with pytest.raises(InputError, match="the disk is full"), rows.answer(inputs, None, 1, None, None) as answer:
        list(answer.batches)
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_fails_leaves_no_file(capture: Path, tmp_path: Path) -> None:
    plan, inputs = request.bind(f"{GROUPS} EMIT CHANGES", "outer", None, [capture], {}, False)
    rows = FinalRows(tmp_path / "final.csv", plan, None, live=False)
    with pytest.raises(RuntimeError), rows.answer(inputs, None, 1, None, None):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
