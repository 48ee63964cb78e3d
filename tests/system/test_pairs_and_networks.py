"""`pair` and `network` in all clauses: their rows are those of a plain computation over the packets.

The tests find a pair that depends on the direction, a prefix with the length of the other IP version, groups that are
finer or coarser than their texts, and NULL as a group of its own for each known value.
"""

from collections import Counter
from ipaddress import ip_address, ip_network
from pathlib import Path
from random import Random

import numpy as np
import pytest

import wiretide
from lowlevel.expressions.columns import AddressVector, Vector
from lowlevel.expressions.computed_texts import spelled_values
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.types import Type
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.harness.links import write_links

CALLS = ("network(srcIP, 8)", "network(srcIP, 20, 60)", "network(srcIP, 40)", "pair(srcIP, destIP)")


def plain(call: str, source, target) -> str | None:
    if call.startswith("pair"):
        if source is None or target is None:
            return None
        first, second = sorted((source, target), key=lambda address: (address.version, int(address)))
        return f"{first} <-> {second}"
    if source is None:
        return None
    lengths = {"network(srcIP, 8)": (8, 8), "network(srcIP, 20, 60)": (20, 60), "network(srcIP, 40)": (32, 40)}[call]
    return str(ip_network(f"{source}/{lengths[source.version == 6]}", strict=False))


def addresses(random: Random, count: int) -> list:
    few = [ip_address(random.randrange(2**32)) for _ in range(3)] + [
        ip_address(random.randrange(2**128)) for _ in range(3)
    ]
    return [random.choice([*few, None]) for _ in range(count)]


