"""Windows over flow records, by the definition. Flow times are older than the times of their datagrams.

The tests detect a watermark of records that is used for flows, so that all flows are late. They detect a flow in the
pane of its datagram, and shares that do not add up after panes are merged into windows.
"""

from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import LATE_PARTIALS
from queries.gsql import compile_query
from tests.references.netflow_bytes import v5, v5_record
from tests.references.pcap_bytes import NS
from tests.references.small_captures import UDP, ip, write
from tests.references.windows_oracle import Spec
from tests.references.written_exports import START, UPTIME, write_exports


def windows(sql: str, inputs: list[Input]) -> tuple[dict[tuple, tuple], InlineRun]:
    run = InlineRun([compile_query(sql)], inputs, 16)
    rows = [tuple(row.values()) for _, batch in run.results() for row in batch.to_pylist()]
    return {row[:3]: row[3:] for row in rows}, run


@pytest.mark.parametrize("links", [1, 3])
def test_flows_are_in_the_windows_they_ended_in_and_none_is_late(links: int, tmp_path: Path) -> None:
    random = Random(links)
    paths = [tmp_path / f"{number}.pcap" for number in range(links)]
    flows = [flow for path in paths for flow in write_exports(path, random, 40)]
    sql = "SELECT protocol, count(*), sum(bytes) FROM flows [RANGE 1 minute, SLIDE 20 s] GROUP BY protocol"
    found, run = windows(sql, [Input(path.stem, path) for path in paths])
    expected: dict[tuple, list[int]] = defaultdict(lambda: [0, 0])
    spec = Spec(60 * NS, 20 * NS)
    for flow in flows:
        for wid in spec.wids(flow["ts"]):
            group = expected[(*spec.extent(wid), flow["protocol"])]
            group[0] += 1
            group[1] += flow["bytes"]
    assert found == {key: tuple(values) for key, values in expected.items()}
    assert run.samples().total(LATE_PARTIALS) == 0


def test_spread_flows_add_up_in_tumbling_windows_and_are_shared_as_defined_in_sliding_ones(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    flows = write_exports(path, Random(5), 60)
    inputs = [Input("exports", path)]
    sql = "SELECT protocol, sum(bytes), count(*) FROM flows [{}, SPREAD] GROUP BY protocol"
    tumbling, _ = windows(sql.format("RANGE 7 s"), inputs)
    assert sum(total for total, _ in tumbling.values()) == sum(flow["bytes"] for flow in flows)
    assert sum(count for _, count in tumbling.values()) == len(flows)
    sliding, _ = windows(sql.format("RANGE 1 minute, SLIDE 20 s"), inputs)
    expected: dict[tuple, list[int]] = defaultdict(lambda: [0, 0])
    spec, pane = Spec(60 * NS, 20 * NS), 20 * NS
    for flow in flows:
        start, end = flow["start_ts"], flow["ts"]
        lasted = end - start

        def before(moment: int, flow: dict[str, int] = flow, start: int = start, lasted: int = lasted) -> int:
            return flow["bytes"] * (min(max(moment, start), start + lasted) - start) // lasted

        last = (end - (lasted > 0)) // pane
        for number in range(start // pane, last + 1):
            low, high = number * pane, (number + 1) * pane
            share = before(high) - before(low) if lasted else flow["bytes"]
            for wid in spec.wids(low):
                group = expected[(*spec.extent(wid), flow["protocol"])]
                group[0] += share
                group[1] += number == last
    assert sliding == {key: tuple(values) for key, values in expected.items()}


def test_conditions_on_spread_flows_are_about_the_whole_flow(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    flows = write_exports(path, Random(6), 60)
    middle = sorted(flow["bytes"] for flow in flows)[30]
    sql = (
        f"SELECT sum(bytes) FILTER (WHERE bytes > {middle}), sum(bytes > {middle}), "
        f"count(*) FILTER (WHERE bytes > {middle}), sum(CASE WHEN bytes > {middle} THEN bytes ELSE 0 END) "
        "FROM flows [RANGE 7 s, SPREAD]"
    )
    found = [
        row
        for _, batch in InlineRun([compile_query(sql)], [Input("exports", path)]).results()
        for row in zip(*(column.to_pylist() for column in batch.columns[2:]), strict=True)
    ]
    large = [flow for flow in flows if flow["bytes"] > middle]
    totals = [sum(value or 0 for value in column) for column in zip(*found, strict=True)]
    assert totals == [
        sum(flow["bytes"] for flow in large),
        len(large),
        len(large),
        sum(flow["bytes"] for flow in large),
    ]
    assert 0 < len(large) < len(flows)


def test_packets_and_flows_of_one_capture_are_counted_in_one_run(tmp_path: Path) -> None:
    """The packets have the watermark of their scan, the flows have none. Neither may use the watermark of the other."""
    path = tmp_path / "both.pcap"
    flows = write_exports(path, Random(6), 50)
    sql = "SELECT count(*) AS n FROM {} [RANGE 1 minute]"
    plans = [compile_query(sql.format(kind), kind) for kind in ("packets", "flows", "frames")]
    counts = [0, 0, 0]
    run = InlineRun(plans, [Input("both", path)])
    for number, batch in run.results():
        counts[number] += sum(batch.column("n").to_pylist())
    assert counts == [50, len(flows), 50]
    assert run.samples().total(LATE_PARTIALS) == 0


@pytest.mark.parametrize("lasted, spread", [(30_000, 0), (90_000, 0), (0, 1)])
def test_a_record_that_ends_on_an_edge_is_in_the_window_with_its_last_nanosecond(
    lasted: int, spread: int, tmp_path: Path
) -> None:
    """With SPREAD its life is half-open; without, and if it has no length, it is in the window that its end begins."""
    edge = START + 40  # a whole minute
    record = v5_record(octets=900, packets=3, first=UPTIME - 60_000 - lasted, last=UPTIME - 60_000)
    payload = v5([record], uptime=UPTIME, seconds=edge + 60)
    segment = bytes([4, 0, 8, 7]) + (len(payload) + 8).to_bytes(2, "big") + bytes(2) + payload
    path = write(tmp_path / "a.pcap", [(edge + 60, ip("192.0.2.1", "192.0.2.2", UDP, segment, 20 + len(segment)))])
    for clause, first in (("RANGE 1 minute, SPREAD", edge - 60 + 60 * spread), ("RANGE 1 minute", edge)):
        sql = f"SELECT sum(packets) AS shares, count(*) AS n, max(bytes) AS most FROM flows [{clause}]"
        (batch,) = (batch for _, batch in InlineRun([compile_query(sql)], [Input("a", path)]).results())
        rows = [row for row in batch.to_pylist() if row["n"]]
        assert [(row["window_start"], row["n"], row["most"]) for row in rows] == [(first * NS, 1, 900)]
        assert sum(batch["shares"].to_pylist()) == 3
