"""Result rows written by hand, and expositions read back, for the tests of the exporter."""

import ipaddress
from typing import Any

import pyarrow as pa
from prometheus_client import generate_latest

from dashboards.prometheus.exporter import Exporter
from highlevel.plan.plan import Plan
from queries.gsql import compile_query

SECOND = 10**9
MINUTE = "[RANGE 1 minute, SLIDE 1 minute, WA ts]"


def plan(select: str, group_by: str = "", name: str = "talkers") -> Plan:
    """A query over windows of one minute."""
    return compile_query(f"SELECT {select} FROM packets {MINUTE}" + (f" GROUP BY {group_by}" if group_by else ""), name)


def rows(query: Plan, end: int, *groups: tuple[Any, ...]) -> pa.Table:
    """The window that ends `end` seconds after the epoch; one tuple per group, addresses as text."""
    bounds = query.schema.names[: len(query.schema.names) - len(query.aggregation.select)]
    full = [(*((end - 60, end) if bounds else ()), *group) for group in groups]
    columns = []
    for place, field in enumerate(query.schema):
        column = [row[place] for row in full]
        if field.type == pa.binary():
            column = [None if text is None else ipaddress.ip_address(text).packed for text in column]
        elif field.name in bounds:
            column = [seconds * SECOND for seconds in column]
        columns.append(pa.array(column, field.type))
    return pa.Table.from_arrays(columns, schema=query.schema)


def exposition(exporter: Exporter) -> str:
    """The whole text that a scrape gets."""
    return generate_latest(exporter.registry).decode()


def samples(exporter: Exporter, name: str) -> list[str]:
    """The lines of one metric, without its name."""
    return [
        line.removeprefix(name)
        for line in exposition(exporter).splitlines()
        if line.startswith((f"{name} ", f"{name}{{"))
    ]
