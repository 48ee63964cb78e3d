"""Rules over rows of windows: conditions, the window before, exclusions, labels, evidence, and what a rule refuses.

A reference in plain Python computes the matching groups of each window. It detects a condition that reads the wrong
row, an exclusion that is not counted, and rows of a window that are lost when it is divided or reordered.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from dashboards.alerts.evaluation import Evaluation
from dashboards.alerts.messages import utc
from lowlevel.punctuation import BEGINNING, END
from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError
from tests.harness.alert_rules import MINUTE, Row, evaluation, evaluation_of, messages, scans
from tests.references.alert_states import Labels, condition_alerts

RULE = """
[alerts.scan]
query = "scans"
where = "packets > 100"
"""


def brief(sent: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(message["status"], message["ended"] or message["began"], message["summary"]) for message in sent]


def test_a_message_has_everything_about_the_alert(tmp_path: Path) -> None:
    rules = RULE + 'severity = "critical"\nsummary = "{srcIP} sent {packets} packets in {rows} row"\nfor = "2m"\n'
    evaluated = evaluation(rules, tmp_path)
    windows = [(5, "10.0.0.1", 101, 9000), (6, "10.0.0.1", 250, 12_000), (6, "10.0.0.2", 7, 70)]
    (begin, end) = messages(evaluated, windows, until=7)
    assert begin == {
        "id": "5cda1e63cd98c2a1",
        "message": "5cda1e63cd98c2a1-19700101T000600Z-firing",
        "status": "firing",
        "state": "final",
        "rule": "scan",
        "severity": "critical",
        "labels": {"srcIP": "10.0.0.1"},
        "summary": "10.0.0.1 sent 250 packets in 1 row",
        "reason": "true",
        "began": "1970-01-01T00:06:00Z",
        "ended": None,
        "since": "1970-01-01T00:04:00Z",
        "window": {"start": "1970-01-01T00:05:00Z", "end": "1970-01-01T00:06:00Z"},
        "query": "scans",
        "sql": "SELECT srcIP, count(*) AS packets, sum(len) AS bytes FROM Main [RANGE 1 minute] GROUP BY srcIP",
        "condition": "packets > 100",
        "absent": None,
        "rows": 1,
        "evidence": [
            {
                "window_start": "1970-01-01T00:05:00Z",
                "window_end": "1970-01-01T00:06:00Z",
                "srcIP": "10.0.0.1",
                "packets": 250,
                "bytes": 12_000,
            }
        ],
    }
    ending = {"message": "5cda1e63cd98c2a1-19700101T000600Z-ended", "status": "ended", "reason": "false"}
    assert end == {**begin, **ending, "ended": "1970-01-01T00:07:00Z"}


def test_a_rule_without_a_condition_is_true_for_every_row(tmp_path: Path) -> None:
    evaluated = evaluation('[alerts.any]\nquery = "scans"\n', tmp_path)
    assert brief(messages(evaluated, [(1, "::1", 1, 1)])) == [("firing", utc(MINUTE), "any: srcIP ::1")]


def test_labels_group_rows_and_evidence_has_the_largest(tmp_path: Path) -> None:
    rules = RULE + 'labels = []\nevidence = 2\nsummary = "{rows} sources, the largest {srcIP}"\n'
    rows = [(1, f"10.0.0.{number}", 100 + number, 1) for number in range(1, 6)]
    Random(1).shuffle(rows)
    (message,) = messages(evaluation(rules, tmp_path), rows)
    assert (message["labels"], message["rows"]) == ({}, 5)
    assert [row["packets"] for row in message["evidence"]] == [105, 104]
    assert message["summary"] == "5 sources, the largest 10.0.0.5"


def test_labels_are_columns_in_any_case_and_null_is_an_empty_text(tmp_path: Path) -> None:
    evaluated = evaluation(RULE + 'labels = ["BYTES", "srcip"]\n', tmp_path)
    rows = scans(evaluated, [(1, "10.0.0.1", 200, 5)])
    rows["scans"] = rows["scans"].set_column(4, "bytes", pa.nulls(1, pa.int64()))
    ((rule, change),) = evaluated.evaluate(rows, {})
    assert rule.message(change)["labels"] == {"bytes": "", "srcIP": "10.0.0.1"}


def test_a_condition_compares_with_the_window_before(tmp_path: Path) -> None:
    rules = '[alerts.jump]\nquery = "scans"\nwhere = "packets > 2 * Previous_Packets"\n'
    evaluated = evaluation(rules, tmp_path)
    sent = messages(evaluated, [(1, "10.0.0.1", 10, 1), (2, "10.0.0.1", 25, 1), (2, "10.0.0.2", 99, 1)])
    assert brief(sent) == [("firing", utc(2 * MINUTE), "jump: srcIP 10.0.0.1")]  # .2 has no window before
    # In the next micro-batch minute 3 is compared with minute 2, and minute 5 with no window.
    sent = messages(evaluated, [(5, "10.0.0.2", 500, 1), (3, "10.0.0.2", 250, 1), (3, "10.0.0.1", 26, 1)])
    assert brief(sent) == [
        ("ended", utc(3 * MINUTE), "jump: srcIP 10.0.0.1"),
        ("firing", utc(3 * MINUTE), "jump: srcIP 10.0.0.2"),
        ("ended", utc(4 * MINUTE), "jump: srcIP 10.0.0.2"),
    ]


def test_exclusions_remove_rows_and_are_counted(tmp_path: Path) -> None:
    rules = RULE + (
        'exclude = [{ where = "srcIP = \'10.0.0.5\'", comment = "our scanner" },\n'
        ' { where = "srcIP IN \'10.1.0.0/16\' AND bytes < 500", comment = "printers" }]\n'
    )
    rows = [
        (1, "10.0.0.5", 200, 1), (1, "10.1.2.3", 200, 499), (1, "10.1.2.3", 1, 1), (2, "10.1.2.3", 200, 500),
        (3, "10.0.0.5", 5, 1),
    ]  # fmt: skip
    evaluated = evaluation(rules, tmp_path)
    assert brief(messages(evaluated, rows)) == [
        ("firing", utc(2 * MINUTE), "scan: srcIP 10.1.2.3"),
        ("ended", utc(3 * MINUTE), "scan: srcIP 10.1.2.3"),
    ]
    assert evaluated.rules[0].excluded_rows == 2  # rows that satisfy the condition


def test_a_condition_may_read_a_watchlist_and_a_setting_next_to_the_pipeline_file(tmp_path: Path) -> None:
    (tmp_path / "known.txt").write_text("10.0.0.0/24\n")
    (tmp_path / "limits.toml").write_text("least = 5\n")
    rules = (
        "[alerts.a]\nquery = \"scans\"\nwhere = \"packets > setting('limits.toml', 'least')\"\n"
        'exclude = [{ where = "in_list(srcIP, \'known.txt\')", comment = "known" }]\n'
    )
    evaluated = evaluation(rules, tmp_path)
    rows = [(1, "10.0.0.1", 9, 1), (1, "10.0.1.1", 9, 1), (1, "10.0.1.2", 5, 1)]
    assert brief(messages(evaluated, rows)) == [("firing", utc(MINUTE), "a: srcIP 10.0.1.1")]
    (tmp_path / "limits.toml").write_text("least = 50\n")  # takes effect with the next windows
    assert brief(messages(evaluated, [(2, "10.0.1.1", 9, 1)])) == [("ended", utc(2 * MINUTE), "a: srcIP 10.0.1.1")]


def test_late_rows_are_parts_of_windows_and_are_only_counted(tmp_path: Path) -> None:
    text = """
