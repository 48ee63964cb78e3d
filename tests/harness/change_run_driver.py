"""Processes of a pipeline with changes that are killed while they write. Prints what is in each sink at the end.

    python -m tests.harness.change_run_driver FOLDER SEED JOINED KILLS

The micro-batches follow from the seed, so a process continues after the last one with totals. Each process but the last
is killed by SIGKILL at a random call that opens, renames or deletes a file of the run. The processes are forks of one
process that has only imported modules.
"""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

from dashboards.changes.compaction import compact
from tests.harness.change_runs import JOINED, PIPELINE, ChangeRun, ChangeStream, rows_of
from tests.references.exporter_rows import samples

BATCHES = 30
MOST_CALLS = 60
"""Largest number of calls before a process is killed: about three micro-batches."""

CALLS = ("open", "os.rename", "os.remove")


def kill_at(call: int, folder: Path) -> None:
    """Kill this process at the call with this number, counted from now."""
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in CALLS and str(arguments[0]).startswith(str(folder)):
            seen += 1
            if seen == call:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def process(folder: Path, seed: str, text: str) -> ChangeRun:
    """Continue the run up to the last micro-batch."""
    stream, run = ChangeStream(Random(seed)), ChangeRun(folder, text=text)
    for number in range(BATCHES):
        changes, final, newest = stream.step()
        if number > run.last_batch:
            run.batch(changes, final, newest)
    run.batch([], final_window=stream.newest, newest=stream.newest * 10)
    return run


def report(run: ChangeRun, seed: str) -> dict[str, object]:
    """Return the rows of each sink, and the exact rows."""
    stream = ChangeStream(Random(seed))
    for _ in range(BATCHES):
        stream.step()
    (table,) = compact(run.folder / "state")
    newest = dict.fromkeys(stream.rows([stream.newest]), 1)
    return {
        "exact": sorted(stream.rows(range(1, stream.newest + 1)).elements()),
        "final": sorted(run.final_rows().elements()),
        "compact": sorted(rows_of([pq.read_table(table.path)]).elements()),
        "provisional": table.provisional,
        "newest": sorted(f'{{src_ip="{address}"}} {n:.1f}' for _, address, n in newest),
        "gauges": sorted(samples(run.monitor.exporter, "wiretide_query_talkers_n")),
    }


def main(folder: Path, seed: str, text: str, kills: int) -> None:
    """Run processes until one of them reaches the end, and print its report."""
    random, ends = Random(f"kills {seed}"), Counter[str]()
    while True:
        call = random.randint(1, MOST_CALLS)
        if not (child := os.fork()):
            if kills > 0:
                kill_at(call, folder)
            run = process(folder, seed, text)
            sys.stdout.write(json.dumps(report(run, seed)) + "\n")
            sys.stdout.flush()
            run.close()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        ends[str(os.waitstatus_to_exitcode(status))] += 1
        kills -= 1
        if os.WIFEXITED(status):
            sys.stdout.write(json.dumps(ends) + "\n")
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], {"windows": PIPELINE, "rows": JOINED}[sys.argv[3]], int(sys.argv[4]))
