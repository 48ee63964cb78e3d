"""Query Q1 of Chandramouli, Goldstein and Maier (2010) in order: the automaton against a loop of joins, and others.

The automaton is also measured with arcs that could ignore quotes (no quote is ignorable), with numbered quotes (AFA+O
of the paper), and with two states and an arc whose transfer simulates the other states (CAN).

The loop of joins is the plan IPM of the paper, its second baseline (Johnson et al., 2007): partial matches are joined
with the quote of the next sequence number, and the results go back to the join until none is left. It is a loop of
Arrow's hash joins over batches.

The other engines match a simple sequence by 1,000 keys. `eql` is the Python engine for the rules that `wiretide
translate` reads. The published figures of DuckDB and Trino are for a scan of 2 M rows with MATCH_RECOGNIZE.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import wiretide
from bench.one_core import on_one_core
from bench.quotes import PAYLOAD, SCHEMA, Quotes, changes, vees, vees_in_one_loop
from bench.report import Report
from bench.setting import Setting
from highlevel.patterns.automaton import Automaton
from highlevel.patterns.operator import PatternOperator
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT
from highlevel.speculation.lifetimes.model import payload_of, times_of

COUNT, BATCH, SMALL_BATCH, WINDOW, VEES, DROP = 200_000, 10_000, 1000, 2000, 2, 0.25
PARTITIONS = 100_000
KEYS, EVENTS, SCANNED = 1000, 50_000, 2_000_000
TICKS = "PROTOCOL ticks { TIME ts (increasing); UINT host; UINT kind; }"
SEQUENCE = (
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY host ORDER BY ts MEASURES B.ts AS t AFTER MATCH SKIP TO NEXT ROW"
    " PATTERN (A O* B) WITHIN 60 s DEFINE A AS kind = 1, O AS kind <> 1 AND kind <> 2, B AS kind = 2)"
)
SCAN = (
    "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES count(*) AS n PATTERN (A B+ C)"
    " DEFINE A AS kind = 1, B AS kind = 2, C AS kind = 3)"
)
EQL = "sequence by host with maxspan=60s [tick where kind == 1] [tick where kind == 2]"


def run(setting: Setting) -> Report:
    """Measure events per second."""
    count = setting.packets(COUNT)
    rates, bytes_by_quotes = on_one_core(measure, count, setting.runs(3))
    report = Report("A1")
    rows = [
        (name, f"{size:,}", f"{rate / 1e6:.3f}", f"{rate / rates['automaton', size]:.2f}")
        for (name, size), rate in rates.items()
    ]
    columns = ("engine", "quotes in a batch", "M events/s", "/ automaton")
    report.table(f"Q1, k = {VEES}, W = {WINDOW:,}, in order, {count:,} quotes", columns, rows)
    quotes = [(f"{number:,}", f"{size / 2**20:.1f}") for number, size in bytes_by_quotes.items()]
    report.table(f"memory of Q1 in {PARTITIONS:,} partitions", ("quotes so far", "MiB"), quotes)
    report.notes.append("the paper: 200 K events/s with the automaton, and a fifth of it with the loop of joins")
    can = rates["one loop (CAN)", SMALL_BATCH] / rates["with ignorable arcs", SMALL_BATCH]
    report.notes.append(f"one loop / with ignorable arcs: {can:.2f}, the paper 0.75 to 0.84")
    judged = not setting.quick
    report.add_criterion("events/s, Q1 in order, one core", rates["automaton", SMALL_BATCH], ">= 1000000", judged)
    ratio = rates["loop of joins", SMALL_BATCH] / rates["automaton", SMALL_BATCH]
    report.add_criterion("events/s, loop of joins / automaton, batches of 1 000", ratio, "<= 0.25", judged)
    report.add_criterion("events/s, one loop / with ignorable arcs, batches of 1 000", can, "<= 1", judged)
    first, *_, last = bytes_by_quotes.values()
    report.add_criterion("memory, 100 000 partitions, after 30 quotes each / after 10", last / first, "<= 1.2", judged)
    _compare_with_others(report, setting, judged)
    return report


def measure(count: int, runs: int) -> tuple[dict[tuple[str, int], float], dict[int, int]]:
    """Return events per second by engine and size of batches, and bytes in memory by quotes in many partitions."""
    automaton = vees(VEES, DROP, WINDOW)
    engines: dict[str, Callable[[list[pa.RecordBatch]], list[pa.RecordBatch]]] = {
        "automaton": partial(match, automaton=automaton),
        "with ignorable arcs": partial(match, automaton=vees(VEES, DROP, WINDOW, with_ignorable=True)),
        "numbered quotes (AFA+O)": partial(match, automaton=automaton, number="symbol"),
        "one loop (CAN)": partial(match, automaton=vees_in_one_loop(VEES, DROP, WINDOW)),
    }
    rates = {}
    for size in (BATCH, SMALL_BATCH):
        batches = list(changes(Quotes(count, symbols=count), WINDOW, size))
        found = count_with_joins(batches)
        for name, engine in engines.items():
            assert count_results(engine(batches)) == found, f"{name} finds other matches than the loop of joins"
            rates[name, size] = count / min_seconds(partial(engine, batches), runs)
        rates["loop of joins", size] = count / min_seconds(partial(count_with_joins, batches), runs)
    operator = PatternOperator(SCHEMA, vees(VEES, DROP, 20 * PARTITIONS), ["symbol"])
    sizes = {}
    for number, batch in enumerate(changes(Quotes(30 * PARTITIONS, symbols=PARTITIONS), BATCH, BATCH), 1):
        operator.process(batch)
        if number * BATCH % (10 * PARTITIONS) == 0:
            sizes[number * BATCH] = operator.bytes
    return rates, sizes


def min_seconds(work: Callable[[], object], runs: int) -> float:
    """Return the least processor time of some work, in seconds. The first run is not counted."""
    seconds = []
    for _ in range(runs + 1):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds[1:])


def match(batches: list[pa.RecordBatch], automaton: Automaton, number: str | None = None) -> list[pa.RecordBatch]:
    """Return the changes of results. `number`: the column with the number of a quote."""
    operator = PatternOperator(SCHEMA, automaton, number=number)
    return [operator.process(batch) for batch in batches]


def count_results(results: list[pa.RecordBatch]) -> int:
    """Return the number of insertions and retractions."""
    return sum(int(np.count_nonzero(times_of(batch)[0] != CTI)) for batch in results)


def count_with_joins(batches: list[pa.RecordBatch]) -> int:
    """Return the number of matches of Q1, by joins of partial matches with the next quotes."""
    waiting = pa.table({name: pa.array([], pa.int64()) for name in ("next", "start", "state", "balance", "found")})
    matches = first = 0
    for batch in batches:
        rows = times_of(batch)[0] == INSERT
        change = payload_of(batch).filter(pa.array(rows)).column(PAYLOAD.names[0]).to_numpy()
        numbers = np.arange(first, first + len(change))
        first += len(change)
        quotes = pa.table({"next": numbers, "change": change})
        begun = numbers[change < -DROP]
        waiting = pa.concat_tables([waiting, _partial_matches(begun + 1, begun, 1, 0 * begun, 0 * begun)])
        ready = waiting
        waiting = waiting.filter(pc.greater_equal(waiting["next"], first))
        while ready.num_rows:
            joined = ready.join(quotes, "next", join_type="inner")
            columns = [joined[name].to_numpy() for name in ("next", "start", "state", "balance", "found", "change")]
            following, found = _advance(*columns)
            matches += found
            late = pc.greater_equal(following["next"], first)
            waiting = pa.concat_tables([waiting, following.filter(late)])
            ready = following.filter(pc.invert(late))
    return matches


def _partial_matches(
    place: np.ndarray, start: np.ndarray, state: int, balance: np.ndarray, found: np.ndarray
) -> pa.Table:
    states = np.full(len(place), state)
    columns = {"next": place, "start": start, "state": states, "balance": balance, "found": found}
    return pa.table({name: pa.array(np.asarray(values, np.int64)) for name, values in columns.items()})


def _advance(
    place: np.ndarray, start: np.ndarray, state: np.ndarray, balance: np.ndarray, found: np.ndarray, change: np.ndarray
) -> tuple[pa.Table, int]:
    """Return the partial matches after one more quote, and the number of matches. Arcs a1 to a5 of the paper."""
    inside = place - start < WINDOW
    falls, rises = inside & (change < 0) & (state == 1), inside & (change > 0) & (state == 2)
    more = rises & (found < VEES - 1)
    arcs = [
        (falls, 1, balance + 1, found),
        (falls, 2, balance + 1, found),
        (rises & ((found < VEES - 1) | (balance > 1)), 2, balance - 1, found),
        (more, 1, balance - 1, found + 1),
    ]
    following = [
        _partial_matches(place[rows] + 1, start[rows], target, levels[rows], vee[rows])
        for rows, target, levels, vee in arcs
    ]
    return pa.concat_tables(following), int(np.count_nonzero(rises & (found == VEES - 1) & (balance == 1)))


def _compare_with_others(report: Report, setting: Setting, judged: bool) -> None:
    """Compare with other engines on a simple sequence, and on a scan."""
    events, scanned = setting.packets(EVENTS), setting.packets(SCANNED)
    ours, scan, theirs = on_one_core(measure_others, events, scanned, setting.runs(3))
    rows = [
        ("wiretide", f"{scanned:,} rows, A B+ C", f"{scan / 1e6:.2f}", "one core"),
        ("DuckDB, published", "2,000,000 rows", "13.7", "16 cores of another machine"),
        ("Trino 476, published", "2,000,000 rows", "1.35", "16 cores of another machine"),
        ("wiretide", f"{events:,} events, sequence by {KEYS:,} keys", f"{ours / 1e6:.3f}", "one core"),
    ]
    if theirs is not None:
        rows.append(("eql 1.0.1", "the same", f"{theirs / 1e6:.4f}", "one core"))
    report.table("MATCH_RECOGNIZE and other engines", ("engine", "rows and pattern", "M rows/s", "on"), rows)
    ratio = None if theirs is None else ours / theirs
    report.add_criterion("rows/s, wiretide / eql, sequence by keys", ratio, ">= 10", judged, "eql is not installed")


def measure_others(events: int, scanned: int, runs: int) -> tuple[float, float, float | None]:
    """Return rows per second of a sequence by keys, of a scan, and of the sequence with eql."""
    table = make_ticks(events)
    large = make_ticks(scanned)
    ours = events / min_seconds(lambda: wiretide.query(SEQUENCE, table, schema=TICKS), runs)
    scan = scanned / min_seconds(lambda: wiretide.query(SCAN, large, schema=TICKS), runs)
    if importlib.util.find_spec("eql") is None:
        return ours, scan, None
    import eql

    expected = wiretide.query(SEQUENCE, table, schema=TICKS).num_rows
    columns = zip(table["host"].to_pylist(), table["kind"].to_pylist(), strict=True)
    rows = [
        eql.Event("tick", place * 10_000, {"host": host, "kind": kind}) for place, (host, kind) in enumerate(columns)
    ]

    def stream() -> None:
        found: list[object] = []
        engine = eql.PythonEngine({"data_source": None})
        engine.add_output_hook(found.append)
        engine.add_query(eql.parse_query(EQL))
        engine.stream_events(rows)
        assert len(found) == expected, f"eql finds {len(found)} matches, expected {expected}"

    return ours, scan, events / min_seconds(stream, min(runs, 2))


def make_ticks(count: int) -> pa.Table:
    """Return rows of `KEYS` hosts, one per millisecond, with a kind from 1 to 4."""
    draw = np.random.default_rng(1)
    return pa.table({
        "ts": pa.array(np.arange(count) * 1_000_000, pa.timestamp("ns")),
        "host": pa.array(draw.integers(0, KEYS, count)),
        "kind": pa.array(draw.integers(1, 5, count)),
    })  # fmt: skip
