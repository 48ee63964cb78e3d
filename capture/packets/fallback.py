"""The fallback decoder: dpkt finds IP headers that the kernels cannot reach, and a kernel decodes the IP packets.

The fallback decoder receives only the candidates of `capture.packets.candidates`. A candidate costs tens of
microseconds of Python, but ordinary captures have no candidates. The packets are copied into a small classic pcap of
raw IP in memory, which the decode kernel reads. So a row has the same columns as if the kernel supported the headers.

Every candidate is counted: in `decoded` by header, or in `refused` by cause as in REFUSAL_CAUSES.
"""

from __future__ import annotations

import struct
from collections import Counter
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from capture.column_matrix import column_matrix
from capture.lazy_dataclasses import dataclass
from capture.packets.candidates import CANDIDATE_WORDS, HEADERS
from capture.packets.decode_kernels import decode_pcap
from capture.packets.fields import (
    CANDIDATE_COUNT_INDEX,
    CANDIDATE_LIMIT_INDEX,
    COUNTER_COUNT,
    FIRST_INNER_ROW,
    NULL,
    OTHER_ROWS_INDEX,
    ROWS,
    SKIP_CAUSES,
    TUNNEL_FIELD_MASK,
    VERSION,
)
from capture.packets.ip_layer import MALFORMED

if TYPE_CHECKING:
    from capture.packets.dpkt_headers import LocatedHeader

Int64Array = npt.NDArray[np.int64]

NO_IP, UNREADABLE, BAD_IP_HEADER, NOT_INSTALLED = "no_ip", "unreadable", "ip_header", "not_installed"
REFUSAL_CAUSES = (NO_IP, UNREADABLE, BAD_IP_HEADER, NOT_INSTALLED)
"""Causes for which a candidate does not become a row. NO_IP: dpkt finds no IP packet. UNREADABLE: dpkt raises an error.
BAD_IP_HEADER: the IP header is truncated or invalid. NOT_INSTALLED: dpkt is not installed."""

EXTRA = "fallback"
"""The extra of the package that installs dpkt."""

RAW_IP = 101
"""Link type of the small pcap."""

RECORD = struct.Struct("<IIII")
"""Header of a record of the small pcap."""


def is_installed() -> bool:
    """Return whether dpkt is installed, without importing it."""
    return find_spec("dpkt") is not None


@dataclass(frozen=True)
class FallbackRows:
    """Rows of candidates. `matrix`: one matrix column for each row.

    `candidates`: the index in the candidate list of each row.

    `skipped`: number of candidates that did not become rows, by cause as in SKIP_CAUSES. `has_only_ipv4`: as in
    `decoder.Packets`.
    """

    matrix: Int64Array
    candidates: Int64Array
    skipped: Int64Array
    has_only_ipv4: bool


class Fallback:
    """Decoder of the candidates of blocks. Its memory is proportional to the number of candidates in one block."""

    def __init__(self) -> None:
        self.decoded: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._missing = False

    def decode(
        self, data: npt.NDArray[np.uint8], candidates: Int64Array, mask: int, inner_mask: int, rows: int
    ) -> FallbackRows:
        """Decode the `candidates` (rows of CANDIDATE_FIELDS) whose frames in `data` contain an IP packet.

        `rows`: number of physical columns of the matrix.
        """
        located_headers, skipped = [], np.zeros(len(SKIP_CAUSES), np.int64)
        for index, (start, end, *_, kind, cause) in enumerate(candidates.tolist()):
            header = self._find(data[start:end].tobytes(), kind)
            if header is not None:
                located_headers.append((index, header))
            else:  # with dpkt, any cause becomes non_ip, because the link type is supported
                skipped[cause if self._missing else 0] += 1
        if not located_headers:
            return FallbackRows(column_matrix(rows, 0), np.empty(0, np.int64), skipped, True)
        indices = np.array([index for index, _ in located_headers], np.int64)
        headers = [header for _, header in located_headers]
        chosen = candidates[indices]
        matrix, has_only_ipv4 = _decode(data, chosen, headers, mask, inner_mask, rows)
        matrix = matrix[:, : len(located_headers)]
        version_matches = matrix[VERSION] == [header.version for header in headers]
        self.decoded.update(HEADERS[header] for header in chosen[version_matches, 6].tolist())
        bad_headers = len(located_headers) - int(version_matches.sum())
        self.refused[BAD_IP_HEADER] += bad_headers
        skipped[MALFORMED] += bad_headers
        return FallbackRows(matrix[:, version_matches], indices[version_matches], skipped, has_only_ipv4)

    def _find(self, frame: bytes, header: int) -> LocatedHeader | None:
        """Return the IP header of a frame. If there is none, count the cause and return None."""
        if self._missing:
            self.refused[NOT_INSTALLED] += 1
            return None
        try:
            from capture.packets.dpkt_headers import READ_ERRORS, find_ip
        except ModuleNotFoundError:
            self._missing = True  # stored, because a failed import takes longer than a thousand records
            return self._find(frame, header)
        try:
            ip_header = find_ip(frame, header)
        except READ_ERRORS:
            self.refused[UNREADABLE] += 1
            return None
        if ip_header is None:
            self.refused[NO_IP] += 1
        return ip_header


