"""The rules of the planner: pairs of plans, the table of docs/internals/rules.md, and equal answers.

* Each page of `rules/` contains plans before and after a rule. They detect a rule that is no longer applied, or applied
  where it must not be.
* Random queries run with and without each rule that can be switched off. They detect a rule that changes answers.
* The queries of the other pairs are compared with DuckDB over random packets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest

import wiretide
from dashboards.subqueries import make_inline_compute
from highlevel.inline.engine import InlineRun, Input
from lowlevel.layers import Layer
from queries.gsql import compile_query, compile_tree
from queries.plans.subquery_values import with_values
from queries.text.parser import parse_query
from tests.conformance.duckdb_rows import differences, normal_rows, rows_of
from tests.conformance.random_queries import COLUMNS, INT, Expressions
from tests.conformance.traffic import LINKS, generate_links
from tests.conftest import Rounds
from tests.queries.rule_pages import RENDERERS, SWITCHES, Pair, pages, read_pairs
from tests.references.plan_rules import plan_text

SEEDS = 60
"""Random queries for each rule."""

PAIRS = [pair for page in pages() for pair in read_pairs(page)]
TABLE = Path(__file__).parents[3] / "docs" / "internals" / "rules.md"
COUNTED = "Windows count their rows"
LIMITED = "LIMIT without an order needs no state"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Input]:
    paths, _ = generate_links(tmp_path_factory.mktemp("links"), packets=120)
    return [Input(name, path, name) for name, path in zip(LINKS, paths, strict=True)]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.page}: {pair.rule}")
def test_a_pair_has_these_plans(pair: Pair, inputs: list[Input]) -> None:
    assert pair.plans() == pair.texts
    if pair.same is not None:
        (sql,) = pair.queries
        compute = make_inline_compute(inputs, Layer.OUTER, None)
        assert compile_tree(with_values(parse_query(sql), compute)).root == compile_query(pair.same).root


def test_every_rule_has_a_pair_and_a_line_in_the_documentation() -> None:
    lines = re.findall(r"^\| (.+?) \| .+? \| `(.+?)` \|$", TABLE.read_text("utf-8"), re.MULTILINE)
    assert [rule for rule, _ in lines] == list(dict.fromkeys(pair.rule for pair in in_order_of(lines)))
    assert {pair.rule for pair in PAIRS} == {rule for rule, _ in lines} >= set(SWITCHES)
    assert all((TABLE.parents[2] / module).is_file() for _, module in lines)


def in_order_of(lines: Sequence[tuple[str, str]]) -> list[Pair]:
    places = {rule: place for place, (rule, _) in enumerate(lines)}
    return sorted((pair for pair in PAIRS if pair.rule in places), key=lambda pair: places[pair.rule])


def test_a_rule_with_a_switch_changes_a_pair() -> None:
    changed = {pair.rule for pair in PAIRS if len(set(pair.texts)) == 2}
    assert changed == set(SWITCHES)


# --- answers with and without each rule ---

Draw = Callable[[Random], list[str]]
"""Draw queries that run together."""


def condition(random: Random, depth: int = 2) -> str:
    return Expressions(random, COLUMNS).condition(depth).ours


def draw_rows(random: Random) -> list[str]:
    return [f"SELECT ts, len, srcIP, destPort FROM packets WHERE {condition(random)}"]


def draw_unions(random: Random) -> list[str]:
    inner = f"(SELECT ts, len AS a, ttl AS b, srcIP FROM office WHERE {condition(random, 1)})"
    other = f"(SELECT ts, len * 2 AS a, vlan AS b, destIP AS srcIP FROM {random.choice(LINKS)})"
    where = Expressions(random, {**COLUMNS, INT: ["a", "b"], "text": [], "address": ["srcIP"]}).condition(2).ours
    window = random.choice(["", "[RANGE 10 s, WA ts]"])
    return [f"SELECT a, count(*) AS n, max(b) AS m FROM ({inner} UNION {other}) {window} WHERE {where} GROUP BY a"]


def comparison_in_join(random: Random, names: str) -> str:
    """Return a condition over columns of some items of a join."""

    def column() -> str:
        return f"{random.choice(names)}.{random.choice(['len', 'ttl', 'protocol', 'srcPort', 'vlan', 'tcp_flags'])}"

    def single() -> str:
        match random.randrange(6):
            case 0:
                return f"{column()} IS {random.choice(['', 'NOT '])}NULL"
            case 1 | 2:
                return f"{column()} {random.choice(['=', '<>', '>', '<='])} {random.choice([6, 17, 53, 64, 2, 18])}"
            case 3:
                return f"{column()} + {column()} > {random.choice([20, 200])}"
            case _:
                return f"{column()} {random.choice(['=', '=', '<'])} {column()}"

    match random.randrange(4):
        case 0:
            return f"({single()} AND {single()} OR {single()} AND {single()})"
        case 1:
            return f"({single()} OR {single()})"
        case _:
            return single()


def distance_in_join(random: Random, one: str, other: str) -> str:
    """Return a condition on the distance of the times of two items of a join."""
    distance = random.choice(["0", "1500000000", "2 * 1000000000", "-500000000"])
    op = random.choice(["<", "<=", ">", ">=", "="])
    return random.choice(
        [
            f"{other}.ts - {one}.ts {op} {distance}",
            f"{one}.ts {op} {other}.ts + {distance}",
            f"{distance} {op} {other}.ts - {one}.ts",
        ]
    )


def draw_joins(random: Random) -> list[str]:
    kinds = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"]
    count = random.choice([2, 2, 3])
    source, visible, text = "abc"[:count], "a", f"office a [RANGE {random.choice([0, 1, 3])} s, WA ts]"
    for number, name in enumerate(source[1:], 1):
        kind = random.choice(kinds if number == count - 1 else kinds[:3])
        on = [comparison_in_join(random, names) for names in (visible + name, visible, name)]
        on.append(f"{random.choice(visible)}.srcIP = {name}.{random.choice(['srcIP', 'destIP'])}")
        on += [f"({comparison_in_join(random, visible)} AND {comparison_in_join(random, name)} OR {on[0]} AND {on[1]})"]
        on.append(distance_in_join(random, random.choice(visible), name))
        chosen = " AND ".join(random.sample(on, random.choice([1, 2, 3])))
        text += f" {kind} {random.choice(LINKS)} {name} [RANGE {random.choice([0, 2])} s, WA ts] ON {chosen}"
        visible += name if kind not in ("SEMI JOIN", "ANTI JOIN") else ""
    where = [comparison_in_join(random, random.choice([visible, *visible])) for _ in range(random.choice([0, 0, 1, 2]))]
    selected = ", ".join(f"{name}.ts AS t{name}, {name}.len AS l{name}" for name in visible)
    return [f"SELECT {selected} FROM {text}" + f" WHERE {' AND '.join(where)}" * bool(where)]


def draw_groups(random: Random) -> list[str]:
    where = random.choice(["", " WHERE len > 100", f" WHERE {condition(random, 1)}"])
    queries = []
    for _ in range(random.randint(2, 5)):
        keys = random.sample(["srcIP", "destIP", "protocol", "len / 100"], random.randrange(4))
        aggregates = random.sample(["count(*)", "sum(len)", "max(ttl)", "min(len)"], random.choice([1, 2]))
        items = [*(f"{key} AS k{n}" for n, key in enumerate(keys)), *(f"{a} AS a{n}" for n, a in enumerate(aggregates))]
        window = random.choice(["[RANGE 10 s, WA ts]", "[RANGE 20 s, WA ts]", "[RANGE 20 s, SLIDE 10 s, WA ts]"])
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        queries.append(f"SELECT {', '.join(items)} FROM packets {window}{where}{grouped}")
    return queries


def draw_conditions(random: Random) -> list[str]:
    """Draw queries whose conditions have parts of all costs, some of them equal."""
    parts = [condition(random, 1) for _ in range(2)]
    parts += ["tcp_flags & 2 <> 2", f"len > {random.choice([60, 100])}", "srcPort < destPort", "vlan <> 7"]
    parts += ["contains(payload, x'0000')", f"ttl <= {random.choice([32, 64])}"]
    wheres = [" AND ".join(random.sample(parts, random.randint(1, 4))) for _ in range(2)]
    return [
        f"SELECT {key}, count(*) AS n, sum(len) AS s FROM packets WHERE {where} GROUP BY {key}"
        for where in wheres
        for key in ("srcIP", "destPort")
    ]


def draw_constants(random: Random) -> list[str]:
    """Draw queries that differ in the constant of a column."""
    column, values = random.choice(
        [
            ("destPort", [53, 80, 443, 8080, 1, 2, 3, 4, 5]),
            ("ttl", [1, 32, 63, 64, 128, 255, 7, 8, -1]),
            ("srcIP", [f"'10.0.0.{number}'" for number in range(1, 8)] + ["'2001:db8::1'", "'2001:db8::2'"]),
        ]
    )
    more = [random.choice(["", f" AND {condition(random, 1)}", " AND len > 100"]) for _ in values]
    return [
        f"SELECT link, count(*) AS n, max(len) AS m FROM packets WHERE {column} = {value}{also} GROUP BY link"
        for value, also in zip(values, more, strict=True)
    ]


def draw_equal_queries(random: Random) -> list[str]:
    """Draw queries of which many differ only in the constant of a column, others in more."""
    column, values = random.choice(
        [
            ("destPort", [53, 80, 443, 8080, 1, 2, 3, 4, 5]),
            ("protocol", [1, 2, 6, 17, 58, 89, 132, 255, -1]),
            ("srcIP", [f"'10.0.0.{number}'" for number in range(1, 8)] + ["'2001:db8::1'", "'2001:db8::2'"]),
        ]
    )
    more = random.choice(["", " AND len > 100", " AND ttl = 64", f" AND {condition(random, 1)}"])
    key = random.choice(["srcIP", "destIP", "destPort", "len / 100", "protocol"])
    aggregate = random.choice(["count(*)", "sum(len)", "max(ttl)", "avg(len)", "first(len)"])
    window = random.choice(["[RANGE 10 s, WA ts]", "[RANGE 20 s, SLIDE 10 s, WA ts]"])
    queries = [
        f"SELECT {key} AS k, {aggregate} AS a FROM packets {window} WHERE {column} = {value}{more} GROUP BY {key}"
        for value in [*values, random.choice(values)]
    ]
    queries.append(
        f"SELECT {key} AS other, count(*) AS n FROM packets {window} WHERE {column} = {values[0]} GROUP BY {key}"
    )
    random.shuffle(queries)
    return queries


QUERIES: dict[str, Draw] = {
    "Conditions on links are evaluated by the leaf": draw_rows,
    "Conditions on a union are evaluated in its parts": draw_unions,
    "Only the needed columns leave the low level": draw_rows,
    "WHERE is evaluated before a join": draw_joins,
    "ON is evaluated before a join": draw_joins,
    "Equalities are keys of a join": draw_joins,
    "Conditions on the distance narrow a window": draw_joins,
    "OR implies a condition on one side": draw_joins,
    "Windows count their rows": draw_groups,
    "Queries with equal groups share a table": draw_groups,
    "Queries that differ in a constant share a table": draw_equal_queries,
    "Tables feed coarser tables": draw_groups,
    "A table keeps sub-aggregates for coarser tables": draw_groups,
    "Equal conditions are tested once": draw_conditions,
    "Constants of one column share an index": draw_constants,
    "Comparisons of integers are intervals": draw_conditions,
    "Cheap parts of AND are tested first": draw_conditions,
}
PAGE_OF = {pair.rule: pair.page for pair in PAIRS}


def answers(rule: str, queries: Sequence[str], inputs: list[Input]) -> list[Counter[tuple]]:
    """Return the rows of queries that run together, with tables of few slots."""
    plans = [compile_query(sql) for sql in queries]
    if rule == COUNTED:  # files need no counts
        plans = [plan.with_row_counts() for plan in plans]
    run = InlineRun(plans, inputs, 32, threads=1)
    rows: list[Counter[tuple]] = [Counter() for _ in queries]
    for number, batch in run.results():
        rows[number].update(rows_of(pa.table(batch)))
    return rows


def lines_of(rule: str, queries: Sequence[str]) -> list[str]:
    render = RENDERERS.get(PAGE_OF[rule], plan_text)
    return [line for sql in queries for line in render([sql])] if rule == COUNTED else render(queries)


@pytest.mark.parametrize("rule", SWITCHES)
def test_a_rule_keeps_the_answers(rule: str, rounds: Rounds, inputs: list[Input]) -> None:
    """The rule changes the plans of enough random queries, but not their rows."""
    changed, rows, seeds = 0, 0, list(rounds(SEEDS))
    for seed in seeds:
        queries = QUERIES[rule](Random(f"{rule} {seed}"))
        found, plan = answers(rule, queries, inputs), lines_of(rule, queries)
        with pytest.MonkeyPatch.context() as patch:
            SWITCHES[rule](patch)
            assert answers(rule, queries, inputs) == found, f"seed {seed}: {queries}"
            changed += lines_of(rule, queries) != plan
        rows += any(map(bool, found))
    if len(seeds) == SEEDS:  # a share of the seeds may all be queries without the pattern of the rule
        assert rows > SEEDS / 5
        assert changed > SEEDS / 8


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.rule not in SWITCHES], ids=lambda pair: f"{pair.page}: {pair.rule}"
)
def test_a_pair_without_a_switch_has_the_rows_of_duckdb(pair: Pair, seed: int, tmp_path: Path) -> None:
    paths, rows = generate_links(tmp_path, packets=100, seed=seed)
    database = duckdb.connect()
    database.register("packets", pa.Table.from_pylist(rows))
    for link in LINKS:
        database.execute(f"CREATE VIEW {link} AS SELECT * FROM packets WHERE link = '{link}'")
    streams = {name: [str(path)] for name, path in zip(LINKS, paths, strict=True)}
    (sql,) = pair.queries
    table = wiretide.query(sql, streams=streams, threads=1)
    if pair.rule == LIMITED:
        assert table.num_rows == 3
        assert {tuple(row) for row in rows_of(table)} <= {(row["srcIP"],) for row in rows}
        return
    expected = normal_rows(database.execute(pair.duckdb).fetchall(), False)
    assert differences(normal_rows(rows_of(table), False), expected) == []
    assert expected or "EXISTS" in sql
