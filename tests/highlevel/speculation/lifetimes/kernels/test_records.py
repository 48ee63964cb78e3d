"""The list of free records, compared with a walk along its links and with the records that were freed.

Finds: a free record that is not marked, a record in use that is marked, a wrong number, and a kernel that reads outside
its arrays: it also runs as plain Python, with numpy's bound checks.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from highlevel.patterns.memory import chain
from highlevel.speculation.lifetimes.kernels import records
from tests.conftest import Rounds
from tests.harness.plain_kernels import plain

ROOM = 40


@pytest.mark.parametrize(
    "mark_free_records", [records.mark_free_records, plain(records.mark_free_records)], ids=["compiled", "plain"]
)
def test_the_free_records_are_marked(mark_free_records, rounds: Rounds) -> None:  # type: ignore[no-untyped-def]
    marked = 0
    for seed in rounds(60):
        draw = Random(seed)
        width, before = draw.randint(1, 4), draw.randint(0, 2)
        link = draw.randrange(width)
        memory = np.full((ROOM, width), -7)
        state = np.zeros(before + records.LIST_WORDS, np.int64)
        state[before + records.FREE_RECORD] = records.NONE
        in_use: set[int] = set()
        for _ in range(draw.choice([0, 1, 10, 100])):
            if in_use and (len(in_use) == ROOM or draw.random() < 0.45):
                record = draw.choice(sorted(in_use))
                in_use.remove(record)
                records.free_record(memory.reshape(-1), state, before, width, link, record)
            else:
                in_use.add(int(records.take_record(memory.reshape(-1), state, before, width, link)))
        first, used = int(state[before + records.FREE_RECORD]), int(state[before + records.USED_RECORDS])
        is_free = np.zeros(used + 1, np.int64)
        count = mark_free_records(memory.reshape(-1), first, width, link, is_free)
        free = np.flatnonzero(is_free).tolist()
        assert free == sorted(chain(memory, first, link)), seed
        assert free == sorted(set(range(used)) - in_use), seed
        assert count == len(free), seed
        marked += count
    assert marked > 0
