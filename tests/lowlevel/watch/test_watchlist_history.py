"""Watchlists whose rows are true for a time: files of three formats, and the label of an address at a time.

Random files are compared with a search through all rows. The tests detect a lifetime that contains its end, a row that
hides a shorter prefix after its end, and a new lease that does not end the one before it.
"""

import csv
import io
import json
from collections import Counter
from ipaddress import ip_address, ip_network
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from capture.errors import InputError
from highlevel.inline.engine import InlineRun, Input
from lowlevel.watch.contents import Form, read_contents
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.leases import read_leases
from lowlevel.watch.watched_file import CheckResult, WatchedFile, Watchlist
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.harness.links import write_links
from tests.harness.spark_tasks import batch_answer
from tests.references.packet_rows import decode_file

Row = tuple[str, str, int | None, int | None]
"""Prefix, label, start and end in ns."""


def time_text(time: int | None) -> str | None:
    return None if time is None else f"{np.datetime64(time, 'ns')}Z"


def csv_file(rows: list[Row]) -> bytes:
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(["note", "to", "prefix", "Label", "from"])
    writer.writerows(["x", time_text(end), prefix, label, time_text(start)] for prefix, label, start, end in rows)
    return sink.getvalue().encode()


def json_file(rows: list[Row]) -> bytes:
    names = ("prefix", "label", "from", "to")
    lines = [{**dict(zip(names, row, strict=True)), "from": time_text(row[2]), "to": time_text(row[3])} for row in rows]
    return "\n".join(map(json.dumps, lines)).encode()


def parquet_file(rows: list[Row]) -> bytes:
    prefixes, labels, starts, ends = (list(column) for column in zip(*rows, strict=True))
    times = pa.timestamp("ns", "UTC")
    table = pa.table(
        {"prefix": prefixes, "label": labels, "from": pa.array(starts, times), "to": pa.array(ends, times)}
    )
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


FORMATS = {"csv": csv_file, "ndjson": json_file, "parquet": parquet_file}


def label_at(rows: list[Row], address: str, time: int) -> str | None:
    """Look at the last row of each prefix that has begun, the longest prefix first."""
    newest: dict[str, tuple[int, Row]] = {}
    for row in rows:
        begun = -(2**63) if row[2] is None else row[2]
        if begun <= time and (row[0] not in newest or begun >= newest[row[0]][0]):
            newest[row[0]] = (begun, row)
    found = [
        (ip_network(prefix).prefixlen, row[1])
        for prefix, (_, row) in newest.items()
        if ip_address(address) in ip_network(prefix) and (row[3] is None or time < row[3])
    ]
    return max(found)[1] if found else None


def made_rows(random: Random) -> list[Row]:
    prefixes = ["10.0.0.0/29", "10.0.0.4/31", "10.0.0.5/32", "10.0.0.4/30", "2001:db8::/64", "2001:db8::2/127"]
    rows: list[Row] = []
    for number in range(random.randrange(1, 20)):
        start = random.choice([None, random.randrange(50)])
        end = random.choice([None, (start or 0) + random.randrange(30)])
        rows.append((random.choice(prefixes), f"host {number % 7}", start, end))
    return rows


def test_an_address_has_the_label_of_the_longest_prefix_that_is_true_then(rounds: Rounds) -> None:
    addresses = [f"10.0.0.{number}" for number in range(9)] + [f"2001:db8::{number}" for number in range(5)]
    for seed in rounds(40):
        random = Random(seed)
        rows = made_rows(random)
        contents = read_contents(random.choice(list(FORMATS.values()))(rows), Form.HISTORY)
        asked = [(random.choice(addresses), random.randrange(-5, 90)) for _ in range(200)]
        numbers = [int(ip_address(address)) for address, _ in asked]
        assert contents.history is not None
        found = contents.history.find(
            np.array([ip_address(address).version for address, _ in asked]),
            np.array([number >> 64 for number in numbers], np.uint64),
            np.array([number & (2**64 - 1) for number in numbers], np.uint64),
            np.array([time for _, time in asked]),
        )
        names = [None if label < 0 else contents.labels[label] for label in found.tolist()]
        assert names == [label_at(rows, *each) for each in asked], seed


