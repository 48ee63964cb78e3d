"""The Python API: answers as Arrow tables, packets as batches, plans as text. It can catch a type that changes."""

import gzip
import os
from ipaddress import ip_address
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import wiretide
from capture.errors import InputError
from capture.packets.columns import COLUMNS
from queries.text.errors import QueryError
from tests.conftest import StartedThreads
from tests.harness import in_ns
from tests.references.packet_rows import decode_file
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, icmp, udp, write


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    packets = [(61, udp("10.0.0.1", "10.0.0.9", 1, 53)), (5, icmp("2001:db8::1", "2001:db8::2")), (6.5, b"")]
    return write(tmp_path / "M.pcap", packets)


def test_query_answers_with_an_arrow_table(capture: Path) -> None:
    sql = "SELECT destIP, destPort, count(*), avg(len) AS mean FROM p [RANGE 1 minute] GROUP BY destIP, destPort"
    table = in_ns.query(sql, capture)
    assert table.schema == pa.schema(
        [
            ("window_start", pa.int64()),
            ("window_end", pa.int64()),
            ("destIP", pa.string()),
            ("destPort", pa.int64()),
            ("count", pa.int64()),
            ("mean", pa.float64()),
        ]
    )
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert rows == [(0, 60 * NS, "2001:db8::2", None, 1, 100.0), (60 * NS, 120 * NS, "10.0.0.9", 53, 1, 100.0)]
    assert table.to_pandas()["count"].sum() == 2


def test_query_takes_paths_folders_and_streams(capture: Path) -> None:
    sql = "SELECT link, count(*) FROM m GROUP BY link"
    expected = [{"link": "M", "count": 2}]
    assert in_ns.query(sql, str(capture)).to_pylist() == expected
    assert in_ns.query(sql, capture.parent).to_pylist() == expected
    assert in_ns.query(sql, streams={"M": [str(capture)]}).to_pylist() == expected
    with pytest.raises(InputError, match=r"M\.pcap.* twice"):
        in_ns.query(sql, capture, capture.parent)


NOW = 1_700_000_000
"""Seconds of today: six of these in ns are more than an int64 holds."""


def test_the_mean_of_today_is_today(tmp_path: Path) -> None:
    capture = write(tmp_path / "M.pcap", [(NOW + second, udp("10.0.0.1", "10.0.0.9", 1, 53)) for second in range(101)])
    offset = f"avg(ts - {NOW * NS}) AS since"
    total = f"sum(ts - {NOW * NS}) AS total"
    (row,) = in_ns.query(f"SELECT avg(ts) AS mean, {offset}, {total} FROM p", capture).to_pylist()
    assert row["mean"] == pytest.approx((NOW + 50) * NS, abs=10_000)
    assert row["since"] == 50 * NS
    assert row["total"] == sum(range(101)) * NS


def test_a_window_as_far_and_long_as_the_clause_takes_holds_its_packets(tmp_path: Path) -> None:
    last = 2**32 - 1
    capture = write(tmp_path / "M.pcap", [(second, udp("10.0.0.1", "10.0.0.9", 1, 53)) for second in (0, NOW, last)])
    for origin, days in ((-(2**62) + 1, 3665), (0, 53375), (2**62 - 1, 3665)):
        sql = f"SELECT count(*) AS n FROM p [RANGE {days} days, SLIDE {days} days, ORIGIN {origin}]"
        slide = days * 86400 * NS
        ends = [origin + ((second * NS - origin) // slide + 1) * slide for second in (0, NOW, last)]
        rows = in_ns.query(sql, capture).to_pylist()
        expected = sorted({end for end in ends if end > origin})
        assert [(row["window_end"], row["window_start"] + slide) for row in rows] == [(end, end) for end in expected]


def test_an_answer_without_rows_has_its_columns(capture: Path) -> None:
    table = in_ns.query("SELECT srcIP, count(*) FROM p WHERE len > 5000 GROUP BY srcIP", capture)
    assert (table.num_rows, table.column_names) == (0, ["srcIP", "count"])


def test_threads_and_slack_are_arguments_too(tmp_path: Path) -> None:
    frame = udp("10.0.0.1", "10.0.0.9", 1, 53)
    times = [*range(64), 90, 1]
    path = tmp_path / "M.pcap.gz"
    path.write_bytes(gzip.compress(write(tmp_path / "M.pcap", [(time, frame) for time in times]).read_bytes()))
    sql = "SELECT count(*) AS n FROM p [RANGE 10 seconds]"
    expected = in_ns.query(sql, path).to_pylist()
    assert sum(row["n"] for row in expected) == 66
    assert in_ns.query(sql, path, threads=3, slack="exact").to_pylist() == expected
    assert in_ns.query(sql, path, slack="2 minutes").to_pylist() == expected
    with pytest.raises(ValueError, match="got a slack of 'soon', expected a duration"):
        in_ns.query(sql, path, slack="soon")


@pytest.mark.parametrize("options", [{"threads": 2}, {"slack": "1s"}, {"follow": True}])
def test_arguments_of_the_inline_engine_are_refused_with_another(options: dict, capture: Path) -> None:
    with pytest.raises(ValueError, match="need the engine inline; got the engine local"):
        in_ns.query("SELECT count(*) FROM p", capture, on="local", **options)
    with pytest.raises(ValueError, match="got 0 threads, expected at least 1"):
        in_ns.query("SELECT count(*) FROM p", capture, threads=0)


def test_what_is_not_in_an_answer_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "M.pcap", [(1, udp("10.0.0.1", "10.0.0.9", 1, 53))] * 2)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match=r"M\.pcap: cut in record, after 1 whole record$") as told:
        assert wiretide.query("SELECT count(*) AS n FROM p", path).to_pylist() == [{"n": 1}]
    assert told[0].filename == __file__
    path.write_bytes(pcap_bytes([(NS, b"frame")], link_type=147))
    with pytest.raises(InputError, match="the only record is of a link type that is not supported"):
        in_ns.query("SELECT count(*) AS n FROM p", path)


