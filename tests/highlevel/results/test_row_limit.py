"""The rows of a large result that the driver needs, compared with a selection in Python.

The tests detect a window without rows, a row that is neither sent nor added up, and a row that is both.
"""

from collections import defaultdict
from itertools import accumulate
from random import Random

import pyarrow as pa
import pytest

from highlevel.results.row_limit import MANY_WINDOWS, REST_ROWS, WINDOW_ROWS, RowLimit, select_rows


def make_rows(random: Random, windows: int, count: int) -> pa.Table:
    ends = [random.randrange(1, windows + 1) * 10 for _ in range(count)]
    return pa.table(
        {
            "window_start": [end - 10 for end in ends],
            "window_end": ends,
            "group": list(range(count)),
            "bytes": pa.array([random.choice([None, *range(50)]) for _ in ends], pa.int64()),
            "late": [random.random() < 0.1 for _ in ends],
        }
    )


@pytest.mark.parametrize("seed", range(6))
def test_each_window_sends_its_largest_rows_and_adds_up_the_others(seed: int) -> None:
    random = Random(seed)
    rows = make_rows(random, random.choice([1, 3, 40]), random.choice([1, 500, 3000]))
    ignored = random.choice([None, "late"])
    window_rows = random.choice([WINDOW_ROWS, 250])
    limit = RowLimit(("bytes",), {"bytes": "sum"}, ignored, random.choice([300, 1500]), window_rows)
    sent, rest = select_rows(rows, limit)
    if rows.num_rows <= limit.rows:
        assert sent.equals(rows)
        assert rest is None
        return
    kept = [row for row in rows.to_pylist() if not (limit.ignored and row["late"])]
    windows: dict[int, list[dict]] = defaultdict(list)
    for row in kept:
        windows[row["window_end"]].append(row)
    quota = max(window_rows, limit.rows // len(windows))
    newest_first = sorted(windows, reverse=True)
    sizes = [min(quota, len(windows[end])) for end in newest_first]
    old = {
        end
        for end, size in zip(newest_first, accumulate(sizes), strict=True)
        if size > MANY_WINDOWS * max(limit.rows, quota)
    }
    sent_rows = sent.to_pylist()
    assert len({row["group"] for row in sent_rows}) == len(sent_rows)
    added = {row["window_end"]: row for row in rest.to_pylist()}
    if old:
        rest_of_old = added.pop(None)
        values = [row["bytes"] for end in old for row in windows[end] if row["bytes"] is not None]
        assert rest_of_old == {
            "window_end": None,
            REST_ROWS: sum(len(windows[end]) for end in old),
            "bytes": sum(values),
        }
        assert not [row for row in sent_rows if row["window_end"] in old]
    for end, window in windows.items():
        if end in old:
            continue
        own = [row for row in sent_rows if row["window_end"] == end]
        assert len(own) == min(quota, len(window)), seed
        others = [row for row in window if row not in own]
        value = min((row["bytes"] for row in own if row["bytes"] is not None), default=None)
        assert all(row["bytes"] is None or (value is not None and row["bytes"] <= value) for row in others)
        if others:
            numbers = [row["bytes"] for row in others if row["bytes"] is not None]
            rest_of_window = added.pop(end)
            assert rest_of_window[REST_ROWS] == len(others)
            assert rest_of_window["bytes"] == (sum(numbers) if numbers else None), seed
    assert not added


@pytest.mark.parametrize("count", [2_000, 20_000])
def test_many_windows_send_a_bounded_number_of_rows_and_the_newest(count: int) -> None:
    """Sessions and lifetimes have a window for almost every row."""
    rows = pa.table({"window_start": [0] * count, "window_end": range(count), "n": [1] * count})
    sent, rest = select_rows(rows, RowLimit(("n",), {"n": "sum"}, rows=100))
    assert sent["window_end"].to_pylist() == list(range(count - 100 * MANY_WINDOWS, count))
    others = count - 100 * MANY_WINDOWS
    assert rest.to_pylist() == [{"window_end": None, REST_ROWS: others, "n": others}]


def test_the_largest_rows_by_each_rank_are_sent() -> None:
    count = 1_000
    rows = pa.table(
        {"window_start": [0] * count, "window_end": [1] * count, "a": range(count), "b": range(count, 0, -1)}
    )
    sent, rest = select_rows(rows, RowLimit(("a", "b"), rows=200))
    assert sorted(sent["a"].to_pylist()) == [*range(100), *range(count - 100, count)]
    assert rest[REST_ROWS].to_pylist() == [count - 200]


def test_of_rows_without_windows_the_last_ones_are_sent_and_the_others_are_counted() -> None:
    sent, rest = select_rows(pa.table({"n": list(range(10))}), RowLimit(rows=4))
    assert sent["n"].to_pylist() == [6, 7, 8, 9]
    assert rest.to_pylist() == [{REST_ROWS: 6}]
