"""SIGTERM ends every command in order, like Ctrl-C: exit status 143, one line, and no files that remain.

It can catch a command that dies by the default action of the signal, which leaves unfinished files, and a command that
reports another status.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.links import write_links

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "wiretide"]
SQL = "SELECT srcIP, count(*) AS n FROM packets [RANGE 1 second] GROUP BY srcIP"


def handles_sigterm(process: int) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def has_bytes(folder: Path) -> bool:
    """Return whether a file has been begun. A folder is no proof: it may be newer than the code that removes it."""
    return any(path.is_file() and path.stat().st_size for path in folder.rglob("*"))


def terminated(words: list[str | Path], temporary: Path, begun: Path | None = None) -> tuple[int, str]:
    """Run a command, send SIGTERM once it handles it and `begun` has bytes; return its status and errors."""
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*COMMAND, *map(str, words)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            while process.poll() is None and not handles_sigterm(process.pid):
                time.sleep(0.01)
            while begun is not None and process.poll() is None and not has_bytes(begun):
                time.sleep(0.01)
            process.terminate()
            _, errors = process.communicate()
        except BaseException:
            process.kill()
            raise
    return process.returncode, errors


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to see signals in")
def test_generate_removes_its_unfinished_file(tmp_path: Path) -> None:
    folder, temporary = tmp_path / "captures", tmp_path / "tmp"
    folder.mkdir()
    temporary.mkdir()
    words = ["generate", folder / "a.pcap", "--packets", "200000000"]
    assert terminated(words, temporary, folder) == (143, "wiretide: stopped\n")
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to see signals in")
@pytest.mark.parametrize("command", ["query", "compare"])
def test_a_command_over_files_ends_with_the_status_of_the_signal(command: str, tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    path = write_links(captures, 4)[0].path
    head, records = path.read_bytes()[:24], path.read_bytes()[24:]
    with path.open("wb") as file:
        file.write(head)
        for _ in range(2000):
            file.write(records)
    assert terminated([command, path, SQL], tmp_path) == (143, "wiretide: stopped\n")
    assert list(tmp_path.iterdir()) == [captures]


def test_an_interrupt_inside_a_dataclass_definition_leaves_the_exit_status(tmp_path: Path) -> None:
    # `dataclass` passes text to `exec`; python -m does not reset what CPython remembers of an interrupt there.
    (tmp_path / "interrupted_command.py").write_text(
        "from dashboards.commands import app\n"
        "def importing():\n"
        "    exec('raise KeyboardInterrupt')\n"
        "app.load_command = lambda name: importing\n"
        "app.run_command_line()\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    command = [sys.executable, "-m", "interrupted_command", "importing"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "wiretide: stopped\n")
