"""The answers of ready queries over real captures, compared with plain Python over rows that dpkt decodes.

It can catch a query whose text does not compute the answer that its sentence promises, also for each window.
"""

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from queries.catalogue.catalogue import CATALOGUE
from queries.query_text import query_text
from queries.text.parameters import ParameterType
from tests.harness import in_ns
from tests.references.catalogue_answers import (
    ATTACKS,
    CASES,
    EXPORTS,
    NS,
    Answer,
    rows_of,
    sort_key,
    write_attacks,
    write_exports,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("indicators")


@pytest.fixture(scope="module")
def capture_of(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("catalogue")
    written = {
        EXPORTS: write_exports(folder / f"{EXPORTS}.pcap", captures),
        ATTACKS: write_attacks(folder / f"{ATTACKS}.pcap"),
    }
    return lambda name: written.get(name, captures / "pcap" / name)


def answer(name: str, path: Path, params: dict[str, Any], on: str = "inline") -> Answer:
    """The rows of a ready query, with addresses as objects.

    `final` of changes is left out: only the inline engine returns rows before the end of the input.
    """
    table = in_ns.query(query_text(f"@{name}", params), path, on=on)
    rows = table.drop_columns([each for each in table.column_names if each == "final"]).to_pylist()
    return [tuple(map(address, row.values())) for row in rows]


def address(value: Any) -> Any:
    try:
        return ip_address(value) if isinstance(value, str) else value
    except ValueError:
        return value


def equal(actual: Answer, expected: Answer, name: str) -> None:
    """Compare answers, in order if the query sorts its rows. Floats may differ in the last bits."""
    if "\nORDER BY" not in CATALOGUE[name].text:
        actual, expected = (sorted(rows, key=lambda row: [*map(sort_key, row)]) for rows in (actual, expected))
    assert [tuple(map(rounded, row)) for row in actual] == [tuple(map(rounded, row)) for row in expected]


def rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def test_every_ready_query_has_a_case() -> None:
    assert CASES.keys() == CATALOGUE.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_ready_query_answers_as_plain_python_does(name: str, capture_of: Callable[[str], Path]) -> None:
    case = CASES[name]
    path = capture_of(case.capture)
    expected = case.reference(rows_of(path, CATALOGUE[name].input))
    assert len(expected) >= case.least
    equal(answer(name, path, case.params), expected, name)


WINDOWED = [name for name in CASES if any(each.type is ParameterType.WINDOW for each in CATALOGUE[name].parameters)]


@pytest.mark.parametrize("name", WINDOWED)
def test_a_ready_query_answers_for_each_window(name: str, capture_of: Callable[[str], Path]) -> None:
    case = CASES[name]
    path = capture_of(case.capture)
    rows = rows_of(path, CATALOGUE[name].input)
    expected = []
    for minute in sorted({row["ts"] // (60 * NS) for row in rows}):
        own = [row for row in rows if not case.in_window(row) or row["ts"] // (60 * NS) == minute]
        bounds = (minute * 60 * NS, (minute + 1) * 60 * NS)
        expected += [(*bounds, *row) for row in case.reference(own)]
    equal(answer(name, path, case.params | {"window": "1 minute"}), expected, name)


@pytest.fixture
def engine(spark: "SparkSession") -> str:
    """The engine that uses the session of the tests."""
    return "local"


@pytest.mark.drawn
@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_a_ready_query_answers_equally_on_spark(name: str, engine: str, capture_of: Callable[[str], Path]) -> None:
    case = CASES[name]
    path = capture_of(case.capture)
    equal(answer(name, path, case.params, engine), case.reference(rows_of(path, CATALOGUE[name].input)), name)
