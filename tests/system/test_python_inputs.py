"""`wiretide.open`: results in all formats, windows as they close, and runs that end early.

The tests can find a window that is split or merged, a format with other values than the Arrow table, and threads or
files that a closed run leaves.
"""

import asyncio
import gzip
import os
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import wiretide
from capture.errors import InputError, MissingPackageError
from dashboards.inputs import Inputs, Result
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


def test_polars_and_duckdb_have_the_values_of_the_table(capture: Path) -> None:
    result = wiretide.open(capture).query(PER_WINDOW)
    assert result.polars().rows(named=True) == result.arrow().to_pylist()
    relation = result.duckdb()
    assert relation.columns == result.columns
    assert relation.aggregate("srcIP, sum(n) AS n").order("srcIP").fetchall() == [("10.0.0.1", 3), ("10.0.0.2", 1)]
    with duckdb.connect() as connection:
        relation = result.duckdb(connection)
        assert relation.order("n DESC").limit(1).select("srcIP", "n").fetchall() == [("10.0.0.1", 2)]


def test_several_queries_read_the_same_inputs(capture: Path) -> None:
    with wiretide.open(streams={"p": [str(capture)]}) as inputs:
        assert inputs.query("SELECT count(*) AS n FROM p").arrow().to_pylist() == [{"n": 4}]
        assert inputs.query("SELECT max(len) AS n FROM p").arrow().num_rows == 1
        with pytest.raises(InputError, match="no file for the stream q; bound are: p"):
            inputs.query("SELECT count(*) FROM q")
        with pytest.raises(QueryError):
            inputs.query("SELECT")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (["a.pcap", "b.pcap"], "got list as an input, .*; write several files as several arguments"),
        (None, "got NoneType as an input, expected the path of a capture, or one table"),
        (b"\xd4\xc3\xb2\xa1", "got bytes as an input"),
    ],
)
def test_an_input_of_another_type_is_an_error_with_its_type(path: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        wiretide.query("SELECT count(*) FROM packets", path)  # type: ignore[arg-type]


def test_a_query_without_an_input_is_an_error() -> None:
    with pytest.raises(InputError, match="got no input, expected captures"):
        wiretide.query("SELECT count(*) FROM packets")


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


@pytest.mark.parametrize("end", ["", "ORDER BY n, number", "LIMIT 66000"])
@pytest.mark.parametrize("function", ["count(*) AS n", "count(*) AS n, rank() OVER (ORDER BY number) AS r"])
def test_a_window_of_many_rows_is_one_table(end: str, function: str) -> None:
    count = 70_000
    times = pa.array([NS + number // count * 10 * NS for number in range(count + 3)], pa.timestamp("ns", "UTC"))
    rows = pa.table({"ts": times, "number": range(count + 3)})
    sql = f"SELECT number, {function} FROM t [RANGE 10 seconds] GROUP BY number {end}"
    assert [table.num_rows for table in wiretide.open(rows).query(sql)] == [66_000 if "LIMIT" in end else count, 3]


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


@pytest.mark.parametrize("threads", [1, 2])
def test_an_asynchronous_iteration_yields_the_windows(
    capture: Path, threads: int, started_threads: StartedThreads
) -> None:
    result = wiretide.open(capture, threads=threads).query(PER_WINDOW)

    async def windows() -> list[pa.Table]:
        return [window async for window in result]

    assert asyncio.run(windows()) == list(result)
    assert not started_threads()


def test_an_asynchronous_iteration_is_cancelled_while_it_waits_for_rows(
    tmp_path: Path, started_threads: StartedThreads
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    windows = []

    async def main() -> None:
        read = asyncio.Event()

        async def consume() -> None:
            async for window in wiretide.open(pipe, slack="2s").query(PER_WINDOW):
                windows.append(window["n"].to_pylist())
                read.set()

        task, first = asyncio.create_task(consume()), asyncio.create_task(read.wait())
        await asyncio.wait((task, first), return_when=asyncio.FIRST_COMPLETED)
        first.cancel()
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [thread for thread in started_threads() if thread.name.startswith("wiretide")]
        assert open_files(tmp_path) == [pipe.name, pipe.name]  # both are open in this test

    with pipe.open("wb", buffering=0) as end:
        end.write(pcap_bytes([(NS, FRAME)] * 64 + [(12 * NS, FRAME)], RAW_IP))
        asyncio.run(main())
    os.close(reading)
    assert windows == [[64]]


def test_other_tasks_run_during_an_asynchronous_iteration(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    async def main() -> list[int]:
        async def windows() -> list[int]:
            return [n async for window in wiretide.open(pipe).query(PER_WINDOW) for n in window["n"].to_pylist()]

        task = asyncio.create_task(windows())
        with pipe.open("wb", buffering=0) as end:
            for second in range(3):
                await asyncio.sleep(0.05)
                end.write(pcap_bytes([(second * NS, FRAME)], RAW_IP)[24 if second else 0 :])
            os.close(reading)
        return await task

    assert asyncio.run(main()) == [3]


def test_an_error_of_an_asynchronous_run_is_raised_in_the_task(capture: Path, started_threads: StartedThreads) -> None:
    with wiretide.open(capture) as inputs:
        result = inputs.query(PER_WINDOW)
    capture.unlink()

    async def consume(result: Result) -> None:
        async for _ in result:
            pass

    with pytest.raises(ValueError, match="the inputs are closed"):
        asyncio.run(consume(result))
    capture.write_bytes(pcap_bytes([], RAW_IP))
    result = wiretide.open(capture).query(PER_WINDOW)
    capture.unlink()
    with pytest.raises(InputError, match="No such file"):
        asyncio.run(consume(result))
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


@pytest.mark.parametrize("package", ["pandas", "polars", "duckdb"])
def test_a_missing_package_is_named_with_its_command(
    capture: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    result = wiretide.open(capture).query(PER_WINDOW)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf"requires {package}, .* pip install 'wiretide\[frames\]'"):
        getattr(result, package)()


def test_open_returns_inputs(capture: Path) -> None:
    assert isinstance(wiretide.open(capture), Inputs)
