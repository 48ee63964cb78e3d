"""Merge buffers against a dictionary, with snapshots and restarts at random moments.

The random streams detect a group that a merge of pieces loses, doubles or splits, and a piece that is replaced although
it did not change. The long streams detect a number of pieces, or of rows that are written again, which grows with time.
"""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

from highlevel.groups import merge_buffer
from highlevel.groups.merge_buffer import FEW_ROWS, SIMILAR_PIECES, MergeBuffer, count_merged_pieces
from highlevel.groups.merging import MergeFunction, MergeRule
from tests.conftest import Rounds

RULES = [MergeRule(("n",), MergeFunction.SUM)]


def batch(pairs: list[tuple[int, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"k": [k for k, _ in pairs], "n": [n for _, n in pairs]})


def totals(batches: list[pa.RecordBatch]) -> Counter[int]:
    found: Counter[int] = Counter()
    for each in batches:
        for k, n in zip(*(column.to_pylist() for column in each.columns), strict=True):
            found[k] += n
    return found


def test_pieces_contain_every_partial_once(monkeypatch: pytest.MonkeyPatch, rounds: Rounds) -> None:
    kept = merges = 0
    for seed in rounds(200):
        random = Random(f"pieces {seed}")
        monkeypatch.setattr(merge_buffer, "MERGE_ROWS", random.choice([0, 5, 16_384]))
        monkeypatch.setattr(merge_buffer, "FEW_ROWS", random.choice([0, 0, 20]))
        monkeypatch.setattr(merge_buffer, "SIMILAR_PIECES", random.choice([2, 3, 16]))
        buffer = MergeBuffer(["k"], RULES)
        expected: Counter[int] = Counter()
        groups, most = random.randint(1, 200), random.choice([3, 30])
        pieces: list[pa.RecordBatch] = []
        for _ in range(random.randint(1, 60)):
            pairs = [(random.randrange(groups), random.randint(1, 9)) for _ in range(random.randint(1, most))]
            buffer.add(batch(pairs))
            for k, n in pairs:
                expected[k] += n
            action = random.random()
            if action < 0.6:
                before, pieces = pieces, list(buffer.merged_pieces())
                assert totals(pieces) == expected, seed
                assert all(len(set(piece["k"].to_pylist())) == piece.num_rows for piece in pieces), seed
                assert buffer.merged_pieces() == pieces
                same = sum(old is new for old, new in zip(before, pieces, strict=False))
                kept += same
                merges += same < len(before)
                assert all(old is new for old, new in zip(before[:same], pieces[:same], strict=True)), seed
                assert len(pieces) <= same + 1, seed  # one new piece, after those that stay
                if action < 0.3:
                    buffer = MergeBuffer(["k"], RULES, pieces)
        assert totals(buffer.batches()) == expected, seed
        (whole,) = buffer.merged_batches()
        assert dict(zip(whole["k"].to_pylist(), whole["n"].to_pylist(), strict=True)) == expected, seed
    assert kept > 100
    assert merges > 100


def test_a_small_window_is_one_piece_and_small_changes_of_a_large_one_are_few_pieces() -> None:
    assert count_merged_pieces([1]) == 1
    assert count_merged_pieces([FEW_ROWS - 1, 1]) == 2
    assert count_merged_pieces([FEW_ROWS, 1]) == 1
    for change in (1, 10, 1000):
        rows = [1_000_000]
        most = written = 0
        for _ in range(3000):
            rows.append(change)
            written += change
            while (count := count_merged_pieces(rows)) > 1:
                rows[-count:] = [sum(rows[-count:])]  # disjoint groups: the largest pieces
                written += rows[-1]
            most = max(most, len(rows))
        assert most <= 4 * SIMILAR_PIECES
        assert written <= 5 * 3000 * change
