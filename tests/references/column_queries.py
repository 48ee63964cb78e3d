"""Queries over columns of both layers, MACs, texts and payloads, and their answers by definition.

The definition takes rows one at a time and groups them in a dictionary. It shares the decoders with the engines, which
are compared with other decoders elsewhere, and nothing after them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from highlevel.plan.plan import Plan
from lowlevel.expressions.types import Type
from lowlevel.kinds import row_kind_of
from lowlevel.rows.batches import row_batches
from queries.gsql import compile_query
from tests.references import lowlevel_oracle

LAYERED = {
    "tunnels": """SELECT inner.srcIP, srcIP, tunnels, tunnel_id, count(*) AS n, sum(inner.ip_len) AS bytes FROM packets
        GROUP BY inner.srcIP, outer.srcIP, tunnels, tunnel_id""",
    "layers": """SELECT inner.protocol, protocol, max(inner.ttl) AS most, min(ttl) AS least, count(inner.srcPort)
        FROM packets WHERE inner.destIP <> destIP OR tunnels = 0 GROUP BY inner.protocol, protocol""",
    "macs": """SELECT srcMAC, destMAC, ethertype, interface, count(*) AS n, count(srcIP) AS ips FROM frames
        GROUP BY srcMAC, destMAC, ethertype, interface HAVING destMAC <> 'ff:ff:ff:ff:ff:ff' OR destMAC IS NULL""",
    "frames": """SELECT srcIP, destPort, ip_version, count(*) AS n, sum(len) AS bytes, avg(ttl) AS hops FROM frames
        GROUP BY srcIP, destPort, ip_version""",
    "payloads": """SELECT byte(payload, 0) AS first, length(payload) / 100 AS size, starts_with(interface, '0') AS zero,
        count(*) AS n FROM packets
        WHERE contains(payload, 'TP') OR starts_with(payload, x'16') OR length(payload) % 3 = 0
           OR NOT contains(inner.payload, x'00')
        GROUP BY byte(payload, 0), length(payload) / 100, starts_with(interface, '0')""",
    "fields": """SELECT tcp_flags, count(tcp_seq), max(tcp_window) AS win, min(ip_id) AS id, avg(tcp_ack), count(mpls),
        sum(byte(payload, 3)) AS fourth FROM packets
        WHERE srcMAC > '00:00:00:00:00:ff' OR srcMAC IS NULL OR srcMAC IN ('0000.5e00.0101') GROUP BY tcp_flags""",
}


def plans() -> list[Plan]:
    """All of them, and those without a layer's name once more where plain names mean the inner layer."""
    outer = [compile_query(sql, name) for name, sql in LAYERED.items()]
    return outer + [compile_query(LAYERED[name], f"inner_{name}", "inner") for name in ("macs", "payloads", "fields")]


def rows_of(path: Path, plan: Plan, link: str) -> Iterable[dict[str, Any]]:
    """The rows that a plan reads, as Python values."""
    kind = row_kind_of(plan.leaves[0].low.kind)
    types = {name: column.type for name in plan.leaves[0].low.columns if (column := kind.column(name))}
    for batch in row_batches(path, plan.leaves[0].low.columns, plan.leaves[0].low.kind):
        for row in batch.to_pylist():
            yield {name: _value(types[name], value) for name, value in row.items()} | {"link": link}


def answer(plan: Plan, path: Path, link: str = "link") -> Counter[tuple]:
    """The rows of a query without a window, floats rounded as sums in another order may differ."""
    found: Counter[tuple] = Counter()
    types = {key.name: key.expression.type for key in plan.leaves[0].low.keys}
    for (_, *keys), values in lowlevel_oracle.groups(plan.leaves[0].low, rows_of(path, plan, link)).items():
        row = {
            key.name: _value(types[key.name], value) for key, value in zip(plan.leaves[0].low.keys, keys, strict=True)
        }
        row |= {sub.name: value for sub, value in zip(plan.leaves[0].low.subaggregates, values, strict=True)}
        if plan.aggregation.having is None or lowlevel_oracle.value(plan.aggregation.having, row) is True:
            found[comparable(lowlevel_oracle.value(out.expression, row) for out in plan.aggregation.select)] += 1
    return found


def _value(kind: Type, value: Any) -> Any:
    """A value as the twin's expressions take it."""
    if kind is Type.ADDRESS and value is not None:
        return ip_address(value)
    return int.from_bytes(value, "big") if kind is Type.MAC and value is not None else value


def comparable(values: Iterable[Any]) -> tuple:
    """A result row: addresses as their bytes, as engines give them; MACs of the twin are numbers."""
    return tuple(round(value, 6) if isinstance(value, float) else getattr(value, "packed", value) for value in values)
