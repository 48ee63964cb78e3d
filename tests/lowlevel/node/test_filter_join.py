"""The filter join against a dictionary that never forgets, row by row.

* Random streams in order, out of order and with few keys detect a row that sees itself or later rows. They detect a
  time that a late row makes older, a bound that is one off, and confused address versions.
* Memories of a few keys detect evictions that are not counted or that remove the newest key. They detect a row that
  sees a key that was never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from random import Random
from typing import Any

import numpy as np
import pytest

from lowlevel.expressions.columns import Vector
from lowlevel.expressions.tree import Binary, Column, Expression, IsNull, Literal, SeenWithin, Unary
from lowlevel.expressions.types import Op, Type
from lowlevel.node import filter_join
from lowlevel.node.filter_join import BUCKET_ENTRIES, SeenKeys, count_join_bytes, look_up_and_store
from lowlevel.subaggregates import INT_MIN
from tests.harness.plain_kernels import plain
from tests.references import lowlevel_oracle
from tests.references.made_rows import made_rows

SRC, DEST = (Column(name, Type.ADDRESS, nullable=True, bits=128) for name in ("srcIP", "destIP"))
SPORT, DPORT = (Column(name, Type.INT, nullable=True, bits=16) for name in ("srcPort", "destPort"))
FLAG = Column("flag", Type.INT)
TYPES = {"ts": Type.INT, "flag": Type.INT} | {column.name: column.type for column in (SRC, DEST, SPORT, DPORT)}
ADDRESSES = [ip_address(text) for text in ("10.0.0.1", "10.0.0.2", "::a00:1", "::1", "2001:db8::1")]

ONE = Binary(Op.EQ, SRC, DEST)
PORTS = Binary(Op.EQ, DPORT, Binary(Op.ADD, SPORT, Literal(0, Type.INT)))
SET = Binary(Op.EQ, FLAG, Literal(1, Type.INT))
JOINS = [
    SeenWithin(7, ONE, SET),
    SeenWithin(7, ONE),
    SeenWithin(0, PORTS, Unary(Op.NOT, SET)),
    SeenWithin(12, Binary(Op.AND, Binary(Op.AND, PORTS, ONE), Binary(Op.EQ, DEST, SRC)), SET),
    SeenWithin(2**62, Binary(Op.AND, ONE, PORTS), IsNull(DPORT)),
]


@pytest.fixture(params=["native", "plain"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(filter_join, "look_up_and_store", plain(look_up_and_store))


def random_rows(random: Random, count: int) -> list[dict[str, Any]]:
    """Rows whose times advance, jump, stay equal or go back."""
    now, rows = random.choice([0, 1000, -50]), []
    back = random.choice([0, 0, 5, 30])
    for _ in range(count):
        now += random.choice([0, 1, 1, 3, 9])
        row = {"ts": now - random.randrange(back + 1), "flag": random.randrange(2)}
        row |= {name: random.choice([*ADDRESSES, None]) for name in ("srcIP", "destIP")}
        row |= {name: random.choice([None, 0, 1, 53]) for name in ("srcPort", "destPort")}
        rows.append(row)
    return rows


def twin(join: SeenWithin, rows: Sequence[dict[str, Any]]) -> list[bool | None]:
    """By definition: for each row, whether any row before it is one that it has seen."""
    remembered: list[tuple[int, list[Any]]] = []
    found: list[bool | None] = []
    for row in rows:
        wanted = [lowlevel_oracle.value(one, row) for one, _ in pairs(join.matches)]
        least = row["ts"] - join.duration
        seen = any(time >= least and key == wanted for time, key in remembered)
        found.append(None if None in wanted else seen)
        key = [lowlevel_oracle.value(other, row) for _, other in pairs(join.matches)]
        if None not in key and (join.condition is None or lowlevel_oracle.value(join.condition, row)):
            remembered.append((row["ts"], key))
    return found


def pairs(matches: Expression) -> list[tuple[Expression, Expression]]:
    assert isinstance(matches, Binary)
    if matches.op is Op.AND:
        return pairs(matches.left) + pairs(matches.right)
    return [(matches.left, matches.right)]


def told_by(kept: SeenKeys, rows: Sequence[dict[str, Any]], random: Random) -> list[bool | None]:
    """Return the answers of a memory for rows in blocks of any size."""
    found: list[bool | None] = []
    at = 0
    while at < len(rows):
        some = rows[at : at + random.randrange(1, 50)]
        vector = kept.process(made_rows(some, TYPES, []).columns, len(some))
        valid = np.ones(len(some), np.bool_) if vector.valid is None else vector.valid
        found += [bool(each) if ok else None for each, ok in zip(vector.data, valid, strict=True)]
        at += len(some)
    return found


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("join", JOINS, ids=range(len(JOINS)))
def test_a_row_has_seen_what_came_before_it_and_is_no_older_than_that(join: SeenWithin) -> None:
    both = set()
    for seed in range(25):
        random = Random(seed)
        rows = random_rows(random, random.randrange(70))
        kept = SeenKeys(join, 1 << 12)
        wanted = twin(join, rows)
        assert told_by(kept, rows, random) == wanted, seed
        assert (kept.evicted_live, kept.evicted_expired) == (0, 0)
        both |= set(wanted)
    assert both == {True, False, None}


@pytest.mark.usefixtures("kernels")
def test_a_full_memory_forgets_and_counts_but_never_invents() -> None:
    """If rows are in order, a row misses an earlier row only if its key was evicted too early."""
    forgot = 0
    for seed in range(60):
        random = Random(seed)
        rows = []
        for place in range(120):
            ports = {name: random.randrange(40) for name in ("srcPort", "destPort")}
            rows.append({"ts": place, "flag": 1, "srcIP": None, "destIP": None} | ports)
        join = SeenWithin(random.choice([5, 20, 1000]), Binary(Op.EQ, DPORT, SPORT), None)
        kept = SeenKeys(join, 2 * BUCKET_ENTRIES)
        wanted, found = twin(join, rows), told_by(kept, rows, random)
        missed = sum(one is True and other is False for one, other in zip(wanted, found, strict=True))
        assert not any(one is False and other is True for one, other in zip(wanted, found, strict=True)), seed
        assert missed == 0 or kept.evicted_live > 0, seed
        assert kept.key_count <= 2 * BUCKET_ENTRIES
        assert kept.key_count + kept.evicted_live + kept.evicted_expired >= len({row["srcPort"] for row in rows})
        if join.duration == 5:
            assert (kept.evicted_live, missed) == (0, 0), seed  # six keys at most are wanted at any time
            assert kept.evicted_expired > 0
        forgot += missed
    assert forgot > 0


def test_of_a_full_bucket_the_oldest_key_goes_be_it_the_new_one() -> None:
    join = SeenWithin(1000, Binary(Op.EQ, DPORT, SPORT))
    kept = SeenKeys(join, BUCKET_ENTRIES)
    base = {"flag": 0, "srcIP": None, "destIP": None}
    rows = [base | {"ts": 100 + place, "srcPort": place, "destPort": None} for place in range(BUCKET_ENTRIES)]
    late = base | {"ts": 50, "srcPort": 99, "destPort": None}
    newer = base | {"ts": 500, "srcPort": 77, "destPort": None}
    ask = [base | {"ts": 500, "srcPort": None, "destPort": port} for port in (99, 0, 1, 77, 7)]
    found = told_by(kept, [*rows, late, ask[0], ask[1], newer, *ask], Random(1))
    assert found[BUCKET_ENTRIES + 1 : BUCKET_ENTRIES + 3] == [False, True]
    assert found[-5:] == [False, False, True, True, True]
    assert (kept.key_count, kept.evicted_live, kept.evicted_expired) == (BUCKET_ENTRIES, 2, 0)


@pytest.mark.usefixtures("kernels")
def test_times_at_the_end_of_the_range_do_not_wrap() -> None:
    join = SeenWithin(10, Binary(Op.EQ, DPORT, SPORT))
    times = [INT_MIN + 1, INT_MIN + 3, 2**63 - 1, 2**63 - 1, INT_MIN + 2]
    rows = [{"ts": time, "flag": 0, "srcIP": None, "destIP": None, "srcPort": 1, "destPort": 1} for time in times]
    assert (
        told_by(SeenKeys(join, BUCKET_ENTRIES), rows, Random(1)) == twin(join, rows) == [False, True, False, True, True]
    )


def test_memory_is_as_large_as_is_said_and_stays_so() -> None:
    for join in JOINS:
        kept = SeenKeys(join)
        before = kept.bytes
        told_by(kept, random_rows(Random(1), 50), Random(1))
        assert kept.bytes == before == count_join_bytes(join)


def test_expressions_say_what_they_are() -> None:
    join = JOINS[0]
    assert join.type is Type.BOOL
    assert join.nullable
    assert len({each.column for each in [*JOINS, replace(join, duration=8)]}) == len(JOINS) + 1
    assert isinstance(SeenKeys(join).process(made_rows(random_rows(Random(2), 3), TYPES, []).columns, 3), Vector)
