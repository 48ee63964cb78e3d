"""Comparisons: exact operators stay exact under every injected disorder, and operators report too short waits."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import wiretide
from capture.errors import InputError
from capture.generate import Profile, generate
from dashboards import request
from dashboards.comparing import (
    ComparisonError,
    Settings,
    check_answer,
    parse_durations,
    parse_lulls,
    parse_settings,
    parse_skews,
    run_comparison,
)
from dashboards.output.comparison_table import describe_input, format_table, verdict
from highlevel.compare.arrivals import make_punctuation
from highlevel.compare.comparison import Comparison
from highlevel.compare.figures import SCHEMA, figures
from highlevel.compare.injection import Injection
from highlevel.compare.question import NotComparedError, question_of
from tests.harness import in_ns
from tests.references.operator_contract import through_ipc

SECOND = 1_000_000_000

COUNT = "SELECT srcIP, count(*) AS n, sum(len) AS b FROM packets [RANGE 3 seconds] GROUP BY srcIP"
QUERIES = {
    "tumbling": COUNT,
    "sliding": "SELECT count(*) AS n, max(len) AS most FROM a [RANGE 4 seconds, SLIDE 1 seconds, WA ts] WHERE len > 99",
    "having": "SELECT srcIP, count(*) AS n FROM a [RANGE 3 seconds] GROUP BY srcIP HAVING count(*) > 3",
    "union": "SELECT count(*) AS n, avg(len) AS mean FROM a UNION b [RANGE 2 seconds]",
    "merge": "SELECT srcIP, count(*) AS n FROM (MERGE x.ts : y.ts FROM a x, b y) m [RANGE 3 seconds] GROUP BY srcIP",
    "band": "SELECT S.ts, A.ts - S.ts AS later FROM a S [RANGE 1 seconds, WA ts], b A [RANGE 1 seconds, WA ts] "
    "WHERE S.srcIP = A.srcIP",
    "tumbling join": "SELECT a.srcIP, b.len FROM a, b [RANGE TUMBLING 2 seconds, WA ts] WHERE a.srcIP = b.srcIP",
    "counted join": "SELECT count(*) AS n [RANGE 2 seconds, SLIDE 2 seconds, WA S.ts] "
    "FROM a S [RANGE 1 seconds, WA ts], b A [RANGE 0 seconds, WA ts] WHERE S.srcIP = A.srcIP",
    "by the right": "SELECT count(*) AS n [RANGE 2 seconds, SLIDE 2 seconds, WA A.ts] "
    "FROM a S [RANGE 1 seconds, WA ts], b A [RANGE 0 seconds, WA ts] WHERE S.srcIP = A.srcIP",
}
INJECTIONS = {
    "nothing": Injection(),
    "skew": Injection(skews={"b": 2 * SECOND}),
    "lull": Injection(lulls={"a": [(2 * SECOND, 3 * SECOND)]}),
    "disorder": Injection(disorder=SECOND),
    "blocks": Injection(block=3 * SECOND),
    "all": Injection({"B": SECOND}, {"a": [(SECOND, SECOND)], "b": [(6 * SECOND, SECOND)]}, SECOND, 2 * SECOND, 7),
}
CASES = [
    (query, injection)
    for query in QUERIES
    for injection in INJECTIONS
    if injection in ("nothing", "all") or query in ("union", "band")
]
ENOUGH = 8 * SECOND
"""Slack that is more than anything injected is late by."""


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Two links in order, of 9 s."""
    folder = tmp_path_factory.mktemp("links")
    for name, seed, rate in (("a", 1, 40.0), ("b", 2, 20.0)):
        profile = Profile(duration=9 * SECOND, rate=rate, groups=8, ipv6=0.3, seed=seed)
        generate(profile, folder / f"{name}.pcap")
    return {name: [str(folder / f"{name}.pcap")] for name in ("a", "b")}


