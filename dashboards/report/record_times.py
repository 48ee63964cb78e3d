"""Measure the times of records in the order of the file: disorder, and times without records.

A record is *late* if a record before it in the same link has a larger time. Its lateness is the largest earlier time
minus its own time. A *lull* is the span between the newest time so far and the next newer time.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from capture.files.blocks import BLOCK_RECORDS
from capture.files.stream import StreamedCapture
from capture.lazy_dataclasses import dataclass
from capture.open import open_finite
from capture.units import SECOND
from highlevel.compare.recording import blocks_of, size_of
from highlevel.inline.engine import Input
from lowlevel.expressions.columns import TextVector, Vector
from lowlevel.punctuation import BEGINNING
from lowlevel.rows.readers import Rows, make_reader
from lowlevel.watermarks.lateness import Lateness

Times = npt.NDArray[np.int64]

LATENESS_BOUNDS = (10**3, 10**4, 10**5, 10**6, 10**7, 10**8, SECOND, 10 * SECOND, 60 * SECOND)
"""Upper bounds in ns of the classes of lateness. The last class has no upper bound."""

MAX_LULLS = 5
"""Number of the longest lulls that are kept for each link."""


@dataclass(frozen=True, slots=True)
class Lull:
    """A time without records: from `start` to `end`, in ns."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """The length in ns."""
        return self.end - self.start


class LinkTimes:
    """Statistics of the times of one link. The records are added in the order of the file.

    * `rows`: number of records. `first`, `last`: the smallest and the largest time in ns.
    * `late_by_class`: number of late records by class. Class i contains lateness below LATENESS_BOUNDS[i].
    * `lateness`: the lateness of late records.
    * `pairs`: by the interface of a late record and the interface of the newest record before it, the number of late
      records and the largest lateness. Empty if the names of the interfaces are not known.
    """

    def __init__(self, link: str) -> None:
        """Measure the link `link`."""
        self.link = link
        self.rows = 0
        self.first = self.last = BEGINNING
        self.late_by_class: npt.NDArray[np.int64] = np.zeros(len(LATENESS_BOUNDS) + 1, np.int64)
        self.lateness = Lateness()
        self.pairs: dict[tuple[str, str], tuple[int, int]] = {}
        self._newest_interface = -1
        self._lulls: list[tuple[int, int]] = []

    @property
    def late_rows(self) -> int:
        """Number of late records."""
        return self.lateness.late_rows

    def lulls(self) -> list[Lull]:
        """Return the longest lulls, the longest first."""
        return [Lull(end - length, end) for length, end in sorted(self._lulls, reverse=True)]

    def add(self, times: Times, interfaces: Times | None = None, names: Sequence[str] = ()) -> None:
        """Add the next records. `interfaces` are indexes into `names`; -1 for a record without an interface."""
        if len(times) == 0:
            return
        known = self.rows > 0
        newest = np.maximum.accumulate(times if not known else np.concatenate([[self.last], times]))
        before = newest[:-1]  # the newest time before each record except the first of the link
        own = times if known else times[1:]
        lateness = before - own
        is_late = lateness > 0
        if is_late.any():
            amounts = lateness[is_late]
            self.late_by_class += np.bincount(
                np.searchsorted(LATENESS_BOUNDS, amounts, side="right"), minlength=len(LATENESS_BOUNDS) + 1
            )
            self.lateness.add(amounts)
        if interfaces is not None:
            self._add_pairs(lateness, is_late, interfaces, names, known)
        self._add_lulls(own, -lateness)
        self.first = int(times.min()) if not known else min(self.first, int(times.min()))
        self.last = int(newest[-1])
        self.rows += len(times)

    def _add_pairs(
        self, lateness: Times, is_late: npt.NDArray[np.bool_], interfaces: Times, names: Sequence[str], known: bool
    ) -> None:
        """Count late records by pair of interfaces."""
        all_interfaces = np.concatenate([[self._newest_interface], interfaces]) if known else interfaces
        # Compare record i + 1 with the record that has the newest time up to record i.
        is_newest = np.concatenate([[True], ~is_late])
        position = np.maximum.accumulate(np.where(is_newest, np.arange(len(all_interfaces)), 0))
        newest_interface = all_interfaces[position]
        self._newest_interface = int(newest_interface[-1])
        pairs = np.stack([all_interfaces[1:][is_late], newest_interface[:-1][is_late]], axis=1)
        if len(pairs) == 0:
            return
        distinct, index = np.unique(pairs, axis=0, return_inverse=True)
        index = index.reshape(-1)
        counts = np.bincount(index)
        most = np.zeros(len(distinct), np.int64)
        np.maximum.at(most, index, lateness[is_late])
        for (late, newest), count, largest in zip(distinct.tolist(), counts.tolist(), most.tolist(), strict=True):
            if late < 0 or newest < 0:
                continue
            pair = (names[late], names[newest])
            rows, before = self.pairs.get(pair, (0, 0))
            self.pairs[pair] = (rows + count, max(before, largest))

    def _add_lulls(self, times: Times, advance: Times) -> None:
        """Store the longest lulls. A lull ends at a record that is newer than all records before it."""
        if len(advance) == 0:
            return
        longest = (
            np.argpartition(advance, -MAX_LULLS)[-MAX_LULLS:] if len(advance) > MAX_LULLS else np.arange(len(advance))
        )
        lulls = [(int(advance[index]), int(times[index])) for index in longest if advance[index] > 0]
        self._lulls = heapq.nlargest(MAX_LULLS, [*self._lulls, *lulls])


def measure_times(
    inputs: Iterable[Input], row_kind: str, progress: Callable[[int, int], None] | None = None
) -> list[LinkTimes]:
    """Read the times of all records of a kind (`packets`, `flows`), link by link.

    `progress` is called with the bytes read and the total bytes. Raises InputError for a live input, and for a file
    that is not a capture.
    """
    inputs = list(inputs)
    captures = [open_finite(source.path, "report") for source in inputs]
    total = sum(map(size_of, captures))
    links: dict[str, LinkTimes] = {}
    bytes_read = 0
    columns = {"ts", "interface"} if row_kind == "packets" else {"ts"}
    for source, capture in zip(inputs, captures, strict=True):
        times = links.setdefault(source.link, LinkTimes(source.link))
        reader = make_reader(row_kind, source.link, capture, columns, BLOCK_RECORDS)
        for block in blocks_of(capture):
            for rows in reader.read(block):
                _add(times, rows)
            if progress is not None:
                progress(min(bytes_read + block.end, total), total)
        bytes_read += size_of(capture)
        if isinstance(capture, StreamedCapture):
            capture.close()
    return list(links.values())


def _add(link_times: LinkTimes, rows: Rows) -> None:
    if rows.count == 0:
        return
    ts = rows.columns["ts"]
    assert isinstance(ts, Vector)
    interface = rows.columns.get("interface")
    if not isinstance(interface, TextVector):
        link_times.add(ts.data)
        return
    ids = np.broadcast_to(interface.ids, rows.count)
    if interface.valid is not None:
        ids = np.where(interface.valid, ids, -1)
    link_times.add(ts.data, ids.astype(np.int64), interface.names)


def class_names() -> list[str]:
    """Return the names of the classes of lateness, the smallest first."""
    texts = ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min"]
    return [*(f"below {text}" for text in texts), "1 min or more"]


def lateness_of(links: Sequence[LinkTimes]) -> Lateness:
    """Return the lateness of the late records of all links."""
    united = Lateness()
    for link in links:
        united.merge(link.lateness)
    return united


def late_by_class(links: Sequence[LinkTimes]) -> Counter[str]:
    """Return the number of late records of all links by class, without empty classes."""
    totals = sum((link.late_by_class for link in links), np.zeros(len(LATENESS_BOUNDS) + 1, np.int64))
    return Counter({name: int(rows) for name, rows in zip(class_names(), totals, strict=True) if rows})
