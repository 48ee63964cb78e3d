"""Rows that the product decodes from datagrams: one dict of plain values per record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import numpy as np

from capture.flows.decoder import Datagrams, FlowDecoder, Flows
from lowlevel.expressions.columns import AddressVector, TextVector, Vector
from lowlevel.rows.flows import FlowColumns

Sent = tuple[bytes, tuple[str | None, int], int]
"""A datagram, its sender's address and port, and when it arrived."""


def laid_out(sent: Sequence[Sent], gap: int = 3) -> tuple[np.ndarray, Datagrams]:
    """Datagrams in one buffer, with bytes between them that are no zeros."""
    data = b"".join(payload + b"\xff" * gap for payload, _, _ in sent) or b"\xff"
    rows: list[list[int]] = [[] for _ in range(7)]
    at = 0
    for payload, (address, port), arrival in sent:
        number = int(ip_address(address)) if address else 0
        high, low = (each - 2**64 if each >= 2**63 else each for each in divmod(number, 2**64))
        version = ip_address(address).version if address else 0
        for row, value in zip(rows, (at, len(payload), arrival, version, high, low, port), strict=True):
            row.append(value)
        at += len(payload) + gap
    return np.frombuffer(data, np.uint8), Datagrams.of(*rows)


def rows_of(flows: Flows, columns: Iterable[str]) -> list[dict[str, Any]]:
    """The rows of one batch, every column asked for."""
    vectors = FlowColumns("link", flows)
    values = {name: plain(vectors[name], flows.row_count) for name in columns}
    return [{name: values[name][row] for name in values} for row in range(flows.row_count)]


def plain(vector: Any, rows: int) -> list[Any]:
    """Return a vector as Python values, with None for NULL."""
    valid = [True] * rows if vector.valid is None else vector.valid.tolist()
    if isinstance(vector, AddressVector):
        found: list[Any] = []
        parts = (np.broadcast_to(each, rows).tolist() for each in (vector.version, vector.high, vector.low))
        for version, high, low in zip(*parts, strict=True):
            makers = {0: lambda _: None, 4: IPv4Address, 6: IPv6Address}
            found.append(makers[version](high << 64 | low))
        assert [each is not None for each in found] == valid
        return found
    if isinstance(vector, TextVector):
        assert len(set(vector.names)) == len(vector.names)
        values = [vector.names[each] for each in np.broadcast_to(vector.ids, rows).tolist()]
    else:
        assert isinstance(vector, Vector)
        values = np.broadcast_to(vector.data, rows).tolist()
    return [value if there else None for value, there in zip(values, valid, strict=True)]


def decode(sent: Sequence[Sent], columns: Sequence[str], capacity: int = 64, **settings: Any) -> list[dict[str, Any]]:
    """Every record that a new decoder makes of datagrams."""
    return decoded(FlowDecoder(columns, capacity, **settings), sent, columns)


def decoded(decoder: FlowDecoder, sent: Sequence[Sent], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Every record that a decoder makes of further datagrams."""
    data, datagrams = laid_out(sent)
    return [row for flows in decoder.decode(data, datagrams) for row in rows_of(flows, columns)]