[links]
Main = "main.pcap"
[queries.counts]
sql = "SELECT count(*) AS n FROM Main [RANGE 2 minutes, SLIDE 1 minute, LATE EMIT]"
[alerts.few]
query = "counts"
where = "n < 10"
"""
    evaluated = evaluation_of(parse_pipeline(text, tmp_path))
    (rule,) = evaluated.rules
    rows = [
        {"window_start": -MINUTE, "window_end": MINUTE, "n": n, "late": late} for n, late in ((50, False), (2, True))
    ]
    table = pa.Table.from_pylist(rows, rule.plan.schema)
    assert evaluated.evaluate({"counts": table}, {"counts": MINUTE}) == []
    assert (rule.late_rows, rule.states.time) == (1, MINUTE)


def test_sliding_windows_move_by_their_slide(tmp_path: Path) -> None:
    text = """
[links]
Main = "main.pcap"
[queries.counts]
sql = "SELECT count(*) AS n FROM Main [RANGE 10 minutes, SLIDE 1 minute, ORIGIN 7000000000]"
[alerts.many]
query = "counts"
where = "n > 10"
for = "3m"
"""
    evaluated = evaluation_of(parse_pipeline(text, tmp_path))
    (rule,) = evaluated.rules
    second = MINUTE // 60
    ends = [7 * second + minute * MINUTE for minute in range(1, 6)]
    rows = [{"window_start": end - 10 * MINUTE, "window_end": end, "n": 50} for end in ends[:4]]
    changes = evaluated.evaluate({"counts": pa.Table.from_pylist(rows, rule.plan.schema)}, {"counts": ends[4] + 1})
    begin, end = [rule.message(change) for rule, change in changes]
    assert (begin["since"], begin["began"]) == (utc(7 * second), utc(ends[2]))
    assert begin["window"] == {"start": utc(ends[2] - 10 * MINUTE), "end": utc(ends[2])}
    assert end["ended"] == utc(ends[4])


@pytest.mark.parametrize(
    ("watermark", "newest", "time"),
    [(BEGINNING, 9 * MINUTE, None), (END, None, None), (END, 9 * MINUTE + 1, 9 * MINUTE), (3 * MINUTE, 9, 3 * MINUTE)],
)
def test_the_end_of_the_input_is_the_time_of_the_newest_packet(
    watermark: int, newest: int | None, time: int | None, tmp_path: Path
) -> None:
    evaluated = evaluation(RULE, tmp_path)
    evaluated.evaluate({}, {"scans": watermark}, newest)
    assert evaluated.rules[0].states.time == time


def test_changes_of_several_rules_are_in_the_order_of_time(tmp_path: Path) -> None:
    rules = RULE + '[alerts.first]\nquery = "scans"\nlabels = []\n'
    sent = messages(evaluation(rules, tmp_path), [(1, "::1", 1, 1), (2, "::1", 200, 1), (4, "::1", 1, 1)])
    assert [(message["rule"], message["status"], message["ended"] or message["began"]) for message in sent] == [
        ("first", "firing", utc(MINUTE)),
        ("scan", "firing", utc(2 * MINUTE)),
        ("scan", "ended", utc(3 * MINUTE)),
        ("first", "ended", utc(3 * MINUTE)),
        ("first", "firing", utc(4 * MINUTE)),
    ]


def matching_labels(rows: list[Row]) -> dict[int, set[Labels]]:
    """The condition of the random test in plain Python, by the end of the window."""
    packets = {(minute, address): packets for minute, address, packets, _ in rows}
    matching: dict[int, set[Labels]] = {}
    for minute, address, number, size in rows:
        before = packets.get((minute - 1, address))
        is_true = number > 40 or (before is not None and number > 2 * before)
        is_excluded = address == "10.0.0.3" or size > 900
        matching.setdefault(minute * MINUTE, set())
        if is_true and not is_excluded:
            matching[minute * MINUTE].add((("srcIP", address),))
    return matching


@pytest.mark.parametrize("seed", range(40))
def test_rules_equal_plain_python_over_random_rows_in_any_order_and_division(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    hold, keep = random.randrange(4), random.randrange(4)
    rules = (
        '[alerts.r]\nquery = "scans"\nwhere = "packets > 40 OR packets > 2 * previous_packets"\n'
        f'for = "{hold}m"\nkeep = "{keep}m"\n'
        'exclude = [{ where = "srcIP = \'10.0.0.3\'", comment = "a" }, { where = "bytes > 900", comment = "b" }]\n'
    )
    addresses = [f"10.0.0.{number}" for number in range(1, 5)] + ["2001:db8::1"]
    minutes = sorted(random.sample(range(1, 60), random.randrange(2, 40)))
    rows = [
        (minute, address, random.choice([random.randrange(20), random.randrange(60)]), random.randrange(1000))
        for minute in minutes
        for address in addresses
        if random.random() < 0.8
    ]
    evaluated = evaluation(rules, tmp_path)
    rest, changes = [minute for minute in minutes if any(row[0] == minute for row in rows)], []
    last = rest[-1]
    while rest:
        count = random.randrange(1, len(rest) + 1)
        batch, rest = rest[:count], rest[count:]
        of_batch = [row for row in rows if row[0] in batch]
        random.shuffle(of_batch)
        changes += evaluated.evaluate(scans(evaluated, of_batch), {})
    alerts: dict[tuple[Labels, int | None], Any] = {}
    for _, change in changes:
        group = change.group
        alerts[group.labels, group.began] = (group.labels, group.began, change.ended, change.reason)
    matching = matching_labels(rows)
    ends = range(min(matching), last * MINUTE + 1, MINUTE)
    expected = condition_alerts(matching, ends, hold * MINUTE, keep * MINUTE)
    assert sorted(alerts.values(), key=lambda alert: (alert[1], alert[0])) == expected, seed


def queries_of_kinds(sql: str) -> str:
    return f"""
