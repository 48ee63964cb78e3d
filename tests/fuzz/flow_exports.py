"""Target `exports`: datagrams of NetFlow v5, v7, v9 and IPFIX.

An input is a sequence of datagrams, each after its length in two bytes. Even datagrams have one sender and odd ones
another. Templates, options and sampling of one change what the next ones mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache
from typing import Any

import numpy as np

from capture.flows.columns import FLOW_COLUMNS, flow_column
from capture.flows.decoder import Datagrams, FlowDecoder, Flows
from capture.flows.export_datagrams import choose_exports
from capture.flows.kernels.datagrams import JOB_ROWS
from capture.flows.templates import DecoderLimits
from capture.flows.texts import Texts
from lowlevel.rows.flows import FlowColumns
from tests.fuzz.agreement import same
from tests.fuzz.chunks import chunks
from tests.fuzz.export_seeds import seeds
from tests.fuzz.plain import both
from tests.references.vector_values import values

__all__ = ["check", "seeds"]

CAPACITY = 16
BOUNDS = DecoderLimits(6, 12, 24, 1024, 4096)
ELEMENTS = (
    "interfaceName", "applicationId", "basicList", "absoluteError", "dataRecordsReliability", "mibObjectValueInteger",
    "flowStartSeconds", "flowEndMilliseconds", "observationTimeMicroseconds", "flowStartNanoseconds",
    "postNATSourceIPv4Address", "exporterIPv6Address", "samplingProbability", "ie_60000", "e9_7_hex",
    "reverseOctetDeltaCount",
)  # fmt: skip
"""Elements of every type beside the core columns."""

CORE = [name for name in FLOW_COLUMNS if name != "link"]
SHARES = (CORE[::2], CORE[1::2], ELEMENTS)
"""The length of the input selects one of these decoders. Only columns of text need a large dictionary."""

PORTS = (2055, 99)
"""A port of exports, and another port. There a datagram is decoded only if the whole datagram is an export."""

PAYLOAD = np.array([(17, 17), PORTS, (0, 0), (0, 0), (5, 5), (4, 4), (0, 0), (9, 9), (40000, 40000)], np.int64)
"""A payload at each of PORTS, as `choose_exports` takes it; its length is in the fourth row."""

ARRIVAL = 1_700_000_000 * 10**9


class FreshDecoder(FlowDecoder):
    """A decoder like one that has just been made for the columns of `model`.

    Columns are placed and the layouts of NetFlow v5 and v7 are compiled once, which takes longer than most inputs.
    """

    def __init__(self, model: FlowDecoder) -> None:
        super().__init__((), CAPACITY, None, BOUNDS)
        layouts = copy(model.templates.layouts)
        layouts.numbers = dict(layouts.numbers)
        for name in ("words", "steps", "fields"):
            words = copy(getattr(layouts, name))
            words.flat = words.flat.copy()
            setattr(layouts, name, words)
        self.column_rows = model.column_rows
        self.templates.layouts = layouts
        self.texts = Texts(self.column_rows.has_texts)
        self.matrix = np.zeros(model.matrix.shape, np.int64)
        self.valid = np.zeros(model.valid.shape, np.uint8)


@cache
def model(share: int) -> FlowDecoder:
    """Return a decoder with a share of the columns, as a model for others. It decodes no input itself."""
    return FlowDecoder(SHARES[share], CAPACITY, None, BOUNDS)


@cache
def specs(share: int) -> list[tuple[str, Any]]:
    """Return the columns of a share with their types."""
    return [(name, flow_column(name)) for name in SHARES[share]]


def check_rows(flows: Flows, share: int) -> None:
    """Numbers fit the bits that keys are packed by; there is a value in each column that is not nullable."""
    columns = FlowColumns("fuzz", flows)
    for name, spec in specs(share):
        column = values(columns[name], flows.row_count)
        assert len(column) == flows.row_count, name
        there = [value for value in column if value is not None]
        assert spec.nullable or len(there) == len(column), f"{name} is NULL"
        if spec.type in ("integer", "mac") and spec.bits < 64 and there:
            assert min(there) >= 0, f"{name} is negative: {there}"
            assert max(there) < 1 << spec.bits, f"{name} has {spec.bits} bits: {there}"


def chosen(payloads: Sequence[bytes]) -> list[int]:
    """Return for each of PORTS whether payloads are recognised as exports, and their positions."""
    found = []
    for payload in payloads:
        columns = np.empty((len(PAYLOAD), 2), np.int64)
        columns[:] = PAYLOAD
        columns[3] = len(payload)
        jobs, refused = np.zeros(JOB_ROWS * 2, np.int64), np.zeros(1, np.int64)
        found.append(choose_exports(np.frombuffer(payload, np.uint8), *columns, 2, jobs, 2, refused))
        found += [*jobs.tolist(), int(refused[0])]
    return found


def check_datagrams(runs: list[tuple[np.ndarray, Datagrams]], share: int) -> None:
    """Decode some rows of datagrams, one after the other, by one decoder with a share of the columns."""

    def run(plain: bool) -> tuple[list[Any], Any]:
        decoder = FreshDecoder(model(share))
        found: list[Any] = []
        for data, datagrams in runs:
            for flows in decoder.decode(data, datagrams):
                texts = flows.texts
                used = texts.ends[: len(texts) + 1]
                found += [
                    flows.row_count,
                    flows.matrix[:, : flows.row_count].tobytes(),
                    flows.valid[:, : flows.row_count].tobytes(),
                ]
                found += [used.tobytes(), texts.arena[: int(used[-1])].tobytes()]
                if not plain:
                    check_rows(flows, share)
        assert len(decoder.sessions) <= BOUNDS.sessions
        return found, decoder.samples("fuzz")

    (found, counts), (plain_found, plain_counts) = both(run)
    same("rows", found, plain_found)
    same("counts", counts, plain_counts)


def check(data: bytes) -> None:
    """Read datagrams in their order."""
    payloads = list(chunks(data))
    same("ports", *both(lambda plain: chosen(payloads)))
    runs = []
    for number, payload in enumerate(payloads):
        arrival = ARRIVAL + number * 10**9
        where = ((0,), (len(payload),), (arrival,), (4,), (0,), (0x0A000001 + number % 2,), (40000,))
        runs.append((np.frombuffer(payload, np.uint8), Datagrams.of(*where)))
    check_datagrams(runs, len(data) % len(SHARES))
