"""Addresses between kernels, Arrow and text.

Slices, chunks and NULLs catch an offset that is forgotten; random addresses of both versions catch a byte order that
is wrong.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from lowlevel.expressions.arrow import from_arrow, to_arrow, to_text


def random_addresses(version: int, count: int) -> list[IPv4Address] | list[IPv6Address]:
    random = Random(version)
    address, width = (IPv4Address, 32) if version == 4 else (IPv6Address, 128)
    return [address(random.getrandbits(width)) for _ in range(count - 2)] + [address(0), address(2**width - 1)]


@pytest.mark.parametrize("version", [4, 6])
def test_an_address_becomes_its_bytes_in_network_order_and_comes_back(version: int) -> None:
    addresses = random_addresses(version, 50)
    halves = np.array([divmod(int(address), 2**64) for address in addresses], np.uint64)
    column = to_arrow(version, halves[:, 0], halves[:, 1])
    column.validate(full=True)
    assert column.to_pylist() == [address.packed for address in addresses]
    back = from_arrow(column)
    assert (back.version.tolist(), back.valid) == ([version] * 50, None)
    assert [back.high.tolist(), back.low.tolist()] == halves.T.tolist()


def mixed() -> list[bytes | None]:
    random = Random(9)
    values = [address.packed for version in (4, 6) for address in random_addresses(version, 20)] + [None] * 8
    random.shuffle(values)
    return values


def test_mixed_versions_and_nulls_are_read_from_any_slice() -> None:
    values = mixed()
    column = pa.array(values, pa.binary())
    for start in range(len(values)):
        for stop in (start, start + 1, len(values)):
            part = values[start:stop]
            vector = from_arrow(column.slice(start, stop - start))
            valid = [True] * len(part) if vector.valid is None else vector.valid.tolist()
            assert valid == [value is not None for value in part]
            for place, value in enumerate(part):
                if value is not None:
                    number = int(vector.high[place]) << 64 | int(vector.low[place])
                    assert (vector.version[place], number) == (4 if len(value) == 4 else 6, int.from_bytes(value))


@pytest.mark.parametrize(("size", "version"), [(4, 4), (16, 6), (6, 0)])
def test_addresses_of_one_size_are_read_from_any_slice(size: int, version: int) -> None:
    values = [Random(size + place).randbytes(size) for place in range(20)]
    column = pa.array(values, pa.binary())
    for start in range(20):
        vector = from_arrow(column.slice(start, 7))
        numbers = [int(high) << 64 | int(low) for high, low in zip(vector.high, vector.low, strict=True)]
        assert numbers == [int.from_bytes(value) for value in values[start : start + 7]]
        assert (set(vector.version.tolist()), vector.valid) == ({version}, None)


def test_no_address_at_all_is_an_empty_column() -> None:
    for column in (pa.array([], pa.binary()), to_arrow(4, np.array([], np.uint64), np.array([], np.uint64))):
        assert len(from_arrow(column).low) == 0
        assert to_text(column).to_pylist() == []
    assert to_arrow(6, np.array([], np.uint64), np.array([], np.uint64)).to_pylist() == []


def test_text_is_the_shortest_and_reads_back_as_the_same_address() -> None:
    values = mixed()
    texts = to_text(pa.array(values, pa.binary())).to_pylist()
    assert [None if text is None else ip_address(text).packed for text in texts] == values
    chunks = pa.chunked_array([pa.array(values[:5], pa.binary()), pa.array(values[5:], pa.binary())])
    assert to_text(chunks).to_pylist() == texts
    assert to_text(pa.array(values, pa.binary()).slice(3, 7)).to_pylist() == texts[3:10]


@pytest.mark.parametrize(
    "address, text",
    [
        (bytes(16), "::"),
        (bytes.fromhex("20010db8000000000000000000000001"), "2001:db8::1"),
        (bytes.fromhex("20010db8000000010001000100010001"), "2001:db8:0:1:1:1:1:1"),
        (bytes.fromhex("00000000000000000000ffff0a000001"), "::ffff:10.0.0.1"),
        (bytes([192, 0, 2, 1]), "192.0.2.1"),
    ],
)
def test_text_follows_rfc_5952(address: bytes, text: str) -> None:
    assert to_text(pa.array([address])).to_pylist() == [text]


@pytest.mark.parametrize("version, size", [(4, 4), (6, 16)])
def test_a_short_column_behind_a_long_one_is_no_larger_than_alone(version: int, size: int) -> None:
    for rows in (100_000, 3):
        halves = np.arange(rows, dtype=np.uint64)
        column = to_arrow(version, halves, halves)
        assert column.get_total_buffer_size() == rows * size + 4 * (rows + 1)
