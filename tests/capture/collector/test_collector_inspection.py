"""Decoding on the side: what is counted of datagrams of every kind, from senders of both families.

The tests detect an offset into the recorded headers that is wrong for an address family, and sFlow read as NetFlow or
the reverse. They detect garbage that stops the decoding of later datagrams. They detect templates that are lost with
the process that learned them.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from bench.datagram_sender import RECORDS
from bench.datagram_sender import datagram as netflow
from capture.collector import inspection as inspection_module
from capture.collector.chunks import BATCH_DATAGRAMS, CHUNK_BYTES, Batch
from capture.collector.inspection import MAX_DATAGRAMS, ExportInspector, list_datagrams
from capture.collector.recorder import Recorder
from capture.collector.sockets import UdpSocket
from capture.metrics import (
    FLOW_DATAGRAMS,
    FLOW_DATAGRAMS_REFUSED,
    FLOW_RECORDS,
    FLOW_SETS_WAITING,
    METRICS,
    SFLOW_DATAGRAMS,
    SFLOW_SAMPLES,
)
from tests.harness.collected import Datagram, port_only
from tests.references.netflow_bytes import a_set, template, v9
from tests.references.recorded_datagrams import START, fill, run, settings
from tests.references.sflow_bytes import datagram as sflow
from tests.references.sflow_bytes import flow_sample, header_record

IPV4, IPV6 = "192.0.2.1", "2001:db8::1"


@pytest.fixture
def udp() -> UdpSocket:
    return port_only()


def records(received_at: UdpSocket, *sent: tuple[str, bytes]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The records that come of payloads from senders."""
    batch = Batch()
    recorder = Recorder(settings(rotate_every=0), batch)
    fill(batch, [Datagram(START, source, 4000, source, received_at.port, payload) for source, payload in sent])
    return np.frombuffer(b"".join(data for _, data in run(recorder, received_at, len(sent))), np.uint8)


SAMPLED = sflow([flow_sample([header_record(bytes(64))]), flow_sample([header_record(bytes(64))], sequence=2)])


def test_exports_are_counted_by_sender_and_kind(udp: UdpSocket, tmp_path: Path) -> None:
    inspector = ExportInspector(tmp_path / "here", print)
    sent = [(IPV4, netflow()), (IPV6, netflow()), (IPV6, SAMPLED), (IPV4, SAMPLED), (IPV6, netflow())]
    inspector.inspect(records(udp, *sent))
    inspector.inspect(records(udp, (IPV4, netflow())))
    samples = inspector.samples()
    for exporter, datagrams in ((IPV4, 2), (IPV6, 2)):
        assert samples.total(FLOW_DATAGRAMS, link="here", exporter=exporter, version="5") == datagrams
        assert samples.total(FLOW_RECORDS, link="here", exporter=exporter) == datagrams * RECORDS
    assert samples.total(FLOW_DATAGRAMS) == 4
    assert samples.total(SFLOW_DATAGRAMS) == 2
    assert samples.total(SFLOW_SAMPLES, kind="flow") == 4
    assert {name for name, _ in samples} <= {metric.name for metric in METRICS}


def test_what_is_no_export_is_counted_and_hides_nothing(udp: UdpSocket, tmp_path: Path) -> None:
    inspector = ExportInspector(tmp_path / "here", print)
    garbage = [b"", b"\0", b"\0\0\0", b"\0\0\0\5", b"\0\x09", b"\xff" * 65_507, b"\0\5" + bytes(10)]
    sent = [pair for each in garbage for pair in ((IPV4, each), (IPV6, each), (IPV4, netflow()))]
    inspector.inspect(records(udp, *sent))
    samples = inspector.samples()
    assert samples.total(FLOW_RECORDS) == len(garbage) * RECORDS
    # b"\0\0\0\5" alone begins as sFlow does.
    assert samples.total(FLOW_DATAGRAMS_REFUSED) == 2 * (len(garbage) - 1)


