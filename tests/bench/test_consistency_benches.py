"""The benches of consistency that replay packets: smoke runs, in which every criterion must hold.

Their clock is that of the packets, so the figures do not depend on the machine.
"""

from pathlib import Path

import pytest

from bench import c3, c4
from bench.replay import BEGINNING, LINKS, SKEW, make_packets
from bench.setting import Setting


@pytest.mark.parametrize("bench", [c3, c4], ids=["C3", "C4"])
def test_a_smoke_run_holds_every_criterion(bench, tmp_path: Path) -> None:
    report = bench.run(Setting(tmp_path, quick=True))
    assert len(report.criteria) >= 3
    assert [criterion.name for criterion in report.criteria if not criterion.passed] == []


def test_the_replay_has_late_packets_skew_and_lulls() -> None:
    packets = make_packets(60)
    newest = BEGINNING
    late = 0
    for step in packets.steps:
        late += int((packets.times[step] < newest - SKEW).sum())
        newest = max(newest, int(packets.times[step].max(initial=BEGINNING)))
    assert 0.02 < late / len(packets.times) < 0.2
    assert sum(step.start == step.stop for step in packets.steps) > 1
    assert {len(pair) for pair in packets.newest} == {len(LINKS)}
    assert sum(map(len, filter(None, packets.partials))) < len(packets.times)
