"""The inline engine, captures in and rows out, against the truth of real captures and the definition of windows.

* Truth of real captures catches a wrong row anywhere between bytes and result; it was found by other programs.
* Sliding windows are computed by the definition, packet by packet. This detects a pane that is cut, and a window that
  closes early after a time jump. It detects partials that an eviction or a flush loses or doubles.
* Generated links are out of order, disagree on the time and fall silent, which real captures seldom do together.
* The same answer for other table sizes, other cuts into files and other queries beside it catches state that leaks.
* Counters in balance catch a packet that is lost where no result shows it.
"""

from __future__ import annotations

import csv
import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import pytest

from capture.generate import Profile, generate, three_links
from capture.metrics import BYTES_READ, PACKETS_DECODED, RECORDS_READ, RECORDS_SKIPPED
from capture.packets.link_layers import LINK_TYPES
from highlevel.inline import engine as inline
from highlevel.inline.engine import ALL_METRICS, InlineRun, Input
from highlevel.inline.shards import TableSizes, max_overlap, slots_per_table
from highlevel.metrics import LATE_PARTIALS, PARTIALS_RECEIVED, RESULT_ROWS, WINDOWS_CLOSED, WINDOWS_OPEN
from highlevel.plan.operators.counters import window_count
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED, TABLE_EVICTIONS, TABLE_FLUSHED
from lowlevel.rows.batches import row_batches
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files, bind_streams
from tests.harness.inline_rows import rows_of
from tests.references import small_captures
from tests.references.generated import records
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.windows_oracle import Spec, answer

PAIRS = "SELECT srcIP, destIP, count(*) AS packets, sum(len) AS bytes FROM p {} GROUP BY srcIP, destIP"
MINUTE = "[RANGE 1 minute, SLIDE 1 minute, WA ts]"
SLIDING = "[RANGE 5 minutes, SLIDE 1 minute, WA ts]"


def run(sql: str, inputs: list[Input], slots: int = 1 << 12) -> tuple[Counter[tuple], InlineRun]:
    engine = InlineRun([compile_query(sql)], inputs, slots)
    return Counter(row for _, batch in engine.results() for row in rows_of(batch)), engine


def packets(inputs: Iterable[Input], *columns: str) -> Iterator[dict[str, Any]]:
    """Every packet of the inputs, decoded row by row."""
    for each in inputs:
        for batch in row_batches(each.path, ["ts", *columns]):
            for row in rows_of(batch):
                yield dict(zip(batch.schema.names, row, strict=True)) | {"link": each.link}


def pairs_by_definition(inputs: Iterable[Input], spec: Spec) -> Counter[tuple]:
    found: dict[tuple, list[int]] = defaultdict(lambda: [0, 0])
    for row in packets(inputs, "srcIP", "destIP", "len"):
        for wid in spec.wids(row["ts"]):
            place = found[(*spec.extent(wid), row["srcIP"], row["destIP"])]
            place[0] += 1
            place[1] += row["len"]
    return Counter((*key, *values) for key, values in found.items())


