"""Result files of a run: the schema that users of other programs get.

The tests detect addresses that are bytes, times that are numbers, and a MAC read as an address. They detect a restart
that reads other rows than were written.
"""

from ipaddress import ip_address
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import wiretide
from highlevel.inline.engine import InlineRun
from highlevel.results.user_types import TIMESTAMP, readable
from highlevel.spark.run_folder.result_files import read_results, write_results
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files
from tests.references.pcap_bytes import NS
from tests.references.small_captures import icmp, udp, write

SQL = (
    "SELECT srcIP, srcMAC, destPort, min(ts) AS first, max(ts) - min(ts) AS lasted, count(*) AS n "
    "FROM packets [RANGE 10 s] GROUP BY srcIP, srcMAC, destPort"
)


def test_files_of_a_run_have_the_schema_of_a_query_and_are_read_back_as_they_were(tmp_path: Path) -> None:
    frames = [
        udp("10.0.0.1", "10.0.0.2", 1, 53),
        udp("2001:db8::1", "2001:db8::2", 1, 53),
        icmp("10.0.0.3", "10.0.0.2"),
    ]
    capture = write(tmp_path / "a.pcap", [(1_470_104_340.5 + number, frame) for number, frame in enumerate(frames * 5)])
    plan = compile_query(SQL, "q")
    rows = pa.Table.from_batches([batch for _, batch in InlineRun([plan], bind_files([str(capture)])).results()])
    output = tmp_path / "output"
    write_results(output, 3, {"q": readable(rows.slice(0, 2), plan.times)})
    write_results(output, 4, {"q": readable(rows.slice(2), plan.times)})
    answer = wiretide.query(SQL, capture)
    (path,) = (output / "q").iterdir()
    stored = pq.read_table(path, partitioning=None)
    assert stored.schema == answer.schema
    numbers = [pa.int64(), pa.int64()]
    assert stored.schema.types == [*[TIMESTAMP] * 2, pa.string(), pa.string(), pa.int64(), TIMESTAMP, *numbers]
    assert read_results(output, plan) == rows
    frame = stored.to_pandas()
    assert all(ip_address(each) for each in frame["srcIP"])
    assert frame["window_end"].dt.tz is not None
    assert frame["first"].astype("int64").min() >= 1_470_104_340 * NS


def test_addresses_and_macs_are_told_apart_when_they_are_read_back(tmp_path: Path) -> None:
    plan = compile_query("SELECT srcIP, srcMAC, ts FROM packets", "q")
    addresses = [ip_address(each).packed for each in ("0.0.0.0", "::", "::1", "1:2:3:4:5:6:7:8", "aa:bb:cc:dd::ff")]
    macs = [bytes(6), bytes.fromhex("aabbccddeeff"), None, b"\1\2\3\4\5\6", bytes(6)]
    rows = pa.table([[*addresses, None], [*macs, None], list(range(6))], schema=plan.schema)
    write_results(tmp_path, 0, {"q": readable(rows, plan.times)})
    assert read_results(tmp_path, plan) == rows