def test_formats_have_equal_contents() -> None:
    rows = made_rows(Random(5))
    read = [read_contents(write(rows), Form.HISTORY) for write in FORMATS.values()]
    assert {each.labels for each in read} == {read[0].labels}
    assert {each.line_count for each in read} == {len(rows)}
    for empty in (b"", b"prefix,label,from,to", b"prefix,label,from,to\n\n"):
        assert read_contents(empty, Form.HISTORY).line_count == 0


LEASES = """# The format of this file is documented in the dhcpd.leases(5) manual page.
lease 192.0.2.5 {
  starts 4 2024/05/02 10:00:00;
  ends 4 2024/05/02 12:00:00;
  binding state active;
  hardware ethernet 00:11:22:33:44:55;
  client-hostname "laptop";
}
lease 192.0.2.6 {
  starts epoch 1714644000; # Thu May 02 10:00:00 2024
  ends never;
  hardware ethernet 00:11:22:33:44:66;
}
lease 192.0.2.5 {
  starts 4 2024/05/02 10:00:00;
  ends 4 2024/05/02 11:00:00;
  binding state free;
  hardware ethernet 00:11:22:33:44:55;
  client-hostname "laptop";
}
"""


def test_a_lease_file_has_the_last_state_of_each_lease() -> None:
    contents = read_contents(LEASES.encode(), Form.HISTORY)
    assert contents.line_count == 3
    assert contents.history is not None
    asked = [("192.0.2.5", 9), ("192.0.2.5", 10), ("192.0.2.5", 11), ("192.0.2.6", 10), ("192.0.2.6", 23)]
    numbers = np.array([int(ip_address(address)) for address, _ in asked], np.uint64)
    times = np.array([np.datetime64(f"2024-05-02T{hour:02}:00:00", "ns").astype(np.int64) for _, hour in asked])
    found = contents.history.find(np.full(len(asked), 4), np.zeros(len(asked), np.uint64), numbers, times)
    names = [None if label < 0 else contents.labels[label] for label in found.tolist()]
    assert names == [None, "laptop", None, "00:11:22:33:44:66", "00:11:22:33:44:66"]


FREED = """# The format of this file is documented in the dhcpd.leases(5) manual page.
authoring-byte-order little-endian;
lease 192.0.2.5 {
  starts 4 2024/05/02 10:00:00;
  ends never;
  binding state active;
  next binding state free;
  client-hostname "laptop";
}
lease 192.0.2.5 {
  starts 4 2024/05/02 12:00:00;
  tstp 4 2024/05/02 12:00:00;
  binding state free;
}
lease 192.0.2.6 {
  binding state backup;
}
lease 192.0.2.7 {
  starts 4 2024/05/02 10:00:00;
  ends 4 2024/05/02 13:00:00;
  binding state abandoned;
}
lease 192.0.2.8 {
  starts 4 2024/05/02 10:00:00;
  ends 4 2024/05/02 09:59:59;
  binding state active;
  client-hostname "before a correction of the clock";
}
"""


def test_records_of_a_lease_file_without_a_lease_give_no_label() -> None:
    contents = read_contents(FREED.encode(), Form.HISTORY)
    assert contents.history is not None
    asked = [(host, hour) for host in (5, 6, 7, 8) for hour in (9, 10, 11, 12)]
    numbers = np.array([int(ip_address(f"192.0.2.{host}")) for host, _ in asked], np.uint64)
    times = np.array([np.datetime64(f"2024-05-02T{hour:02}:00:00", "ns").astype(np.int64) for _, hour in asked])
    found = contents.history.find(np.full(len(asked), 4), np.zeros(len(asked), np.uint64), numbers, times)
    labels = {pair: contents.labels[label] for pair, label in zip(asked, found.tolist(), strict=True) if label >= 0}
    assert labels == {(5, 10): "laptop", (5, 11): "laptop"}


