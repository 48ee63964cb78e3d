"""Comparisons over inputs with natural disorder: flows that ended before they were exported, and real captures."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from dashboards import request
from dashboards.comparing import Settings, run_comparison
from highlevel.compare.question import question_of
from highlevel.compare.recording import record
from tests.references.written_exports import write_exports

SECOND = 1_000_000_000


@pytest.mark.parametrize("name", ["monero", "whatsapp", "agora-sd-rtn"])
@pytest.mark.slow("real captures in every order")
def test_real_captures_out_of_order(name: str, captures: Path) -> None:
    """Rows of these captures arrive after rows of a later time, by up to 147 s."""
    sql = "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 seconds] GROUP BY srcIP"
    found = run_comparison(
        sql,
        [captures / "pcap" / f"{name}.pcap"],
        settings=Settings(slacks=(0, 150 * SECOND), repeat=1),
    )
    told = {each.variant.name: each for each in found.measured}
    for slack in ("exact", "150s late"):
        assert told[f"out of order, {slack}"].difference.is_exact
        assert told[f"in order, {slack}"].difference.is_exact
    assert told["in order, 0s late"].late > 0
    assert not told["in order, 0s late"].difference.is_exact


def test_flows_arrive_when_they_were_exported(tmp_path: Path) -> None:
    """They ended up to a minute before: a slack of a minute is enough, and none is not."""
    path = tmp_path / "exports.pcap"
    flows = write_exports(path, Random(1), 60)
    sql = "SELECT protocol, count(*) AS n, sum(bytes) AS octets FROM flows [RANGE 1 minute] GROUP BY protocol"
    plan, inputs = request.bind(sql, "outer", None, [path], None, follow=False)
    (found,) = record(question_of(plan).plan.leaves, inputs)
    assert found.times.tolist() == [flow["ts"] for flow in flows]
    late = found.arrivals - found.times
    assert late.min() >= 0
    assert 50 * SECOND < late.max() <= 60 * SECOND
    assert (np.diff(found.arrivals) >= 0).all()
    told = {
        each.variant.name: each
        for each in run_comparison(sql, [path], settings=Settings(slacks=(0, 60 * SECOND), repeat=1)).measured
    }
    for name, each in told.items():
        assert each.difference.is_exact is (" 0s" not in name), name
