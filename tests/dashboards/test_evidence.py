"""`--packets-to`: the packets of an answer, byte by byte, from every format, and the queries that have no packets.

Finds: a frame that is cut, shifted or has a wrong time; a packet of no match, or a missing one; a file that appears
though it is not complete; a query that is answered with the wrong packets instead of being refused; and packets that
are listed for each result.
"""

from __future__ import annotations

import gzip
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from scapy.utils import RawPcapNgReader, RawPcapReader

import wiretide
from capture.errors import InputError
from dashboards import request
from dashboards.evidence import Evidence
from queries.text.errors import QueryError
from tests.harness.command_line import run
from tests.references import small_captures
from tests.references.pcap_bytes import pcap_bytes
from tests.references.pcapng_bytes import custom, enhanced, interface, obsolete, section, simple

SECOND = 10**9
ETHERNET = 14
T0 = 1_700_000_000 * SECOND

Written = tuple[int, int, int, bytes]
"""Time in ns, link type, length on the wire, and the captured bytes of a packet."""


def evidence(path: Path, sql: str, *inputs: Path, layer: str = "outer") -> list[Written]:
    """Answer a query and return the packets that are written."""
    plans, bound = request.bind_all(request.texts_of([sql], None), layer, None, inputs, None, False, with_packets=True)
    found = Evidence(path, plans, bound, layer)
    with found.answer(None, 1, None) as answer:
        list(answer.batches)
    assert not path.exists()
    found.write()
    return contents(path)


