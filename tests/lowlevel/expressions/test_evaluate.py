"""Expressions over columns against a twin that takes one row at a time with None for NULL.

* Random trees catch a mask that is forgotten on the way up, a constant that is not broadcast, and a result of another
  type.
* Whole tables of logic, division and prefixes catch the cases that random trees seldom meet.
"""

import functools
import itertools
from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Any

import numpy as np
import pytest

from lowlevel.expressions import columns as texts
from lowlevel.expressions import membership
from lowlevel.expressions.address_constants import Address, Prefix
from lowlevel.expressions.columns import AddressVector, AnyVector, BytesVector, Columns, TextVector, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import (
    Binary,
    Call,
    Column,
    Conditional,
    Expression,
    InList,
    InPrefix,
    IsNull,
    Literal,
    Mean,
    Present,
    Unary,
    WideSum,
    columns_of,
)
from lowlevel.expressions.types import Function, Op, Type
from tests.references import lowlevel_oracle, random_expressions

ROWS = 37
COLUMNS = [
    Column("a", Type.INT, nullable=True),
    Column("b", Type.INT),
    Column("x", Type.FLOAT, nullable=True),
    Column("y", Type.FLOAT),
    Column("p", Type.BOOL, nullable=True),
    Column("q", Type.BOOL),
    Column("src", Type.ADDRESS, nullable=True),
    Column("dst", Type.ADDRESS),
    Column("mac", Type.MAC, nullable=True, bits=48),
    Column("name", Type.TEXT, nullable=True),
    Column("data", Type.BYTES, nullable=True),
    Column("link", Type.TEXT),
]
DTYPES = {Type.INT: np.int64, Type.MAC: np.int64, Type.FLOAT: np.float64, Type.BOOL: np.bool_}


def random_rows(random: Random, rows: int = ROWS) -> list[dict[str, Any]]:
    def of(column: Column) -> Any:
        if column.nullable and random.random() < 0.3:
            return None
        if column.name == "link":
            return "main1"
        if column.type is Type.BYTES:
            return bytes(random.choice(b"GET abc\0") for _ in range(random.randrange(12)))
        return lowlevel_oracle.value(random_expressions.literal(random, column.type), {})

    return [{column.name: of(column) for column in COLUMNS} for _ in range(rows)]


def vectors(rows: list[dict[str, Any]]) -> dict[str, AnyVector]:
    """Columns of rows. The value of a NULL position is arbitrary, as in a reused buffer."""
    made: dict[str, AnyVector] = {"link": TextVector.constant("main1")}
    for column in COLUMNS[:-1]:
        values = [row[column.name] for row in rows]
        valid = np.array([value is not None for value in values]) if column.nullable else None
        if column.type is Type.ADDRESS:
            under = [IPv4Address(7) if value is None else value for value in values]
            halves = np.array([divmod(int(value), 2**64) for value in under], np.uint64).reshape(-1, 2)
            version = np.array([0 if value is None else value.version for value in values], np.int64)
            made[column.name] = AddressVector(version, halves[:, 0], halves[:, 1], valid)
        elif column.type is Type.TEXT:
            names = ["main2", "", "unused", "main1"]
            ids = np.array([0 if value is None else names.index(value) for value in values], np.int64)
            made[column.name] = TextVector(ids, names, valid)
        elif column.type is Type.BYTES:
            whole = b"before" + b"".join(value or b"" for value in values)
            length = np.array([len(value or b"") for value in values], np.int64)
            start = 6 + np.cumsum(length) - length
            made[column.name] = BytesVector(np.frombuffer(whole, np.uint8), start, length, valid)
        else:
            made[column.name] = Vector(np.array([value or 0 for value in values], DTYPES[column.type]), valid)
    return made


def true_rows(condition: Expression, columns: Columns, rows: int) -> np.ndarray:
    return Condition(condition).true_rows(columns, rows)


def values_of(vector: AnyVector, rows: int = ROWS) -> list[Any]:
    assert isinstance(vector, Vector)
    data = np.broadcast_to(vector.data, rows).tolist()
    valid = [True] * rows if vector.valid is None else np.broadcast_to(vector.valid, rows).tolist()
    return [value if present else None for value, present in zip(data, valid, strict=True)]


