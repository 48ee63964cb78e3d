"""A run as its user sees it: its error messages, and the effects of stop and restart."""

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from capture.errors import InputError
from capture.metrics import RECORDS_READ, Samples
from capture.private_files import UnsafeFolderError
from highlevel.inline.engine import Input
from highlevel.results.row_limit import REST_ROWS, RowLimit
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.result_files import read_results
from queries.gsql import compile_query
from tests.harness.links import write_links
from tests.harness.stream_steps import inline, same_rows
from tests.references.window_queries import QUERIES

pytestmark = pytest.mark.spark
PLANS = [compile_query(query.gsql, query.name) for query in QUERIES[:2]]

OTHER = {
    name: compile_query(f"SELECT count(*) AS {name} FROM packets [RANGE 1 s]", name)
    for name in ("added", "changed", "removed", "late")
}


def make(spark, inputs: list[Input], folder: Path, plans=PLANS, **options):
    from highlevel.spark.stream import StreamRun

    return StreamRun(spark, plans, inputs, folder, **{"block_records": 200, "max_blocks": 3} | options)


@pytest.fixture
def inputs(tmp_path: Path) -> list[Input]:
    folder = tmp_path / "captures"
    folder.mkdir()
    return write_links(folder, 8)[:2]


def test_a_run_that_is_stopped_and_started_goes_on_where_it_was(spark, inputs, tmp_path: Path) -> None:
    seen: list[int] = []

    class EnoughError(Exception):
        pass

    def until_two(batch_id: int, results: dict[str, pa.Table], samples: Samples) -> None:
        seen.append(batch_id)
        if batch_id == 2:
            raise EnoughError("no more")

    run = make(spark, inputs, tmp_path / "run", on_batch=until_two)
    run.start()
    with pytest.raises(EnoughError, match="no more"):
        run.wait()
    run.stop()
    assert not run.finished
    again = make(spark, inputs, tmp_path / "run", on_batch=lambda batch_id, results, samples: seen.append(batch_id))
    again.start()
    assert again.wait()
    again.stop()
    assert seen[:4] == [0, 1, 2, 2]
    assert seen[3:] == list(range(2, seen[-1] + 1))
    assert again.samples.total(RECORDS_READ, link="main1") == 1800


def test_tasks_write_many_rows_and_the_driver_receives_the_largest_ones(spark, inputs, tmp_path: Path) -> None:
    received: dict[str, list[pa.Table]] = {plan.name: [] for plan in PLANS}
    rests: dict[str, int] = dict.fromkeys(received, 0)

    def take(batch_id: int, results: dict[str, pa.Table], samples: Samples) -> None:
        for name, table in results.items():
            received[name].append(table)
            rests[name] += sum(run.rests[name][REST_ROWS].to_pylist()) if name in run.rests else 0

    limits = {plan.name: RowLimit(rows=3) for plan in PLANS}
    run = make(spark, inputs, tmp_path / "run", on_batch=take, row_limits=limits)
    run.start()
    assert run.wait()
    run.stop()
    expected, _ = inline(PLANS, inputs)
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    for plan in PLANS:
        found = read_results(tmp_path / "run" / "output", plan)
        assert same_rows(found, expected[plan.name])
        assert sum(table.num_rows for table in received[plan.name]) + rests[plan.name] == found.num_rows
        folder = tmp_path / "run" / "output" / plan.name
        assert any(path.stem.count("-") == 2 for path in folder.rglob("*.parquet")), "a task has written"
        read = spark.read.parquet(str(folder))
        assert read.count() == found.num_rows
        assert "date" in read.columns
    spark.conf.unset("spark.sql.legacy.parquet.nanosAsLong")
    assert not list((tmp_path / "run" / "staged").rglob("*"))


