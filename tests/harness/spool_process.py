"""Processes that write a spool until they are killed: `python -m tests.harness.spool_process FOLDER LOG`, then a line
for each.

One process imports everything. For each input line it forks a child and prints the child's process id. The child writes
until it dies. Rows are numbered: `pane` is the child, `bytes` counts its rows from 0. After each flush the child notes
in LOG how many rows are on the disk by then.
"""

import os
import sys
from pathlib import Path
from random import Random

import pyarrow as pa

from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import Punctuation
from lowlevel.spool.limits import SpoolLimits
from lowlevel.spool.pending import merge_items, pack
from lowlevel.spool.writer import SpoolWriter
from tests.references.spool_items import LINK, pairs_plan

PLANS = [("pairs", "0")]


def numbered(plan: LowLevelPlan, child: int, first: int, rows: int) -> pa.RecordBatch:
    """Rows `first` to `first + rows - 1` of a child."""
    columns = {
        "link": [LINK] * rows,
        "pane": [child] * rows,
        "srcIP": [bytes(4)] * rows,
        "destIP": [bytes(4)] * rows,
        "packets": [1] * rows,
        "bytes": list(range(first, first + rows)),
    }
    return pa.RecordBatch.from_pydict(columns, schema=plan.schema)


def write(folder: Path, log: int, child: int) -> None:
    """Append and flush without end, or to that of the parent."""
    parent = os.getppid()
    random, plan = Random(child), pairs_plan()
    writer = SpoolWriter(folder, LINK, PLANS, SpoolLimits(segment_bytes=4000, segment_time=10**6))
    done = ticks = 0
    while os.getppid() == parent:
        rows = random.randrange(1, 60)
        writer.append(0, numbered(plan, child, done, rows))
        done += rows
        if random.random() < 0.3:
            writer.append(0, Punctuation(LINK, child * 10**9 + done))
        if random.random() < 0.2:
            ticks += random.randrange(10**6)
            writer.tick(ticks)
        if random.random() < 0.1:
            writer.flush()
            os.write(log, b"%d %d\n" % (child, done))


def main() -> None:
    """Serve the lines of standard input."""
    log = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    merge_items([(0, numbered(pairs_plan(), 0, 0, 1))] * 2)  # children inherit the modules that Arrow loads first
    pack([numbered(pairs_plan(), 0, 0, 1)])
    for child, _ in enumerate(sys.stdin):
        process = os.fork()
        if process == 0:
            write(Path(sys.argv[1]), log, child)
            os._exit(0)
        print(process, flush=True)
        os.waitpid(process, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main()