@pytest.mark.parametrize("type_", [Type.INT, Type.FLOAT, Type.BOOL])
@pytest.mark.parametrize("seed", range(8))
def test_a_random_tree_is_what_it_is_row_by_row(type_: Type, seed: int) -> None:
    random = Random(f"{type_}{seed}")
    rows = random_rows(random)
    columns = vectors(rows)
    for _ in range(150):
        tree = random_expressions.expression(random, COLUMNS, type_, random.randrange(5))
        vector = evaluate(tree, columns)
        expected = [lowlevel_oracle.value(tree, row) for row in rows]
        assert values_of(vector) == expected, tree
        assert vector.data.dtype == DTYPES[type_], tree
        assert tree.type is type_
        assert tree.nullable or None not in expected, tree
        if type_ is Type.BOOL:
            chosen = true_rows(tree, columns, ROWS)
            assert chosen.tolist() == [value is True for value in expected], tree
            assert chosen.flags.c_contiguous
            assert chosen.dtype == np.bool_


TRUTH = [True, False, None]


def constant(value: Any, type_: Type = Type.INT) -> Literal:
    return Literal(value, type_)


def one(tree: Expression) -> Any:
    return values_of(evaluate(tree, {}), 1)[0]


def logic(op: Op, left: bool | None, right: bool | None) -> Any:
    """Return the result for two constants, which must equal the result for two columns."""
    columns = {
        name: Vector(np.array([bool(value)]), np.array([value is not None]))
        for name, value in [("l", left), ("r", right)]
    }
    of_columns = evaluate(Binary(op, Column("l", Type.BOOL, True), Column("r", Type.BOOL, True)), columns)
    of_constants = one(Binary(op, constant(left, Type.BOOL), constant(right, Type.BOOL)))
    assert values_of(of_columns, 1) == [of_constants]
    return of_constants


def test_logic_has_three_values() -> None:
    pairs = list(itertools.product(TRUTH, TRUTH))
    assert [logic(Op.AND, left, right) for left, right in pairs] == [
        *(True, False, None),
        *(False, False, False),
        *(None, False, None),
    ]
    assert [logic(Op.OR, left, right) for left, right in pairs] == [
        *(True, True, True),
        *(True, False, None),
        *(True, None, None),
    ]
    assert [one(Unary(Op.NOT, constant(value, Type.BOOL))) for value in TRUTH] == [False, True, None]
    assert [one(IsNull(constant(value, Type.BOOL))) for value in TRUTH] == [False, False, True]


@pytest.mark.parametrize(
    "dividend, divisor, quotient, remainder",
    [
        (7, 2, 3, 1),
        (-7, 2, -3, -1),
        (7, -2, -3, 1),
        (-7, -2, 3, -1),
        (6, 3, 2, 0),
        (-1, 2, 0, -1),
        (0, 5, 0, 0),
        (1, 0, None, None),
        (0, 0, None, None),
        (2**63 - 1, 2, 2**62 - 1, 1),
        (-(2**63), 2, -(2**62), 0),
        (-(2**63), 2**63 - 1, -1, -1),
        (-(2**63), -1, -(2**63), 0),
        (None, 2, None, None),
        (7, None, None, None),
    ],
)
def test_division_goes_towards_zero_and_by_zero_is_null(
    dividend: Any, divisor: Any, quotient: Any, remainder: Any
) -> None:
    for op, expected in [(Op.DIV, quotient), (Op.MOD, remainder)]:
        assert one(Binary(op, constant(dividend), constant(divisor))) == expected
        columns = {
            name: Vector(np.array([value or 0]), np.array([value is not None]))
            for name, value in [("l", dividend), ("r", divisor)]
        }
        tree = Binary(op, Column("l", Type.INT, True), Column("r", Type.INT, True))
        assert values_of(evaluate(tree, columns), 1) == [expected]


def test_float_division_is_exact_signed_and_null_by_zero() -> None:
    for dividend, divisor, quotient, remainder in [
        (7.5, 2.0, 3.75, 1.5),
        (-7.5, 2.0, -3.75, -1.5),
        (1.0, 0.0, None, None),
    ]:
        left, right = constant(dividend, Type.FLOAT), constant(divisor, Type.FLOAT)
        assert (one(Binary(Op.DIV, left, right)), one(Binary(Op.MOD, left, right))) == (quotient, remainder)
    assert one(Binary(Op.DIV, constant(7), constant(2.0, Type.FLOAT))) == 3.5
    assert one(Binary(Op.DIV, constant(7.0, Type.FLOAT), constant(0))) is None