def test_a_run_continues_with_another_number_of_partitions_and_its_windows(spark, inputs, tmp_path: Path) -> None:
    """The checkpoint is on this machine even if the default file system of Spark is another one."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "hdfs://127.0.0.1:1")
    said: list[str] = []
    try:
        for partitions, last in ((2, 1), (3, 2), (1, -1)):

            class EnoughError(Exception):
                pass

            def on_batch(batch_id: int, results: dict[str, pa.Table], samples: Samples) -> None:
                if batch_id == last:  # noqa: B023  # called before the loop continues
                    raise EnoughError

            run = make(
                spark,
                inputs,
                tmp_path / "a run",
                partitions=partitions,
                on_batch=on_batch,
                say=said.append,
                max_blocks=2,
            )
            run.start()
            if last < 0:
                assert run.wait()
            else:
                with pytest.raises(EnoughError):
                    run.wait()
            run.stop()
    finally:
        hadoop.set("fs.defaultFS", before)
    assert said == [
        "the state of open windows has 3 partitions now; it had 2",
        "the state of open windows has 1 partitions now; it had 3",
    ]
    whole = make(spark, inputs, tmp_path / "whole")
    whole.start()
    assert whole.wait()
    whole.stop()
    for plan in PLANS:
        rows, expected = (read_results(tmp_path / name / "output", plan) for name in ("a run", "whole"))
        assert rows.num_rows > 10
        assert same_rows(rows, expected)


def test_an_input_that_no_query_reads_is_left_out(spark, inputs, tmp_path: Path) -> None:
    plans = [compile_query("SELECT link, count(*) AS n FROM a GROUP BY link", "of_a")]
    named = [Input(each.link, each.path, stream) for each, stream in zip(inputs, "ab", strict=True)]
    run = make(spark, named, tmp_path / "run", plans=plans, max_blocks=1)
    run.start()
    assert run.wait()
    run.stop()
    assert run.samples.total(RECORDS_READ, link="main1") == 1800
    assert run.samples.total(RECORDS_READ, link="main2") == 0


def test_a_finished_run_started_again_is_finished_and_writes_nothing(spark, inputs, tmp_path: Path) -> None:
    called: list[int] = []
    for _ in range(2):
        run = make(spark, inputs, tmp_path / "run", on_batch=lambda batch_id, *_: called.append(batch_id))
        run.start()
        assert run.wait()
        run.stop()
    assert called == list(range(len(called)))


def test_a_last_micro_batch_that_was_not_committed_is_done_again(spark, inputs, tmp_path: Path) -> None:
    seen: list[int] = []

    def fail_at_the_end(batch_id: int, results: dict[str, pa.Table], samples: Samples) -> None:
        seen.append(batch_id)
        if samples.total(RECORDS_READ) == 1800 + 900 and seen.count(batch_id) == 1:
            raise OSError("full")

    for _ in range(2):
        run = make(spark, inputs, tmp_path / "run", on_batch=fail_at_the_end)
        run.start()
        if len(seen) == 0:
            with pytest.raises(OSError, match="full"):
                run.wait()
        else:
            assert run.wait()
        run.stop()
    assert seen[-2] == seen[-1]


def test_queries_that_stay_keep_their_windows_through_a_change(spark, inputs, tmp_path: Path) -> None:
    class EnoughError(Exception):
        pass

    def until_two(batch_id: int, *_: object) -> None:
        if batch_id == 2:
            raise EnoughError("no more")

    run = make(spark, inputs, tmp_path / "run", plans=[*PLANS, OTHER["changed"], OTHER["removed"]], on_batch=until_two)
    run.start()
    with pytest.raises(EnoughError):
        run.wait()
    run.stop()
    lines: list[str] = []
    changed = compile_query("SELECT srcIP, sum(len) AS s FROM packets [RANGE 1 s] GROUP BY srcIP", "changed")
    plans = [OTHER["added"], changed, *PLANS[::-1]]
    again = make(spark, inputs, tmp_path / "run", plans=plans, say=lines.append)
    again.start()
    assert again.wait()
    again.stop()
    want, _ = inline(plans, inputs)
    for plan in PLANS:
        assert same_rows(read_results(tmp_path / "run" / "output", plan), want[plan.name]), plan.name
    for plan in (OTHER["added"], changed):
        rows = read_results(tmp_path / "run" / "output", plan)
        assert 0 < rows.num_rows < want[plan.name].num_rows, "only the windows after the change"
    assert lines[0].startswith("query changed: its columns have changed; its results so far are now in ")
    assert lines[0].endswith("output/changed until 1")
    assert lines[1] == f"queries that keep their open windows: {PLANS[1].name}, {PLANS[0].name}"
    assert [line.split(";")[0] for line in lines[2:]] == [
        "query changed: changed",
        "query added: new",
        "query removed: removed",
    ]
    before = read_results(tmp_path / "run" / "output", replace(OTHER["changed"], name="changed until 1"))
    assert before.num_rows > 0
    again = make(spark, inputs, tmp_path / "run", plans=[*plans, OTHER["late"]], say=lines.append)
    again.start()
    assert again.finished
    again.stop()
    assert lines[-1].endswith("its inputs have been read to their ends, so it has no results in this folder")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"block_records": 100}, "other settings; records in a block: got 100, expected 200"),
        (
            {"plans": [compile_query("SELECT count(*) FROM packets [RANGE 1 s]", "z")]},
            "of other queries: got z, expected",
        ),
        ({"speed": 10.0}, "other settings; paced by a speed: got True, expected False"),
        ({"inputs": 1}, "main2.pcap; take"),
    ],
    ids=["blocks", "queries", "speed", "inputs"],
)
def test_a_folder_of_another_run_is_refused_by_what_differs(spark, inputs, tmp_path: Path, change, named) -> None:
    run = make(spark, inputs, tmp_path / "run")
    run.start()
    run.stop()
    options = dict(change)
    fewer = inputs[: options.pop("inputs", 2)]
    other = make(spark, fewer, tmp_path / "run", **options)
    with pytest.raises(FolderError) as raised:
        other.start()
    assert named in str(raised.value)
    assert "take another folder, or delete this one" in str(raised.value)


def test_a_capture_that_changed_since_is_refused(spark, inputs, tmp_path: Path) -> None:
    run = make(spark, inputs, tmp_path / "run")
    run.start()
    run.stop()
    with inputs[0].path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(FolderError, match=r"another content of .*main1.pcap: got .*, expected .*"):
        make(spark, inputs, tmp_path / "run").start()


def test_a_folder_in_use_is_refused(spark, inputs, tmp_path: Path) -> None:
    run = make(spark, inputs, tmp_path / "run", speed=1.0)
    run.start()
    try:
        with pytest.raises(FolderError, match="in use by another run"):
            make(spark, inputs, tmp_path / "run", speed=1.0).start()
    finally:
        run.stop()


def test_a_file_that_is_no_capture_is_refused_before_anything_starts(spark, tmp_path: Path) -> None:
    path = tmp_path / "no.pcap"
    path.write_text("hello")
    with pytest.raises(InputError, match=r"no\.pcap: not a pcap or pcapng capture"):
        make(spark, [Input("a", path)], tmp_path / "run").start()
    assert not (tmp_path / "run").exists()


def test_a_capture_cut_while_it_is_read_is_an_input_error_in_one_line(spark, inputs, tmp_path: Path) -> None:
    def cut(batch_id: int, *_: object) -> None:
        os.truncate(inputs[0].path, 2000)

    run = make(spark, inputs, tmp_path / "run", on_batch=cut, max_blocks=1)
    run.start()
    with pytest.raises(InputError, match=r"main1\.pcap: changed while it was read: got 2000 bytes, expected \d+$"):
        run.wait()
    run.stop()


def test_options_that_make_no_sense_are_refused(spark, inputs, tmp_path: Path) -> None:
    for options in ({"partitions": 0}, {"max_blocks": -1}, {"speed": 0.0}):
        (name,) = options
        with pytest.raises(ValueError, match=f"{name} must be positive, got"):
            make(spark, inputs, tmp_path / "run", **options)


def test_queries_of_one_name_are_refused(spark, inputs, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="different names, got pairs, pairs"):
        make(spark, inputs, tmp_path / "run", plans=[PLANS[0], PLANS[0]])


def test_what_a_killed_process_left_unfinished_is_removed(spark, inputs, tmp_path: Path) -> None:
    left = [tmp_path / "run" / "state" / "0" / ".7.json.123", tmp_path / "run" / "output" / "pairs" / ".part.1"]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_text("half")
    folder = tmp_path / "run" / "output" / ".hidden"
    folder.mkdir()
    run = make(spark, inputs, tmp_path / "run")
    run.start()
    assert run.wait()
    run.stop()
    assert not any(path.exists() for path in left)
    assert folder.exists()


def test_waiting_gives_up_in_time_when_the_replay_is_slow(spark, inputs, tmp_path: Path) -> None:
    run = make(spark, inputs, tmp_path / "run", speed=0.001)
    run.start()
    assert not run.wait(0.2)
    run.stop()
    run.stop()


def test_everything_in_the_folder_of_a_run_is_private_and_nothing_in_it_is_a_pickle(
    spark, inputs, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        run = make(spark, inputs, tmp_path / "run")
        run.start()
        assert run.wait()
        run.stop()
    finally:
        os.umask(before)
    ours = [
        path for path in (tmp_path / "run").rglob("*") if "checkpoint" not in path.relative_to(tmp_path).parts[1:-1]
    ]
    wrong = [(path, oct(path.stat().st_mode)) for path in ours if path.stat().st_mode & 0o077]
    assert (tmp_path / "run" / "checkpoint") in ours
    assert wrong == []
    pickled = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.read_bytes()[:1] == b"\x80"]
    assert pickled == []


@pytest.mark.parametrize("name", [".", "state", "checkpoint", "totals", "output"])
def test_a_folder_that_other_users_can_write_is_refused_before_anything_is_read_from_it(
    spark, inputs, name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    (folder / name).mkdir(parents=True)
    (folder / name).chmod(0o777)
    with pytest.raises(UnsafeFolderError, match=r"got mode 0777, expected no write permission for group and others"):
        make(spark, inputs, folder).start()
    assert not (folder / "lock").exists()
