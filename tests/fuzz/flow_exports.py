"""Target `exports`: datagrams of NetFlow v5, v7, v9 and IPFIX.

An input is a row of datagrams, each behind its length in two bytes; the even ones come from one sender and the odd ones
from another. Templates, options and sampling of one change what the next ones mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from capture.flows.bounds import Bounds
from capture.flows.columns import FLOW_COLUMNS, flow_column
from capture.flows.decoder import Datagrams, FlowDecoder, Flows
from capture.flows.export_datagrams import choose_exports
from capture.flows.kernels.datagrams import JOB_ROWS
from lowlevel.flow_columns import FlowColumns
from tests.fuzz.agreement import same
from tests.fuzz.chunks import chunks
from tests.fuzz.export_seeds import seeds
from tests.fuzz.plain import both
from tests.vector_values import values

__all__ = ["check", "seeds"]

CAPACITY = 16
BOUNDS = Bounds(6, 12, 24, 1024, 4096)
ELEMENTS = (
    "interfaceName", "applicationId", "basicList", "absoluteError", "dataRecordsReliability", "mibObjectValueInteger",
    "flowStartSeconds", "flowEndMilliseconds", "observationTimeMicroseconds", "flowStartNanoseconds",
    "postNATSourceIPv4Address", "exporterIPv6Address", "samplingProbability", "ie_60000", "e9_7_hex",
    "reverseOctetDeltaCount",
)  # fmt: skip
"""Elements of every type beside the core columns."""

CORE = [name for name in FLOW_COLUMNS if name != "link"]
SHARES = (CORE[::2], CORE[1::2], ELEMENTS)
"""An input is decoded with one of these: which, its length says. Only columns of text need a large dictionary."""

PORTS = (2055, 99)
"""One of exports, and another, at which only what is an export through and through is taken for one."""

ARRIVAL = 1_700_000_000 * 10**9


def rows_of(flows: Flows, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Flow records as queries see them."""
    columns = FlowColumns("fuzz", flows)
    return list(zip(*(values(columns[name], flows.rows) for name in names), strict=True))


def check_rows(rows: list[tuple[Any, ...]], names: Sequence[str]) -> None:
    """Numbers fit the bits that keys are packed by, and are there where they must be."""
    specs = [(name, flow_column(name)) for name in names]
    for row in rows:
        for value, (name, spec) in zip(row, specs, strict=True):
            assert value is not None or spec.nullable, f"{name} is NULL"
            if value is not None and spec.type in ("integer", "mac") and spec.bits < 64:
                assert 0 <= value < 1 << spec.bits, f"{name} has {spec.bits} bits, and a value is {value}"


def chosen(payload: bytes) -> list[int]:
    """Whether a payload is taken for an export at each of PORTS, and where it is then."""
    columns = [np.full(2, value, np.int64) for value in (17, 0, 0, len(payload), 5, 4, 0, 9, 40000)]
    columns[1][:] = PORTS
    jobs, refused = np.zeros((JOB_ROWS, 2), np.int64), np.zeros(1, np.int64)
    count = choose_exports(np.frombuffer(payload, np.uint8), *columns, 2, jobs.reshape(-1), 2, refused)
    return [count, *jobs.reshape(-1).tolist(), *refused.tolist()]


def check_datagrams(runs: list[tuple[bytes, Datagrams]], share: int) -> None:
    """Decode some rows of datagrams, one after the other, by one decoder with a share of the columns."""
    names = SHARES[share % len(SHARES)]

    def run(plain: bool) -> tuple[list[tuple[Any, ...]], Any]:
        decoder = FlowDecoder(names, CAPACITY, None, BOUNDS)
        rows = []
        for data, datagrams in runs:
            for flows in decoder.decode(np.frombuffer(data, np.uint8), datagrams):
                rows += rows_of(flows, names)
        assert len(decoder.sessions) <= BOUNDS.sessions
        return rows, decoder.samples("fuzz")

    (rows, counts), (plain_rows, plain_counts) = both(run)
    same("rows", repr(rows), repr(plain_rows))  # a NaN is not equal to itself
    same("counts", counts, plain_counts)
    check_rows(rows, names)


def check(data: bytes) -> None:
    """Read datagrams in their order."""
    payloads = list(chunks(data))
    same("ports", *both(lambda plain: [chosen(payload) for payload in payloads]))
    runs = []
    for number, payload in enumerate(payloads):
        arrival = ARRIVAL + number * 10**9
        where = ((0,), (len(payload),), (arrival,), (4,), (0,), (0x0A000001 + number % 2,), (40000,))
        runs.append((payload, Datagrams.of(*where)))
    check_datagrams(runs, len(data))
