"""Retries after failures of Spark, their number, and the temporary folders that a start removes, without a JVM."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from capture.metrics import Samples
from highlevel.metrics import SPARK_RESTARTS
from highlevel.spark.restarts import Restarts
from highlevel.spark.session.scratch import PREFIX, ScratchFolder, remove_abandoned

SLOW_START = "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat org.apache.spark.X(Y:1)"
DATA_ERROR = f"{SLOW_START}\nTraceback (most recent call last):\ncapture.errors.InputError: a.pcap: changed\n"


LOST_TASK = "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 0): org.apache.spark.SparkException: "
NO_MODULE = f"{LOST_TASK}Traceback (most recent call last):\nModuleNotFoundError: No module named 'functions'\n"
NO_PYSPARK = (
    f"{LOST_TASK}EOFException occurred while reading the port number from pyspark.daemon's stdout:\n"
    "/usr/bin/python3: No module named pyspark\n"
)


def test_delays_double_up_to_a_minute_and_nine_failures_in_a_row_end_a_run() -> None:
    said: list[str] = []
    restarts = Restarts(said.append)
    assert [restarts.next_delay(SLOW_START) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, None]
    assert restarts.samples[SPARK_RESTARTS.name, ("worker_start",)] == 8
    assert said[-1] == "warning: a Python worker did not start; Spark repeats the work in 60 s (restart 8 of 8)"


CALL = "An error occurred while calling o98.load.\n: java.io.IOException: {}\n\tat org.apache.spark.X(Y.scala:1)"
NO_PROGRAM = CALL.format('Cannot run program "/env/bin/python": error={}, {}')


def test_a_daemon_that_was_killed_and_a_lack_of_memory_are_repeated() -> None:
    restarts = Restarts(lambda line: None)
    for failure in (CALL.format("Stream closed"), NO_PROGRAM.format(12, "Cannot allocate memory")):
        assert restarts.next_delay(failure) == 1
        restarts.reset_delay()
    assert restarts.samples[SPARK_RESTARTS.name, ("worker_start",)] == 2


def test_a_program_that_cannot_run_is_one_line() -> None:
    restarts, report = Restarts(lambda line: None), NO_PROGRAM.format(13, "Permission denied")
    assert restarts.next_delay(report) is None
    reason = 'the job on Spark failed: Cannot run program "/env/bin/python": error=13, Permission denied'
    assert str(restarts.make_final_error(report)) == reason


def test_a_line_of_a_log_is_no_missing_module() -> None:
    report = "Python worker exited unexpectedly (crashed)\nINFO plugin: No module named 'fast_json', using json"
    assert Restarts(lambda line: None).next_delay(report) == 1


def test_a_finished_micro_batch_makes_the_count_begin_again() -> None:
    restarts = Restarts(lambda line: None)
    for _ in range(20):
        assert restarts.next_delay("Caused by: java.io.EOFException") == 1
        restarts.reset_delay()
    assert restarts.samples[SPARK_RESTARTS.name, ("worker_end",)] == 20


def test_the_final_error_contains_the_number_of_restarts() -> None:
    restarts = Restarts(lambda line: None)
    reason = "the job on Spark failed: org.apache.spark.SparkException: Python worker failed to connect back."
    assert str(restarts.make_final_error(SLOW_START)) == reason
    restarts.next_delay(SLOW_START)
    assert str(restarts.make_final_error(SLOW_START)) == f"{reason}; Spark had repeated the work 1 time"
    while restarts.next_delay(SLOW_START) is not None:
        pass
    assert str(restarts.make_final_error(SLOW_START)) == f"{reason}; Spark had repeated the work 8 times"
    assert str(restarts.make_final_error(DATA_ERROR)) == "a.pcap: changed"
    restarts.reset_delay()
    assert str(restarts.make_final_error(SLOW_START)) == reason


@pytest.mark.parametrize(
    "report",
    [
        DATA_ERROR,
        NO_MODULE,
        NO_PYSPARK,
        "ZeroDivisionError: division by zero",
        "java.io.IOException: No space left on device",
        "",
    ],
)
def test_other_failures_are_not_repeated(report: str) -> None:
    restarts = Restarts(lambda line: None)
    before = Samples(restarts.samples)
    assert restarts.next_delay(report) is None
    assert restarts.samples == before


@pytest.mark.parametrize(
    ("report", "beginning"),
    [
        (NO_MODULE, "the Python processes of Spark on host 10.0.0.7 have no module functions: install it on all"),
        (NO_PYSPARK, "the Python processes of Spark on host 10.0.0.7 have no module pyspark: install it on all"),
        (
            NO_MODULE.removeprefix(LOST_TASK),
            "the Python processes of Spark have no module functions: install it on all",
        ),
    ],
)
def test_a_missing_module_is_reported_with_its_host(report: str, beginning: str) -> None:
    assert str(Restarts(lambda line: None).make_final_error(report)).startswith(beginning)


def test_folders_of_killed_processes_are_removed_and_those_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = (
        "import os, tempfile; from highlevel.spark.session.scratch import ScratchFolder; "
        "tempfile.tempdir = os.environ['FOLDER']; ScratchFolder.create(); os.kill(os.getpid(), 9)"
    )
    mine = ScratchFolder.create()
    others = tmp_path / f"{PREFIX}of-another-program"
    others.mkdir()
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | {"FOLDER": str(tmp_path)}, check=False)
    assert done.returncode == -9
    left = {*tmp_path.iterdir()} - {mine.path, others}
    assert len(left) == 1
    assert {*remove_abandoned(tmp_path)} == left
    assert {*tmp_path.iterdir()} == {mine.path, others}
    mine.remove()
    assert {*tmp_path.iterdir()} == {others}
