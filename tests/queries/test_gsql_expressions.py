"""Random expression trees, printed to SQL in several ways, must compile back to themselves.

One printer puts every operand in parentheses, the other (`expression_text`) as few as it can. A wrong precedence, a
swapped operand, a lost NOT or a literal read as another type makes the trees differ. Documented normalisation: a minus
before a number is part of it.
"""

from collections.abc import Callable
from functools import reduce
from ipaddress import IPv4Address, IPv6Address
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowlevel.expressions.address_constants import Address, Prefix
from lowlevel.expressions.columns import Columns, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import (
    Binary,
    Column,
    Conditional,
    Expression,
    Extreme,
    InList,
    InPrefix,
    IsNull,
    Literal,
    Unary,
)
from lowlevel.expressions.types import Op, Type
from queries.gsql import compile_query
from queries.text.printer import expression_text

LEN = Column("len", Type.INT, bits=32)
VLAN = Column("vlan", Type.INT, nullable=True, bits=16)
SOURCE = Column("srcIP", Type.ADDRESS, bits=128)
TARGET = Column("destIP", Type.ADDRESS, bits=128)
LINK = Column("link", Type.TEXT)

INTEGERS = st.integers(-(2**63), 2**63 - 1).map(lambda value: Literal(value, Type.INT))
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: Literal(value + 0.0, Type.FLOAT))
TEXTS = st.text(max_size=5).map(lambda value: Literal(value, Type.TEXT))
ADDRESSES = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda value: Literal(Address(4, value), Type.ADDRESS)),
    st.integers(0, 2**128 - 1).map(lambda value: Literal(Address(6, value), Type.ADDRESS)),
)
SHIFTS = st.integers(0, 63).map(lambda value: Literal(value, Type.INT))


def prefix(version: int, value: int, length: int) -> Prefix:
    width = 32 if version == 4 else 128
    return Prefix(version, value >> (width - length) << (width - length), length)


PREFIXES = st.one_of(
    st.builds(prefix, st.just(4), st.integers(0, 2**32 - 1), st.integers(0, 31)),
    st.builds(prefix, st.just(6), st.integers(0, 2**128 - 1), st.integers(0, 127)),
)


def unary(op: Op, operand: Expression) -> Expression:
    """A minus before a number is part of the number."""
    if op is Op.NEG and isinstance(operand, Literal) and isinstance(operand.value, int | float):
        return Literal(-operand.value, operand.type) if operand.value != -(2**63) else operand
    return Unary(op, operand)


def lists(values: st.SearchStrategy[Literal]) -> st.SearchStrategy[tuple[Literal, ...]]:
    return st.lists(values, min_size=1, max_size=3).map(tuple)


SIGNS = st.sampled_from([Op.NEG, Op.BIT_NOT])
BITS = st.sampled_from([Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD, Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR])
SHIFT = st.sampled_from([Op.SHIFT_LEFT, Op.SHIFT_RIGHT])
NUMERIC = st.sampled_from([Op.ADD, Op.SUB, Op.MUL, Op.DIV])
COMPARE = st.sampled_from([Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE])
EQUAL = st.sampled_from([Op.EQ, Op.NE])

INT = st.recursive(
    st.one_of(st.sampled_from([LEN, VLAN]), INTEGERS),
    lambda inner: st.one_of(
        st.builds(unary, SIGNS, inner),
        st.builds(Binary, BITS, inner, inner),
        st.builds(Binary, SHIFT, inner, SHIFTS),
        st.builds(Conditional, st.builds(Binary, COMPARE, inner, inner), inner, inner),
        st.builds(Extreme, inner, inner, st.booleans()),
    ),
    max_leaves=5,
)
NUMBER = st.one_of(INT, FLOATS, st.builds(Binary, NUMERIC, INT, FLOATS), st.builds(Binary, NUMERIC, FLOATS, INT))
CONDITIONS = st.recursive(
    st.one_of(
        st.sampled_from([Literal(True, Type.BOOL), Literal(False, Type.BOOL)]),
        st.builds(Binary, COMPARE, NUMBER, NUMBER),
        st.builds(Binary, COMPARE, st.sampled_from([SOURCE, TARGET]), st.one_of(st.just(TARGET), ADDRESSES)),
        st.builds(Binary, EQUAL, TEXTS, st.just(LINK)),
        st.builds(InList, INT, lists(INTEGERS)),
        st.builds(InList, st.just(SOURCE), lists(ADDRESSES)),
        st.builds(InList, st.just(LINK), lists(TEXTS)),
        st.builds(InPrefix, st.just(TARGET), st.lists(PREFIXES, min_size=1, max_size=3).map(tuple)),
        st.builds(IsNull, st.one_of(NUMBER, st.just(SOURCE))),
    ),
    lambda inner: st.one_of(
        st.builds(unary, st.just(Op.NOT), inner),
        st.builds(Binary, st.sampled_from([Op.AND, Op.OR]), inner, inner),
        st.builds(IsNull, inner),
    ),
    max_leaves=6,
)


