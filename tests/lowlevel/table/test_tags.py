"""Tags of a bucket against its eight bytes looked at one by one.

Words full of equal, nearly equal and extreme bytes detect a borrow that marks the neighbour of the right slot.
"""

from random import Random

import numpy as np
import pytest

from lowlevel.table.entries import BUCKET, choose_slots, find_first, home_of, mark_of, match_tags, tag_of

SOME = (0x00, 0x80, 0x81, 0x9C, 0xFF)
WORDS = [bytes(random.choice(SOME) for _ in range(BUCKET)) for random in map(Random, range(300))]


@pytest.fixture(autouse=True)
def wrapping() -> object:
    with np.errstate(over="ignore"):  # plain Python warns of overflow, compiled code does not
        yield


def word_of(held: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(held, "little"))


def marked(marks: np.uint64) -> list[int]:
    """The slots that are marked; every mark must be a whole one."""
    found = int(marks).to_bytes(BUCKET, "little")
    assert set(found) <= {0, 0x80}
    return [place for place, byte in enumerate(found) if byte]


def test_the_slots_with_a_tag_are_marked_and_no_others() -> None:
    for held in WORDS:
        for tag in SOME[1:]:
            expected = [place for place, byte in enumerate(held) if byte == tag]
            marks = match_tags(word_of(held), np.uint64(tag))
            assert marked(marks) == expected
            assert find_first(marks) == (expected[0] if expected else 0)


def test_a_group_that_is_not_there_goes_home_unless_only_another_slot_is_empty() -> None:
    for held in WORDS:
        empty = [place for place, byte in enumerate(held) if not byte]
        for home in range(BUCKET):
            place = find_first(choose_slots(word_of(held), np.uint64(home)))
            assert place == (home if home in empty or not empty else empty[0])


def test_a_tag_is_of_a_full_slot_and_depends_on_no_bit_that_says_where_it_is() -> None:
    random = Random(5)
    for _ in range(300):
        mixed = random.randrange(1 << 64)
        assert 0x80 <= tag_of(np.uint64(mixed)) <= 0xFF
        assert tag_of(np.uint64(mixed)) == tag_of(np.uint64(mixed ^ random.randrange(1 << 48)))
        assert home_of(np.uint64(mixed)) == home_of(np.uint64(mixed ^ random.randrange(1 << 40))) < BUCKET
    assert [marked(mark_of(np.uint64(place))) for place in range(BUCKET)] == [[place] for place in range(BUCKET)]