def test_numbers_beyond_their_type_wrap_or_become_infinite_without_a_warning() -> None:
    huge, lowest = Vector(np.array([1e308, -1e308])), Vector(np.array([2**63 - 1, -(2**63)]))
    columns = {"x": huge, "a": lowest}
    ten = Binary(Op.MUL, Column("x", Type.FLOAT), constant(10))
    assert values_of(evaluate(ten, columns), 2) == [np.inf, -np.inf]
    assert np.isnan(evaluate(Binary(Op.SUB, ten, ten), columns).data).all()
    assert values_of(evaluate(Binary(Op.ADD, Column("a", Type.INT), constant(1)), columns), 2) == [-(2**63), 1 - 2**63]
    assert values_of(evaluate(Unary(Op.NEG, Column("a", Type.INT)), columns), 2) == [1 - 2**63, -(2**63)]


def test_in_over_a_null_is_null_and_keeps_no_row() -> None:
    column = Column("a", Type.INT, nullable=True)
    columns = {"a": Vector(np.array([1, 2, 3]), np.array([True, True, False]))}
    tree = InList(column, (constant(3), constant(1)))
    assert values_of(evaluate(tree, columns), 3) == [True, False, None]
    assert true_rows(tree, columns, 3).tolist() == [True, False, False]
    assert true_rows(Unary(Op.NOT, tree), columns, 3).tolist() == [False, True, False]


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("type_", [Type.INT, Type.FLOAT, Type.ADDRESS, Type.TEXT, Type.MAC])
def test_in_over_many_constants_is_what_it_is_row_by_row(type_: Type, nullable: bool) -> None:
    random = Random(f"{type_}{nullable}")
    operands = [column for column in COLUMNS if column.type is type_ and column.nullable is nullable]
    for operand in [*operands, random_expressions.literal(random, type_), Literal(None, type_)]:
        for count in (membership.MAX_COMPARED, membership.MAX_COMPARED + 1, 3 * membership.MAX_COMPARED):
            rows = random_rows(random)
            near = [Literal(random_neighbour(random, type_), type_) for _ in range(count)]
            for constants in (near, near[:-3] + [random_expressions.literal(random, type_) for _ in range(3)]):
                tree = InList(operand, tuple(constants))
                expected = [lowlevel_oracle.value(tree, row) for row in rows]
                for _ in range(2):  # sorted at the first time, found at the second
                    assert values_of(evaluate(tree, vectors(rows))) == expected, tree


def random_neighbour(random: Random, type_: Type) -> Any:
    """Return a constant close to one of `random_expressions`: addresses share a half or the version."""
    known = random_expressions.literal(random, type_).value
    if isinstance(known, Address):
        flipped = known.value ^ 1 << random.choice([0, 1, 63, 64, 65, 127])
        version = random.choice([4, 6])
        return Address(version, flipped % (2**32 if version == 4 else 2**128))
    return f"{known}{random.choice('ab')}" if isinstance(known, str) else known + random.choice([-1, 0, 1])


@pytest.mark.parametrize("versions", [(4,), (6,), (4, 6)])
def test_in_over_many_prefixes_is_what_it_is_row_by_row(versions: tuple[int, ...]) -> None:
    random = Random(len(versions) + versions[0])
    for count in (membership.MAX_COMPARED + 1, 20, 60):
        for column in COLUMNS[6:8]:
            rows = random_rows(random)
            drawn = [random_expressions.prefix(random) for _ in range(20 * count)]
            prefixes = tuple(each for each in drawn if each.version in versions and each.length > 7)[:count]
            tree = InPrefix(column, prefixes)
            expected = [lowlevel_oracle.value(tree, row) for row in rows]
            assert values_of(evaluate(tree, vectors(rows))) == expected, tree


