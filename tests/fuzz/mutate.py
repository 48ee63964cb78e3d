"""Mutation without guidance: what the normal tests try, from a seed, in the same order on every machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 20, 24, 28, 32, 40, 127, 128, 255, 256, 1500, 65535, 2**31 - 1, 2**31, 2**32 - 1)


def mutated(random: Random, data: bytes, other: bytes) -> bytes:
    """Change an input in one to four places; `other` is one to take parts from."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(7):
            case 0 if at < len(changed):
                changed[at] ^= 1 << random.randrange(8)
            case 1 if at < len(changed):
                changed[at] = random.choice([0, 1, 4, 6, 0x45, 0x60, 0x7F, 0x80, 0xFF, random.randrange(256)])
            case 2:
                size = random.choice([1, 2, 4, 8])
                number = random.choice([*NUMBERS, len(changed), len(changed) - at]) % 256**size
                changed[at : at + size] = number.to_bytes(size, random.choice(["big", "little"]))
            case 3:
                del changed[at : at + random.choice([1, 2, 4, random.randrange(1, 40)])]
            case 4:
                changed[at:at] = random.randbytes(random.choice([1, 2, 4, 8]))
            case 5:
                begin = random.randrange(len(other) + 1)
                changed[at:at] = other[begin : begin + random.randrange(80)]
            case _:
                changed = changed[:at] if random.random() < 0.3 else changed + changed[at : at + 40]
    return bytes(changed)


def inputs(seeds: Sequence[bytes], count: int, seed: int = 0, longest: int = 4096) -> Iterator[bytes]:
    """The seeds themselves, and `count` inputs made of them, some of which were made of made ones."""
    random = Random(seed)
    yield from seeds
    pool = list(seeds)
    for _ in range(count):
        made = mutated(random, random.choice(pool), random.choice(pool))[:longest]
        yield made
        if random.random() < 0.2:
            pool.append(made)
