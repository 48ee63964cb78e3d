"""A pipeline whose queries return changes, without Spark: micro-batches are given, and the process may end anywhere.

Result files and totals are written as the run on Spark writes them. A crash forgets the monitor, and a start reads
the files again and repeats the last micro-batch, as Spark does with a micro-batch that it did not commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from capture.metrics import Samples
from capture.units import SECOND
from dashboards.monitors.pipeline import Monitor
from highlevel.plan.keys import stored_key
from highlevel.results.stored_columns import with_columns
from highlevel.results.stored_files import list_files
from highlevel.results.user_types import readable
from highlevel.spark.run_folder.identity import STATE_FORMAT, RunIdentity, write_identity
from highlevel.spark.run_folder.result_files import write_results
from highlevel.spark.run_folder.totals import Totals, TotalsFiles
from lowlevel.punctuation import BEGINNING
from queries.pipeline.file import parse_pipeline

PIPELINE = """
folder = "state"
[links]
Main = "main.pcap"
[metrics]
port = 0
[queries.talkers]
sql = "SELECT srcIP, count(*) AS n FROM Main [RANGE 10 seconds] GROUP BY srcIP"
emit = "changes"
final = "certain"
"""

_WINDOWS = "SELECT srcIP, count(*) AS n FROM Main [RANGE 10 seconds] GROUP BY srcIP"
JOINED = PIPELINE.replace(
    "SELECT srcIP, count(*) AS n FROM Main [RANGE 10 seconds] GROUP BY srcIP",
    f"SELECT a.window_end AS at, a.srcIP AS srcIP, b.n AS n FROM ({_WINDOWS}) a [RANGE 0 s, WA window_end] "
    f"JOIN ({_WINDOWS}) b [RANGE 0 s, WA window_end] ON a.srcIP = b.srcIP",
)
"""The same results as rows of a join, which have a time and no window."""

LENGTH = 10
"""Length of a window in seconds."""

Change = tuple[int, str, int, int]
"""The number of a window, an address, the value `n`, and the weight."""


class EmptyRun:
    """The run of a monitor: progress without Spark."""

    spark = None

    def __init__(self, totals: Totals, batch: int, written_files: dict[str, list[Path]]) -> None:
        self.totals, self.continued_batch, self.figures, self.rests = totals, batch, Samples(), {}
        self.written_files = written_files

    def stop(self) -> None: ...


class ChangeRun:
    """A pipeline in `folder`. Windows are numbered from 1: window k ends at 10 k seconds."""

    def __init__(self, folder: Path, more: str = "", text: str = PIPELINE) -> None:
        (folder / "main.pcap").write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
        (folder / "state").mkdir(exist_ok=True)
        self.folder, self._text = folder, text + more
        self.output, self._totals = folder / "state" / "output", TotalsFiles(folder / "state" / "totals")
        (folder / "state" / "totals").mkdir(exist_ok=True)
        write_identity(folder / "state", RunIdentity({"state format": STATE_FORMAT}, (), (), 0))
        self.totals = Totals(watermarks={"talkers": BEGINNING}, samples=Samples())
        self.number = -1
        self.lines: list[str] = []
        self._batch: tuple[pa.Table, Samples] | None = None
        self._files: dict[str, list[Path]] = {}
        """The files with rows of the last micro-batch."""
        self.start()

    def start(self) -> None:
        """Start the process, which continues after the last micro-batch with totals."""
        last = self.last_batch
        self.totals = self._totals.load(last) if last >= 0 else self.totals
        self.number = max(self.number, last)
        self.monitor = Monitor(parse_pipeline(self._text, self.folder), self.lines.append)
        self.monitor.run = EmptyRun(self.totals, last, self._files)  # type: ignore[assignment]
        self.monitor._open_alerts()
        self.monitor._open_page()
        self.monitor._continue_changes()
        self.monitor._show_previous_run()
        (self.plan,) = self.monitor.plans

    @property
    def last_batch(self) -> int:
        """The last micro-batch with totals; -1 before the first."""
        return self._totals.last_batch_id()

    def crash(self) -> None:
        """End the process, and start it again."""
        self.monitor.close()
        self.start()
        if self._batch is not None and self.number <= self._totals.last_batch_id():
            self.monitor._on_batch(self.number, {"talkers": self._batch[0]}, self._batch[1])

    def batch(self, changes: Sequence[Change], final_window: int = 0, newest: int = 0, crash: str = "") -> None:
        """Process a micro-batch. Then the windows up to `final_window` are final, and the newest packet is `newest` s.

        `crash`: the process ends after the results, after the totals, or after all sinks, and starts again.
        """
        table = self.table(changes, final_window)
        self.number += 1
        while True:
            key = stored_key(self.plan.root)
            stored = with_columns(readable(table, self.plan.times), self.plan.root.columns, self.plan.time_column, key)
            self._files = write_results(self.output, self.number, {"talkers": stored})
            if crash == "results":
                crash = ""
                self._batch = None
                self.crash()
                continue
            watermark = max(self.totals.watermarks["talkers"], final_window * LENGTH * SECOND or BEGINNING)
            newest_times = {0: max(newest * SECOND, self.totals.newest_times.get(0, 0))}
            self.totals = replace(self.totals, watermarks={"talkers": watermark}, newest_times=newest_times)
            self._totals.save(self.number, self.totals)
            self._batch = table, Samples()
            if crash != "totals":
                self.monitor.run.totals = self.totals  # type: ignore[union-attr]
                self.monitor.run.written_files = self._files  # type: ignore[union-attr]
                self.monitor._on_batch(self.number, {"talkers": table}, Samples())
            if crash:
                self.crash()
            return

    def table(self, changes: Sequence[Change], final_window: int) -> pa.Table:
        first = 0 if self.plan.windowed else 1
        rows = [
            (
                *((k - 1) * LENGTH * SECOND, k * LENGTH * SECOND)[first:],
                ip_address(address).packed,
                n,
                weight,
                k <= final_window,
            )
            for k, address, n, weight in changes
        ]
        columns = zip(*rows, strict=True) if rows else ((),) * len(self.plan.schema)
        return pa.table([pa.array(each, field.type) for each, field in zip(columns, self.plan.schema, strict=True)],
                        schema=self.plan.schema)  # fmt: skip

    def final_rows(self) -> Counter[tuple[int, str, int]]:
        """The rows of the results `certain`, by number of window, address and value."""
        return rows_of([pq.read_table(path) for path in list_files(self.output / "certain")])

    def close(self) -> None:
        self.monitor.close()


def rows_of(tables: Sequence[pa.Table]) -> Counter[tuple[int, str, int]]:
    """Count the rows of files: number of the window, address, value."""
    times = [table[name] for table in tables for name in ("window_end", "at") if name in table.column_names]
    ends = [end for column in times for end in column.cast(pa.int64()).to_pylist()]
    addresses, values = ([value for table in tables for value in table[name].to_pylist()] for name in ("srcIP", "n"))
    return Counter(zip((end // SECOND // LENGTH for end in ends), addresses, values, strict=True))


class ChangeStream:
    """Random changes with the exact results beside them: `windows[k][address]` is the value in window k."""

    def __init__(self, random: Random) -> None:
        self.random, self.windows = random, dict[int, dict[str, int]]()
        self.final = self.newest = 0

    def step(self) -> tuple[list[Change], int, int]:
        """Return the changes of a micro-batch, the last final window, and the time of the newest packet in s."""
        random, changes = self.random, list[Change]()
        if random.random() < 0.6 or not self.windows:
            self.newest += random.choice([1, 1, 2])
            self.windows[self.newest] = {}
        for _ in range(random.randrange(5)):
            open_windows = [k for k in self.windows if k > self.final]
            if not open_windows:
                break
            window, address = random.choice(open_windows), f"10.0.0.{random.randint(1, 3)}"
            values = self.windows[window]
            if address in values:
                changes.append((window, address, values.pop(address), -1))
            if random.random() < 0.8:
                values[address] = random.choice([50, 150, 250])
                changes.append((window, address, values[address], 1))
        if random.random() < 0.3:
            self.final = max(self.final, self.newest - random.randint(0, 3))
        return changes, self.final, self.newest * LENGTH

    def rows(self, windows: Sequence[int]) -> Counter[tuple[int, str, int]]:
        """Return the rows of windows."""
        return Counter((k, *row) for k in windows for row in self.windows.get(k, {}).items())