def test_a_lease_on_one_line_and_texts_with_braces_are_read() -> None:
    text = (
        'lease 192.0.2.5 { starts epoch 10; ends epoch 20; client-hostname "a; ends never; }"; } '
        'lease 192.0.2.6 {starts epoch 30;ends epoch 40;on expiry { set x = "}"; if 1 { ends epoch 50; } }'
        "# ends epoch 60; }\nhardware ethernet 00:11:22:33:44:66;}\n# lease 192.0.2.7 {\n"
    )
    leases = read_leases(text)
    assert [tuple(lease) for lease in leases] == [
        (1, "192.0.2.5", "a; ends never; }", 10, 20),
        (1, "192.0.2.6", "00:11:22:33:44:66", 30, 40),
    ]


def test_labels_of_json_lines_that_look_like_times_are_labels() -> None:
    rows = [
        {"prefix": "10.0.0.1", "label": "2024-01-01", "from": "2024-01-01T00:00:00Z", "to": None},
        {"prefix": "10.0.0.2", "label": "2024-01-01T00:00:00Z", "from": None, "to": "2024-01-02T00:00:00Z"},
    ]
    data = "\n".join(map(json.dumps, rows)).encode()
    contents = read_contents(data, Form.HISTORY)
    assert contents.labels == ("2024-01-01", "2024-01-01T00:00:00Z")
    assert contents.line_count == 2


@pytest.mark.parametrize("line_count", [1, 2])
def test_a_lease_file_without_leases_is_empty(line_count: int) -> None:
    header = "\n".join(FREED.splitlines()[:line_count]) + "\n"
    assert read_contents(header.encode(), Form.HISTORY).line_count == 0


