"""Integers against floats beyond 2**53: WHERE, HAVING, groups and joins must give the same answer.

The test can catch a clause that compares exactly while another one rounds, which would make answers depend on where a
condition is tested.
"""

from operator import eq, ge, gt, le, lt, ne
from pathlib import Path

import pytest

from tests.harness import in_ns
from tests.references import small_captures
from tests.references.pcap_bytes import pcap_bytes

FLOAT = 2**53
"""The first integer whose successor is no float."""

COMPARED = {
    "rows": "SELECT ts FROM M WHERE ts {} 9007199254740992.0",
    "the constant first": "SELECT ts FROM M WHERE NOT 9007199254740992.0 {} ts",
    "computed": "SELECT ts, count(*) FROM M WHERE (ts + len - len) {} 9007199254740992.0 GROUP BY ts",
    "groups": "SELECT ts, count(*) FROM M GROUP BY ts HAVING ts {} 9007199254740992.0",
    "aggregates": "SELECT ts, count(*) FROM M GROUP BY ts HAVING max(ts) {} 9007199254740992.0",
    "pairs": "SELECT a.ts FROM M a, M b [RANGE TUMBLING 1 s] WHERE a.ts {} b.ts * 1.0 AND b.ts = 9007199254740992",
}


@pytest.mark.parametrize("name", COMPARED)
def test_an_integer_is_compared_with_a_float_as_a_float_everywhere(name: str, tmp_path: Path) -> None:
    times = [FLOAT + offset for offset in (-1, 0, 1, 2, 3)]
    frame = small_captures.udp("10.0.0.1", "10.0.0.2", 1, 2)
    path = tmp_path / "M.pcap"
    path.write_bytes(pcap_bytes([(time, frame) for time in times], small_captures.RAW_IP))
    for symbol, compare in (("=", eq), ("<>", ne), ("<", lt), ("<=", le), (">", gt), (">=", ge)):
        found = sorted(in_ns.query(COMPARED[name].format(symbol), str(path))["ts"].to_pylist())
        if name == "the constant first":
            assert found == [time for time in times if not compare(float(FLOAT), float(time))], symbol
        else:
            assert found == [time for time in times if compare(float(time), float(FLOAT))], symbol
