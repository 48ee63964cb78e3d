"""Functions of bytes against those of Python, over spans that lie anywhere in a buffer.

Short alphabets and patterns that overlap themselves detect a shift that is too far. Adjacent spans detect a match that
begins in one span and ends in the next.
"""

from random import Random

import numpy as np
import pytest

from lowlevel.expressions import byte_functions
from lowlevel.expressions.byte_functions import byte_at, contains, find_pattern, match_start, starts_with, take_byte
from lowlevel.expressions.columns import BytesVector
from tests.harness.plain_kernels import plain


def spans(random: Random, rows: int) -> tuple[BytesVector, list[bytes]]:
    """Byte strings that overlap and touch in one buffer, empty ones among them."""
    whole = bytes(random.choice(b"aab") for _ in range(200))
    start = np.array([random.randrange(201) for _ in range(rows)], np.int64)
    length = np.array([random.randrange(min(30, 200 - at) + 1) for at in start], np.int64)
    texts = [whole[at : at + size] for at, size in zip(start.tolist(), length.tolist(), strict=True)]
    return BytesVector(np.frombuffer(whole, np.uint8), start, length), texts


@pytest.mark.parametrize("seed", range(20))
def test_a_pattern_is_found_where_python_finds_it(seed: int) -> None:
    random = Random(seed)
    vector, texts = spans(random, 100)
    for size in range(9):
        pattern = bytes(random.choice(b"aab") for _ in range(size))
        assert contains(vector, pattern).tolist() == [pattern in text for text in texts], pattern
        assert starts_with(vector, pattern).tolist() == [text.startswith(pattern) for text in texts], pattern
    longest = texts[0] + b"x"
    assert not contains(vector, longest).any()
    assert not starts_with(vector, longest).any()


def test_a_byte_is_taken_from_inside_or_it_is_none() -> None:
    vector, texts = spans(Random(2), 200)
    offsets = np.array([Random(place).choice([-(2**63), -1, 0, 1, 5, 29, 30, 2**63 - 1]) for place in range(200)])
    value, present = byte_at(vector, offsets)
    inside = [0 <= offset < len(text) for offset, text in zip(offsets.tolist(), texts, strict=True)]
    assert present.tolist() == inside
    for place, text in enumerate(texts):
        assert value[place] == (text[offsets[place]] if inside[place] else 0)
    for offset in (0, 3):
        value, present = byte_at(vector, np.array(offset))
        assert present.tolist() == [offset < len(text) for text in texts]
        assert value.tolist() == [text[offset] if offset < len(text) else 0 for text in texts]


def test_the_kernels_as_plain_python_agree_with_their_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    vector, _ = spans(Random(3), 60)
    offsets = np.arange(60, dtype=np.int64) - 20

    def everything() -> list[list[int]]:
        found = [search(vector, pattern) for search in (contains, starts_with) for pattern in (b"", b"ab", b"aabaa")]
        return [each.tolist() for each in (*found, *byte_at(vector, offsets))]

    fast = everything()
    for kernel in (find_pattern, match_start, take_byte):
        monkeypatch.setattr(byte_functions, kernel.name, plain(kernel, vector.data))
    assert everything() == fast