WRONG = {
    b"\nlease 192.0.2.5 {\n starts garbage;\n}\n": "lease in line 2: got 'starts garbage;', expected 'starts 4 2024/",
    b"lease 192.0.2.5 {\n ends 4 2024/13/02 12:00:00;\n}\n": "lease in line 1: got 'ends 4 2024/13/02 12:00:00;', exp",
    b"lease 192.0.2.5 {\n starts epoch 99999999999999999999;\n}\n": "lease in line 1: got 'starts epoch 99999999999",
    b'server-duid "x";\nia-na "y" {\n}\n': "line 2: got 'ia-na' of DHCPv6, expected leases of DHCPv4",
    b"lease 192.0.2.500 {\n}\n": "line 1: got '192.0.2.500', expected an address or a prefix",
    b"prefix,label,from\n10.0.0.1,a,": "got the columns prefix, label, from, expected to too",
    b"prefix,label,from,to\n10.0.0.1,a,soon,": "line 2: got 'soon' as from, expected a time such as 2024-05-01T08:00",
    b"prefix,label,from,to\n10.0.0.300,a,,": "line 2: got '10.0.0.300', expected an address or a prefix like",
    b"prefix,label,from,to\n,a,,": "line 2: got '' as prefix, expected a text",
    b"prefix,label,from,to\n10.0.0.1 b,a,,": "line 2: got '10.0.0.1 b' as prefix, expected an address",
    b"prefix,label,from,to\n10.0.0.1,a,2024-01-02,2024-01-01": "line 2: got 2024-01-01T00:00:00.000000000 as to before",
    b"prefix,label,from,to\n10.0.0.1,a,2024-01-02T00:00:00Z,\n10.0.0.2,a,2024-01-01,": "zone in all rows or in none",
    b'{"prefix": 5, "label": "a", "from": null, "to": null}': "line 1: JSON parse error: Column(/prefix)",
    b'{"prefix": "10.0.0.1", "label": "a", "from": 7, "to": null}': "line 1: JSON parse error: Column(/from)",
    b'{"prefix": ': "expected a CSV, NDJSON or Parquet file with the columns prefix, label, from and to",
    b"prefix,label,from,to,TO\n10.0.0.1,a,,,": "got the columns prefix, label, from, to, TO, expected to once",
    b"prefix,label,from,to,to\n10.0.0.1,a,,,": "got the columns prefix, label, from, to, to, expected to once",
    b"prefix,label,from,to\n10.0.0.1,a,9999-12-31,": "line 2: got '9999-12-31' as from, expected a time such as",
    b"prefix,label,from,to\n10.0.0.1,a,,1492-10-12": "line 2: got '1492-10-12' as to, expected a time such as",
    b"prefix,label,from,to\n10.0.0.1,a,,9999-13-31": "line 2: got '9999-13-31' as to, expected a time such as",
    b"prefix,label,from,to\n10.0.0.1,a,,\n10.0.0.2,a,2262-03-01,": "line 3: got 2262-03-01T00:00:00.000000000 as from",
    b"prefix,label,fr\xff,to\n10.0.0.1,a,,": "line 1: got bytes that are not UTF-8 text",
    b'{"prefix": "10.0.0.1", "label": "a", "from": "9999-12-31 00:00:00", "to": null}': "line 1: got '9999-12-31",
    b'{"prefix": "10.0.0.1", "label": "a"}\n\n{"prefix": "x", "label": "a", "from": "", "to": ""}': "line 3: got 'x', ",
    b"prefix,label,from,to\n\n10.0.0.1,a,,\n\n10.0.0.2,a,soon,": "line 5: got 'soon' as from",
    b"lease 192.0.2.5 { ends never; }\nlease 192.0.2.6 {\n starts 4 2024/05": "line 2: got 'lease 192.0.2.6 {' without",
    b'lease 192.0.2.5 {\n client-hostname "lap': "line 1: got 'lease 192.0.2.5 {' without the end of the lease",
    b"server-duid x;\nlease 192.0.2": "line 2: got 'lease 192.0.2' without the end of the lease, expected '}' after it",
    b"\nlease 192.0.2.5 { }\nlease 192.0.2.6 { ends soon; }": "lease in line 3: got 'ends soon;', expected 'ends 4 202",
    b"# lease x\nlease 192.0.2.5 { }\n\nlease 192.0.2.x { }": "line 4: got '192.0.2.x', expected an address or a",
    b"PAR1 and nothing else": "expected a CSV, NDJSON or Parquet file with the columns",
}


@pytest.mark.parametrize("data", WRONG)
def test_a_wrong_file_is_refused_with_its_line(data: bytes) -> None:
    with pytest.raises(WatchlistError) as caught:
        read_contents(data, Form.HISTORY)
    assert WRONG[data] in str(caught.value)


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


