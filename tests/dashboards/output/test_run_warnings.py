"""Warnings after a run about inputs that could not be read completely, from counters and from real runs.

The tests detect damage that is not reported, and a damaged file of a link with many files that is not named. They
detect an answer over no rows that looks like a normal answer.
"""

import gzip
import os
import threading
from pathlib import Path

import pytest

from capture.metrics import FILES_REFUSED, FLOW_SESSIONS, FLOW_SETS_WAITING, RECORDS_READ, Samples
from dashboards.output.run_warnings import describe_unsupported, run_warnings
from highlevel.inline.engine import InlineRun
from highlevel.inline.input_outcomes import Reading
from highlevel.metrics import LATE_PARTIALS, LATE_ROWS, PARTIALS_BEYOND_CAP, ROWS_BEYOND_CAP, ROWS_FORGOTTEN
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_streams
from tests.references.netflow_bytes import a_set, ipfix, template
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, icmp

FRAME = icmp("10.0.0.1", "10.0.0.2")


def readings(
    folder: Path, slack: int | None = None, sql: str = "SELECT count(*) FROM M"
) -> tuple[list[Reading], InlineRun]:
    """A run over all files of a folder as one link."""
    plan = compile_query(sql)
    run = InlineRun([plan], bind_streams({"M": [str(folder)]}), slack=slack, threads=2)
    for _ in run.results():
        pass
    return run.readings(), run


def test_each_damaged_file_of_a_link_is_named_with_its_cause(tmp_path: Path) -> None:
    content = pcap_bytes([(NS, FRAME)] * 3, RAW_IP)
    (tmp_path / "a.pcap").write_bytes(content)
    (tmp_path / "b.pcap").write_bytes(content[:-3])
    (tmp_path / "c.pcap").write_bytes(content + b"\xff" * 40)
    (tmp_path / "d.pcap.gz").write_bytes(gzip.compress(content)[:-20])
    found, run = readings(tmp_path)
    assert [(Path(each.name).name, each.damage) for each in found] == [
        ("a.pcap", {}),
        ("b.pcap", {"cut_in_record": 1}),
        ("c.pcap", {"impossible_record_length": 1}),
        ("d.pcap.gz", {"cut_in_compression": 1}),
    ]
    assert [each.records for each in found][:3] == [3, 2, 3]
    warnings = list(run_warnings(run.samples(), found))
    assert warnings[0] == f"{tmp_path}/b.pcap: cut in record, after 2 whole records"
    assert len(warnings) == 3


def test_a_folder_that_is_followed_tells_of_its_files(tmp_path: Path) -> None:
    content = pcap_bytes([(NS, FRAME)] * 3, RAW_IP)
    for number, extent in enumerate((content, content + b"\xff" * 40, content + b"\xff" * 40, b"no capture" * 10)):
        (tmp_path / f"{number}.pcap").write_bytes(extent)
        os.utime(tmp_path / f"{number}.pcap", (number, number))
    plan = compile_query("SELECT count(*) AS n FROM M")
    run = InlineRun([plan], bind_streams({"M": [str(tmp_path)]}, follow=True))

    def stop_when_read() -> None:
        while run.samples().total(RECORDS_READ) < 9 or not run.samples().total(FILES_REFUSED):
            os.sched_yield()
        run.stop()

    stopper = threading.Thread(target=stop_when_read, daemon=True)
    stopper.start()
    assert [row["n"] for _, batch in run.results() for row in batch.to_pylist()] == [9]
    stopper.join()
    assert list(run_warnings(run.samples(), run.readings())) == [
        f"{tmp_path}: impossible record length, in 2 files",
        f"{tmp_path}: 1 file skipped, not readable as capture data",
    ]


