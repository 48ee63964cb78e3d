"""The low-level node of a link: captures in, partials and punctuation out, against a dictionary over the twin's rows.

* Random plans, captures and table sizes catch a partial that is lost or booked in another pane or group, NULLs that
  count, and a promise that is broken or comes too early.
* Items are kept until the end of the run, as a reader with a queue would: an item that shares memory with the table
  shows.
* The balance of the counters catches a packet that is neither accepted, filtered nor skipped.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import partial, reduce
from operator import and_, or_, xor
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from capture.files.blocks import Index
from capture.files.scan import scan
from capture.metrics import BYTES_READ, FILES_DAMAGED, PACKETS_DECODED, RECORDS_READ, RECORDS_SKIPPED
from capture.open import open_capture
from capture.packets.columns import FRAME_COLUMNS
from lowlevel.expressions.columns import shape_of
from lowlevel.expressions.tree import Binary, Column, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.kinds import KINDS, columns_of_kind
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED, TABLE_BYTES, TABLE_EVICTIONS, TABLE_FLUSHED
from lowlevel.node.node import Node
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.rows.readers import make_reader
from lowlevel.subaggregates import INT_MAX, TIME_OF, Kind, SubAggregate
from lowlevel.table.entries import IDENTITIES, opcode
from tests import lowlevel_oracle
from tests.packet_rows import decode_file
from tests.pcap_bytes import NS, pcap_bytes
from tests.random_frames import random_frame
from tests.random_plans import COMPUTED, KEY_SHAPES, PACKET, keys_of, random_plan

RAW = 101
FRAME = {
    spec.name: Column(spec.name, Type(spec.type), spec.nullable, spec.bits or 64) for spec in FRAME_COLUMNS.values()
}
START = 1_700_000_000 * NS


def added(values: Iterable[Any]) -> Any:
    """Sums of integers wrap beyond 64 bits."""
    total = sum(values)
    return lowlevel_oracle.wrapped(total) if isinstance(total, int) else total


MERGE = {
    Kind.COUNT: added,
    Kind.SUM: added,
    Kind.MIN: min,
    Kind.MAX: max,
    Kind.EARLIEST: min,
    Kind.LATEST: max,
    Kind.BIT_AND: partial(reduce, and_),
    Kind.BIT_OR: partial(reduce, or_),
    Kind.BIT_XOR: partial(reduce, xor),
    Kind.FIRST: min,
    Kind.LAST: max,
}
MANY_SIZES = pytest.mark.slow("further sizes of the table")

NOTHING = (Kind.MIN, Kind.MAX, Kind.EARLIEST, Kind.LATEST, Kind.FIRST, Kind.LAST)
"""Kinds that over no value are none; others are what they begin as."""


def write_capture(path: Path, seed: int, count: int = 300, versions: tuple[int, ...] = (228, 228, 229)) -> None:
    """A disordered link of few groups, some years of jumps, and a few records that are no packets."""
    random = Random(seed)
    frames = [random_frame(random, random.choice(versions))[0] for _ in range(40)] + [b"", b"\x45" + bytes(9)]
    records = []
    now = START
    for _ in range(count):
        now += random.choice([0, 1, 1000, NS // 3, 2 * NS])
        late = random.choice([0, 0, 0, random.randrange(90 * NS)])
        records.append((random.choice([now - late] * 40 + [0, 2**32 * NS - 1]), random.choice(frames)))
    path.write_bytes(pcap_bytes(records, RAW))


def oracle_rows(path: Path) -> list[dict[str, Any]]:
    return [
        {"link": "main1", "interface": "0", **row} for row in decode_file(path, names=PACKET.keys() - {"interface"})[0]
    ]


def node_of(path: Path, plans: list[LowLevelPlan], slots: int, block: int) -> tuple[Node, Index]:
    file = open_capture(path)
    return Node("main1", file, plans, slots, block), scan(file, block)


def merged(plan: LowLevelPlan, batches: list[pa.RecordBatch]) -> dict[tuple, list[Any]]:
    """Partials by (pane, keys…), merged as the high level does; an aggregate that never met a value is None."""
    found: dict[tuple, list[tuple]] = defaultdict(list)
    width = 2 + len(plan.keys)
    for batch in batches:
        assert batch.schema == plan.schema
        batch.validate(full=True)
        for link, *row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            assert link == "main1"
            found[tuple(row[: width - 1])].append(tuple(row[width - 1 :]))
    result = {}
    for key, parts in found.items():
        values: list[Any] = []
        times: tuple[int, ...] = ()
        for sub, part in zip(plan.subaggregates, zip(*parts, strict=True), strict=True):
            if sub.kind in TIME_OF:
                values.append(MERGE[sub.kind](zip(times, part, strict=True))[1])
            else:
                values.append(MERGE[sub.kind](part))
            times = part
        result[key] = [
            None if sub.kind in NOTHING and value == IDENTITIES[opcode(sub)] else value
            for sub, value in zip(plan.subaggregates, values, strict=True)
        ]
    return result


def check_promises(plan: LowLevelPlan, items: list[Item], truth: dict[tuple, list[Any]]) -> None:
    """Punctuation grows, is never contradicted, and says that everything below it has left."""
    promised = -(2**63)
    batches: list[pa.RecordBatch] = []
    for item in items:
        if isinstance(item, Punctuation):
            assert item.link == "main1"
            assert item.low > promised
            assert item.low == END or (item.low - plan.origin) % plan.pane == 0
            promised = item.low
            below = {key: values for key, values in truth.items() if plan.origin + (key[0] + 1) * plan.pane <= promised}
            so_far = merged(plan, batches)
            assert {key: so_far.get(key) for key in below} == below
        else:
            panes = item.column("pane").to_pylist()
            assert all(plan.origin + pane * plan.pane >= promised for pane in panes)
            batches.append(item)
    assert promised == END


@pytest.mark.parametrize("keys", KEY_SHAPES, ids=lambda keys: "+".join(keys) or "none")
@pytest.mark.parametrize("slots", [pytest.param(8, marks=MANY_SIZES), 16, pytest.param(64, marks=MANY_SIZES)])
def test_partials_merge_to_the_exact_groups_and_promises_are_kept(
    keys: tuple[str, ...], slots: int, tmp_path: Path
) -> None:
    for seed in range(3):
        random = Random(f"{keys}{slots}{seed}")
        path = tmp_path / f"{seed}.pcap"
        write_capture(path, random.randrange(2**30))
        rows = oracle_rows(path)
        plans = [random_plan(random, keys) for _ in range(2)]
        node, index = node_of(path, plans, slots, random.choice([1, 7, 16, 64]))
        items: list[list[Item]] = [[], []]
        for block in index.blocks:
            for number, item in node.process(block):
                items[number].append(item)
            for query in node.queries:
                panes = [table.residents[:, 0] for _, table in query.tables.values()]
                assert query.oldest <= min((pane.min(initial=INT_MAX) for pane in panes), default=INT_MAX)
        for plan, query, given in zip(plans, node.queries, items, strict=True):
            truth = lowlevel_oracle.groups(plan, rows)
            batches = [item for item in given if isinstance(item, pa.RecordBatch)]
            assert merged(plan, batches) == truth
            check_promises(plan, given, truth)
            assert len(rows) == query.accepted + query.filtered
            assert query.accepted == sum(values[0] for values in truth.values())
            assert query.tally.left == sum(batch.num_rows for batch in batches)
        samples = node.samples(["first", "second"])
        assert samples.total(PACKETS_DECODED) == len(rows)
        assert node.records == index.records == len(rows) + samples.total(RECORDS_SKIPPED)


def test_queries_over_several_kinds_of_rows_are_fed_by_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "kinds.pcap"
    write_capture(path, 6)
    keys = (Key("version", FRAME["ip_version"]), Key("source", FRAME["srcIP"]), Key("port", FRAME["interface"]))
    subs = (COUNT, SubAggregate("ips", Kind.COUNT, FRAME["srcIP"]), SubAggregate("bytes", Kind.SUM, PACKET["len"]))
    frames = LowLevelPlan(None, keys, subs, 60 * NS, kind="frames")
    plans = [minute(("srcIP", "destIP")), frames, minute(("protocol",)), LowLevelPlan(None, (), subs[:1], NS)]
    node, index = node_of(path, plans, 64, 16)
    assert [stream.kind for stream in node.streams] == ["packets", "frames"]
    items: list[list[Item]] = [[] for _ in plans]
    for block in index.blocks:
        for number, item in node.process(block):
            items[number].append(item)
    columns = {"ts", "len", "srcIP", "destIP", "protocol"}
    packets, skipped, _ = decode_file(path, names=columns)
    every = decode_file(path, names={"ts", "len", "srcIP", "ip_version", "interface"}, every_frame=True)[0]
    every = [row | {"interface": str(row["interface"])} for row in every]
    assert len(every) == index.records == len(packets) + sum(skipped.values()) > len(packets)
    for plan, given in zip(plans, items, strict=True):
        truth = lowlevel_oracle.groups(plan, every if plan is frames else packets)
        assert merged(plan, [item for item in given if isinstance(item, pa.RecordBatch)]) == truth
        check_promises(plan, given, truth)
    samples = node.samples(["a", "b", "c", "d"])
    rows = {name: samples.total(ROWS_ACCEPTED, query=name) for name in "abcd"}
    assert rows == {"a": len(packets), "b": len(every), "c": len(packets), "d": len(packets)}
    assert samples.total(RECORDS_READ) == len(every)
    assert samples.total(PACKETS_DECODED) == len(packets)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_promises_what_its_kind_does_and_has_the_columns_it_is_asked_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "any.pcap"
    write_capture(path, 8, 50)
    file = open_capture(path)
    columns = columns_of_kind(kind).shown
    reader = make_reader(kind, "main1", file, columns, 64)
    assert reader.exact_low == LowLevelPlan(None, (), (), NS, kind=kind).exact_low
    for block in scan(file, 64).blocks:
        for rows in reader.read(block):
            assert all(shape_of(rows.columns[name]) in ((), (rows.count,)) for name in columns)


def test_a_kind_without_a_reader_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "any.pcap"
    write_capture(path, 7, 3)
    with pytest.raises(ValueError, match="no reader makes rows of the kind cells; the kinds are packets, frames"):
        node_of(path, [LowLevelPlan(None, (), (), NS, kind="cells")], 8, 1)


COUNT = SubAggregate("packets", Kind.COUNT)


def minute(keys: tuple[str, ...] = ("srcIP", "destIP"), where: Any = None) -> LowLevelPlan:
    return LowLevelPlan(where, keys_of(*keys), (COUNT, SubAggregate("bytes", Kind.SUM, PACKET["len"])), 60 * NS)


def test_an_item_outlives_the_table_it_came_from(tmp_path: Path) -> None:
    """The narrowest entries and the smallest batches are those that could share the table's memory."""
    path = tmp_path / "steady.pcap"
    write_capture(path, 1, versions=(228,))
    for subs in [(), (COUNT,), (COUNT, SubAggregate("least", Kind.MIN, PACKET["len"]))]:
        node, index = node_of(path, [LowLevelPlan(None, (), subs, NS)], 8, 1)
        items = [item for block in index.blocks for _, item in node.process(block)]
        kept = [item for item in items if isinstance(item, pa.RecordBatch)]
        node, _ = node_of(path, [LowLevelPlan(None, (), subs, NS)], 8, 1)
        read_at_once = [
            item.to_pydict()
            for block in index.blocks
            for _, item in node.process(block)
            if isinstance(item, pa.RecordBatch)
        ]
        assert [batch.to_pydict() for batch in kept] == read_at_once