def test_watch_yields_windows_when_they_are_over(tmp_path: Path, started_threads: StartedThreads) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    frame = udp("10.0.0.1", "10.0.0.9", 1, 53)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # or opening to write would wait for the engine
    batches = in_ns.watch("SELECT srcIP, count(*) AS n FROM p [RANGE 10 seconds] GROUP BY srcIP", pipe, slack="2s")
    with pipe.open("wb", buffering=0) as end:
        content = pcap_bytes([(NS, frame)] * 64 + [(12 * NS, frame)], RAW_IP)
        end.write(content)
        assert next(batches).to_pylist() == [{"window_start": 0, "window_end": 10 * NS, "srcIP": "10.0.0.1", "n": 64}]
    os.close(reading)
    assert [row["n"] for batch in batches for row in batch.to_pylist()] == [1]
    assert not started_threads()


def test_watch_opens_its_inputs_at_once_and_ends_its_threads_when_closed(
    capture: Path, started_threads: StartedThreads
) -> None:
    with pytest.raises(InputError, match="No such file"):
        in_ns.watch("SELECT count(*) FROM p", capture.with_name("none.pcap"))
    batches = in_ns.watch("SELECT count(*) AS n FROM p [RANGE 1 minute]", capture)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert not started_threads()


def test_errors_are_exceptions_of_their_own(capture: Path) -> None:
    with pytest.raises(QueryError) as error:
        in_ns.query("SELECT count(*) FROM p WHERE lne > 5", capture)
    assert error.value.position == 29
    with pytest.raises(InputError, match="No such file"):
        in_ns.query("SELECT count(*) FROM p", capture.with_name("none.pcap"))
    with pytest.raises(InputError, match="no file for the stream p; bound are: q"):
        in_ns.query("SELECT count(*) FROM p", streams={"q": [str(capture)]})


def test_packets_are_all_columns_of_every_ip_packet_in_file_order(capture: Path) -> None:
    table = pa.Table.from_batches(in_ns.packets(capture))
    assert table.column_names == list(COLUMNS)
    rows = table.to_pylist()
    assert [row["ts"] for row in rows] == [61 * NS, 5 * NS]
    decoded, _, _ = decode_file(capture)
    for row in rows:
        row |= {"srcIP": ip_address(row["srcIP"]), "destIP": ip_address(row["destIP"])}
        row["interface"] = int(row["interface"])  # a capture without names has their numbers
        assert row.pop("link") == "M"
    assert rows == decoded


def test_packets_may_be_some_columns_and_an_unknown_one_is_an_error(capture: Path) -> None:
    rows = [row for batch in in_ns.packets(str(capture), ["destPort", "ts"]) for row in batch.to_pylist()]
    assert rows == [{"destPort": 53, "ts": 61 * NS}, {"destPort": None, "ts": 5 * NS}]
    with pytest.raises(ValueError, match="no column of packets is named port; the columns are ts, link"):
        next(in_ns.packets(capture, ["port"]))


def test_packets_of_a_compressed_capture_are_those_of_the_file_inside(capture: Path) -> None:
    packed = capture.with_suffix(".pcap.gz")
    packed.write_bytes(gzip.compress(capture.read_bytes()))
    columns = ["ts", "srcIP", "payload"]
    assert list(in_ns.packets(packed, columns)) == list(in_ns.packets(capture, columns))
    packed.write_bytes(gzip.compress(capture.read_bytes())[:-9])
    with pytest.warns(RuntimeWarning, match=r"M\.pcap\.gz: cut in compression"):
        list(in_ns.packets(packed, columns))


def test_rows_of_other_kinds_and_of_the_inner_layer_are_read_by_their_names(capture: Path) -> None:
    frames = pa.Table.from_batches(in_ns.packets(capture, ["ts", "srcIP", "Inner.TTL", "payload"], kind="frames"))
    assert frames.column_names == ["ts", "srcIP", "inner.ttl", "payload"]
    assert [field.type for field in frames.schema] == [pa.int64(), pa.string(), pa.int64(), pa.large_binary()]
    packets = pa.Table.from_batches(in_ns.packets(capture, frames.column_names))
    assert frames.num_rows == 3
    assert frames.filter(pc.is_valid(frames["srcIP"])) == packets
    nothing = frames.filter(pc.is_null(frames["srcIP"])).to_pylist()
    assert [{name: row[name] for name in row if name != "ts"} for row in nothing] == [
        {"srcIP": None, "inner.ttl": None, "payload": None}
    ]
    with pytest.raises(ValueError, match="no rows are of the kind cells; the kinds are packets, frames"):
        in_ns.packets(capture, kind="cells")


def test_a_damaged_capture_is_read_as_far_as_it_goes_with_a_warning(capture: Path) -> None:
    whole = list(in_ns.packets(capture, ["TS", "destip"]))
    capture.write_bytes(capture.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match="cut in record header, after 2 whole records"):
        cut = list(in_ns.packets(capture, ["TS", "destip"]))
    assert whole[0].schema.names == ["ts", "destIP"]
    assert pa.Table.from_batches(cut) == pa.Table.from_batches(whole)  # the third record holds no IP packet


def test_explain_is_the_text_of_the_plan() -> None:
    text = wiretide.explain("SELECT count(*) FROM p [RANGE 5 minutes, SLIDE 1 minute]")
    assert text.startswith("query query: SELECT count(*)")
    assert "roll up         5 panes per window" in text
    with pytest.raises(QueryError):
        wiretide.explain("SELECT")