def test_records_of_unsupported_link_types_are_told_apart_from_answers(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pcap_bytes([(NS, FRAME)] * 3, 147))
    (tmp_path / "b.pcap.gz").write_bytes(gzip.compress(pcap_bytes([(NS, FRAME)] * 2, 148)))
    found, run = readings(tmp_path)
    assert [(each.records, each.unsupported, each.link_types) for each in found] == [(3, 3, (147,)), (2, 2, (148,))]
    nothing = describe_unsupported(run.samples(), found)
    assert nothing is not None
    assert nothing.startswith("all 5 records are of link types that are not supported (147, 148); supported: 0 (")
    (tmp_path / "c.pcap").write_bytes(pcap_bytes([(NS, FRAME)], RAW_IP))
    found, run = readings(tmp_path)
    assert describe_unsupported(run.samples(), found) is None
    assert list(run_warnings(run.samples(), found)) == [
        f"{tmp_path}/a.pcap: 3 of 3 records are of link type 147, not supported, and not in the answer",
        f"{tmp_path}/b.pcap.gz: 2 of 2 records are of link type 148, not supported, and not in the answer",
    ]


def test_inputs_without_records_are_no_unsupported_ones(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pcap_bytes([]))
    found, run = readings(tmp_path)
    assert found == [Reading(f"{tmp_path}/a.pcap", 0)]
    assert describe_unsupported(run.samples(), found) is None
    assert list(run_warnings(run.samples(), found)) == []


@pytest.mark.parametrize(
    ("kind", "noun"), [("flows", "flow record of NetFlow or IPFIX"), ("samples", "flow sample of sFlow")]
)
def test_an_input_without_exports_is_told_apart_from_an_empty_answer(kind: str, noun: str, tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pcap_bytes([(NS, FRAME)] * 3, RAW_IP))
    found, run = readings(tmp_path, sql=f"SELECT count(*) FROM M.{kind}")
    (warning,) = run_warnings(run.samples(), found)
    assert warning.startswith(f"no {noun} in the input: ")
    found, run = readings(tmp_path, sql="SELECT count(*) FROM M WHERE len > 65535")
    assert list(run_warnings(run.samples(), found)) == []


def test_flow_records_that_where_drops_are_in_the_input(tmp_path: Path) -> None:
    sets = [a_set(2, template(256, [(8, 4)])), a_set(256, bytes(4))]
    (tmp_path / "read.ipfix").write_bytes(ipfix(sets))
    found, run = readings(tmp_path, sql="SELECT count(*) FROM M.flows WHERE srcIP = '10.0.0.1'")
    assert list(run_warnings(run.samples(), found)) == []


def test_flow_records_whose_template_never_came_are_told_of(tmp_path: Path) -> None:
    sets = [a_set(256, bytes(12)), a_set(257, bytes(12))]
    (tmp_path / "data.ipfix").write_bytes(ipfix(sets) + ipfix(sets[:1], sequence=6))
    (tmp_path / "read.ipfix").write_bytes(ipfix([a_set(2, template(256, [(8, 4)])), sets[0]], domain=1))
    found, run = readings(tmp_path, sql="SELECT count(*) FROM M.flows")
    assert list(run_warnings(run.samples(), found)) == [
        f"{tmp_path}/data.ipfix: 3 sets of flow records arrived without their template, and are not in the answer"
    ]
    samples = run.samples()
    assert samples.total(FLOW_SETS_WAITING, link="M") == 3  # the file that is read last has none
    assert samples.total(FLOW_SESSIONS, link="M") == 2


def test_late_rows_are_told_of_once_for_all_inputs() -> None:
    samples = Samples()
    samples.add(LATE_PARTIALS, 5, "query")
    samples.add(LATE_ROWS, 1, "query")
    assert list(run_warnings(samples, [])) == [
        "1 late row missed a window that was already final: use a larger --slack"
    ]


def test_groups_beyond_a_cap_are_told_of_with_their_rows_where_they_are_counted() -> None:
    samples = Samples()
    samples.add(PARTIALS_BEYOND_CAP, 2, "query")
    assert list(run_warnings(samples, [])) == [
        "2 partials of groups beyond the CAP of RANGE ALL are not in the answer: use a larger CAP"
    ]
    samples.add(ROWS_BEYOND_CAP, 1234, "query")
    assert list(run_warnings(samples, [])) == [
        "1,234 rows of groups beyond the CAP of RANGE ALL are not in the answer: use a larger CAP"
    ]


def test_rows_forgotten_beyond_the_limit_are_told_of() -> None:
    samples = Samples()
    samples.add(ROWS_FORGOTTEN, 12, "query")
    (warning,) = run_warnings(samples, [])
    assert warning.startswith("DISTINCT ON or MERGE has forgotten 12 rows before WITHIN had passed")
