"""Queries over sFlow samples, from the bytes of a capture to the answer.

* A capture to know by heart catches a scale factor, an address or an interface that gets lost between the levels.
* A link whose every frame is known, sampled by known rates, catches an estimate that is not the definition's.
* The same on Spark catches what a task that sees one piece of a file does otherwise.
"""

import gzip
import io
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from capture.metrics import SFLOW_SAMPLES, SFLOW_SEQUENCES
from dashboards.output.formats import Format
from dashboards.output.writers import write_results
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from highlevel.spark.run_folder.result_files import read_results
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.sflow_bytes import counter_sample, datagram, flow_sample, header_record, ip_record, udp_frame

MINUTE = "[RANGE 1 minute, SLIDE 1 minute, WA ts]"
SCALED = f"""SELECT srcIP, count(*) AS samples, sum(sampling_rate) AS packets, sum(len * sampling_rate) AS bytes
             FROM samples {MINUTE} GROUP BY srcIP"""


def frame(source: str, size: int = 0) -> bytes:
    network = IPv6(src=source, dst="2001:db8::99") if ":" in source else IP(src=source, dst="10.0.0.99")
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / network / UDP() / Raw(bytes(size)))


def sample(data: bytes, rate: int, **options: object) -> bytes:
    return flow_sample([header_record(data[:128], wire=len(data) + 4, stripped=4)], rate=rate, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two devices that export to one collector, which is captured; times are seconds since the epoch."""
    arp = bytes(Ether(src="02:00:00:00:00:07", dst="ff:ff:ff:ff:ff:ff") / ARP())
    record = flow_sample([ip_record("10.0.0.3", "10.0.0.99", 1000, 6, (80, 81), 2, 0)], rate=1, source=(0, 9))
    datagrams = [
        (1, "198.51.100.1", datagram([
            sample(frame("10.0.0.1", 54), 100, sequence=1, input_if=(0, 3), output_if=(0, 4)),
            sample(frame("10.0.0.1", 154), 100, sequence=2, input_if=(0, 3), output_if=(2, 5)),
        ], agent="10.9.9.1", sequence=1)),
        (59, "198.51.100.1", datagram([counter_sample(), sample(frame("2001:db8::1", 34), 100, sequence=3)],
                                      agent="10.9.9.1", sequence=2)),
        (61, "198.51.100.2", datagram([sample(arp, 8, expanded=True, input_if=(0, 7)), record], agent="10.9.9.2")),
        (62, "198.51.100.1", datagram([sample(frame("10.0.0.1", 54), 200, sequence=6, input_if=(0, 3))],
                                      agent="10.9.9.1", sequence=5)),
    ]  # fmt: skip
    records = [(second * NS, udp_frame(payload, source=source)) for second, source, payload in datagrams]
    (tmp_path / "collector.pcap").write_bytes(pcap_bytes(records))
    return tmp_path


def csv(sql: str, folder: Path) -> list[str]:
    """The rows of the answer in the order of their text, without the header."""
    plan = compile_query(sql)
    sink = io.BytesIO()
    write_results((batch for _, batch in InlineRun([plan], bind_files([str(folder)]), 8).results()), plan.schema,
                  Format.CSV, sink)  # fmt: skip
    return sorted(sink.getvalue().decode().splitlines()[1:])


def test_samples_are_scaled_to_what_they_stand_for(folder: Path) -> None:
    # Frames of 96 + 4, 196 + 4 and 96 + 4 bytes with their checksums; the ARP frame has 42 + 4.
    assert csv(SCALED, folder) == [
        "0,60000000000,10.0.0.1,2,200,30000",
        "0,60000000000,2001:db8::1,1,100,10000",
        "60000000000,120000000000,,1,8,368",
        "60000000000,120000000000,10.0.0.1,1,200,20000",
        "60000000000,120000000000,10.0.0.3,1,1,1000",
    ]


def test_samples_in_a_compressed_capture_are_the_same(folder: Path) -> None:
    whole = csv(SCALED, folder)
    capture = folder / "collector.pcap"
    (folder / "collector.pcap.gz").write_bytes(gzip.compress(capture.read_bytes()))
    capture.unlink()
    assert csv(SCALED, folder) == whole
    plan = compile_query(SCALED)
    run = InlineRun([plan], bind_files([str(folder)]), 8)
    assert sum(batch.num_rows for _, batch in run.results()) == 5
    assert run.samples().total(SFLOW_SEQUENCES, event="samples_missing") == 2


def test_samples_are_grouped_by_what_devices_say(folder: Path) -> None:
    sql = "SELECT exporter, agent, input_if, output_if, sum(sampling_rate) AS packets FROM samples"
    assert csv(f"{sql} GROUP BY exporter, agent, input_if, output_if", folder) == [
        "198.51.100.1,10.9.9.1,,,100",
        "198.51.100.1,10.9.9.1,3,,300",
        "198.51.100.1,10.9.9.1,3,4,100",
        "198.51.100.2,10.9.9.2,,,1",
        "198.51.100.2,10.9.9.2,7,,8",
    ]
    assert csv("SELECT destMAC, count(*) FROM samples WHERE ip_version IS NULL GROUP BY destMAC", folder) == [
        "ff:ff:ff:ff:ff:ff,1"
    ]
    assert csv("SELECT tcp_flags, destPort, count(*) FROM collector.samples WHERE protocol = 6 "
               "GROUP BY tcp_flags, destPort", folder) == ["2,81,1"]  # fmt: skip


def test_what_was_lost_on_the_way_is_counted(folder: Path) -> None:
    run = InlineRun([compile_query(SCALED)], bind_files([str(folder)]), 8)
    assert sum(batch.num_rows for _, batch in run.results()) == 5
    assert run.samples().total(SFLOW_SAMPLES, kind="flow") == 6
    assert run.samples().total(SFLOW_SEQUENCES, event="datagrams_missing") == 2
    assert run.samples().total(SFLOW_SEQUENCES, event="samples_missing") == 2


def test_packets_and_samples_of_one_capture_are_two_streams(folder: Path) -> None:
    assert csv("SELECT count(*) FROM packets", folder) == ["4"]
    assert csv("SELECT count(*) FROM frames", folder) == ["4"]
    assert csv("SELECT count(*) FROM samples", folder) == ["6"]


def sampled_link(path: Path, seed: int) -> dict[tuple, tuple[int, int, int]]:
    """A disordered capture of one agent's export, and a dict from (window, source) to the estimated totals."""
    random = Random(seed)
    truth: dict[tuple, list[int]] = defaultdict(lambda: [0, 0, 0])
    records = []
    for sequence in range(400):
        second = sequence + random.randrange(-20, 20)
        samples = []
        for number in range(random.randrange(1, 8)):
            source = random.choice(["10.0.0.1", "10.0.0.2", "2001:db8::7", f"10.1.0.{random.randrange(200)}"])
            data, rate = frame(source, random.randrange(900)), random.choice([1, 100, 4096, 2**31])
            samples.append(sample(data, rate, expanded=random.random() < 0.5, sequence=number))
            counted = truth[second // 60 * 60 * NS, source]
            for place, amount in enumerate((1, rate, (len(data) + 4) * rate)):
                counted[place] += amount
        records.append((second * NS, udp_frame(datagram(samples, sequence=sequence), port=random.choice([6343, 7000]))))
    path.write_bytes(pcap_bytes([(1000 * 60 * NS + ts, data) for ts, data in records]))
    return {(1000 * 60 * NS + start, source): tuple(counted) for (start, source), counted in truth.items()}


def answered(plan: Plan, batches: Iterable[pa.RecordBatch]) -> dict[tuple, tuple[int, int, int]]:
    """An answer to SCALED as `sampled_link` has it."""
    sink = io.BytesIO()
    write_results(batches, plan.schema, Format.CSV, sink)
    rows = [line.split(",") for line in sink.getvalue().decode().splitlines()[1:]]
    return {(int(start), source): tuple(map(int, counted)) for start, _, source, *counted in rows}


@pytest.mark.parametrize("slots", [16, 16384])
def test_estimates_are_sums_of_what_samples_stand_for(slots: int, tmp_path: Path) -> None:
    truth = sampled_link(tmp_path / "link.pcap", slots)
    plan = compile_query(SCALED)
    run = InlineRun([plan], [Input("link", tmp_path / "link.pcap")], slots)
    assert answered(plan, (batch for _, batch in run.results())) == truth


@pytest.mark.spark
def test_both_spark_engines_give_the_same_estimates(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import run_batch
    from highlevel.spark.stream import StreamRun

    truth = sampled_link(tmp_path / "link.pcap", 3)
    plan, inputs = compile_query(SCALED), [Input("link", tmp_path / "link.pcap")]
    assert answered(plan, run_batch(spark, plan, inputs).to_batches()) == truth
    run = StreamRun(spark, [plan], inputs, tmp_path / "run")
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    assert answered(plan, read_results(tmp_path / "run" / "output", plan).to_batches()) == truth