def test_memory_is_made_once_and_stays_the_same_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "long.pcap"
    write_capture(path, 2, 3000)
    node, index = node_of(path, [minute(("srcIP", "srcPort", "ts"))], 64, 16)
    sizes = []
    for block in index.blocks:
        for _ in node.process(block):
            pass
        sizes.append(node.queries[0].bytes)
    assert set(sizes[10:]) == {sizes[-1]}
    assert sorted(node.queries[0].tables) == [(4,), (6,)]
    assert sizes[-1] == sum(table.bytes for _, table in node.queries[0].tables.values())


def test_a_gap_of_years_costs_one_punctuation(tmp_path: Path) -> None:
    path = tmp_path / "gap.pcap"
    frame = random_frame(Random(1), 228)[0]
    times = [5 * NS, 6 * NS, 2**31 * NS]
    path.write_bytes(pcap_bytes([(ts, frame) for ts in times], RAW))
    node, index = node_of(path, [LowLevelPlan(None, (), (COUNT,), 60 * NS)], 8, 1)
    items = [item for block in index.blocks for _, item in node.process(block)]
    panes = [0, 2**31 // 60]
    rows = [item.to_pydict() if isinstance(item, pa.RecordBatch) else item for item in items]
    assert rows == [
        Punctuation("main1", 0),
        {"link": ["main1"], "pane": [panes[0]], "packets": [2]},
        Punctuation("main1", panes[1] * 60 * NS),
        {"link": ["main1"], "pane": [panes[1]], "packets": [1]},
        Punctuation("main1", END),
    ]


def test_a_promise_is_made_for_every_query_even_with_nothing_to_say(tmp_path: Path) -> None:
    path = tmp_path / "silent.pcap"
    write_capture(path, 3)
    nobody = minute(where=Binary(Op.LT, PACKET["ttl"], Literal(0, Type.INT)))
    node, index = node_of(path, [minute(), nobody], 16, 16)
    items: list[list[Item]] = [[], []]
    for block in index.blocks:
        for number, item in node.process(block):
            items[number].append(item)
    marks = [[item for item in given if isinstance(item, Punctuation)] for given in items]
    assert marks[0] == marks[1] == items[1]
    assert marks[1][-1] == Punctuation("main1", END)
    assert (node.queries[1].accepted, node.queries[1].bytes) == (0, 0)


def test_a_flush_empties_the_tables_without_a_promise(tmp_path: Path) -> None:
    path = tmp_path / "range.pcap"
    write_capture(path, 4)
    plan = minute()
    node, index = node_of(path, [plan], 64, 16)
    items: list[Item] = []
    for place, block in enumerate(index.blocks):
        items += [item for _, item in node.process(block)]
        if place % 5 == 0:
            left = [item for _, item in node.flush()]
            assert all(isinstance(item, pa.RecordBatch) for item in left)
            assert list(node.flush()) == []
            items += left
    truth = lowlevel_oracle.groups(plan, oracle_rows(path))
    assert merged(plan, [item for item in items if isinstance(item, pa.RecordBatch)]) == truth
    check_promises(plan, items, truth)


def test_the_counters_balance(tmp_path: Path) -> None:
    path = tmp_path / "counted.pcap"
    write_capture(path, 5)
    path.write_bytes(path.read_bytes()[:-3])
    some = minute(("protocol",), Binary(Op.GT, COMPUTED["wide_nullable"], Literal(0, Type.INT)))
    node, index = node_of(path, [minute(), some], 8, 16)
    items = [item for block in index.blocks for _, item in node.process(block)]
    partials = [item.num_rows for item in items if isinstance(item, pa.RecordBatch)]
    samples = node.samples(["all", "some"], index.damage)
    assert samples[RECORDS_READ.name, ("main1",)] == index.records
    assert samples[BYTES_READ.name, ("main1",)] == index.blocks[-1].end - 24
    assert samples.total(RECORDS_READ) == samples.total(PACKETS_DECODED) + samples.total(RECORDS_SKIPPED)
    assert samples.total(RECORDS_SKIPPED, cause="ip_header_cut") > 0 < samples.total(RECORDS_SKIPPED, cause="non_ip")
    for name in ("all", "some"):
        rows = samples.total(ROWS_ACCEPTED, query=name) + samples.total(ROWS_FILTERED, query=name)
        assert rows == samples.total(PACKETS_DECODED)
    assert samples.total(ROWS_FILTERED, query="all") == 0 < samples.total(ROWS_FILTERED, query="some")
    assert samples.total(TABLE_EVICTIONS) + samples.total(TABLE_FLUSHED) == sum(partials)
    assert samples[TABLE_BYTES.name, ("all", "main1")] == node.queries[0].bytes
    assert samples[FILES_DAMAGED.name, ("main1", "cut_in_record")] == 1
