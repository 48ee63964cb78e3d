"""Flow exports on one core: from a capture of datagrams to columns of flow records, and then to partials of a query.

Everything runs in one process bound to one core, over captures in memory. One step only copies the bytes, because no
reader is much faster than a copy. The steps take turns; criteria are ratios of one turn.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Callable

import numpy as np

from bench.exports import EXPORTS, TEMPLATE_INTERVAL, make_capture
from bench.figure import Figure, figure, quotient
from bench.one_core import core, on_one_core
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION
from bench.undisturbed import run_undisturbed, time_step
from capture.flows.kernels.datagrams import JOB_ROWS

COPY_BYTES = 1 << 20
RECORDS = 2 * MILLION
STEPS = ("memory copy", "packets", "columns", "columns + table")
FEW_SOURCES, MANY_SOURCES = 300, 30_000
SOURCE_MESSAGE = 40
"""Bytes of a NetFlow v9 message: a template with one field, and one record."""

JUDGED = {"NetFlow v5": ">= 0.05", "NetFlow v9": ">= 0.05"}
"""Required share of the rate at which the same bytes are copied in memory."""

SHORT = ("NetFlow v5", "NetFlow v9", "IPFIX")
"""Versions in the README."""

QUERY = """SELECT srcIP, destIP, sum(packets) AS packets, sum(bytes) AS bytes
FROM flows [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY srcIP, destIP"""
FIVE_TUPLE = ("ts", "srcIP", "destIP", "srcPort", "destPort", "protocol", "packets", "bytes")


def run(setting: Setting) -> Report:
    """Measure every version. The criteria of v5 and v9 are about the step from a capture to columns."""
    records = setting.packets(RECORDS)
    report = Report("flows")
    columns = {}
    for name in EXPORTS:
        seconds, size, decoded, repeated = on_one_core(measure, name, records, setting.runs(5))
        rates = {each: figure(seconds[each]).rate(decoded / MILLION) for each in STEPS}
        report.table(
            f"{name}: {decoded:,} records, {size / decoded:.0f} bytes of capture per record",
            ("step", "M records/s (min..max)", "GB/s", "of memory copy"),
            [_row(each, rate, rates, size / decoded) for each, rate in rates.items()],
        )
        report.notes.append(f"{name}: {repeated} steps were repeated because other processes used the core")
        report.add_information(f"{name}, a capture to columns, one core, M records/s", rates["columns"])
        columns[name] = rates["columns"].median
        if name in JUDGED:
            ratio = quotient(rates["columns"], rates["memory copy"]).median
            criterion = f"{name}, a capture to columns / memory copy of the same bytes"
            report.add_criterion(criterion, ratio, JUDGED[name], judged=not setting.quick)
    shown = ", ".join(f"{columns[name]:.3g}" for name in SHORT)
    report.add_headline("NetFlow v5, v9, IPFIX to columns, one core", f"{shown} M records/s")
    few, many = on_one_core(source_costs, setting.quick)
    report.table(
        "NetFlow v9, each datagram of another source id: a session, a template and a record",
        ("source ids", "µs CPU per datagram"),
        [(f"{FEW_SOURCES:,}", f"{few:.1f}"), (f"{MANY_SOURCES:,}", f"{many:.1f}")],
    )
    report.add_criterion("v9, cost of a datagram, 30,000 source ids / 300", many / few, "<= 2")
    bound = f"bound to core {core()}" if core() is not None else "not bound to a core: this system cannot"
    report.notes += [
        f"one process, {bound}; the captures are in memory; the columns are {', '.join(FIVE_TUPLE)}",
        "packets: offsets of the UDP payloads. columns: those of the records in them. + table: the partials of a query",
        "the addresses of the flows are random: nearly every record of the query is a group of its own",
        f"v9 and IPFIX announce their template every {TEMPLATE_INTERVAL} datagrams",
    ]
    return report


def source_costs(quick: bool) -> tuple[float, float]:
    """Return the CPU microseconds per datagram with few and with many source IDs: the minimum of several turns."""
    from capture.flows.decoder import Datagrams, FlowDecoder

    def cost(sources: int) -> float:
        message = np.zeros((sources, SOURCE_MESSAGE), np.uint8)
        head = struct.pack(">HHIIII", 9, 2, 0, 0, 0, 0)
        sets = struct.pack(">HHHHHH", 0, 12, 256, 1, 1, 4) + struct.pack(">HHI", 256, 8, 1)
        message[:] = np.frombuffer(head + sets, np.uint8)
        message[:, 16:20] = np.arange(sources, dtype=">u4").view(np.uint8).reshape(-1, 4)
        jobs = np.zeros((JOB_ROWS, sources), np.int64)
        jobs[0], jobs[1] = np.arange(sources) * SOURCE_MESSAGE, SOURCE_MESSAGE
        repeats = MANY_SOURCES // sources if not quick else 1
        decoders = [FlowDecoder(["raw_bytes"], 1024) for _ in range(min(repeats, 20))]
        begin = time.process_time()
        for decoder in decoders:
            for _ in decoder.decode(message.reshape(-1), Datagrams(jobs, sources)):
                pass
        return (time.process_time() - begin) / (sources * len(decoders)) * MILLION

    cost(FEW_SOURCES)
    costs = [(cost(FEW_SOURCES), cost(MANY_SOURCES)) for _ in range(1 if quick else 5)]
    return min(each for each, _ in costs), min(each for _, each in costs)


def _row(name: str, rate: Figure, rates: dict[str, Figure], record: float) -> tuple[str, ...]:
    copied = quotient(rate, rates["memory copy"]).median
    return name, str(rate), f"{rate.median * record / 1000:.2f}", f"{copied:.1%}"


def measure(name: str, records: int, runs: int) -> tuple[dict[str, list[float]], int, int, int]:
    """Return the seconds of each step in `runs` turns; the bytes, the records, and the number of repeated runs."""
    from capture.files.blocks import BLOCK_RECORDS
    from capture.files.scan import scan
    from capture.packets.decoder import Decoder
    from lowlevel.node.node import Node
    from lowlevel.rows.flows import CARRIER_COLUMNS, FlowReader
    from queries.gsql import compile_query

    plan = compile_query(QUERY)
    file = make_capture(EXPORTS[name], records)
    index = scan(file)
    target = np.empty(COPY_BYTES, np.uint8)

    def copy() -> None:
        for start in range(0, len(file.data), COPY_BYTES):
            piece = file.data[start : start + COPY_BYTES]
            target[: len(piece)] = piece

    def packets() -> None:
        decoder = Decoder(file, CARRIER_COLUMNS, BLOCK_RECORDS)
        for block in index.blocks:
            decoder.decode(block)

    def columns() -> int:
        reader = FlowReader("link", file, FIVE_TUPLE, BLOCK_RECORDS)
        found = 0
        for block in index.blocks:
            for rows in reader.read(block):
                found += rows.count
                for column in FIVE_TUPLE:
                    rows.columns[column]
        return found

    def columns_and_table() -> None:
        node = Node("link", file, [plan.leaves[0].low])
        for block in index.blocks:
            for _ in node.process(block):
                pass

    work: dict[str, Callable[[], object]] = dict(zip(STEPS, (copy, packets, columns, columns_and_table), strict=True))
    decoded = columns()
    for each in work.values():
        each()
    again = 0
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        for step_name, each in work.items():
            step_time, repeats = run_undisturbed(lambda each=each: time_step(each))  # type: ignore[misc]
            seconds[step_name].append(step_time.seconds)
            again += repeats
    return dict(seconds), len(file.data), decoded, again
