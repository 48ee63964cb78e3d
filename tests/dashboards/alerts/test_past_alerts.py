"""Back-fill of alerts: the number of alerts that were firing, at the time of the capture, equals plain Python."""

from __future__ import annotations

import os
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from capture.units import SECOND
from dashboards.alerts import past_alerts
from dashboards.alerts.past_alerts import PastAlerts
from tests.harness.alert_captures import SLIDE, draw_packets, expected_alerts, write_pipeline
from tests.harness.alert_rules import MINUTE, Row, evaluation, scans
from tests.harness.command_line import run
from tests.harness.prometheus_server import program


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def firing_samples(folder: Path) -> dict[str, dict[float, float]]:
    """Return the samples of `wiretide_alerts_firing` in a folder by rule: the value by time."""
    samples: dict[str, dict[float, float]] = defaultdict(dict)
    for path in folder.iterdir():
        for family in text_string_to_metric_families(path.read_text()):
            for sample in family.samples:
                if sample.name == "wiretide_alerts_firing":
                    samples[sample.labels["rule"]][float(sample.timestamp)] = sample.value
    return samples


@pytest.mark.parametrize("seed", range(2))
def test_backfill_writes_the_number_of_firing_alerts_of_each_window(seed: int, tmp_path: Path) -> None:
    packets = draw_packets(seed)
    write_pipeline(tmp_path, packets)
    status, _, err = run("backfill", "pipeline.toml", "-o", "samples", cwd=tmp_path)
    assert (status, err) == (0, "")
    spans: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for rule, _, began, ended, _ in expected_alerts(packets):
        spans[rule].append((seconds(began), float("inf") if ended is None else seconds(ended)))
    samples_by_rule = firing_samples(tmp_path / "samples")
    assert samples_by_rule.keys() == spans.keys()
    for rule, samples in samples_by_rule.items():
        for time, value in samples.items():
            assert value == sum(began <= time < ended for began, ended in spans[rule]), (rule, time)
        for began, ended in spans[rule]:
            assert began - SLIDE in samples
            assert {*range(began, int(min(ended, began)) + 1, SLIDE)} <= samples.keys()
            assert ended == float("inf") or {*range(began, int(ended) + 1, SLIDE)} <= samples.keys()


@pytest.mark.slow("promtool")
def test_promtool_stores_every_sample(tmp_path: Path) -> None:
    write_pipeline(tmp_path, draw_packets(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.pathsep.join([str(Path(program("promtool")).parent), os.environ["PATH"]]))
        status, out, err = run("backfill", "pipeline.toml", "-o", "samples", "--blocks", "data", cwd=tmp_path)
    assert (status, err) == (0, "")  # the command counts the samples of the blocks
    assert out.endswith(" samples, 1 block in data\n")


RULE = '[alerts.scan]\nquery = "scans"\nwhere = "packets > 100"\nkeep = "1h"\n'


def past(folder: Path, *batches: list[Row], newest: int | None = None) -> PastAlerts:
    evaluated = evaluation(RULE, folder)
    alerts = PastAlerts(evaluated)
    (plan,) = {rule.plan for rule in evaluated.rules}
    for rows in batches:
        for batch in scans(evaluated, rows)["scans"].to_batches() or [pa.RecordBatch.from_pylist([], plan.schema)]:
            alerts.add(plan, batch)
    alerts.finish(None if newest is None else newest * MINUTE)
    return alerts


def samples_of(alerts: PastAlerts) -> list[tuple[float, float]]:
    (family,) = alerts.families()
    return [
        (time * (SECOND // 1000) / MINUTE, value)
        for samples in family.series.values()
        for time, value in zip(samples.times, samples.values, strict=True)
    ]


def test_a_window_in_several_batches_is_one_window(tmp_path: Path) -> None:
    whole = past(tmp_path, [(1, "::1", 200, 1), (1, "::2", 300, 1), (2, "::1", 5, 1)])
    divided = past(tmp_path, [(1, "::1", 200, 1)], [], [(1, "::2", 300, 1)], [(2, "::1", 5, 1)])
    assert [alert.message for alert in divided.alerts] == [alert.message for alert in whole.alerts]
    assert len(whole.alerts) == 2


def test_samples_of_alerts_that_overlap_and_touch_are_counts(tmp_path: Path) -> None:
    alerts = past(tmp_path, [(10, "::1", 200, 1), (12, "::2", 200, 1)], newest=75)
    assert samples_of(alerts) == [
        (9, 0), (10, 1), (11, 1), *((minute, 2) for minute in range(12, 70)), (70, 1), (71, 1), (72, 0),
    ]  # fmt: skip
    assert samples_of(past(tmp_path, [(1, "::1", 5, 1)])) == []


def test_samples_are_limited_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_alerts, "MAX_SAMPLES", 5)
    alerts = past(tmp_path, [(10, "::1", 200, 1), (500, "::2", 200, 1)], newest=501)
    assert samples_of(alerts) == [(9, 0), *((minute, 1) for minute in range(10, 15)), (70, 0), (499, 0)]
    assert alerts.omitted_samples == 55 + 2
