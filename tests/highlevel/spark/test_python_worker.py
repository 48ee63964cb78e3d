"""Python workers exclude the objects of imported modules from garbage collections, and no other process does.

The tests find a process of a user whose objects are never freed, and workers that search all objects again and again.
"""

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pyarrow as pa
import pytest
from pyspark import TaskContext

from highlevel.spark import python_worker
from highlevel.spark.python_worker import run_task

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
