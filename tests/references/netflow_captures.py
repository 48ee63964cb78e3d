"""The real datagrams in `captures/netflow`, their cases, and the truth about them."""

from __future__ import annotations

import csv
import functools
import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capture.files.capture import Capture
from capture.files.scan import scan
from capture.flows.elements import ALIASES, Element, element
from capture.open import open_capture
from lowlevel.rows.flows import FlowReader
from tests.references.flow_rows import Sent

V5_NAMES = {
    "srcaddr": 8, "dstaddr": 12, "nexthop": 15, "input": 10, "output": 14, "dPkts": 2, "dOctets": 1, "first": 22,
    "last": 21, "srcport": 7, "dstport": 11, "tcp_flags": 6, "prot": 4, "tos": 5, "src_as": 16, "dst_as": 17,
    "src_mask": 9, "dst_mask": 13, "pad1": 0, "pad2": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Field:
    """One field of one record: its element as IANA numbers it, and its bytes."""

    element: Element
    data: bytes


class NetflowTruth:
    """`captures/netflow`: cases by name, each a list of files for a fresh decoder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases = {each["case"]: each for each in json.loads((folder / "oracle.json").read_text())["cases"]}
        self.structure = {each["case"]: each for each in json.loads((folder / "structure.json").read_text())}

    def messages(self, case: str) -> list[Sent]:
        """The messages of a case's files, in order, as datagrams whose sender is not known."""
        return [(message, (None, 0), 0) for name in self.cases[case]["files"] for message in self.messages_of(name)]

    def messages_of(self, name: str) -> list[bytes]:
        """The messages of one file, as the product finds them in it."""
        capture = open_capture(self.folder / "datagrams" / name)
        assert isinstance(capture, Capture)
        reader = FlowReader("link", capture, ["ts"], 16_384)
        found = []
        for block in scan(capture).blocks:
            jobs = reader._datagrams(block)
            starts, lengths = jobs.jobs[0, : jobs.count].tolist(), jobs.jobs[1, : jobs.count].tolist()
            found += [
                capture.data[start : start + length].tobytes() for start, length in zip(starts, lengths, strict=True)
            ]
        return found

    @functools.cached_property
    def records(self) -> dict[str, list[list[Field]]]:
        """By case the flow records, those of options left out, in order, each its fields in order."""
        found: dict[str, dict[int, list[Field]]] = defaultdict(dict)
        for row in self._rows:
            if row["kind"] == "data":
                number = V5_NAMES.get(row["ie"], -1) if row["version"] == "5" else int(row["ie"])
                if row["version"] == "9":
                    number = ALIASES.get(number, number)
                known = element(number, int(row["enterprise"] or 0))
                fields = found[row["case"]].setdefault(int(row["record"]), [])
                fields.append(Field(known, bytes.fromhex(row["hex"])))
        return {case: [records[number] for number in sorted(records)] for case, records in found.items()}

    @functools.cached_property
    def _rows(self) -> list[dict[str, str]]:
        with gzip.open(self.folder / "records.csv.gz", "rt", newline="") as file:
            return list(csv.DictReader(file))

    def row_of(self, case: str, record: int) -> int | None:
        """Return the number of a record among the flow records of its case, or None for a record of options."""
        kinds = {int(row["record"]): row["kind"] == "data" for row in self._rows if row["case"] == case}
        return sum(kinds[number] for number in kinds if number < record) if kinds[record] else None

    @functools.cached_property
    def nfdump(self) -> dict[str, list[dict[str, Any]]]:
        """By case what nfdump lists."""
        found = defaultdict(list)
        with (self.folder / "nfdump-flows.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                found[row["case"]].append(row)
        return dict(found)
