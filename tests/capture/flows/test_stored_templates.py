"""Announcements of exporters, written to a file and read back: nothing is lost, and damaged files are refused."""

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

from capture.errors import InputError
from capture.files.capture import Capture
from capture.files.rotation import TEMPLATES_FILE as NAME
from capture.flows.decoder import FlowDecoder
from capture.flows.stored_templates import FORMAT, load, load_for_capture, save
from capture.flows.templates import DecoderLimits
from capture.open import open_capture
from lowlevel.rows.flows import FlowReader
from tests.references.flow_comparison import COLUMNS, same
from tests.references.flow_rows import decoded
from tests.references.netflow_bytes import Spec, a_set, ipfix, ipfix_options, template, v9, v9_options
from tests.references.random_flows import random_stream

SENDER = ("192.0.2.1", 2055)


def taught() -> FlowDecoder:
    """A decoder that has heard templates, rates and starts from several."""
    decoder = FlowDecoder(COLUMNS, 64)
    fields: list[Spec] = [(8, 4), (2, 4), (48, 2), (371, 65535), (7, 2, 5951)]
    sent = [
        (v9([a_set(0, template(256, fields[:3])), a_set(1, v9_options(300, [(1, 4)], [(48, 2), (50, 4)])),
             a_set(300, struct.pack(">IHI", 0, 7, 100))]), SENDER, 0),
        (v9([a_set(1, v9_options(301, [(1, 4)], [(34, 4)])), a_set(301, struct.pack(">II", 0, 10))]), SENDER, 0),
        (ipfix([a_set(2, template(256, fields)), a_set(3, ipfix_options(300, [(149, 4)], [(160, 8)])),
                a_set(300, struct.pack(">IQ", 0, 1_600_000_000_123))], domain=2**32 - 1), ("2001:db8::1", 4739), 0),
        (v9([a_set(0, template(400, [(1, 4)]))]), (None, 0), 0),
    ]  # fmt: skip
    decoded(decoder, sent, COLUMNS)
    return decoder


def known(decoder: FlowDecoder) -> dict[Any, Any]:
    return {
        session.key: (
            session.templates,
            session.sampling.default_rate,
            session.sampling.rates_by_key,
            session.exporter_start,
        )
        for session in decoder.sessions
        if session.key.version in (9, 10)
    }


def test_what_was_announced_is_known_again(tmp_path: Path) -> None:
    path = tmp_path / NAME
    first = taught()
    save(path, first)
    second = FlowDecoder(COLUMNS, 64)
    assert load(path, second) == 3
    assert known(second) == known(first)
    data = [
        (v9([a_set(256, bytes(8) + struct.pack(">H", 7) + bytes(8) + struct.pack(">H", 9))]), SENDER, 0),
        (v9([a_set(400, bytes(4))]), (None, 0), 0),
    ]
    rows = decoded(second, data, COLUMNS)
    same(rows, decoded(first, data, COLUMNS))
    assert [row["sampling_rate"] for row in rows] == [100, 10, None]


@pytest.mark.parametrize("seed", range(3))
def test_a_decoder_stopped_anywhere_goes_on_from_its_file(tmp_path: Path, seed: int) -> None:
    sent = random_stream(Random(seed), 300)
    whole = FlowDecoder(COLUMNS, 64)
    expected = [decoded(whole, sent[:150], COLUMNS), decoded(whole, sent[150:], COLUMNS)]
    first = FlowDecoder(COLUMNS, 64)
    assert len(decoded(first, sent[:150], COLUMNS)) == len(expected[0])
    first.waiting.sets.clear()  # what waits is not kept
    save(tmp_path / NAME, first)
    second = FlowDecoder(COLUMNS, 64)
    load(tmp_path / NAME, second)
    rows = decoded(second, sent[150:], COLUMNS)
    if not len(whole.waiting):
        same(rows, expected[1])
    assert rows


def test_the_file_is_replaced_as_a_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / NAME
    for _ in range(3):
        save(path, taught())
    assert [each.name for each in tmp_path.iterdir()] == [NAME]
    assert json.loads(path.read_text())["format"] == FORMAT


def test_a_capture_is_read_by_the_file_beside_it(tmp_path: Path) -> None:
    save(tmp_path / NAME, taught())
    path = tmp_path / "a.dat"
    path.write_bytes(v9([a_set(400, struct.pack(">I", 77))]))
    capture = open_capture(path)
    assert isinstance(capture, Capture)
    assert len(FlowReader("link", capture, ["ts"], 64).decoder.sessions) == 3
    (tmp_path / NAME).write_text('{"mappings": {}}')  # somebody else's
    assert load_for_capture(path, FlowDecoder(["ts"], 64)) == 0
    assert load_for_capture(Path("-"), FlowDecoder(["ts"], 64)) == 0


def test_bounds_hold_for_files_too(tmp_path: Path) -> None:
    save(tmp_path / NAME, taught())
    decoder = FlowDecoder(COLUMNS, 64, bounds=DecoderLimits(sessions=2, session_templates=1))
    load(tmp_path / NAME, decoder)
    assert len(decoder.sessions) == 2
    assert all(len(session.templates) <= 1 for session in decoder.sessions)


def damaged(**changes: Any) -> list[dict[str, Any]]:
    """One stored session in which something is not as it must be."""
    good: dict[str, Any] = {
        "exporter": "192.0.2.1", "port": 2055, "version": 9, "domain": 0, "started_ms": None, "sampling": None,
        "sampled": [], "templates": [{"id": 256, "options": False, "scope": 0, "fields": [[8, 4, 0]]}],
    }  # fmt: skip
    return [good | changes]


def stored(**changes: Any) -> dict[str, Any]:
    return {"id": 256, "options": False, "scope": 0, "fields": [[8, 4, 0]]} | changes


@pytest.mark.parametrize(
    "sessions",
    [
        damaged(version=5),
        damaged(version=True),
        damaged(port=65536),
        damaged(port="2055"),
        damaged(exporter="nobody"),
        damaged(domain=2**32),
        damaged(started_ms=-1),
        damaged(sampling=[1, 0]),
        damaged(sampling=[1]),
        damaged(sampled=[[3, 1, 1, 1]]),
        damaged(sampled=[[0, 1, 1, 1]] * 2000),
        damaged(templates=[stored(id=255)]),
        damaged(templates=[stored(options=1)]),
        damaged(templates=[stored(scope=2)]),
        damaged(templates=[stored(fields=[])]),
        damaged(templates=[stored(fields=[[8, 0, 0]])]),
        damaged(templates=[stored(fields=[[8, 4]])]),
        damaged(templates=[stored(fields=[[8, 4, 0]] * 513)]),
        damaged(templates=None),
        [None],
        None,
    ],
)
def test_a_damaged_file_is_refused_and_teaches_nothing(tmp_path: Path, sessions: Any) -> None:
    path = tmp_path / NAME
    path.write_text(json.dumps({"format": FORMAT, "sessions": sessions}))
    decoder = FlowDecoder(["ts"], 64)
    with pytest.raises(InputError, match="damaged"):
        load(path, decoder)
    assert len(decoder.sessions) == 0


def test_what_is_no_file_of_templates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / NAME
    for text, told in ((f'{{"format": "{FORMAT}"', "damaged"), ("[]", 'expected "format"'), ("\xff", "expected")):
        path.write_text(text, "latin-1")
        with pytest.raises(InputError, match=told):
            load(path, FlowDecoder(["ts"], 64))
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "nothing", FlowDecoder(["ts"], 64))
