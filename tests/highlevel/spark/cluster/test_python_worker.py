"""Python workers exclude the objects of imported modules from garbage collections, and no other process does.

The tests find a process of a user whose objects are never freed, and workers that search all objects again and again.
They also find workers that compile the modules of pyspark, or lose the PYTHONPATH of the user.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyspark
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from highlevel.spark.cluster import python_worker
from highlevel.spark.cluster.python_worker import run_task
from highlevel.spark.session.session import can_execute, write_launcher

ROWS = [pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": [3]})]


@pytest.fixture(autouse=True)
def _no_excluded_objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which no task ran: earlier tests may have left a task or excluded objects."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    monkeypatch.setattr(python_worker, "_excluded_modules", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_a_process_without_a_task_excludes_nothing() -> None:
    assert list(run_task(iter(ROWS))) == ROWS
    assert gc.get_freeze_count() == 0


def test_a_worker_excludes_objects_after_a_task_that_imported_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    TaskContext()  # it stores itself, as in a worker
    task = run_task(iter(ROWS))
    assert next(task) == ROWS[0]
    assert gc.get_freeze_count() == 0, "the task has not ended"
    assert list(task) == ROWS[1:]
    assert gc.get_freeze_count() > 1000
    gc.unfreeze()
    list(run_task(iter(ROWS)))
    assert gc.get_freeze_count() == 0, "no module was imported"
    monkeypatch.setitem(sys.modules, "module_of_a_test", ModuleType("module_of_a_test"))
    list(run_task(iter(ROWS)))
    assert gc.get_freeze_count() > 1000


@pytest.mark.spark
def test_workers_import_the_pyspark_of_this_environment(spark: SparkSession) -> None:
    (path,) = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert path == pyspark.__file__


@pytest.mark.parametrize("excluded", ["/spark/pyspark.zip:/spark/py4j.zip", "/it's a *folder*/pyspark.zip"])
@pytest.mark.parametrize("rest", [[], ["/of/the user"], ["/of/the user", "/two"]])
def test_a_launcher_keeps_the_python_path_of_the_user(tmp_path: Path, excluded: str, rest: list[str]) -> None:
    launcher = write_launcher(tmp_path / "bin" / "python", excluded)
    environment = os.environ | {"PYTHONPATH": ":".join([excluded, *rest])}
    program = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:], sys.executable, sep='|')"
    run = subprocess.run(
        [launcher, "-c", program, "two words"], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.rstrip() == f"{':'.join(rest)}|['two words']|{sys.executable}"


def test_a_launcher_on_a_file_system_without_programs_is_not_used(tmp_path: Path) -> None:
    assert can_execute(write_launcher(tmp_path / "python"))
    folder = tmp_path / "noexec"
    folder.mkdir()
    program = (
        "import sys; from pathlib import Path; "
        "from highlevel.spark.session.session import can_execute, write_launcher; "
        "print(can_execute(write_launcher(Path(sys.argv[1]) / 'python')))"
    )
    mount = 'mount -t tmpfs -o noexec tmpfs "$1" || exit 77; exec "$2" -c "$3" "$1"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", folder, sys.executable, program]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode in (1, 77) and "Operation not permitted" in run.stderr:
        pytest.skip(f"no file system can be mounted: {run.stderr}")
    assert (run.returncode, run.stdout) == (0, "False\n"), run.stderr
