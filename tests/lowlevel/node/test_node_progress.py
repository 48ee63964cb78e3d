"""A node that skips its checks in blocks without the end of a pane, against a node that checks every block.

Rows are later than allowed, panes have all lengths, and tables are fed from others. The tests detect a partial that is
not flushed, a late row that waits for the end of another pane, and a watermark that is lost or sent twice.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.files.scan import scan
from capture.open import open_mapped
from lowlevel.node.node import Node, TableGroup
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, Item
from lowlevel.table.query_tables import QueryTables
from lowlevel.watermarks.rule import parse_rule
from tests.references.node_oracle import write_capture
from tests.references.pcap_bytes import NS
from tests.references.random_plans import keys_of, random_plan


def plans_of(random: Random) -> list[LowLevelPlan]:
    """Some plans, and coarser ones that are fed from the first."""
    first = replace(random_plan(random, ("srcIP", "destIP", "srcPort")), pane=random.choice([NS, 10 * NS]))
    coarser = [replace(first, keys=keys_of("destIP"), pane=factor * first.pane) for factor in (1, 6)]
    others = [random_plan(random, ("srcIP", "protocol")) for _ in range(random.randrange(3))]
    return random.sample([first, *coarser, *others], 3 + len(others))


def groups_of(node: Node) -> list[TableGroup]:
    return [group for stream in node.streams for group in stream.groups]


def spoken(item: Item) -> object:
    """Return a punctuation, or the rows of a batch as text, in which NaN equals NaN."""
    return str(item.to_pylist()) if isinstance(item, pa.RecordBatch) else item


@pytest.mark.drawn
@pytest.mark.parametrize("promise", ["exact", "ordered", "late 5s", "late 3 rows"])
def test_blocks_in_which_no_pane_ends_change_nothing(
    promise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[int] = Counter()
    advance = QueryTables.advance_watermark

    def counting(query: QueryTables, low: int, is_idle: bool = False) -> Iterator[pa.RecordBatch]:
        asked[id(query)] += 1
        return advance(query, low, is_idle)

    monkeypatch.setattr(QueryTables, "advance_watermark", counting)
    times = Counter[str]()
    for seed in range(8):
        random = Random(f"{promise} {seed}")
        path = tmp_path / "some.pcap"
        write_capture(path, random.randrange(2**30))
        plans = plans_of(random)
        slots, block = random.choice([8, 64]), random.choice([1, 7, 30])
        file = open_mapped(path, "a test")
        hasty, patient = (Node("main1", file, plans, slots, block, parse_rule(promise)) for _ in "12")
        for each in scan(file, block).blocks:
            found = [(plan, spoken(item)) for plan, item in hasty.process(each)]
            for group in groups_of(patient):
                group.next_closing = BEGINNING + 1
            assert [(plan, spoken(item)) for plan, item in patient.process(each)] == found
        assert all(group.generator.watermark == END for group in groups_of(hasty))
        assert not any(query.tally.resident for query in hasty.reducers)
        for name, node in (("hasty", hasty), ("patient", patient)):
            times[name] += sum(asked[id(query)] for query in set(node.reducers))
        asked.clear()
    assert 0 < times["hasty"] < times["patient"]
