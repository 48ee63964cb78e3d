"""Random expressions of all types: a query is refused with position, reason and remedy, or it can be computed.

`random_queries` draws queries that are valid in DuckDB too. Here types are not considered, so that functions, FILTER,
CASE, OVER and clauses meet types that they do not expect: bytes, MACs, texts, NULL, constants. The test detects a type
that is accepted, but cannot be evaluated.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import wiretide
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.harness.links import write_links

COLUMNS = [
    *("ts", "time", "srcIP", "inner.srcIP", "destPort", "protocol", "len", "ttl", "vlan", "srcMAC", "link"),
    *("interface", "payload", "flag"),
]
LITERALS = [
    *("0", "-1", "60", "2.5", "9223372036854775807", "'a'", "''", "'10.0.0.1'", "'10.0.0.0/8'", "x'00'", "TRUE"),
    *("'00:11:22:33:44:55'", "TIMESTAMP '2016-08-02'"),
]
OPERATORS = ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]
FUNCTIONS = (
    *("length({})", "nullif({}, {})", "coalesce({}, {})", "greatest({}, {})", "least({}, {})", "mask({}, 24)"),
    *("family({})", "is_private({})", "date_trunc('minute', {})", "extract(hour FROM {})", "byte({}, {})"),
    *("contains({}, 'a')", "starts_with({}, x'00')", "matches({}, 'a.*')", "-{}", "~{}", "NOT {}"),
    *("CAST({} AS VARCHAR)", "CAST({} AS INTEGER)", "TRY_CAST({} AS DOUBLE)", "{}::BOOLEAN", "CAST({} AS TIMESTAMP)"),
    *("CAST({} AS INET)", "CAST({} AS MAC)", "({} || {})", "({} || ':' || {})", "concat({}, '-', {})", "upper({})"),
    *("hash({}, {})", "uniform({}, 7)", "split_part({}, '.', 1)", "text({})", "hex({})", "round({}, 1)"),
    *("protocol_name({})", "sqrt({})", "left({}, 2)"),
)
FRAMES = (
    *("", "", "ROWS 2 PRECEDING", "ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING", "RANGE 2 PRECEDING"),
    *("RANGE BETWEEN 1.5 PRECEDING AND UNBOUNDED FOLLOWING", "RANGE 2 seconds PRECEDING", "RANGE UNBOUNDED PRECEDING"),
)
AGGREGATES = (
    *("count({})", "sum({})", "min({})", "avg({})", "variance({})", "first({})", "bit_or({})", "median({})"),
    *("count(DISTINCT {})", "entropy({})", "top({}, 2)", "approx_count_distinct({})", "count(*)"),
)
ROW_FUNCTIONS = ("rank()", "cume_dist()", "lag({})", "last_value({})", "count({})", "sum({})", "max({})")


class Expressions:
    """Random expressions over `columns`; with `aggregates` also aggregates of them."""

    def __init__(self, random: Random, columns: list[str], *, aggregates: bool = False) -> None:
        self.random = random
        self.columns = columns
        self.aggregates = aggregates

    def value(self, depth: int = 0) -> str:
        choice = self.random.choice
        kind = self.random.random()
        if self.aggregates and kind < 0.4:
            inner = Expressions(self.random, COLUMNS)
            condition = f" FILTER (WHERE {inner.condition(depth + 1)})" if self.random.random() < 0.4 else ""
            return inner.filled(choice(AGGREGATES), depth) + condition
        if depth > 2 or kind < 0.6:
            return choice(self.columns if self.random.random() < 0.75 else LITERALS)
        if kind < 0.7:
            return f"({self.value(depth + 1)} {choice(OPERATORS)} {self.value(depth + 1)})"
        if kind < 0.8:
            return (
                f"CASE WHEN {self.condition(depth + 1)} THEN {self.value(depth + 1)} ELSE {self.value(depth + 1)} END"
            )
        return self.filled(choice(FUNCTIONS), depth)

    def condition(self, depth: int = 0) -> str:
        choice = self.random.choice
        value = self.value(depth + 1)
        forms = (
            f"{value} {choice(COMPARISONS)} {self.value(depth + 1)}",
            f"{value} IS NOT NULL",
            f"{value} IN ({choice(LITERALS)}, {choice(LITERALS)})",
            f"{value} LIKE 'a%'",
            f"{value} BETWEEN {choice(LITERALS)} AND {self.value(depth + 1)}",
            f"({value} = {self.value(depth + 1)} OR {value} IS NULL)",
        )
        return choice(forms)

    def over(self) -> str:
        partition = f"PARTITION BY {self.value(1)} " if self.random.random() < 0.5 else ""
        function, frame = self.filled(self.random.choice(ROW_FUNCTIONS), 1), self.random.choice(FRAMES)
        return f"{function} OVER ({partition}ORDER BY {self.value(1)} {frame})"

    def filled(self, form: str, depth: int) -> str:
        while "{}" in form:
            form = form.replace("{}", self.value(depth + 1), 1)
        return form


def query(random: Random) -> str:
    rows = Expressions(random, COLUMNS)
    where = f"WHERE {rows.condition()}" if random.random() < 0.5 else ""
    if random.random() < 0.4:
        item = rows.over() if random.random() < 0.4 else rows.value()
        order = f"ORDER BY {rows.value()}" if random.random() < 0.5 else ""
        return f"SELECT {random.choice(['', 'DISTINCT'])} ts, {item} FROM packets {where} {order}"
    key = rows.value()
    groups = Expressions(random, [key], aggregates=True)
    item = groups.over() if random.random() < 0.3 else groups.value()
    window = random.choice(["", "[RANGE 1 minute]", "[RANGE 10 s, SLIDE 5 s]", "[SESSION 5 s]"])
    having = f"HAVING {groups.condition()}" if random.random() < 0.3 else ""
    order = f"ORDER BY {groups.value()} LIMIT 3" if random.random() < 0.3 else ""
    return f"SELECT {key}, {item} FROM packets {window} {where} GROUP BY {key} {having} {order}"


def test_a_query_is_refused_with_a_remedy_or_can_be_computed(rounds: Rounds, tmp_path: Path) -> None:
    paths = [source.path for source in write_links(tmp_path, 3)]
    computed = 0
    for seed in rounds(150):
        random = Random(f"expressions {seed}")
        for _ in range(15):
            sql = query(random)
            try:
                refused = refusal(sql)
                if refused is None:
                    wiretide.query(sql, *paths, threads=random.choice([1, 2]))
            except Exception as error:
                error.add_note(f"seed {seed}: {sql}")
                raise
            assert refused is None or refused.expected, sql
            computed += refused is None
    assert computed > len(rounds(150)) * 2 / 3


def refusal(sql: str) -> QueryError | None:
    try:
        compile_query(sql)
    except QueryError as error:
        return error
    return None
