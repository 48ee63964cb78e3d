"""A summary of a spool for users.

The inspection changes no file, so a writer and a reader may be active at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from lowlevel.punctuation import BEGINNING, END
from lowlevel.spool import segment
from lowlevel.spool.folder import SegmentLostError, SpoolError, disk_bytes, segment_numbers, segment_path
from lowlevel.spool.reader import Gap, SpoolReader


@dataclass(frozen=True, slots=True)
class SpoolInspection:
    """A spool at one moment.

    * `segments`, `damaged`: numbers of undamaged and of damaged segments.
    * `committed`: number of the last committed segment; None if the file of commits is damaged.
    * `items`, `rows`, `bytes`: totals of the undamaged segments; `bytes` is their disk space.
    * `uncommitted`: rows that the reader has not committed.
    * `first`, `last`: when the first and the last item were written (ns); 0 if unknown.
    * `watermarks`: the last watermark of each plan, by the plan's name.
    * `lateness`: a time in ns that the lateness of 99 % of the late rows does not exceed; 0 without late rows.
    """

    folder: Path
    link: str
    segments: list[int]
    damaged: list[int]
    gaps: list[Gap]
    committed: int | None
    items: int
    rows: int
    uncommitted: int
    bytes: int
    first: int
    last: int
    epoch: int
    ended: bool
    watermarks: dict[str, int]
    shed: int
    lateness: int

    def lines(self) -> Iterator[str]:
        """Return the summary as lines of text."""
        yield f"{self.folder}: link {self.link or 'not known yet'}{', ended' if self.ended else ''}"
        if self.segments:
            span = f"{self.segments[0]} to {self.segments[-1]}"
            yield f"  segments   {len(self.segments):,} ({span}), {self.bytes / 1e6:,.1f} MB on the disk"
        else:
            yield "  segments   none"
        yield f"  holding    {self.rows:,} partials in {self.items:,} items, {self.uncommitted:,} still to be read"
        committed = "damaged" if self.committed is None else self.committed
        yield f"  committed  {'nothing' if committed == -1 else committed}"
        if self.first:
            yield f"  came       {_time_text(self.first)} to {_time_text(self.last)}"
        for name, watermark in self.watermarks.items():
            yield f"  promised   {name}: {_watermark_text(watermark)}"
        if self.segments:
            yield f"  writer     start {self.epoch + 1}, {self.shed:,} partials shed ever"
        if self.lateness:
            yield f"  lateness   {self.lateness / SECOND:.3g} s or less for 99 % of the late rows"
        for gap in self.gaps:
            span = str(gap.first) if gap.first == gap.last else f"{gap.first} to {gap.last}"
            yield f"  lost       {span}, {'an unknown number of' if gap.rows is None else f'{gap.rows:,}'} partials"
        for number in self.damaged:
            yield f"  damaged    {segment_path(self.folder, number).name}"


def inspect(folder: Path) -> SpoolInspection:
    """Inspect the spool in a folder. Raises SpoolError if there is no such folder."""
    reader = SpoolReader(folder)
    whole = reader.segments()
    try:
        committed, gaps = reader.committed, reader.gaps()
    except SpoolError:
        committed, gaps = None, []
    trailers = {}
    for number in whole:
        try:
            trailer = segment.read_trailer(segment_path(folder, number))
        except FileNotFoundError:
            continue
        if trailer is not None:
            trailers[number] = trailer
    newest = None
    for number in reversed(trailers):
        try:
            newest = reader.read(number)
            break
        except SegmentLostError:
            continue
    times = [time for trailer in trailers.values() for time in (trailer.first, trailer.last) if time]
    return SpoolInspection(
        folder=folder,
        link=newest.link if newest else "",
        segments=list(trailers),
        damaged=sorted(set(segment_numbers(folder)) - set(whole)),
        gaps=gaps,
        committed=committed,
        items=sum(trailer.items for trailer in trailers.values()),
        rows=sum(trailer.rows for trailer in trailers.values()),
        uncommitted=sum(
            trailer.rows for number, trailer in trailers.items() if committed is None or number > committed
        ),
        bytes=sum(disk_bytes(trailer.length + segment.TRAILER_BYTES) for trailer in trailers.values()),
        first=min(times, default=0),
        last=max(times, default=0),
        epoch=newest.header.epoch if newest else 0,
        ended=newest is not None and newest.ended,
        watermarks={name: watermark for (name, _), watermark in zip(newest.plans, newest.watermarks, strict=True)}
        if newest
        else {},
        shed=newest.header.shed_before if newest else 0,
        lateness=newest.header.counts.lateness if newest and newest.header.counts else 0,
    )


def _time_text(time: int) -> str:
    return f"{datetime.fromtimestamp(time // SECOND, UTC):%Y-%m-%dT%H:%M:%S}.{time % SECOND // 10**6:03d}Z"


def _watermark_text(watermark: int) -> str:
    if watermark == END:
        return "the end"
    if watermark == BEGINNING:
        return "nothing yet"
    try:
        return f"nothing older than {_time_text(watermark)}"
    except (OverflowError, ValueError, OSError):
        return f"nothing below {watermark} ns"
