"""`wiretide.open`: results in all formats, windows as they close, and runs that end early.

The tests can find a window that is split or merged, a format with other values than the Arrow table, and threads or
files that a closed run leaves.
"""

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest

import wiretide
from capture.errors import InputError, MissingPackageError
from dashboards.inputs import Inputs
from queries.text.errors import QueryError
from tests.conftest import StartedThreads
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, icmp, udp, write

PER_WINDOW = "SELECT srcIP, count(*) AS n FROM p [RANGE 10 seconds] GROUP BY srcIP"
FRAME = udp("10.0.0.1", "10.0.0.9", 1, 53)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    packets = [(1, FRAME), (2, icmp("10.0.0.2", "10.0.0.9")), (3, FRAME), (25, FRAME)]
    return write(tmp_path / "M.pcap", packets)


def open_files(folder: Path) -> list[str]:
    """Return the names of the files and pipes in a folder that this process has open."""
    descriptors = (path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
    return sorted(path.name for path in descriptors if path.parent == folder)


def test_a_result_has_columns_a_plan_and_the_table_of_query(capture: Path) -> None:
    with wiretide.open(capture) as inputs:
        result = inputs.query(PER_WINDOW)
        assert result.columns == ["window_start", "window_end", "srcIP", "n"]
        assert result.explain() == wiretide.explain(PER_WINDOW)
        table = result.arrow()
    assert table.schema == result.schema
    assert table == wiretide.query(PER_WINDOW, capture)
    assert result.arrow() is table


def test_pandas_has_the_values_of_the_table(capture: Path) -> None:
    result = wiretide.open(capture).query(PER_WINDOW)
    frame = result.pandas()
    assert pa.Table.from_pandas(frame, result.schema) == result.arrow()


def test_several_queries_read_the_same_inputs(capture: Path) -> None:
    with wiretide.open(streams={"p": [str(capture)]}) as inputs:
        assert inputs.query("SELECT count(*) AS n FROM p").arrow().to_pylist() == [{"n": 4}]
        assert inputs.query("SELECT max(len) AS n FROM p").arrow().num_rows == 1
        with pytest.raises(InputError, match="no file for the stream q; bound are: p"):
            inputs.query("SELECT count(*) FROM q")
        with pytest.raises(QueryError):
            inputs.query("SELECT")


@pytest.mark.parametrize("threads", [1, 2])
def test_an_iteration_yields_one_table_per_window(capture: Path, threads: int) -> None:
    result = wiretide.open(capture, threads=threads).query(PER_WINDOW)
    windows = list(result)
    ends = [table["window_end"].cast(pa.int64()).unique().to_pylist() for table in windows]
    assert ends == [[10 * NS], [30 * NS]]
    assert [table.num_rows for table in windows] == [2, 1]
    assert pa.concat_tables(windows) == result.arrow()
    assert list(result.windows()) == windows


@pytest.mark.parametrize("sql", ["SELECT count(*) AS n FROM p", "SELECT srcIP, len FROM p"])
def test_an_answer_without_windows_is_iterated_too(capture: Path, sql: str) -> None:
    result = wiretide.open(capture).query(sql)
    assert pa.concat_tables(result) == result.arrow()


def test_sorted_windows_and_windows_of_rows_are_separate_tables(capture: Path) -> None:
    inputs = wiretide.open(capture)
    by_rows = inputs.query("SELECT count(*) AS n FROM p [RANGE 2 ROWS]")
    assert [table["n"].to_pylist() for table in by_rows] == [[2], [2]]
    in_order = inputs.query(f"{PER_WINDOW} ORDER BY n DESC")
    assert [table["n"].to_pylist() for table in in_order] == [[2, 1], [1]]


def test_a_live_window_is_read_before_the_input_ends(tmp_path: Path, started_threads: StartedThreads) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    inputs = wiretide.open(pipe, slack="2s")
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # or opening to write would wait for the engine
    windows = inputs.query(PER_WINDOW).windows()
    with pipe.open("wb", buffering=0) as end:
        end.write(pcap_bytes([(NS, FRAME)] * 64 + [(12 * NS, FRAME)], RAW_IP))
        assert next(windows)["n"].to_pylist() == [64]
        os.close(reading)
        inputs.close()
        assert not started_threads()
        assert open_files(tmp_path) == [pipe.name]  # the end of the writer
    assert list(windows) == []


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("compressed", [False, True])
def test_the_end_of_the_block_closes_runs_and_files(
    capture: Path, compressed: bool, threads: int, started_threads: StartedThreads
) -> None:
    if compressed:
        capture.write_bytes(gzip.compress(capture.read_bytes()))
    with wiretide.open(capture, threads=threads, slack="exact") as inputs:
        result = inputs.query("SELECT ts FROM p")
        unread, begun = result.windows(), result.windows()
        next(begun)
    assert not started_threads()
    assert list(begun) == list(unread) == []
    assert open_files(capture.parent) == []
    with pytest.raises(ValueError, match="the inputs are closed"):
        result.arrow()


def test_a_run_that_is_left_early_ends_its_threads(capture: Path, started_threads: StartedThreads) -> None:
    windows = wiretide.open(capture).query(PER_WINDOW).windows()
    next(windows)
    windows.close()
    assert not started_threads()


def test_wrong_options_and_inputs_are_errors_of_open(capture: Path) -> None:
    for options, message in (
        ({"layer": "middle"}, "got the layer 'middle'"),
        ({"threads": 0}, "got 0 threads"),
        ({"slack": "soon"}, "got a slack of 'soon'"),
        ({"lull": "soon"}, "soon"),
        ({"sampling": "often"}, "often"),
        ({"on": "local", "follow": True}, "need the engine inline"),
    ):
        with pytest.raises(ValueError, match=message):
            wiretide.open(capture, **options)
    with pytest.raises(InputError, match="No such file"):
        wiretide.open(capture.with_name("none.pcap"))
    capture.write_bytes(b"no capture at all, only some text")
    with pytest.raises(InputError, match=r"M\.pcap"):
        wiretide.open(capture)
    with pytest.raises(InputError, match=r"M\.pcap"):
        wiretide.open(streams={"p": [str(capture)]})


def test_warnings_have_the_line_of_the_user(capture: Path) -> None:
    capture.write_bytes(capture.read_bytes()[:-1])
    result = wiretide.open(capture).query("SELECT count(*) AS n FROM p")
    for read in (result.pandas, lambda: list(result)):
        with pytest.warns(RuntimeWarning, match=r"M\.pcap: cut in record, after 3 whole records$") as caught:
            read()
        assert [warning.filename for warning in caught] == [__file__]


def test_a_missing_package_is_named_with_its_command(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = wiretide.open(capture).query(PER_WINDOW)
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingPackageError, match=r"requires pandas, .* pip install 'wiretide\[frames\]'"):
        result.pandas()


def test_open_returns_inputs(capture: Path) -> None:
    assert isinstance(wiretide.open(capture), Inputs)