@cache
def classic(captures: Path) -> list[str]:
    with (captures / "manifest.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["format"] == "pcap" and row["file"].startswith("pcap/")]
    return [row["file"] for row in rows if int(row["link_types"].partition("=")[0]) in LINK_TYPES]


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three links of twelve minutes: disordered mains with clocks apart, and a control link with lulls of minutes."""
    folder = tmp_path_factory.mktemp("links")
    three_links(folder, 720, 8)
    return folder


def test_pairs_of_every_capture_are_the_truth(captures: Path) -> None:
    truth: dict[str, Counter[tuple]] = defaultdict(Counter)
    with gzip.open(captures / "truth" / "pairs-60s.csv.gz", "rt", newline="") as file:
        for row in csv.DictReader(file):
            start, addresses = int(row["window_start_ns"]), (ip_address(row["src"]), ip_address(row["dst"]))
            truth[row["file"]][start, start + 60 * NS, *addresses, int(row["packets"]), int(row["wire_bytes"])] = 1
    names = classic(captures)
    assert len(names) >= 118
    for name in names:
        found, engine = run(PAIRS.format(MINUTE), bind_files([str(captures / name)]))
        assert found == truth[name], name
        assert not engine.samples().total(LATE_PARTIALS)


@pytest.mark.slow("every real capture")
@pytest.mark.filterwarnings("ignore:.*whole records:RuntimeWarning")  # one capture is cut
def test_sliding_windows_of_every_capture_are_those_of_the_definition(captures: Path) -> None:
    spec = Spec(300 * NS, 60 * NS)
    for name in classic(captures):
        inputs = bind_files([str(captures / name)])
        assert run(PAIRS.format(SLIDING), inputs, 64)[0] == pairs_by_definition(inputs, spec), name


@pytest.mark.parametrize("slots", [8, 64, 1 << 18])
def test_table_sizes_and_skew_between_links_change_no_row(slots: int, links: Path) -> None:
    inputs = bind_files([str(links)])
    found, engine = run(PAIRS.format(SLIDING), inputs, slots)
    assert found == pairs_by_definition(inputs, Spec(300 * NS, 60 * NS))
    assert not engine.samples().total(LATE_PARTIALS)


@pytest.mark.parametrize("seed", range(12))
def test_generated_streams_agree_with_the_definition_whatever_the_window(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    for number in range(random.randint(1, 3)):
        disorder = random.choice(["none", "band", "blocks"])
        start = random.randint(0, 20)
        profile = Profile(
            packets=random.randint(1, 400), rate=20.0, groups=9, ipv6=0.3, arp=0.05, fragments=0.1,
            disorder=disorder, disorder_span=0 if disorder == "none" else random.randint(1, 8) * NS,
            lulls=((start * NS, (start + 30) * NS),), clock_offset=random.randint(-9, 9) * NS, seed=seed * 10 + number,
        )  # fmt: skip
        generate(profile, tmp_path / f"link{number}.pcap")
    length, slide = random.randint(1, 40) * 100, random.randint(1, 80) * 100  # in ms
    window = f"[RANGE {length} ms, SLIDE {slide} ms, WA ts, ORIGIN {1_700_000_000 * NS + random.randint(0, 5 * NS)}]"
    sql = (
        "SELECT link, destIP, destPort, count(*), sum(ip_len) AS bytes, min(ttl), max(len), avg(len), "
        f"count(destPort), sum(tcp_flags), avg(icmp_type) FROM p {window} WHERE NOT srcPort = 53 OR len > 100 "
        "GROUP BY link, destIP, destPort HAVING count(*) > 1 OR max(len) > 500"
    )
    inputs = bind_files([str(tmp_path)])
    columns = ("destIP", "destPort", "srcPort", "ip_len", "ttl", "len", "tcp_flags", "icmp_type")
    expected = Counter(answer(compile_query(sql), packets(inputs, *columns)))
    found, _ = run(sql, inputs, random.choice([8, 16, 1 << 12]))
    assert found == expected
    assert max(found.values(), default=1) == 1


def test_several_files_are_one_link_however_it_is_cut(tmp_path: Path, links: Path) -> None:
    whole = list(records(links / "Main1.pcap"))
    random = Random(1)
    shares = [random.randrange(3) for _ in whole]
    rotated, shared = tmp_path / "rotated", tmp_path / "shared"
    for folder in (rotated, shared):
        folder.mkdir()
    for number in range(3):
        third = [each for place, each in enumerate(whole) if place * 3 // len(whole) == number]
        drawn = [each for place, each in enumerate(whole) if shares[place] == number]
        for folder, part in ((rotated, third), (shared, drawn)):
            content = pcap_bytes([(each.ts, each.data) for each in part])
            (folder / f"{number}.pcap").write_bytes(content)
    one = tmp_path / "one.pcap"
    one.write_bytes(pcap_bytes([(each.ts, each.data) for each in whole]))
    sql = PAIRS.format(SLIDING).replace("SELECT", "SELECT link,").replace("GROUP BY", "GROUP BY link,")
    expected, _ = run(sql.replace("FROM p", "FROM M"), bind_streams({"M": [str(one)]}))
    assert expected
    assert {row[2] for row in expected} == {"M"}
    for folder in (rotated, shared):
        found, engine = run(sql.replace("FROM p", "FROM m"), bind_streams({"M": [str(folder)]}))
        assert found == expected
        assert engine.samples().total(RECORDS_READ, link="M") == len(whole)


def test_two_queries_in_one_pass_are_two_passes(links: Path) -> None:
    inputs = bind_streams({name: [str(links / f"{name}.pcap")] for name in ("Main1", "Main2", "Control")})
    texts = [
        "SELECT srcIP, count(*) FROM Main1 UNION Control [RANGE 10 minutes, SLIDE 1 minute] GROUP BY srcIP",
        "SELECT srcIP, destIP, count(*), sum(len) FROM Main2 [RANGE 1 minute] GROUP BY srcIP, destIP",
        "SELECT destPort, count(*) FROM MAIN1 UNION main2 UNION control [RANGE 7 seconds] GROUP BY destPort",
        "SELECT protocol, count(*), avg(caplen) FROM Control GROUP BY protocol",
    ]
    plans = [compile_query(sql, f"q{number}") for number, sql in enumerate(texts)]
    together: dict[int, Counter[tuple]] = {number: Counter() for number in range(len(plans))}
    engine = InlineRun(plans, inputs, 64)
    for number, batch in engine.results():
        together[number].update(rows_of(batch))
    for number, sql in enumerate(texts):
        assert together[number] == run(sql, inputs)[0], sql
        assert together[number]
    assert engine.samples().total(ROWS_ACCEPTED, query="q1", link="Main1") == 0


def test_a_stream_name_reads_its_own_links_alone(links: Path) -> None:
    inputs = bind_streams({name: [str(links / f"{name}.pcap")] for name in ("Main1", "Main2")})
    sql = "SELECT link, count(*) FROM {} GROUP BY link"
    both, _ = run(sql.format("main1 UNION main2"), inputs)
    assert sorted(link for link, _ in both) == ["Main1", "Main2"]
    assert set(run(sql.format("Main2"), inputs)[0]) == {row for row in both if row[0] == "Main2"}


@pytest.mark.parametrize("slots", [8, 1 << 12])
def test_everything_that_comes_in_goes_out_or_is_counted_away(slots: int, links: Path) -> None:
    inputs = bind_files([str(links)])
    sql = f"SELECT srcPort, count(*) FROM p {MINUTE} WHERE srcPort > 1023 GROUP BY srcPort HAVING count(*) > 0"
    found, engine = run(sql, inputs, slots)
    total = engine.samples().total
    for each in inputs:
        link = each.link
        records_read = sum(1 for _ in records(each.path))
        assert total(RECORDS_READ, link=link) == records_read
        assert total(PACKETS_DECODED, link=link) + total(RECORDS_SKIPPED, link=link) == records_read
        assert total(ROWS_ACCEPTED, link=link) + total(ROWS_FILTERED, link=link) == total(PACKETS_DECODED, link=link)
        assert total(BYTES_READ, link=link) == each.path.stat().st_size - 24
    assert total(PARTIALS_RECEIVED) == total(TABLE_EVICTIONS) + total(TABLE_FLUSHED)
    assert sum(row[-1] for row in found) == total(ROWS_ACCEPTED) > 0
    assert total(RESULT_ROWS) == len(found)
    assert total(WINDOWS_CLOSED) == len({row[0] for row in found})
    assert (total(WINDOWS_OPEN), total(LATE_PARTIALS)) == (0, 0)
    assert total(ROWS_FILTERED) > 0
    assert total(TABLE_EVICTIONS) > 0 or slots > 8
    assert {name for name, _ in engine.samples()} <= ALL_METRICS.keys()


def test_results_leave_while_the_inputs_are_being_read(links: Path) -> None:
    plan = compile_query(PAIRS.format(MINUTE))
    engine = InlineRun([plan], bind_files([str(links)]), 64, block_records=256)
    done = [engine.bytes_done for _ in engine.results()]
    assert len(set(done)) >= 5
    assert done[0] < 0.75 * engine.bytes_total
    assert done[-1] > 0.95 * engine.bytes_total


def test_links_advance_together_so_that_few_windows_are_open(links: Path) -> None:
    inputs = bind_files([str(links / "Main1.pcap"), str(links / "Main2.pcap")])
    engine = InlineRun([compile_query(PAIRS.format("[RANGE 5 seconds]"))], inputs, 64, threads=1, block_records=64)
    most = max(window_count(next(engine.nodes.window_operators)[1].open_windows()) for _ in engine.results())
    # A block of Main2 is 13 s long and its disorder 2 s; the whole captures have 145 windows.
    assert 1 <= most <= 6


def test_a_run_reports_once_that_its_state_has_become_large(links: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "ROWS_BETWEEN_MEASUREMENTS", 50)
    whole = "SELECT srcIP, destIP, srcPort, destPort, count(*) FROM Main1 GROUP BY srcIP, destIP, srcPort, destPort"
    join = "SELECT A.ts FROM Main1 A [RANGE 10 s], Main2 B [RANGE 10 s] WHERE A.srcIP = B.srcIP"
    for sql in (whole, join):
        for limit, reports in ((1000, 1), (1 << 30, 0)):
            monkeypatch.setattr(inline, "LARGE_STATE_BYTES", limit)
            inputs = bind_streams({name: [f"{links / name}.pcap"] for name in ("Main1", "Main2")})
            engine = InlineRun([compile_query(sql)], inputs, 64)
            reported: list[int] = []
            engine.on_large_state = reported.append
            assert sum(batch.num_rows for _, batch in engine.results()) > 0
            assert len(reported) == reports
            assert all(held >= limit for held in reported)


def test_tables_of_a_finished_file_are_given_back_at_once(tmp_path: Path) -> None:
    frame = small_captures.udp("10.0.0.1", "10.0.0.2", 1, 2)
    for number in range(20):
        small_captures.write(tmp_path / f"{number:02}.pcap", [(number * 100 + 1, frame), (number * 100 + 50, frame)])
    engine = InlineRun([compile_query(f"SELECT count(*) FROM p {MINUTE}")], bind_files([str(tmp_path)]), 8, threads=1)
    nodes = [sum(shard.node is not None for shard in engine.shards) for _ in engine.results()]
    assert len(nodes) >= 20
    assert max(nodes) <= 1
    assert engine.samples().total(RECORDS_READ) == 40


def test_a_capture_without_packets_is_over_at_once(tmp_path: Path) -> None:
    full = small_captures.write(tmp_path / "full.pcap", [(1, small_captures.icmp("10.0.0.1", "10.0.0.2"))])
    empty = small_captures.write(tmp_path / "empty.pcap", [])
    found, engine = run(f"SELECT count(*) FROM p {MINUTE}", bind_files([str(empty), str(full)]))
    assert found == {(0, 60 * NS, 1): 1}
    assert engine.samples()[RECORDS_READ.name, ("empty",)] == 0
    assert run(f"SELECT count(*) FROM p {MINUTE}", bind_files([str(empty)]))[0] == {}


def test_a_gap_of_years_makes_two_windows(tmp_path: Path) -> None:
    frame = small_captures.icmp("10.0.0.1", "10.0.0.2")
    path = small_captures.write(tmp_path / "gap.pcap", [(2**32 - 1, frame), (5, frame)])
    found, engine = run(f"SELECT count(*) FROM p {MINUTE}", bind_files([str(path)]))
    last = (2**32 - 1) // 60 * 60 * NS
    assert found == {(0, 60 * NS, 1): 1, (last, last + 60 * NS, 1): 1}
    assert engine.samples().total(WINDOWS_CLOSED) == 2


def test_tables_get_smaller_where_many_shards_overlap_and_only_there() -> None:
    assert max_overlap([]) == 0
    assert max_overlap([(0, 5), (5, 9), (6, 8), (10, 12)]) == 2
    assert max_overlap([(0, 5), (0, 5), (0, 5), (6, 6)]) == 3
    assert [slots_per_table(2**18, shards) for shards in (1, 4, 5, 8, 40, 10**6)] == [
        *(2**18, 2**18, 2**17, 2**17, 2**14),
        1024,
    ]


def test_tables_of_shards_that_come_unannounced_get_smaller_the_more_there_are() -> None:
    tables = TableSizes(2**18)
    assert [tables.begin_shard() for _ in range(9)] == [2**18] * 4 + [2**17] * 4 + [2**16]
    for _ in range(6):
        tables.end_shard()
    assert tables.begin_shard() == 2**18
    tables.expected_shards = 40
    assert tables.begin_shard() == 2**14


def test_an_input_that_no_query_reads_is_not_read(tmp_path: Path) -> None:
    small_captures.write(tmp_path / "a.pcap", [(1, small_captures.udp("10.0.0.1", "10.0.0.2", 1, 2))])
    (tmp_path / "b.pcap").write_bytes(b"no capture at all")
    plan = compile_query("SELECT count(*) FROM A")
    run = InlineRun([plan], [Input("A", tmp_path / "a.pcap", "A"), Input("B", tmp_path / "b.pcap", "B")])
    assert [batch.to_pylist() for _, batch in run.results()] == [[{"count": 1}]]
