"""Tables of groups against Arrow's group_by and against dictionaries, on columns of every type a group can have.

* Random batches detect values that are confused: a NULL and an empty string, an address and a MAC with the same first
  bytes, NaN, the two zeros. They detect columns that need a wider form in a later batch, slices of batches, growth in
  the middle of a batch, and rules with a wrong start value.
* The same tests with the kernels' plain Python detect errors that only bound checks show.
* Taking out what was put in catches groups that stay as zeros, or go although something is left of them.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from highlevel.groups import ids, key_words, long_strings, merging
from highlevel.groups.ids import NO_GROUP
from highlevel.groups.key_words import Form
from highlevel.groups.keys import Keys
from highlevel.groups.merging import MergeFunction, MergeRule
from highlevel.groups.table import GroupTable, merge_batches
from tests.conftest import Rounds
from tests.references.flat_groups import flat

NAN = math.nan
KERNELS = (
    (ids, "find_ids"),
    (ids, "move_slots"),
    (long_strings, "move_slots"),
    (long_strings, "number_strings"),
    (key_words, "pack_strings"),
    (key_words, "unpack_strings"),
    (merging, "merge_values"),
    (merging, "merge_pairs"),
)


@contextmanager
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched, np.errstate(over="ignore"):
        for module, name in KERNELS:
            patched.setattr(module, name, flat(getattr(module, name).function))
        yield


def strings(random: Random, lengths: list[int]) -> bytes:
    return bytes(random.choice([0, 1, 255]) for _ in range(random.choice(lengths)))


KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "int64": (pa.int64(), lambda random: random.choice([-(2**63), -1, 0, 1, 2**63 - 1])),
    "int32": (pa.int32(), lambda random: random.randint(-2, 2)),
    "uint64": (pa.uint64(), lambda random: random.choice([0, 1, 2**64 - 1])),
    "bool": (pa.bool_(), lambda random: random.random() < 0.5),
    "float": (pa.float64(), lambda random: random.choice([0.0, -0.0, NAN, -NAN, math.inf, 1.5])),
    "IPv4": (pa.binary(), lambda random: strings(random, [4])),
    "address": (pa.binary(), lambda random: strings(random, [4, 16])),
    "binary": (pa.binary(), lambda random: strings(random, [0, 1, 4, 6, 7, 8, 15, 16, 17])),
    "large": (pa.large_binary(), lambda random: strings(random, [0, 4, 20])),
    "name": (pa.string(), lambda random: random.choice(["", "a", "Main1", "\0", "ä"])),
    "text": (
        pa.string(),
        lambda random: random.choice(["", "a", "a.example.org", "b.example.org", "x" * 16, "y" * 40]),
    ),
    "large text": (pa.large_string(), lambda random: random.choice(["", "a", "c.example.org"])),
}


def random_keys(random: Random, kind: str, rows: int) -> pa.Array:
    """A column, in half of the cases with NULLs, in a third a slice of a longer one."""
    type_, make = KINDS[kind]
    absent = random.choice([0, 0, 0.3])
    before = random.choice([0, 0, 3])
    values = [None if random.random() < absent else make(random) for _ in range(rows + before)]
    return pa.array(values, type_)[before:]


def normal(value: Any) -> Any:
    """A value by which equal groups have equal keys."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def merge_twin(rule: MergeFunction, values: list[Any]) -> Any:
    """The definition of each rule over all values of a group; of FIRST and LAST they are pairs."""
    numbers = [value for value in values if value == value]
    match rule:
        case MergeFunction.SUM if isinstance(values[0], int):
            return (sum(values) + 2**63) % 2**64 - 2**63
        case MergeFunction.SUM:
            return math.fsum(values)
        case MergeFunction.MIN:
            return min(numbers, default="NaN")
        case MergeFunction.MAX:
            return max(numbers, default="NaN")
        case MergeFunction.FIRST:
            return min(values)
        case MergeFunction.LAST:
            return max(values)
    merged_bits = values[0]
    for value in values[1:]:
        merged_bits = {
            MergeFunction.AND: merged_bits & value,
            MergeFunction.OR: merged_bits | value,
            MergeFunction.XOR: merged_bits ^ value,
        }[rule]
    return merged_bits


WHAT = [
    *(
        MergeRule((f"{rule}",), rule)
        for rule in (
            MergeFunction.SUM,
            MergeFunction.MIN,
            MergeFunction.MAX,
            MergeFunction.AND,
            MergeFunction.OR,
            MergeFunction.XOR,
        )
    ),
    *(MergeRule((f"{rule} float",), rule) for rule in (MergeFunction.SUM, MergeFunction.MIN, MergeFunction.MAX)),
    *(MergeRule((f"{rule} ts", f"{rule} of"), rule) for rule in (MergeFunction.FIRST, MergeFunction.LAST)),
    *(MergeRule((f"{rule} float ts", f"{rule} float of"), rule) for rule in (MergeFunction.FIRST, MergeFunction.LAST)),
]


