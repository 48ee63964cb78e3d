"""Finish on merged groups made by hand, whole rows expected.

It can catch a HAVING that keeps NULL, a NULL that becomes a number, and a column in the wrong place or type.
"""

from ipaddress import ip_address

import pyarrow as pa

from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.plan import Plan
from highlevel.results.stages import Finish
from highlevel.windows.kind import SlidingWindow
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import END, Punctuation
from queries.gsql import compile_query

WINDOW = "[RANGE 10 ns, SLIDE 5 ns, WA ts]"


def plan(select: str, rest: str = "", window: str = WINDOW) -> Plan:
    return compile_query(f"SELECT {select} FROM M {window} {rest}")


def finished(query: Plan, *groups: tuple) -> list[tuple]:
    """Rows that come out of merged groups: (wid, group columns…, sub-aggregates…)."""
    types = {key.name: ARROW_TYPES[key.expression.type] for key in query.leaves[0].low.keys} | {"link": pa.string()}
    fields = [pa.field(WINDOW_START, pa.int64()), pa.field(WINDOW_END, pa.int64())]
    fields += [pa.field(name, types[name]) for name in query.aggregation.group_by]
    fields += [pa.field(sub.name, ARROW_TYPES[sub.type]) for sub in query.leaves[0].low.subaggregates]
    window = query.window
    assert isinstance(window, SlidingWindow)
    whole = [(window.start(wid), window.end(wid), *rest) for wid, *rest in groups]
    rows = [dict(zip([field.name for field in fields], group, strict=True)) for group in whole]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(fields))
    finish = Finish(query.aggregation)
    found = []
    for out in finish.process_rows(0, batch):
        assert isinstance(out, pa.RecordBatch)
        assert out.schema == query.schema
        found += [tuple(row.values()) for row in out.to_pylist()]
    assert finish.results == len(found)
    return found


def test_a_query_without_a_window_has_no_bounds() -> None:
    assert finished(plan("count(*) AS n, sum(len)", window=""), (0, 3, 99)) == [(3, 99)]


def test_having_keeps_what_is_true_and_neither_false_nor_null() -> None:
    # Sub-aggregates: sum of vlan and how many packets had one.
    query = plan("destPort", "GROUP BY destPort HAVING sum(vlan) > 5")
    assert finished(query, (0, 80, 6, 1), (0, 81, 5, 1), (0, 82, 0, 0), (0, None, 9, 2)) == [
        (-5, 5, 80),
        (-5, 5, None),
    ]
    assert finished(query, (0, 80, 1, 1)) == []


def test_aggregates_over_no_value_are_null_and_counts_are_0() -> None:
    query = plan("count(vlan), sum(vlan), min(vlan), max(vlan), avg(vlan), sum(vlan) + 1 AS more")
    count, *rest = [sub.kind for sub in query.leaves[0].low.subaggregates]
    values = {"count": 0, "sum": 0, "min": 2**63 - 1, "max": -(2**63)}
    group = (0, *(values[kind] for kind in (count, *rest)))
    assert finished(query, group) == [(-5, 5, 0, None, None, None, None, None)]


def test_select_computes_over_groups_and_aggregates() -> None:
    select = "size * 100 AS least, sum(len) / count(*) AS mean, avg(len), count(*) > 2 AS many"
    query = plan(select, "GROUP BY len / 100 AS size")
    assert finished(query, (1, 3, 950, 3)) == [(0, 10, 300, 316, 950 / 3, True)]


def test_groups_pass_as_they_are() -> None:
    address = ip_address("2001:db8::1").packed
    query = plan("link, destIP, count(*)", "GROUP BY destIP, link")
    assert finished(query, (0, address, "Main1", 4)) == [(-5, 5, "Main1", address, 4)]


def test_constants_are_repeated_in_every_row() -> None:
    query = plan("1 AS one, 2.5 AS half, TRUE AS yes, 'text' AS word, count(*)")
    assert finished(query, (0, 4), (1, 5)) == [(-5, 5, 1, 2.5, True, "text", 4), (0, 10, 1, 2.5, True, "text", 5)]


def test_a_filtered_batch_is_no_item_but_its_punctuation_passes() -> None:
    finish = Finish(plan("count(*)", "HAVING count > 100").aggregation)
    batch = pa.record_batch({name: pa.array([1], pa.int64()) for name in (WINDOW_START, WINDOW_END, "s0")})
    assert list(finish.process_rows(0, batch)) == []
    for low in (0, 5, END):
        assert list(finish.punctuate(0, Punctuation("M", low))) == [Punctuation("M", low)]
    assert (finish.results, finish.snapshot()) == (0, {})
