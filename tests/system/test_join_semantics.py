"""Random joins against SQLite: where a condition goes is SQL's, in ON and in WHERE, for every kind of join.

The window of a join is a condition in ON there. If a condition is wrongly pushed or not pushed to a side whose rows may
lack a partner, rows with NULLs are missing or added. If a condition is lost, there are too many pairs.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter

import pytest

from tests.harness import in_ns
from tests.references import small_captures

MS = 10**6
COLUMNS = ("ts", "len", "srcPort", "destPort", "ttl")
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")


def packets(name: str) -> list[tuple[int, bytes, tuple]]:
    """Packets of one second: time in ms, the frame, and the values of COLUMNS; some without ports."""
    chosen = random.Random(name)
    found = []
    for _ in range(30):
        at, length = chosen.randrange(1000), chosen.randrange(40, 46)
        if chosen.random() < 0.2:
            found.append((at, small_captures.icmp("10.0.0.1", "10.0.0.2", length), (at * MS, length, None, None, 64)))
            continue
        ports = chosen.randrange(3), chosen.randrange(3)
        frame = small_captures.udp("10.0.0.1", "10.0.0.2", *ports, length)
        found.append((at, frame, (at * MS, length, *ports, 64)))
    return found


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("links")
    return {
        name: [
            str(small_captures.write(folder / f"{name}.pcap", [(at / 1000, frame) for at, frame, _ in packets(name)]))
        ]
        for name in "abc"
    }


@pytest.fixture(scope="module")
def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for name in "abc":
        connection.execute(f"CREATE TABLE {name} ({', '.join(COLUMNS)})")
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?)", [row for _, _, row in packets(name)])
    return connection


def condition(chosen: random.Random, tables: str) -> str:
    """A condition over columns of some tables."""

    def column() -> str:
        return f"{chosen.choice(tables)}.{chosen.choice(COLUMNS[1:])}"

    def test() -> str:
        match chosen.randrange(6):
            case 0:
                return f"{column()} IS {chosen.choice(['NULL', 'NOT NULL'])}"
            case 1:
                return f"{column()} {chosen.choice(['>', '<>', '<='])} {chosen.randrange(3)}"
            case 2:
                return f"{column()} + {column()} > {chosen.choice([2, 85])}"
            case _:
                return f"{column()} {chosen.choice(['=', '=', '<'])} {column()}"

    match chosen.randrange(4):
        case 0:
            return f"({test()} AND {test()} OR {test()} AND {test()})"
        case 1:
            return f"NOT ({test()} OR {test()})"
        case _:
            return test()


def band(left: str, right: str, ranges: dict[str, int]) -> str:
    """The window of two tables as a condition, true where the left has no row."""
    apart = f"{right}.ts - {left}.ts BETWEEN {-ranges[right] * MS} AND {ranges[left] * MS}"
    return f"({left}.ts IS NULL OR {apart})"


def answer(sql: str, links: dict[str, list[str]]) -> Counter[tuple]:
    return Counter(tuple(row.values()) for row in in_ns.query(sql, streams=links).to_pylist())


@pytest.mark.parametrize("seed", range(60))
def test_a_join_of_two_is_that_of_sql(seed: int, links: dict[str, list[str]], database: sqlite3.Connection) -> None:
    chosen = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    ranges = {name: chosen.choice([0, 50, 300]) for name in "ab"}
    on = " AND ".join(condition(chosen, chosen.choice(["ab", "ab", "a", "b"])) for _ in range(chosen.randrange(1, 4)))
    alone = kind in ("SEMI JOIN", "ANTI JOIN")
    where = " AND ".join(condition(chosen, "a" if alone else chosen.choice(["ab", "a", "b"])) for _ in range(2))
    where = f" WHERE {where}" if chosen.random() < 0.6 else ""
    selected = "a.ts, a.len, a.srcPort" + ("" if alone else ", b.ts, b.srcPort, b.len")
    windows = {name: f"{name} [RANGE {ranges[name]} ms, WA ts]" for name in "ab"}
    ours = f"SELECT {selected} FROM {windows['a']} {kind} {windows['b']} ON {on}{where}"
    if alone:
        exists = (
            f"{'' if kind == 'SEMI JOIN' else 'NOT '}EXISTS (SELECT 1 FROM b WHERE {on} AND {band('a', 'b', ranges)})"
        )
        theirs = f"SELECT {selected} FROM a{where or ' WHERE TRUE'} AND {exists}"
    else:
        theirs = f"SELECT {selected} FROM a {kind} b ON {on} AND {band('a', 'b', ranges)}{where}"
    assert answer(ours, {name: links[name] for name in "ab"}) == Counter(database.execute(theirs).fetchall()), ours


@pytest.mark.parametrize("seed", range(40))
def test_joins_in_a_row_are_those_of_sql(seed: int, links: dict[str, list[str]], database: sqlite3.Connection) -> None:
    chosen = random.Random(1000 + seed)
    first = chosen.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN"])
    second = chosen.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    ranges = {name: chosen.choice([50, 300]) for name in "abc"}
    first_on, second_on = condition(chosen, "ab"), condition(chosen, chosen.choice(["abc", "bc", "ac"]))
    where = f" WHERE {condition(chosen, 'abc')} AND {condition(chosen, chosen.choice('abc'))}"
    where = where if chosen.random() < 0.6 else ""
    windows = {name: f"{name} [RANGE {ranges[name]} ms]" for name in "abc"}
    head = "SELECT a.ts, b.ts, c.ts, a.srcPort, c.len FROM"
    ours = f"{head} {windows['a']} {first} {windows['b']} ON {first_on} {second} {windows['c']} ON {second_on}{where}"
    bands = f"{band('a', 'c', ranges)} AND {band('b', 'c', ranges)}"
    theirs = (
        f"{head} a {first} b ON {first_on} AND {band('a', 'b', ranges)} {second} c ON {second_on} AND {bands}{where}"
    )
    assert answer(ours, links) == Counter(database.execute(theirs).fetchall()), ours
