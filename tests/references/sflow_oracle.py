"""The slow, obvious twin of the sFlow kernel: structures read one after another out of slices of bytes.

It shares no code with the product. A slice that runs past the end is just shorter and raises `ShortError`, so nothing
in this file reads beyond a datagram.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any

Row = dict[str, Any]
LINK_TYPES = {1: 1, 3: 6, 4: 10, 5: 107, 7: 9, 9: 100, 10: 101, 11: 228, 12: 229, 13: 219, 14: 50, 15: 105, 17: 1}
"""LINKTYPE_ number by header_protocol."""


class ShortError(Exception):
    """There are fewer bytes than a structure has."""


class RefusedError(Exception):
    """Why something is not read."""


class Xdr:
    """Bytes that are read from the front."""

    def __init__(self, data: bytes, base: int = 0) -> None:
        self.data = data
        self.base = base

    def take(self, size: int) -> bytes:
        taken, self.data = self.data[:size], self.data[size:]
        if len(taken) < size:
            raise ShortError
        self.base += size
        return taken

    def word(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def words(self, count: int) -> list[int]:
        return [self.word() for _ in range(count)]

    def opaque(self) -> Xdr:
        """Return the bytes after a length field. The padding may be missing at the end."""
        size = self.word()
        inside = Xdr(b"", self.base)
        inside.data = self.take(size)
        padding = min(-size % 4, len(self.data))
        self.take(padding)
        return inside


class Twin:
    """Decode datagrams in order. `counts` counts their results."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.last: dict[tuple, tuple[int, int]] = {}
        self.missing: dict[tuple, set[int]] = {}

    def read(self, payload: bytes) -> list[Row]:
        """The samples of one datagram that are rows; `header` is an offset in the datagram."""
        self.counts["datagrams"] += 1
        rows: list[Row] = []
        data = Xdr(payload[:65535])
        try:
            version, kind = data.words(2)
            if version != 5:
                raise RefusedError("other_version")
            if kind > 2:
                raise RefusedError("address_type")
            address = data.take({0: 0, 1: 4, 2: 16}[kind])
            agent = None if kind == 0 else IPv4Address(address) if kind == 1 else IPv6Address(address)
            sub_agent, number, uptime, samples = data.words(4)
        except ShortError:
            self.counts["header_cut"] += 1
            return []
        except RefusedError as refused:
            self.counts[str(refused)] += 1
            return []
        self.follow("datagrams", (agent, sub_agent), number, uptime)
        for _ in range(samples):
            try:
                form = data.word()
                inside = data.opaque()
            except ShortError:
                self.counts["cut"] += 1
                break
            if form in (1, 3):
                try:
                    row = self.flow(inside, form == 3, (agent, sub_agent), uptime)
                    rows.append({"agent": agent, "sub_agent": sub_agent, **row})
                    self.counts["flow"] += 1
                except ShortError:
                    self.counts["malformed"] += 1
                except RefusedError as refused:
                    self.counts[str(refused)] += 1
            else:
                self.counts["counter" if form in (2, 4) else "other"] += 1
        return rows

    def flow(self, data: Xdr, expanded: bool, agent: tuple, uptime: int) -> Row:
        fixed = Xdr(data.take(44 if expanded else 32))
        number, source = fixed.words(2)
        source_class, source_id = (source, fixed.word()) if expanded else (source >> 24, source & 0xFFFFFF)
        self.follow("samples", (*agent, source_class, source_id), number, uptime)
        row: Row = {"source_class": source_class, "source_id": source_id}
        row["sampling_rate"], row["sample_pool"], row["sample_drops"] = fixed.words(3)
        for name in ("input_if", "output_if"):
            value = fixed.word()
            form, value = (value, fixed.word()) if expanded else (value >> 30, value & 0x3FFFFFFF)
            row[name] = value if form == 0 and value else None
        packet: Row = {}
        row["input_vlan"] = row["output_vlan"] = None
        for _ in range(fixed.word()):
            form = data.word()
            inside = data.opaque()
            if form == 1 and packet.get("link_type", -4) < -1:
                protocol, wire, _ = inside.words(3)
                header = inside.opaque()
                packet = {"link_type": LINK_TYPES.get(protocol, -1), "wire": wire, "header": header.base}
                packet["captured"] = len(header.data)
            elif form in (3, 4) and not packet:
                packet = {"link_type": {3: -4, 4: -6}[form], "header": inside.base, "captured": 0}
                packet["wire"] = inside.words(8 if form == 3 else 14)[0]
            elif form == 1001:
                row["input_vlan"], _, row["output_vlan"], _ = inside.words(4)
        if not packet:
            raise RefusedError("no_header")
        return row | packet

    def follow(self, what: str, key: tuple, number: int, uptime: int) -> None:
        """The rules of `capture.sflow.samples`, in signed differences modulo 2**32."""
        missing = self.missing.setdefault((what, key), set())
        if (what, key) in self.last:
            last, before = self.last[what, key]
            step = (number - last + 2**31) % 2**32 - 2**31
            grown = (uptime - before + 2**31) % 2**32 - 2**31
            if grown < -60_000 or step <= -1024:
                self.counts["restarts"] += 1
                missing.clear()
            elif step <= 0:
                self.counts[f"{what}_{'reordered' if number in missing else 'repeated'}"] += 1
                missing.discard(number)
                return
            else:
                self.counts[f"{what}_missing"] += step - 1
                missing |= {(number - back) % 2**32 for back in range(1, min(step, 1024))}
                missing -= {each for each in missing if (number - each) % 2**32 >= 1024}
        self.last[what, key] = number, uptime


def read_all(payloads: Sequence[bytes]) -> tuple[list[tuple[int, Row]], Counter[str]]:
    """(number of the datagram, row) of all samples, and the counts."""
    twin = Twin()
    rows = [(number, row) for number, payload in enumerate(payloads) for row in twin.read(payload)]
    return rows, +twin.counts
