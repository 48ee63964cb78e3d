"""DISTINCT ON: packets that two taps see are counted once, from captures to rows.

The tests detect a copy that is counted, a packet that is lost because a similar one was earlier, an answer that depends
on the tap that is read first, corrections that do not add up, and state that a restart loses.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import COPIES_REMOVED, CORRECTIONS
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.harness.live_pipes import START
from tests.harness.recorded_runs import RecordedRun, rows_in
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp
from tests.references.written_exports import write_long_flows

MS = 1_000_000
KEYS = "srcIP, destIP, srcPort, destPort, ip_len"
BOTH = f"tap1 UNION tap2 DISTINCT ON ({KEYS}) WITHIN 10 ms AS p"
COUNT = f"SELECT srcIP, count(*) AS n, sum(len) AS bytes FROM {BOTH} [RANGE 5 seconds] GROUP BY srcIP"


def packets(random: Random, number: int) -> list[tuple[int, bytes]]:
    """Packets of few kinds over 20 seconds, so that equal ones are often near each other."""
    times = sorted(random.randrange(20 * NS) for _ in range(number))
    ports = [random.randrange(1, 4) for _ in times]
    return [
        (START + ts, udp("10.0.0.1", "10.0.0.2", port, 53, 60 + port)) for ts, port in zip(times, ports, strict=True)
    ]


def tap(random: Random, sent: list[tuple[int, bytes]], jitter: int, loss: float) -> list[tuple[int, bytes]]:
    """The packets that a tap records, in this order: each is up to `jitter` ns later, and the tap loses some."""
    seen = [(ts + random.randrange(jitter), frame) for ts, frame in sent if random.random() >= loss]
    return sorted(seen, key=lambda each: each[0])


def write(path: Path, records: list[tuple[int, bytes]]) -> Path:
    path.write_bytes(pcap_bytes(records, RAW_IP))
    return path


def two_taps(tmp_path: Path, random: Random, number: int = 400) -> list[Input]:
    sent = packets(random, number)
    recorded = [tap(random, sent, 8 * MS, 0.1) for _ in range(2)]
    paths = [write(tmp_path / f"{name}.pcap", records) for name, records in zip("ab", recorded, strict=True)]
    return [Input("tap1", paths[0]), Input("tap2", paths[1])]


def rows_of(run: InlineRun) -> list[tuple]:
    return [tuple(row.values()) for _, batch in run.results() for row in batch.to_pylist()]


def first_copies(rows: list[tuple], within: int) -> Iterator[tuple]:
    """Rows `ts, key…` without those at most `within` ns after an equal key."""
    newest: dict[tuple, int] = {}
    for ts, *key in sorted(rows):
        if ts - newest.get(tuple(key), -within - 1) > within:
            yield ts, *key
        newest[tuple(key)] = ts


@pytest.mark.parametrize("seed", range(3))
def test_a_packet_of_two_taps_is_one_row(seed: int, tmp_path: Path) -> None:
    inputs = two_taps(tmp_path, Random(f"taps {seed}"))
    seen = rows_of(InlineRun([compile_query(f"SELECT ts, {KEYS} FROM packets")], inputs))
    for sources in (inputs, inputs[::-1]):
        run = InlineRun([compile_query(f"SELECT ts, {KEYS} FROM {BOTH}")], sources)
        found = rows_of(run)
        assert Counter(found) == Counter(first_copies(seen, 10 * MS))
        assert run.samples().total(COPIES_REMOVED) == len(seen) - len(found) > 200


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("clauses", ["", "WITH CONSISTENCY (WAIT 20 ms)", "WITH STRONG CONSISTENCY"])
def test_a_copy_that_is_read_later_is_no_second_packet(clauses: str, threads: int, tmp_path: Path) -> None:
    """Taps are read block by block, so one of them is always behind the other one."""
    inputs = two_taps(tmp_path, Random(f"late copies {clauses}"))
    exact = Counter(rows_of(InlineRun([compile_query(COUNT)], inputs)))
    run = InlineRun([compile_query(f"{COUNT} {clauses} EMIT CHANGES")], inputs, block_records=16, threads=threads)
    total: Counter[tuple] = Counter()
    for *row, weight, _ in rows_of(run):
        total[tuple(row)] += weight
        assert total[tuple(row)] in (0, 1)
    assert +total == exact
    corrections = run.samples().total(CORRECTIONS)
    if threads == 1 or "WAIT" not in clauses:  # two threads may read the taps at the same pace: then WAIT is enough
        assert (corrections == 0) == ("STRONG" in clauses)


@pytest.mark.parametrize("clauses", ["", "WITH CONSISTENCY (WAIT 5 ms, REMEMBER 40 ms)"])
def test_a_restart_keeps_the_packets_that_can_have_copies(clauses: str, tmp_path: Path) -> None:
    random = Random(f"restarted copies {clauses}")
    sent = packets(random, 200)
    late = [(ts + random.randrange(20 * MS), (ts, frame)) for ts, frame in sent + tap(random, sent, 8 * MS, 0.1)]
    path = write(tmp_path / "a.pcap", [record for _, record in sorted(late)])
    sql = COUNT.replace("tap1 UNION tap2", "packets")
    exact = Counter(rows_of(InlineRun([compile_query(sql)], [Input("a", path)])))
    run = RecordedRun(f"{sql} {clauses} EMIT CHANGES", path)
    steps = [Counter(rows_in(items)) for items in run.steps()]
    total: Counter[tuple] = Counter()
    for (*row, weight, _), times in sum(steps, Counter()).items():
        total[tuple(row)] += weight * times
    assert +total == exact
    restart = random.randrange(len(steps))
    assert [Counter(rows_in(items)) for items in run.steps(restart)] == steps, restart


def test_real_packets_that_are_fed_twice_with_jitter(captures: Path, tmp_path: Path) -> None:
    """Both taps see the frames of a capture. Its own repeated packets are copies as well, by the definition."""
    random = Random("real packets")
    keys = f"{KEYS}, protocol, ip_id, tcp_seq, tcp_ack"
    data = (captures / "pcap" / "http_auth.pcap").read_bytes()
    assert data[:4] == bytes.fromhex("d4c3b2a1"), "microseconds, little-endian"
    records, position = [], 24
    while position < len(data):
        seconds, fraction, length, _ = (int.from_bytes(data[position + 4 * n :][:4], "little") for n in range(4))
        records.append((seconds * NS + fraction * 1000, data[position + 16 : position + 16 + length]))
        position += 16 + length
    link_type = int.from_bytes(data[20:24], "little")
    paths = [tmp_path / f"{name}.pcap" for name in "ab"]
    for each in paths:
        each.write_bytes(pcap_bytes(tap(random, records, 3 * MS, 0.05), link_type))
    inputs = [Input(f"tap{number}", each) for number, each in enumerate(paths, 1)]
    table = f"tap1 UNION tap2 DISTINCT ON ({keys}) WITHIN 5 ms AS p"
    seen = rows_of(InlineRun([compile_query(f"SELECT ts, {keys} FROM packets")], inputs))
    found = rows_of(InlineRun([compile_query(f"SELECT ts, {keys} FROM {table}")], inputs))
    seen, found = ([(row[0], *map(str, row[1:])) for row in rows] for rows in (seen, found))
    assert Counter(found) == Counter(first_copies(seen, 5 * MS))
    assert 0.4 * len(seen) < len(found) < 0.6 * len(seen)


def test_records_of_a_datagram_that_was_recorded_twice_are_removed(tmp_path: Path) -> None:
    records = write_long_flows(tmp_path / "a.pcap", Random("recorded twice"), 30)
    inputs = [Input(name, tmp_path / "a.pcap") for name in ("one", "two")]
    keys = "observation_domain, srcPort, protocol, start_ts, end_ts, bytes"
    sql = f"SELECT ts FROM one.flows UNION two.flows DISTINCT ON ({keys}) WITHIN 0 s"
    assert len(rows_of(InlineRun([compile_query(sql)], inputs))) == len(records)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("packets DISTINCT ON srcIP WITHIN 1 ms", "expected columns in parentheses after DISTINCT ON"),
        ("packets DISTINCT ON (srcIP)", "expected WITHIN and a length of time: WITHIN 10 ms"),
        ("packets DISTINCT ON (srcIP) WITHIN 5 rows", "WITHIN 5 rows; expected a length of time"),
        ("packets DISTINCT ON (payload) WITHIN 1 ms", r"DISTINCT ON with bytes; expected text\(payload\)"),
        ("(SELECT ts, len FROM packets) DISTINCT ON (len / 2) WITHIN 1 s", "an expression in DISTINCT ON"),
        ("(SELECT len FROM packets) DISTINCT ON (len) WITHIN 1 s", "DISTINCT ON of rows without a time"),
    ],
)
def test_wrong_clauses_are_refused(table: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        compile_query(f"SELECT count(*) FROM {table}")
