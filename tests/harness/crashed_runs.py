"""Runs in processes of their own, to be killed."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def start(folder: Path, inputs: Path, moment: str, batch: int) -> Iterator[subprocess.Popen[str]]:
    """Run the driver in its own session and wait for its end. Kill it if the test fails before."""
    command = [sys.executable, "-m", "tests.harness.spark_crash_driver", folder, inputs, moment, str(batch)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        except BaseException:
            process.kill()  # its JVM and workers end with it
            raise


def wait_for_all_of(session: int) -> None:
    """Return when no process of the session is left: JVM, Python workers and their parent."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            of = int((path / "stat").read_text().rpartition(")")[2].split()[3])
            ends = os.pidfd_open(int(path.name)) if of == session else None
        except OSError:
            continue  # it ended while we looked
        if ends is not None:
            select.select([ends], [], [])
            os.close(ends)
