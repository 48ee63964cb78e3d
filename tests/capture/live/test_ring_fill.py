"""The share of a ring that waits, in bytes. It can catch a quiet link that is sampled as if it were busy."""

from random import Random

import numpy as np

from capture.interface_path import BLOCK_BYTES
from capture.live.ring import compute_waiting_share
from lowlevel.node.shedding import RingPressure

OURS, LOSING = 1, 1 << 2
"""Bits of a block's status: it is retired; packets are being dropped (TP_STATUS_LOSING)."""


def test_the_share_is_that_of_the_bytes_in_retired_blocks_but_the_current() -> None:
    random = Random(1)
    for _ in range(200):
        blocks = random.randrange(2, 9)
        status = [random.choice([0, OURS, OURS | LOSING, LOSING]) for _ in range(blocks)]
        used = [random.choice([0, 48, 300, BLOCK_BYTES - 1, BLOCK_BYTES, 2**32 - 1]) for _ in range(blocks)]
        current = random.randrange(blocks)
        waiting = [
            min(each, BLOCK_BYTES)
            for number, (bits, each) in enumerate(zip(status, used, strict=True))
            if bits & OURS and number != current
        ]
        share = compute_waiting_share(np.array(status, np.uint32), np.array(used, np.uint32), current)
        assert share == sum(waiting) / ((blocks - 1) * BLOCK_BYTES)
        assert 0 <= share <= 1


def test_a_quiet_ring_of_nearly_empty_blocks_is_not_sampled_and_a_full_one_is() -> None:
    status = np.full(64, OURS, np.uint32)
    quiet, busy = (np.full(64, size, np.uint32) for size in (500, BLOCK_BYTES - 1500))
    for used, samples in ((quiet, False), (busy, True)):
        rule = RingPressure()
        for step in range(100):
            rule.update(compute_waiting_share(status, used, 0), step * 50_000_000)
        assert (rule.k > 0) == samples
