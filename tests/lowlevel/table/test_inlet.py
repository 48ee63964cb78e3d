"""Rows whose columns have the addresses of the batch before, against copies of the same rows at other addresses.

Both kinds of batches alternate, with only IPv4, only IPv6, and both. The tests detect a table that continues to read a
column at the address of another batch, or reads its own words instead. The values of rows are compared with an oracle
in `tests.lowlevel.node.test_node`.
"""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from lowlevel.expressions.columns import AnyVector, BufferColumns, take_rows
from lowlevel.punctuation import END
from lowlevel.subaggregates import Kind, SubAggregate
from lowlevel.table.flushing import Flushing
from lowlevel.table.inputs import reads_only_columns
from lowlevel.table.query_tables import QueryTables
from tests.references.node_oracle import merged, minute, node_of, write_capture
from tests.references.random_plans import COMPUTED, KEY_SHAPES, PACKET, keys_of, random_plan

CAPACITY = 32


def elsewhere(columns: BufferColumns, rows: int) -> dict[str, AnyVector]:
    """The columns of a batch, copied."""
    everyone = np.arange(rows)
    return {name: take_rows(columns[name], everyone) for name in (*PACKET, "link")}


@pytest.mark.parametrize("policy", ["at_once", "paced"])
@pytest.mark.parametrize("keys", KEY_SHAPES, ids=lambda keys: "+".join(keys) or "none")
def test_it_makes_no_difference_where_columns_lie(keys: tuple[str, ...], policy: str, tmp_path: Path) -> None:
    for seed in range(4):
        random = Random(f"{keys}{policy}{seed}")
        path = tmp_path / f"{seed}.pcap"
        write_capture(path, seed, 200, versions=random.choice([(228,), (229,), (228, 229)]))
        plan = random_plan(random, keys)
        node, index = node_of(path, [replace(plan, where=None), minute(tuple(PACKET))], 64, CAPACITY)
        (stream,) = node.streams
        tables = [QueryTables("main1", plan, 16, CAPACITY, Flushing(policy)) for _ in range(2)]
        left: list[list[pa.RecordBatch]] = [[], []]
        for block in index.blocks:
            for rows in stream.reader.read(block):
                assert isinstance(rows.columns, BufferColumns)
                copied = replace(rows, columns=elsewhere(rows.columns, rows.count))  # type: ignore[type-var]
                left[0] += tables[0].add(rows)
                left[1] += tables[1].add(random.choice([rows, copied]))
        for query, partials in zip(tables, left, strict=True):
            partials += query.advance_watermark(END)
        assert merged(plan, left[0]) == merged(plan, left[1])
        assert tables[0].accepted == tables[1].accepted


def test_only_columns_without_null_are_taken_in_as_they_are() -> None:
    def plain(*subs: SubAggregate, keys: tuple[str, ...] = ("srcIP", "srcPort")) -> bool:
        return reads_only_columns(replace(minute(()), keys=keys_of(*keys), subaggregates=subs))

    count = SubAggregate("packets", Kind.COUNT)
    assert plain(count, SubAggregate("bytes", Kind.SUM, PACKET["len"]))
    assert not plain(SubAggregate("ports", Kind.SUM, PACKET["srcPort"]))
    assert not plain(SubAggregate("some", Kind.COUNT, PACKET["len"]))
    assert not plain(SubAggregate("first", Kind.FIRST, PACKET["len"]))
    assert not plain(SubAggregate("twice", Kind.SUM, COMPUTED["wide"]))
    assert not plain(count, keys=("srcIP", "wide"))
    assert not plain(count, keys=("interface",))


def test_a_table_reads_columns_where_they_lie(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    write_capture(path, 1, 50, versions=(228,))
    plan = replace(minute(("srcIP",)), subaggregates=(SubAggregate("bytes", Kind.SUM, PACKET["len"]),))
    node, index = node_of(path, [plan], 64, CAPACITY)
    for block in index.blocks:
        for _ in node.process(block):
            pass
    (query,) = node.reducers
    assert isinstance(query, QueryTables)
    (_, table) = query.tables[4,]
    assert not table.words.any()
    assert not table.args.any()
