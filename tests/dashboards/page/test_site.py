"""The paths of the page over HTTP: answers, refusals, and the stream of events.

* Every wrong request of the table is answered with a reason, and without a trace of a file.
* Streams from an old ID catch windows that a browser would miss after it reconnects.
"""

from __future__ import annotations

import csv
import io
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dashboards.page.events import MAX_MISSED_WINDOWS, RETRY, Events
from dashboards.page.query_box import MAX_QUERY_SECONDS, QueryBox, QueryTimeError
from dashboards.page.site import FILES, MAX_EXPORTS, MAX_STREAMS
from tests.harness.live_pages import START, LivePage, drawn_rows, live_page, window_rows


def get(page: LivePage, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    with closing(HTTPConnection(urlsplit(page.url).netloc)) as connection:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()


def answer(page: LivePage, path: str, **parameters: object) -> Any:
    status, _, body = get(page, f"{path}?{urlencode(parameters)}")
    assert status == 200, body
    return json.loads(body)


def add(page: LivePage, windows: int, groups: int = 5) -> dict[str, list[list[dict]]]:
    """Add `windows` windows of each query with values. Returns their rows by query."""
    random, rows = Random(5), {}
    for name, plan in page.plans.items():
        rows[name] = [drawn_rows(random, plan, groups if name == "talkers" else 1) for _ in range(windows)]
        for number, drawn in enumerate(rows[name]):
            page.history.add(number, name, window_rows(plan, number, drawn))
    return rows


@pytest.mark.parametrize("path", FILES)
def test_the_files_of_the_page_have_a_strict_policy(path: str, tmp_path: Path) -> None:
    with live_page(tmp_path) as page:
        status, headers, body = get(page, path)
    assert status == 200
    assert len(body) > 300
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in body or path.startswith("/uPlot")  # a comment with the address of its project


def test_state_contains_queries_and_links(tmp_path: Path) -> None:
    with live_page(tmp_path) as page:
        add(page, 3)
        state = answer(page, "/api/state")
    assert [query["name"] for query in state["queries"]] == ["talkers", "total"]
    assert state["queries"][0]["values"] == [
        {"name": "n", "unit": "", "adds": True},
        {"name": "bytes", "unit": "B", "adds": True},
        {"name": "mean", "unit": "", "adds": False},
    ]
    assert [(link["name"], link["records"], link["packets"]) for link in state["links"]] == [("Main", 1000, 900)]
    assert state["newest"] == 6


def test_windows_and_charts_have_the_rows_of_the_results(tmp_path: Path) -> None:
    with live_page(tmp_path) as page:
        rows = add(page, 4)["talkers"]
        panel = answer(page, "/api/panel", query="talkers", column="bytes", seconds=3600, groups=2)
        first = answer(page, "/api/window", id=1, first=0, count=100)
        second_row = answer(page, "/api/window", id=1, first=1, count=1)
    newest, chart = panel["newest"], panel["chart"]
    assert (second_row["first"], second_row["rows"]) == (1, first["rows"][1:2])
    for window, drawn in ((newest, rows[3]), (first, rows[0])):
        assert window["columns"] == ["window_start", "window_end", "srcIP", "n", "bytes", "mean"]
        expected = [[str(ip_address(row["srcIP"])), row["n"], row["bytes"], row["mean"]] for row in drawn]
        assert [row[2:] for row in window["rows"]] == sorted(expected, key=lambda row: -row[1])
    assert chart["ends"] == [START + 10.0 * number + 10 for number in range(4)]
    totals = [sum(row["bytes"] for row in drawn) for drawn in rows]
    shown = [sum(line["values"][number] for line in chart["lines"]) for number in range(4)]
    assert [part + other for part, other in zip(shown, chart["other"]["values"], strict=True)] == totals
    assert sum(line["total"] for line in chart["lines"]) + chart["other"]["total"] == sum(totals)


def test_a_query_reads_the_stored_windows(tmp_path: Path) -> None:
    with live_page(tmp_path) as page:
        rows = add(page, 6)["talkers"]
        sums: dict[str, int] = {}
        for row in (row for drawn in rows for row in drawn):
            sums[str(ip_address(row["srcIP"]))] = sums.get(str(ip_address(row["srcIP"])), 0) + row["n"]
        sql = "SELECT srcIP, sum(n) AS n FROM talkers GROUP BY srcIP ORDER BY n DESC"
        assert dict(map(tuple, answer(page, "/api/query", sql=sql)["rows"])) == sums
        per_window = "SELECT sum(n) AS n FROM talkers [RANGE 20 seconds, WA window_start]"
        pairs = [sum(row["n"] for drawn in rows[at : at + 2] for row in drawn) for at in (0, 2, 4)]
        assert [row[2] for row in answer(page, "/api/query", sql=per_window)["rows"]] == pairs
        inside = "SELECT count(*) AS n FROM talkers WHERE srcIP IN '10.0.0.0/31'"
        assert answer(page, "/api/query", sql=inside)["rows"] == [[12]]
        union = "SELECT n FROM talkers UNION ALL SELECT packets AS n FROM total"
        assert answer(page, "/api/query", sql=union)["windows"] == {"talkers": 6, "total": 6}


def test_a_query_ends_at_its_deadline(tmp_path: Path) -> None:
    with live_page(tmp_path, served=False) as page:
        add(page, 3)
        for sql in ("SELECT n FROM talkers", "SELECT sum(n) AS n FROM talkers"):  # a sum has no row before the end
            box = QueryBox(page.history, iter([0.0, MAX_QUERY_SECONDS + 1]).__next__)
            with pytest.raises(QueryTimeError, match="the query needed more than 5 s"):
                box.answer(sql)


def test_a_long_answer_is_cut(tmp_path: Path) -> None:
    with live_page(tmp_path) as page:
        add(page, 3, groups=700)
        result = answer(page, "/api/query", sql="SELECT srcIP, n FROM talkers")
    assert (len(result["rows"]), result["cut"]) == (1000, True)


FILE = "@/etc/passwd"
JOINED = "FROM talkers a [RANGE 1 day] JOIN talkers b [RANGE 1 day] ON a.n = b.n"

WRONG = [
    ("/api/query", {"sql": "SELECT x FROM talkers"}, 400, "unknown column 'x'"),
    ("/api/query", {"sql": "SELECT n FROM talker"}, 400, "talkers"),
    ("/api/query", {"sql": ""}, 400, "SELECT"),
    ("/api/query", {"sql": "SELECT n FROM talkers " + " " * 3000}, 400, "at most 3000 characters"),
    ("/api/query", {"sql": "@top-talkers"}, 400, "the text of a query"),
    ("/api/query", {"sql": "/etc/passwd.gsql"}, 400, "the text of a query"),
    ("/api/query", {"sql": "/etc/rules.yml"}, 400, "the text of a query"),
    (
        "/api/query",
        {"sql": "SELECT n FROM talkers WHERE in_list(srcIP, '/etc/passwd')"},
        400,
        "which reads a file",
    ),
    (
        "/api/query",
        {"sql": "SELECT getlpmid(srcIP, '/etc/passwd') FROM talkers"},
        400,
        "which reads a file",
    ),
    (
        "/api/query",
        {"sql": "SELECT \"SETTING\"('/etc/passwd', 'a') FROM talkers"},
        400,
        "which reads a file",
    ),
    ("/api/query", {"sql": "SELECT n FROM '/etc/passwd'"}, 400, "got '/etc/passwd'"),
    (
        "/api/query",
        {"sql": f"PARAM {{ x UINT DEFAULT '{FILE}'; }} SELECT n, $x FROM talkers"},
        400,
        "as the default of x",
    ),
    (
        "/api/query",
        {"sql": "SELECT a.n FROM talkers a [RANGE 1 day] JOIN total b [RANGE 1 day] ON a.n = b.packets"},
        400,
        "a join on",
    ),
    ("/api/query", {"sql": f"SELECT n FROM talkers WHERE n IN (SELECT a.n {JOINED})"}, 400, "a join on the page"),
    ("/api/window", {"id": "99", "first": "0", "count": "1"}, 404, "not stored any more"),
    ("/api/window", {"id": "1", "first": "-1", "count": "1"}, 400, "got first = '-1'"),
    ("/api/window", {"id": "1", "first": "0", "count": "10001"}, 400, "from 1 to 10000"),
    ("/api/window", {"id": "1 OR 1=1"}, 400, "got id = '1 OR 1=1', expected a whole number"),
    ("/api/window", {}, 400, "got id = ''"),
    ("/api/panel", {"query": "x' --"}, 400, "expected one of: talkers, total, rows"),
    ("/api/panel", {"query": "talkers", "seconds": "0", "groups": "1"}, 400, "from 1 to"),
    ("/api/panel", {"query": "talkers", "seconds": "9", "groups": "21"}, 400, "from 1 to 20"),
    ("/api/panel", {"query": "talkers", "seconds": "9", "groups": "2", "column": "x"}, 400, "n, bytes, mean"),
    ("/api/panel", {"query": "talkers", "seconds": "9", "groups": "2", "flows": "9"}, 400, "has no diagram"),
    ("/api/panel", {"query": "pairs", "seconds": "9", "groups": "2", "flows": "51"}, 400, "from 1 to 50"),
    ("/export", {"query": "x", "format": "csv"}, 400, "expected one of: talkers, total, rows"),
    ("/export", {"query": "talkers", "format": "xls"}, 400, "expected one of: csv, json, parquet, arrow"),
    ("/export", {"query": "talkers", "format": "csv", "seconds": "x"}, 400, "a whole number from 1"),
    ("/api/unknown", {}, 404, "unknown path"),
    ("/static/page.js", {}, 404, "unknown path"),
    ("/../site.py", {}, 404, "unknown path"),
    ("/page.js/../../site.py", {}, 404, "unknown path"),
    ("/api/../../../etc/passwd", {}, 404, "unknown path"),
    ("/%2e%2e/site.py", {}, 404, "unknown path"),
]


@pytest.mark.parametrize(("path", "parameters", "status", "reason"), WRONG, ids=lambda value: str(value)[:50])
def test_a_wrong_request_has_a_reason(path: str, parameters: dict, status: int, reason: str, tmp_path: Path) -> None:
    with live_page(tmp_path, "talkers", "total", "rows", "sessions", "pairs") as page:
        page.history.add(0, "total", window_rows(page.plans["total"], 0, [{"packets": 1}]))
        got, _, body = get(page, f"{path}?{urlencode(parameters)}")
    assert got == status
    assert reason in body.decode()
    assert b"root:" not in body
    assert b"Traceback" not in body


def test_a_store_that_cannot_be_read_is_an_answer_and_no_traceback(tmp_path: Path, capfd) -> None:
    with live_page(tmp_path) as page:
        page.history._writer.execute("DROP TABLE windows")
        status, _, body = get(page, "/api/panel?query=total")
    assert status == 500
    assert "history.sqlite: cannot be read: no such table" in json.loads(body)["error"]
    assert "Traceback" not in capfd.readouterr().err


def test_requests_of_other_web_sites_are_refused(tmp_path: Path) -> None:
    with live_page(tmp_path) as page:
        path = f"/api/query?{urlencode({'sql': 'SELECT n FROM talkers'})}"
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            assert get(page, path, **{"Sec-Fetch-Site": site})[0] == status
        for other in ("/events", "/export?query=talkers&format=csv", "/api/state"):
            assert get(page, other, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
        assert get(page, "/api/state", Host="attacker.example")[0] == 403


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "arrow"])
def test_an_export_has_all_rows_of_the_stored_windows(kind: str, tmp_path: Path) -> None:
    readers = {
        "csv": lambda body: list(csv.DictReader(io.StringIO(body.decode()))),
        "json": lambda body: [json.loads(line) for line in body.splitlines()],
        "parquet": lambda body: pq.read_table(io.BytesIO(body)).to_pylist(),
        "arrow": lambda body: pa.ipc.open_stream(body).read_all().to_pylist(),
    }
    with live_page(tmp_path) as page:
        rows = add(page, 3, groups=150)["talkers"]
        status, headers, body = get(page, f"/export?query=talkers&format={kind}")
        newest = get(page, f"/export?query=talkers&format={kind}&seconds=10")[2]
        metrics = get(page, "/metrics")[2].decode()
    assert status == 200
    assert headers["Content-Disposition"].startswith('attachment; filename="talkers.')
    expected = [sorted((str(ip_address(row["srcIP"])), row["n"], row["bytes"]) for row in drawn) for drawn in rows]
    for text, windows in ((body, expected), (newest, expected[2:])):
        exported = [(row["srcIP"], int(row["n"]), int(row["bytes"])) for row in readers[kind](text)]
        assert len(exported) == 150 * len(windows)
        parts = [exported[at : at + 150] for at in range(0, len(exported), 150)]
        assert [sorted(part) for part in parts] == windows
    assert 'wiretide_page_exports_total{result="complete"} 2.0' in metrics


