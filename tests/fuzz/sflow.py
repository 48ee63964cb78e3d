"""Target `sflow`: what a UDP payload holds that is sent to a collector.

An input is a row of datagrams, each behind its length in two bytes: sequences go from one to the next.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from capture.files.capture import Capture
from capture.packets.columns import FRAME_COLUMNS
from capture.packets.decoder import Packets
from capture.sflow.columns import SAMPLE_FIELDS, SAMPLING_COLUMNS
from capture.sflow.decoder import SampleDecoder
from capture.sflow.lister import Datagrams, ListedSamples, SampleLister, choose_datagrams
from tests.fuzz.agreement import Sound, same
from tests.fuzz.chunks import chunks, joined
from tests.fuzz.frames import EMPTY
from tests.fuzz.plain import both
from tests.references.random_sflow import random_datagram

CAPACITY = 64
PORTS = (6343, 99)
SOUND = Sound(FRAME_COLUMNS)
LISTERS = (SampleLister(CAPACITY), SampleLister(CAPACITY))
DECODERS = both(lambda plain: SampleDecoder(EMPTY, FRAME_COLUMNS.keys() - {"link"}, CAPACITY))
PATH = Path("fuzz")
SPECS = [(SAMPLE_FIELDS.index(name), spec) for name, spec in SAMPLING_COLUMNS.items() if name in SAMPLE_FIELDS]
ROWS = [row for row, _ in SPECS]
LOWEST = np.array([[-1 if spec.nullable else 0] for _, spec in SPECS], np.int64)
HIGHEST = np.array([[(1 << spec.bits) - 1] for _, spec in SPECS], np.int64)
PROTOCOL, PORT, FRAGMENT = (np.array(pair, np.int64) for pair in ((17, 17), PORTS, (0, 0)))
START = np.zeros(1, np.int64)
TAKEN = 4
"""Word of a slot in the table of sequences that is not 0 if the slot is in use."""


def check_samples(listed: ListedSamples, decoded: Packets, size: int) -> None:
    """Values fit their columns; headers lie inside their datagram of `size` bytes, payloads inside their header."""
    samples = listed.matrix[:, listed.first : listed.first + listed.sample_count]
    values = samples[ROWS]
    outside = (values < LOWEST) | (values > HIGHEST)
    assert not outside.any(), [SPECS[place][1].name for place in np.argwhere(outside)[:, 0]]
    starts, lengths = (listed.field(name).tolist() for name in ("header", "captured"))
    frames = [(start, start + length) for start, length in zip(starts, lengths, strict=True)]
    for start, end in frames:
        assert 0 <= start <= end <= size, "a header lies outside its datagram"
    SOUND(decoded, frames)


def read(plain: bool, payload: bytes, number: int) -> tuple[Any, ...]:
    """Which ports a payload is taken from, its samples, and their packets."""
    lister, decoder = LISTERS[plain], DECODERS[plain]
    data = np.frombuffer(payload, np.uint8)
    decoder.file = Capture(PATH, EMPTY.format, data, None)
    chosen = np.zeros(2, np.int64)
    length = np.full(2, len(payload), np.int64)
    count = choose_datagrams(data, PROTOCOL, PORT, FRAGMENT, length, 2, PORTS[0], chosen)
    samples, packets = [], []
    for listed in lister.list(data, Datagrams(START, length[:1], np.array([number], np.int64))):
        decoded = decoder.decode_listed(listed)
        samples += listed.matrix[:, listed.first : listed.first + listed.sample_count].T.tolist()
        packets += decoded.matrix[:, : decoded.row_count].T.tolist()
        if not plain:
            check_samples(listed, decoded, len(payload))
    return count, chosen.tolist(), samples, packets


def check(data: bytes) -> None:
    """Read datagrams in their order, and decode the packets that were sampled in them."""
    for lister in LISTERS:
        lister.sequences[lister.sequences[:, TAKEN] != 0] = 0  # to clear the whole table takes a tenth of the time
        lister.counters[:] = 0
    payloads = list(chunks(data))
    native, plain = both(lambda plain: [read(plain, payload, number) for number, payload in enumerate(payloads)])
    for one, other in zip(native, plain, strict=True):
        for what, mine, yours in zip(("ports", "chosen", "samples", "packets"), one, other, strict=True):
            same(what, mine, yours)
        if one[1][1] == 1:
            assert one[0] == 2, "a port other than the collector's own has a datagram, and its own has none"
    same("counts", LISTERS[0].counts, LISTERS[1].counts)


def seeds() -> dict[str, bytes]:
    """Rows of random datagrams."""
    random = Random(4)
    return {
        f"row-{number}": joined([random_datagram(random)[:700] for _ in range(1 + number % 3)]) for number in range(16)
    }
