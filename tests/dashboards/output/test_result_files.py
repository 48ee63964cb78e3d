"""Results as bytes: every format against what a reader of that format gets back, CSV and tables byte by byte.

The tests detect a NULL that is written as text, a time or an address that changes, and quoting that breaks a reader.
They detect a file that is visible before it is complete.
"""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet
import pytest

from capture.errors import InputError
from dashboards.output.formats import Format, Times
from dashboards.output.table import HEADER_EVERY, MEASURED_ROWS
from dashboards.output.writers import open_output, write_results
from highlevel.aggregation import BOUNDS
from highlevel.results.user_types import readable, readable_schema

SCHEMA = pa.schema(
    [
        ("window_start", pa.int64()),
        ("window_end", pa.int64()),
        ("srcIP", pa.binary()),
        ("link", pa.string()),
        ("packets", pa.int64()),
        ("mean", pa.float64()),
        ("big", pa.bool_()),
    ]
)
NAMES = SCHEMA.names
HEADER = b"window_start,window_end,srcIP,link,packets,mean,big\n"
ROWS = [
    (1_700_000_040 * 10**9, 1_700_000_100 * 10**9, "10.0.0.1", "Main1", 2**63 - 1, 0.1, True),
    (1_700_000_040 * 10**9, 1_700_000_100 * 10**9, "2001:db8::1", "Main 2", -5, None, False),
    (1_700_000_040 * 10**9, 1_700_000_100 * 10**9, None, None, None, 1e300, None),
]
LATER = [(1_700_000_100 * 10**9 + 5, 1_700_000_160 * 10**9, "0.0.0.0", 'a "b",\nc', 0, 2.0, True)]


def batch(rows: list[tuple]) -> pa.RecordBatch:
    packed = [(*row[:2], row[2] and ip_address(row[2]).packed, *row[3:]) for row in rows]
    return pa.RecordBatch.from_pylist([dict(zip(NAMES, row, strict=True)) for row in packed], schema=SCHEMA)


def written(kind: Format, *windows: list[tuple], style: Times | None = None) -> bytes:
    sink = io.BytesIO()
    write_results(iter([batch(rows) for rows in windows]), SCHEMA, kind, sink, times=BOUNDS, style=style)
    return sink.getvalue()


def table(*batches: pa.RecordBatch, times: tuple[str, ...] = (), live: bool = False) -> list[str]:
    """The lines of a table."""
    sink = io.BytesIO()
    write_results(iter(batches), batches[0].schema, Format.TABLE, sink, live=live, times=times)
    return sink.getvalue().decode().splitlines()


def test_csv_is_a_header_and_plain_rows() -> None:
    assert written(Format.CSV, ROWS) == HEADER + (
        b"1700000040000000000,1700000100000000000,10.0.0.1,Main1,9223372036854775807,0.1,true\n"
        b"1700000040000000000,1700000100000000000,2001:db8::1,Main 2,-5,,false\n"
        b"1700000040000000000,1700000100000000000,,,,1e+300,\n"
    )


def test_csv_quotes_what_needs_it() -> None:
    text = written(Format.CSV, ROWS, LATER).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == NAMES
    assert rows[4] == ["1700000100000000005", "1700000160000000000", "0.0.0.0", 'a "b",\\nc', "0", "2", "true"]
    assert '"a ""b"",\\nc"' in text
    assert "10.0.0.1,Main1" in text  # windows that need none are plain


def test_a_header_that_needs_quotes_gets_them() -> None:
    schema = pa.schema([("a,b", pa.int64()), ('c"', pa.int64())])
    sink = io.BytesIO()
    write_results(iter([]), schema, Format.CSV, sink)
    assert sink.getvalue() == b'"a,b","c"""\n'


def test_json_is_an_object_per_line() -> None:
    lines = written(Format.JSON, ROWS, LATER).decode().splitlines()
    assert [json.loads(line) for line in lines] == [dict(zip(NAMES, row, strict=True)) for row in ROWS + LATER]
    assert lines[0].startswith('{"window_start": 1700000040000000000, ')


@pytest.mark.parametrize(("kind", "quote"), [(Format.CSV, ""), (Format.JSON, '"')])
def test_times_of_text_formats_are_iso_if_the_user_says_so(kind: Format, quote: str) -> None:
    lines = written(kind, ROWS, [(LATER[0][0], None, *ROWS[0][2:])], style=Times.ISO).decode().splitlines()
    assert f"{quote}2023-11-14T22:14:00Z{quote}" in lines[1]
    assert f"{quote}2023-11-14T22:15:00.000000005Z{quote}" in lines[-1]
    assert ('"window_end": null' if quote else "Z,,10.0.0.1") in lines[-1]


