"""MatchParts compared with the definition: the instants of a row that are in one of its pairs, or in none.

Rows and pairs are added and withdrawn in any order above a watermark. The tests detect parts that a forgotten pair
would have divided, parts that are returned although they can still change, state that grows with the pairs of a row,
and small batches that cost as much as all stored rows.
"""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from highlevel.speculation.lifetimes import match_parts
from highlevel.speculation.lifetimes.match_parts import MatchParts, StoredLifetimes
from highlevel.speculation.lifetimes.model import VE, VS
from lowlevel.punctuation import END
from tests.conftest import Rounds
from tests.references.operator_contract import through_ipc

IDENTITY = pa.schema([("name", pa.int64()), ("start", pa.int64()), ("end", pa.int64())])

Row = tuple[int, int, int]
Weighted = tuple[tuple[int, int], Row, int]
"""A lifetime of a row or of a pair, the row, and a weight."""


def batch(changes: list[Weighted]) -> tuple[pa.RecordBatch, np.ndarray]:
    columns = zip(*((*lifetime, *row) for lifetime, row, _ in changes), strict=True)
    names = (VS, VE, *IDENTITY.names)
    return pa.RecordBatch.from_pydict(dict(zip(names, columns, strict=True))), np.array([each[2] for each in changes])


def definition(rows: Counter[Row], pairs: Counter, *, has_match: bool) -> Counter[tuple]:
    found: Counter[tuple] = Counter()
    for (name, start, end), count in rows.items():
        covered = {at for (first, last), row in pairs if row == (name, start, end) for at in range(first, last)}
        part = {at for at in range(start, end) if (at in covered) == has_match}
        firsts = sorted(at for at in part if at - 1 not in part)
        ends = sorted(at + 1 for at in part if at + 1 not in part)
        found.update({(*bounds, name, start, end): count for bounds in zip(firsts, ends, strict=True)})
    return found


def made_changes(random: Random) -> list[tuple[int, str, Weighted]]:
    """Changes of rows and of pairs with the time below which they must arrive, in the order of arrival."""
    changes = []
    for name in range(random.randint(1, 6)):
        start = random.randrange(40)
        row = (name, start, start + random.randint(1, 40))
        lifetimes = [("rows", row[1:])]
        for _ in range(random.randrange(6)):
            first = random.randrange(row[1], row[2])
            lifetimes.append(("pairs", (first, random.randint(first + 1, row[2]))))
        if random.random() < 0.3:
            lifetimes.append(lifetimes[-1])
        for kind, lifetime in lifetimes:
            weights = random.choice([[1], [1], [1, -1], [1, -1, 1]]) if kind == "pairs" else [1]
            arrival = random.uniform(lifetime[0] - 30, lifetime[0])
            for weight in weights:
                changes.append((arrival, lifetime[0], kind, (lifetime, row, weight)))
                arrival = random.uniform(arrival, lifetime[0])
    return [(start, kind, change) for _, start, kind, change in sorted(changes, key=lambda each: each[0])]


@pytest.mark.parametrize("has_match", [False, True])
@pytest.mark.parametrize("min_room, stale", [(0, END), (0, 0), (4096, 4)])
def test_parts_are_those_of_the_definition_and_few_rows_are_stored(
    has_match: bool, min_room: int, stale: int, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(match_parts, "MIN_ROOM", min_room)
    monkeypatch.setattr(match_parts, "STALE", stale)
    for seed in rounds(150):
        random = Random(f"parts {seed}")
        parts = MatchParts(IDENTITY, has_match=has_match)
        arrivals = made_changes(random)
        sums: dict[str, Counter] = {"rows": Counter(), "pairs": Counter()}
        found: Counter[tuple] = Counter()
        at = 0
        while at < len(arrivals) or sums:
            size = random.randint(1, 8)
            for kind, add in (("rows", parts.add_rows), ("pairs", parts.add_pairs)):
                changes = [change for _, of, change in arrivals[at : at + size] if of == kind]
                if changes:
                    add(*batch(changes))
                for lifetime, row, weight in changes:
                    sums[kind][row if kind == "rows" else (lifetime, row)] += weight
            at += size
            watermark = min((start for start, *_ in arrivals[at:]), default=END)
            changed, weights = parts.update(watermark + random.choice([0, 0, 9]) if watermark < END else END)
            for row, weight in zip(changed.to_pylist(), weights.tolist(), strict=True):
                found[tuple(row.values())] += weight
            expected = definition(+sums["rows"], +sums["pairs"], has_match=has_match)
            below = {row for row in expected if row[1] < watermark or watermark == END}
            assert {row: found[row] for row in below} == {row: expected[row] for row in below}, (seed, watermark)
            assert min(found.values(), default=0) >= 0, (seed, watermark)
            parts.advance(watermark)
            still_open = [row for row in sums["rows"] if row[2] >= watermark]
            open_pairs = [pair for pair, count in sums["pairs"].items() if count and pair[0][1] >= watermark]
            open_parts = [row for row in expected if row[1] >= watermark]
            begun = sum(row[0] < watermark for row in open_parts) if has_match else 0
            if stale == END:
                assert parts.num_rows <= len(still_open) + len(open_pairs) + len(open_parts) + begun, (seed, watermark)
            least = min((row[0] for row in open_parts), default=END)
            assert parts.least_start == least or watermark == END, (seed, watermark)
            if random.random() < 0.3:
                state = through_ipc(parts.snapshot())
                parts = MatchParts(IDENTITY, has_match=has_match)
                parts.restore(state)
            if watermark == END:
                break
        assert +found == expected, seed
        assert parts.num_rows == 0


def test_the_cost_of_a_small_batch_does_not_grow_with_the_stored_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered = 0

    def replace(stored: StoredLifetimes, lifetimes: np.ndarray) -> None:
        nonlocal ordered
        ordered += len(lifetimes)
        order_again(stored, lifetimes)

    order_again = StoredLifetimes.replace
    monkeypatch.setattr(StoredLifetimes, "replace", replace)
    parts = MatchParts(IDENTITY, has_match=False)
    rows = 20_000
    parts.add_rows(*batch([((name, END), (name, name, END), 1) for name in range(rows)]))
    parts.update(0)
    parts.advance(1)
    ordered = 0
    for name in range(200):
        parts.add_pairs(*batch([((rows + name, rows + name + 5), (name, name, END), 1)]))
        changed, _ = parts.update(2 * rows)
        assert changed.num_rows == 1
        parts.advance(2 + name)
    assert ordered < 200 * rows / 50, "most lifetimes were ordered again at each batch"
