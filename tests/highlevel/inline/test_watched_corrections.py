"""EMIT CHANGES of look-ups at a time: a lease that is withdrawn or ended corrects the answers about earlier packets.

The file of leases changes between blocks of a random capture. The tests detect rows that keep an old label, rows that
are corrected twice, and a restart that forgets which labels were returned.
"""

import os
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random

import numpy as np
import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.change_nodes import WatchedColumns
from highlevel.plan.pipeline import NodeOperators
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.source import StreamSpec
from lowlevel.punctuation import Punctuation
from lowlevel.watch import watched_file
from lowlevel.watch.watched_file import Watchlists
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.harness.live_pipes import START
from tests.harness.recorded_runs import RecordedRun, disordered_capture, rows_in
from tests.harness.stream_steps import steps
from tests.references.operator_contract import through_ipc
from tests.references.pcap_bytes import NS

OWNERS = "SELECT getlpmid(srcIP, '{0}', ts) AS owner, count(*) AS n, sum(len) AS bytes FROM packets [RANGE 10 seconds] "
QUERIES = (
    OWNERS + "GROUP BY owner",
    OWNERS + "WHERE in_list(destIP, '{0}', ts) GROUP BY owner HAVING n > 1",
    "SELECT count(*) AS n, count(DISTINCT getlpmid(srcIP, '{0}', ts)) AS owners FROM packets [RANGE 8 s, SLIDE 4 s]",
)


VERSIONS = count(1)


def write_leases(path: Path, random: Random) -> None:
    """Write another version of the file: random leases of the addresses 10.0.0.1 to 10.0.0.4."""
    lines = ["prefix,label,from,to"]
    for _ in range(random.randrange(7)):
        start = START + random.randrange(60) * NS
        times = (f"{np.datetime64(time, 'ns')}Z" for time in (start, start + random.randrange(40) * NS))
        lines.append(f"10.0.0.{random.randrange(1, 5)},host {random.randrange(3)},{','.join(times)}")
    new = path.with_suffix(".new")
    new.write_text("\n".join(lines))
    os.utime(new, ns=(0, next(VERSIONS)))  # the clock of the file system is too coarse to tell versions apart
    new.replace(path)


def total_of(sql: str, capture: Path, leases: Path, random: Random, *, restart: bool) -> tuple[Counter[tuple], int]:
    """Sum the weights of all changes while the file changes; and the number of rows that were withdrawn."""
    recorded = RecordedRun(sql, capture)
    run = recorded.run()

    def operators() -> NodeOperators:
        return NodeOperators([run.plans[0].root], [["a"]], watchlists=Watchlists(is_followed=True))

    nodes = operators()
    total: Counter[tuple] = Counter()
    withdrawn = 0
    for port, item in recorded.items():
        if not isinstance(item, Punctuation) and random.random() < 0.4:
            write_leases(leases, random)
        if restart and random.random() < 0.3:
            tables = through_ipc(nodes.snapshot())
            nodes = operators()
            nodes.restore(tables)
        items = nodes.punctuate(port, item) if isinstance(item, Punctuation) else nodes.process_rows(port, item)
        for *row, weight, _ in rows_in([each for _, each in items]):
            total[tuple(row)] += weight
            withdrawn += weight < 0
            assert total[tuple(row)] >= 0, "a row was withdrawn that had not been returned"
    return +total, withdrawn


@pytest.mark.parametrize("query", QUERIES)
def test_answers_follow_the_last_version_of_the_file(
    query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: Rounds
) -> None:
    monkeypatch.setattr(watched_file, "CHECK_INTERVAL", 0.0)
    corrected = 0
    for seed in rounds(2):
        random = Random(f"{query} {seed}")
        capture = disordered_capture(tmp_path / "a.pcap", random, packets=150)
        leases = tmp_path / "leases.csv"
        write_leases(leases, random)
        sql = query.format(leases)
        for clauses in ("", "WITH CONSISTENCY (WAIT 5 seconds, REMEMBER 100 seconds)", "WITH STRONG CONSISTENCY"):
            total, withdrawn = total_of(f"{sql} {clauses} EMIT CHANGES", capture, leases, random, restart=seed % 2 == 0)
            final = InlineRun([compile_query(sql)], [Input("a", capture)])
            assert total == Counter(tuple(row.values()) for _, batch in final.results() for row in batch.to_pylist())
            corrected += withdrawn
    assert corrected > 0


def test_rows_below_the_watermark_keep_their_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_file, "CHECK_INTERVAL", 0.0)
    random = Random(1)
    capture, leases = disordered_capture(tmp_path / "a.pcap", random, late=1), tmp_path / "leases.csv"
    write_leases(leases, random)
    sql = QUERIES[0].format(leases) + " WITH CONSISTENCY (REMEMBER 2 seconds) EMIT CHANGES"
    plan = compile_query(sql)
    assert any(isinstance(node, WatchedColumns) for node in plan.nodes)
    assert not any(isinstance(node, WatchedColumns) for node in plan.with_final_rows().nodes)
    final_until = 0
    nodes = NodeOperators([plan.root], [["a"]], watchlists=Watchlists(is_followed=True))
    for port, item in RecordedRun(sql, capture).items():
        write_leases(leases, random)
        items = nodes.punctuate(port, item) if isinstance(item, Punctuation) else nodes.process_rows(port, item)
        rows = rows_in([each for _, each in items])
        assert all(row[1] > final_until for row in rows)
        final_until = max([final_until, *(row[1] for row in rows if row[-1])])
    assert final_until > 0


def test_bytes_and_a_lookup_at_a_time_are_refused(tmp_path: Path) -> None:
    write_leases(tmp_path / "leases.csv", Random(2))
    sql = OWNERS.format(tmp_path / "leases.csv") + "WHERE contains(payload, 'x') GROUP BY owner"
    with pytest.raises(QueryError, match=r"payload and a watchlist at a time; expected a query over rows"):
        compile_query(f"{sql} EMIT CHANGES")


def test_a_stream_on_spark_corrects_the_answers_of_earlier_micro_batches(tmp_path: Path) -> None:
    random = Random("micro-batches")
    capture, leases = disordered_capture(tmp_path / "a.pcap", random), tmp_path / "leases.csv"
    write_leases(leases, random)
    sql = QUERIES[0].format(leases)
    plan = compile_query(f"{sql} WITH CONSISTENCY (REMEMBER 100 seconds) EMIT CHANGES", "q")
    spec = StreamSpec(InputAssignment.of([plan], [Input("a", capture)], 2), 64, 20, 2, None, 2)
    total: Counter[tuple] = Counter()
    corrections = 0
    for number, (results, _) in enumerate(steps(spec, tmp_path / "state", random)):
        for *row, weight, _ in (tuple(row.values()) for table in results.values() for row in table.to_pylist()):
            total[tuple(row)] += weight
            corrections += weight < 0
        if number < 5:
            write_leases(leases, random)
    final = InlineRun([compile_query(sql)], [Input("a", capture)])
    assert +total == Counter(tuple(row.values()) for _, batch in final.results() for row in batch.to_pylist())
    assert corrections > 0
