"""`text(payload)` and `hex(payload)`: the bytes of every packet, as Python writes them, and where they are refused."""

import struct
from pathlib import Path
from random import Random

import pytest

import wiretide
from queries.text.errors import QueryError
from tests.references.small_captures import UDP, ip, write

PAYLOADS = [b"", b"GET / HTTP", b"\x00\x1f ~\x7f\x80\xff", bytes(range(256)), b"abc", b"abc"]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    packets = [(second, frame(payload)) for second, payload in enumerate(PAYLOADS)]
    return write(tmp_path / "M.pcap", packets)


def frame(payload: bytes) -> bytes:
    segment = struct.pack(">HHHH", 1, 53, 8 + len(payload), 0) + payload
    return ip("10.0.0.1", "10.0.0.9", UDP, segment, 20 + len(segment))


def printable(payload: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte <= 126 else "." for byte in payload)


def test_rows_have_the_bytes_as_text(capture: Path) -> None:
    sql = "SELECT ts, text(payload) AS t, hex(payload) AS h, left(hex(payload), 4) AS first FROM packets ORDER BY ts"
    rows = wiretide.query(sql, capture).to_pylist()
    assert [row["t"] for row in rows] == [printable(payload) for payload in PAYLOADS]
    assert [row["h"] for row in rows] == [payload.hex() for payload in PAYLOADS]
    assert [row["first"] for row in rows] == [payload.hex()[:4] for payload in PAYLOADS]


def test_texts_are_right_in_every_batch_and_thread(tmp_path: Path) -> None:
    random = Random(7)
    payloads = [random.randbytes(random.choice([0, 1, 3])) for _ in range(2000)]
    packets = [(second, frame(payload)) for second, payload in enumerate(payloads)]
    path = write(tmp_path / "M.pcap", packets)
    sql = "SELECT t, count(*) AS n FROM (SELECT ts, hex(payload) AS t FROM packets) GROUP BY t"
    counts = {row["t"]: row["n"] for row in wiretide.query(sql, path, threads=2).to_pylist()}
    assert counts == {payload.hex(): sum(other == payload for other in payloads) for payload in payloads}


def test_conditions_over_the_text(capture: Path) -> None:
    sql = "SELECT count(*) AS n FROM packets WHERE text(payload) LIKE 'GET %' OR upper(text(payload)) = 'ABC'"
    assert wiretide.query(sql, capture).to_pylist() == [{"n": 3}]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT text(payload) AS t, count(*) FROM packets GROUP BY t", "GROUP BY over the text of bytes"),
        ("SELECT upper(hex(payload)), count(*) FROM packets GROUP BY upper(hex(payload))", "GROUP BY over the text"),
        ("SELECT DISTINCT text(payload) AS t FROM packets", "over the text of bytes"),
        ("SELECT min(text(payload)) FROM packets", "min over the text of bytes"),
        ("SELECT count(DISTINCT srcIP, hex(payload)) FROM packets", "count_distinct over the text of bytes"),
        ("SELECT hex(link) FROM packets", "hex over a value of type text"),
        ("SELECT text(len) FROM packets", "text over a value of type integer"),
        ("SELECT text(payload, 3) FROM packets", "text with 2 arguments"),
    ],
)
def test_texts_of_bytes_are_no_keys(sql: str, message: str, capture: Path) -> None:
    with pytest.raises(QueryError, match=message) as caught:
        wiretide.query(sql, capture)
    assert caught.value.expected