def compared(sql: str, links: dict[str, list[str]], injection: Injection, *slacks: int) -> Comparison:
    """Compare without timing anything more than once; the exact answer is checked against the inline engine's."""
    plan, _ = request.bind(sql, "outer", None, [], links, follow=False) if "FROM packets" not in sql else (None, None)
    streams = {} if plan is None else {name: links[name] for name in plan.streams}
    files = [] if streams else [path for paths in links.values() for path in paths]
    if streams:
        skews = {name: skew for name, skew in injection.skews.items() if name.lower() in streams}
        lulls = {name: lull for name, lull in injection.lulls.items() if name.lower() in streams}
        injection = Injection(skews, lulls, injection.disorder, injection.block, injection.seed)
    return run_comparison(sql, files, streams, settings=Settings(injection, slacks, repeat=1, tick=SECOND // 2))


@pytest.mark.parametrize(("query", "injection"), CASES)
def test_exact_promises_and_enough_slack_are_exact(query: str, injection: str, links: dict[str, list[str]]) -> None:
    found = compared(QUERIES[query], links, INJECTIONS[injection], ENOUGH)
    assert found.exact.results > 0
    for each in found.measured:
        assert each.difference.is_exact, (each.variant.name, each.difference)
        assert (each.late, each.difference.count_error) == (0, 0), each.variant.name
    names = [each.variant.name for each in found.measured]
    assert len(set(names)) == len(names) == (8 if found.question.join else 6)


@pytest.mark.parametrize("query", ["sliding", "union", "band"])
def test_a_variant_goes_on_from_its_snapshot(query: str, links: dict[str, list[str]]) -> None:
    found = compared(QUERIES[query], links, INJECTIONS["all"], SECOND)
    arrivals, question = found.arrivals, found.question
    for variant in (each.variant for each in found.measured):
        events = list(arrivals.events(variant.watermark_delay))
        answers = []
        for middle in (len(events), len(events) // 2):
            pipeline = variant.pipeline(question, arrivals.links(len(question.plan.leaves)))
            left: list[pa.RecordBatch] = []
            for place, event in enumerate(events):
                if place == middle:
                    state = through_ipc(pipeline.snapshot())
                    pipeline = variant.pipeline(question, arrivals.links(len(question.plan.leaves)))
                    pipeline.restore(state)
                items = list(pipeline.process_rows(event.port, event.rows)) if event.rows is not None else []
                items += pipeline.punctuate(event.port, make_punctuation(arrivals.sources[event.port], event.watermark))
                left += [item for item in items if isinstance(item, pa.RecordBatch)]
            answers.append(Counter(str(row) for batch in left for row in batch.to_pylist()))
        assert answers[0] == answers[1] != Counter(), variant.name


def test_the_exact_answer_is_that_of_the_definition(links: dict[str, list[str]]) -> None:
    found = compared(COUNT, links, INJECTIONS["all"], 0)
    rows: Counter[tuple[object, ...]] = Counter()
    sizes: Counter[tuple[object, ...]] = Counter()
    for (path,) in links.values():
        for batch in in_ns.packets(path, ["ts", "srcIP", "len"]):
            for row in batch.to_pylist():
                start = row["ts"] // (3 * SECOND) * 3 * SECOND
                rows[start, row["srcIP"]] += 1
                sizes[start, row["srcIP"]] += row["len"]
    from ipaddress import ip_address

    told = {}
    for start, _, source, n, b in found.exact.shown:
        assert isinstance(source, bytes)
        told[start, str(ip_address(source))] = (n, b)
    assert told == {key: (rows[key], sizes[key]) for key in rows}


@pytest.mark.parametrize("query", ["tumbling", "sliding", "merge", "band", "counted join"])
def test_too_little_slack_loses_rows_and_says_so(query: str, links: dict[str, list[str]]) -> None:
    found = compared(QUERIES[query], links, Injection(disorder=2 * SECOND), 0)
    for each in found.measured:
        if each.variant.watermark_delay is None:
            assert each.difference.is_exact
            continue
        difference = each.difference
        assert each.late > 0, each.variant.name
        assert difference.wrong + difference.missing > 0, each.variant.name
        assert difference.count_error > 0, each.variant.name
    lost = {
        each.variant.name: each.difference.count_error for each in found.measured if each.variant.watermark_delay == 0
    }
    assert lost["out of order, 0s late"] <= min(lost.values())


def test_skew_is_no_disorder_out_of_order_but_waits_in_a_merge(links: dict[str, list[str]]) -> None:
    in_step = {each.variant.name: each for each in compared(QUERIES["union"], links, Injection(), 0).measured}
    skewed = compared(QUERIES["union"], links, Injection({"b": 4 * SECOND}), 0)
    told = {each.variant.name: each for each in skewed.measured}
    waiting, before = (int(found["in order, exact"].stored_items.max()) for found in (told, in_step))
    assert waiting - before > 2 * 40  # rows of the link that is not behind, for most of the skew
    assert told["out of order, 0s late"].difference.is_exact
    assert told["in order, 0s late"].difference.is_exact
    assert not told["slack 0s, generous"].difference.is_exact  # one clock for both links
    assert 3.9 < told["out of order, exact"].median_latency < 5.1


def test_latencies_are_those_of_the_slack(links: dict[str, list[str]]) -> None:
    found = {
        each.variant.name: each.median_latency
        for each in compared(QUERIES["sliding"], links, Injection(), 0, 2 * SECOND).measured
    }
    for name in ("out of order", "in order"):
        assert 0 <= found[f"{name}, exact"] <= found[f"{name}, 0s late"] < 1.1
        assert 2 <= found[f"{name}, 2s late"] < 3.1


def test_generous_loses_less_than_consistent(links: dict[str, list[str]]) -> None:
    query, disorder = QUERIES["sliding"], Injection(disorder=2 * SECOND)
    found = {each.variant.name: each for each in compared(query, links, disorder, SECOND).measured}
    generous, consistent = (found[f"slack 1s, {kind}"].difference.count_error for kind in ("generous", "consistent"))
    assert 0 < generous < consistent


def test_equal_seeds_give_equal_arrivals(links: dict[str, list[str]]) -> None:
    def told(seed: int) -> list[tuple[int, int]]:
        injection = Injection(disorder=SECOND, seed=seed)
        return [(each.late, int(each.stored_items.max())) for each in compared(COUNT, links, injection, 0).measured]

    assert told(1) == told(1) != told(2)


def test_an_answer_that_is_not_the_engines_is_no_comparison(links: dict[str, list[str]]) -> None:
    found = compared(COUNT, links, Injection(), 0)
    other = in_ns.query(COUNT.replace("3 seconds", "2 seconds"), *links["a"])
    with pytest.raises(ComparisonError, match="rows are missing"):
        check_answer(found.question, found, other)


REFUSED = {
    "SELECT srcIP, count(*) FROM a GROUP BY srcIP": "without a window",
    "SELECT count(*) FROM a [RANGE 10 rows]": "TupleWindow",
    "SELECT srcIP FROM a": "without a window or a join",
    "SELECT a.srcIP FROM a [RANGE 1 seconds, WA ts] LEFT JOIN b [RANGE 1 seconds, WA ts] ON a.srcIP = b.srcIP": "LEFT",
    "SELECT DISTINCT srcIP, ts FROM a": "a query with DISTINCT cannot",
    "SELECT srcIP, rank() OVER () FROM a [RANGE 1 second] GROUP BY srcIP": "with window functions",
    "SELECT count(*) FROM a [RANGE 1 second] LIMIT 3": "ORDER BY or LIMIT",
    "SELECT count(*) FROM a [RANGE 1 second] EMIT CHANGES": "WITH CONSISTENCY or EMIT CHANGES",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_has_no_counterpart_in_order_is_refused(sql: str) -> None:
    from queries.gsql import compile_query

    with pytest.raises(NotComparedError, match=REFUSED[sql]) as refused:
        question_of(compile_query(sql))
    assert "expected tumbling or sliding windows" in str(refused.value)


def test_times_are_read_as_they_are_written() -> None:
    assert parse_durations("0,1s,500ms") == [0, SECOND, SECOND // 2]
    assert parse_skews(["a=5s", "x=y=1s"]) == {"a": 5 * SECOND, "x=y": SECOND}
    assert parse_lulls(["a=1s+2s", "a=5s+1s"]) == {"a": [(SECOND, 2 * SECOND), (5 * SECOND, SECOND)]}
    asked_for = parse_settings("0", ["a=5s"], [], "1s", "0", 3, 2, "100ms", 10)
    assert asked_for == Settings(Injection({"a": 5 * SECOND}, {}, SECOND, 0, 3), [0], 2, SECOND // 10, 10)


def test_unknown_links_and_too_many_rows_are_refused(links: dict[str, list[str]]) -> None:
    files = [path for paths in links.values() for path in paths]
    with pytest.raises(InputError, match="unknown link c; links are a, b"):
        run_comparison(COUNT, files, settings=Settings(Injection({"c": 1}), (0,)))
    with pytest.raises(InputError, match="more than 100 rows"):
        run_comparison(COUNT, files, settings=Settings(limit=100))
    with pytest.raises(InputError, match="no row"):
        run_comparison(COUNT.replace("packets [", "samples ["), files)


def test_the_python_function_gives_the_columns_of_the_csv(links: dict[str, list[str]]) -> None:
    table = wiretide.compare(COUNT, *links["a"], *links["b"], skew={"b": "1s"}, slack="0,3s", repeat=1)
    assert table.schema == SCHEMA
    assert table.column("variant").to_pylist()[:3] == [
        "out of order, exact",
        "out of order, 0s late",
        "out of order, 3s late",
    ]
    assert set(table.column("rows").to_pylist()) == {540}
    with pytest.raises(ValueError, match="--disorder: expected a duration"):
        wiretide.compare(COUNT, *links["a"], disorder="much")


def test_the_table_and_the_verdict_say_who_wins(links: dict[str, list[str]]) -> None:
    found = compared(COUNT, links, Injection(disorder=2 * SECOND), 0, ENOUGH)
    table = figures(found)
    head, *rows = format_table(table)
    assert len({len(line) for line in (head, *rows)}) == 1
    assert len(rows) == table.num_rows == len(found.measured)
    told = verdict(table)
    assert told[0].startswith("With exact watermarks: memory is ")  # CPU time of so few rows tells nothing
    many = table.set_column(3, "rows", [[10_000] * table.num_rows])
    assert verdict(many)[0].startswith("With exact watermarks: CPU time is ")
    assert re.search(r"smallest slack without errors, 8 s out of order and 8 s in order", told[1])
    assert [text.split(":")[0] for text in told[2:]] == ["Slack out of order", "Slack in order"]
    assert "540 rows of 2 links" in describe_input(found)


def test_plots_are_drawn(links: dict[str, list[str]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from dashboards.output.comparison_plots import draw, shown_variants, state_title

    found = compared(COUNT, links, Injection(disorder=SECOND), 0, ENOUGH)
    table = figures(found)
    state, latency = (file.read_text() for file in draw(found, table, tmp_path / "plots"))
    shown = [row["variant"] for row in shown_variants(table.to_pylist())]
    assert shown[:2] == ["out of order, exact", "out of order, 8s late"]
    assert "in order, exact" in shown
    for row in table.to_pylist():
        assert (f">{row['variant']}<" in state) == (row["variant"] in shown)
        assert f">{row['variant']}<" in latency
    assert f">{state_title(table.to_pylist())}<" in state


@pytest.mark.parametrize(
    ("free", "ordered", "title"),
    [
        (100, 430, "In order needs 4.3 times the memory of out of order"),
        (300, 100, "Out of order needs 3.0 times the memory of in order"),
        (100, 105, "In order and out of order need equal memory"),
        (100, None, "Memory of the stored rows"),
    ],
)
def test_the_title_has_the_ratio_of_memory(free: int, ordered: int | None, title: str) -> None:
    from dashboards.output.comparison_plots import state_title

    errors = {"promised_late_s": None, "wrong_percent": 0.0, "missing_percent": 0.0}
    sizes = {False: free, True: ordered}
    rows = [{"in_order": key, "bytes_held_most": size, **errors} for key, size in sizes.items() if size is not None]
    assert state_title(rows) == title