@pytest.mark.parametrize("seed", range(5))
def test_the_plain_twin_lists_the_same_datagrams(
    seed: int, udp: UdpSocket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    random = Random(seed)
    kinds = [b"", netflow(), SAMPLED, b"\0\0\0\5", random.randbytes(random.randrange(100))]
    sent = [(random.choice([IPV4, IPV6]), random.choice(kinds)) for _ in range(BATCH_DATAGRAMS)]
    found = []
    for kernel in (list_datagrams, list_datagrams.function):
        monkeypatch.setattr(inspection_module, "list_datagrams", kernel)
        inspector = ExportInspector(tmp_path / "here", print)
        inspector.inspect(records(udp, *sent))
        found.append((inspector._flow_datagrams.copy(), inspector._sflow_datagrams.copy(), inspector.samples()))
    assert (found[0][0] == found[1][0]).all()
    assert (found[0][1] == found[1][1]).all()
    assert found[0][2] == found[1][2]


def test_a_chunk_of_nothing_but_empty_datagrams_has_room(udp: UdpSocket, tmp_path: Path) -> None:
    [one] = [records(udp, (IPV4, b""))]
    chunk = np.tile(one, CHUNK_BYTES // len(one))
    assert CHUNK_BYTES - len(one) < len(chunk) <= CHUNK_BYTES
    inspector = ExportInspector(tmp_path / "here", print)
    inspector.inspect(chunk)
    assert inspector.samples().total(FLOW_DATAGRAMS_REFUSED) == len(chunk) // len(one) == MAX_DATAGRAMS - 1


FIELDS = [(8, 4), (2, 4)]  # sourceIPv4Address, packetDeltaCount
DATA = a_set(300, bytes([10, 0, 0, 1, 0, 0, 0, 7]))


def test_what_was_announced_before_a_restart_is_known_after_it(udp: UdpSocket, tmp_path: Path) -> None:
    first = ExportInspector(tmp_path, pytest.fail)
    first.inspect(records(udp, (IPV4, v9([a_set(0, template(300, FIELDS))])), (IPV6, v9([DATA]))))
    assert first.samples().total(FLOW_RECORDS) == 0
    first.close()
    second = ExportInspector(tmp_path, pytest.fail)
    second.inspect(records(udp, (IPV4, v9([DATA])), (IPV6, v9([DATA]))))
    samples = second.samples()
    assert samples.total(FLOW_RECORDS, exporter=IPV4) == 1
    assert samples.total(FLOW_RECORDS, exporter=IPV6) == 0  # it has announced nothing
    assert samples.total(FLOW_SETS_WAITING) == 1


def test_templates_are_kept_at_once_and_then_only_when_there_is_something_new(udp: UdpSocket, tmp_path: Path) -> None:
    inspector = ExportInspector(tmp_path, pytest.fail)
    announced = records(udp, (IPV4, v9([a_set(0, template(300, FIELDS))])))
    inspector.inspect(announced)
    kept = tmp_path / "templates.json"
    assert kept.exists()
    kept.unlink()
    inspector.inspect(announced)  # the same again
    inspector.close()
    assert list(tmp_path.iterdir()) == []
    inspector = ExportInspector(tmp_path, pytest.fail)
    inspector.inspect(announced)
    inspector.inspect(records(udp, (IPV4, v9([a_set(0, template(301, FIELDS))]))))
    inspector.close()
    assert [each["id"] for each in json.loads(kept.read_text())["sessions"][0]["templates"]] == [300, 301]


@pytest.mark.parametrize("text", ["{}", "", '{"format": "wiretide flow templates, version 1", "sessions": [{}]}'])
def test_a_file_of_templates_that_cannot_be_read_is_warned_of_and_left_alone(
    text: str, udp: UdpSocket, tmp_path: Path
) -> None:
    (tmp_path / "templates.json").write_text(text)
    warned: list[str] = []
    inspector = ExportInspector(tmp_path, warned.append)
    inspector.inspect(records(udp, (IPV4, v9([a_set(0, template(300, FIELDS)), DATA]))))
    inspector.close()
    assert inspector.samples().total(FLOW_RECORDS) == 1
    [warning] = warned
    assert "templates.json" in warning
    assert "templates are not kept" in warning
    assert (tmp_path / "templates.json").read_text() == text


def test_a_folder_that_is_gone_costs_the_templates_alone(udp: UdpSocket, tmp_path: Path) -> None:
    warned: list[str] = []
    inspector = ExportInspector(tmp_path / "gone", warned.append)
    inspector.inspect(records(udp, (IPV4, v9([a_set(0, template(300, FIELDS)), DATA]))))
    inspector.close()
    assert inspector.samples().total(FLOW_RECORDS) == 1
    assert len(warned) == 1
