"""Provisional results of captures and pipes, from packets to changes.

The tests detect partials that stay in a table of the low level, and a watermark of a file's scan that makes results
final too early. They detect changes that do not add up to the exact answer.
"""

from collections import Counter
from itertools import product
from pathlib import Path
from random import Random

import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import LATE_ROWS
from queries.gsql import compile_query
from tests.harness.live_pipes import AGREED, START, Pipe
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

PLAIN = "SELECT srcIP, count(*) AS n, sum(len) AS bytes [RANGE 10 seconds] FROM packets GROUP BY srcIP"
FRAMES = [udp(f"10.0.0.{host}", "10.0.0.9", 1, 2) for host in range(1, 4)]


def rows_in(run: InlineRun) -> list[tuple]:
    return [tuple(row.values()) for _, batch in run.results() for row in batch.to_pylist()]


def disordered(path: Path, seed: int, late: float) -> Path:
    """A capture of 60 seconds whose packets arrive up to `late` seconds late."""
    random = Random(seed)
    arrivals = sorted((ts + random.random() * late, ts) for ts in (random.random() * 60 for _ in range(3000)))
    records = [(START + round(ts * NS), random.choice(FRAMES)) for _, ts in arrivals]
    path.write_bytes(pcap_bytes(records, RAW_IP))
    return path


def run_of(path: Path, sql: str, **options: object) -> InlineRun:
    return InlineRun([compile_query(sql)], [Input("a", path)], block_records=64, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("wait", ["WAIT 0", "WAIT 2 seconds", "WAIT 0, EARLY 3 seconds", "WAIT FOREVER"])
def test_changes_add_up_to_the_exact_answer(tmp_path: Path, wait: str) -> None:
    path = disordered(tmp_path / "a.pcap", 1, late=5)
    exact = Counter(rows_in(run_of(path, PLAIN)))
    total: Counter[tuple] = Counter()
    for *row, weight, _ in rows_in(run_of(path, f"{PLAIN} WITH CONSISTENCY ({wait}) EMIT CHANGES")):
        total[tuple(row)] += weight
        assert total[tuple(row)] in (0, 1), "no row is withdrawn that was not returned, or returned twice"
    assert +total == exact


def corrections(path: Path, clauses: str) -> int:
    return sum(row[-2] < 0 for row in rows_in(run_of(path, f"{PLAIN} {clauses} EMIT CHANGES")))


def test_waiting_longer_than_the_disorder_leaves_no_correction(tmp_path: Path) -> None:
    path = disordered(tmp_path / "a.pcap", 2, late=5)
    found = [corrections(path, f"WITH CONSISTENCY (WAIT {wait} seconds)") for wait in (0, 2, 6)]
    assert found[0] > found[1] > found[2] == 0


def test_a_packet_dated_next_year_ends_no_waiting(tmp_path: Path) -> None:
    path = disordered(tmp_path / "a.pcap", 2, late=5)
    data, position = path.read_bytes(), 24 + 500 * (16 + len(FRAMES[0]))
    wrong = pcap_bytes([(START + 365 * 86_400 * NS, FRAMES[0])], RAW_IP)[24:]
    path.write_bytes(data[:position] + wrong + data[position:])
    assert corrections(path, "WITH CONSISTENCY (WAIT 6 seconds)") == 0


def test_late_rows_are_additional_rows_or_with_changes_corrections(tmp_path: Path) -> None:
    path = disordered(tmp_path / "a.pcap", 9, late=8)
    exact, late = Counter(rows_in(run_of(path, PLAIN))), PLAIN.replace("10 seconds", "10 seconds, LATE EMIT")
    parts = rows_in(run_of(path, f"{late} WITH WEAK CONSISTENCY EMIT FINAL"))
    assert any(is_late for *_, is_late in parts)
    packets, sizes = Counter[tuple](), Counter[tuple]()
    for *group, n, size, _ in parts:
        packets[tuple(group)] += n
        sizes[tuple(group)] += size
    assert Counter((*group, packets[group], sizes[group]) for group in packets) == exact
    run = run_of(path, f"{late} WITH CONSISTENCY (WAIT 1 second) EMIT CHANGES")
    sums: Counter[tuple] = Counter()
    for *row, weight, _ in rows_in(run):
        sums[tuple(row)] += weight
    assert +sums == exact
    assert run.samples().total(LATE_ROWS) == 0, "no row is too late"


def test_rows_beyond_the_memory_are_late(tmp_path: Path) -> None:
    path = disordered(tmp_path / "a.pcap", 3, late=8)
    exact, run = rows_in(run_of(path, PLAIN)), run_of(path, f"{PLAIN} WITH WEAK CONSISTENCY EMIT CHANGES")
    changes = rows_in(run)
    counted = sum(row[3] * row[-2] for row in changes)
    late = int(run.samples().total(LATE_ROWS))
    assert late > 0
    assert counted + late == sum(row[3] for row in exact) == 3000
    assert not any(weight < 0 for *_, weight, _ in changes)


def test_a_pipe_has_results_before_its_end_and_corrections_after_them(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path / "a.pipe")
    sql = "SELECT count(*) AS n [RANGE 10 seconds] FROM packets WITH CONSISTENCY (REMEMBER 1 hour) EMIT CHANGES"
    run = InlineRun([compile_query(sql)], [Input("a", pipe.path)])
    results = run.results()
    pipe.write(*[1] * AGREED)
    pipe.write(12)
    first = next(results)[1].to_pylist()
    assert [(row["n"], row["weight"], row["final"]) for row in first] == [(AGREED, 1, False)]
    pipe.write(3)
    corrected = next(results)[1].to_pylist()
    assert [(row["n"], row["weight"], row["final"]) for row in corrected] == [
        (AGREED, -1, False),
        (AGREED + 1, 1, False),
    ]
    pipe.close()
    final = [row for _, batch in results for row in batch.to_pylist()]
    assert [(row["n"], row["weight"], row["final"]) for row in final] == [(1, 1, True)]


def test_each_of_several_queries_has_the_changes_that_it_has_alone(tmp_path: Path) -> None:
    path = disordered(tmp_path / "a.pcap", 4, late=5)
    finer = PLAIN.replace("10 seconds", "5 seconds")
    clauses = ["", "EMIT CHANGES", "WITH WEAK CONSISTENCY EMIT CHANGES", "WITH CONSISTENCY (REMEMBER 2 s) EMIT FINAL"]
    plans = [
        compile_query(f"{text} {each}", f"q{n}") for n, (text, each) in enumerate(product((PLAIN, finer), clauses))
    ]
    together: list[list[tuple]] = [[] for _ in plans]
    run = InlineRun(plans, [Input("a", path)], block_records=64)
    for number, batch in run.results():
        together[number] += [tuple(row.values()) for row in batch.to_pylist()]
    for plan, rows in zip(plans, together, strict=True):
        alone = InlineRun([plan], [Input("a", path)], block_records=64)
        assert Counter(rows) == Counter(rows_in(alone)), plan.sql
        late = [int(samples.total(LATE_ROWS, query=plan.name)) for samples in (run.samples(), alone.samples())]
        assert late[0] == late[1], plan.sql
        assert (late[0] > 0) == (plan.leaves[0].low.slack is not None), plan.sql