def test_texts_of_an_exported_csv_are_escaped_for_spreadsheets(tmp_path: Path) -> None:
    with live_page(tmp_path, "names") as page:
        rows = [{"name": "=1+1", "n": 2}, {"name": "a\x1b[31m", "n": 1}]
        page.history.add(0, "names", window_rows(page.plans["names"], 0, rows))
        body = get(page, "/export?query=names&format=csv")[2].decode()
    assert [line.split(",")[2] for line in body.splitlines()] == ["name", "'=1+1", "a\\x1b[31m"]


def test_exports_are_bounded_and_a_browser_that_disconnects_ends_one(tmp_path: Path) -> None:
    with live_page(tmp_path) as page:
        # More than the buffers of the sockets and of the pipe, so that an export waits for its reader.
        random, plan = Random(3), page.plans["talkers"]
        for number in range(40):
            page.history.add(number, "talkers", window_rows(plan, number, drawn_rows(random, plan, 10_000)))
        address, path = urlsplit(page.url), "/export?query=talkers&format=json"
        connections = []
        for _ in range(MAX_EXPORTS):
            connections.append(socket.create_connection((address.hostname, address.port), timeout=30))
            connections[-1].sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            assert connections[-1].recv(12).startswith(b"HTTP/1.0 200")
        status, _, body = get(page, path)
        assert (status, json.loads(body)["error"]) == (503, "2 exports are running; try again later")
        for connection in connections:
            connection.close()
        until(lambda: b'exports_total{result="broken"} 2.0' in get(page, "/metrics")[2])
        assert get(page, "/export?query=talkers&format=parquet&seconds=10")[0] == 200