def parenthesised(tree: Expression) -> str:
    """SQL with parentheses around every operand."""
    match tree:
        case Column(name):
            return name.swapcase()
        case Literal(Address(4, value)):
            return f"'{IPv4Address(value)}'"
        case Literal(Address(6, value)):
            return f"'{IPv6Address(value).exploded}'"
        case Literal(str() as value):
            return "'" + value.replace("'", "''") + "'"
        case Literal(value):
            return str(value)
        case Unary(op, operand):
            return f"{ {Op.NEG: '-'}.get(op, op) } ({parenthesised(operand)})"
        case Binary(op, left, right):
            return f"({parenthesised(left)}){op.lower()}({parenthesised(right)})"
        case InList(operand, values):
            return f"({parenthesised(operand)}) in ({','.join(parenthesised(value) for value in values)})"
        case InPrefix(operand, prefixes):
            texts = [
                f"'{parenthesised(Literal(Address(p.version, p.value), Type.ADDRESS))[1:-1]}/{p.length}'"
                for p in prefixes
            ]
            return f"({parenthesised(operand)}) in ({','.join(texts)})"
        case IsNull(operand):
            return f"({parenthesised(operand)}) is null"
        case Conditional(condition, value, otherwise):
            results = f"then ({parenthesised(value)}) else ({parenthesised(otherwise)})"
            return f"case when ({parenthesised(condition)}) {results} end"
        case Extreme(left, right, largest):
            function = "Greatest" if largest else "LEAST"
            return f"{function}(({parenthesised(left)}), ({parenthesised(right)}))"
    raise AssertionError(f"no SQL compiles to {tree}")


def compiled(condition: str) -> Expression | None:
    return compile_query(f"SELECT count(*) FROM M WHERE {condition}").leaves[0].low.where


@given(CONDITIONS)
def test_a_tree_with_all_parentheses_compiles_to_itself(tree: Expression) -> None:
    assert compiled(parenthesised(tree)) == tree


@given(CONDITIONS)
def test_a_tree_printed_with_few_parentheses_compiles_to_itself(tree: Expression) -> None:
    assert compiled(expression_text(tree)) == tree


@pytest.mark.slow("long chains of every operator")
def test_a_chain_of_a_thousand_operands_has_the_value_of_its_operands_one_after_the_other() -> None:
    random = Random(7)
    rows: Columns = {"len": Vector(np.arange(40)), "vlan": Vector(np.arange(40) % 7, np.arange(40) % 3 > 0)}
    operands: dict[Op, Callable[[], str]] = {
        Op.OR: lambda: f"{random.choice(['len', 'vlan'])} = {random.randrange(30, 4000)}",
        Op.AND: lambda: f"{random.choice(['len', 'vlan'])} <> {random.randrange(30, 4000)}",
        Op.ADD: lambda: random.choice(["len", "vlan", str(random.randrange(2**60))]),
        Op.MUL: lambda: random.choice(["len", "1", "3"]),
        Op.BIT_AND: lambda: random.choice(["len", "63", "47"]),
        Op.BIT_OR: lambda: random.choice(["len", "32"]),
        Op.BIT_XOR: lambda: random.choice(["len", "vlan", "9"]),
    }
    for op, operand in operands.items():
        parts = [operand() for _ in range(1000)]
        logic = op in (Op.AND, Op.OR)
        chain = compiled(f" {op} ".join(parts) + ("" if logic else " = 0"))
        assert chain is not None
        found = evaluate(chain if logic else chain.left, rows)
        trees = [compiled(part if logic else f"{part} = 0") for part in parts]
        values = [evaluate(tree if logic else tree.left, rows) for tree in trees]
        one, other = (Column(name, Type.BOOL if logic else Type.INT) for name in ("one", "other"))
        expected = reduce(lambda left, right: evaluate(Binary(op, one, other), {"one": left, "other": right}), values)
        assert list_of(found) == list_of(expected), op


def list_of(vector: Vector) -> list[object]:
    valid = np.broadcast_to(True if vector.valid is None else vector.valid, 40)
    return [
        value if known else None for value, known in zip(np.broadcast_to(vector.data, 40).tolist(), valid, strict=True)
    ]


def test_a_list_of_constants_is_what_its_literals_are_one_by_one() -> None:
    random = Random(3)
    for column, literals in (
        ("len", [str(random.randrange(-(2**63), 2**63)) for _ in range(50)] + ["0x1F", "-9223372036854775808", "- 5"]),
        ("link", ["'a'", "'it''s'", "'-1'", "''"]),
        ("srcIP", ["'10.0.0.1'", "'2001:db8::1'"]),
        ("srcIP", ["'10.0.0.0/8'", "'2001:db8::/32'"]),
    ):
        # Parentheses around a literal make it an expression, which takes the way of all others.
        assert compiled(f"{column} IN ({', '.join(literals)})") == compiled(
            f"{column} IN ({', '.join(f'({literal})' for literal in literals)})"
        )


def test_a_list_beside_another_and_behind_not_keeps_its_own_literals() -> None:
    found = compiled("len IN (1, 2) OR NOT vlan IN (-3, 4, 5)")
    assert found == Binary(
        Op.OR,
        InList(LEN, (Literal(1, Type.INT), Literal(2, Type.INT))),
        Unary(Op.NOT, InList(VLAN, tuple(Literal(value, Type.INT) for value in (-3, 4, 5)))),
    )
