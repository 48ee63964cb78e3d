"""Memory of automata over four links of which one is slow, with and without the watermarks of single links.

Each link has a row per millisecond, of hosts in turn. The slow link is `delay` rows behind the others. Without the
watermarks of single links all ports belong to one link, so its watermark is the watermark of the slowest port.

    by link    each link has separate partitions
    scan       probes and a large row on the links `edge`, `lan`, `wifi`, then an answer on the slow link `core`

The scan has results with EMIT CHANGES. The state is measured after each batch; the figure is the largest one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from highlevel.plan.pipeline import Pipeline
from lowlevel.punctuation import END, Punctuation
from queries.gsql import compile_query

LINKS = ("edge", "lan", "wifi", "core")
ROWS, BATCH, HOSTS, UNIT = 200_000, 1000, 500, 1_000_000
RUNS = "SELECT * FROM (SELECT ts, link, srcPort, destPort, len FROM packets) AUTOMATON"
QUERIES = {
    "by link": f"""{RUNS} (PARTITION BY link, srcPort ORDER BY ts
        REGISTER n INT DEFAULT 0 START idle FINAL done
        ARC idle TO probing WHEN destPort = 22 SET n = 1
        ARC probing TO probing WHEN destPort = 22 SET n = n + 1
        ARC probing TO done WHEN len > 1000 AND n >= 3
        WITHIN 20 seconds)""",
    "scan": f"""{RUNS} (PARTITION BY srcPort ORDER BY ts
        REGISTER n INT DEFAULT 0 START idle FINAL done
        ARC idle TO probing WHEN destPort = 22 AND link IN ('edge', 'lan', 'wifi') SET n = 1
        ARC probing TO probing WHEN destPort = 22 AND link IN ('edge', 'lan', 'wifi') SET n = n + 1
        ARC probing TO inside WHEN len > 1000 AND n >= 2 AND link IN ('edge', 'lan', 'wifi')
        ARC inside TO done WHEN destPort = 443 AND link = 'core'
        WITHIN 20 seconds) WITH CONSISTENCY (WAIT 0, REMEMBER FOREVER) EMIT CHANGES""",
}


def run(setting: Setting) -> Report:
    """Measure the largest state of each query."""
    count = setting.packets(ROWS) // BATCH * BATCH
    report = Report("slow_link")
    rows = []
    for name, query in QUERIES.items():
        (most, results), (most_alone, results_alone) = (
            on_one_core(measure, query, count, links) for links in (("all",) * len(LINKS), LINKS)
        )
        assert 0 < results == results_alone, f"{name}: {results} results, {results_alone} with watermarks of links"
        rows.append((name, f"{most / 2**20:.1f}", f"{most_alone / 2**20:.1f}", f"{most / most_alone:.1f}"))
        ratio = most / most_alone
        report.add_criterion(f"state, {name}, without / with watermarks of links", ratio, ">= 2", not setting.quick)
    columns = ("query", "one watermark, MiB", "one for each link, MiB", "ratio")
    title = f"{len(LINKS)} links, {count:,} rows each, one link {count // 2:,} rows behind: largest state"
    report.table(title, columns, rows)
    return report


def measure(query: str, count: int, names: Sequence[str]) -> tuple[int, int]:
    """Return the largest state in bytes, and the sum of the weights of all results. `names`: the link of each port."""
    pipeline = Pipeline(compile_query(query, "q"), [names])
    schema = pipeline.plan.leaves[0].low.schema
    draw = np.random.default_rng(1)
    size = len(LINKS), count
    kinds = {"destPort": draw.choice([22, 22, 443, 80], size), "len": draw.choice([60, 60, 60, 1500], size)}
    most = results = 0

    def take(items: object) -> None:
        nonlocal results
        for item in items:  # type: ignore[attr-defined]
            if isinstance(item, pa.RecordBatch):
                has_weights = "weight" in item.schema.names
                results += int(np.sum(item.column("weight").to_numpy())) if has_weights else item.num_rows

    for begin in range(0, count + count // 2, BATCH):
        for port, link in enumerate(LINKS):
            first = begin - (count // 2 if link == "core" else 0)
            if not 0 <= first < count:
                continue
            numbers = np.arange(first, first + BATCH)
            values = {
                "link": pa.array([link] * BATCH),
                "pane": pa.array(numbers * UNIT + port),
                "srcPort": pa.array(numbers % HOSTS),
                **{name: pa.array(columns[port, first : first + BATCH]) for name, columns in kinds.items()},
            }
            arrays = [values[field.name].cast(field.type) for field in schema]
            take(pipeline.process_rows(port, pa.RecordBatch.from_arrays(arrays, schema=schema)))
            watermark = END if first + BATCH == count else (first + BATCH) * UNIT
            take(pipeline.punctuate(port, Punctuation(names[port], watermark)))
            most = max(most, pipeline.nodes.state_bytes)
    return most, results
