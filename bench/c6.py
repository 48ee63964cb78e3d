"""A pipeline of five queries with three consistencies on Spark, killed again and again while its spool is written.

The kills are those of `bench.kills`. In the end the table that `wiretide compact` writes for each query must equal the
answer of the same query without a consistency, by the inline engine over the capture.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from bench.command import wiretide
from bench.kills import PHASES, SpoolThread, kill_and_finish
from bench.report import Report
from bench.setting import Setting
from bench.traffic import generate_cached
from capture.generate import Profile
from capture.units import SECOND
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from highlevel.results.user_types import to_internal
from highlevel.spark.run_folder.result_files import read_results
from highlevel.spark.run_folder.totals import TotalsFiles
from highlevel.speculation.consistency import WEIGHT
from lowlevel.watermarks.rule import parse_rule
from queries.gsql import compile_query
from queries.pipeline.file import read_pipeline

KILLS, QUICK_KILLS = 20, 2
PACKETS, QUICK_PACKETS = 400_000, 100_000
SPAN = 3
"""Maximum lateness of a packet in seconds."""

TALKERS = "SELECT srcIP, count(*) AS n FROM packets [RANGE 30 seconds, SLIDE 10 seconds] GROUP BY srcIP"
SIZES = "SELECT len / 100 AS size, count(*) AS n FROM packets [RANGE 1 second] GROUP BY len / 100"
QUERIES = {
    "sizes": (SIZES, "WITH MIDDLE CONSISTENCY"),
    "patient_sizes": (SIZES, "WITH CONSISTENCY (WAIT 2 seconds)"),
    "talkers": (TALKERS, "WITH MIDDLE CONSISTENCY"),
    "patient_talkers": (TALKERS, "WITH CONSISTENCY (WAIT 2 seconds)"),
    "certain_talkers": (TALKERS, "WITH STRONG CONSISTENCY"),
}
"""The text and the consistency of each query. `sizes` marks a phase of `bench.kills`."""

PIPELINE = """
folder = "state"
[links.eth0]
capture = "{capture}"
spool = "spool"
promise = "late {span}s"
[metrics]
port = 0
[spark]
master = "local[2]"
"""


def run(setting: Setting) -> Report:
    """Kill and restart the run several times. Then let it finish, and compare the results."""
    kills, packets = (QUICK_KILLS, QUICK_PACKETS) if setting.quick else (KILLS, PACKETS)
    traffic = Profile(packets=packets, rate=1000.0, groups=200, disorder="band", disorder_span=SPAN * SECOND)
    capture = generate_cached(traffic, setting.data)
    with tempfile.TemporaryDirectory(prefix="wiretide-c6-") as folder:
        file = Path(folder) / "pipeline.toml"
        texts = (f'[queries.{name}]\nsql = "{sql} {clause} EMIT CHANGES"\n' for name, (sql, clause) in QUERIES.items())
        file.write_text(PIPELINE.format(capture=capture, span=SPAN) + "".join(texts))
        plans = read_pipeline(file).plans()
        writing = SpoolThread(capture, file.parent / "spool", plans, parse_rule(f"late {SPAN}s"))
        begin = time.monotonic()
        killed, status = kill_and_finish(file, writing, kills)
        took = time.monotonic() - begin
        totals = TotalsFiles(file.parent / "state" / "totals").last_batch_id()
        subprocess.run([*wiretide("compact"), file.parent / "state"], stdout=subprocess.DEVNULL, check=True)
        compared = {plan.name: compare(plan, file.parent / "state", capture) for plan in plans}
    report = Report("C6")
    report.table(
        f"{killed.total()} kills in {took:,.0f} s, {totals + 1:,} micro-batches",
        ("query", "consistency", "results", "corrections", "wrong"),
        [(name, QUERIES[name][1], *(f"{count:,}" for count in counts)) for name, counts in compared.items()],
    )
    report.add_criterion("kill -9 of the run, while it ran", killed.total(), ">= 20", judged=not setting.quick)
    report.add_criterion(
        "phases of a micro-batch with kills", sum(phase in killed for phase in PHASES), ">= 4", judged=not setting.quick
    )
    report.add_criterion("exit status of the last run", status, "<= 0")
    wrong = sum(counts[-1] for counts in compared.values())
    report.add_criterion("compacted rows that differ from the strong answer", wrong, "<= 0")
    corrections = compared["talkers"][1]
    report.add_criterion("corrections of talkers at once", corrections, ">= 100", judged=not setting.quick)
    return report


def compare(plan: Plan, folder: Path, capture: Path) -> tuple[int, int, int]:
    """Return the rows of a query in the strong answer, its corrections, and the compacted rows that differ.

    `folder`: the folder of the run. A compacted row that is not final is different too.
    """
    weights = read_results(folder / "output", plan).column(WEIGHT).to_numpy()
    schema = plan.schema.remove(plan.schema.get_field_index(WEIGHT))
    compacted = to_internal(pq.read_table(folder / "compact" / f"{plan.name}.parquet", partitioning=None), schema)
    found = Counter(tuple(row.values()) for row in compacted.to_pylist())
    strong = InlineRun([compile_query(QUERIES[plan.name][0], plan.name)], [Input("eth0", capture)])
    expected = Counter((*row.values(), True) for _, batch in strong.results() for row in batch.to_pylist())
    differences = sum(abs(found[row] - expected[row]) for row in found.keys() | expected.keys())
    return expected.total(), int(-weights[weights < 0].sum()), differences
