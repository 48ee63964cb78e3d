"""One query's operators in a row, over any number of links, against the definition of its windows.

The seeded streams are those that exposed the errata of the thesis: ties, disorder, gaps, promises that jump or lag,
a link that stays silent. Only these tests detect ids and times that are mixed up between two operators, punctuation
that overtakes rows, and state of one operator that is restored into another.
"""

from random import Random

import pyarrow as pa
import pytest

from capture.units import SECOND
from highlevel.groups import merge_buffer as pile
from highlevel.metrics import (
    LATE_PARTIALS,
    LATE_ROWS,
    LOW_WATERMARK,
    OUTSIDE_WINDOWS,
    PARTIALS_RECEIVED,
    PUNCTUATION_LAG,
    QUERY_METRICS,
    RESULT_ROWS,
    STATE_BYTES,
    WINDOWS_CLOSED,
    WINDOWS_OPEN,
)
from highlevel.plan.pipeline import Pipeline
from highlevel.plan.plan import Plan
from highlevel.sliding import window_rows
from lowlevel.punctuation import BEGINNING, END, Punctuation
from queries.gsql import compile_query
from tests.conftest import Rounds
from tests.references.operator_contract import (
    Contract,
    all_rows,
    batched,
    check,
    check_restart,
    feed,
    interleaved,
    reordered,
    rows_of,
)
from tests.references.windows_oracle import Arrival, Spec, random_inputs, random_spec, window_aggregates

SELECT = "SELECT destPort, count(*) AS n, sum(len) AS bytes, min(len) AS least, max(len) AS most FROM a UNION b"


def plan(spec: Spec, rest: str = "") -> Plan:
    origin = f"ORIGIN {spec.origin}"
    return compile_query(f"{SELECT} [RANGE {spec.range} ns, SLIDE {spec.slide} ns, {origin}] GROUP BY destPort {rest}")


def partials(query: Plan, arrivals: list[Arrival]) -> pa.RecordBatch:
    """Each tuple as a partial of its own, as a table of one slot would send it."""
    low = query.leaves[0].low
    rows = [("link", (each.ts - low.origin) // low.pane, each.group, 1, *[each.number] * 3) for each in arrivals]
    return pa.RecordBatch.from_pylist(
        [dict(zip(low.schema.names, row, strict=True)) for row in rows], schema=low.schema
    )


def contract(query: Plan, spec: Spec, links: int) -> Contract:
    def watermark(bounds: list[int]) -> int:
        low = min(bounds)
        closed = low if low in (BEGINNING, END) else max(0, (low - spec.origin) // spec.slide)
        return low if low == END else spec.origin + closed * spec.slide + 1 if closed > 0 else BEGINNING

    return Contract(
        make=lambda: Pipeline(query, [[f"link{port}" for port in range(links)]]),
        ports=links,
        progress=lambda rows: min(rows["window_end"].to_pylist()),
        watermark=watermark,
        held=lambda tables: sum(t.num_rows for name, t in tables.items() if name not in ("0.meld", "1.0.closed")),
    )


def test_any_links_in_any_order_give_each_window_once_and_survive_a_restart(
    monkeypatch: pytest.MonkeyPatch, rounds: Rounds
) -> None:
    for seed in rounds(300):
        random = Random(seed)
        monkeypatch.setattr(pile, "MERGE_ROWS", random.choice([0, 3, 16_384]))
        monkeypatch.setattr(pile, "FEW_ROWS", random.choice([0, 4096]))
        monkeypatch.setattr(pile, "SIMILAR_PIECES", random.choice([2, 16]))
        monkeypatch.setattr(window_rows, "CLOSE_ROWS", random.choice([0, 5, 65_536]))
        spec, inputs = random_spec(random), random_inputs(random)
        query = plan(spec)

        def batch(arrivals: list[Arrival], query: Plan = query) -> pa.RecordBatch:
            return partials(query, arrivals)

        kept = contract(query, spec, len(inputs))
        found = all_rows(check(kept, batched(random, interleaved(random, inputs), batch)))
        arrivals = [each for events in inputs for each in events if not isinstance(each, int)]
        assert set(found) == window_aggregates(arrivals, spec), seed
        assert max(found.values(), default=1) == 1
        again = [reordered(random, events) for events in inputs]
        events = batched(random, interleaved(random, again), batch)
        trace = check(kept, events)
        assert all_rows(trace) == found, seed
        if seed % 2:
            check_restart(kept, events, trace, random.randint(0, len(events)), ipc=True)


def test_a_silent_link_holds_results_back_and_its_end_lets_them_go() -> None:
    spec = Spec(10, 10)
    query = plan(spec)
    pipeline = Pipeline(query, [["a", "b"]])
    assert feed(pipeline, (0, partials(query, [Arrival(5, 80, 60)]))) == []
    assert feed(pipeline, (0, Punctuation("a", 1000))) == []
    items = feed(pipeline, (1, Punctuation("b", END)))
    assert rows_of(items) == {(0, 10, 80, 1, 60, 60, 60): 1}
    assert items[-1] == Punctuation("*", 1001)
    assert feed(pipeline, (0, Punctuation("a", END))) == [Punctuation("*", END)]


def test_having_that_drops_everything_swallows_no_progress() -> None:
    query = plan(Spec(10, 10), "HAVING n > 100")
    pipeline = Pipeline(query, [["a"]])
    feed(pipeline, (0, partials(query, [Arrival(5, 80, 60)])))
    assert feed(pipeline, (0, Punctuation("a", 30))) == [Punctuation("*", 31)]


def test_every_high_level_counter_is_given_and_says_what_happened() -> None:
    spec = Spec(2 * SECOND, 5 * SECOND)
    query = plan(spec)
    pipeline = Pipeline(query, [["a", "a", "b"]])
    second = [Arrival(ts * SECOND, 80, 60) for ts in (1, 4, 9, 13)]  # windows are [3, 5), [8, 10), [13, 15)
    feed(pipeline, (0, partials(query, second)))
    samples = pipeline.samples(newest=13 * SECOND)
    assert samples[PARTIALS_RECEIVED.name, ("query",)] == 4
    assert samples[OUTSIDE_WINDOWS.name, ("query",)] == 1
    assert samples[WINDOWS_OPEN.name, ("query",)] == 3
    assert samples[STATE_BYTES.name, ("query",)] > 0
    assert not samples.total(LOW_WATERMARK)  # nobody has promised anything
    for port, low in enumerate((10, 12, 7)):
        feed(pipeline, (port, Punctuation("x", low * SECOND)))
    feed(pipeline, (2, Punctuation("b", 10 * SECOND)))
    feed(pipeline, (2, partials(query, [Arrival(4 * SECOND, 80, 60)])))
    samples = pipeline.samples(newest=13 * SECOND)
    assert {name for name, _ in samples} == {metric.name for metric in QUERY_METRICS}
    values = {
        PARTIALS_RECEIVED: 5, OUTSIDE_WINDOWS: 1, LATE_PARTIALS: 1, LATE_ROWS: 1, WINDOWS_CLOSED: 2, RESULT_ROWS: 2,
        WINDOWS_OPEN: 1,
    }  # fmt: skip
    assert {metric: samples[metric.name, ("query",)] for metric in values} == values
    lows = {link: samples[LOW_WATERMARK.name, ("query", link)] for link in ("a", "b")}
    lags = {link: samples[PUNCTUATION_LAG.name, ("query", link)] for link in ("a", "b")}
    assert (lows, lags) == ({"a": 10, "b": 10}, {"a": 3, "b": 3})
