"""Charts of answers: the windows and groups that are drawn. They find lost groups and wrong totals."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from capture.units import SECOND
from dashboards.plots.answer_charts import MAX_COLUMNS, MAX_GROUPS, AnswerRows, PlotError
from dashboards.plots.drawing import line_points
from highlevel.plan.plan import Plan
from queries.gsql import compile_query

TALKERS = "SELECT destPort, count(*) AS n, max(len) AS longest FROM p [RANGE 10 seconds] GROUP BY destPort"


def answered(sql: str, *batches: list[tuple[int | None, ...]]) -> AnswerRows:
    """Return the answer with these rows."""
    plan: Plan = compile_query(sql, "q")
    answer = AnswerRows(plan)
    names = plan.schema.names
    tables = [
        pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], plan.schema) for rows in batches
    ]
    collected = list(answer.collect(batch for table in tables for batch in table.to_batches()))
    assert sum(batch.num_rows for batch in collected) == sum(map(len, batches)) == answer.count
    return answer


@pytest.mark.parametrize("seed", range(20))
def test_lines_and_others_add_up_to_the_rows(seed: int) -> None:
    random = Random(seed)
    rows, sums, by_window = [], Counter[int](), Counter[tuple[int, int]]()
    for window in range(random.randint(2, 6)):
        for port in random.sample(range(30), random.randint(1, 30)):
            n = random.randint(1, 100)
            sums[port] += n
            by_window[window, port] += n
            rows.append((window * 10 * SECOND, (window + 1) * 10 * SECOND, port, n, n))
    random.shuffle(rows)
    first = random.randint(0, len(rows))
    chart, longest = answered(TALKERS, rows[:first], rows[first:]).charts()
    assert not chart.is_bars
    assert chart.step_ns == 10 * SECOND
    assert longest.chart.other is None  # maxima cannot be added
    totals = sorted(sums.values(), reverse=True)[:MAX_GROUPS]
    assert [line.total for line in chart.chart.lines] == totals
    for line in chart.chart.lines:
        port = int(line.name.removeprefix("destPort "))
        for end, value in zip(chart.chart.ends, line.values, strict=True):
            assert (value or 0) == by_window[end // (10 * SECOND) - 1, port]
    others = chart.chart.other.total if chart.chart.other is not None else 0
    assert sum(totals) + others == sum(sums.values())


def test_one_window_has_bars() -> None:
    (chart, _) = answered(TALKERS, [(0, 10 * SECOND, 53, 7, 7), (0, 10 * SECOND, 80, 9, 9)]).charts()
    assert chart.is_bars
    assert [(line.name, line.total) for line in chart.chart.lines] == [("destPort 80", 9), ("destPort 53", 7)]


def test_an_answer_without_windows_has_bars() -> None:
    answer = answered("SELECT destPort, count(*) AS n FROM p GROUP BY destPort", [(53, 7), (None, 9)])
    (chart,) = answer.charts()
    assert chart.is_bars
    assert [(line.name, line.total) for line in chart.chart.lines] == [("destPort NULL", 9), ("destPort 53", 7)]


def test_sliding_windows_are_no_steps() -> None:
    sql = "SELECT count(*) AS n FROM p [RANGE 10 seconds SLIDE 2 seconds]"
    (chart,) = answered(sql, [(0, 10 * SECOND, 7), (2 * SECOND, 12 * SECOND, 8)]).charts()
    assert chart.step_ns == 0
    x, y = line_points(chart, chart.chart.lines[0])
    assert (x.tolist(), y.tolist()) == ([10 * SECOND, 12 * SECOND], [7, 8])


def test_steps_cover_their_windows_and_break_in_gaps() -> None:
    sql = "SELECT count(*) AS n FROM p [RANGE 10 seconds]"
    (chart,) = answered(sql, [(0, 10 * SECOND, 7), (40 * SECOND, 50 * SECOND, 8)]).charts()
    x, y = line_points(chart, chart.chart.lines[0])
    assert (x / SECOND).tolist() == [0, 10, 10, 20, 40, 50]
    np.testing.assert_equal(y, [7, 7, np.nan, np.nan, 8, 8])


def test_only_the_first_columns_are_drawn_by_default() -> None:
    names = [f"n{number}" for number in range(MAX_COLUMNS + 2)]
    answer = answered(f"SELECT {', '.join(f'count(*) AS {name}' for name in names)} FROM p", [(1,) * len(names)])
    assert [chart.chart.column for chart in answer.charts()] == names[:MAX_COLUMNS]
    assert [chart.chart.column for chart in answer.charts(names[-1:])] == names[-1:]


def test_columns_without_a_number_are_left_out() -> None:
    (chart,) = answered(TALKERS, [(0, 10 * SECOND, 53, 7, None)]).charts()
    assert chart.chart.column == "n"


@pytest.mark.parametrize(
    ("sql", "rows", "message"),
    [
        ("SELECT ts, len FROM p", [], "got a query of rows, expected values to draw; use an aggregate"),
        ("SELECT srcIP FROM p [RANGE 1 s] GROUP BY srcIP", [], "got a select list without values"),
        (TALKERS, [], "the answer has no rows"),
        ("SELECT max(len) AS longest FROM p", [(None,)], "all values of the answer are NULL"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(sql: str, rows: list[tuple[int | None, ...]], message: str) -> None:
    with pytest.raises(PlotError, match=message):
        answered(sql, rows).charts()


def test_too_many_rows_are_an_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboards.plots.answer_charts.MAX_ROWS", 2)
    rows = [(0, 10 * SECOND, port, 7, 7) for port in range(3)]
    with pytest.raises(PlotError, match="more than 2 rows"):
        answered(TALKERS, rows)
