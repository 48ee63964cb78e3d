"""Fingerprints of low-level plans: equal for plans that are equal, in every process, and for no others.

Every field of every part of a plan is changed in its turn. The tests detect a field that is left out, and values of
different types with the same text. They detect texts that depend on the process (hashes, addresses in memory).
"""

import subprocess
import sys
from dataclasses import fields, replace
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pytest

from lowlevel.expressions.address_constants import Address, Prefix
from lowlevel.expressions.tree import Binary, Column, InList, InPrefix, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.expressions.user_functions import load
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.spool.fingerprint import fingerprint, tree_text
from lowlevel.subaggregates import Kind, SubAggregate
from queries.gsql import compile_query
from tests.references.random_plans import KEY_SHAPES, PACKET, keys_of, random_plan

ROOT = Path(__file__).resolve().parents[3]
SQL = "SELECT srcIP, count(*) AS packets FROM packets [RANGE 1 minute, SLIDE 10 seconds, WA ts] GROUP BY srcIP"
PLAN = LowLevelPlan(
    Binary(Op.GT, PACKET["len"], Literal(64, Type.INT)),
    keys_of("srcIP"),
    (SubAggregate("packets", Kind.COUNT), SubAggregate("bytes", Kind.SUM, PACKET["len"])),
    10,
)


def test_every_field_of_a_plan_counts() -> None:
    changes = {
        "where": None,
        "keys": keys_of("destIP"),
        "subaggregates": PLAN.subaggregates[:1],
        "pane": 11,
        "origin": 1,
        "kind": "flows",
        "spread": True,
        "sampling": 100,
        "reduced": False,
        "in_arrival_order": True,
        "provisional": True,
        "slack": 1,
    }
    assert set(changes) >= {field.name for field in fields(LowLevelPlan)}
    known = {field.name for field in fields(LowLevelPlan)}
    prints = [fingerprint(PLAN), *(fingerprint(replace(PLAN, **{name: changes[name]})) for name in known)]
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Literal(1, Type.INT), Literal(True, Type.INT)),
        (Literal(1, Type.INT), Literal(1.0, Type.INT)),
        (Literal(0.0, Type.FLOAT), Literal(-0.0, Type.FLOAT)),
        (Literal("1", Type.TEXT), Literal(b"1", Type.TEXT)),
        (Literal("", Type.TEXT), Literal(None, Type.TEXT)),
        (Literal("a", Type.TEXT), Literal("a", Type.BYTES)),
        (Literal("a',str 'b", Type.TEXT), Literal("a", Type.TEXT)),
        (Literal(Address(4, 1), Type.ADDRESS), Literal(Address(6, 1), Type.ADDRESS)),
        (Column("len", Type.INT), Column("len", Type.INT, nullable=True)),
        (Column("len", Type.INT, bits=16), Column("len", Type.INT, bits=32)),
        (Column("srcIP", Type.ADDRESS), Column("inner.srcIP", Type.ADDRESS)),
        (Binary(Op.LT, PACKET["len"], PACKET["ttl"]), Binary(Op.LT, PACKET["ttl"], PACKET["len"])),
        (Binary(Op.LT, PACKET["len"], PACKET["ttl"]), Binary(Op.LE, PACKET["len"], PACKET["ttl"])),
        (
            InList(PACKET["len"], (Literal(1, Type.INT), Literal(2, Type.INT))),
            InList(PACKET["len"], (Literal(12, Type.INT),)),
        ),
        (InPrefix(PACKET["srcIP"], (Prefix(4, 0, 8),)), InPrefix(PACKET["srcIP"], (Prefix(4, 0, 9),))),
    ],
)
def test_expressions_that_differ_at_all_are_different(one, other) -> None:
    plans = [replace(PLAN, keys=(Key("key", each),)) for each in (one, other)]
    assert fingerprint(plans[0]) != fingerprint(plans[1])


def test_rates_set_by_hand_count() -> None:
    rates = [1, 2, ((ip_address("10.0.0.1"), 2),), ((ip_address("::a00:1"), 2),), ((ip_address("10.0.0.1"), 3),)]
    assert len({fingerprint(replace(PLAN, sampling=rate)) for rate in rates}) == len(rates)
    assert tree_text(Fraction(1, 2)) != tree_text(0.5)


def test_random_plans_are_told_apart_and_found_again() -> None:
    plans = [random_plan(Random(seed), KEY_SHAPES[seed % len(KEY_SHAPES)]) for seed in range(200)]
    again = [random_plan(Random(seed), KEY_SHAPES[seed % len(KEY_SHAPES)]) for seed in range(200)]
    for one, other in zip(plans, again, strict=True):
        assert fingerprint(one) == fingerprint(other)
    by_print = {fingerprint(plan): plan for plan in plans}
    for plan in plans:
        assert by_print[fingerprint(plan)] == plan


def test_a_query_has_the_same_fingerprint_by_any_name_and_in_any_process() -> None:
    here = fingerprint(compile_query(SQL, "one").leaves[0].low)
    assert here == fingerprint(compile_query(SQL, "two").leaves[0].low)
    program = (
        "from lowlevel.spool.fingerprint import fingerprint; from queries.gsql import compile_query; import sys;"
        "print(fingerprint(compile_query(sys.argv[1], 'three').leaves[0].low))"
    )
    command = [sys.executable, "-c", program, SQL]
    for seed in ("1", "2"):
        said = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        assert said.stdout.strip() == here


def test_a_window_of_the_same_panes_has_the_same_partials() -> None:
    wider = SQL.replace("RANGE 1 minute", "RANGE 2 minutes")
    slower = SQL.replace("SLIDE 10 seconds", "SLIDE 20 seconds")
    prints = [fingerprint(compile_query(sql, "q").leaves[0].low) for sql in (SQL, wider, slower)]
    assert prints[0] == prints[1] != prints[2]


def test_only_plain_values_are_taken() -> None:
    with pytest.raises(TypeError, match="got object in a plan"):
        fingerprint(replace(PLAN, origin=object()))  # type: ignore[arg-type]


def test_a_plan_with_a_function_of_a_user_depends_on_the_text_of_its_file(tmp_path: Path) -> None:
    def fingerprint_of(name: str, text: str) -> str:
        file = tmp_path / name
        file.write_text(f"import wiretide\n@wiretide.function\ndef score(x: int) -> int: {text}\n")
        load(file)
        sql = "SELECT score(len) AS s, count(*) AS n FROM packets [RANGE 1 minute] WHERE score(ttl) > 1 GROUP BY s"
        return fingerprint(compile_query(sql).leaves[0].low)

    mine = fingerprint_of("a.py", "return x + 1")
    assert fingerprint_of("a.py", "return x + 2") != mine
    assert fingerprint_of("a.py", "return x + 1") == mine
    assert fingerprint_of("b.py", "return x + 1") == mine  # a node may have the file in another folder