def contents(path: Path) -> list[Written]:
    """Return the packets of a capture as scapy reads them."""
    if path.suffix == ".pcapng":
        with RawPcapNgReader(str(path)) as reader:
            return [
                (((meta.tshigh << 32) | meta.tslow) * SECOND // meta.tsresol, meta.linktype, meta.wirelen, frame)
                for frame, meta in reader
            ]
    with RawPcapReader(str(path)) as reader:
        assert reader.nano
        return [(meta.sec * SECOND + meta.usec, reader.linktype, meta.wirelen, frame) for frame, meta in reader]


def udp(source: str, destination: str, source_port: int, destination_port: int, length: int = 100) -> bytes:
    """Return an Ethernet frame with a UDP packet."""
    packet = small_captures.udp(source, destination, source_port, destination_port, length)
    return bytes(12) + (b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd") + packet


def frames(draw: random.Random, count: int) -> list[tuple[int, bytes]]:
    """Return packets of some hosts in random order of time, all in whole microseconds."""
    hosts = ["10.0.0.1", "10.0.0.2", "2001:db8::3", "2001:db8::4"]
    found = []
    for number in range(count):
        pair = draw.sample(hosts[:2], 2) if draw.random() < 0.5 else draw.sample(hosts[2:], 2)
        frame = udp(*pair, draw.randint(1, 4), number, draw.randint(80, 300))
        found.append((T0 + draw.randint(0, 100) * SECOND + number * 1000, frame))
    return found


FORMATS = ["pcap", "us", "big", "modified", "old", "gzip", "pcapng", "big pcapng"]


def capture(folder: Path, form: str, packets: list[tuple[int, bytes]]) -> Path:
    """Write packets, 7 bytes longer on the wire, in a format. In pcapng other blocks are between them."""
    path = folder / f"{form.replace(' ', '-')}.capture"
    if "pcapng" not in form:
        options = {"us": {"nanoseconds": False}, "big": {"order": ">"}, "modified": {"modified": True}}
        options["old"] = {"version": (2, 2)}
        data = pcap_bytes(packets, more_on_wire=7, **options.get(form, {}))  # type: ignore[arg-type]
        path.write_bytes(gzip.compress(data) if form == "gzip" else data)
        return path
    order = ">" if form == "big pcapng" else "<"
    blocks = [section(order), interface(1, order, name="lan", resolution=9), interface(1, order)]
    for number, (time, frame) in enumerate(packets):
        wire = len(frame) + 7
        blocks += [custom(order)] * (number % 3 == 0)
        if number % 4 == 1:
            blocks.append(obsolete(time // 1000, frame, order, number=1, wire=wire))
        else:
            blocks.append(enhanced(time, frame, order, wire=wire))
    path.write_bytes(b"".join(blocks))
    return path


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("suffix", ["pcap", "pcapng"])
def test_the_packets_of_selected_rows_are_written_as_they_were_captured(form: str, suffix: str, tmp_path: Path) -> None:
    draw = random.Random(f"{form} {suffix}")
    packets = frames(draw, 200)
    path = capture(tmp_path, form, packets)
    sql = "SELECT len FROM (SELECT len, srcPort FROM packets WHERE len > 150) WHERE srcPort = 2 ORDER BY len"
    found = evidence(tmp_path / f"found.{suffix}", sql, path)
    expected = [
        (time, 1, len(frame) + 7, frame)
        for time, frame in packets
        if len(frame) + 7 > 150 and int.from_bytes(frame[14 + 40 - 20 * (frame[14] >> 4 == 4) :][:2]) == 2
    ]
    assert found == expected
    assert 10 < len(found) < 100


MATCHES = (
    "SELECT n FROM packets MATCH_RECOGNIZE (PARTITION BY srcIP ORDER BY ts MEASURES count(*) AS n, match_number() AS m "
    "{rows} {skip} PATTERN (A {{- B+ -}} C) DEFINE B AS srcPort <> A.srcPort, C AS srcPort = A.srcPort) {where}"
)


@pytest.mark.parametrize("seed", range(6))
def test_the_packets_of_matches_are_those_of_all_their_rows(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    packets = frames(draw, 60)
    path = capture(tmp_path, draw.choice(FORMATS), packets)
    skip = draw.choice(["", "AFTER MATCH SKIP TO NEXT ROW"])
    runs: dict[bytes, list[tuple[int, bytes, int]]] = {}
    for time, frame in sorted(packets):
        is_ipv4 = frame[14] >> 4 == 4
        source = frame[26:30] if is_ipv4 else frame[22:38]
        runs.setdefault(source, []).append((time, frame, int.from_bytes(frame[34 if is_ipv4 else 54 :][:2])))
    of_match, without_middle = Counter[Written](), Counter[Written]()
    for rows in runs.values():
        start = 0
        while start < len(rows):
            end = next((at for at in range(start + 1, len(rows)) if rows[at][2] == rows[start][2]), 0)
            if end < start + 2:
                start += 1
                continue
            if end - start + 1 > 3:
                of_match.update((time, 1, len(frame) + 7, frame) for time, frame, _ in rows[start : end + 1])
            without_middle.update((time, 1, len(frame) + 7, frame) for time, frame, _ in (rows[start], rows[end]))
            start = start + 1 if skip else end + 1
    sql = MATCHES.format(rows="", skip=skip, where="WHERE n > 3")
    assert sorted(evidence(tmp_path / "one.pcapng", sql, path)) == sorted(of_match)
    sql = MATCHES.format(rows="ALL ROWS PER MATCH", skip=skip, where="")
    assert sorted(evidence(tmp_path / "all.pcapng", sql, path)) == sorted(without_middle)
    assert len(of_match) > 5


AUTOMATON = """(PARTITION BY srcIP ORDER BY ts REGISTER first INT, n INT DEFAULT 0
    START idle FINAL closed
    ARC idle TO open SET first = srcPort
    ARC open TO open WHEN srcPort <> first {change}
    ARC open TO closed WHEN srcPort = first)"""

FORMS = {
    "in FROM": "SELECT n FROM packets AUTOMATON {automaton} WHERE {where}",
    "statement": "CREATE AUTOMATON pairs ON packets {automaton}; SELECT n FROM pairs WHERE pairs.{where}",
    "with": "WITH p AS (SELECT * FROM packets), q AS (SELECT n, ts FROM p AUTOMATON {automaton}) "
    "SELECT n FROM q AS r WHERE r.{where}",
    "changes": "SELECT n FROM (SELECT ts, srcIP, srcPort FROM packets) AUTOMATON {automaton} WHERE {where} "
    "WITH CONSISTENCY (WAIT 0, REMEMBER 1 hour) EMIT CHANGES",
    "all rows": "SELECT n FROM (SELECT * FROM packets AUTOMATON {all_rows}) WHERE {where}",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_ignoring", [False, True])
def test_the_packets_of_an_automaton_are_those_that_change_its_runs(
    form: str, is_ignoring: bool, tmp_path: Path
) -> None:
    draw = random.Random(f"{form} {is_ignoring}")
    packets = frames(draw, 60)
    path = capture(tmp_path, draw.choice(FORMATS), packets)
    rows: dict[bytes, list[tuple[int, bytes, int]]] = {}
    for time, frame in sorted(packets):
        is_ipv4 = frame[14] >> 4 == 4
        source = frame[26:30] if is_ipv4 else frame[22:38]
        rows.setdefault(source, []).append((time, frame, int.from_bytes(frame[34 if is_ipv4 else 54 :][:2])))
    expected = set()
    for of_source in rows.values():
        for start, (_, _, port) in enumerate(of_source):
            end = next((at for at in range(start + 1, len(of_source)) if of_source[at][2] == port), None)
            if end is None or (not is_ignoring and end < start + 3):
                continue
            places = [start, end] if is_ignoring else range(start, end + 1)
            expected |= {(time, 1, len(frame) + 7, frame) for time, frame, _ in (of_source[at] for at in places)}
    automaton = AUTOMATON.format(change="" if is_ignoring else "SET n = n + 1")
    all_rows = automaton.replace("START", "ALL ROWS PER MATCH START")
    if form == "with":
        automaton = all_rows  # the select list has `ts`
    where = "n = 0" if is_ignoring else "n > 1"
    sql = FORMS[form].format(automaton=automaton, all_rows=all_rows, where=where)
    found = evidence(tmp_path / "found.pcapng", sql, path)
    assert sorted(found) == sorted(expected)
    assert len(found) > 5


CONDITIONS = {"n > 1": True, "srcPort = 2 AND n > 1": True, "n > srcPort": False, "state = 'closed' AND n > 0": False}
"""Conditions on rows of results, and whether each row is listed once: not for a comparison of a result with a row."""


@pytest.mark.parametrize("where", CONDITIONS)
def test_each_row_of_an_automaton_is_listed_once(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row begins a run, so a row is part of many results."""
    packets = frames(random.Random(where), 200)
    path = capture(tmp_path, "pcap", packets)
    automaton = AUTOMATON.format(change="SET n = n + 1").replace("START", "ALL ROWS PER MATCH START")
    automaton = automaton.replace("ARC open TO closed WHEN srcPort = first", "ARC open TO closed")
    rows = wiretide.query(f"SELECT ts FROM packets AUTOMATON {automaton} WHERE {where}", path)
    times = {row["ts"].value for row in rows.to_pylist()}
    listed = 0
    add = Evidence._add

    def count(found: Evidence, batch: pa.RecordBatch) -> None:
        nonlocal listed
        listed += batch.num_rows
        add(found, batch)

    monkeypatch.setattr(Evidence, "_add", count)
    sql = f"SELECT n FROM (SELECT * FROM packets AUTOMATON {automaton}) AS found WHERE {where}"
    found = evidence(tmp_path / "found.pcapng", sql, path)
    assert {time for time, *_ in found} == times
    assert len(found) == len(times)
    assert rows.num_rows > 2 * len(times)
    assert listed == (len(times) if CONDITIONS[where] else rows.num_rows)


def test_the_packets_of_a_deadline_are_those_before_it(tmp_path: Path) -> None:
    packets = [(T0 + at * SECOND, udp("10.0.0.1", "10.0.0.2", port, at)) for at, port in enumerate([1, 2, 3, 1, 4])]
    path = capture(tmp_path, "pcap", packets)
    sql = """SELECT match_end FROM packets AUTOMATON (
        ORDER BY ts REGISTER asked TIME START idle FINAL missing
        ARC idle TO asked WHEN srcPort = 1 SET asked = ts
        ARC asked TO asked WHEN srcPort = 2
        ARC asked TO seen WHEN srcPort = 3
        ARC seen TO missing AT asked + INTERVAL '3 seconds'
        ARC asked TO missing AT asked + INTERVAL '9 seconds')"""
    found = evidence(tmp_path / "found.pcapng", sql, path)
    assert [frame for *_, frame in found] == [packets[at][1] for at in (0, 2)]
    with pytest.raises(QueryError, match=r"ALL ROWS PER MATCH and AT of an automaton.*expected no EMIT CHANGES"):
        evidence(tmp_path / "other.pcapng", sql.replace("START", "ALL ROWS PER MATCH START") + " EMIT CHANGES", path)


def test_the_packets_of_arcs_of_a_file(tmp_path: Path) -> None:
    packets = [(T0 + at * SECOND, udp("10.0.0.1", f"10.0.0.{at}", 1, 2)) for at in range(1, 7)]
    path = capture(tmp_path, "gzip", packets)
    arcs = tmp_path / "hosts.arcs"
    arcs.write_text("ARC idle TO seen WHEN destIP = '10.0.0.3'; ARC seen TO called WHEN destIP IN ('10.0.0.5')")
    sql = f"""SELECT match_end FROM (SELECT ts, destIP FROM packets) AUTOMATON (
        ORDER BY ts START idle FINAL called ARC seen TO seen ARCS FROM '{arcs}' WITHIN 1 hour) EMIT CHANGES"""
    found = evidence(tmp_path / "found.pcap", sql, path)
    assert [frame for *_, frame in found] == [packets[at][1] for at in (2, 4)]


EQUAL_TIMES = {
    "pattern": "SELECT srcIP FROM packets MATCH_RECOGNIZE (PARTITION BY srcIP ORDER BY ts "
    "PATTERN (A B) DEFINE A AS srcPort = 1, B AS srcPort = 2)",
    "pattern over a query": "SELECT srcIP FROM (SELECT ts, srcIP, srcPort FROM packets) MATCH_RECOGNIZE ("
    "PARTITION BY srcIP ORDER BY ts PATTERN (A B) DEFINE A AS srcPort = 1, B AS srcPort = 2)",
    "automaton": "SELECT srcIP FROM (SELECT ts, srcIP, srcPort FROM packets) AUTOMATON (PARTITION BY srcIP ORDER BY ts "
    "START idle FINAL done ARC idle TO seen WHEN srcPort = 1 ARC seen TO done WHEN srcPort = 2)",
    "arcs of a file": "SELECT srcIP FROM (SELECT ts, srcIP, srcPort FROM packets) AUTOMATON ("
    "PARTITION BY srcIP ORDER BY ts START idle FINAL done ARC seen TO seen ARCS FROM '{arcs}' WITHIN 1 hour)",
    "arcs of a file over all columns": "SELECT srcIP FROM (SELECT * FROM (SELECT ts, srcIP, srcPort FROM packets)) "
    "AUTOMATON (PARTITION BY srcIP ORDER BY ts START idle FINAL done ARC seen TO seen "
    "ARCS FROM '{arcs}' WITHIN 1 hour)",
}


@pytest.mark.parametrize("form", EQUAL_TIMES)
def test_packets_of_equal_times_are_those_of_the_answer(form: str, tmp_path: Path) -> None:
    """Each host sends two packets at one time, so the order of rows decides which hosts are in the answer."""
    draw = random.Random(form)
    hosts = {f"10.0.0.{number}": T0 + number * SECOND for number in range(1, 61)}
    pairs = {
        host: [(time, udp(host, "10.0.1.1", port, 9, draw.randint(80, 300))) for port in draw.sample([1, 2], 2)]
        for host, time in hosts.items()
    }
    path = capture(tmp_path, "pcap", [packet for pair in pairs.values() for packet in pair])
    arcs = tmp_path / "ports.arcs"
    arcs.write_text("ARC idle TO seen WHEN srcPort = 1; ARC seen TO done WHEN srcPort = 2")
    sql = EQUAL_TIMES[form].format(arcs=arcs)
    answer = wiretide.query(sql, path)["srcIP"].to_pylist()
    assert len(answer) > 5
    found = evidence(tmp_path / "found.pcapng", sql, path)
    expected = [packet for host in answer for packet in pairs[host]]
    assert sorted((time, frame) for time, _, _, frame in found) == sorted(expected)


def test_frames_simple_packets_and_other_link_types_are_written(tmp_path: Path) -> None:
    frame = udp("10.0.0.1", "10.0.0.2", 1, 2, 90)
    blocks = [
        section(),
        interface(1, snaplen=60),
        simple(frame[:60], wire=90),
        interface(101),
        enhanced(5, frame[14:], number=1, wire=90),
    ]
    path = tmp_path / "a.pcapng"
    path.write_bytes(b"".join(blocks))
    expected = [(0, 1, 90, frame[:60]), (5000, 101, 90, frame[14:])]
    assert evidence(tmp_path / "out.pcapng", "SELECT len FROM frames", path) == expected
    with pytest.raises(InputError, match=r"link types 1 and 101, expected one.*use the name out.pcapng"):
        evidence(tmp_path / "out.pcap", "SELECT len FROM packets", path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.pcapng", "out.pcapng"]


def test_several_captures_and_no_packet(tmp_path: Path) -> None:
    one = capture(tmp_path, "pcap", [(T0, udp("10.0.0.1", "10.0.0.2", 1, 2))])
    other = capture(tmp_path, "gzip", [(T0, udp("10.0.0.1", "10.0.0.2", 1, 3))])
    assert len(evidence(tmp_path / "both.pcapng", "SELECT len FROM packets", one, other)) == 2
    (found,) = evidence(tmp_path / "one.pcap", "SELECT len FROM packets WHERE destPort = 3", one, other)
    assert found[3] == udp("10.0.0.1", "10.0.0.2", 1, 3)
    for name in ("none.pcap", "none.pcapng"):
        assert evidence(tmp_path / name, "SELECT len FROM packets WHERE destPort = 4", one) == []


REFUSED = {
    "SELECT count(*) FROM packets": "groups or aggregates",
    "SELECT srcIP, count(*) FROM packets GROUP BY srcIP": "GROUP BY",
    "SELECT srcIP, count(*) FROM packets [RANGE 1 minute] GROUP BY srcIP": "a window",
    "SELECT DISTINCT srcIP FROM packets": "DISTINCT",
    "SELECT len FROM packets ORDER BY len LIMIT 3": "LIMIT",
    "SELECT a.len FROM packets a [RANGE 1 second] JOIN packets b [RANGE 1 second] ON a.srcIP = b.destIP": "JOIN",
    "SELECT len FROM packets UNION ALL SELECT len FROM packets": "UNION, INTERSECT or EXCEPT in FROM",
    "SELECT srcIP FROM packets DISTINCT ON (srcIP) WITHIN 1 second": "DISTINCT ON in FROM",
    "SELECT n FROM (SELECT match_end FROM packets AUTOMATON (ORDER BY ts START s FINAL e ARC s TO e)) "
    "MATCH_RECOGNIZE (ORDER BY match_end MEASURES count(*) AS n PATTERN (A B))": "the matches of another pattern",
    "SELECT n FROM (SELECT window_end, sum(len) AS n FROM packets [RANGE 1 second]) "
    "MATCH_RECOGNIZE (ORDER BY window_end MEASURES count(*) AS n PATTERN (A B))": "a window",
    "SELECT max(match_end) AS m FROM packets AUTOMATON (ORDER BY ts START s FINAL e ARC s TO e)": "groups",
    "SELECT len FROM packets EMIT CHANGES": "EMIT CHANGES",
    "WITH p AS (SELECT len FROM packets LIMIT 3) SELECT len FROM p": "LIMIT",
    "SELECT bytes FROM flows": "flows",
    "SELECT sum(len) OVER (ORDER BY ts) AS s FROM packets": "groups or aggregates",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_rows_that_do_not_come_from_single_packets_are_refused(sql: str, tmp_path: Path) -> None:
    path = capture(tmp_path, "pcap", [(T0, udp("10.0.0.1", "10.0.0.2", 1, 2))])
    with pytest.raises((InputError, QueryError)) as error:
        evidence(tmp_path / "out.pcap", sql, path)
    assert REFUSED[sql] in str(error.value)
    assert "expected" in str(error.value)


def test_the_command_prints_the_answer_and_names_the_file(tmp_path: Path) -> None:
    path = capture(tmp_path, "pcap", [(T0, udp("10.0.0.1", "10.0.0.2", 1, 2))])
    sql = "SELECT destPort FROM packets"
    status, out, err = run("query", path.name, sql, "--packets-to", "out.pcap", "--format", "csv", cwd=tmp_path)
    assert (status, out, err) == (0, "destPort\n2\n", "out.pcap: 1 packet\n")
    for words, status, message in (
        ((path.name, "out.pcap", sql, "--packets-to", "out.pcap"), 1, "got an input of the query"),
        ((path.name, sql, "--packets-to", "out.txt"), 1, "a name with .pcap or .pcapng"),
        ((path.name, sql, "--packets-to", "no/out.pcap"), 1, "no/out.pcap"),
        ((path.name, sql, "--packets-to", "new.pcap", "--follow"), 2, "reads captures twice"),
        ((path.name, sql, "--packets-to", "new.pcap", "--on", "local"), 2, "the inline engine"),
    ):
        code, _, err = run("query", *words, cwd=tmp_path)
        assert (code, message in err, "Traceback" in err) == (status, True, False), err
    assert len(contents(tmp_path / "out.pcap")) == 1