@pytest.mark.parametrize("version, width", [(4, 32), (6, 128)])
def test_many_prefixes_of_every_length_hold_what_lies_between_their_edges(version: int, width: int) -> None:
    random = Random(version)
    address = IPv4Address if version == 4 else IPv6Address
    for _ in range(20):
        prefixes = []
        for _ in range(membership.MAX_COMPARED + 4):
            length = random.randrange(2, width + 1)
            network = random.getrandbits(width) >> (width - length) << (width - length)
            prefixes.append(Prefix(version, network, length))
        prefixes += [Prefix(version, each.value, min(width, each.length + 3)) for each in prefixes[:3]]  # nested
        starts = [each.value for each in prefixes]
        ends = [each.value + 2 ** (width - each.length) for each in prefixes]
        edges = {(edge + off) % 2**width for edge in (*starts, *ends) for off in (-1, 0)}
        tried = [address(edge) for edge in sorted(edges)] + [IPv4Address("255.255.255.255"), IPv6Address("::")]
        expected = [any(lowlevel_oracle.inside(each, prefix) for prefix in prefixes) for each in tried]
        columns = {"src": address_vector([str(each) for each in tried])}
        assert values_of(evaluate(InPrefix(SRC, tuple(prefixes)), columns), len(tried)) == expected


def test_a_list_is_sorted_once_and_two_equal_lists_do_not_mix() -> None:
    one, other = (tuple(constant(value) for value in values) for values in (range(20), range(20)))
    assert membership.cached_values(one) is membership.cached_values(one)
    assert membership.cached_values(one) is not membership.cached_values(other)


def test_a_long_list_holds_no_nan_and_tells_great_integers_apart() -> None:
    data = np.array([np.nan, -0.0, np.inf, 1.0, 98.0, -np.inf])
    tree = InList(Column("x", Type.FLOAT), tuple(constant(float(value), Type.FLOAT) for value in range(99)))
    assert values_of(evaluate(tree, {"x": Vector(data)}), 6) == [False, True, False, True, True, False]
    near = tuple(constant(2**62 + value) for value in range(0, 99, 2))  # as floats they were all one number
    columns = {"a": Vector(np.array([2**62, 2**62 + 1, 2**62 + 2], np.int64))}
    assert values_of(evaluate(InList(Column("a", Type.INT), near), columns), 3) == [True, False, True]


def test_a_search_looks_only_at_rows_that_the_rest_of_the_condition_lets_pass() -> None:
    """Conditions are joined by AND in any order.

    The answer is that of the reference, and excluded rows are not read.
    """
    data = np.frombuffer(b"GET /GET /POST ", np.uint8)
    start, length = np.array([0, 5, 10, 2**40]), np.array([5, 5, 5, 2**40])  # the last would be far outside
    columns = {"data": BytesVector(data, start, length), "a": Vector(np.array([1, 2, 1, 9]))}
    search = Call(Function.CONTAINS, Column("data", Type.BYTES), Literal(b"GET", Type.BYTES))
    least = Binary(Op.LT, Column("a", Type.INT), constant(9))
    first = Binary(Op.EQ, Column("a", Type.INT), constant(1))
    long = Binary(Op.GT, Call(Function.LENGTH, Column("data", Type.BYTES)), constant(4))
    for parts in itertools.permutations([search, least, first, long]):
        tree = functools.reduce(lambda one, other: Binary(Op.AND, one, other), parts)
        assert true_rows(tree, columns, 4).tolist() == [True, False, False, False]
    assert true_rows(Binary(Op.AND, least, Unary(Op.NOT, search)), columns, 4).tolist() == [False, False, True, False]


def address_vector(texts: list[str]) -> AddressVector:
    addresses = [IPv6Address(text) if ":" in text else IPv4Address(text) for text in texts]
    halves = np.array([divmod(int(address), 2**64) for address in addresses], np.uint64)
    return AddressVector(np.array([address.version for address in addresses]), halves[:, 0], halves[:, 1])


SRC = Column("src", Type.ADDRESS)


@pytest.mark.parametrize("version, width", [(4, 32), (6, 128)])
def test_every_prefix_length_divides_addresses_at_its_edges(version: int, width: int) -> None:
    random = Random(width)
    address = IPv4Address if version == 4 else IPv6Address
    for length in range(width + 1):
        free = width - length
        network = random.getrandbits(width) >> free << free
        edges = [network, network + 2**free - 1, network - 1, network + 2**free, 0, 2**width - 1]
        tried = [address(value % 2**width) for value in edges]
        columns = {"src": address_vector([str(value) for value in tried] + ["::ffff:0.0.0.0", "255.255.255.255"])}
        prefix = Prefix(version, network, length)
        everything = [*tried, IPv6Address("::ffff:0.0.0.0"), IPv4Address("255.255.255.255")]
        expected = [lowlevel_oracle.inside(value, prefix) for value in everything]
        assert values_of(evaluate(InPrefix(SRC, (prefix,)), columns), 8) == expected, prefix


