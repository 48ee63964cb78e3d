r"""Names of hosts in payloads: DNS questions, TLS server names, and the Host of HTTP requests.

A payload is the part of one packet after its UDP or TCP header; streams are not reassembled. So a name is found if it
is in the captured bytes of this packet. Otherwise, and for other payloads, the result is NULL.

Names are in lower case, because these names are case-insensitive. Bytes that are not printable ASCII are
`\DDD` with three decimal digits (RFC 1035 §5.1), so a name contains no control characters.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lowlevel.expressions.columns import BytesVector, Names, TextVector
from lowlevel.expressions.types import Function

MAX_SEARCHED_BYTES = 16_384
"""Maximum number of bytes that are searched in a payload."""

_ESCAPES = tuple(
    "\\" + chr(byte) if chr(byte) in ".\\" else chr(byte).lower() if 0x21 <= byte <= 0x7E else f"\\{byte:03d}"
    for byte in range(256)
)
"""The text of each byte in a label of DNS."""

_HOST_ESCAPES = tuple(
    "\\\\" if byte == 0x5C else chr(byte).lower() if 0x21 <= byte <= 0x7E else f"\\{byte:03d}" for byte in range(256)
)
"""The text of each byte in other names."""

DNS_HEADER, MAX_LABEL, MAX_NAME = 12, 63, 255
"""Bytes of the header of a DNS message; maximum bytes of a label and of a name."""


def dns_name(payload: bytes) -> str | None:
    """Return the name of the first question of a DNS message over UDP (RFC 1035 §4.1.2); the root is `.`."""
    if len(payload) < DNS_HEADER + 1 or payload[4:6] == b"\0\0":
        return None
    labels: list[str] = []
    offset = DNS_HEADER
    while offset < len(payload):
        length = payload[offset]
        if length == 0:
            return ".".join(labels) or "."
        offset += 1 + length
        if length > MAX_LABEL or offset > len(payload) or offset - DNS_HEADER > MAX_NAME - 1:
            return None
        labels.append("".join([_ESCAPES[byte] for byte in payload[offset - length : offset]]))
    return None


TLS_RECORD_HEADER_BYTES = 5
"""Bytes of the header of a TLS record."""

TLS_HANDSHAKE = 22
"""Content type of a TLS record with handshake messages."""

CLIENT_HELLO = 1
"""Type of the handshake message ClientHello."""

SERVER_NAME = 0
"""Type of the extension server_name."""

HOST_NAME = 0
"""Type of a name in the extension server_name: the name of a host."""


def tls_server_name(payload: bytes) -> str | None:
    """Return the server name of a TLS ClientHello (RFC 6066 §3, RFC 8446 §4.1.2)."""
    if len(payload) < TLS_RECORD_HEADER_BYTES + 38 or payload[0] != TLS_HANDSHAKE or payload[1] != 3:
        return None
    if payload[TLS_RECORD_HEADER_BYTES] != CLIENT_HELLO:
        return None
    offset = TLS_RECORD_HEADER_BYTES + 4 + 2 + 32  # after the header of the handshake, the version and the random value
    offset += 1 + _number(payload, offset, 1)  # the session
    offset += 2 + _number(payload, offset, 2)  # the cipher suites
    offset += 1 + _number(payload, offset, 1)  # the compression methods
    offset += 2  # the length of all extensions
    while offset + 4 <= len(payload):
        kind, length = _number(payload, offset, 2), _number(payload, offset + 2, 2)
        offset += 4
        if kind == SERVER_NAME:
            size = _number(payload, offset + 3, 2)
            name = payload[offset + 5 : offset + 5 + size]
            is_whole = 0 < size == len(name) and size <= length - 5 and payload[offset + 2] == HOST_NAME
            return _host(name) if is_whole else None
        offset += length
    return None


def _number(payload: bytes, offset: int, size: int) -> int:
    """Return a number of `size` bytes, 0 after the end of the payload."""
    return int.from_bytes(payload[offset : offset + size], "big") if offset + size <= len(payload) else 0


METHODS = (b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS ", b"CONNECT ", b"TRACE ", b"PATCH ")


def http_host(payload: bytes) -> str | None:
    """Return the header Host of an HTTP/1 request (RFC 9112 §3.2), with its port if it has one."""
    if not payload.startswith(METHODS):
        return None
    request, *lines = payload.split(b"\n")
    if b" HTTP/1." not in request:
        return None
    for line in lines[:-1]:  # the last line has no end
        if line in (b"\r", b""):
            return None
        name, colon, value = line.partition(b":")
        if colon and name.lower() == b"host":
            value = value.strip()
            return _host(value) if value else None
    return None


def _host(name: bytes) -> str:
    return "".join([_HOST_ESCAPES[byte] for byte in name])


PARSERS: dict[Function, Callable[[bytes], str | None]] = {
    Function.DNS_NAME: dns_name,
    Function.TLS_SERVER_NAME: tls_server_name,
    Function.HTTP_HOST: http_host,
}


def names_of(function: Function, column: BytesVector) -> TextVector:
    """Return the name in each payload; NULL for a payload without a name."""
    parse, names = PARSERS[function], Names()
    ids = np.zeros(column.start.shape, np.int64)
    valid = np.zeros(column.start.shape, np.bool_)
    for row, (start, length) in enumerate(zip(column.start.tolist(), column.length.tolist(), strict=True)):
        name = parse(column.data[start : start + min(length, MAX_SEARCHED_BYTES)].tobytes()) if length else None
        if name is not None:
            ids[row], valid[row] = names.add(name), True
    return TextVector(ids, names.texts, valid if column.valid is None else valid & column.valid)