def _decode(
    data: npt.NDArray[np.uint8],
    candidates: Int64Array,
    headers: list[LocatedHeader],
    mask: int,
    inner_mask: int,
    rows: int,
) -> tuple[Int64Array, bool]:
    """Decode packets at known offsets of their frames. Return the rows, and whether all addresses are IPv4.

    A packet without readable IP header has version 0.
    """
    records, shifts = bytearray(), []
    for (start, end, wire, *_), header in zip(candidates.tolist(), headers, strict=True):
        packet = data[start + header.offset : end].tobytes()
        shifts.append(start + header.offset - len(records) - RECORD.size)
        records += RECORD.pack(0, 0, len(packet), min(max(wire - header.offset, 0), 0xFFFFFFFF)) + packet
    count = len(headers)
    matrix = column_matrix(rows, count)
    matrix[VERSION] = 4
    counts = np.zeros(COUNTER_COUNT, np.int64)
    packets = np.frombuffer(bytes(records), np.uint8)
    decode_pcap(
        packets,
        0,
        count,
        0,
        1,
        RECORD.size,
        0,
        RAW_IP,
        mask | TUNNEL_FIELD_MASK if inner_mask else mask,
        inner_mask,
        1,
        matrix.reshape(-1),
        matrix.shape[1],
        counts,
    )
    for name, field in (("ts", 3), ("len", 2), ("interface", 4)):
        matrix[ROWS[name], :count] = candidates[:, field]
    matrix[ROWS["caplen"], :count] = candidates[:, 1] - candidates[:, 0]
    _write_link(matrix, headers, 0)
    shift = np.array(shifts, np.int64)
    for first in (0, FIRST_INNER_ROW) if inner_mask else (0,):
        offsets = matrix[first + ROWS["payload_offset"], :count]
        offsets[offsets != NULL] += shift[offsets != NULL]
    if inner_mask:
        not_in_tunnel = matrix[ROWS["tunnels"], :count] == 0
        _write_link(matrix, headers, FIRST_INNER_ROW, not_in_tunnel)
    return matrix, not counts[OTHER_ROWS_INDEX]


def _write_link(
    matrix: Int64Array, headers: list[LocatedHeader], first: int, where: npt.NDArray[np.bool_] | None = None
) -> None:
    """Write link layer fields into one layer of all rows, or of the rows for which `where` is True."""
    fields = (("vlan", "vlan"), ("mpls", "mpls"), ("ethertype", "ethertype"), ("src_mac", "source"))
    for name, attribute in (*fields, ("dest_mac", "destination")):
        values = np.array([getattr(header, attribute) for header in headers], np.int64)
        selected = slice(None) if where is None else where
        matrix[first + ROWS[name], : len(headers)][selected] = values[selected]


def counts_with_room(candidates: int) -> Int64Array:
    """Return a kernel's array of counts with room for `candidates` candidates. Unused room occupies no memory."""
    counts = np.zeros(COUNTER_COUNT + CANDIDATE_WORDS * candidates, np.int64)
    counts[CANDIDATE_LIMIT_INDEX] = candidates
    return counts


def take_candidates(counts: Int64Array) -> Int64Array:
    """Return the listed candidates, one per row, and clear the list."""
    count = int(counts[CANDIDATE_COUNT_INDEX])
    counts[CANDIDATE_COUNT_INDEX] = 0
    return counts[COUNTER_COUNT : COUNTER_COUNT + count * CANDIDATE_WORDS].reshape(count, CANDIDATE_WORDS).copy()
