"""MERGE: flows that are exported several times while they last, from datagrams to rows.

The tests detect records that are counted as flows of their own, a flow that continues after its end, corrections that
do not add up to the final rows, and state that a restart loses.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import CORRECTIONS, FLOW_RECORDS_MERGED
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.harness.recorded_runs import RecordedRun, rows_in
from tests.references.written_exports import MS, START, write_long_flows

SECOND = 1_000_000_000
COLUMNS = "ts, start_ts, srcPort, protocol, bytes, packets, tcp_flags, records, open"
ROWS = f"SELECT {COLUMNS} FROM flows MERGE WITHIN 90 seconds"
WINDOWS = f"SELECT srcPort, sum(bytes) AS bytes, count(*) AS flows FROM ({ROWS}) [RANGE 1 minute] GROUP BY srcPort"
CLAUSES = ("", "WITH CONSISTENCY (WAIT 10 seconds, REMEMBER 40 seconds)", "WITH STRONG CONSISTENCY")


def merged(records: list[dict[str, int]], within: int, idle: int | None) -> Counter[tuple]:
    """Flows of v5 and IPFIX have different observation domains, so also different keys."""
    keys: dict[tuple, list[dict[str, int]]] = {}
    for record in records:
        keys.setdefault((record["version"], record["protocol"], record["port"]), []).append(record)
    found: Counter[tuple] = Counter()
    for of_key in keys.values():
        flows: list[list[dict[str, int]]] = []
        for record in sorted(of_key, key=lambda each: each["ts"]):
            before = flows[-1][-1] if flows else None
            begins = before is None or before["ended"] or record["ts"] - before["ts"] > within
            if begins or (idle is not None and record["start_ts"] - before["ts"] > idle):
                flows.append([])
            flows[-1].append(record)
        found.update(map(row_of, flows))
    return found


def row_of(flow: list[dict[str, int]]) -> tuple:
    times = (flow[-1]["ts"], min(record["start_ts"] for record in flow))
    flags = 0
    for record in flow:
        flags |= record["flags"]
    sums = (sum(record[name] for record in flow) for name in ("bytes", "packets"))
    last = flow[-1]
    key = (last["port"], last["protocol"])
    return (*(START * SECOND + time * MS for time in times), *key, *sums, flags, len(flow), not last["ended"])


def answer(sql: str, path: Path) -> tuple[Counter[tuple], InlineRun]:
    run = InlineRun([compile_query(sql)], [Input("a", path)])
    return Counter(tuple(row.values()) for _, batch in run.results() for row in batch.to_pylist()), run


@pytest.mark.parametrize("idle", [None, 15])
@pytest.mark.parametrize("seed", range(3))
def test_the_records_of_a_flow_are_one_row(seed: int, idle: int | None, tmp_path: Path) -> None:
    records = write_long_flows(tmp_path / "a.pcap", Random(f"long flows {seed}"), 60)
    sql = ROWS + ("" if idle is None else f" IDLE {idle} seconds")
    found, run = answer(sql, tmp_path / "a.pcap")
    assert found == merged(records, 90_000, None if idle is None else idle * 1000)
    assert run.samples().total(FLOW_RECORDS_MERGED) == len(records) - found.total()


@pytest.mark.parametrize("clauses", CLAUSES)
@pytest.mark.parametrize("seed", range(2))
def test_changes_of_flows_add_up_also_after_a_restart(seed: int, clauses: str, tmp_path: Path) -> None:
    random = Random(f"changes of flows {seed} {clauses}")
    path = tmp_path / "a.pcap"
    records = write_long_flows(path, random, 50)
    for sql in (ROWS, WINDOWS):
        exact, _ = answer(sql, path)
        run = RecordedRun(f"{sql} {clauses} EMIT CHANGES", path, block_records=8)
        steps = [rows_in(items) for items in run.steps()]
        total: Counter[tuple] = Counter()
        for *row, weight, _ in (row for rows in steps for row in rows):
            total[tuple(row)] += weight
            assert total[tuple(row)] >= 0, "a row was withdrawn that had not been returned"
        assert +total == exact
        withdrawn = sum(row[-2] < 0 for rows in steps for row in rows)
        assert (withdrawn == 0) == ("STRONG" in clauses)
        restart = random.randrange(len(steps))
        assert [Counter(rows_in(items)) for items in run.steps(restart)] == [Counter(rows) for rows in steps], restart
    assert len(records) > exact.total()


def test_an_open_flow_is_returned_at_once_and_corrected_by_its_next_record(tmp_path: Path) -> None:
    write_long_flows(tmp_path / "a.pcap", Random("open flows"), 30)
    run = InlineRun([compile_query(f"{ROWS} EMIT CHANGES")], [Input("a", tmp_path / "a.pcap")], block_records=1)
    rows = [row for _, batch in run.results() for row in batch.to_pylist()]
    withdrawn = [row for row in rows if row["weight"] < 0]
    assert any(row["open"] and row["weight"] > 0 for row in rows)
    assert run.samples().total(CORRECTIONS) == len(withdrawn) > 10


def test_conditions_on_the_key_are_below_the_merge_and_others_above(tmp_path: Path) -> None:
    write_long_flows(tmp_path / "a.pcap", Random("conditions"), 60)
    all_rows, _ = answer(ROWS, tmp_path / "a.pcap")
    found, _ = answer(f"{ROWS} WHERE srcPort = 1 AND records > 1 AND bytes > 4000", tmp_path / "a.pcap")
    assert found == Counter({row: n for row, n in all_rows.items() if row[2] == 1 and row[7] > 1 and row[4] > 4000})
    assert found


def test_a_key_of_your_own(tmp_path: Path) -> None:
    write_long_flows(tmp_path / "a.pcap", Random("keys"), 40)
    sql = "SELECT protocol, sum(bytes) AS b FROM flows %s [RANGE 1 hour] GROUP BY protocol"
    found, _ = answer(sql % "MERGE BY (protocol) WITHIN 1 hour", tmp_path / "a.pcap")
    plain, _ = answer(sql % "", tmp_path / "a.pcap")
    assert found == plain


@pytest.mark.parametrize(
    "name", ["netflow5.dat", "ipfix.dat", "netflow9_test_0length_fields_tpl_data.dat", "ipfix_test_vmware*"]
)
def test_no_record_of_real_exporters_is_lost_or_counted_twice(name: str, captures: Path) -> None:
    paths = sorted((captures / "netflow" / "datagrams").glob(name))
    totals = "sum(packets) AS packets, sum(bytes) AS bytes, min(start_ts) AS started, max(ts) AS ended"
    found = []
    for sql in (f"SELECT {totals}, count(*) AS records FROM flows",
                f"SELECT {totals}, sum(records) AS records FROM flows MERGE WITHIN 1 hour"):  # fmt: skip
        run = InlineRun([compile_query(sql)], [Input("a", path) for path in paths])
        found += [tuple(row.values()) for _, batch in run.results() for row in batch.to_pylist()]
    assert found[0] == found[1]
    assert found[0][-1] > 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("packets MERGE WITHIN 1 minute", "MERGE of packets; expected flow records"),
        ("(SELECT ts, bytes FROM flows) MERGE WITHIN 1 minute", "MERGE of results of a query; expected flow records"),
        ("flows MERGE BY srcIP WITHIN 1 minute", "expected columns in parentheses after MERGE BY"),
        ("flows MERGE BY (srcIP)", "expected WITHIN and a length of time: WITHIN 31 minutes"),
        ("flows MERGE WITHIN 5 rows", "WITHIN 5 rows; expected a length of time"),
        ("flows MERGE WITHIN 5 IDLE 1 minute", "a unit of time"),
        ("flows MERGE BY (nothing) WITHIN 1 minute", "unknown column 'nothing'"),
    ],
)
def test_wrong_merges_are_refused(table: str, message: str) -> None:
    with pytest.raises(QueryError, match=message.replace("(", r"\(")):
        compile_query(f"SELECT count(*) [RANGE 1 minute] FROM {table}")
