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
from capture.sflow.columns import OF_THE_SAMPLE
from capture.sflow.datagrams import choose_datagrams
from capture.sflow.decoder import SampleDecoder
from capture.sflow.fields import SAMPLE_FIELDS
from capture.sflow.lister import Datagrams, SampleLister
from tests.fuzz.agreement import Sound, same
from tests.fuzz.chunks import chunks, joined
from tests.fuzz.frames import EMPTY
from tests.fuzz.plain import both
from tests.random_sflow import random_datagram

CAPACITY = 64
PORTS = (6343, 99)
SOUND = Sound(FRAME_COLUMNS)
LISTERS = (SampleLister(CAPACITY), SampleLister(CAPACITY))
DECODERS = both(lambda plain: SampleDecoder(EMPTY, FRAME_COLUMNS.keys() - {"link"}, CAPACITY))
BITS = [(SAMPLE_FIELDS.index(name), spec) for name, spec in OF_THE_SAMPLE.items() if name in SAMPLE_FIELDS]


def read(plain: bool, payload: bytes, number: int) -> tuple[Any, ...]:
    """Which ports a payload is taken from, its samples, and their packets."""
    lister, decoder = LISTERS[plain], DECODERS[plain]
    decoder.file = Capture(Path("fuzz"), EMPTY.format, np.frombuffer(payload, np.uint8), None)
    data = decoder.file.data
    chosen = np.zeros(2, np.int64)
    columns = [np.array(values, np.int64) for values in ((17, 17), PORTS, (0, 0), (len(payload), len(payload)))]
    count = choose_datagrams(data, *columns, 2, PORTS[0], chosen)
    one = Datagrams(*(np.array([value], np.int64) for value in (0, len(payload), number)))
    samples, packets = [], []
    for listed in lister.list(data, one):
        decoded = decoder.decode_listed(listed)
        samples += listed.matrix[:, listed.first : listed.first + listed.rows].T.tolist()
        packets += decoded.matrix[:, : decoded.rows].T.tolist()
        if not plain:
            ends = (listed.field("header"), listed.field("captured"))
            SOUND(
                decoded, [(start, start + size) for start, size in zip(*(each.tolist() for each in ends), strict=True)]
            )
    return count, chosen.tolist(), samples, packets


def check(data: bytes) -> None:
    """Read datagrams in their order, and decode the packets that were sampled in them."""
    for lister in LISTERS:
        lister.sequences[:] = 0
        lister.words[:] = 0
    for number, payload in enumerate(chunks(data)):
        native, plain = both(lambda plain, payload=payload, number=number: read(plain, payload, number))
        for what, one, other in zip(("ports", "chosen", "samples", "packets"), native, plain, strict=True):
            same(what, one, other)
        for sample in native[2]:
            for row, spec in BITS:
                assert -1 <= sample[row] < 1 << spec.bits, (spec.name, sample[row])
                assert sample[row] >= 0 or spec.nullable, spec.name
            assert 0 <= sample[0] <= sample[0] + sample[1] <= len(payload), "a header lies outside its datagram"
        if native[1][1] == 1:
            assert native[0] == 2, "another port took what its own did not"
    same("counts", LISTERS[0].counts, LISTERS[1].counts)


def seeds() -> dict[str, bytes]:
    """Rows of random datagrams."""
    random = Random(4)
    return {
        f"row-{number}": joined([random_datagram(random)[:700] for _ in range(1 + number % 3)]) for number in range(16)
    }