def test_an_ipv4_address_inside_ipv6_is_no_ipv4_address() -> None:
    columns = {"src": address_vector(["10.0.0.1", "::ffff:10.0.0.1", "::10.0.0.1", "::1"])}
    ten = Prefix(4, 0x0A000000, 8)
    mapped = Prefix(6, 0xFFFF << 32, 96)
    assert true_rows(InPrefix(SRC, (ten,)), columns, 4).tolist() == [True, False, False, False]
    assert true_rows(InPrefix(SRC, (mapped,)), columns, 4).tolist() == [False, True, False, False]
    assert true_rows(InPrefix(SRC, (ten, mapped)), columns, 4).tolist() == [True, True, False, False]
    assert true_rows(InPrefix(SRC, (Prefix(4, 0, 0),)), columns, 4).tolist() == [True, False, False, False]
    assert true_rows(InPrefix(SRC, (Prefix(6, 0, 0),)), columns, 4).tolist() == [False, True, True, True]
    equal = Binary(Op.EQ, SRC, Literal(Address(4, 0x0A000001), Type.ADDRESS))
    assert true_rows(equal, columns, 4).tolist() == [True, False, False, False]


def test_addresses_are_ordered_by_version_and_then_by_value() -> None:
    texts = ["0.0.0.0", "10.0.0.1", "255.255.255.255", "::", "::1", "0:0:0:1::", "ffff::"]
    columns = {"src": address_vector(texts)}
    for place, text in enumerate(texts):
        (version,), (high,), (low,) = (getattr(address_vector([text]), part) for part in ("version", "high", "low"))
        other = Literal(Address(int(version), int(high) << 64 | int(low)), Type.ADDRESS)
        below = true_rows(Binary(Op.LT, SRC, other), columns, len(texts)).tolist()
        not_above = true_rows(Binary(Op.LE, SRC, other), columns, len(texts)).tolist()
        assert below == [n < place for n in range(len(texts))]
        assert not_above == [n <= place for n in range(len(texts))]


def test_the_sum_of_two_halves_is_exact_or_null() -> None:
    random = Random(5)
    limits = [-(2**63), 2**63 - 1, -(2**63) - 1, 2**63, 0, -1]
    totals = limits + [random.choice([-1, 1]) * random.randrange(2 ** random.randrange(1, 90)) for _ in range(2000)]
    # The lower half is the sum of many lower halves.
    low = [total % 2**32 + (random.randrange(2**30) << 32) for total in totals]
    high = [(total - lower) >> 32 for total, lower in zip(totals, low, strict=True)]
    columns = {"high": Vector(np.array(high)), "low": Vector(np.array(low))}
    halves = Column("high", Type.INT), Column("low", Type.INT)
    exact = [total if -(2**63) <= total < 2**63 else None for total in totals]
    assert values_of(evaluate(WideSum(*halves), columns), len(totals)) == exact
    rounded = values_of(evaluate(WideSum(*halves, Type.FLOAT), columns), len(totals))
    assert rounded == [pytest.approx(total, rel=1e-15) for total in totals]


def test_an_aggregate_over_no_value_is_null_not_zero() -> None:
    columns = {"sum": Vector(np.array([6, 0, -9])), "n": Vector(np.array([4, 0, 2]))}
    total, count = Column("sum", Type.INT), Column("n", Type.INT)
    assert values_of(evaluate(Present(total, count), columns), 3) == [6, None, -9]
    assert values_of(evaluate(Mean(total, count), columns), 3) == [1.5, None, -4.5]


def test_the_columns_of_a_tree_are_found_depth_first() -> None:
    a, b = COLUMNS[0], COLUMNS[1]
    tree = Binary(Op.AND, InList(a, (constant(1),)), IsNull(Binary(Op.ADD, b, Unary(Op.NEG, a))))
    assert list(columns_of(tree)) == [a, b, a]


def text_column(texts: list[str | None]) -> TextVector:
    """A column whose names are in an unusual order, with a name that no row has."""
    names = ["nobody", *sorted({text for text in texts if text is not None}, reverse=True)]
    ids = np.array([0 if text is None else names.index(text) for text in texts], np.int64)
    return TextVector(ids, names, np.array([text is not None for text in texts]))


