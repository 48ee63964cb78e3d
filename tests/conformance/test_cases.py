"""The conformance cases of `cases/*.md`: each query has the rows of its table, inline and with several threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wiretide
from tests.conformance.cases_of import Case, read_cases, read_packets
from tests.conformance.traffic import START, write_links
from tests.references.pcap_bytes import NS

CASES = read_cases()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_links(tmp_path_factory.mktemp("links"), read_packets())


def cell(value: Any) -> str:
    """Return a value as the tables print it."""
    if value is None:
        return "NULL"
    if hasattr(value, "value"):  # a pandas Timestamp
        return f"{(value.value - START) / NS:g}"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def test_there_are_at_least_200_cases_with_different_queries() -> None:
    assert len({case.sql for case in CASES}) == len(CASES) >= 200


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.page}: {case.title}")
def test_a_case(case: Case, threads: int, paths: list[Path]) -> None:
    table = wiretide.query(case.sql, *paths, threads=threads)
    found = [tuple(map(cell, row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    assert table.schema.names == case.columns
    if "ORDER BY" in case.sql.rpartition(")")[2]:
        assert found == case.rows
    else:
        assert sorted(found) == sorted(case.rows)