[links]
Main = "main.pcap"
[queries.q]
sql = '''{sql}'''
[alerts.a]
query = "q"
"""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ts, srcIP FROM Main WHERE len > 1400",
        "SELECT srcIP, count(*) AS n FROM Main [SESSION 30 seconds] GROUP BY srcIP",
        "SELECT count(*) AS n FROM Main [RANGE 100 rows, SLIDE 100 rows]",
        "SELECT count(*) AS n FROM Main [RANGE 1 minute, SLIDE 10 rows]",
        "SELECT srcIP, count(*) AS n FROM Main [RANGE ALL, SLIDE 1 minute] GROUP BY srcIP",
        "SELECT a.ts, b.ts AS t FROM Main a [RANGE 1 s, WA ts] JOIN Main b [RANGE 1 s, WA ts] ON a.srcIP = b.destIP",
    ],
)
def test_queries_without_windows_of_a_fixed_length_are_refused(sql: str, tmp_path: Path) -> None:
    expected = (
        "alerts.a.query: got q, which has no windows of a fixed length of time; expected a query with, for example, "
        "[RANGE 1 minute, SLIDE 1 minute, WA ts], or another query that reads its rows with such a window: FROM q "
        "[RANGE 1 minute]"
    )
    with pytest.raises(PipelineError) as error:
        evaluation_of(parse_pipeline(queries_of_kinds(sql), tmp_path))
    assert str(error.value) == expected


@pytest.mark.parametrize(
    ("sql", "labels"),
    [
        ("SELECT srcIP, destPort, max(ts) AS newest FROM Main [RANGE 1 minute] GROUP BY srcIP, destPort",
         ("srcIP", "destPort")),
        ("SELECT srcIP, count(*) AS n FROM Main [RANGE 1 minute] GROUP BY srcIP ORDER BY n DESC LIMIT 3", ("srcIP",)),
        ("SELECT srcIP, rank() OVER (ORDER BY count(*) DESC) AS place FROM Main [RANGE 1 minute] GROUP BY srcIP",
         ("srcIP",)),
        ("SELECT srcIP, count(*) AS n FROM Main [RANGE 1 minute] GROUP BY srcIP FILL 0", ("srcIP",)),
        ("SELECT len > 100 AS large, count(*) AS n FROM Main [RANGE 1 minute] GROUP BY large", ("large",)),
        ("SELECT count(*) AS n FROM Main [RANGE 1 minute]", ()),
    ],
)  # fmt: skip
def test_labels_are_by_default_the_columns_of_the_groups(sql: str, labels: tuple[str, ...], tmp_path: Path) -> None:
    (rule,) = evaluation_of(parse_pipeline(queries_of_kinds(sql), tmp_path)).rules
    assert rule.rule.labels == labels
    row = dict.fromkeys(rule.plan.schema.names) | {"window_start": 0, "window_end": MINUTE}
    (change,) = rule.evaluate(pa.Table.from_pylist([row], rule.plan.schema), None)
    assert dict(change.group.labels) == dict.fromkeys(labels, "")


WRONG_RULES = [
    ('where = "packets >"', ("where: line 1, column 10: the condition ends too early; expected a column, a literal, a "
     "function or '('\n    packets >\n             ^")),
    ('where = "packet > 1"', ("where: line 1, column 1: unknown column 'packet' of scans; expected one of the valid "
     "names\n    packet > 1\n    ^\nvalid: packets, window_start, window_end, srcIP, bytes")),
    ("where = '''packets > 1 AND\n  byte > 2'''", ("where: line 2, column 3: unknown column 'byte' of scans; expected "
     "one of the valid names\n      byte > 2\n      ^\nvalid: bytes, window_start, window_end, srcIP, packets")),
    ('where = "packets"', ("where: line 1, column 1: WHERE over a value of type integer; expected a condition, for "
     "example len > 100\n    packets\n    ^")),
    ('where = "count(*) > 1"', ("where: line 1, column 1: the aggregate count in WHERE; expected aggregates in SELECT "
     "and HAVING only, not within each other\n    count(*) > 1\n    ^")),
    ('where = "TRUE) AS x, (FALSE"', ("where: line 1, column 7: got 'AS' in WHERE; expected an operator or the end of "
     "the clause\n    TRUE) AS x, (FALSE\n          ^")),
    ('where = "srcIP IN (SELECT srcIP FROM scans)"', ("where: line 1, column 1: a sub-query in a condition; expected "
     "columns of the query, and functions of files\n    srcIP IN (SELECT srcIP FROM scans)\n    ^")),
    ('where = "packets > previous_srcIP"', ("where: line 1, column 11: unknown column 'previous_srcIP' of scans; "
     "expected one of the valid names\n    packets > previous_srcIP\n              ^\n"
     "valid: srcIP, window_start, window_end, packets, bytes")),
    ("where = \"in_list(srcIP, 'none.txt')\"", ("where: line 1, column 16: {base}/none.txt: cannot be read as a "
     "watchlist: No such file or directory; expected a file with one address or prefix per line, from {base} if "
     "relative\n    in_list(srcIP, 'none.txt')\n                   ^")),
    ('where = "packets > 1 /* all"', ("where: line 1, column 13: a comment that is never closed; expected */ after the "
     "comment\n    packets > 1 /* all\n                ^")),
    ('exclude = [{ where = "srcIP > 5", comment = "c" }]', ("exclude[1].where: line 1, column 9: > between address and "
     "integer; expected a value of type address\n    srcIP > 5\n            ^")),
    ('labels = ["port"]', "labels: got 'port', expected columns of the query scans: srcIP, packets, bytes"),
    ('labels = ["srcIP", "srcIP"]', ("labels: label 1, 'srcIP', and label 2, 'srcIP', would both have the label name "
     "'src_ip'; rename one of them (columns: AS name)")),
    ('summary = "{port} {srcIP}"', ("summary: got {{port}}, expected rows or columns of the query scans: window_start, "
     "window_end, srcIP, packets, bytes")),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), WRONG_RULES, ids=[line for line, _ in WRONG_RULES])
def test_wrong_rules_have_a_message_with_the_place(line: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError) as error:
        evaluation(f'[alerts.a]\nquery = "scans"\n{line}\n', tmp_path)
    assert str(error.value) == f"alerts.a.{expected.format(base=tmp_path)}"
    assert error.value.status == 2


def test_labels_that_every_alert_has_are_refused(tmp_path: Path) -> None:
    sql = "SELECT srcIP AS severity, count(*) AS n FROM Main [RANGE 1 minute] GROUP BY srcIP"
    with pytest.raises(PipelineError) as error:
        evaluation_of(parse_pipeline(queries_of_kinds(sql), tmp_path))
    assert str(error.value) == (
        "alerts.a.labels: each alert and label 1, 'severity', would both have the label name 'severity'; rename one of "
        "them (columns: AS name)"
    )


def test_the_window_before_needs_all_columns_of_the_group(tmp_path: Path) -> None:
    sql = "SELECT srcIP, count(*) AS n FROM Main [RANGE 1 minute] GROUP BY srcIP, destIP"
    with pytest.raises(PipelineError) as error:
        evaluation_of(parse_pipeline(queries_of_kinds(sql) + 'where = "n > previous_n"\n', tmp_path))
    assert str(error.value) == (
        "alerts.a: previous_X needs all columns of GROUP BY in SELECT, to find the row of the same group; the query q "
        "does not select k1"
    )


def test_an_evaluation_of_no_rules_does_nothing(tmp_path: Path) -> None:
    evaluated: Evaluation = evaluation("", tmp_path)
    assert evaluated.evaluate({}, {"scans": END}, 5) == []
