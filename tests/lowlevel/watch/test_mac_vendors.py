"""`mac_vendor`: files of vendors in their public formats, and queries, compared with a search in plain Python."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest

from highlevel.inline.engine import InlineRun, Input
from lowlevel.watch.contents import Form, read_contents
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.ranges import MAC_SHIFT
from queries.gsql import compile_query
from queries.text.errors import QueryError
from queries.text.printer import expression_text
from tests.harness.links import START, packet
from tests.references.pcap_bytes import NS, pcap_bytes

MANUF = """# comment
00:00:0C\tCisco\tCisco Systems, Inc
00:1B:C5\tIEEERegistra\tIEEE Registration Authority
00:1B:C5:00:00:00/36\tConverging\tConverging Systems Inc.
01-80-C2-00-00-00/48\tSpanning-tree-(for-bridges)
00:00:01\tXerox                  # XEROX CORPORATION
"""

OUI_CSV = """Registry,Assignment,Organization Name,Organization Address
MA-L,00000C,"Cisco Systems, Inc","170 WEST
TASMAN DRIVE"
MA-S,001BC5000,Converging Systems Inc.,32420 Nautilus Drive
MA-L,001BC5,IEEE Registration Authority,445 Hoes Lane
MA-L,080030,NETWORK RESEARCH CORPORATION,2380
MA-L,080030,CERN,CH-1211
"""

OUI_TEXT = """OUI/MA-L                                                    Organization
company_id                                                  Organization
                                                            Address