def until(look: Callable[[], bool]) -> None:
    """Poll until `look` returns True."""
    while not look():
        time.sleep(0.01)


class Stream:
    """The events of a connection."""

    def __init__(self, page: LivePage, query: str = "", **headers: str) -> None:
        address = urlsplit(page.url)
        self.socket = socket.create_connection((address.hostname, address.port), timeout=30)
        lines = [f"GET /events{query} HTTP/1.0", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        while self.file.readline() != b"\r\n":
            pass

    def events(self) -> Iterator[dict[str, str]]:
        event: dict[str, str] = {}
        for line in self.file:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
            elif "data" in event:
                yield event
                event = {}

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def ids(stream: Stream, count: int) -> list[int]:
    events = stream.events()
    return [int(next(events)["id"]) for _ in range(count)]


def test_a_browser_that_reconnects_misses_no_window(tmp_path: Path) -> None:
    with live_page(tmp_path) as page:
        add(page, 5)
        with closing(Stream(page, "?last=3")) as stream:
            assert ids(stream, 7) == [4, 5, 6, 7, 8, 9, 10]
            page.history.add(9, "total", window_rows(page.plans["total"], 9, [{"packets": 7}]))
            event = next(stream.events())
        assert event["id"] == "11"
        data = json.loads(event["data"])
        assert (data["query"], data["rows"][0][2]) == ("total", 7)
        with closing(Stream(page, **{"Last-Event-ID": "9"})) as stream:
            assert ids(stream, 2) == [10, 11]
    with live_page(tmp_path) as page, closing(Stream(page, **{"Last-Event-ID": "9"})) as stream:
        assert ids(stream, 2) == [10, 11]  # after a restart of the pipeline


def test_a_browser_that_is_too_late_receives_the_number_of_skipped_windows(tmp_path: Path) -> None:
    with live_page(tmp_path, "total") as page:
        plan = page.plans["total"]
        count = MAX_MISSED_WINDOWS + 25
        tables = [window_rows(plan, number, [{"packets": number}]) for number in range(count)]
        page.history.add(0, "total", pa.concat_tables(tables))
        with closing(Stream(page, "?last=5")) as stream:
            events = stream.events()
            first = next(events)
            assert (first["event"], first["data"], first["id"]) == ("skipped", "20", "25")
            assert int(next(events)["id"]) == 26
        assert b"wiretide_page_events_skipped_total 20.0" in get(page, "/metrics")[2]


@pytest.mark.parametrize("last_id", [None, 99, -1])
def test_an_unknown_id_begins_with_new_windows(last_id: int | None, tmp_path: Path) -> None:
    with live_page(tmp_path, served=False) as page:
        add(page, 2)
        stream = Events(page.history, int).stream(last_id)
        assert next(stream) == RETRY
        page.history.add(9, "total", window_rows(page.plans["total"], 9, [{"packets": 1}]))
        assert next(stream).startswith(b"id: 5\nevent: window\n")


def test_streams_are_bounded_and_end_with_the_server(tmp_path: Path) -> None:
    with live_page(tmp_path) as page:
        add(page, 1)
        streams = [Stream(page, "?last=0") for _ in range(MAX_STREAMS)]
        assert [ids(stream, 1) for stream in streams] == [[1]] * MAX_STREAMS
        refused = Stream(page)
        assert refused.status == 503
        refused.close()
        assert answer(page, "/api/state")["newest"] == 2
        assert f"wiretide_page_streams {MAX_STREAMS}.0".encode() in get(page, "/metrics")[2]
    for stream in streams:
        stream.file.read()  # ends only if the server has closed the connection
        stream.close()


def test_metrics_of_the_page_are_in_the_scrape(tmp_path: Path) -> None:
    with live_page(tmp_path) as page:
        add(page, 3)
        answer(page, "/api/query", sql="SELECT n FROM talkers")
        get(page, f"/api/query?{urlencode({'sql': 'SELECT'})}")
        text = get(page, "/metrics")[2].decode()
    assert "wiretide_page_windows 6.0" in text
    assert 'wiretide_page_queries_total{result="answered"} 1.0' in text
    assert 'wiretide_page_queries_total{result="wrong"} 1.0' in text
