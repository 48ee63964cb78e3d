"""pcapng compared with classic pcap: decode + table of the same packets on one core.

The pcapng file contains the judged capture of `bench.decode`. It has one section, one interface with nanoseconds, and
an enhanced packet block for each record, as dumpcap writes them.
"""

from __future__ import annotations

import struct
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.figure import Figure, figure, quotient
from bench.one_core import core, on_one_core
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from bench.undisturbed import run_undisturbed, time_step
from capture.files.blocks import BLOCK_RECORDS, Index
from capture.files.capture import Capture
from capture.files.scan import scan
from capture.open import open_mapped
from capture.packets.decoder import Decoder
from highlevel.plan.plan import Plan
from lowlevel.node.node import Node
from queries.gsql import compile_query

STEPS = ("scan", "decode", "decode + table")
FORMATS = ("pcap", "pcapng")


def run(setting: Setting) -> Report:
    """Measure both files in turns."""
    packets = setting.packets(5 * MILLION)
    report = Report("pcapng")
    classic = generate_cached(address_pairs(packets), setting.data)
    paths = {"pcap": classic, "pcapng": write_pcapng(classic)}
    sizes = {form: read_into_cache(path) for form, path in paths.items()}
    seconds, counts, repeated = on_one_core(measure, paths, setting.runs(7))
    rates = {each: figure(step_time).rate(packets / MILLION) for each, step_time in seconds.items()}
    report.table(
        f"{packets:,} packets",
        ("step", "container", "bytes per record", "M packets/s (min..max)", "of pcap"),
        [
            (name, form, f"{sizes[form] / packets:.0f}", str(rates[form, name]), f"{share(rates, form, name):.1%}")
            for name in STEPS
            for form in FORMATS
        ],
    )
    bound = f"bound to core {core()}" if core() is not None else "not bound to a core: this system cannot"
    report.notes.append(f"one process, {bound}; {repeated} steps were repeated because other processes used the core")
    if len(set(counts.values())) != 1:
        report.notes.append(f"the files do not contain the same packets: {counts}")
    same = len(set(counts.values())) == 1
    ratio = share(rates, "pcapng", "decode + table") if same else 0.0
    report.add_criterion("pcapng / pcap, decode + table, one core", ratio, ">= 0.6", judged=not setting.quick)
    return report


def share(rates: dict[tuple[str, str], Figure], form: str, name: str) -> float:
    """Return the rate of a step as a share of its rate for classic pcap."""
    return quotient(rates[form, name], rates["pcap", name]).median


def measure(
    paths: dict[str, Path], runs: int
) -> tuple[dict[tuple[str, str], list[float]], dict[str, tuple[int, int]], int]:
    """Return the seconds per container and step, (records, packets) of each container, and number of repeated runs."""
    plan = compile_query(PAIRS)
    work: dict[tuple[str, str], Callable[[], object]] = {}
    counts = {}
    for form, path in paths.items():
        file = open_mapped(path, "the bench")
        index = scan(file)
        work[form, "scan"] = partial(scan, file)
        work[form, "decode"] = partial(decode, file, index, plan)
        work[form, "decode + table"] = partial(decode_and_table, file, index, plan)
        counts[form] = index.records, decode_and_table(file, index, plan)
    again = 0
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(runs):
        for each, of_it in work.items():
            step_time, repeats = run_undisturbed(partial(time_step, of_it))
            seconds[each].append(step_time.seconds)
            again += repeats
    return dict(seconds), counts, again


def decode(file: Capture, index: Index, plan: Plan) -> None:
    """Decode the columns of a query."""
    decoder = Decoder(file, plan.leaves[0].low.columns, BLOCK_RECORDS)
    for block in index.blocks:
        decoder.decode(block)


def decode_and_table(file: Capture, index: Index, plan: Plan) -> int:
    """Decode, and aggregate into the table. Return the number of packets."""
    node = Node("link", file, [plan.leaves[0].low])
    for block in index.blocks:
        for _ in node.process(block):
            pass
    return sum(query.accepted for query in node.reducers)


def write_pcapng(path: Path) -> Path:
    """Write a little-endian classic capture as a pcapng file into the same folder, unless the file exists."""
    target = path.with_suffix(".pcapng")
    if target.exists():
        return target
    print(f"bench: writing {target} …", file=sys.stderr, flush=True)
    data = memoryview(path.read_bytes())
    unit = 1 if bytes(data[:4]) == b"\x4d\x3c\xb2\xa1" else 1000
    record, block = struct.Struct("<4I"), struct.Struct("<7I")
    part = target.with_suffix(".part")
    with part.open("wb", buffering=1 << 20) as out:
        out.write(struct.pack("<3IHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28))
        out.write(struct.pack("<2I2HI2HI2HI", 1, 32, 1, 0, 0, 9, 1, 9, 0, 0, 32))
        at = 24
        while at < len(data):
            seconds, fraction, captured, wire = record.unpack_from(data, at)
            time = seconds * 1_000_000_000 + fraction * unit
            padding = -captured % 4
            length = 32 + captured + padding
            out.write(block.pack(6, length, 0, time >> 32, time & 0xFFFFFFFF, captured, wire))
            out.write(data[at + 16 : at + 16 + captured])
            out.write(bytes(padding) + length.to_bytes(4, "little"))
            at += 16 + captured
    part.replace(target)
    return target
