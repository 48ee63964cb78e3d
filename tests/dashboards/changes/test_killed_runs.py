"""A pipeline with changes whose processes are killed while they write: after a restart every sink is exact.

The tests detect a correction of which a sink has one half, changes that are lost or written twice, and a gauge that
continues with rows that were withdrawn.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("kind", ["windows", "rows"])
def test_files_and_gauges_are_exact_after_processes_were_killed(kind: str, tmp_path: Path, soak: bool) -> None:
    for seed in range(20 if soak else 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        kills = 20 if soak else 4
        command = [sys.executable, "-m", "tests.harness.change_run_driver", folder, f"{kind} {seed}", kind, str(kills)]
        driver = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        shown, ends = map(json.loads, driver.stdout.splitlines())
        assert ends == {"-9": ends["-9"], "0": 1}, (seed, driver.stderr)
        assert ends["-9"] >= kills // 2, seed
        assert shown["exact"], seed
        assert shown["final"] == shown["compact"] == shown["exact"], seed
        assert shown["provisional"] == 0
        assert shown["gauges"] == (shown["newest"] if kind == "windows" else []), seed
