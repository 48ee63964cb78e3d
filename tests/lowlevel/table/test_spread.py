"""Rows cut at the panes they last, against arithmetic on Python's integers of any size.

* Random rows detect a share that is lost, counted twice or rounded the wrong way, and a piece in the wrong pane. They
  detect a row that is torn at the end of a slice of pieces.
* Products beyond 64 bits catch the two halves of the 128-bit arithmetic.
* Whole plans over a reader of made rows catch an aggregate that sees a row in more than the pane it ends in.
"""

from collections import defaultdict
from collections.abc import Iterator
from ipaddress import IPv4Address
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowlevel.expressions.columns import Columns, Vector
from lowlevel.expressions.tree import ENDS_COLUMN, SHARE_PREFIX
from lowlevel.expressions.types import Type
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import END
from lowlevel.subaggregates import INT_MAX
from lowlevel.table.query_tables import QueryTables
from lowlevel.table.spread import MAX_PIECES, Spreader, cut_rows, is_counter, multiply_divide, share_values
from queries.gsql import compile_query
from queries.text.printer import expression_text
from tests.harness.plain_kernels import plain
from tests.references.made_rows import made_rows

Row = dict[str, Any]
START = 1_700_000_000 * 10**9


TYPES = {
    "start_ts": Type.INT,
    "ts": Type.INT,
    "bytes": Type.INT,
    "tos": Type.INT,
    "srcIP": Type.ADDRESS,
    "interfaceName": Type.TEXT,
}


def columns_of(rows: list[Row]) -> Columns:
    return made_rows(rows, TYPES, []).columns


def random_rows(random: Random, count: int, longest: int) -> list[Row]:
    rows = []
    for _ in range(count):
        end = START + random.randrange(10**11)
        lasted = random.choice([0, 1, -5, random.randrange(longest), random.randrange(longest)])
        rows.append(
            {
                "start_ts": random.choice([end - lasted] * 9 + [None]),
                "ts": end,
                "bytes": random.choice([0, 1, 7, random.randrange(10**6), random.randrange(2**63), None]),
                "tos": random.choice([0, 8, None]),
                "srcIP": IPv4Address(random.randrange(3)),
                "interfaceName": random.choice(["eth0", "eth1"]),
            }
        )
    return rows