FAR = np.datetime64("9999-12-31T23:59:59", "us").astype(np.int64).item()
ENDLESS = {
    "csv": b"prefix,label,from,to\n10.0.0.1,a,2024-01-01T00:00:00.123456789Z,9999-12-31T23:59:59.999999999Z\n",
    "csv of a date": b"prefix,label,from,to\n10.0.0.1,a,2024-01-01,2400-02-29\n",
    "ndjson": b'{"prefix": "10.0.0.1", "label": "a", "from": "2024-01-01 00:00:00", "to": "9999-12-31 00:00:00"}',
    "parquet": _parquet(
        pa.table({"prefix": ["10.0.0.1"], "label": ["a"], "from": [None], "to": pa.array([FAR], pa.timestamp("us"))})
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_end_in_a_far_year_is_no_end(name: str) -> None:
    history = read_contents(ENDLESS[name], Form.HISTORY).history
    assert history is not None
    address = np.array([int(ip_address("10.0.0.1"))], np.uint64)
    assert history.find(np.array([4]), np.zeros(1, np.uint64), address, np.array([2**63 - 2])).tolist() == [0]


DAMAGED = {
    "far start": _parquet(
        pa.table({"prefix": ["10.0.0.1"], "label": ["a"], "from": pa.array([FAR], pa.timestamp("us")), "to": [None]})
    ),
    "column twice": _parquet(
        pa.table([["10.0.0.1"], ["a"], [None], [None], [None]], ["prefix", "label", "from", "to", "to"])
    ),
    "text that is not UTF-8": _parquet(
        pa.table(
            {
                "prefix": ["10.0.0.1"],
                "label": pa.array([b"\xff"]).view(pa.string()),
                "from": pa.nulls(1),
                "to": pa.nulls(1),
            }
        )
    ),
    **{str(number): data for number, data in enumerate(WRONG)},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_the_version_in_use_stays_if_the_new_version_is_wrong(name: str, tmp_path: Path) -> None:
    path = tmp_path / "leases"
    path.write_bytes(ENDLESS["csv"])
    watchlist = Watchlist(WatchedFile(str(path), Form.HISTORY), is_followed=False)
    version = watchlist.read()
    path.write_bytes(DAMAGED[name])
    with pytest.warns(RuntimeWarning, match="the watchlist stays as it was"):
        assert watchlist.refresh(10.0) is CheckResult.FAILED
    assert watchlist.version is version


def leases(folder: Path, inputs: list[Input]) -> tuple[list[Row], list[dict]]:
    """Leases of the sources of captures, and the packets."""
    packets = [row for source in inputs for row in decode_file(source.path, names=("ts", "srcIP"))[0]]
    random = Random(3)
    times = sorted(packet["ts"] for packet in packets)
    sources = sorted({str(packet["srcIP"]) for packet in packets if packet["srcIP"] is not None})
    rows: list[Row] = [("10.0.0.0/8", "somebody", None, times[len(times) // 2])]
    for address in sources:
        for number in range(3):
            begin = random.choice(times)
            end = random.choice([None, begin + random.randrange(1, times[-1] - times[0])])
            rows.append((address, f"host {number}", begin, end))
    (folder / "leases.csv").write_bytes(csv_file(rows))
    return rows, packets


def test_packets_have_the_owner_of_their_address_at_their_time_on_all_engines(tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 21)
    rows, packets = leases(tmp_path, inputs)
    path = tmp_path / "leases.csv"
    plan = compile_query(f"SELECT getlpmid(srcIP, '{path}', ts) AS owner, count(*) AS n FROM packets GROUP BY owner")
    expected: Counter[str | None] = Counter()
    for packet in packets:
        address = packet["srcIP"]
        expected[None if address is None else label_at(rows, str(address), packet["ts"])] += 1
    inline = [batch for _, batch in InlineRun([plan], inputs).results()]
    assert {row["owner"]: row["n"] for batch in inline for row in batch.to_pylist()} == expected
    assert len(expected) == 5
    assert {row["owner"]: row["n"] for row in batch_answer(plan, inputs, 3, Random(2)).to_pylist()} == expected
    listed = compile_query(f"SELECT count(*) AS n FROM packets WHERE in_list(srcIP, '{path}', ts)")
    ((_, batch),) = InlineRun([listed], inputs).results()
    assert batch.to_pylist() == [{"n": sum(n for label, n in expected.items() if label is not None)}]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("getlpmid(srcIP, 'leases.csv', len)", "getlpmid at a value of type integer; expected a time, for example ts"),
        ("in_list(len, 'leases.csv', ts)", "in_list at a time over a value of type integer; expected an address"),
        ("mac_vendor(srcMAC, 'leases.csv', ts)", "mac_vendor with 3 arguments; expected mac_vendor(mac, 'file')"),
        ("getlpmid(srcIP, 'nothing.csv', ts)", "expected a CSV, NDJSON or Parquet file with the columns prefix, label"),
    ],
)
def test_wrong_uses_are_refused(call: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leases.csv").write_bytes(csv_file(made_rows(Random(1))))
    monkeypatch.chdir(tmp_path)
    with pytest.raises((QueryError, InputError)) as caught:
        compile_query(f"SELECT {call} AS x, count(*) FROM packets GROUP BY {call}")
    assert message in str(caught.value)
