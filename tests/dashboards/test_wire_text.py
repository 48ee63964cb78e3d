"""Text from the wire in every output: tables, CSV, JSON, console lines and messages. Some formats keep it exactly.

Real captures carry the texts: a pcapng file whose interface has a hostile name, and a file with a hostile name.
"""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dashboards.monitors.window_lines import window_lines
from dashboards.output.formats import Format
from dashboards.output.table import align_table
from dashboards.output.writers import write_results
from dashboards.wire_text import (
    ESCAPED,
    escape,
    escape_column,
    escape_json,
    escape_lines,
    neutralise,
    neutralise_column,
)
from queries.gsql import compile_query
from tests.harness.command_line import run
from tests.references.pcapng_bytes import enhanced, interface, section

HOSTILE = {
    "\x1b]0;owned\x07\x1b[2J": r"\x1b]0;owned\x07\x1b[2J",
    "a\x00b": r"a\x00b",
    "a\r\nwiretide: warning: forged": r"a\r\nwiretide: warning: forged",
    "\x9b31m": r"\x9b31m",
    "abc\u202egpj.exe": r"abc\u202egpj.exe",
    "\u2066x\u2069\ufeff": r"\u2066x\u2069\ufeff",
    "line\u2028two": r"line\u2028two",
    "\U000e0041": r"\U000e0041",
    "\t=1+1": r"\t=1+1",
}
FORMULAS = {
    '=HYPERLINK("http://attacker.example","x")': '\'=HYPERLINK("http://attacker.example","x")',
    "+1+cmd|' /C calc'!A0": "'+1+cmd|' /C calc'!A0",
    "-2+3": "'-2+3",
    "@SUM(1)": "'@SUM(1)",
    "  =1": "'  =1",
    "\uff1d1+1": "'\uff1d1+1",
}
HARMLESS = ["", "eth0", "10.0.0.1", "2001:db8::1", "-5", "+1.5e-3", "a=b", "a-b", "Zürich – 日本", "back\\slash", "'"]


@pytest.mark.parametrize(("text", "safe"), HOSTILE.items())
def test_control_and_format_characters_are_escaped(text: str, safe: str) -> None:
    assert escape(text) == neutralise(text) == safe
    assert escape(safe) == safe


@pytest.mark.slow("every character of Unicode")
def test_no_character_that_a_terminal_obeys_is_left_of_all_that_there_are() -> None:
    everything = "".join(map(chr, range(0x110000)))
    assert {unicodedata.category(each) for each in escape(everything)} & set(ESCAPED) == set()
    texts = pa.array([chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000])
    assert escape_column(texts).to_pylist() == [escape(text) for text in texts.to_pylist()]
    assert neutralise_column(texts).to_pylist() == [neutralise(text) for text in texts.to_pylist()]


@pytest.mark.parametrize(("text", "safe"), FORMULAS.items())
def test_formulas_become_texts(text: str, safe: str) -> None:
    assert neutralise(text) == safe
    assert escape(text) == text


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_texts_and_numbers_stay_as_they_are(text: str) -> None:
    assert escape(text) == neutralise(text) == escape_lines(text) == escape_json(text) == text


def test_a_text_of_several_lines_stays_one() -> None:
    assert escape_lines("one\n  two\x1b\r\n") == "one\n  two\\x1b\\r\n"


COLUMN = [*HOSTILE, *FORMULAS, *HARMLESS, None]
SCHEMA = pa.schema([("=name", pa.string()), ("n", pa.int64())])


def written(kind: Format, **options: bool) -> bytes:
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([pa.array(COLUMN), pa.array([-5] * len(COLUMN))], schema=SCHEMA)
    write_results([batch], SCHEMA, kind, sink, **options)
    return sink.getvalue()


def test_csv_cells_are_neutralised_and_numbers_stay_numbers() -> None:
    rows = list(csv.reader(io.StringIO(written(Format.CSV).decode(), newline="")))
    assert rows[0] == ["'=name", "n"]
    assert rows[1:] == [[neutralise(text or ""), "-5"] for text in COLUMN]
    assert written(Format.CSV).count(b"\n") == len(COLUMN) + 1


def test_raw_csv_is_exact() -> None:
    rows = list(csv.reader(io.StringIO(written(Format.CSV, raw_csv=True).decode(), newline="")))
    assert rows == [["=name", "n"], *([text or "", "-5"] for text in COLUMN)]


def test_json_is_exact_for_programs_and_harmless_on_a_terminal() -> None:
    text = written(Format.JSON).decode()
    assert [json.loads(line)["=name"] for line in text.splitlines()] == COLUMN
    assert {unicodedata.category(each) for each in text.replace("\n", "")} & set(ESCAPED) == set()


@pytest.mark.parametrize("live", [False, True])
def test_a_table_has_a_line_for_each_row_and_nothing_that_moves_a_cursor(live: bool) -> None:
    lines = written(Format.TABLE, live=live).decode().rstrip("\n").split("\n")
    assert len(lines) == 2 + len(COLUMN)
    assert all({unicodedata.category(each) for each in line} & set(ESCAPED) == set() for line in lines)
    assert len({line.rindex("-5") for line in lines[2:]}) == 1


def test_parquet_and_arrow_are_exact() -> None:
    assert pq.read_table(io.BytesIO(written(Format.PARQUET)))["=name"].to_pylist() == COLUMN
    assert pa.ipc.open_stream(written(Format.ARROW)).read_all()["=name"].to_pylist() == COLUMN


def test_console_lines_and_summaries_are_escaped() -> None:
    plan = compile_query("SELECT link, count(*) AS n FROM packets [RANGE 1 s] GROUP BY link", "q")
    table = pa.table([[0], [10**9], ["a\x1b[2J\nforged"], [1]], schema=plan.schema)
    (line,) = window_lines(plan, table)
    assert line == r"1970-01-01T00:00:01Z  q: 1 row, link a\x1b[2J\nforged, n 1"
    assert align_table(["link"], [["a\x1b\n"]]) == "link\n-------\na\\x1b\\n"


EXACT = '=HYPERLINK("x")\x1b[2J\r\n\u202e'


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A capture whose name and whose interface's name are hostile."""
    path = tmp_path / "a\x1b[2J\nwiretide: forged.pcapng"
    path.write_bytes(section() + interface(name=EXACT) + enhanced(10**9, bytes(60)))
    return path


def test_a_query_over_a_hostile_capture_is_harmless_in_csv_and_exact_if_raw(capture: Path) -> None:
    sql = "SELECT interface, count(*) AS n FROM frames GROUP BY interface"
    for options, name in (((), neutralise(EXACT)), (("--raw-csv",), EXACT)):
        status, out, err = run("query", capture, sql, "--format", "csv", *options, cwd=capture.parent)
        assert (status, err) == (0, "")
        assert list(csv.reader(io.StringIO(out, newline=""))) == [["interface", "n"], [name, "1"]]


def test_names_of_files_cannot_forge_lines_of_messages(capture: Path) -> None:
    capture.write_bytes(b"no capture at all, and long enough to tell")
    status, out, err = run("query", capture, "SELECT count(*) FROM packets", cwd=capture.parent)
    assert (status, out) == (1, "")
    assert err.startswith("wiretide: ")
    assert r"a\x1b[2J\nwiretide: forged.pcapng" in err
    assert err.count("\n") == 1


def test_raw_csv_is_for_csv(tmp_path: Path) -> None:
    status, _, err = run("query", tmp_path, "SELECT count(*) FROM packets", "--raw-csv", cwd=tmp_path)
    assert status == 2
    assert "--raw-csv: got --format table" in err
