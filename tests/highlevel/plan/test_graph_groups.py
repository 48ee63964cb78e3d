"""Groups of the times of a join, with all that windows can tell of their groups: values kept apart, sketches, users'
choices among groups. Written in GSQL, answered by the inline engine, against plain Python.

They detect values of one group in the result of another, and a sketch that was not created. They detect groups that are
compared with groups of other times because both left with the same watermark.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import median

import pytest

from queries.gsql import compile_query
from tests.references.graph_packets import SECOND, Packet, address, made, pairs, run, write

JOIN = """FROM a S [RANGE 3 s, WA ts], b A [RANGE 1 s, WA ts]
    WHERE S.srcIP = A.destIP AND S.destIP = A.srcIP GROUP BY S.ts/10 AS left, A.ts/10 AS right"""

Groups = dict[tuple[int, int], list[tuple[Packet, Packet]]]


@pytest.fixture(params=range(4))
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def groups(seed: int, folder: Path) -> tuple[list, Groups]:
    random = Random(seed)
    links = {"a": made(random, 150), "b": made(random, 150)}
    found: Groups = defaultdict(list)
    for s, a in pairs(links["a"], links["b"], -SECOND, 3 * SECOND):
        found[s.ts // (10 * SECOND), a.ts // (10 * SECOND)].append((s, a))
    return write(folder, links), found


def test_values_are_kept_apart_and_sketched(seed: int, tmp_path: Path) -> None:
    inputs, expected = groups(seed, tmp_path)
    told = "median(A.len) AS m, approx_count_distinct(S.srcPort) AS d, approx_quantile(A.len, 0.5) AS q, count(*) AS n"
    plan = compile_query(f"SELECT left, right, {told} {JOIN}")
    found, _ = run(plan, inputs, seed)
    assert set(found) == {
        (
            *times,
            median(a.length for _, a in of),
            len({s.port for s, _ in of}),
            sorted(a.length for _, a in of)[(len(of) - 1) // 2],
            len(of),
        )
        for times, of in expected.items()
    }


def test_groups_of_the_same_times_are_compared(seed: int, tmp_path: Path) -> None:
    inputs, expected = groups(seed, tmp_path)
    plan = compile_query(f"SELECT left, right, S.srcIP, count(*) AS n {JOIN}, S.srcIP HAVING top(1, count(*))")
    most: set[tuple] = set()
    for times, of in expected.items():
        counts: dict[str, int] = defaultdict(int)
        for s, _ in of:
            counts[s.src] += 1
        most |= {(*times, address(src), n) for src, n in counts.items() if n == max(counts.values())}
    assert set(run(plan, inputs, seed)[0]) == most
