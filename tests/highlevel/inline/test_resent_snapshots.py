"""An exporter that restarts sends the records of open flows again: none of them is counted twice.

The tests detect a record that is counted a second time, a correction that withdraws the first copy, and a restart of
the operators that forgets which records were seen.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query
from tests.harness.recorded_runs import RecordedRun, rows_in
from tests.references.written_exports import write_long_flows

PLAIN = "SELECT protocol, count(*) AS records, sum(bytes) AS bytes FROM flows [RANGE 1 minute] GROUP BY protocol"
RECORD = "exporter, srcIP, destIP, srcPort, destPort, protocol, start_ts, ts"
ONCE = PLAIN.replace("flows [", f"flows DISTINCT ON ({RECORD}) WITHIN 1 ms [")


def write_resent(path: Path, original: Path, random: Random) -> int:
    """Write a capture whose last records are sent again after a restart, twice. Return the number of copies."""
    data = original.read_bytes()
    records, position = [], 24
    while position < len(data):
        length = 16 + int.from_bytes(data[position + 8 : position + 12], "little")
        records.append(data[position : position + length])
        position += length
    restart = random.randrange(len(records) // 2, len(records))
    open_flows = random.sample(records[:restart], restart // 2)
    path.write_bytes(data[:24] + b"".join([*records[:restart], *open_flows, *records[restart:], *open_flows]))
    return 2 * len(open_flows)


def exact(sql: str, path: Path) -> Counter[tuple]:
    run = InlineRun([compile_query(sql)], [Input("a", path)])
    return Counter(tuple(row.values()) for _, batch in run.results() for row in batch.to_pylist())


@pytest.mark.parametrize("clauses", ["", "WITH CONSISTENCY (WAIT 10 seconds)", "WITH STRONG CONSISTENCY"])
def test_a_source_that_sends_its_snapshot_again_is_counted_once_also_after_a_restore(
    clauses: str, tmp_path: Path
) -> None:
    random = Random(f"sent again {clauses}")
    write_long_flows(tmp_path / "a.pcap", random, 40)
    copies = write_resent(tmp_path / "b.pcap", tmp_path / "a.pcap", random)
    truth = exact(PLAIN, tmp_path / "a.pcap")
    assert sum(row[-2] for row in exact(PLAIN, tmp_path / "b.pcap").elements()) == copies + sum(
        row[-2] for row in truth.elements()
    )
    assert exact(ONCE, tmp_path / "b.pcap") == truth
    run = RecordedRun(f"{ONCE} {clauses} EMIT CHANGES", tmp_path / "b.pcap", block_records=8)
    steps = [Counter(rows_in(items)) for items in run.steps()]
    total: Counter[tuple] = Counter()
    for (*row, weight, _), times in sum(steps, Counter[tuple]()).items():
        total[tuple(row)] += weight * times
    assert +total == truth
    restart = random.randrange(len(steps))
    assert [Counter(rows_in(items)) for items in run.steps(restart)] == steps, restart
