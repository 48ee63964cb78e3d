"""The rows of a large result that the driver needs, compared with a selection in Python.

The tests detect a window without rows, a row that is neither sent nor added up, and a row that is both.
"""

from collections import defaultdict
from random import Random

import pyarrow as pa
import pytest

from highlevel.results.row_limit import LEAST_ROWS, REST_ROWS, RowLimit, select_rows


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
    limit = RowLimit("bytes", {"bytes": "sum"}, random.choice([None, "late"]), random.choice([300, 1500]))
    sent, rest = select_rows(rows, limit)
    if rows.num_rows <= limit.rows:
        assert sent.equals(rows)
        assert rest is None
        return
    kept = [row for row in rows.to_pylist() if not (limit.ignored and row["late"])]
    windows: dict[int, list[dict]] = defaultdict(list)
    for row in kept:
        windows[row["window_end"]].append(row)
    quota = max(LEAST_ROWS, limit.rows // len(windows))
    sent_rows = sent.to_pylist()
    assert len({row["group"] for row in sent_rows}) == len(sent_rows)
    added = {row["window_end"]: row for row in rest.to_pylist()}
    for end, window in windows.items():
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


def test_of_rows_without_windows_the_last_ones_are_sent() -> None:
    sent, rest = select_rows(pa.table({"n": list(range(10))}), RowLimit(rows=4))
    assert sent["n"].to_pylist() == [6, 7, 8, 9]
    assert rest is None
