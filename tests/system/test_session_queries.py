"""Sessions and landmark windows as SQL over captures, against plain Python over the rows of another reader.

The whole path runs: text, plan, decoding, tables that evict, watermarks of several links, operators. The twin reads
the files by `tests.references.capture_oracle`, sorts the packets of a 5-tuple by time and cuts them at silences. The
tests detect a session that is split by an eviction or by the end of a shard. They detect a split session of a group
with NULL ports, and bounds that are off by one.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from capture.generate.profile import Profile
from capture.generate.write import generate
from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import (
    LATE_ROWS,
    PARTIALS_BEYOND_CAP,
    PARTIALS_RECEIVED,
    RESULT_ROWS,
    ROWS_BEYOND_CAP,
    WINDOWS_CLOSED,
)
from highlevel.results.user_types import readable
from queries.gsql import compile_query
from tests.harness import in_ns
from tests.harness.links import write_links
from tests.references.capture_oracle import Row, read_pcap
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, icmp

TUPLE = ("srcIP", "destIP", "srcPort", "destPort", "protocol")
TALKS = (
    f"SELECT {', '.join(TUPLE)}, count(*) AS packets, sum(len) AS bytes, max(len) AS longest "
    f"FROM M [SESSION {{}} seconds, WA ts] GROUP BY {', '.join(TUPLE)}"
)


def packets(paths: list[Path]) -> list[Row]:
    return [row for path in paths for row in read_pcap(path).rows() if not isinstance(row, str)]


def shown(row: Row, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(str(row[name]) if name.endswith("IP") else row[name] for name in names)


def sessions(rows: list[Row], gap: int) -> list[tuple]:
    """Return the sessions of a 5-tuple: its packets in the order of time, cut at pauses of a gap or more."""
    groups: dict[tuple, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        groups[shown(row, TUPLE)].append((row["ts"], row["len"]))
    found = []
    for group, each in groups.items():
        each.sort()
        cuts = [place for place, (a, b) in enumerate(pairwise(each), 1) if b[0] - a[0] >= gap]
        for first, end in zip([0, *cuts], [*cuts, len(each)], strict=True):
            lengths = [length for _, length in each[first:end]]
            bounds = each[first][0], each[end - 1][0] + gap
            found.append((*bounds, *group, len(lengths), sum(lengths), max(lengths)))
    return sorted(found, key=repr)


def tuples(table: pa.Table) -> list[tuple]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def lulls(folder: Path, seed: int) -> list[Path]:
    """Two links of which each falls silent now and then, with disorder that reaches over many gaps."""
    random = Random(seed)
    disorder = random.choice(["none", "band", "blocks"])
    paths = []
    for name in ("a", "b"):
        profile = Profile(
            packets=random.randint(2000, 6000), rate=random.choice([50.0, 400.0]), groups=random.choice([20, 300]),
            skew=random.choice([0.0, 1.2]), ipv6=0.3, fragments=0.05, arp=0.02, disorder=disorder,
            disorder_span=0 if disorder == "none" else 5 * NS, lull_every=random.choice([17, 40]) * NS,
            lull_length=random.choice([3, 11]) * NS, seed=seed, start=(1_700_000_000 + random.randint(0, 9)) * NS,
        )  # fmt: skip
        generate(profile, folder / f"{name}.pcap")
        paths.append(folder / f"{name}.pcap")
    return paths


@pytest.mark.parametrize("seed", range(6))
def test_sessions_of_a_5_tuple_are_those_that_silences_cut(seed: int, tmp_path: Path) -> None:
    paths = lulls(tmp_path, seed)
    rows = packets(paths)
    seconds = Random(seed).choice([1, 2, 5])
    expected = sessions(rows, seconds * NS)
    assert len(expected) > len({each[2:7] for each in expected})  # some tuples have several
    found = in_ns.query(TALKS.format(seconds), *paths, threads=1 + seed % 2)
    assert tuples(found) == expected


@pytest.mark.parametrize("seed", range(3))
def test_sessions_are_right_on_links_that_go_wrong_and_of_a_table_too_small(seed: int, tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 40 + seed)
    expected = sessions(packets([each.path for each in inputs]), 30 * NS)
    plan = compile_query(TALKS.format(30), "talks")
    run = InlineRun([plan], inputs, slots=64, threads=1, block_records=100)
    found = pa.Table.from_batches([readable(batch, ()) for _, batch in run.results()])
    assert tuples(found) == expected
    samples = run.samples()
    assert samples.total(RESULT_ROWS) == samples.total(WINDOWS_CLOSED) == len(expected)
    assert samples.total(LATE_ROWS) == samples.total(PARTIALS_BEYOND_CAP) == 0


def test_both_spellings_of_a_session_are_the_same_and_a_row_on_the_gap_is_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "s.pcap"
    frame = icmp("10.0.0.1", "10.0.0.2")
    path.write_bytes(pcap_bytes([(seconds * NS, frame) for seconds in (40, 0, 29, 59, 88, 118)], RAW_IP))
    expected = [(0, 118 * NS, 5), (118 * NS, 148 * NS, 1)]
    for sql in (
        "SELECT count(*) AS n FROM M [SESSION 30 s]",
        "SELECT count(*) AS n FROM M [GAP 30 s, WA ts]",
        "SELECT count(*) AS n FROM M GROUP BY SESSION(ts, INTERVAL '30' SECOND)",
    ):
        assert tuples(in_ns.query(sql, path)) == expected


@pytest.mark.parametrize("clause", ["SESSION 30 s", "RANGE ALL, SLIDE 2 minutes"])
def test_first_and_last_values_go_with_their_times_when_windows_grow(clause: str, tmp_path: Path) -> None:
    frames = {seconds: icmp("10.0.0.1", "10.0.0.2") + bytes(seconds) for seconds in (7, 21, 40, 58, 80, 93, 115)}
    random = Random(clause)
    orders = []
    for _ in range(4):
        path = tmp_path / "s.pcap"
        records = [(seconds * NS, frame) for seconds, frame in frames.items()]
        random.shuffle(records)
        path.write_bytes(pcap_bytes(records, RAW_IP))
        orders.append(tuples(in_ns.query(f"SELECT first(caplen) AS a, last(caplen) AS b FROM M [{clause}]", path)))
    bounds = (7 * NS, 145 * NS) if clause.startswith("SESSION") else (0, 120 * NS)
    assert orders == [[(*bounds, len(frames[7]), len(frames[115]))]] * 4


def landmarks(rows: list[Row], slide: int, origin: int) -> list[tuple]:
    rows = [row for row in rows if row["ts"] >= origin]
    found = []
    for number in {(row["ts"] - origin) // slide for row in rows}:
        end = origin + (number + 1) * slide
        groups: dict[tuple, list[int]] = defaultdict(list)
        for row in rows:
            if row["ts"] < end:
                groups[shown(row, ("srcIP",))].append(row["len"])
        found += [(origin, end, *group, len(each), sum(each)) for group, each in groups.items()]
    return sorted(found, key=repr)


SINCE = "SELECT srcIP, count(*) AS packets, sum(len) AS bytes FROM M [RANGE ALL, SLIDE {}, ORIGIN {}{}] GROUP BY srcIP"


@pytest.mark.parametrize("seed", range(3))
def test_landmark_windows_hold_all_since_the_origin(seed: int, tmp_path: Path) -> None:
    paths = [each.path for each in write_links(tmp_path, 50 + seed)]
    origin = (1_700_000_000 - 10**8 * (seed % 2) + 7) * NS
    found = in_ns.query(SINCE.format("2 minutes", origin, ""), *paths)
    assert tuples(found) == landmarks(packets(paths), 120 * NS, origin)


def test_groups_beyond_the_cap_are_left_out_counted_and_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "s.pcap"
    made = [(1, 9), (2, 7), (11, 5), (12, 9), (13, 7), (21, 5)]
    path.write_bytes(pcap_bytes([(at * NS, icmp(f"10.0.0.{host}", "10.0.0.1")) for at, host in made], RAW_IP))
    sql = SINCE.format("10 s", 0, ", CAP 2").replace(", sum(len) AS bytes", "")
    with pytest.warns(RuntimeWarning, match="2 rows of groups beyond the CAP of RANGE ALL are not in the answer"):
        found = in_ns.query(sql, path)
    assert tuples(found) == sorted(
        [(0, 10 * NS, "10.0.0.7", 1), (0, 10 * NS, "10.0.0.9", 1)]
        + [(0, end * NS, host, 2) for end in (20, 30) for host in ("10.0.0.7", "10.0.0.9")],
        key=repr,
    )
    run = InlineRun([compile_query(sql, "q")], [Input("M", path)])
    assert sum(batch.num_rows for _, batch in run.results()) == 6
    samples = run.samples()
    assert samples.total(PARTIALS_BEYOND_CAP) == samples.total(ROWS_BEYOND_CAP) == 2
    assert samples.total(PARTIALS_RECEIVED) == 6