@pytest.mark.parametrize("windows", [(ROWS, LATER), ()])
def test_parquet_and_arrow_are_read_back_equal(windows: tuple[list[tuple], ...]) -> None:
    schema = readable_schema(SCHEMA, BOUNDS)
    assert schema.field("window_end").type == pa.timestamp("ns", tz="UTC")
    assert schema.field("srcIP").type == pa.string()
    expected = pa.Table.from_batches([readable(batch(rows), BOUNDS) for rows in windows], schema)
    assert pyarrow.parquet.read_table(io.BytesIO(written(Format.PARQUET, *windows))) == expected
    assert pa.ipc.open_stream(written(Format.ARROW, *windows)).read_all() == expected
    assert expected["srcIP"].to_pylist() == [row[2] for rows in windows for row in rows]
    assert expected["window_start"].cast(pa.int64()).to_pylist() == [row[0] for rows in windows for row in rows]


def test_a_table_is_aligned_with_times_in_iso() -> None:
    assert written(Format.TABLE, ROWS[:1], ROWS[1:2]).decode() == (
        "window_start          window_end            srcIP        link                packets  mean  big\n"
        "--------------------  --------------------  -----------  ------  -------------------  ----  -----\n"
        "2023-11-14T22:14:00Z  2023-11-14T22:15:00Z  10.0.0.1     Main1   9223372036854775807   0.1  true\n"
        "2023-11-14T22:14:00Z  2023-11-14T22:15:00Z  2001:db8::1  Main 2                   -5  NULL  false\n"
    )


def test_bounds_that_are_numbers_of_rows_are_numbers_in_a_table() -> None:
    batch = pa.record_batch({"window_start": [-990, 10], "window_end": [10, 1010], "n": [5, 7]})
    for live in (False, True):
        assert table(batch, live=live) == [
            "window_start  window_end  n",
            "------------  ----------  -",
            "        -990          10  5",
            "          10        1010  7",
        ]


MACS = pa.record_batch({"mac": pa.array([bytes.fromhex("0011223344ff"), None, bytes(6)], pa.binary()), "n": [1, 2, 3]})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Format.CSV, "mac,n\n00:11:22:33:44:ff,1\n,2\n00:00:00:00:00:00,3\n"),
        (
            Format.JSON,
            '{"mac": "00:11:22:33:44:ff", "n": 1}\n{"mac": null, "n": 2}\n{"mac": "00:00:00:00:00:00", "n": 3}\n',
        ),
        (Format.TABLE, "mac                n\n-----------------  -\n00:11:22:33:44:ff  1\nNULL               2\n"),
    ],
)
def test_macs_are_text_in_every_format(kind: Format, expected: str) -> None:
    sink = io.BytesIO()
    write_results(iter([MACS]), MACS.schema, kind, sink)
    assert sink.getvalue().decode().startswith(expected)
    sink = io.BytesIO()
    write_results(iter([MACS]), MACS.schema, Format.PARQUET, sink)
    assert pyarrow.parquet.read_table(io.BytesIO(sink.getvalue()))["mac"].to_pylist()[0] == "00:11:22:33:44:ff"


def test_a_name_from_a_capture_cannot_move_the_cursor_of_a_terminal() -> None:
    names = pa.record_batch({"interface": ["eth0\x1b[2J\r\n", "caf\u00e9 \u202egpj", "\x9b31m"]})
    lines = table(names)[2:5]
    assert [line.rstrip() for line in lines] == [r"eth0\x1b[2J\r\n", "caf\u00e9 " + r"\u202egpj", r"\x9b31m"]


def test_fractions_of_a_second_stay_in_a_table() -> None:
    times = pa.record_batch({"window_start": [-1, 1_500_000_000], "window_end": [10**9, 0]})
    assert [line.split() for line in table(times, times=BOUNDS)[2:4]] == [
        ["1969-12-31T23:59:59.999999999Z", "1970-01-01T00:00:01Z"],
        ["1970-01-01T00:00:01.500Z", "1970-01-01T00:00:00Z"],
    ]


def test_a_finite_table_has_one_header_however_many_windows_it_has() -> None:
    windows = [pa.record_batch({"n": [10**number]}) for number in range(6)]
    assert table(*windows) == ["     n", "------", *(f"{10**number:6}" for number in range(6))]


def test_a_wide_value_late_in_a_long_finite_table_does_not_repeat_the_header() -> None:
    lines = table(pa.record_batch({"n": range(MEASURED_ROWS)}), pa.record_batch({"n": [10**9]}))
    assert len(lines) == MEASURED_ROWS + 3
    assert (lines[0], lines[2], lines[-1]) == ("  n", "  0", "1000000000")


