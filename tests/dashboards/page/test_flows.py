"""Flow diagrams over a range: the largest paths, in the order of the columns, and the rest.

The reference is a dictionary of sums. It catches paths that are selected per window, and a rest that does not add up.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pytest

from capture.units import SECOND
from dashboards.page.flows import make_flows, stages_of
from tests.harness.live_pages import drawn_rows, live_page, window_rows

ALL = 10**6 * SECOND


@pytest.mark.parametrize("seed", range(5))
def test_paths_are_the_largest_sums_of_the_range(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    sums: Counter[tuple[str, ...]] = Counter()
    with live_page(tmp_path, "pairs", served=False) as page:
        plan, series = page.plans["pairs"], page.history.series["pairs"]
        for number in range(9):
            drawn = drawn_rows(random, plan, 12)
            for row in drawn:
                row["protocol"] = random.choice([6, 17, 200])
            rows = random.sample(drawn, random.randrange(1, 12))
            page.history.add(number, "pairs", window_rows(plan, number, rows))
            for row in rows:
                protocol = {6: "tcp", 17: "udp", 200: "protocol 200"}[row["protocol"]]
                sums[str(ip_address(row["srcIP"])), protocol, str(ip_address(row["destIP"]))] += row["bytes"]
        flows = make_flows(series, "bytes", page.history.stored.range("pairs", ALL, 100), 7)
    assert flows.stages == ("srcIP", "protocol", "destIP")
    assert list(zip(flows.paths, flows.values, strict=True)) == sums.most_common(7)
    assert flows.other == sums.total() - sum(flows.values)


def test_only_queries_with_several_groups_and_values_that_can_be_added_have_a_diagram(tmp_path: Path) -> None:
    with live_page(tmp_path, "pairs", "talkers", "total", served=False) as page:
        stages = {name: stages_of(series) for name, series in page.history.series.items()}
        assert stages == {"pairs": ("srcIP", "protocol", "destIP"), "talkers": (), "total": ()}
        with pytest.raises(ValueError, match="the column largest of pairs has no diagram"):
            make_flows(page.history.series["pairs"], "largest", [], 5)


def test_a_range_without_windows_has_no_paths(tmp_path: Path) -> None:
    with live_page(tmp_path, "pairs", served=False) as page:
        flows = make_flows(page.history.series["pairs"], "n", [], 5)
    assert (flows.paths, flows.values, flows.other) == ((), (), 0.0)
