"""LastRows over random events of keyed rows, of which the row before a change is missing or has only its key.

The reference is a dictionary that reads one event at a time. The tests detect a row that stays after its key has
changed, a row that is withdrawn twice, and a row that is lost when stored rows are removed.
"""

from random import Random

import pyarrow as pa
import pytest

from capture import arrow_compute as pc
from highlevel.inline import last_rows
from highlevel.inline.last_rows import LastRows
from tests.conftest import Rounds

ROW = pa.struct([("id", pa.int64()), ("Site", pa.string()), ("size", pa.int64())])

Row = tuple[int, str, int | None]


def random_events(random: Random) -> list[tuple[Row | None, Row | None]]:
    """Rows before and after changes. A row before a change is missing, has only its key, or is complete."""
    present: dict[tuple, Row] = {}
    events: list[tuple[Row | None, Row | None]] = []
    for _ in range(random.randrange(60)):
        key = (random.randrange(4), random.choice("ab"))
        last = present.get(key, (*key, 0))
        forms = [None, (*key, None), last]
        action = random.random()
        if action < 0.2:
            events.append((random.choice(forms[1:]), None))
            present.pop(key, None)
            continue
        moved = (random.randrange(4), random.choice("ab")) if action > 0.9 else key
        present.pop(key, None)
        present[moved] = (*moved, random.randrange(100))
        events.append((random.choice(forms[1:] if moved != key else forms), present[moved]))
    return events


def changes_of(events: list[tuple[Row | None, Row | None]]) -> list[tuple[int, bool, Row]]:
    """The changes: the number of the event, whether a row is withdrawn, and the row."""
    last: dict[tuple, Row] = {}
    changes: list[tuple[int, bool, Row]] = []
    for number, (before, after) in enumerate(events):
        replaced = [row[:2] for row in (before, after) if row is not None and row[:2] in last]
        changes += [(number, True, last.pop(key)) for key in dict.fromkeys(replaced)]
        if after is not None:
            last[after[:2]] = after
            changes.append((number, False, after))
    return changes


def struct(rows: list[Row | None]) -> pa.StructArray:
    return pa.array([row and dict(zip(ROW.names, row, strict=True)) for row in rows], ROW)


def unchanged(_: str, values: pa.Array) -> pa.Array:
    return values


def test_the_changes_are_those_of_a_dictionary_in_any_division(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_rows, "MAX_KEYS", 16)  # stored rows are removed when they are twice as many as the keys
    for seed in rounds(150):
        random = Random(f"last rows {seed}")
        events, tested = random_events(random), LastRows(("id", "site"), unchanged)
        found, begin = [], 0
        while begin < len(events):
            part = events[begin : begin + random.choice([1, 3, 100])]
            changes = tested.apply(*(struct([*rows]) for rows in zip(*part, strict=True)))
            rows = [tuple(row.values()) for row in changes.rows.to_pylist()]
            numbers = (changes.events + begin).tolist()
            found += list(zip(numbers, changes.withdrawn.tolist(), rows, strict=True))
            begin += len(part)
        assert found == changes_of(events), seed


def test_few_rows_are_stored_for_many_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_rows, "MAX_KEYS", 160)
    tested = LastRows(("id",), unchanged)
    for turn in range(300):
        tested.apply(struct([None] * 20), struct([(number, "a", turn) for number in range(20)]))
        assert tested.stored_rows <= 2 * 20 + 10 + 20
    deleted = tested.apply(struct([(number, None, None) for number in range(20)]), struct([None] * 20))
    assert deleted.rows["size"].to_pylist() == [299] * 20
    assert tested.stored_rows <= 30


@pytest.mark.parametrize(
    ("keys", "rows", "message"),
    [
        (("id",), [(number, "a", 1) for number in range(4)], "got more than 3 keys of rows that can be updated"),
        (("id", "site"), [(1, None, 1)], r"got a row without a value of the key \(id, site\)"),
        (("port",), [(1, "a", 1)], "got rows without the column port of the key"),
    ],
)
def test_rows_that_cannot_be_stored_are_errors(keys: tuple[str, ...], rows: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LastRows(keys, unchanged, max_keys=3).apply(struct([None] * len(rows)), struct(rows))


def test_keys_are_compared_by_their_converted_values() -> None:
    def convert(name: str, values: pa.Array) -> pa.Array:
        return pc.utf8_lower(values) if name == "site" else values

    tested = LastRows(("site",), convert)
    tested.apply(struct([None]), struct([(1, "a", 1)]))
    changes = tested.apply(struct([None]), struct([(2, "A", 2)]))
    assert changes.withdrawn.tolist() == [True, False]
    assert changes.rows["Site"].to_pylist() == ["a", "A"]
