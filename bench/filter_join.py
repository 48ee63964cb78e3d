"""The cost of a filter join against decode + table on one core, and the keys that it misses if its memory is full.

The capture is that of `decode`. For each packet the query tests if its source, or its pair of addresses, was seen in
the last 10 s. So each packet reads one key and writes one key. The workloads take turns. Then more and more keys are
written into a memory of fixed size, and each key is read once.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from bench.one_core import core, on_one_core
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from bench.undisturbed import time_step

PACKETS = 5 * MILLION

WITHOUT_JOIN = "without"
JOINS = {
    "seen_within, an address": "seen_within('10 seconds', destIP = destIP)",
    "seen_within, a pair": "seen_within('10 seconds', srcIP = srcIP AND destIP = destIP)",
}
FILLS = (0.1, 0.2, 0.25, 0.5, 0.75, 1.0)
"""Numbers of keys, as shares of the keys for which the memory has room."""


def queries() -> dict[str, str]:
    """Return the workloads. Each query keeps every packet, so that the tables do the same work."""
    return {WITHOUT_JOIN: PAIRS} | {
        name: PAIRS.replace(" GROUP", f" WHERE {join} OR len >= 0 GROUP") for name, join in JOINS.items()
    }


def run(setting: Setting) -> Report:
    """Measure the cost and the missed keys."""
    packets = setting.packets(PACKETS)
    report = Report("filter_join")
    path = generate_cached(address_pairs(packets), setting.data)
    read_into_cache(path)
    seconds, lost = on_one_core(measure, path, setting.runs(5))
    least = {name: min(each) for name, each in seconds.items()}
    report.table(
        f"{packets:,} packets, decode + table, the least of {setting.runs(5)} runs",
        ("query", "M packets/s", "ns per packet"),
        [(name, f"{packets / each / MILLION:.1f}", f"{each / packets * 1e9:.1f}") for name, each in least.items()],
    )
    report.table(
        "keys that are wanted at the same time",
        ("keys", "of the room", "missed", "%"),
        [(f"{keys:,}", f"{fill:.0%}", f"{missed:,}", f"{100 * missed / keys:.3f}") for fill, keys, missed in lost],
    )
    bound = f"bound to core {core()}" if core() is not None else "not bound to a core: this system cannot"
    report.notes.append(f"one process, {bound}; in time of the processor")
    judged = not setting.quick
    address, pair = (least[name] / least[WITHOUT_JOIN] for name in JOINS)
    report.add_criterion("seen_within, an address / without, seconds", address, "<= 4", judged)
    report.add_criterion("seen_within, a pair / without, seconds", pair, "<= 4", judged)
    missed = next(100 * missed / keys for fill, keys, missed in lost if fill == 0.25)
    report.add_criterion("missed of a memory that is a quarter full, %", missed, "<= 0.1")
    return report


def measure(path: Path, runs: int) -> tuple[dict[str, list[float]], list[tuple[float, int, int]]]:
    """Return the CPU seconds of each query in `runs` turns; and share of the room, number of keys, missed keys."""
    import numpy as np

    from capture.files.scan import scan
    from capture.open import open_mapped
    from lowlevel.expressions.columns import Vector
    from lowlevel.expressions.tree import Binary, Column, SeenWithin
    from lowlevel.expressions.types import Op, Type
    from lowlevel.node.filter_join import MAX_KEYS, SeenKeys
    from lowlevel.node.node import Node
    from queries.gsql import compile_query

    file = open_mapped(path, "a bench")
    index = scan(file)
    plans = {name: compile_query(sql).leaves[0].low for name, sql in queries().items()}

    def reduce(name: str) -> None:
        node = Node("link", file, [plans[name]])
        for block in index.blocks:
            for _ in node.process(block):
                pass
        if node.reducers[0].accepted != index.records:
            raise RuntimeError(f"{name}: a query kept {node.reducers[0].accepted} packets, not all")

    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for turn in range(1 + runs):
        for name in plans:
            step_time = time_step(lambda name=name: reduce(name)).processor  # type: ignore[misc]
            if turn:  # the first loads kernels
                seconds[name].append(step_time)

    one, other = (Column(name, Type.INT) for name in ("asked", "told"))
    random, lost = np.random.default_rng(3), []
    for fill in FILLS:
        keys = int(fill * MAX_KEYS)
        memory = SeenKeys(SeenWithin(10, Binary(Op.EQ, one, other)))
        told = random.permutation(np.arange(keys, dtype=np.int64) * 977)
        none, now = Vector(np.full(keys, -1, np.int64)), Vector(np.zeros(keys, np.int64))
        memory.process({"ts": now, "asked": none, "told": Vector(told)}, keys)
        seen = memory.process({"ts": now, "asked": Vector(told), "told": none}, keys)
        lost.append((fill, keys, keys - int(np.count_nonzero(seen.data))))
    return dict(seconds), lost
