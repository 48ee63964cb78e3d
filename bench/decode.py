"""Decode + table on one core: from records of a capture to columns, and then to partials of a fixed-size table.

Everything runs in one process bound to one core, over a capture in the page cache. One step only copies the bytes,
because no reader is much faster than a copy. Another step is dpkt, the usual Python library, which counts the same
pairs in the first records. The steps take turns; criteria are ratios of one turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import dpkt
import numpy as np

from bench.figure import Figure, figure, quotient
from bench.one_core import core, on_one_core
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from bench.undisturbed import run_undisturbed, time_step

COPY_BYTES = 1 << 20
DPKT_RECORDS = 50_000
STEPS = ("memory copy", "scan", "decode", "decode + table", "inline engine")
TARGETS = {"IPv4": ">= 0.12", "a quarter of the pairs IPv6": ">= 0.08"}
"""Required share of the rate at which the same bytes are copied in memory."""


def run(setting: Setting) -> Report:
    """Measure the capture of the criteria (only IPv4), and a capture in which every fourth pair is IPv6."""
    packets = setting.packets(5 * MILLION)
    report = Report("decode")
    judged = not setting.quick
    for title, ipv6 in (("IPv4", 0.0), ("a quarter of the pairs IPv6", 0.25)):
        path = generate_cached(address_pairs(packets, ipv6), setting.data)
        size = read_into_cache(path)
        seconds, repeated = on_one_core(measure, path, setting.runs(7))
        rates = {name: figure(seconds[name]).rate(packets / MILLION) for name in STEPS}
        rates["dpkt"] = figure(seconds["dpkt"]).rate(min(packets, DPKT_RECORDS) / MILLION)
        report.table(
            f"{packets:,} packets, {size / packets:.0f} bytes per record, {title}",
            ("step", "M packets/s (min..max)", "GB/s", "of memory copy", "against dpkt"),
            [_row(name, rate, rates, size / packets) for name, rate in rates.items()],
        )
        report.notes.append(f"{title}: {repeated} steps were repeated because other processes used the core")
        ratio = quotient(rates["decode + table"], rates["memory copy"]).median
        report.add_criterion(f"decode + table / memory copy of the same bytes, {title}", ratio, TARGETS[title], judged)
        report.add_information(f"decode + table, one core, {title}, M packets/s", rates["decode + table"])
        if not ipv6:
            engine = quotient(rates["inline engine"], rates["decode + table"]).median
            report.add_criterion("inline engine / decode + table, packets/s", engine, ">= 0.3", judged)
            against = quotient(rates["decode + table"], rates["dpkt"]).median
            report.add_criterion("decode + table / dpkt, packets/s", against, ">= 150", judged)
            rate = rates["decode + table"].median
            report.add_headline("decode + table, one core", f"{rate:.3g} M packets/s, {against:,.0f} times dpkt")
    bound = f"bound to core {core()}" if core() is not None else "not bound to a core: this system cannot"
    report.notes += [
        f"one process, {bound}; the files are in the page cache and mapped; columns decoded are those of the query",
        "the inline engine is scan, decode, table, windows and results in Arrow, in this process",
    ]
    return report


def _row(name: str, rate: Figure, rates: dict[str, Figure], record: float) -> tuple[str, ...]:
    copied = quotient(rate, rates["memory copy"]).median
    against = quotient(rate, rates["dpkt"]).median
    return name, str(rate), f"{rate.median * record / 1000:.2f}", f"{copied:.1%}", f"{against:,.0f} x"


def measure(path: Path, runs: int) -> tuple[dict[str, list[float]], int]:
    """Return the seconds of each step in `runs` runs, and the number of repeated runs. The steps take turns."""
    from capture.files.blocks import BLOCK_RECORDS
    from capture.files.scan import scan
    from capture.open import open_mapped
    from capture.packets.decoder import Decoder
    from highlevel.inline.engine import InlineRun, Input
    from lowlevel.node.node import Node
    from queries.gsql import compile_query

    plan = compile_query(PAIRS)
    file = open_mapped(path, "a bench")
    index = scan(file)
    target = np.empty(COPY_BYTES, np.uint8)

    def copy() -> None:
        for start in range(0, len(file.data), COPY_BYTES):
            piece = file.data[start : start + COPY_BYTES]
            target[: len(piece)] = piece

    def decode() -> None:
        decoder = Decoder(file, plan.leaves[0].low.columns, BLOCK_RECORDS)
        for block in index.blocks:
            decoder.decode(block)

    def decode_and_table() -> None:
        node = Node("link", file, [plan.leaves[0].low])
        for block in index.blocks:
            for _ in node.process(block):
                pass

    def inline() -> None:
        for _ in InlineRun([plan], [Input("link", path)]).results():
            pass

    work: dict[str, Callable[[], object]] = dict(
        zip(STEPS, (copy, lambda: scan(file), decode, decode_and_table, inline), strict=True)
    )
    work["dpkt"] = lambda: count_with_dpkt(path, min(index.records, DPKT_RECORDS))
    for each in work.values():
        each()
    again = 0
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        for name, each in work.items():
            step_time, repeats = run_undisturbed(lambda each=each: time_step(each))  # type: ignore[misc]
            seconds[name].append(step_time.seconds)
            again += repeats
    return dict(seconds), again


def count_with_dpkt(path: Path, records: int) -> dict[tuple[bytes, bytes], list[int]]:
    """Return packets and bytes of each address pair in the first records of a capture, with an object per packet."""
    found: dict[tuple[bytes, bytes], list[int]] = {}
    with path.open("rb") as file:
        reader = dpkt.pcap.Reader(file)
        for _, (_, data) in zip(range(records), reader, strict=False):
            ip = dpkt.ethernet.Ethernet(data).data
            if isinstance(ip, dpkt.ip.IP | dpkt.ip6.IP6):
                pair = found.setdefault((ip.src, ip.dst), [0, 0])
                pair[0] += 1
                pair[1] += ip.len if isinstance(ip, dpkt.ip.IP) else ip.plen
    return found