00-00-0C   (hex)\t\tCisco Systems, Inc
00000C     (base 16)\t\tCisco Systems, Inc
\t\t\t\t170 WEST TASMAN DRIVE
\t\t\t\tSan Jose  CA  94568
"""

ARP = b"\x08\x06"

NMAP = "00000C Cisco Systems\n001BC5 Registry\n001BC5000 Converging\n"

FORMATS = [
    (MANUF, "00:00:0c:12:34:56", "Cisco Systems, Inc"),
    (MANUF, "00:1b:c5:00:0f:ff", "Converging Systems Inc."),
    (MANUF, "00:1b:c5:00:10:00", "IEEE Registration Authority"),
    (MANUF, "01:80:c2:00:00:00", "Spanning-tree-(for-bridges)"),
    (MANUF, "01:80:c2:00:00:01", None),
    (MANUF, "00:00:01:00:00:00", "Xerox"),
    (OUI_CSV, "00:00:0c:00:00:00", "Cisco Systems, Inc"),
    ("\ufeff" + OUI_CSV, "00:1b:c5:00:0f:ff", "Converging Systems Inc."),
    (OUI_CSV, "00:1b:c5:00:1f:ff", "IEEE Registration Authority"),
    (OUI_CSV, "08:00:30:00:00:00", "NETWORK RESEARCH CORPORATION or CERN"),
    (OUI_TEXT, "00:00:0c:ff:ff:ff", "Cisco Systems, Inc"),
    (OUI_TEXT, "17:00:00:00:00:00", None),
    (NMAP, "00:1b:c5:00:00:00", "Converging"),
    (NMAP, "00:1b:c5:01:00:00", "Registry"),
    ("", "00:00:0c:00:00:00", None),
    ("f Broadcast", "ff:ff:ff:ff:ff:ff", "Broadcast"),
]


def number(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


def find_vendors(text: str, macs: list[int]) -> list[str | None]:
    contents = read_contents(text.encode(), Form.VENDORS)
    assert contents.ranges is not None
    high = np.array([mac << MAC_SHIFT for mac in macs], np.uint64)
    indexes = contents.ranges.find(np.array(6), high, np.zeros(len(macs), np.uint64))
    return [None if index < 0 else contents.labels[index] for index in indexes.tolist()]


@pytest.mark.parametrize(("text", "mac", "vendor"), FORMATS)
def test_each_public_format_is_read(text: str, mac: str, vendor: str | None) -> None:
    assert find_vendors(text, [number(mac)]) == [vendor]


@pytest.mark.parametrize("seed", range(20))
def test_random_files_give_the_name_of_the_longest_prefix(seed: int) -> None:
    random = Random(seed)
    names: dict[str, str] = {}
    for index in range(random.randrange(1, 300)):
        digits = "".join(random.choice("01f") for _ in range(random.randrange(1, 13)))
        names[digits] = f"vendor, {index % 40}"
    if random.random() < 0.5:
        text = "".join(f"{digits}\t{name}\n" for digits, name in names.items())
    else:
        file = io.StringIO("Registry,Assignment,Organization Name,Organization Address\n")
        file.seek(0, io.SEEK_END)
        csv.writer(file).writerows(["MA-L", digits, name, "a\nstreet"] for digits, name in names.items())
        text = file.getvalue()
    macs = ["".join(random.choice("01f") for _ in range(12)) for _ in range(500)]
    expected = [names.get(max((mac[:n] for n in range(13) if mac[:n] in names), key=len, default="")) for mac in macs]
    assert find_vendors(text, [int(mac, 16) for mac in macs]) == expected


WRONG = [
    ("00:00:0c Cisco\nxy:00 Else\n", "line 2: got 'xy:00', expected a MAC prefix like '00:00:0c'"),
    ("00:00:0c:00:00:00:00 Cisco", "line 1: got '00:00:0c:00:00:00:00', expected a MAC prefix"),
    ("00:00:0c", "line 1: got '00:00:0c' without a vendor"),
    ("00:00:0c/49 Cisco", "line 1: '00:00:0c/49' has the length 49, MAC addresses have 0 to 48"),
    ("00:00:0c/16 Cisco", "line 1: '00:00:0c/16' has bits set after its length of 16"),
    ("Registry,Assignment,Organization Name,Organization Address\nMA-L,00000C\n", "line 2: got 2 columns"),
]


@pytest.mark.parametrize(("text", "problem"), WRONG)
def test_a_wrong_line_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(WatchlistError, match=problem.replace("(", r"\(")):
        read_contents(text.encode(), Form.VENDORS)


def test_packets_are_grouped_by_vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = Random(1)
    macs = [random.randrange(2**48) for _ in range(20)]
    frames = [bytes(6) + random.choice(macs).to_bytes(6) + packet(random)[12:] for _ in range(500)]
    sources = [int.from_bytes(frame[6:12]) for frame in frames if frame[12:14] != ARP]
    (tmp_path / "links.pcap").write_bytes(pcap_bytes([(START + n * NS, frame) for n, frame in enumerate(frames)]))
    inputs = [Input("links", tmp_path / "links.pcap")]
    known = {mac: f"vendor of {index % 3}" for index, mac in enumerate(macs[::2])}
    (tmp_path / "manuf").write_text("".join(f"{mac:012x} {name}\n" for mac, name in known.items()))
    sql = "SELECT mac_vendor(srcMAC, 'manuf') AS vendor, count(*) AS n FROM packets {} GROUP BY vendor"
    plan = compile_query(sql.format(""))
    rows = {row["vendor"]: row["n"] for _, batch in InlineRun([plan], inputs).results() for row in batch.to_pylist()}
    assert rows == dict(Counter(map(known.get, sources)))
    kept = compile_query(sql.format("WHERE mac_vendor(srcMAC, 'manuf') LIKE '%1'"))
    rows = {row["vendor"]: row["n"] for _, batch in InlineRun([kept], inputs).results() for row in batch.to_pylist()}
    expected = Counter(map(known.get, sources))
    assert rows == {name: n for name, n in expected.items() if name is not None and name.endswith("1")}
    condition = (
        compile_query("SELECT count(*) FROM packets WHERE mac_vendor(srcMAC, 'manuf') = 'x'").leaves[0].low.where
    )
    assert condition is not None
    assert expression_text(condition) == f"mac_vendor(srcMAC, '{tmp_path}/manuf') = 'x'"
    with pytest.raises(QueryError, match="mac_vendor over a value of type address; expected a column or expression of"):
        compile_query("SELECT count(*) FROM packets WHERE mac_vendor(srcIP, 'manuf') = 'x'")
