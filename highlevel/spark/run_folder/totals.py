"""The counters of a run over all its micro-batches. They are stored by batch ID, so that restarts count no row twice.

The totals after micro-batch n are the totals after n - 1 plus the counters of n. The counters of a micro-batch arrive
with its rows, exactly once, even if a task was repeated. Each version is one file, written like state. Counters are
added; gauges have the values of the last micro-batch. A window that several partitions have is counted once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from capture.lazy_dataclasses import dataclass
from capture.metrics import LabelledName, Samples
from highlevel.inline.engine import ALL_METRICS
from highlevel.metrics import set_progress
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.estimates import merge_ranges
from highlevel.spark.inputs.quarantine import MAX_DAMAGES, Damage
from highlevel.spark.run_folder.checked_files import REMEDY, read_document, write_document
from highlevel.spark.run_folder.state import KEPT_VERSIONS
from highlevel.spark.tasks.counters import Counts, add_counts
from lowlevel.integer_ranges import Ranges
from lowlevel.metrics import TABLE_BYTES
from lowlevel.punctuation import BEGINNING, END


@dataclass
class Totals:
    """Counters and progress after some micro-batch.

    Inputs are identified by their IDs, and queries by their names; `query_ids` contains the ID of each name.
    `newest_times` is the largest packet time of each input in ns; for a spool, the start of its newest pane. `progress`
    contains (position, size) of each started input, in blocks or segments. While a node writes a spool, its size is
    larger than its position. `warnings` are the warnings of the tasks of the last micro-batch. `watermarks` contains
    the watermark of each query in ns: results that end at or below the watermark are final. The memory of tables in
    `samples` is that of the last micro-batch's tasks, because each task has separate tables. `offsets` is the checksum
    of the offsets of the micro-batch. `sampled_ranges` contains, for each query, the times at which a node sampled
    packets. `damages` are the newest damages of inputs, at most MAX_DAMAGES (`highlevel.spark.inputs.quarantine`).
    `partial_bytes`: the bytes of the partials of each capture and table.
    """

    samples: Samples = field(default_factory=Samples)
    newest_times: dict[int, int] = field(default_factory=dict)
    progress: dict[int, tuple[int, int]] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    offsets: str = ""
    sampled_ranges: dict[str, Ranges] = field(default_factory=dict)
    query_ids: dict[str, int] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)
    partial_bytes: dict[int, int] = field(default_factory=dict)

    @property
    def ended_inputs(self) -> frozenset[int]:
        """The inputs that have been read to their ends."""
        return frozenset(number for number, (position, size) in self.progress.items() if position == size)

    def is_finished(self, input_ids: Collection[int]) -> bool:
        """Return True if all of these inputs have been read to their ends."""
        return self.ended_inputs.issuperset(input_ids)

    def rename_queries(self, names: Mapping[int, str]) -> None:
        """Replace names of queries by the `names` that their IDs have now.

        Values of queries without a name are removed.
        """
        renamed = {old: names.get(number) for old, number in self.query_ids.items()}
        if all(old == new for old, new in renamed.items()):
            return

        def present_name(label: str) -> str | None:
            """Return the name of a query, or of a part of it: `talkers 2`."""
            query, _, part = (label, "", "") if label in renamed else label.rpartition(" ")
            new = renamed.get(query, query)
            return new if new is None or not part else f"{new} {part}"

        samples = Samples()
        for (metric, labels), value in self.samples.items():
            metric_labels = ALL_METRICS[metric].labels
            new_labels = [
                present_name(value) if label == "query" else value
                for label, value in zip(metric_labels, labels, strict=True)
            ]
            if None not in new_labels:
                samples[metric, tuple(label for label in new_labels if label is not None)] = value
        self.samples = samples
        self.watermarks = {new: value for old, value in self.watermarks.items() if (new := present_name(old))}
        self.sampled_ranges = {new: value for old, value in self.sampled_ranges.items() if (new := present_name(old))}
        self.query_ids = {new: number for old, number in self.query_ids.items() if (new := renamed[old])}

    def add(
        self,
        assignment: InputAssignment,
        task_counters: Sequence[bytes],
        host_counters: Sequence[bytes],
        batch_id: int = 0,
    ) -> None:
        """Add the counters of one micro-batch, from the tasks of the source and of the operators."""
        table_bytes = Samples()  # only of this micro-batch, because each task has separate tables
        self.warnings = []
        self.query_ids = {
            plan.name: number for plan, number in zip(assignment.plans, assignment.query_ids, strict=True)
        }
        # The counters are sorted, because the last task of an input determines its gauges.
        for counts in sorted(map(json.loads, task_counters), key=lambda counts: (counts["input"], counts["done"])):
            self.warnings += [line for line in counts["warnings"] if line not in self.warnings]
            for path, place, reason, link in counts["damages"]:
                self.damages.append(Damage(path, place, reason, batch_id, link))
            task_samples = Samples({(name, tuple(labels)): value for name, labels, value in counts["samples"]})
            for key in [key for key in task_samples if key[0] == TABLE_BYTES.name]:
                table_bytes[key] = table_bytes.get(key, 0) + task_samples.pop(key)
            self.samples.merge(task_samples, ALL_METRICS)
            input_id = assignment.input_ids[counts["input"]]
            if counts["newest"] is not None:
                self.newest_times[input_id] = max(self.newest_times.get(input_id, counts["newest"]), counts["newest"])
            self.progress[input_id] = counts["done"], counts["total"]
            self.partial_bytes[input_id] = self.partial_bytes.get(input_id, 0) + counts["bytes"]
            for query, ranges in counts["sampled"]:
                name = assignment.plans[query].name
                self.sampled_ranges[name] = merge_ranges(
                    self.sampled_ranges.get(name, []), [(start, end) for start, end in ranges]
                )
        del self.damages[:-MAX_DAMAGES]
        self.samples.merge(table_bytes, ALL_METRICS)
        counts_by_query: dict[int, list[Counts]] = {}
        for partition_counts in map(json.loads, host_counters):
            for counts in partition_counts:
                counts_by_query.setdefault(counts["query"], []).append(counts)
        for query, parts in counts_by_query.items():
            self._add_query(assignment, query, parts)
        for plan in assignment.plans:  # a micro-batch without rows has no counters
            self.watermarks.setdefault(plan.name, BEGINNING)

    def _add_query(self, assignment: InputAssignment, query: int, partition_counts: list[Counts]) -> None:
        name = assignment.plans[query].name
        add_counts(self.samples, name, partition_counts)
        bounds = [(input_number, bound) for counts in partition_counts for input_number, bound in counts["bounds"]]
        watermarks = [counts["watermark"] for counts in partition_counts if counts["watermark"] is not None]
        if watermarks:  # equal in all partitions; results that end before them are final
            watermark = min(watermarks)
            self.watermarks[name] = watermark if watermark == END else watermark - 1
        self._add_progress(assignment, query, bounds)

    def _add_progress(self, assignment: InputAssignment, query: int, bounds: list[tuple[int, int]]) -> None:
        """Set the progress of each link of a query, from (number of an input, its watermark)."""
        input_ids = (assignment.input_ids[number] for number in assignment.inputs_of(query))
        newest_time = max(
            (self.newest_times[input_id] for input_id in input_ids if input_id in self.newest_times), default=BEGINNING
        )
        links = ((assignment.inputs[input_number].link, bound) for input_number, bound in bounds)
        set_progress(self.samples, assignment.plans[query].name, links, newest_time)


class TotalsFiles:
    """The files of totals: one JSON file for each batch ID. The last KEPT_VERSIONS files are kept."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the folder of the files."""
        self.folder = folder

    def last_batch_id(self) -> int:
        """Return the newest batch ID with totals, or -1."""
        return max((int(path.stem) for path in self.folder.glob("*.json")), default=-1)

    def has(self, batch_id: int) -> bool:
        """Return whether there are totals after a micro-batch."""
        return (self.folder / f"{batch_id}.json").exists()

    def remove(self, batch_id: int) -> None:
        """Remove the totals after a micro-batch, which will be repeated with other queries."""
        (self.folder / f"{batch_id}.json").unlink(missing_ok=True)

    def load(self, batch_id: int) -> Totals:
        """Return the totals after micro-batch `batch_id`. Before the first micro-batch they are empty.

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
        progress = {int(input_id): (position, size) for input_id, (position, size) in stored["progress"].items()}
        newest_times = {int(input_id): time for input_id, time in stored["newest"].items()}
        sampled_ranges = {name: [(start, end) for start, end in ranges] for name, ranges in stored["sampled"].items()}
        return Totals(
            Samples(samples),
            newest_times,
            progress,
            stored["lows"],
            offsets=stored["offsets"],
            sampled_ranges=sampled_ranges,
            query_ids=stored["queries"],
            damages=[Damage(*damage) for damage in stored.get("damages", [])],  # earlier versions have none
            partial_bytes={int(number): count for number, count in stored.get("bytes", {}).items()},
        )

    def save(self, batch_id: int, totals: Totals) -> None:
        """Write the totals after micro-batch `batch_id`, and remove older versions."""
        samples = [[name, labels, value] for (name, labels), value in totals.samples.items()]
        stored = {
            "samples": samples,
            "newest": totals.newest_times,
            "progress": totals.progress,
            "lows": totals.watermarks,
            "offsets": totals.offsets,
            "sampled": totals.sampled_ranges,
            "queries": totals.query_ids,
            "bytes": totals.partial_bytes,
            "damages": [
                [damage.path, damage.place, damage.reason, damage.batch, damage.link] for damage in totals.damages
            ],
        }
        write_document(self.folder / f"{batch_id}.json", stored)
        for path in self.folder.glob("*.json"):
            if int(path.stem) <= batch_id - KEPT_VERSIONS:
                path.unlink(missing_ok=True)
