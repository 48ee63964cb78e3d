"""The counters of a run over all its micro-batches. They are stored by batch ID, so a restart counts each row once.

The counters of a micro-batch arrive with its rows, once, even if a task was repeated. The totals after micro-batch n
are the totals after n - 1 plus the counters of n. Each version is one file, written like state. Counters are added;
gauges have the values of the last micro-batch. A window of several partitions is counted once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from capture.metrics import LabelledName, Samples
from highlevel.inline.engine import ALL_METRICS
from highlevel.metrics import (
    set_progress,
)
from highlevel.spark.checked_files import REMEDY, read_document, write_document
from highlevel.spark.counters import Counts, add_counts
from highlevel.spark.errors import FolderError
from highlevel.spark.estimates import with_ranges
from highlevel.spark.feeds import InputAssignment
from highlevel.spark.state import KEEP
from lowlevel.integer_ranges import Ranges
from lowlevel.metrics import TABLE_BYTES
from lowlevel.punctuation import BEGINNING, END


@dataclass
class Totals:
    """Counters and progress after some micro-batch.

    `newest` is the largest packet time of each input in ns, for a spool the start of its newest pane. `progress`
    contains for each started input its position and its size, in blocks or segments. The size of a spool that is still
    written is always larger. `warnings` are the warnings of the last micro-batch's tasks. `lows` contains the watermark
    of each query in ns: results that end at or below it are final. The memory of tables is counted for the last
    micro-batch's tasks, because each task has separate tables. `offsets` is the checksum of the offsets of the
    micro-batch. `sampled` contains the times of each query for which a node sampled the packets.
    """

    samples: Samples = field(default_factory=Samples)
    newest: dict[int, int] = field(default_factory=dict)
    progress: dict[int, tuple[int, int]] = field(default_factory=dict)
    lows: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    offsets: str = ""
    sampled: dict[str, Ranges] = field(default_factory=dict)

    def finished(self, inputs: int) -> bool:
        """Return True if each of `inputs` inputs has been read to its end."""
        return len(self.progress) == inputs and all(done == total for done, total in self.progress.values())

    def add(self, feeds: InputAssignment, task_counters: Sequence[bytes], host_counters: Sequence[bytes]) -> None:
        """Add the counters of one micro-batch, from the tasks of the source and of the operators."""
        tables = Samples()  # of this micro-batch, because each task has separate tables
        self.warnings = []
        # Sorted, because the last task of an input determines its gauges.
        for counts in sorted(map(json.loads, task_counters), key=lambda counts: (counts["input"], counts["done"])):
            self.warnings += [line for line in counts["warnings"] if line not in self.warnings]
            counted = Samples({(name, tuple(labels)): value for name, labels, value in counts["samples"]})
            for key in [key for key in counted if key[0] == TABLE_BYTES.name]:
                tables[key] = tables.get(key, 0) + counted.pop(key)
            self.samples.merge(counted, ALL_METRICS)
            if counts["newest"] is not None:
                self.newest[counts["input"]] = max(self.newest.get(counts["input"], counts["newest"]), counts["newest"])
            self.progress[counts["input"]] = counts["done"], counts["total"]
            for query, ranges in counts["sampled"]:
                name = feeds.plans[query].name
                self.sampled[name] = with_ranges(self.sampled.get(name, []), [(start, end) for start, end in ranges])
        self.samples.merge(tables, ALL_METRICS)
        by_query: dict[int, list[Counts]] = {}
        for part in map(json.loads, host_counters):
            for counts in part:
                by_query.setdefault(counts["query"], []).append(counts)
        for query, parts in by_query.items():
            self._add_query(feeds, query, parts)

    def _add_query(self, feeds: InputAssignment, query: int, parts: list[Counts]) -> None:
        name = feeds.plans[query].name
        add_counts(self.samples, name, parts)
        bounds = [(number, bound) for part in parts for number, bound in part["bounds"]]
        watermarks = [part["watermark"] for part in parts if part["watermark"] is not None]
        if watermarks:  # strict; equal in all partitions
            low = min(watermarks)
            self.lows[name] = low if low == END else low - 1
        self.lows.setdefault(name, BEGINNING)
        self._add_progress(feeds, query, bounds)

    def _add_progress(self, feeds: InputAssignment, query: int, bounds: list[tuple[int, int]]) -> None:
        """Set the progress of each link of a query, from (number of an input, its watermark)."""
        newest = max(
            (self.newest[number] for number in feeds.inputs_of(query) if number in self.newest), default=BEGINNING
        )
        links = ((feeds.inputs[number].link, low) for number, low in bounds)
        set_progress(self.samples, feeds.plans[query].name, links, newest)


class TotalsFiles:
    """Totals by batch ID, one JSON file each. The last KEEP files are kept."""

    def __init__(self, folder: Path) -> None:
        """The files are in `folder`."""
        self.folder = folder

    def last(self) -> int:
        """Last batch ID with totals, or -1."""
        return max((int(path.stem) for path in self.folder.glob("*.json")), default=-1)

    def load(self, batch_id: int) -> Totals:
        """Return the totals after micro-batch `batch_id`, empty before the first.

        Raises FolderError if they are missing or damaged.
        """
        if batch_id < 0:
            return Totals()
        path = self.folder / f"{batch_id}.json"
        try:
            stored = read_document(path)
        except FileNotFoundError:
            raise FolderError(f"{path}: missing, but the checkpoint continues after it; {REMEDY}") from None
        samples: dict[LabelledName, float] = {(name, tuple(labels)): value for name, labels, value in stored["samples"]}
        progress = {int(number): (done, total) for number, (done, total) in stored["progress"].items()}
        newest = {int(number): time for number, time in stored["newest"].items()}
        sampled = {name: [(start, end) for start, end in ranges] for name, ranges in stored["sampled"].items()}
        return Totals(Samples(samples), newest, progress, stored["lows"], offsets=stored["offsets"], sampled=sampled)

    def save(self, batch_id: int, totals: Totals) -> None:
        """Write the totals after micro-batch `batch_id`, and remove older versions."""
        samples = [[name, labels, value] for (name, labels), value in totals.samples.items()]
        stored = {
            "samples": samples,
            "newest": totals.newest,
            "progress": totals.progress,
            "lows": totals.lows,
            "offsets": totals.offsets,
            "sampled": totals.sampled,
        }
        write_document(self.folder / f"{batch_id}.json", stored)
        for path in self.folder.glob("*.json"):
            if int(path.stem) <= batch_id - KEEP:
                path.unlink(missing_ok=True)