def pieces_of(row: Row, pane: int, origin: int) -> list[tuple[int, int | None]]:
    """(pane, bytes) of one row, by the definition."""
    end, value = row["ts"], row["bytes"]
    start = end if row["start_ts"] is None or row["start_ts"] > end else row["start_ts"]
    if start == end or (end - start) // pane >= MAX_PIECES:
        return [((end - origin) // pane, value)]

    def before(moment: int) -> int:
        return value * (min(max(moment, start), end) - start) // (end - start)

    panes = range((start - origin) // pane, (end - 1 - origin) // pane + 1)
    edges = [(origin + number * pane, origin + (number + 1) * pane) for number in panes]
    return [
        (number, None if value is None else before(high) - before(low))
        for number, (low, high) in zip(panes, edges, strict=True)
    ]


def cut(rows: list[Row], pane: int, origin: int, capacity: int, chosen: np.ndarray | None = None) -> list[tuple]:
    """(row's ts, pane, bytes, whether the row ends there) of every piece, slice by slice."""
    spreader = Spreader(pane, origin, capacity)
    found = []
    for pieces in spreader.cut(columns_of(rows), len(rows), chosen):
        assert 0 < pieces.count <= capacity
        assert pieces.earliest == pieces.times.min()
        share, ends, whole = (pieces.columns[name] for name in (SHARE_PREFIX + "bytes", ENDS_COLUMN, "ts"))
        assert isinstance(share, Vector)
        assert isinstance(ends, Vector)
        assert isinstance(whole, Vector)
        valid = np.ones(pieces.count, bool) if share.valid is None else share.valid
        values = [value if there else None for value, there in zip(share.data.tolist(), valid, strict=True)]
        panes = ((pieces.times - origin) // pane).tolist()
        found += zip(whole.data.tolist(), panes, values, ends.data.tolist(), strict=True)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_every_row_is_cut_where_its_panes_end_and_its_counters_add_up(seed: int) -> None:
    random = Random(seed)
    pane = random.choice([1, 999, 10**9, 7 * 10**9, 10**12])
    origin = random.choice([0, 7, -(10**9), START + 5])
    rows = random_rows(random, 30, min(pane * 50, 10**11))
    chosen = None if seed % 2 else np.array([random.random() < 0.7 for _ in rows])
    kept = [row for place, row in enumerate(rows) if chosen is None or chosen[place]]
    found = cut(rows, pane, origin, random.choice([1, 3, 64]), chosen)
    expected = []
    for row in kept:
        pieces = pieces_of(row, pane, origin)
        expected += [(row["ts"], *piece, place == len(pieces) - 1) for place, piece in enumerate(pieces)]
        if row["bytes"] is not None:
            assert sum(share for _, share in pieces if share is not None) == row["bytes"]
    assert found == expected


@given(st.integers(0, 2**63), st.integers(1, 2**63 - 1), st.data())
def test_shares_are_exact_where_the_product_leaves_64_bits(value: int, whole: int, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, whole))
    with np.errstate(over="ignore"):
        assert int(multiply_divide(np.uint64(value), np.uint64(part), np.uint64(whole))) == value * part // whole


def test_a_row_that_lasts_too_many_panes_is_whole_where_it_ends_and_counted() -> None:
    row = random_rows(Random(1), 1, 10)[0] | {"bytes": 99, "ts": START}
    for lasted, pieces in [(MAX_PIECES * 10**9 - 1, MAX_PIECES), (MAX_PIECES * 10**9, 1), (START, 1)]:
        spreader = Spreader(10**9, 0, 64)
        columns = columns_of([row | {"start_ts": START - lasted}])
        assert sum(each.count for each in spreader.cut(columns, 1, None)) == pieces
        assert spreader.too_long == (pieces == 1)


def test_a_row_that_ends_where_a_pane_does_is_not_in_the_next() -> None:
    row = {"ts": START + 20, "bytes": 5, "tos": 0, "srcIP": IPv4Address(1), "interfaceName": "a"}
    assert cut([row | {"start_ts": START}], 10, START, 8) == [(START + 20, 0, 2, False), (START + 20, 1, 3, True)]
    assert cut([row | {"start_ts": START + 20}], 10, START, 8) == [(START + 20, 2, 5, True)]


def test_the_kernels_as_plain_python_agree_with_their_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(Random(5), 25, 10**11)
    fast = cut(rows, 10**10, 3, 7)
    for kernel in (cut_rows, share_values):
        monkeypatch.setattr(f"lowlevel.table.spread.{kernel.name}", plain(kernel))
    assert cut(rows, 10**10, 3, 7) == fast


PANE = 10**9
SQL = """SELECT srcIP, sum(bytes), sum(bytes * 8) AS bits, count(*), count(tos), sum(tos), min(bytes), max(tos)
         FROM flows [RANGE 3 s, SLIDE 1 s, SPREAD] WHERE bytes < 5000 GROUP BY srcIP, interfaceName"""
ADDED = (
    "sum(share of bytes)",
    "count(share of bytes)",
    "sum(share of bytes * 8)",
    "count(at_end(TRUE))",
    "sum(at_end(tos))",
    "count(at_end(tos))",
)
LEAST = "min(at_end(bytes))"


def partials(plan: LowLevelPlan, rows: list[Row], slots: int, capacity: int) -> Iterator[pa.RecordBatch]:
    tables = QueryTables("link", plan, slots, capacity)
    names: list[str] = []
    for first in range(0, len(rows), capacity):
        yield from tables.add(made_rows(rows[first : first + capacity], TYPES, names))
    yield from tables.advance_watermark(END)


def word_of(entry: Row, names: dict[str, str], word: str) -> int:
    """Return a sub-aggregate of an entry. Sums of wide integers have two words."""
    if word in names:
        return entry[names[word]]
    return (entry[names[f"upper_{word}"]] << 32) + entry[names[f"lower_{word}"]]


@pytest.mark.parametrize("slots, capacity", [(8, 5), (64, 16)])
def test_sums_of_counters_take_shares_and_all_else_a_row_once(slots: int, capacity: int) -> None:
    plan = compile_query(SQL).leaves[0].low
    rows = [row | {"bytes": row["bytes"] and row["bytes"] % 9000} for row in random_rows(Random(9), 60, 10**10)]
    names = {f"{sub.kind}({expression_text(sub.argument)})": sub.name for sub in plan.subaggregates if sub.argument}
    kept = [row for row in rows if row["bytes"] is not None and row["bytes"] < 5000]
    added: dict[tuple, list[int]] = defaultdict(lambda: [0] * len(ADDED))
    least: dict[tuple, int] = {}
    for row in kept:
        for pane, share in pieces_of(row, PANE, 0):
            group = pane, row["srcIP"].packed, row["interfaceName"]
            ends = pane == pieces_of(row, PANE, 0)[-1][0]
            values = [share or 0, 1, 8 * (share or 0), ends, ends * (row["tos"] or 0), ends and row["tos"] is not None]
            added[group] = [before + value for before, value in zip(added[group], values, strict=True)]
            least[group] = min(least.get(group, INT_MAX), row["bytes"] if ends else INT_MAX)
    found: dict[tuple, list[int]] = defaultdict(lambda: [0] * len(ADDED))
    found_least: dict[tuple, int] = defaultdict(lambda: INT_MAX)
    for batch in partials(plan, rows, slots, capacity):
        for entry in batch.to_pylist():
            group = entry["pane"], entry["k0"], entry["k1"]
            values = [word_of(entry, names, word) for word in ADDED]
            found[group] = [before + value for before, value in zip(found[group], values, strict=True)]
            found_least[group] = min(found_least[group], entry[names[LEAST]])
    assert found == added
    assert found_least == least
    assert sum(values[0] for values in found.values()) == sum(row["bytes"] for row in kept)


def test_partials_leave_while_rows_are_still_cut() -> None:
    """The number of pieces of a batch is the number of panes of its rows.

    Entries evicted on the way must leave before its end.
    """
    plan = compile_query(SQL).leaves[0].low
    rows = [row | {"bytes": 1, "start_ts": row["ts"] - 500 * PANE} for row in random_rows(Random(3), 16, 1)]
    tables = QueryTables("link", plan, 8, 16)
    waiting = [len(tables.waiting_partials) for _ in tables.add(made_rows(rows, TYPES, []))]
    assert len(waiting) > 50
    assert max(waiting) <= 1


def test_counters_are_known_by_their_names() -> None:
    counters = ["packets", "raw_bytes", "octetDeltaCount", "reversePacketTotalCount", "responderOctets", "BYTES"]
    others = ["packets_", "ts", "protocol", "flowId", "octetDeltaSumOfSquares", "samplingInterval", "e9_1"]
    assert [name for name in counters + others if is_counter(name)] == counters
