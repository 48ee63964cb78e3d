"""Rows that a low-level node must give, merged from the oracle of the low level."""

from collections import defaultdict
from collections.abc import Iterable
from functools import partial, reduce
from operator import and_, or_, xor
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from capture.files.blocks import Index
from capture.files.scan import scan
from capture.open import open_capture
from lowlevel.node.node import Node
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import TIME_OF, Kind, SubAggregate
from lowlevel.table.entries import IDENTITIES, opcode
from tests.references import lowlevel_oracle
from tests.references.packet_rows import decode_file
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.random_frames import random_frame
from tests.references.random_plans import PACKET, keys_of

RAW = 101


START = 1_700_000_000 * NS


def added(values: Iterable[Any]) -> Any:
    """Sums of integers wrap beyond 64 bits."""
    total = sum(values)
    return lowlevel_oracle.wrapped(total) if isinstance(total, int) else total


MERGE = {
    Kind.COUNT: added,
    Kind.SUM: added,
    Kind.UPPER_SUM: added,
    Kind.LOWER_SUM: added,
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


NOTHING = (Kind.MIN, Kind.MAX, Kind.EARLIEST, Kind.LATEST, Kind.FIRST, Kind.LAST)
"""Kinds whose result over no values is NULL. Other kinds return their initial value."""


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
    """Return partials by (pane, keys…), merged as at the high level. An aggregate without values is None."""
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
                numbers = [value for value in part if value == value] or [part[0]]  # NaN is no number
                values.append(MERGE[sub.kind](numbers if sub.kind in NOTHING else part))
            times = part
        result[key] = [
            None if sub.kind in NOTHING and is_same(value, IDENTITIES[opcode(sub)]) else value
            for sub, value in zip(plan.subaggregates, values, strict=True)
        ]
    return result


def is_same(value: Any, other: Any) -> bool:
    """Return whether two values are equal, or both are NaN."""
    return bool(value == other or (value != value and other != other))


def check_promises(plan: LowLevelPlan, items: list[Item], truth: dict[tuple, list[Any]]) -> None:
    """Punctuation grows, is never contradicted, and says that everything below it has left."""
    promised = -(2**63)
    batches: list[pa.RecordBatch] = []
    for item in items:
        if isinstance(item, Punctuation):
            assert item.link == "main1"
            assert item.watermark > promised
            assert item.watermark == END or (item.watermark - plan.origin) % plan.pane == 0
            promised = item.watermark
            below = {key: values for key, values in truth.items() if plan.origin + (key[0] + 1) * plan.pane <= promised}
            so_far = merged(plan, batches)
            assert {key: so_far.get(key) for key in below} == below
        else:
            panes = item.column("pane").to_pylist()
            assert all(plan.origin + pane * plan.pane >= promised for pane in panes)
            batches.append(item)
    assert promised == END


COUNT = SubAggregate("packets", Kind.COUNT)


def minute(keys: tuple[str, ...] = ("srcIP", "destIP"), where: Any = None) -> LowLevelPlan:
    return LowLevelPlan(where, keys_of(*keys), (COUNT, SubAggregate("bytes", Kind.SUM, PACKET["len"])), 60 * NS)
