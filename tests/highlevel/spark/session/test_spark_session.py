"""Spark as a user of the command line or of the API meets it: answers, warnings, and sessions that end and start again.

Each test has a process of its own, since a process has one session at a time and the other tests share theirs.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.links import write_links

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[4]
SQL = """SELECT srcIP, count(*) AS n, sum(len) AS bytes FROM packets [RANGE 5 minutes, SLIDE 1 minute, WA ts]
GROUP BY srcIP HAVING count(*) > 2"""
COMMAND = [sys.executable, "-m", "wiretide"]


def python(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*map(str, words)]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | {"COLUMNS": "200"}, capture_output=True, text=True, check=False
    )


def sorted_lines(text: str) -> list[str]:
    head, *rows = text.splitlines()
    return [head, *sorted(rows)]


def samples(text: str) -> dict[str, float]:
    pairs = (line.rpartition(" ") for line in text.splitlines() if line.startswith("wiretide_"))
    return {name: float(value) for name, _, value in pairs}


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = write_links(tmp_path, 21)[0].path
    path.write_bytes(path.read_bytes()[:-3])
    return path


def test_the_command_line_answers_on_spark_as_it_does_inline(damaged: Path) -> None:
    inline, local = (
        python(*COMMAND, "query", damaged, SQL, "--format", "csv", "--stats", "--on", on) for on in ("inline", "local")
    )
    assert (local.returncode, inline.returncode) == (0, 0), local.stderr
    assert len(local.stdout.splitlines()) > 10
    assert sorted_lines(local.stdout) == sorted_lines(inline.stdout)
    warnings = [line for line in local.stderr.splitlines() if not line.startswith("wiretide_")]
    assert warnings == [line for line in inline.stderr.splitlines() if not line.startswith("wiretide_")]
    assert len(warnings) == 1
    assert warnings[0].endswith("main1.pcap: cut in record, after 1,799 whole records")


def test_one_process_may_ask_on_spark_twice(tmp_path: Path) -> None:
    path = write_links(tmp_path, 22)[0].path
    program = (
        "import sys, wiretide\n"
        "want = sorted(map(str, wiretide.query(sys.argv[1], sys.argv[2]).to_pylist()))\n"
        "for _ in range(2):\n"
        "    rows = wiretide.query(sys.argv[1], sys.argv[2], on='local').to_pylist()\n"
        "    assert sorted(map(str, rows)) == want, rows\n"
        "print(len(want))\n"
    )
    done = python(sys.executable, "-c", program, SQL, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 10


def test_a_session_of_the_users_own_is_used_and_left_running(tmp_path: Path) -> None:
    path = write_links(tmp_path, 23)[0].path
    program = (
        "import sys, wiretide\n"
        "from pyspark.sql import SparkSession\n"
        "mine = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "rows = wiretide.query(sys.argv[1], sys.argv[2], on='local').num_rows\n"
        "print(rows == wiretide.query(sys.argv[1], sys.argv[2]).num_rows, mine.range(7).count())\n"
        "mine.stop()\n"
    )
    done = python(sys.executable, "-c", program, SQL, path)
    assert (done.returncode, done.stdout) == (0, "True 7\n"), done.stderr


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("local[x]", "Spark did not start on local[x]: Could not parse Master URL: 'local[x]'"),
        ("spark://", "Spark did not start on spark://: Expected authority"),
    ],
)
def test_a_master_that_does_not_exist_is_one_line(damaged: Path, master: str, said: str) -> None:
    done = python(*COMMAND, "query", damaged, SQL, "--on", master)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"wiretide: {said}")
    assert len(done.stderr.splitlines()) == 1


def test_a_launcher_that_refuses_is_quoted(tmp_path: Path) -> None:
    program = (
        "from highlevel.spark.errors import RunError\n"
        "from highlevel.spark.session.session import close_session, start_session\n"
        "try:\n"
        "    start_session('nonsense')\n"
        "except RunError as error:\n"
        "    print(error)\n"
        "spark = start_session('local[1]')\n"
        "assert start_session() is spark\n"
        "close_session(spark)\n"
        "print(spark.range(3).count())\n"
        "close_session(spark)\n"
    )
    done = python(sys.executable, "-c", program)
    assert done.stdout.splitlines() == [
        "Spark did not start on nonsense: Master must either be yarn or start with spark, k8s, or local",
        "3",
    ], done.stderr
