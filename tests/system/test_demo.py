"""The demo as a new user meets it: the real command, a real Spark, a real Prometheus, Ctrl-C.

Only this test detects parts that pass their own tests but do not fit together. It also detects values that are right in
the pipeline and wrong in Prometheus, and a command that does not stop after a signal.
"""

import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dashboards.commands.demo import LINKS, QUERIES
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from lowlevel.expressions.arrow import to_text
from queries.gsql import compile_query
from queries.query_text import query_text
from tests.harness.demo_process import WIRETIDE, lines_until
from tests.harness.prometheus_server import prometheus

pytestmark = pytest.mark.spark

SECONDS = "60"


@contextmanager
def demo(*options: str, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    """Run the demo, short, fast and on any free port. Stop it at the end in all cases."""
    command = [WIRETIDE, "demo", "--seconds", SECONDS, "--speed", "1000", "--port", "0", *options]
    with subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def expected(folder: Path) -> dict[str, tuple[Plan, pa.Table]]:
    """The last window of each of the demo's queries, by the inline engine over the same captures."""
    plans = [compile_query(query_text(*ready), name) for name, ready in QUERIES.items()]
    inputs = [Input(link, folder / "captures" / f"{link}.pcap", link) for link in LINKS]
    rows: dict[int, list[pa.RecordBatch]] = {}
    for number, batch in InlineRun(plans, inputs).results():
        rows.setdefault(number, []).append(batch)
    tables = {plan.name: (plan, pa.Table.from_batches(rows[n])) for n, plan in enumerate(plans) if n in rows}
    return {
        name: (plan, table.filter(pc.equal(table["window_end"], pc.max(table["window_end"]))))
        for name, (plan, table) in tables.items()
    }


def test_a_real_prometheus_reads_the_last_windows_of_the_demo_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    master, slave = pty.openpty()  # at a terminal the demo goes on serving until Ctrl-C
    try:
        with demo("--folder", str(tmp_path), stdin=slave) as process:
            lines = lines_until(process, "Ctrl-C ends")
            url = next(line for line in lines if line.startswith("metrics at ")).removeprefix("metrics at ")
            with prometheus(tmp_path, url) as server:
                server.until(lambda: server.target(url), "a first scrape")
                assert server.target(url)["health"] == "up"  # type: ignore[index]
                by_link = server.values("wiretide_query_links_packets")
                talkers = server.values("wiretide_query_talkers_packets")
                records = server.values("wiretide_records_read_total")
                balance = server.values(
                    "wiretide_records_read_total - on(link) wiretide_packets_decoded_total"
                    " - on(link) sum by (link) (wiretide_records_skipped_total)"
                )
                ends = server.values("wiretide_query_window_end_seconds")
                late = server.values("sum(wiretide_late_partials_total)")
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait() == 130
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()
    finally:
        os.close(master)
        os.close(slave)
    truth = expected(tmp_path)
    links = truth["links"][1]
    assert by_link == {(("link", row["link"]),): row["packets"] for row in links.to_pylist()}
    pairs = truth["talkers"][1]
    assert sum(talkers.values()) == pc.sum(pairs["packets"]).as_py()
    assert len(talkers) == min(pairs.num_rows, 10) + (pairs.num_rows > 10)
    top = pairs.take(pc.sort_indices(pairs, [("packets", "descending")])[:1])
    labels = (("dest_ip", to_text(top["destIP"])[0].as_py()), ("src_ip", to_text(top["srcIP"])[0].as_py()))
    assert talkers[labels] == top["packets"][0].as_py()
    for name, (_, table) in truth.items():
        assert ends[("query", name),] >= table["window_end"][0].as_py() / 1e9
    assert set(records) == {(("link", link),) for link in LINKS}
    assert set(balance.values()) == {0.0}
    assert late == {(): 0.0}


def test_without_a_terminal_the_demo_ends_by_itself_with_a_summary_of_every_link_and_query() -> None:
    with demo("--until-done") as process:
        out, err = process.communicate()
        assert process.returncode == 0, err
    assert err == ""
    summary = out.split("all input read")[1]
    for name in (*LINKS, *QUERIES):
        assert re.search(rf"^{name} +[\d,]+", summary, re.MULTILINE), summary
    assert len(QUERIES) >= 4