def test_texts_of_two_columns_are_compared_by_what_they_say_not_by_their_numbers() -> None:
    columns = {"l": text_column(["a", "b", "c", None, "d"]), "r": text_column(["a", "a", "c", "b", None])}
    left, right, c = Column("l", Type.TEXT, True), Column("r", Type.TEXT, True), constant("c", Type.TEXT)
    assert values_of(evaluate(Binary(Op.EQ, left, right), columns), 5) == [True, False, True, None, None]
    assert values_of(evaluate(Binary(Op.NE, left, right), columns), 5) == [False, True, False, None, None]
    assert values_of(evaluate(Binary(Op.EQ, left, left), columns), 5) == [True, True, True, None, True]
    assert values_of(evaluate(Binary(Op.EQ, c, right), columns), 5) == [False, False, True, False, None]


def test_a_long_list_of_names_is_looked_at_where_rows_need_it() -> None:
    """A whole run has many more names than a block. The test must never see a name without a row."""
    names = [f"name{number}" for number in range(1000)]
    vector = TextVector(np.array([7, 999, 7, 0]), names, np.array([True, True, True, False]))
    seen: list[str] = []
    held = texts.check_texts(vector, lambda name: not seen.append(name) and name.endswith("9"))  # type: ignore[func-returns-value]
    assert held[:3].tolist() == [False, True, False]
    assert sorted(seen) == ["name0", "name7", "name999"]
    nothing = TextVector(np.zeros(2, np.int64), [], np.zeros(2, np.bool_))
    assert values_of(evaluate(Binary(Op.EQ, Column("n", Type.TEXT), constant("a", Type.TEXT)), {"n": nothing}), 2) == [
        None,
        None,
    ]


def test_names_are_kept_once_and_in_the_order_they_came() -> None:
    names = texts.Names()
    assert [names.add(text) for text in ("b", "a", "b", "", "a")] == [0, 1, 0, 2, 1]
    assert names.texts == ["b", "a", ""]


def test_a_null_address_equals_no_address_not_even_the_one_of_zeros() -> None:
    nothing = AddressVector(
        np.array([0, 4, 6]), np.zeros(3, np.uint64), np.zeros(3, np.uint64), np.array([False, True, True])
    )
    zero = constant(Address(4, 0), Type.ADDRESS)
    assert values_of(evaluate(Binary(Op.EQ, SRC, zero), {"src": nothing}), 3) == [None, True, False]
    assert values_of(evaluate(IsNull(SRC), {"src": nothing}), 3) == [True, False, False]
    everything = InPrefix(SRC, (Prefix(4, 0, 0), Prefix(6, 0, 0)))
    assert values_of(evaluate(everything, {"src": nothing}), 3) == [None, True, True]


def test_addresses_of_one_version_need_no_column_of_versions() -> None:
    """A block with only IPv4 rows, in every operation on addresses."""
    random = Random(8)
    low = np.array([random.choice([0, 0x0A000001, 2**32 - 1, random.getrandbits(32)]) for _ in range(ROWS)], np.uint64)
    short = AddressVector(np.array(4), np.zeros((), np.uint64), low)
    whole = AddressVector(np.full(ROWS, 4), np.zeros(ROWS, np.uint64), low)
    column = Column("dst", Type.ADDRESS)
    for _ in range(300):
        tree = random_expressions.condition(random, [column], 3)
        one, other = (evaluate(tree, {"dst": vector}) for vector in (short, whole))
        assert values_of(one) == values_of(other), tree


def test_the_ids_of_conditional_texts_do_not_change_when_the_names_of_a_column_grow() -> None:
    inner = Conditional(Column("b", Type.BOOL), Column("name", Type.TEXT), Literal("x", Type.TEXT))
    tree = Conditional(Column("a", Type.BOOL), Literal("last", Type.TEXT), inner)
    names: list[str] = ["x", "one"]
    seen: dict[str, int] = {}
    for new in ("two", "last", "three"):
        names.append(new)
        ids = np.arange(len(names))
        columns = {
            "a": Vector(ids % 2 == 1),
            "b": Vector(ids % 3 == 0),
            "name": TextVector(ids, list(names)),
        }
        found = evaluate(tree, columns)
        assert isinstance(found, TextVector)
        assert len(set(found.names)) == len(found.names)
        texts = [found.names[each] for each in found.ids.tolist()]
        assert texts == ["last" if n % 2 else name if n % 3 == 0 else "x" for n, name in enumerate(names)]
        for each, text in zip(found.ids.tolist(), texts, strict=True):
            assert seen.setdefault(text, each) == each
