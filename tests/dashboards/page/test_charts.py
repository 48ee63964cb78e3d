"""Charts over a range: the groups with the largest sums, the same in every window, and the others.

The reference is a dictionary of sums. It catches groups that are selected per window, and others that do not add up.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pytest

from capture.units import SECOND
from dashboards.page.charts import Line, make_chart
from dashboards.page.stored_windows import HEAD_ROWS
from tests.harness.live_pages import START, drawn_rows, live_page, window_rows


@pytest.mark.parametrize("seed", range(8))
def test_lines_are_the_largest_groups_of_the_range(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    with live_page(tmp_path, served=False) as page:
        plan, series = page.plans["talkers"], page.history.series["talkers"]
        windows = []
        for number in range(12):
            rows = drawn_rows(random, plan, 30)
            windows.append(random.sample(rows, random.randrange(1, 30)))
            page.history.add(number, "talkers", window_rows(plan, number, windows[-1]))
        for column in ("n", "bytes"):
            chart = make_chart(series, column, page.history.stored.range("talkers", 10**6 * SECOND, 100), 4)
            sums: Counter[str] = Counter()
            for rows in windows:
                for row in rows:
                    sums[str(ip_address(row["srcIP"]))] += row[column]
            assert chart.ends == tuple((START + 10 * n + 10) * SECOND for n in range(12))
            assert [line.name for line in chart.lines] == [name for name, _ in sums.most_common(4)]
            for line in chart.lines:
                expected = [
                    next((row[column] for row in rows if str(ip_address(row["srcIP"])) == line.name), None)
                    for rows in windows
                ]
                assert list(line.values) == expected
                assert line.total == sums[line.name]
            assert chart.other is not None
            for number, rows in enumerate(windows):
                shown = sum(line.values[number] or 0 for line in chart.lines)
                assert chart.other.values[number] == sum(row[column] for row in rows) - shown


def test_a_group_at_the_boundary_of_a_window_does_not_flicker(tmp_path: Path) -> None:
    """Ten groups of which every window has another one at the top: the lines are the same three in all windows."""
    with live_page(tmp_path, served=False) as page:
        plan, series = page.plans["talkers"], page.history.series["talkers"]
        for number in range(10):
            rows = drawn_rows(Random(0), plan, 10)
            for group, row in enumerate(rows):
                row["n"] = 1000 * (group < 3) + 2000 * (group == number)
            page.history.add(number, "talkers", window_rows(plan, number, rows))
        chart = make_chart(series, "n", page.history.stored.range("talkers", 10**6 * SECOND, 100), 3)
        assert sorted(line.name for line in chart.lines) == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
        assert all(value is not None for line in chart.lines for value in line.values)


def test_values_that_cannot_be_added_have_no_others(tmp_path: Path) -> None:
    with live_page(tmp_path, served=False) as page:
        plan, series = page.plans["talkers"], page.history.series["talkers"]
        page.history.add(0, "talkers", window_rows(plan, 0, drawn_rows(Random(0), plan, HEAD_ROWS + 5)))
        windows = page.history.stored.range("talkers", 10**6 * SECOND, 100)
        assert make_chart(series, "mean", windows, 3).other is None
        with pytest.raises(ValueError, match="got the column 'means' of talkers, expected one of: n, bytes, mean"):
            make_chart(series, "means", windows, 3)


def test_a_query_without_groups_has_one_line(tmp_path: Path) -> None:
    with live_page(tmp_path, served=False) as page:
        plan, series = page.plans["total"], page.history.series["total"]
        for number in range(3):
            page.history.add(number, "total", window_rows(plan, number, [{"packets": number}]))
        chart = make_chart(series, "packets", page.history.stored.range("total", 10**6 * SECOND, 100), 3)
        assert chart.lines == (Line("total", (0.0, 1.0, 2.0), 3.0),)
        assert chart.other is None


def test_windows_without_rows_are_a_gap_and_parts_of_a_window_are_added(tmp_path: Path) -> None:
    with live_page(tmp_path, served=False) as page:
        plan, series = page.plans["talkers"], page.history.series["talkers"]
        row = {"srcIP": b"\x0a\0\0\1", "n": 3, "bytes": 100, "mean": 5.0}
        for batch, number in enumerate((0, 1, 5, 5)):
            page.history.add(batch, "talkers", window_rows(plan, number, [row]))
        chart = make_chart(series, "n", page.history.stored.range("talkers", 10**6 * SECOND, 100), 3)
    assert [(end // SECOND - START) // 10 - 1 for end in chart.ends] == [0, 1, 2, 5]
    assert chart.lines == (Line("10.0.0.1", (3.0, 3.0, None, 6.0), 12.0),)
    assert chart.other == Line("all others", (0.0, 0.0, None, 0.0), 0.0)
