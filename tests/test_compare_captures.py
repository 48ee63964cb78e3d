"""Comparisons over real captures whose packets are out of order."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboards.comparing import Settings, run_comparison

SECOND = 1_000_000_000


@pytest.mark.parametrize("name", ["monero", "whatsapp", "agora-sd-rtn"])
def test_real_captures_out_of_order(name: str, captures: Path) -> None:
    """Rows of these come behind others of a later time, by up to 147 s."""
    sql = "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 seconds] GROUP BY srcIP"
    found = run_comparison(
        sql,
        [captures / "pcap" / f"{name}.pcap"],
        settings=Settings(slacks=(0, 150 * SECOND), repeat=1),
    )
    told = {each.variant.name: each for each in found.measured}
    for slack in ("exact", "150s late"):
        assert told[f"out of order, {slack}"].difference.exact
        assert told[f"in order, {slack}"].difference.exact
    assert told["in order, 0s late"].late > 0
    assert not told["in order, 0s late"].difference.exact
