"""How a bench times a command: its core, its memory, its errors. Wrong here makes every figure wrong."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bench.command import wiretide
from bench.one_core import core, on_one_core
from bench.others import SharedMachineTime, family_time, machine_time, time_with_others
from bench.process import run_timed

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="cores and memory of a process are told by Linux alone")


def python(source: str, one_core: bool = False) -> tuple[object, object]:
    """Run a line of Python; returns how the run went and what it printed as JSON."""
    with tempfile.TemporaryFile() as output:
        run = run_timed([sys.executable, "-c", source], one_core, output=output)
        output.seek(0)
        return run, json.loads(output.read() or "null")


@LINUX
def test_a_command_runs_on_one_core_when_asked_and_this_process_stays_free() -> None:
    before = os.sched_getaffinity(0)
    told = "import os, json; print(json.dumps(list(os.sched_getaffinity(0))))"
    assert python(told, one_core=True)[1] == [core()]
    assert set(python(told)[1]) == before == os.sched_getaffinity(0)  # type: ignore[call-overload]


@LINUX
def test_work_on_one_core_is_done_in_a_process_of_its_own() -> None:
    assert on_one_core(os.sched_getaffinity, 0) == {core()}
    assert on_one_core(os.getpid) != os.getpid()


def test_an_error_on_one_core_is_raised_here() -> None:
    with pytest.raises(FileNotFoundError):
        on_one_core(os.stat, "/no such file")


@LINUX
def test_memory_is_the_peak_and_leaves_mapped_files_out(tmp_path: Path) -> None:
    mapped = tmp_path / "mapped"
    mapped.write_bytes(bytes(200 << 20))
    source = (
        "import mmap, time\n"
        "held = bytearray(b'x') * (100 << 20)\n"
        f"file = open({str(mapped)!r}, 'rb')\n"
        "file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "seen = sum(file[at] for at in range(0, len(file), 4096))\n"
        "time.sleep(2)\n"  # on a busy machine the thread that watches the process is late
        "del held\n"
    )
    run, _ = python(source)
    assert 100 << 20 < run.memory < 160 << 20  # type: ignore[attr-defined]


def test_processor_time_is_that_of_the_command() -> None:
    run, _ = python("import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass")
    assert 0.2 <= run.processor <= run.seconds + 0.05  # type: ignore[attr-defined]


@LINUX
def test_the_work_of_children_is_ours_and_that_of_anybody_else_is_not() -> None:
    spend = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass\nprint('done')"]
    ours, whole = family_time(), machine_time()
    subprocess.run(spend, check=True, stdout=subprocess.DEVNULL)
    assert family_time() - ours >= 0.48  # the kernel counts in hundredths
    assert machine_time() - whole >= 0.48
    # Its parent ends at once, so it is no longer below this process; its output ends when it does.
    ours, whole = family_time(), machine_time()
    assert subprocess.run(["setsid", "--fork", *spend], check=True, capture_output=True).stdout == b"done\n"
    assert family_time() - ours < 0.3
    assert machine_time() - whole >= 0.48


@LINUX
def test_a_step_knows_how_much_of_the_machine_others_took() -> None:
    took = time_with_others(lambda: subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True))
    assert 0 <= took.share <= 1
    assert SharedMachineTime(seconds=2.0, others=1.0, cores=2).share == 0.75


def test_a_command_that_fails_is_an_error_with_what_it_said() -> None:
    with pytest.raises(RuntimeError, match=r"exit status 3, expected 0: cannot"):
        run_timed([sys.executable, "-c", "import sys; print('cannot', file=sys.stderr); sys.exit(3)"])


def test_the_measured_command_is_the_one_that_is_installed() -> None:
    run = run_timed(wiretide("--version"))
    assert run.errors == ""
