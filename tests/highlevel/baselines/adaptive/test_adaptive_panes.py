"""AdaptWID over panes against the definition of windows.

Random streams detect panes that are cut at wrong times (before the origin, in gaps between windows). They detect panes
that arrive after their windows have closed, and rows that are lost at a switch in a pane.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pyarrow as pa

from highlevel.baselines.adaptive.panes import PanedAdaptiveAggregate
from highlevel.baselines.adaptive.thresholds import ALWAYS_EAGER
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate
from tests.conftest import Rounds
from tests.references.adaptive_twin import held, policy_of
from tests.references.operator_contract import Contract, all_rows, batched, check, check_restart, feed, interleaved
from tests.references.windows_oracle import Arrival, Spec, random_spec, random_stream

SUBS = [
    SubAggregate("s0", Kind.COUNT),
    SubAggregate("s1", Kind.SUM),
    SubAggregate("s2", Kind.MIN),
    SubAggregate("s3", Kind.MAX),
]
SCHEMA = pa.schema([(name, pa.int64()) for name in ("ts", "k0", "s0", "s1", "s2", "s3")])


def rows(arrivals: list[Arrival]) -> pa.RecordBatch:
    values = [(each.ts, each.group, 1, *[each.number] * 3) for each in arrivals]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA)


def by_definition(spec: Spec, arrivals: list[Arrival]) -> set[tuple]:
    seen: dict[tuple, list[int]] = defaultdict(list)
    for each in arrivals:
        for wid in spec.wids(each.ts):
            seen[wid, each.group].append(each.number)
    return {(*key, len(each), sum(each), min(each), max(each)) for key, each in seen.items()}


def test_any_stream_and_any_switching_in_panes_give_the_windows_of_the_definition(rounds: Rounds) -> None:
    outside = 0
    seeds = rounds(240)
    for seed in seeds:
        random = Random(seed)
        spec = random_spec(random)
        window = SlidingWindow(spec.range, spec.slide, spec.origin)
        sources = random.choice([1, 1, 2])
        policy = policy_of(seed, random)
        inputs = [random_stream(random) for _ in range(sources)]

        def watermark(lows: list[int], window: SlidingWindow = window) -> int:
            low = min(lows)
            if low in (BEGINNING, END):
                return low
            return window.first_open_window(low) or BEGINNING

        operator = PanedAdaptiveAggregate(["k0"], SUBS, window, sources, policy)
        contract = Contract(
            make=lambda operator=operator: operator,
            ports=sources,
            progress=lambda rows: min(rows["wid"].to_pylist()),
            watermark=watermark,
            held=lambda tables: held({name.partition("/")[2]: table for name, table in tables.items()}),
        )
        events = batched(random, interleaved(random, inputs), rows)
        trace = check(contract, events)
        arrivals = [each for stream in inputs for each in stream if not isinstance(each, int)]
        found = all_rows(trace)
        assert set(found) == by_definition(spec, arrivals), seed
        assert max(found.values(), default=1) == 1
        assert operator.rows_without_window == sum(not spec.wids(each.ts) for each in arrivals)
        assert (operator.panes.late, operator.windows.late, operator.bytes) == (0, 0, 0), seed
        outside += operator.rows_without_window
        if seed % 3 == 0:
            fresh = Contract(
                lambda window=window, sources=sources, policy=policy: PanedAdaptiveAggregate(
                    ["k0"], SUBS, window, sources, policy
                ),
                *(sources, contract.progress, watermark, contract.held),
            )
            check_restart(fresh, events, trace, random.randint(0, len(events)), ipc=seed % 2 == 0)
    assert outside > len(seeds) // 2


def test_three_panes_of_three_make_a_window_of_nine_that_slides_by_six() -> None:
    """A pane's tuples are added once each, and what is left of them, one partial of a group, once per window."""
    operator = PanedAdaptiveAggregate(["k0"], SUBS[:1], SlidingWindow(9, 6), 1, ALWAYS_EAGER)
    assert operator.pane == 3
    feed(operator, (0, rows([Arrival(ts, 0, 1) for ts in range(30)])))
    items = feed(operator, (0, Punctuation("M", END)))
    counts = {row["wid"]: row["s0"] for item in items if not isinstance(item, Punctuation) for row in item.to_pylist()}
    assert counts == {0: 6, 1: 9, 2: 9, 3: 9, 4: 9, 5: 3}
    assert operator.panes.updates == 30
    assert operator.windows.updates == sum((2, 3, 3, 3, 3, 1))
