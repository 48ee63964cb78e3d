"""Names in payloads against dpkt, and against messages that are cut, changed or random: no error, and no wrong name."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import dpkt
import pytest

import wiretide
from lowlevel.expressions.payload_names import dns_name, http_host, tls_server_name
from tests.harness.command_line import run
from tests.references.small_captures import UDP, ip, write

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"


def random_name(random: Random) -> str:
    labels = ("".join(random.choices(LETTERS, k=random.randint(1, 20))) for _ in range(random.randint(1, 6)))
    return ".".join(labels)


def client_hello(name: bytes, random: Random, *, before: bool = True) -> bytes:
    """Return a record with a ClientHello. Other extensions come before the name, or after it."""
    server_name = struct.pack(">HHHBH", 0, len(name) + 5, len(name) + 3, 0, len(name)) + name
    other = struct.pack(">HH", 0xFF01, 1) + b"\0" + struct.pack(">HH", 10, 4) + b"\0\2\0\x1d"
    extensions = other + server_name if before else server_name + other
    session, ciphers = random.randbytes(random.choice([0, 32])), random.randbytes(2 * random.randint(1, 20))
    body = b"\3\3" + random.randbytes(32) + bytes([len(session)]) + session
    body += struct.pack(">H", len(ciphers)) + ciphers + b"\1\0" + struct.pack(">H", len(extensions)) + extensions
    handshake = b"\1" + len(body).to_bytes(3, "big") + body
    return b"\x16\3\1" + struct.pack(">H", len(handshake)) + handshake


@pytest.mark.parametrize("seed", range(10))
def test_names_are_those_of_dpkt(seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        name = random_name(random)
        query = dpkt.dns.DNS(id=random.getrandbits(16), qd=[dpkt.dns.DNS.Q(name=name, type=random.randint(1, 50))])
        message = bytes(query)
        assert dns_name(message) == dpkt.dns.DNS(message).qd[0].name.lower() == name.lower()
        hello = client_hello(name.encode(), random, before=random.random() < 0.5)
        (extension,) = [data for kind, data in dpkt.ssl.TLSHandshake(hello[5:]).data.extensions if kind == 0]
        assert tls_server_name(hello) == extension[5:].decode().lower() == name.lower()
        method = random.choice(["GET", "POST", "DELETE"])
        host = f"{name}:{random.randint(1, 65535)}" if random.random() < 0.3 else name
        text = f"{method} /{random_name(random)} HTTP/1.{random.randint(0, 1)}\r\nAccept: */*\r\nhOsT:  {host} \r\n\r\n"
        assert http_host(text.encode()) == dpkt.http.Request(text.encode()).headers["host"].strip().lower()


@pytest.mark.parametrize("seed", range(10))
def test_messages_that_are_cut_or_changed_have_no_wrong_name(seed: int) -> None:
    random = Random(seed)
    name = random_name(random)
    messages = {
        dns_name: bytes(dpkt.dns.DNS(qd=[dpkt.dns.DNS.Q(name=name)])),
        tls_server_name: client_hello(name.encode(), random),
        http_host: f"GET / HTTP/1.1\r\nHost: {name}\r\n\r\n".encode(),
    }
    for parse, message in messages.items():
        for size in range(len(message)):
            assert parse(message[:size]) in (None, name.lower())
        for _ in range(300):
            changed = bytearray(message)
            for _ in range(random.randint(1, 4)):
                changed[random.randrange(len(changed))] = random.getrandbits(8)
            found = parse(bytes(changed))
            assert found is None or (found.isprintable() and found.isascii())
        for other, foreign in messages.items():
            if other is not parse and parse is not dns_name:  # a message of DNS has no mark of its own
                assert parse(foreign) is None
        for _ in range(300):
            parse(random.randbytes(random.randint(0, 100)))


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (b"", None),
        (bytes(12), None),
        (b"\0\0\1\0\0\1" + bytes(6) + b"\0", "."),
        (b"\0\0\1\0\0\1" + bytes(6) + b"\3a.b\2\\\x1b\0", "a\\.b.\\\\\\027"),
        (b"\0\0\1\0\0\1" + bytes(6) + b"\xc0\x0c", None),
        (b"\0\0\1\0\0\1" + bytes(6) + b"\x3f" + b"x" * 63 + b"\0", "x" * 63),
        (b"\0\0\1\0\0\1" + bytes(6) + (b"\x3f" + b"x" * 63) * 4 + b"\0", None),
    ],
)
def test_labels_are_bounded_and_escaped(payload: bytes, name: str | None) -> None:
    assert dns_name(payload) == name


@pytest.mark.parametrize(
    ("payload", "host"),
    [
        (b"GET / HTTP/1.1\r\nHost: A.example\r\n\r\n", "a.example"),
        (b"GET / HTTP/1.1\nhost:b\n\n", "b"),
        (b"GET / HTTP/1.1\r\n\r\nHost: body\r\n", None),
        (b"GET / HTTP/1.1\r\nHost: cut", None),
        (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", None),
        (b"GET /\r\nHost: a\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nHost: a\r\n\r\n", None),
        (b"GET / HTTP/1.1\r\nHost: a\x1b[2Jb\r\n\r\n", "a\\027[2jb"),
        (b"PRI * HTTP/2.0\r\n\r\n", None),
    ],
)
def test_hosts_of_requests(payload: bytes, host: str | None) -> None:
    assert http_host(payload) == host


def test_queries_group_by_names(tmp_path: Path) -> None:
    questions = [b"\0\1\1\0\0\1" + bytes(6) + b"\3www\7example\0\0\1\0\1"] * 3 + [b"short"]
    packets = [
        (
            second,
            ip(
                "10.0.0.1",
                "10.0.0.9",
                UDP,
                struct.pack(">HHHH", 9, 53, 8 + len(payload), 0) + payload,
                28 + len(payload),
            ),
        )
        for second, payload in enumerate(questions)
    ]
    path = write(tmp_path / "M.pcap", packets)
    sql = "SELECT name, count(*) AS n FROM (SELECT ts, dns_name(payload) AS name FROM packets) GROUP BY name"
    rows = {row["name"]: row["n"] for row in wiretide.query(sql, path).to_pylist()}
    assert rows == {"www.example": 3, None: 1}
    sql = "SELECT count(*) AS n FROM packets WHERE dns_name(payload) LIKE '%.example'"
    assert wiretide.query(sql, path).to_pylist() == [{"n": 3}]


@pytest.mark.slow("a process")
def test_generated_traffic_has_names(tmp_path: Path) -> None:
    words = ("--duration", "20", "--rate", "1", "--traffic", "dns:2", "--traffic", "http:2", "--traffic", "tls:2")
    assert run("generate", "a.pcap", *words, cwd=tmp_path)[0] == 0
    for function, port in (("dns_name", 53), ("http_host", 80), ("tls_server_name", 443)):
        sql = f"SELECT count(*) AS n FROM packets WHERE destPort = {port} AND {function}(payload) IS NOT NULL"
        (row,) = wiretide.query(sql, tmp_path / "a.pcap").to_pylist()
        assert row["n"] > 5, function