def live(*counts: int) -> list[str]:
    """The lines of a live table of batches that count up to so many packets in a window."""
    schema = pa.schema([("window_end", pa.int64()), ("link", pa.string()), ("packets", pa.int64())])
    sink = io.BytesIO()
    batches = [
        pa.record_batch([[number * 10**9], ["M"], [count]], schema=schema) for number, count in enumerate(counts)
    ]
    write_results(iter(batches), schema, Format.TABLE, sink, live=True, times=["window_end"])
    return sink.getvalue().decode().splitlines()


def test_a_live_table_says_its_header_once_and_again_when_a_column_must_be_wider() -> None:
    rule = "--------------------  ----  -------"
    assert live(1, 1_234_567, 0, 12_345_678, 5) == [
        "window_end            link  packets",
        rule,
        "1970-01-01T00:00:00Z  M           1",
        "1970-01-01T00:00:01Z  M     1234567",
        "1970-01-01T00:00:02Z  M           0",
        "",
        "window_end            link   packets",
        rule + "-",
        "1970-01-01T00:00:03Z  M     12345678",
        "1970-01-01T00:00:04Z  M            5",
    ]


def test_a_live_table_says_its_header_again_before_it_has_scrolled_away() -> None:
    lines = live(*range(2 * HEADER_EVERY))
    headers = [place for place, line in enumerate(lines) if line.startswith("window_end")]
    assert headers == [0, HEADER_EVERY + 3]
    assert len(lines) == 2 * HEADER_EVERY + 5


@pytest.mark.parametrize("kind", [kind for kind in Format if kind not in (Format.PARQUET, Format.OPENMETRICS)])
def test_a_window_can_be_read_before_the_next_one_is_there(kind: Format, tmp_path: Path) -> None:
    path = tmp_path / "out"
    sizes = []

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in (ROWS, LATER, ROWS):
            yield batch(rows)
            sizes.append(path.stat().st_size)

    with open_output(path, live=True) as sink:
        write_results(batches(), SCHEMA, kind, sink, live=True, times=BOUNDS)
    assert 0 < sizes[0] < sizes[1] < sizes[2]
    if kind is Format.ARROW:
        assert pa.ipc.open_stream(path.read_bytes()[: sizes[0]]).read_next_batch() == readable(batch(ROWS), BOUNDS)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Format.TABLE, f"no rows ({', '.join(NAMES)})\n".encode()),
        (Format.CSV, HEADER),
        (Format.JSON, b""),
    ],
)
def test_an_answer_without_rows_still_says_its_columns_where_the_format_can(kind: Format, expected: bytes) -> None:
    assert written(kind) == expected


def test_every_window_is_written_when_it_comes() -> None:
    sizes = []
    sink = io.BytesIO()

    def windows() -> Iterator[pa.RecordBatch]:
        for rows in (ROWS, LATER):
            yield batch(rows)
            sizes.append(len(sink.getvalue()))

    for kind in (Format.CSV, Format.JSON):
        sizes.clear()
        sink = io.BytesIO()
        write_results(windows(), SCHEMA, kind, sink)
        assert 0 < sizes[0] < sizes[1]


def test_a_file_appears_under_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")
    with open_output(path) as sink:
        sink.write(b"new")
        sink.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [InputError("broken"), KeyboardInterrupt(), ValueError("a bug")])
def test_a_run_that_fails_leaves_the_old_file_and_nothing_else(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")

    def fail(sink: BinaryIO) -> None:
        sink.write(b"half")
        raise error

    with pytest.raises(type(error)), open_output(path) as sink:
        fail(sink)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("place", "reason"), [("none/out.csv", "No such file"), (".", "it is a folder")])
def test_a_place_that_cannot_be_written_is_an_input_error(place: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"cannot be written: {reason}"), open_output(tmp_path / place):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_to_a_reader_that_has_gone_is_an_error_however_python_buffers(unbuffered: str) -> None:
    # A raw standard output takes a part of a large write without a word, so the rest would be missing in silence.
    program = (
        "from dashboards.output.writers import open_output\n"
        "with open_output(None) as sink:\n"
        "    sink.write(b'x' * 10_000_000)\n"
    )
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"x"
        process.stdout.close()
        assert b"BrokenPipeError" in process.stderr.read()
        assert process.wait() != 0


def test_json_has_null_where_a_number_is_infinite() -> None:
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_pydict({"x": [1.5, float("inf"), None]})
    write_results([batch], batch.schema, Format.JSON, sink)
    assert [json.loads(line)["x"] for line in sink.getvalue().splitlines()] == [1.5, None, None]


def test_an_output_that_is_a_pipe_or_a_link_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with open_output(tmp_path / "link") as sink:
        sink.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with open_output(tmp_path / "pipe") as sink:
        sink.write(b"through")
    assert os.read(reading, 100) == b"through"
    os.close(reading)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "pipe", "real"]
