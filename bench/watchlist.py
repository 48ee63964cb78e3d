"""The cost of a search in a million prefixes compared with decode + table, on one core, and the time to load them.

Half of the prefixes are anywhere in IPv4, and have 16 to 32 bits. The others have 20 to 32 bits and are in the network
of the packets' addresses. So a search takes longer than in tables of the whole Internet. The packets are those of
`decode`. The list contains all their sources, so the table has the same work. The workloads take turns.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from bench.figure import Figure, quotient
from bench.one_core import core, on_one_core
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.several import minute_query
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from bench.undisturbed import time_step

PACKETS = 5 * MILLION
PREFIXES = MILLION
NETWORK, HOSTS = np.uint64(10 << 24), np.uint64(2**24 - 1)
"""The network of the packets' addresses, 10.0.0.0/8, and the number of host bits."""

SOURCES = ("10.0.0.0/8", "198.18.0.0/15")
"""The networks of all sources of the packets. Every list contains them."""

LABELS = 50_000
"""The labels of the table: customers."""

WITHOUT_LIST, WITH_LIST, BY_LABEL, BY_ADDRESS = (
    "without",
    "in_list",
    "getlpmid as the key",
    "the same key, an address",
)

VOLUME = "count(*) AS packets, sum(len) AS bytes"


def write_lists(folder: Path, prefixes: int) -> tuple[Path, Path]:
    """Write a list of different prefixes, and a table of the same prefixes with labels."""
    random = np.random.default_rng(7)
    is_near = np.arange(prefixes) % 2 == 0
    lengths = np.where(is_near, random.integers(20, 33, prefixes), random.integers(16, 33, prefixes)).astype(np.uint64)
    host = np.uint64(32) - lengths
    anywhere = random.integers(0, 1 << 32, prefixes, np.uint64)
    values = np.where(is_near, anywhere & HOSTS | NETWORK, anywhere) >> host << host
    pairs = dict.fromkeys(zip(values.tolist(), lengths.tolist(), strict=True))
    texts = [f"{v >> 24}.{v >> 16 & 255}.{v >> 8 & 255}.{v & 255}/{length}" for v, length in pairs]
    listed, table = folder / "listed.txt", folder / "customers.tbl"
    listed.write_text("\n".join([*texts, *SOURCES]))
    table.write_text("\n".join(f"{text}\tcustomer {place % LABELS}" for place, text in enumerate(texts)))
    return listed, table


def queries(listed: Path, table: Path) -> dict[str, str]:
    """Return the workloads: pairs of addresses with and without a list, and one key with and without a table."""
    return {
        WITHOUT_LIST: PAIRS,
        WITH_LIST: PAIRS.replace(" GROUP", f" WHERE in_list(srcIP, '{listed}') GROUP"),
        BY_ADDRESS: minute_query(VOLUME, "destIP"),
        BY_LABEL: minute_query(VOLUME, f"getlpmid(destIP, '{table}')"),
    }


def run(setting: Setting) -> Report:
    """Measure the time to load, and the time of a search."""
    packets, prefixes = setting.packets(PACKETS), setting.packets(PREFIXES)
    report = Report("watchlist")
    path = generate_cached(address_pairs(packets), setting.data)
    read_into_cache(path)
    lists = write_lists(setting.data, prefixes)
    seconds, loads, split = on_one_core(measure, path, lists, setting.runs(5))
    least = {name: min(each) for name, each in seconds.items()}
    report.table(
        f"{packets:,} packets, decode + table, {prefixes:,} prefixes, the least of {setting.runs(5)} runs",
        ("query", "M packets/s", "ns per packet"),
        [(name, f"{packets / each / MILLION:.1f}", f"{each / packets * 1e9:.1f}") for name, each in least.items()],
    )
    report.table(
        "loading, the least of the runs",
        ("file", "s", "MB on disk", "MB in memory"),
        [
            (each.name, f"{min(took):.2f}", f"{each.stat().st_size / 1e6:.1f}", f"{held / 1e6:.1f}")
            for each, (took, held) in zip(lists, loads, strict=True)
        ],
    )
    bound = f"bound to core {core()}" if core() is not None else "not bound to a core: this system cannot"
    report.notes.append(f"one process, {bound}; in time of the processor")
    judged = not setting.quick
    report.add_criterion("in_list / without, seconds", least[WITH_LIST] / least[WITHOUT_LIST], "<= 2", judged)
    report.add_criterion(
        "getlpmid / the address as key, seconds", least[BY_LABEL] / least[BY_ADDRESS], "<= 3.5", judged
    )
    loaded = Figure(tuple(loads[1][0]))
    ratio = quotient(loaded, Figure(tuple(split))).median
    report.add_criterion("load prefixes with labels / split their lines in Python, seconds", ratio, "<= 1", judged)
    report.add_information(f"load {prefixes:,} prefixes with labels, s", loaded)
    return report


def measure(
    path: Path, lists: tuple[Path, Path], runs: int
) -> tuple[dict[str, list[float]], list[tuple[list[float], int]], list[float]]:
    """Return seconds of each query in `runs` turns, seconds and bytes of each loaded list, and seconds to split a list.

    All are CPU seconds. Loading takes turns with splitting.
    """
    from capture.files.scan import scan
    from capture.open import open_mapped
    from lowlevel.node.node import Node
    from lowlevel.watch.contents import Form, read_contents
    from queries.gsql import compile_query

    loads = []
    split: list[float] = []
    for each, form in zip(lists, (Form.ADDRESSES, Form.LABELS), strict=True):
        data = each.read_bytes()
        step_time, split = [], []
        for turn in range(1 + runs):  # the first run compiles the kernels if necessary
            began = time.process_time()
            contents = read_contents(data, form)
            middle = time.process_time()
            lines = [line.split() for line in data.splitlines()]
            if turn and lines:
                step_time.append(middle - began)
                split.append(time.process_time() - middle)
        loads.append((step_time, contents.bytes))
    file = open_mapped(path, "a bench")
    index = scan(file)
    plans = {name: compile_query(sql).leaves[0].low for name, sql in queries(*lists).items()}

    def reduce(name: str) -> Node:
        node = Node("link", file, [plans[name]])
        for block in index.blocks:
            for _ in node.process(block):
                pass
        return node

    for name in plans:
        query = reduce(name).reducers[0]
        if query.accepted != index.records:
            raise RuntimeError(f"{name}: a query kept {query.accepted} packets, not all")
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        for name in plans:
            seconds[name].append(time_step(lambda name=name: reduce(name)).processor)  # type: ignore[misc]
    return dict(seconds), loads, split
