"""A summary of a spool for people. It changes nothing; a writer and a reader may be active."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from capture.units import SECOND
from lowlevel.punctuation import BEGINNING, END
from lowlevel.spool import segment
from lowlevel.spool.folder import SegmentLostError, SpoolError, disk_bytes, numbers, segment_path
from lowlevel.spool.reader import Gap, SpoolReader


@dataclass(frozen=True, slots=True)
class SpoolInspection:
    """A spool at one moment.

    `segments`: numbers of whole segments; `damaged`: numbers of other files. `committed`: None if the reader's file is
    damaged. `items`, `rows` and `bytes` (on the disk) of these segments; `uncommitted`: rows that are still to be read.
    `first`, `last`: instants (ns) of the first and last item, 0 if unknown. `lows`: the last watermark by the name of
    each plan.
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
    lows: dict[str, int]
    shed: int

    def lines(self) -> Iterator[str]:
        """Return the summary as lines of text."""
        yield f"{self.folder}: link {self.link or 'not known yet'}{', ended' if self.ended else ''}"
        if self.segments:
            span = f"{self.segments[0]} to {self.segments[-1]}"
            yield f"  segments   {len(self.segments):,} ({span}), {self.bytes / 1e6:,.1f} MB on the disk"
        else:
            yield "  segments   none"
        yield f"  holding    {self.rows:,} partials in {self.items:,} items, {self.uncommitted:,} still to be read"
        said = "damaged" if self.committed is None else self.committed
        yield f"  committed  {'nothing' if said == -1 else said}"
        if self.first:
            yield f"  came       {_instant(self.first)} to {_instant(self.last)}"
        for name, low in self.lows.items():
            yield f"  promised   {name}: {_low(low)}"
        if self.segments:
            yield f"  writer     start {self.epoch + 1}, {self.shed:,} partials shed ever"
        for gap in self.gaps:
            which = str(gap.first) if gap.first == gap.last else f"{gap.first} to {gap.last}"
            yield f"  lost       {which}, {'an unknown number of' if gap.rows is None else f'{gap.rows:,}'} partials"
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
    named = numbers(folder)
    instants = [each for trailer in trailers.values() for each in (trailer.first, trailer.last) if each]
    return SpoolInspection(
        folder=folder,
        link=newest.link if newest else "",
        segments=list(trailers),
        damaged=sorted(set(named) - set(whole)),
        gaps=gaps,
        committed=committed,
        items=sum(trailer.items for trailer in trailers.values()),
        rows=sum(trailer.rows for trailer in trailers.values()),
        uncommitted=sum(
            trailer.rows for number, trailer in trailers.items() if committed is None or number > committed
        ),
        bytes=sum(disk_bytes(trailer.length + segment.TRAILER) for trailer in trailers.values()),
        first=min(instants, default=0),
        last=max(instants, default=0),
        epoch=newest.header.epoch if newest else 0,
        ended=newest is not None and newest.ended,
        lows={name: low for (name, _), low in zip(newest.plans, newest.lows, strict=True)} if newest else {},
        shed=newest.header.shed_before if newest else 0,
    )


def _instant(time: int) -> str:
    return f"{datetime.fromtimestamp(time // SECOND, UTC):%Y-%m-%dT%H:%M:%S}.{time % SECOND // 10**6:03d}Z"


def _low(low: int) -> str:
    if low == END:
        return "the end"
    if low == BEGINNING:
        return "nothing yet"
    try:
        return f"nothing older than {_instant(low)}"
    except (OverflowError, ValueError, OSError):
        return f"nothing below {low} ns"
