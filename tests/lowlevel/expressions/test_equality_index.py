"""EqualityIndex has the rows of a comparison with each constant, and queries with it have the rows of queries alone.

The tests detect rows of a constant that another constant gets, NULL as a value, addresses with equal words, a batch
that is answered from the batch before, and a condition that loses its other parts.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

import wiretide
from highlevel.inline.engine import InlineRun, Input
from lowlevel.expressions.address_constants import Address
from lowlevel.expressions.columns import AddressVector, Vector
from lowlevel.expressions.equality_index import EqualityIndex, equality_of
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from queries.gsql import compile_query
from tests.conformance.traffic import generate_links

PORT, SOURCE = Column("srcPort", Type.INT, nullable=True), Column("srcIP", Type.ADDRESS)
ADDRESSES = [Address(4, 1), Address(4, 2), Address(6, 1), Address(6, 1 << 64), Address(6, (1 << 64) + 1), Address(6, 2)]


def integers(random: Random, rows: int) -> Vector:
    values = np.array([random.choice([-1, 0, 53, 80, 443, 2**62]) for _ in range(rows)], np.int64)
    return Vector(values, values != -1, -1)


def addresses(random: Random, rows: int) -> AddressVector:
    drawn = [random.choice([*ADDRESSES, None]) for _ in range(rows)]
    halves = [divmod(each.value if each else 0, 2**64) for each in drawn]
    version = np.array([each.version if each else 0 for each in drawn], np.int64)
    high, low = (np.array([half[part] for half in halves], np.uint64) for part in range(2))
    return AddressVector(version, high, low, version != 0)


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_those_of_a_comparison(seed: int) -> None:
    random = Random(seed)
    ports = EqualityIndex(PORT, [0, 53, 80, 2**62, 9, -5])
    sources = EqualityIndex(SOURCE, ADDRESSES)
    for _ in range(3):  # each batch has its own columns
        rows = random.randint(1, 50)
        columns = {"srcPort": integers(random, rows), "srcIP": addresses(random, rows)}
        for index, constants, column in ((ports, [0, 53, 80, 2**62, 9, -5], PORT), (sources, ADDRESSES, SOURCE)):
            for constant in constants:
                literal = Literal(constant, column.type)
                expected = np.flatnonzero(Condition(Binary(Op.EQ, column, literal)).true_rows(columns, rows))
                assert index.rows(columns, rows, constant).tolist() == expected.tolist()


def test_a_column_with_one_value_for_all_rows() -> None:
    columns = {"srcPort": Vector(np.array(53)), "srcIP": AddressVector.constant(ADDRESSES[3])}
    index, sources = EqualityIndex(PORT, [53, 80]), EqualityIndex(SOURCE, ADDRESSES)
    assert index.rows(columns, 3, 53).tolist() == [0, 1, 2]
    assert index.rows(columns, 3, 80).tolist() == []
    assert [sources.rows(columns, 2, each).tolist() for each in ADDRESSES] == [[], [], [], [0, 1], [], []]


def test_a_condition_with_an_index_keeps_its_other_parts() -> None:
    parts: list[Expression] = [
        Binary(Op.EQ, PORT, Literal(53, Type.INT)),
        Binary(Op.GT, Column("len", Type.INT), Literal(100, Type.INT)),
    ]
    columns = {"srcPort": Vector(np.array([53, 53, 80, 53])), "len": Vector(np.array([101, 99, 500, 102]))}
    for first, second in (parts, parts[::-1]):
        condition = Condition(Binary(Op.AND, first, second))
        condition.use_index(EqualityIndex(PORT, [53, 80]))
        assert condition.true_rows(columns, 4).tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    "expression",
    [
        Binary(Op.NE, PORT, Literal(53, Type.INT)),
        Binary(Op.EQ, Column("x", Type.FLOAT), Literal(1.5, Type.FLOAT)),
        Binary(Op.EQ, PORT, Column("destPort", Type.INT)),
    ],
)
def test_other_conditions_have_no_index(expression: Expression) -> None:
    assert equality_of(expression) is None


def test_queries_that_differ_in_constants_have_the_rows_of_queries_alone(tmp_path: Path) -> None:
    paths, _ = generate_links(tmp_path)
    texts = [
        f"SELECT destIP, count(*) AS n, sum(len) AS b FROM packets WHERE {condition} GROUP BY destIP"
        for condition in [
            *(f"srcPort = {port}" for port in (53, 80, 443, 1024, 5000, 1, 2, 3)),
            *(f"srcIP = '10.0.0.{end}' AND protocol = 6" for end in range(1, 9)),
            *(f"srcPort = 53 AND destPort = {port}" for port in (53, 80, 443, 8080)),
            *(f"srcIP = '2001:db8::{end}' AND vlan = 7" for end in range(1, 5)),
            "len > 100",
        ]
    ]
    plans = [compile_query(text, f"q{number}") for number, text in enumerate(texts)]
    found: list[list[dict]] = [[] for _ in plans]
    for number, batch in InlineRun(plans, [Input(path.stem, path) for path in paths]).results():
        found[number] += batch.to_pylist()
    expected = [wiretide.query(text, *paths).num_rows for text in texts]
    assert [len(rows) for rows in found] == expected
    for text, rows in zip(texts, found, strict=True):
        alone = InlineRun([compile_query(text)], [Input(path.stem, path) for path in paths])
        assert sorted(map(str, rows)) == sorted(str(row) for _, batch in alone.results() for row in batch.to_pylist())
    assert sum(map(bool, found)) > 10
