"""Queries as the thesis prints them (Li 2008). Each runs and returns the rows of a plain loop.

Curly quotes, `WATTR`, `GROUP-BY`, `GROUPBY`, `row-num`, `length` and `∪` are the papers' own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.harness import in_ns
from tests.references import small_captures

NS = 10**9
MINUTE = 60 * NS


@dataclass(frozen=True)
class Packet:
    """One packet of the captures: ts in ns, its source and its length."""

    ts: int
    source: str
    length: int


Answer = Counter[tuple]
"""Rows: window_start, window_end, then the select list."""

LINKS = {"M": 1, "Main": 2, "Main1": 3, "Main2": 4, "M1": 5, "Control": 6, "packets": 7}


def frames(seed: int) -> list[tuple[float, str, int]]:
    """Seconds, source and length of payload of some packets, disordered, with ties, in 25 minutes and a gap."""
    rows = []
    for number in range(160):
        seconds = (number * 37 + seed * 11) % 1200 + (3000 if number > 120 else 0) - number % 5
        rows.append((max(0.0, float(seconds)), f"202.101.0.{(number * seed) % 4}", (number * 7) % 50))
    return rows


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("links")
    return {
        name: small_captures.write(
            folder / f"{name}.pcap",
            [(at, small_captures.udp(source, "10.0.0.1", 1, 2, 28 + size)) for at, source, size in frames(seed)],
        )
        for name, seed in LINKS.items()
    }


def packets(*names: str) -> list[Packet]:
    """The packets of some links, in the order in which they stand in their files."""
    return [
        Packet(round(at * 1000) * NS // 1000, source, 28 + size)
        for name in names
        for at, source, size in frames(LINKS[name])
    ]


def sliding(
    rows: Iterable[Packet], length: int, slide: int, by_source: bool, value: Callable[[list[Packet]], int]
) -> Answer:
    windows: dict[tuple, list[Packet]] = defaultdict(list)
    for row in rows:
        for wid in range(row.ts // slide, (row.ts + length) // slide):
            windows[(wid + 1) * slide - length, (wid + 1) * slide, row.source if by_source else None].append(row)
    return Counter(
        (start, end, *([key] if by_source else []), value(seen)) for (start, end, key), seen in windows.items()
    )


def without_source(answer: Answer) -> Answer:
    """The same where the query groups by the source and does not select it."""
    return Counter({row[:2] + row[3:]: 0 for row in answer}) + Counter(row[:2] + row[3:] for row in answer.elements())


def bytes_of(rows: list[Packet]) -> int:
    return sum(row.length for row in rows)


def longest(rows: list[Packet]) -> int:
    return max(row.length for row in rows)


def landmark(rows: list[Packet], slide: int) -> Answer:
    found: Answer = Counter()
    for wid in sorted({row.ts // slide for row in rows}):
        end = (wid + 1) * slide
        for source, count in Counter(row.source for row in rows if row.ts < end).items():
            found[0, end, source, count] += 1
    return found


def of_rows(rows: list[Packet], length: int, slide: int) -> Answer:
    """Return the windows over all rows, with groups inside them. If windows are per source, it is called per source."""
    windows: dict[tuple, list[Packet]] = defaultdict(list)
    for number, row in enumerate(rows):
        for wid in range(number // slide, (number + length) // slide):
            windows[(wid + 1) * slide - length, (wid + 1) * slide, row.source].append(row)
    return Counter((*key, longest(seen)) for key, seen in windows.items())


def of_sources(rows: list[Packet], length: int, slide: int) -> Answer:
    return sum(
        (of_rows([row for row in rows if row.source == one], length, slide) for one in {row.source for row in rows}),
        Counter(),
    )


def by_tuple(rows: list[Packet], length: int, ids: Iterable[int], value: Callable[[list[Packet]], int]) -> Answer:
    return Counter(
        (wid - length + 1, wid + 1, value([row for row in rows if wid - length < row.ts <= wid])) for wid in set(ids)
    )


def each_fifth(rows: list[Packet]) -> list[int]:
    return sorted(row.ts for row in rows)[4::5]


QUERIES: dict[str, tuple[str, Callable[[], Answer]]] = {
    "Q1-1": (
        """SELECT    srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WA ts]
           FROM      M
           GROUP BY  srcIP""",
        lambda: sliding(packets("M"), 10 * MINUTE, MINUTE, True, len),
    ),
    "Q2-1": (
        """SELECT    srcIP, ts, count (*)
           FROM      Main1
           WHERE     srcIP = “202.101.0.0” or srcIP = “202.101.0.1”
           GROUP BY  srcIP, ts""",
        lambda: Counter(
            (source, ts, count)
            for (source, ts), count in Counter(
                (row.source, row.ts) for row in packets("Main1") if row.source in ("202.101.0.0", "202.101.0.1")
            ).items()
        ),
    ),
    "Q5-1": (
        """Select srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WATTR ts]
           From Main
           Group By srcIP""",
        lambda: sliding(packets("Main"), 10 * MINUTE, MINUTE, True, len),
    ),
    "Q5-2": (
        """SELECT srcIP, max(length)
                 [RANGE 1000 rows, SLIDE 10 rows, WA row-num, PA srcIP]
           FROM   Main""",
        lambda: of_sources(packets("Main"), 1000, 10),
    ),
    "Q5-3": (
        """SELECT srcIP, max(length)
                 [RANGE 1000 rows, SLIDE 10 rows, WA row-num]
           FROM   Main
           GROUP-BY srcIP""",
        lambda: of_rows(packets("Main"), 1000, 10),
    ),
    "Q5-4": (
        """SELECT srcIP, count(*) [RANGE ALL, SLIDE 1 minute, WA ts]
           FROM Main1
           GROUP BY srcIP""",
        lambda: landmark(packets("Main1"), MINUTE),
    ),
    "Q5-5": (
        """SELECT max(length)
                 [RANGE 5 minutes, RATTR ts, SLIDE 1 row, SATTR row-num]
           FROM Main""",
        lambda: by_tuple(packets("Main"), 5 * MINUTE, (row.ts for row in packets("Main")), longest),
    ),
    "Q5-6": (
        """SELECT count(*)
                 [RANGE 5 minutes, RATTR ts, SLIDE 5 rows, SATTR rank(ts)]
           FROM Main""",
        lambda: by_tuple(packets("Main"), 5 * MINUTE, each_fifth(packets("Main")), len),
    ),
    "Q6-1": (
        """Select srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WA ts]
           From Main
           Group By srcIP""",
        lambda: sliding(packets("Main"), 10 * MINUTE, MINUTE, True, len),
    ),
    "Q6-2": (
        """SELECT max(length) [RANGE 4 minutes, SLIDE 1 minute, WA ts]
           FROM Main""",
        lambda: sliding(packets("Main"), 4 * MINUTE, MINUTE, False, longest),
    ),
    "Q6-3": (
        """SELECT count(*) [RANGE 4 minutes, SLIDE 1 minute, WA ts]
           FROM packets
           GROUP BY srcIP""",
        lambda: without_source(sliding(packets("packets"), 4 * MINUTE, MINUTE, True, len)),
    ),
    "Q6-5": (
        """SELECT srcIP, count(*)
                     [RANGE 5 minutes, SLIDE 1 minute, WA ts]
           FROM M1
           GROUP BY srcIP""",
        lambda: sliding(packets("M1"), 5 * MINUTE, MINUTE, True, len),
    ),
    "Q6-6": (
        """SELECT srcIP, sum(len)
                 [RANGE 10 seconds, SLIDE 1 second, WA ts]
           FROM packets
           GROUPBY srcIP""",
        lambda: sliding(packets("packets"), 10 * NS, NS, True, bytes_of),
    ),
    "Q6-7": (
        """SELECT srcIP, sum(len)
                 [RANGE 1 second, SLIDE 1 second, WA ts]
           FROM Main
           GROUP-BY srcIP""",
        lambda: sliding(packets("Main"), NS, NS, True, bytes_of),
    ),
    "Q6-8": (
        """SELECT count(*)
                 [RANGE 10 sec, SLIDE 1 sec, WA ts]
           FROM (Main2  ∪  (Main1  ∪  Control))
           GROUP-BY srcIP""",
        lambda: without_source(sliding(packets("Main2", "Main1", "Control"), 10 * NS, NS, True, len)),
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_printed_query_answers_what_it_says(name: str, captures: dict[str, Path]) -> None:
    sql, wanted = QUERIES[name]
    words = sql.replace("(", " ").replace(")", " ").split()
    bound = {link: [str(path)] for link, path in captures.items() if link in words}
    files = [captures["packets"]] if "packets" in bound else []
    table = in_ns.query(sql, *files, streams=None if files else bound)
    found = Counter(tuple(row.values()) for row in table.to_pylist())
    assert found == wanted()
    assert sum(found.values()) > 5
    for row in found:
        for value in row:
            assert not isinstance(value, str) or ip_address(value).version == 4
