"""Windows of a finite input, from partials in any order.

Random panes of few rows are sorted, and large sections of equal panes are not: both catch rows in a wrong window. Small
windows are merged together and large ones separately: a query with and one without groups catches a group that gets
rows of another window. The number of slices of a window catches a time that grows with the number of its panes.
"""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.operators import finite
from highlevel.operators.finite import FiniteWindows, divide_by_pane
from highlevel.plan.nodes import Windowed
from lowlevel.punctuation import END, Punctuation
from queries.gsql import compile_query

Key = tuple[int, ...]


def make_windows(keys: str) -> FiniteWindows:
    """Return the operator for windows of 3 panes that slide by one."""
    group = f" GROUP BY {keys}" if keys else ""
    select = f"{keys}, count(*) AS n" if keys else "count(*) AS n"
    plan = compile_query(f"SELECT {select} FROM packets [RANGE 3 seconds, SLIDE 1 second]{group}")
    (node,) = (node for node in plan.nodes if isinstance(node, Windowed))
    return FiniteWindows(node.aggregation, node.aggregation.window)


@pytest.mark.parametrize("keys", ["destPort", ""])
@pytest.mark.parametrize("section_rows", [1, 40, 1000])
def test_each_window_has_the_partials_of_its_panes(
    keys: str, section_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finite, "MERGE_ROWS", 5000)
    random = Random(section_rows)
    operator = make_windows(keys)
    schema = operator._aggregation.low.schema
    expected: Counter[Key] = Counter()
    for _ in range(12):
        rows = []
        for _ in range(1 + 1000 // section_rows):
            pane = random.choice((0, 1, 2, 9, 10, 40))
            for _ in range(section_rows):
                port, count = random.randrange(5), random.randrange(1, 4)
                rows.append((pane, port, count))
                for end in (pane + 1, pane + 2, pane + 3):
                    expected[(end, port, 0) if keys else (end, 0)] += count
        columns = {"link": ["a"] * len(rows), "pane": [row[0] for row in rows], "s0": [row[-1] for row in rows]}
        columns |= {"k0": [row[1] for row in rows]} if keys else {}
        batch = pa.record_batch([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema)
        assert list(operator.process_rows(0, batch)) == []
    results = [item for item in operator.punctuate(0, Punctuation("a", END)) if isinstance(item, pa.RecordBatch)]
    found: Counter[Key] = Counter()
    for batch in results:
        assert batch.schema.names[:2] == ["window_start", "window_end"]
        for row in batch.to_pylist():
            start, end, *group, count = row.values()
            assert end - start == 3_000_000_000
            assert found[(end // 1_000_000_000, *group, 0)] == 0
            found[(end // 1_000_000_000, *group, 0)] = count
    assert found == expected
    assert operator.outside == 0


@pytest.mark.parametrize(("rows", "windows", "slices"), [(2, 1, 1), (300, 1, 2), (300, 60, 1)])
def test_the_partials_of_overlapping_windows_are_one_slice(rows: int, windows: int, slices: int) -> None:
    panes = [pane for _ in ("a", "b") for pane in range(60) for _ in range(rows)]
    partials, sections = divide_by_pane(pa.table({"pane": panes}), windows)
    for pane in range(60):
        first, end = np.searchsorted(sections.panes, [pane, pane + windows]).tolist()
        parts = sections.slices(partials, first, end)
        assert len(parts) == slices
        found = pa.concat_tables(parts)["pane"].to_numpy()
        assert found.tolist() == np.repeat(range(pane, min(pane + windows, 60)), 2 * rows).tolist()


def test_adjacent_sections_are_one_slice() -> None:
    partials, sections = divide_by_pane(pa.table({"pane": np.repeat([0, 1, 3, 2], 900)}), 1)
    assert [len(sections.slices(partials, 0, end)) for end in (1, 2, 3, 4)] == [1, 1, 2, 3]
    assert partials["pane"].to_pylist()[-1] == 2, "large sections are not sorted"
