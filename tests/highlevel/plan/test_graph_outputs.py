"""Outputs of graphs: tables, lines, Prometheus, the index page, and the messages for wrong inputs."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

from capture import native
from capture.errors import InputError
from capture.native import Kernel
from dashboards.answer import answer
from dashboards.idle_kernels import IdleKernels
from dashboards.monitors.window_lines import window_lines
from dashboards.output.formats import Format
from dashboards.output.writers import write_results
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import render_index_page
from highlevel.inline.engine import InlineRun, Input
from highlevel.joins.spec import Band, JoinKind
from highlevel.metrics import METRICS, RESULT_ROWS
from highlevel.plan.nodes import Distinct, Leaf, Node, Windowed
from highlevel.plan.plan import Plan
from highlevel.windows.kind import SlidingWindow
from lowlevel.plan import Key
from queries.pipeline.inputs import bind_files, check_streams
from tests.references.graph_plans import LEN, SRC, join, packets, totals
from tests.references.pcap_bytes import NS
from tests.references.small_captures import udp, write

PAIRS = join(packets("a"), packets("b"), Band(3 * NS, 0), kind=JoinKind.LEFT)
TEN = SlidingWindow(10 * NS, 10 * NS)
WINDOWS = Windowed(packets("a"), totals(TEN, (Key("srcIP", SRC),), LEN), "ts")


def graph(root: Node, name: str = "q") -> Plan:
    return Plan(name, "SELECT …", root)


@pytest.fixture
def inputs(tmp_path: Path) -> list[Input]:
    write(tmp_path / "a.pcap", [(1, udp("10.0.0.1", "10.0.0.2", 1, 2)), (20.5, udp("10.0.0.1", "10.0.0.3", 1, 2))])
    write(tmp_path / "b.pcap", [(2, udp("10.0.0.2", "10.0.0.1", 2, 1))])
    return [Input(name, tmp_path / f"{name}.pcap", name) for name in "ab"]


def test_times_of_rows_are_spelled_in_tables_and_numbers_in_files(inputs: list[Input]) -> None:
    plan = graph(PAIRS)
    texts = {}
    for kind in (Format.TABLE, Format.CSV):
        sink = io.BytesIO()
        with answer(plan, inputs, threads=1) as found:
            write_results(found.batches, plan.schema, kind, sink, live=True, times=plan.times)
            assert found.warnings() == []
        texts[kind] = sink.getvalue().decode().splitlines()
    header, _, first, *rest = texts[Format.TABLE]
    assert header.split()[:2] == ["S.ts", "S.srcIP"]
    assert " ".join(first.split()) == (
        "1970-01-01T00:00:01Z 10.0.0.1 10.0.0.2 1 100 1970-01-01T00:00:02Z 10.0.0.2 10.0.0.1 2 100"
    )
    assert " ".join(rest[-1].split()) == ("1970-01-01T00:00:20.500Z 10.0.0.1 10.0.0.3 1 100 NULL NULL NULL NULL NULL")
    assert texts[Format.CSV][1:] == [
        "1000000000,10.0.0.1,10.0.0.2,1,100,2000000000,10.0.0.2,10.0.0.1,2,100",
        "20500000000,10.0.0.1,10.0.0.3,1,100,,,,,",
    ]


def test_windows_of_a_graph_are_series_and_rows_are_counted_alone() -> None:
    plans = [graph(PAIRS, "pairs"), graph(WINDOWS, "hosts")]
    exporter = Exporter(plans, METRICS)
    rows = {"window_start": [0], "window_end": [10 * NS], "srcIP": [bytes([10, 0, 0, 1])], "c": [2], "s": [200]}
    exporter.add_results("hosts", pa.table(rows, plans[1].schema))
    exporter.add_results("pairs", plans[0].schema.empty_table())
    exporter.set_watermark("pairs", 10 * NS)
    exporter.set_samples({(RESULT_ROWS.name, ("pairs",)): 7.0})
    samples = {
        (each.name, *each.labels.values()): each.value for family in exporter.collect() for each in family.samples
    }
    assert samples["wiretide_query_hosts_c", "10.0.0.1"] == 2
    assert samples[RESULT_ROWS.name, "pairs"] == 7
    assert not any(name.startswith("wiretide_query_pairs") for name, *_ in samples)
    with pytest.raises(ValueError, match="'pairs' cannot be ranked: its rows have no window"):
        Exporter(plans, METRICS, rank={"pairs": "S.len"})
    with pytest.raises(ValueError, match="results of query 'nobody'"):
        exporter.add_results("nobody", plans[0].schema.empty_table())


def test_rows_without_a_window_are_one_line_with_the_last_of_them() -> None:
    plan = graph(packets("a"), "seen")
    rows = {
        "ts": [NS, 2 * NS], "srcIP": [b"\n\0\0\1", None], "destIP": [None, None], "srcPort": [5, 53], "len": [60, 1400],
    }  # fmt: skip
    table = pa.table(rows, plan.schema)
    last = "ts 1970-01-01T00:00:02Z, srcIP None, destIP None, srcPort 53, len 1400"
    assert list(window_lines(plan, table)) == [f"{'':20}  seen: 2 rows, the last {last}"]
    assert list(window_lines(plan, table.slice(1))) == [f"{'':20}  seen: 1 row, {last}"]
    assert list(window_lines(plan, table.slice(2))) == []
    windows = {"window_start": [0], "window_end": [10 * NS], "srcIP": [b"\n\0\0\1"], "c": [2], "s": [200]}
    line = "1970-01-01T00:00:10Z  q: 1 row, srcIP 10.0.0.1, c 2, s 200"
    assert list(window_lines(graph(WINDOWS), pa.table(windows, graph(WINDOWS).schema))) == [line]


def test_the_index_page_names_the_streams_of_all_leaves() -> None:
    assert b"<p>from a, b</p>" in render_index_page([graph(PAIRS)])


def test_the_kernels_of_joins_are_for_queries_that_join(inputs: list[Input]) -> None:
    joins, rows = (IdleKernels(InlineRun([graph(root)], inputs)) for root in (PAIRS, packets("a")))
    of_joins = [each for each in native.kernels if each.function.__module__.startswith("highlevel.joins.")]
    assert of_joins
    assert not any(map(joins, of_joins))
    assert all(map(rows, of_joins))


@pytest.mark.parametrize("root", [PAIRS, WINDOWS, Distinct(packets("a"), ("ts", "srcIP"))])
def test_no_idle_kernel_is_called(root: Node, inputs: list[Input], monkeypatch: pytest.MonkeyPatch) -> None:
    run = InlineRun([graph(root)], inputs)
    idle = IdleKernels(run)
    called: set[str] = set()
    call = Kernel.at

    def noted(self: Kernel, *arguments: float) -> int:
        called.add(self.name)
        return call(self, *arguments)

    monkeypatch.setattr(Kernel, "at", noted)
    assert list(run.results())
    assert called
    assert {each.name for each in native.kernels if idle(each)} & called == set()


def test_each_leaf_must_have_an_input(inputs: list[Input]) -> None:
    plans = [graph(PAIRS)]
    check_streams(plans, inputs)
    with pytest.raises(InputError, match="query q: no file for the stream b; bound are: a"):
        check_streams(plans, inputs[:1])
    check_streams(plans, bind_files([str(inputs[0].path)]))  # a file alone is every stream
    leaf = packets("a").input
    assert isinstance(leaf, Leaf)
    assert [each.feeds(leaf) for each in inputs] == [True, False]
