"""Export datagrams to columns, against the twin of `tests.references.flow_oracle` and `tests.references.flow_values`.

* Streams of random templates detect a field with a wrong offset or length, and a template mixed up between sessions.
  They detect waiting data that is read by the wrong template, and a time or a rate from the wrong element.
* Buffers of a few rows detect rows that are lost or doubled if the kernel stops in the middle of a set.
* The kernel as plain Python on guarded arrays catches a read or write outside them that machine code hides.
* Harmed datagrams catch trust in a length or a count of the wire.
"""

from random import Random
from typing import Any

import numpy as np
import pytest

from capture.flows.columns import CORE_COLUMNS, flow_column
from capture.flows.decoder import FlowDecoder
from capture.flows.elements import DataType, element_named
from capture.flows.kernels import datagrams as kernel
from capture.native import flatten
from tests.harness.guarded import Guarded, GuardedBytes
from tests.references.flow_comparison import COLUMNS, ELEMENTS, same
from tests.references.flow_oracle import Collector, Record
from tests.references.flow_rows import Sent, decode, decoded, laid_out, rows_of
from tests.references.flow_values import core, element_value
from tests.references.random_flows import harmed, random_stream


def twin_row(record: Record) -> dict[str, Any]:
    row = {}
    for name in COLUMNS:
        if name in CORE_COLUMNS:
            row[name] = core(record, name)
        else:
            element = element_named(name)
            assert element is not None
            row[name] = element_value(record, element.id, element.enterprise, element.type)
    return row


def twin(sent: list[Sent]) -> list[dict[str, Any]]:
    collector = Collector()
    return [twin_row(record) for each in sent for record in collector.feed(*each)]


@pytest.mark.parametrize("seed", range(6))
def test_random_streams_are_decoded_as_the_twin_reads_them(seed: int) -> None:
    random = Random(seed)
    sent = random_stream(random, 250, disorder=seed % 2 == 1)
    same(decode(sent, COLUMNS, capacity=random.choice([1, 3, 64, 4096])), twin(sent))


@pytest.mark.parametrize("seed", range(3))
def test_harmed_streams_are_decoded_as_the_twin_reads_them(seed: int) -> None:
    random = Random(100 + seed)
    sent = [
        (harmed(random, payload) if random.random() < 0.3 else payload, sender, arrival)
        for payload, sender, arrival in random_stream(random, 700)
    ]
    same(decode(sent, COLUMNS, capacity=64), twin(sent))


def test_a_stream_that_comes_in_pieces_is_decoded_as_in_one() -> None:
    sent = random_stream(Random(7), 300)
    decoder = FlowDecoder(COLUMNS, 16)
    rows = [row for at in range(0, len(sent), 7) for row in decoded(decoder, sent[at : at + 7], COLUMNS)]
    same(rows, decode(sent, COLUMNS))


class PlainDecoder(FlowDecoder):
    """A decoder whose kernel is plain Python on arrays that refuse every index outside them."""

    def _decode(self, data: Any, datagrams: Any, again: bool, state: Any) -> int:
        real = kernel.decode_datagrams

        def plain(*arguments: Any) -> int:
            guarded = [
                GuardedBytes(data.tobytes()) if number == 0 else self._guarded(value)
                for number, value in enumerate(flatten(arguments))
            ]
            with np.errstate(over="ignore"):
                return real.function(*real.group(guarded))

        kernel.decode_datagrams = plain  # type: ignore[assignment]
        try:
            return super()._decode(data, datagrams, again, state)
        finally:
            kernel.decode_datagrams = real

    def _guarded(self, value: Any) -> Any:
        addresses = {
            array.__array_interface__["data"][0]: array for array in (self.matrix.reshape(-1), self.valid.reshape(-1))
        }
        if isinstance(value, np.ndarray):
            return Guarded(value)
        return Guarded(addresses[value]) if value in addresses else value


@pytest.mark.parametrize("harm", [False, True])
def test_the_kernel_as_plain_python_stays_inside_its_arrays_and_does_the_same(harm: bool) -> None:
    random = Random(11 + harm)
    sent = random_stream(random, 80)
    if harm:
        sent = [(harmed(random, payload), sender, arrival) for payload, sender, arrival in sent for _ in range(3)]
    data, datagrams = laid_out(sent)
    plain = PlainDecoder(COLUMNS, 16)
    rows = [row for flows in plain.decode(data, datagrams) for row in rows_of(flows, COLUMNS)]
    native = FlowDecoder(COLUMNS, 16)
    same(rows, decoded(native, sent, COLUMNS))
    assert plain.counts.tolist() == native.counts.tolist()
    assert (plain.sessions.rows == native.sessions.rows).all()
    assert rows or harm


def test_every_core_column_is_compared() -> None:
    assert {name for name in CORE_COLUMNS if name != "link"} <= set(COLUMNS)
    types = {"integer", "time", "address", "text", "mac", "float", "boolean"}
    assert {flow_column(name).type for name in COLUMNS} == types  # type: ignore[union-attr]
    kinds = {element.type for name in ELEMENTS if (element := element_named(name))}
    assert DataType.UNKNOWN in kinds