def random_values(random: Random, name: str, rows: int) -> pa.Array:
    if name.endswith(("float", "float of")):
        choices = (
            [0.5, -2.0, 8.0]
            if name.startswith(MergeFunction.SUM) or name.endswith("of")
            else [0.5, -2.0, NAN, -math.inf]
        )
        return pa.array([random.choice(choices) for _ in range(rows)], pa.float64(), from_pandas=False)
    return pa.array([random.choice([-(2**63), -5, 0, 3, 2**63 - 1]) for _ in range(rows)], pa.int64())


def random_batch(random: Random, kinds: list[str], merge_rules: list[MergeRule], rows: int) -> pa.RecordBatch:
    columns = {f"k{place}": random_keys(random, kind, rows) for place, kind in enumerate(kinds)}
    columns |= {name: random_values(random, name, rows) for each in merge_rules for name in each.columns}
    return pa.record_batch(columns)


def by_dictionary(batches: list[pa.RecordBatch], groups: list[str], merge_rules: list[MergeRule]) -> dict[tuple, tuple]:
    seen: dict[tuple, list[dict[str, Any]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            seen.setdefault(tuple(normal(row[name]) for name in groups), []).append(row)
    found = {}
    for key, rows in seen.items():
        values: list[Any] = []
        for each in merge_rules:
            pairs = [tuple(row[name] for name in each.columns) for row in rows]
            one = merge_twin(each.function, pairs if len(each.columns) == 2 else [pair[0] for pair in pairs])
            values += one if isinstance(one, tuple) else [one]
        found[key] = tuple(values)
    return found


def as_dictionary(batch: pa.RecordBatch, groups: int) -> dict[tuple, tuple]:
    rows = [tuple(normal(value) for value in row.values()) for row in batch.to_pylist()]
    found = {row[:groups]: row[groups:] for row in rows}
    assert len(found) == len(rows), "a group stands in two rows"
    return found


def run(random: Random) -> None:
    kinds = random.sample(list(KINDS), random.randint(0, 4))
    merge_rules = random.sample(WHAT, random.randint(0, 4))
    if not merge_rules and not kinds:
        merge_rules = WHAT[:1]
    batches = [
        random_batch(random, kinds, merge_rules, random.choice([0, 1, 5, 40])) for _ in range(random.randint(1, 4))
    ]
    groups = [f"k{place}" for place in range(len(kinds))]
    found = merge_batches(batches, groups, merge_rules)
    assert found.schema.names == groups + [name for each in merge_rules for name in each.columns]
    assert found.schema.types == [batches[0].schema.field(name).type for name in found.schema.names]
    assert as_dictionary(found, len(groups)) == by_dictionary(batches, groups, merge_rules), kinds
    found.validate(full=True)


def test_any_batches_give_what_a_dictionary_of_lists_gives(rounds: Rounds) -> None:
    for seed in rounds(600):
        try:
            run(Random(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def test_the_kernels_do_what_their_plain_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    with plain_kernels(monkeypatch):
        for seed in range(1000, 1060):
            run(Random(seed))


def test_many_groups_are_merged_as_arrow_merges_them() -> None:
    random = np.random.default_rng(3)
    rows = 300_000
    addresses = random.integers(0, 2**16, (rows, 2)).astype("<u4")
    offsets = pa.py_buffer(np.arange(0, 4 * rows + 4, 4, dtype=np.int32))
    columns = [
        pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(np.ascontiguousarray(side))])
        for side in addresses.T % 400
    ]
    values = random.integers(-(2**40), 2**40, (3, rows))
    table = pa.table([*columns, *map(pa.array, values)], ["a", "b", "sum", "min", "max"])
    merge_rules = [MergeRule((rule,), MergeFunction(rule)) for rule in ("sum", "min", "max")]
    found = pa.Table.from_batches([merge_batches(table.to_batches(max_chunksize=70_000), ["a", "b"], merge_rules)])
    expected = table.group_by(["a", "b"]).aggregate([(rule, rule) for rule in ("sum", "min", "max")])
    order = [("a", "ascending"), ("b", "ascending")]
    assert found.num_rows > 100_000
    assert found.sort_by(order).equals(expected.rename_columns(found.schema.names).sort_by(order))


def test_many_long_strings_are_merged_as_arrow_merges_them() -> None:
    random = np.random.default_rng(4)
    names = [f"host-{number}.{'sub.' * (number % 5)}example.org" for number in range(20_000)]
    texts = pa.array([None, "", *names]).take(pa.array(random.integers(0, 20_002, 60_000)))
    table = pa.table([texts, pa.array(np.arange(60_000))], ["name", "sum"])
    found = pa.Table.from_batches(
        [merge_batches(table.to_batches(7000), ["name"], [MergeRule(("sum",), MergeFunction.SUM)])]
    )
    expected = table.group_by("name").aggregate([("sum", "sum")]).rename_columns(found.schema.names)
    assert found.sort_by("name").equals(expected.sort_by("name"))


def test_groups_leave_in_the_order_in_which_they_came() -> None:
    batch = pa.record_batch({"k": pa.array([5, 3, 5, None, 3]), "n": pa.array([1] * 5)})
    found = merge_batches([batch, batch], ["k"], [MergeRule(("n",), MergeFunction.SUM)])
    assert found.to_pydict() == {"k": [5, 3, None], "n": [4, 4, 2]}


def test_what_is_taken_out_leaves_no_trace(rounds: Rounds) -> None:
    merge_rules = [MergeRule(("n",), MergeFunction.SUM), MergeRule(("x",), MergeFunction.XOR)]
    for seed in rounds(300):
        random = Random(seed)
        kinds = random.sample(list(KINDS), random.randint(1, 2))
        groups = [f"k{place}" for place in range(len(kinds))]

        def batch(random: Random = random, kinds: list[str] = kinds) -> pa.RecordBatch:
            columns = {f"k{place}": random_keys(random, kind, 20) for place, kind in enumerate(kinds)}
            values = {name: pa.array([random.choice([-(2**63), 0, 7]) for _ in range(20)]) for name in ("n", "x")}
            return pa.record_batch(columns | values)

        inside: list[tuple[pa.RecordBatch, np.ndarray]] = []
        table = GroupTable(batch().schema, groups, merge_rules, counts_rows=True)
        for _ in range(12):
            if inside and random.random() < 0.5:
                table.subtract(*inside.pop(random.randrange(len(inside))))
            else:
                inside.append((new := batch(), table.merge(new)))
            if random.random() < 0.2:
                became = table.purge()
                inside = [(each, became[numbers]) for each, numbers in inside]
                assert table.count == table.to_arrow().num_rows
            expected = by_dictionary([each for each, _ in inside], groups, merge_rules)
            assert as_dictionary(table.to_arrow(), len(groups)) == expected, seed


def test_ids_are_kept_when_a_column_needs_a_greater_form() -> None:
    keys = Keys([pa.binary(), pa.int64()])

    def columns(addresses: list[bytes | None], numbers: list[int | None]) -> list[pa.Array]:
        return [pa.array(addresses, pa.binary()), pa.array(numbers, pa.int64())]

    four, six, long = b"\0\0\0\1", b"\0" * 15 + b"\1", b"\0" * 40
    assert keys.find_or_insert(columns([four, None], [1, 1]), 2).tolist() == [0, 1]
    assert keys.forms == [Form.SHORT, Form.NUMBER]
    assert keys.find_or_insert(columns([six, four], [1, None]), 2).tolist() == [2, 3]
    assert keys.forms == [Form.WIDE, Form.NULLABLE]
    assert keys.find_or_insert(columns([long, long, None], [1, 0, 1]), 3).tolist() == [4, 5, 1]
    assert keys.forms == [Form.LONG, Form.NULLABLE]
    assert keys.find_or_insert(columns([four, six, four], [1, 1, None]), 3).tolist() == [0, 2, 3]


def test_looking_for_groups_adds_none() -> None:
    keys = Keys([pa.string()])
    assert keys.find([pa.array(["a"])], 1).tolist() == [NO_GROUP]
    keys.find_or_insert([pa.array(["a", None, "a long name", "another name"])], 4)
    names = ["another name", "a", "b", None, "not seen before", "not seen before"]
    assert keys.find([pa.array(names)], 6).tolist() == [3, 0, NO_GROUP, 1, NO_GROUP, NO_GROUP]
    assert keys.count == 4
    assert keys.columns(np.array([3, 1]))[0].to_pylist() == ["another name", None]


def test_a_column_that_is_no_group_is_refused() -> None:
    with pytest.raises(TypeError, match=r"type list<.*>; expected integers, bool, float64, binary or string"):
        Keys([pa.list_(pa.int64())]).find_or_insert([pa.array([[1]])], 1)


def test_an_open_group_with_one_count_takes_64_bytes_and_its_key_at_most() -> None:
    for groups in (1000, 20_000, 100_000, 300_000):
        batch = pa.record_batch({"k": pa.array(range(groups)), "n": pa.array([1] * groups)})
        table = GroupTable(batch.schema, ["k"], [MergeRule(("n",), MergeFunction.SUM)])
        table.merge(batch)
        assert table.bytes / groups <= 64 + 8
