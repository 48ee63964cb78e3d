"""SIGTERM and Ctrl-C end the demo in order in each of its phases: a known status, no process and no file left.

The tests detect a JVM whose launch was interrupted, which never ends and creates its temporary folder again. They
detect folders that remain after a signal, because it arrived before or during their removal.
"""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.demo_process import WIRETIDE, lines_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to see processes in"),
]


def processes(session: int) -> list[str]:
    """Return the command lines of the processes of a session, without those that have ended."""
    lines = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                lines.append((path / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            pass  # it ended meanwhile
    return lines


def without_compilation(errors: str) -> list[str]:
    """Return the lines of standard error, without the line about kernels that no run has compiled before."""
    return [line for line in errors.splitlines() if "first run on this machine" not in line]


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    while not happened():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


def generating(process: subprocess.Popen[str], temporary: Path) -> None:
    wait_for(process, lambda: any(temporary.glob("wiretide-demo-*")))


def launching_the_jvm(process: subprocess.Popen[str], temporary: Path) -> None:
    """Wait for the folder into which the JVM will write its port."""
    lines_until(process, "starting Spark")
    wait_for(process, lambda: any(temporary.glob("tmp*")))


def starting_the_stream(process: subprocess.Popen[str], temporary: Path) -> None:
    """Wait for the end of the launch of the JVM; its Spark context is made next."""
    launching_the_jvm(process, temporary)
    wait_for(process, lambda: not any(temporary.glob("tmp*")))


def replaying(process: subprocess.Popen[str], temporary: Path) -> None:
    lines_until(process, "total: ")


def serving(process: subprocess.Popen[str], temporary: Path) -> None:
    lines_until(process, "Ctrl-C ends")


PHASES = [generating, launching_the_jvm, starting_the_stream, replaying, serving]
TERMINATED = (generating, starting_the_stream, serving)
"""The phases in which SIGTERM ends the demo. In the others Ctrl-C does; with --soak, both do in each phase."""


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
@pytest.mark.parametrize(
    ("number", "times", "status"), [(signal.SIGTERM, 1, 143), (signal.SIGINT, 2, 130)], ids=["SIGTERM", "Ctrl-C twice"]
)
def test_a_signal_ends_the_demo_and_leaves_nothing(
    phase: Callable[[subprocess.Popen[str], Path], None],
    number: int,
    times: int,
    status: int,
    tmp_path: Path,
    soak: bool,
) -> None:
    if not soak and (number == signal.SIGTERM) is not (phase in TERMINATED):
        pytest.skip("--soak sends both signals in each phase")
    master, slave = pty.openpty()  # at a terminal the demo serves until a signal
    with subprocess.Popen(
        [WIRETIDE, "demo", "--seconds", "60", "--speed", "60" if phase is replaying else "1000", "--port", "0"],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    ) as process:
        try:
            phase(process, tmp_path)
            for _ in range(times):
                os.kill(process.pid, number)
                time.sleep(0.1)  # two signals at once would be one
            _, errors = process.communicate()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            os.close(master)
            os.close(slave)
    assert (process.returncode, without_compilation(errors)) == (status, ["wiretide: stopped"])
    while any("pyspark.daemon" in line for line in processes(process.pid)):
        time.sleep(0.01)  # the JVM has told the workers to end
    assert processes(process.pid) == []
    assert list(tmp_path.iterdir()) == []


def test_the_next_demo_removes_the_folder_of_a_killed_demo(tmp_path: Path) -> None:
    command = [WIRETIDE, "demo", "--seconds", "60", "--rate", "1", "--speed", "1000", "--port", "0"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    program = (
        "import os, signal; "
        "from highlevel.spark.session.scratch import ScratchFolder; ScratchFolder.create('wiretide-demo-'); "
        "os.kill(os.getpid(), signal.SIGTERM)"
    )
    killed = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert killed.returncode == -signal.SIGTERM
    assert len(list(tmp_path.iterdir())) == 1
    done = subprocess.run([*command, "--until-done"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, without_compilation(done.stderr)) == (0, [])
    assert list(tmp_path.iterdir()) == []
