"""Closed windows as lines: whole lines expected. It can catch a wrong window, a wrong largest group, a lost count."""

import pyarrow as pa

from dashboards.monitors.window_lines import window_lines
from highlevel.results.row_limit import RowLimit, select_rows
from queries.gsql import compile_query
from tests.references.exporter_rows import MINUTE, SECOND

PLAN = compile_query(f"SELECT srcIP, count(*) AS packets FROM M {MINUTE} GROUP BY srcIP", "talkers")


def table(*rows: tuple[int, bytes, int]) -> pa.Table:
    """Rows of (end in s, address, packets)."""
    full = [((end - 60) * SECOND, end * SECOND, address, packets) for end, address, packets in rows]
    return pa.Table.from_pylist([dict(zip(PLAN.schema.names, row, strict=True)) for row in full], schema=PLAN.schema)


def address(last: int) -> bytes:
    return bytes([10, 0, 0, last])


def test_a_line_names_the_end_the_rows_and_the_largest_group() -> None:
    rows = table((120, address(1), 5), (60, address(2), 1234567), (120, address(3), 7), (120, address(4), 7))
    assert list(window_lines(PLAN, rows)) == [
        "1970-01-01T00:01:00Z  talkers: 1 row, srcIP 10.0.0.2, packets 1,234,567",
        "1970-01-01T00:02:00Z  talkers: 3 rows, the largest srcIP 10.0.0.3, packets 7",
    ]


def test_many_windows_are_counted_and_the_newest_shown() -> None:
    rows = table(*((60 * minute, address(1), minute) for minute in (4, 1, 3, 2, 5)))
    lines = list(window_lines(PLAN, rows, max_windows=2))
    assert lines[0].split() == ["talkers:", "3", "earlier", "windows"]
    assert next(window_lines(PLAN, rows, max_windows=4)).split() == ["talkers:", "1", "earlier", "window"]
    assert [line[:20] for line in lines[1:]] == ["1970-01-01T00:04:00Z", "1970-01-01T00:05:00Z"]


def test_windows_of_rows_end_at_a_row() -> None:
    plan = compile_query("SELECT count(*) AS packets FROM M [RANGE 2000 rows]", "counted")
    rows = pa.Table.from_pylist([{"window_start": 0, "window_end": 2000, "packets": 2000}], schema=plan.schema)
    assert list(window_lines(plan, rows)) == ["           row 2,000  counted: 1 row, packets 2,000"]


def test_a_table_without_rows_has_no_line() -> None:
    assert list(window_lines(PLAN, table())) == []


def test_null_is_never_the_largest_and_text_alone_is_shown_as_it_is() -> None:
    sparse = compile_query(f"SELECT link, avg(vlan) AS mean FROM M {MINUTE} GROUP BY link", "vlans")
    rows = pa.table({"window_start": [0, 0], "window_end": [60 * SECOND] * 2, "link": ["a", "b"], "mean": [None, 1.5]})
    assert list(window_lines(sparse, rows.cast(sparse.schema))) == [
        "1970-01-01T00:01:00Z  vlans: 2 rows, the largest link b, mean 1.5"
    ]
    names = compile_query(f"SELECT link FROM M {MINUTE} GROUP BY link", "links")
    rows = pa.table({"window_start": [0], "window_end": [60 * SECOND], "link": ["a"]})
    assert list(window_lines(names, rows)) == ["1970-01-01T00:01:00Z  links: 1 row, link a"]


def test_the_largest_is_by_the_first_value_and_never_by_a_key() -> None:
    ports = compile_query(f"SELECT count(*) AS n, destPort FROM M {MINUTE} GROUP BY destPort", "ports")
    rows = [(0, 60 * SECOND, 1000, 53), (0, 60 * SECOND, 1, 65000)]
    full = pa.Table.from_pylist([dict(zip(ports.schema.names, row, strict=True)) for row in rows], schema=ports.schema)
    assert list(window_lines(ports, full)) == ["1970-01-01T00:01:00Z  ports: 2 rows, the largest n 1,000, destPort 53"]


def test_ports_have_no_separators_of_thousands() -> None:
    ports = compile_query(f"SELECT destPort AS port, count(*) AS n FROM M {MINUTE} GROUP BY destPort", "ports")
    rows = pa.table({"window_start": [0], "window_end": [60 * SECOND], "port": [9092], "n": [1234]}, ports.schema)
    assert list(window_lines(ports, rows)) == ["1970-01-01T00:01:00Z  ports: 1 row, port 9092, n 1,234"]


def test_rows_without_windows_are_counted_with_those_that_were_not_sent() -> None:
    plan = compile_query("SELECT srcPort FROM a", "ports")
    rows = pa.table({"srcPort": pa.array(range(100), plan.schema.field("srcPort").type)})
    sent, rest = select_rows(rows, RowLimit(rows=10))
    assert list(window_lines(plan, sent, other_sums=rest)) == [f"{'':20}  ports: 100 rows, the last srcPort 99"]
    sent, rest = select_rows(rows.slice(99), RowLimit(rows=10))
    assert list(window_lines(plan, sent, other_sums=rest)) == [f"{'':20}  ports: 1 row, srcPort 99"]