def vector_of(values: list) -> AddressVector:
    numbers = [0 if value is None else int(value) for value in values]
    return AddressVector(
        np.array([4 if value is None else value.version for value in values]),
        np.array([number >> 64 for number in numbers], np.uint64),
        np.array([number & (2**64 - 1) for number in numbers], np.uint64),
        np.array([value is not None for value in values]),
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("call", CALLS)
def test_values_are_those_of_a_plain_computation(call: str, seed: int) -> None:
    random = Random(seed)
    sources, targets = addresses(random, 200), addresses(random, 200)
    plan = compile_query(f"SELECT ts, {call} AS x FROM frames")  # addresses of frames may be NULL
    expression = plan.root.outputs[-1].expression
    texts = evaluate(expression, {"srcIP": vector_of(sources), "destIP": vector_of(targets)})
    known = np.ones(200, np.bool_) if texts.valid is None else texts.valid
    found = [texts.names[number] if valid else None for number, valid in zip(texts.ids, known, strict=True)]
    expected = [plain(call, *both) for both in zip(sources, targets, strict=True)]
    assert found == expected, seed
    # Groups by the values are groups by the text.
    values = spelled_values(expression)
    assert values is not None
    keys = [evaluate(value, {"srcIP": vector_of(sources), "destIP": vector_of(targets)}) for value in values]

    def key_of(row: int) -> tuple:
        return tuple(
            None if key.valid is not None and not key.valid[row] else (key.version[row], key.high[row], key.low[row])
            for key in keys
        )

    assert len({(key_of(row), expected[row]) for row in range(200)}) == len({key_of(row) for row in range(200)})
    assert len({key_of(row) for row in range(200)}) == len(set(expected)), seed


def test_clauses_have_the_rows_of_a_plain_computation(tmp_path: Path) -> None:
    path = write_links(tmp_path, 6)[0].path
    packets = wiretide.query("SELECT srcIP, destIP, srcPort, destPort FROM p", path).to_pylist()
    both = [(ip_address(row["srcIP"]), ip_address(row["destIP"])) for row in packets]
    pairs = Counter(plain("pair(srcIP, destIP)", *one) for one in both)
    networks = Counter(plain("network(srcIP, 20, 60)", *one) for one in both)
    assert len(pairs) > 3

    def query(sql: str) -> list[tuple]:
        return sorted(tuple(row.values()) for row in wiretide.query(sql, path).to_pylist())

    assert query("SELECT pair(srcIP, destIP) AS x, count(*) FROM p GROUP BY x") == sorted(pairs.items())
    assert query("SELECT pair(destIP, srcIP) AS x, count(*) FROM p GROUP BY x") == sorted(pairs.items())
    assert query("SELECT network(srcIP, 20, 60) AS x, count(*) FROM p GROUP BY 1") == sorted(networks.items())
    assert query("SELECT DISTINCT pair(srcIP, destIP) FROM p") == sorted((pair,) for pair in pairs)
    assert query("SELECT count(DISTINCT pair(srcIP, destIP)), count(DISTINCT network(srcIP, 20, 60)) FROM p") == [
        (len(pairs), len(networks))
    ]
    chosen, count = pairs.most_common(1)[0]
    assert query(f"SELECT count(*) FROM p WHERE pair(destIP, srcIP) = '{chosen}'") == [(count,)]
    assert query(f"SELECT pair(srcIP, destIP) AS x, count(*) FROM p GROUP BY x HAVING x = '{chosen}'") == [
        (chosen, count)
    ]
    of_ports = Counter(
        None if row["srcPort"] is None else f"{min(ports)} <-> {max(ports)}"
        for row in packets
        for ports in [(row["srcPort"] or 0, row["destPort"] or 0)]
    )
    found = wiretide.query("SELECT pair(srcPort, destPort) AS x, count(*) AS n FROM p GROUP BY x", path).to_pylist()
    assert {row["x"]: row["n"] for row in found} == dict(of_ports)
    joined = wiretide.query(
        "SELECT a.ts, a.srcIP AS x, a.destIP AS y, b.srcIP AS s, b.destIP AS d FROM p a JOIN p b [RANGE TUMBLING 9 s] "
        "ON pair(a.srcIP, a.destIP) = pair(b.srcIP, b.destIP) AND b.ts > a.ts",
        path,
    ).to_pylist()
    assert joined
    assert all({row["x"], row["y"]} == {row["s"], row["d"]} for row in joined)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("srcIP || ' ' || destIP", 2),
        ("srcIP || ' -> ' || destIP || ', ' || srcMAC", None),  # the MAC of a packet may be NULL
        ("srcIP || ':' || ttl", None),  # a colon is also in addresses
        ("srcIP || '' || len", None),
        ("'from ' || srcIP", 1),
        ("CAST(ts AS VARCHAR)", 1),
        ("upper(CAST(ts AS VARCHAR))", None),
        ("CASE WHEN len > 9 THEN CAST(len AS VARCHAR) ELSE 'few' END", None),
    ],
)
def test_a_text_is_grouped_by_its_values_only_if_they_decide_it(text: str, count: int | None) -> None:
    plan = compile_query(f"SELECT ts, {text} AS x FROM p")
    values = spelled_values(plan.root.outputs[-1].expression)
    assert (None if values is None else len(values)) == count
    if values is None:
        with pytest.raises(QueryError, match="a text made of values"):
            compile_query(f"SELECT {text} AS x, count(*) FROM p GROUP BY x")
    else:
        assert len(compile_query(f"SELECT {text} AS x, count(*) FROM p GROUP BY x").leaves[0].low.keys) == count


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("pair(srcIP)", "pair with 1 argument; expected pair(srcIP, destIP)"),
        ("pair(srcIP, len)", "pair over address and integer; expected a value of type address"),
        ("pair(link, link)", "pair over a value of type text; expected address or mac or integer"),
        ("network(srcIP)", "network with 1 argument; expected network(ip, 24)"),
        ("network(srcIP, 129)", "a prefix of 129 bits; expected an integer from 0 to 128"),
        ("network(len, 8)", "network over a value of type integer; expected an address"),
    ],
)
def test_wrong_calls_are_errors(call: str, message: str) -> None:
    with pytest.raises(QueryError) as error:
        compile_query(f"SELECT ts, {call} AS x FROM p")
    assert message in str(error.value)


def test_types_of_values() -> None:
    expression = compile_query("SELECT ts, pair(srcPort, destPort) AS x FROM p").root.outputs[-1].expression
    ports = {"srcPort": Vector(np.array([1, 9, 5]), np.array([True, True, False]))}
    ports["destPort"] = Vector(np.array([7, 3, 5]))
    texts = evaluate(expression, ports)
    assert expression.type is Type.TEXT
    assert [texts.names[number] for number in texts.ids[:2]] == ["1 <-> 7", "3 <-> 9"]
    assert texts.valid.tolist() == [True, True, False]
