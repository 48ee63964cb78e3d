"""The low-level node of a link: captures in, partials and punctuation out, against a dictionary over the twin's rows.

* Random plans, captures and table sizes detect a partial that is lost or stored in another pane or group, and NULLs
  that count. They detect a watermark that is broken or sent too early.
* Items are kept until the end of the run, as a reader with a queue would: an item that shares memory with the table
  shows.
* The balance of the counters catches a packet that is neither accepted, filtered nor skipped.
"""

from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.files.scan import scan
from capture.metrics import BYTES_READ, FILES_DAMAGED, PACKETS_DECODED, RECORDS_READ, RECORDS_SKIPPED
from capture.open import open_capture
from capture.packets.columns import FRAME_COLUMNS
from lowlevel.expressions.columns import shape_of
from lowlevel.expressions.tree import Binary, Column, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.kinds import KINDS, row_kind_of
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED, TABLE_BYTES, TABLE_EVICTIONS, TABLE_FLUSHED
from lowlevel.plan import NEWEST_COLUMN, Key, LowLevelPlan
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.rows.readers import make_reader
from lowlevel.subaggregates import INT_MAX, Kind, SubAggregate
from tests.references import lowlevel_oracle
from tests.references.node_oracle import COUNT, RAW, check_promises, merged, minute, node_of, oracle_rows, write_capture
from tests.references.packet_rows import decode_file
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.random_frames import random_frame
from tests.references.random_plans import COMPUTED, KEY_SHAPES, PACKET, random_plan

FRAME = {
    spec.name: Column(spec.name, Type(spec.type), spec.nullable, spec.bits or 64) for spec in FRAME_COLUMNS.values()
}


MANY_SIZES = pytest.mark.slow("further sizes of the table")


@pytest.mark.drawn
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
            for query in node.reducers:
                panes = [table.residents[:, 0] for _, table in query.tables.values()]
                assert query.oldest_pane <= min((pane.min(initial=INT_MAX) for pane in panes), default=INT_MAX)
        for plan, query, given in zip(plans, node.reducers, items, strict=True):
            truth = lowlevel_oracle.groups(plan, rows)
            batches = [item for item in given if isinstance(item, pa.RecordBatch)]
            assert merged(plan, batches) == truth
            check_promises(plan, given, truth)
            assert len(rows) == query.accepted + query.filtered
            assert query.accepted == sum(values[0] for values in truth.values())
            assert query.tally.partials == sum(batch.num_rows for batch in batches)
        samples = node.samples([("first",), ("second",)])
        assert samples.total(PACKETS_DECODED) == len(rows)
        assert node.records == index.records == len(rows) + samples.total(RECORDS_SKIPPED)


def test_a_provisional_plan_leaves_the_partials_of_other_plans_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    write_capture(path, 3)
    rows, plain = oracle_rows(path), minute(("srcIP",))
    newest = SubAggregate(NEWEST_COLUMN, Kind.MAX, Column("ts", Type.TIME))
    provisional = replace(plain, provisional=True, subaggregates=(*plain.subaggregates, newest))
    node, index = node_of(path, [plain, provisional], 64, 16)
    batches: list[list[pa.RecordBatch]] = [[], []]
    for block in index.blocks:
        for number, item in node.process(block):
            if isinstance(item, pa.RecordBatch):
                batches[number].append(item)
    groups = merged(plain, batches[0])
    assert groups == lowlevel_oracle.groups(plain, rows)
    assert merged(plain, [batch.drop_columns([NEWEST_COLUMN]) for batch in batches[1]]) == groups


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
    samples = node.samples([("a",), ("b",), ("c",), ("d",)])
    rows = {name: samples.total(ROWS_ACCEPTED, query=name) for name in "abcd"}
    assert rows == {"a": len(packets), "b": len(every), "c": len(packets), "d": len(packets)}
    assert samples.total(RECORDS_READ) == len(every)
    assert samples.total(PACKETS_DECODED) == len(packets)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_promises_what_its_kind_does_and_has_the_columns_it_is_asked_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "any.pcap"
    write_capture(path, 8, 50)
    file = open_capture(path)
    columns = row_kind_of(kind).listed_names
    reader = make_reader(kind, "main1", file, columns, 64)
    assert reader.has_record_watermarks == LowLevelPlan(None, (), (), NS, kind=kind).has_record_watermarks
    for block in scan(file, 64).blocks:
        for rows in reader.read(block):
            assert all(shape_of(rows.columns[name]) in ((), (rows.count,)) for name in columns)


def test_a_kind_without_a_reader_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "any.pcap"
    write_capture(path, 7, 3)
    with pytest.raises(ValueError, match="no reader makes rows of the kind cells; the kinds are packets, frames"):
        node_of(path, [LowLevelPlan(None, (), (), NS, kind="cells")], 8, 1)


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
        sizes.append(node.reducers[0].bytes)
    assert set(sizes[10:]) == {sizes[-1]}
    assert sorted(node.reducers[0].tables) == [(4,), (6,)]
    assert sizes[-1] == sum(table.bytes for _, table in node.reducers[0].tables.values())


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
    assert (node.reducers[1].accepted, node.reducers[1].bytes) == (0, 0)


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
    samples = node.samples([("all",), ("some",)], index.damage)
    assert samples[RECORDS_READ.name, ("main1",)] == index.records
    assert samples[BYTES_READ.name, ("main1",)] == index.blocks[-1].end - 24
    assert samples.total(RECORDS_READ) == samples.total(PACKETS_DECODED) + samples.total(RECORDS_SKIPPED)
    assert samples.total(RECORDS_SKIPPED, cause="ip_header_cut") > 0 < samples.total(RECORDS_SKIPPED, cause="non_ip")
    for name in ("all", "some"):
        rows = samples.total(ROWS_ACCEPTED, query=name) + samples.total(ROWS_FILTERED, query=name)
        assert rows == samples.total(PACKETS_DECODED)
    assert samples.total(ROWS_FILTERED, query="all") == 0 < samples.total(ROWS_FILTERED, query="some")
    assert samples.total(TABLE_EVICTIONS) + samples.total(TABLE_FLUSHED) == sum(partials)
    assert samples[TABLE_BYTES.name, ("all", "main1")] == node.reducers[0].bytes
    assert samples[FILES_DAMAGED.name, ("main1", "cut_in_record")] == 1
