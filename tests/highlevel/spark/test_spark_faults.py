"""`wiretide run` when processes end or files are damaged: it repeats the work, or ends with one line.

Real runs of the command line are used, with a pipeline over a paced capture; processes are ended by their ids. The
tests detect a run that stops for good although its checkpoint is exact, a traceback, and a wrong reason or exit status.
They detect folders that remain, and checks that are made after the start of Spark.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.checked_files import read_document
from highlevel.spark.run_folder.checkpoint import check_checkpoint
from highlevel.spark.run_folder.identity import STATE_FORMAT, RunIdentity, write_identity
from highlevel.spark.run_folder.totals import TotalsFiles
from tests.harness.links import write_links

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[3]
PIPELINE = """
folder = "state"
{speed}
[links.a]
capture = "main1.pcap"
[queries.n]
sql = "SELECT srcIP, count(*) AS n FROM packets [RANGE {range} seconds] GROUP BY srcIP"
[metrics]
port = 0
[spark]
master = "local[1]"
"""


@contextmanager
def run(folder: Path, *words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run the pipeline of a folder; it is killed if the test fails."""
    command = [sys.executable, "-m", "wiretide", "run", str(folder / "pipeline.toml"), *words]
    (folder / "tmp").mkdir(exist_ok=True)
    with (
        (folder / "said").open("w") as said,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(folder / "tmp")} | environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def pipeline(folder: Path, seconds: int = 30, speed: str = "speed = 20.0") -> None:
    if not (folder / "main1.pcap").exists():
        write_links(folder, 8)
    (folder / "pipeline.toml").write_text(PIPELINE.format(range=seconds, speed=speed))


def last(folder: Path) -> int:
    return TotalsFiles(folder / "state" / "totals").last_batch_id()


def until(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    while not happened() and process.poll() is None:
        time.sleep(0.02)


def descendants(process: int, words: str) -> list[int]:
    """Return the processes below one whose command contains `words`; a parent is before its children.

    A child of the JVM has the JVM's command until it executes its own.
    """
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    below = [process]
    for each in below:
        below += [child for child, parent in parents.items() if parent == each]
    found = []
    for each in below:
        try:
            command = Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words in command:
            found.append(each)
    return found


def is_running(process: int) -> bool:
    """Return whether a process runs. A process that has ended but was not waited for has no command."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes() != b""
    except OSError:
        return False


def test_a_run_continues_without_its_python_processes_and_ends_with_one_line_without_its_jvm(tmp_path: Path) -> None:
    pipeline(tmp_path)
    with run(tmp_path) as process:
        until(process, lambda: last(tmp_path) >= 0)
        for words in ("python_streaming_source_runner", "create_data_source"):
            for each in descendants(process.pid, words):
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
        before = last(tmp_path)
        until(process, lambda: last(tmp_path) > before + 1)
        said = (tmp_path / "said").read_text()
        assert process.poll() is None, said
        assert re.search(r"warning: a Python worker .*; Spark repeats the work in 1 s \(restart 1 of 8\)\n", said), said
        jvm, *_ = descendants(process.pid, "org.apache.spark.deploy.SparkSubmit")
        os.kill(jvm, signal.SIGKILL)
        assert process.wait() == 1
    added = (tmp_path / "said").read_text().removeprefix(said)
    lines = [line for line in added.splitlines() if "n: " not in line]
    assert lines == [
        "wiretide: the JVM of Spark ended (signal 9); start again, a run continues after its last micro-batch"
    ]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_sigterm_stops_a_run_and_leaves_nothing_but_its_folder(tmp_path: Path) -> None:
    pipeline(tmp_path)
    with run(tmp_path) as process:
        until(process, lambda: last(tmp_path) >= 0)
        process.terminate()
        assert process.wait() == 143
    assert (tmp_path / "said").read_text().splitlines()[-1] == "wiretide: stopped"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_damage_is_one_line_with_the_name_of_the_file_after_real_restarts(tmp_path: Path) -> None:
    pipeline(tmp_path)
    with run(tmp_path) as process:
        until(process, lambda: last(tmp_path) >= 2)
        jvm, *_ = descendants(process.pid, "org.apache.spark.deploy.SparkSubmit")
        process.kill()
    said = (tmp_path / "said").read_text()
    assert process.returncode == -signal.SIGKILL, said
    while is_running(jvm):  # until it ends, it may still commit the last micro-batch
        time.sleep(0.05)
    assert [path.name[:15] for path in (tmp_path / "tmp").iterdir()] == ["wiretide-spark-"]  # a killed run leaves it
    state = tmp_path / "state"
    next_batch = max(int(path.name) for path in (state / "checkpoint" / "offsets").glob("[0-9]*"))
    if (state / "checkpoint" / "commits" / str(next_batch)).exists():
        next_batch += 1
    # A micro-batch that has totals is not run again, with or without a commit: the next one reads the state after it.
    manifest = state / "state" / "0" / f"{last(tmp_path)}.json"
    assert read_document(manifest)
    offsets = state / "checkpoint" / "offsets" / str(next_batch - 1)
    for path, starts in ((state / "run.json", False), (offsets, False), (manifest, True)):
        whole = path.read_bytes()
        path.write_bytes(whole[:-9] + b"#" + whole[-8:])
        with run(tmp_path) as process:
            assert process.wait(300) == 1
        said = (tmp_path / "said").read_text()
        assert ("starting Spark" in said) is starts
        assert said.splitlines()[-1].startswith(f"wiretide: {path}: damaged: "), said
        assert "Traceback" not in said
        path.write_bytes(whole)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_can_be_checked_without_spark_is_checked_before_it_starts(tmp_path: Path) -> None:
    pipeline(tmp_path)
    (tmp_path / "state").mkdir(0o700)
    settings = {"state format": STATE_FORMAT, "operator partitions": 2, "records in a block": 7}
    write_identity(tmp_path / "state", RunIdentity(settings, (), (), 0))
    with run(tmp_path) as process:
        assert process.wait() == 1
    (said,) = (tmp_path / "said").read_text().splitlines()
    assert "contains a run with other settings; records in a block: got 1024, expected 7" in said


def test_a_deleted_checkpoint_is_refused_if_there_are_results(tmp_path: Path) -> None:
    assert check_checkpoint(tmp_path, {"0 a.pcap": 0}) == 0
    results = tmp_path / "output" / "q" / "part-00000007.parquet"
    results.parent.mkdir(parents=True)
    results.write_bytes(b"")
    with pytest.raises(FolderError, match=r"checkpoint: incomplete: it ends with micro-batch -1, but .* micro-batch 7"):
        check_checkpoint(tmp_path, {"0 a.pcap": 0})
