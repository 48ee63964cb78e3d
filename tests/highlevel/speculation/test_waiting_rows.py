"""Rows that wait, against a sorted list: any order of arrival, equal times, a restart, and the memory of taken rows."""

from random import Random

import pyarrow as pa
import pytest

from highlevel.speculation.waiting_rows import WaitingRows
from lowlevel.punctuation import END
from tests.conftest import Rounds
from tests.references.operator_contract import through_ipc

SCHEMA = pa.schema([("ts", pa.int64()), ("n", pa.int64())])


def test_due_rows_are_in_the_order_of_their_times_and_of_arrival(rounds: Rounds) -> None:
    for seed in rounds(30):
        random = Random(seed)
        waiting, expected, number = WaitingRows(SCHEMA, "ts"), list[tuple[int, int]](), 0
        for step in range(random.randint(1, 40)):
            size = random.choice([0, 1, 5, 60])
            times = [random.choice([None, step * 3 + random.randint(-20, 20)]) for _ in range(size)]
            rows = list(zip(times, range(number, number + size), strict=True))
            number += size
            expected += [(END if time is None else time, row) for time, row in rows]
            waiting.add(pa.table({"ts": pa.array(times, pa.int64()), "n": [row for _, row in rows]}, SCHEMA))
            if random.random() < 0.3:
                before = random.choice([step * 3 - 15, step * 3, END])
                due = sorted(row for row in expected if row[0] < before or before == END)
                assert waiting.take_before(before)["n"].to_pylist() == [row for _, row in due], seed
                expected = [row for row in expected if row not in due]
            if random.random() < 0.1:
                tables = through_ipc({"rows": waiting.snapshot()})
                waiting = WaitingRows(SCHEMA, "ts")
                waiting.restore(tables["rows"])
            assert waiting.num_rows == len(expected) == len(waiting.times)
        assert waiting.take_before(END)["n"].to_pylist() == [row for _, row in sorted(expected)], seed
        assert waiting.nbytes == 0


@pytest.mark.parametrize("size", [1, 7])
def test_a_long_wait_copies_each_row_a_few_times(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch costs its own rows and those that are due, not all rows that wait."""
    from highlevel.speculation import waiting_rows

    copied = 0
    merged = waiting_rows._merge_runs

    def counting(runs: list) -> object:
        nonlocal copied
        copied += sum(len(run.times) for run in runs) if len(runs) > 1 else 0
        return merged(runs)

    monkeypatch.setattr(waiting_rows, "_merge_runs", counting)
    waiting = WaitingRows(SCHEMA, "ts")
    batches = 400
    for step in range(batches):
        times = [step * size + place for place in range(size)]
        waiting.add(pa.table({"ts": times, "n": times}, SCHEMA))
        assert waiting.take_before(0).num_rows == 0
    assert copied < 12 * batches * size, "rows are copied again and again"


def test_rows_that_are_taken_little_by_little_keep_at_most_as_much_memory_as_the_rows_that_wait() -> None:
    before = pa.total_allocated_bytes()
    times = list(range(100_000))
    waiting = WaitingRows(SCHEMA, "ts")
    waiting.add(pa.table({"ts": times, "n": times}, SCHEMA))
    taken = 0
    while taken < 99_000:
        taken += (100_000 - taken) * 2 // 5  # never half of the rows that wait
        waiting.take_before(taken)
        kept, used = 16 * waiting.num_rows, pa.total_allocated_bytes() - before
        assert kept <= used <= 2 * kept + 4096, taken
        assert used <= waiting.nbytes <= 3 * kept, "the memory is reported, and the times"
