"""`wiretide query` with a consistency: several queries in one pass, and the advice for late rows."""

from pathlib import Path
from random import Random

import pytest

from tests.harness.command_line import run
from tests.harness.disordered_links import write_disordered

FINAL = "SELECT count(*) AS n [RANGE 10 seconds] FROM packets WITH CONSISTENCY (REMEMBER 1 second) EMIT FINAL"
CHANGES = "SELECT srcIP, count(*) AS n [RANGE 10 seconds] FROM packets GROUP BY srcIP EMIT CHANGES"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Three blocks of packets."""
    return write_disordered(tmp_path / "late.pcap", Random(1), packets=20_000, late=6)


def test_several_queries_have_the_changes_of_each_alone(capture: Path) -> None:
    status, text, _ = run("query", capture, FINAL, CHANGES, cwd=capture.parent)
    assert status == 0
    for part, query in zip(text.split("\n\n"), (FINAL, CHANGES), strict=True):
        alone = run("query", capture, query, cwd=capture.parent)[1]
        assert sorted(part.rstrip("\n").split("\n")[1:]) == sorted(alone.rstrip("\n").split("\n"))


def test_late_rows_of_a_query_that_states_its_memory_need_a_longer_one(capture: Path) -> None:
    errors = run("query", capture, FINAL, cwd=capture.parent)[2]
    assert errors.endswith("late rows missed a window that was already final: use a longer REMEMBER\n")
