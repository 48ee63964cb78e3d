"""Random queries with correlated sub-queries, in the SQL of Wiretide and of DuckDB.

The outer item is `p`, the items of the sub-queries are `q` and `r`. A window that both queries name is an equality of
quotients of their times in DuckDB.
"""

from __future__ import annotations

from random import Random

from tests.conformance.random_queries import ADDRESS, COLUMNS, INT, TEXT, Expressions, Pair, join, same

SECOND = 10**9
NULLABLE = ["vlan", "srcPort", "destPort", "tcp_flags", "icmp_type"]
AGGREGATES = ["count(*)", "count({})", "sum({})", "min({})", "max({})", "avg({})", "count(DISTINCT {})"]
RESULTS = {INT: ["protocol", "vlan", "n", "m"], TEXT: [], ADDRESS: ["srcIP"]}
"""Columns of results of windows."""


class CorrelatedQuery:
    """A query in both languages. `ours`, `duck`: the texts."""

    def __init__(self, seed: str) -> None:
        """Draw a query for a seed."""
        self.random = random = Random(seed)
        self.of_results = random.random() < 0.25
        self.length = random.choice([2, 5, 10, 20, 60])
        self.style = "window_end" if self.of_results else random.choice(["clause", "clause", "quotient", "ts"])
        query = self._query()
        self.ours, self.duck = query.ours, query.duck

    def _query(self) -> Pair:
        random = self.random
        conditions = [self._correlated("p", "q") for _ in range(random.choice([1, 1, 1, 2]))]
        if random.random() < 0.25:
            conditions.append(self._expressions("p").condition(1))
        random.shuffle(conditions)
        where = join(" AND ".join(f"{{{number}}}" for number in range(len(conditions))), *conditions)
        source, window = self._source("p"), self._window()
        if random.random() < 0.5:
            items = [same(f"p.{name}") for name in (["n", "srcIP"] if self.of_results else ["ts", "len", "destIP"])]
            if random.random() < 0.4:
                items.append(self._value("p", "q"))
            template = ", ".join(f"{{{number}}} AS c{number}" for number in range(len(items)))
            return join(f"SELECT {template} FROM {{{len(items)}}} WHERE {{{len(items) + 1}}}", *items, source, where)
        key = "p.protocol" if random.random() < 0.5 else "p.srcIP"
        aggregates = f"count(*) AS n, sum(p.{'m' if self.of_results else 'len'}) AS s"
        ours = f"SELECT {key} AS k, {aggregates} FROM {source.ours} WHERE {where.ours} GROUP BY {key}"
        start = f"p.ts // {self.length * SECOND} * {self.length * SECOND}" if window else ""
        bounds = f"{start} AS window_start, {start} + {self.length * SECOND} AS window_end, " if window else ""
        groups = f"{key}, {start}" if window else key
        duck = f"SELECT {bounds}{key} AS k, {aggregates} FROM {source.duck} WHERE {where.duck} GROUP BY {groups}"
        return Pair(ours, duck)

    def _window(self) -> str:
        return f" [RANGE {self.length} seconds]" if self.style == "clause" else ""

    def _source(self, name: str) -> Pair:
        """Return an item of FROM."""
        if not self.of_results:
            return Pair(f"packets {name}{self._window()}", f"packets {name}")
        keys, aggregates = "srcIP, protocol, vlan", "count(*) AS n, max(len) AS m"
        length = self.length * SECOND
        ours = f"(SELECT {keys}, {aggregates} FROM packets [RANGE {self.length} s] GROUP BY {keys}) {name}"
        end = f"ts // {length} * {length} + {length}"
        return Pair(
            ours, f"(SELECT {end} AS window_end, {keys}, {aggregates} FROM packets GROUP BY {keys}, {end}) {name}"
        )

    def _expressions(self, name: str) -> Expressions:
        columns = RESULTS if self.of_results else {**COLUMNS, TEXT: []}
        return Expressions(self.random, {kind: [f"{name}.{each}" for each in of] for kind, of in columns.items()})

    def _times(self, outer: str, inner: str) -> Pair:
        """Return the condition that both rows are in one window; no condition in our text if a clause states it."""
        length = self.length * SECOND
        quotients = f"{inner}.ts // {length} = {outer}.ts // {length}"
        match self.style:
            case "clause":
                return Pair("", quotients)
            case "quotient":
                sides = [f"{inner}.time/{self.length}", f"{outer}.ts/{length}"]
                return Pair(" = ".join(self.random.sample(sides, 2)), quotients)
            case column:
                return same(f"{outer}.{column} = {inner}.{column}")

    def _inner_where(self, outer: str, inner: str, depth: int) -> Pair:
        """Return WHERE of a sub-query with at least one column of the outer query in our text."""
        random = self.random
        conditions = [self._times(outer, inner)]
        names = RESULTS if self.of_results else COLUMNS
        for _ in range(random.choice([1, 1, 1, 2] if self.style == "clause" else [0, 0, 1, 1, 2])):
            kind = random.choice([INT, INT, ADDRESS])
            one, other = random.choice(names[kind]), random.choice(names[kind])
            if random.random() < 0.7:
                other = one
            equal = [f"{inner}.{one}", f"{outer}.{other}"]
            if kind == INT and random.random() < 0.2:
                equal = [f"{inner}.{one} % 7", f"{outer}.{other} % 5 + 1"]
            conditions.append(same(" = ".join(random.sample(equal, 2))))
        if random.random() < 0.35:
            conditions.append(self._expressions(inner).condition(1))
        if random.random() < 0.15:
            conditions.append(self._expressions(outer).condition(0))
        if depth == 0 and random.random() < 0.15:
            conditions.append(self._correlated(inner, "r", 1))
        random.shuffle(conditions)
        ours = " AND ".join(each.ours for each in conditions if each.ours)
        return Pair(ours, " AND ".join(each.duck for each in conditions))

    def _correlated(self, outer: str, inner: str, depth: int = 0) -> Pair:
        """Return a condition with a sub-query."""
        random = self.random
        where, source = self._inner_where(outer, inner, depth), self._source(inner)
        no = random.choice(["", "NOT "])
        match random.randrange(7):
            case 6:
                query = join("(SELECT {0} FROM {1} WHERE {2})", self._member(inner), source, where)
                member = join(f"{{0}} {no}IN {{1}}", self._member(outer), query)
                form = random.choice(["(NOT ({0} OR {1}))", "({0} OR {1})", "(({0}) IS NULL OR {1})"])
                return join(form, member, self._expressions(outer).condition(0))
            case 0:
                distinct, item = random.choice(["", "DISTINCT "]), random.choice(["1", "*", f"{inner}.srcIP"])
                distinct = "" if item != f"{inner}.srcIP" else distinct
                return join(f"{no}EXISTS (SELECT {distinct}{item} FROM {{0}} WHERE {{1}})", source, where)
            case 1:
                exists = join(f"{no}EXISTS (SELECT 1 FROM {{0}} WHERE {{1}})", source, where)
                return join("({0} OR {1})", exists, self._expressions(outer).condition(0))
            case 2 | 3:
                operand, value = self._member(outer), self._member(inner)
                groups = ""
                if random.random() < 0.4:
                    groups = f" GROUP BY {value.ours}"
                    if random.random() < 0.7:
                        groups += f" HAVING count(*) {random.choice(['>', '<='])} {random.choice([1, 2, 3])}"
                query = join(f"(SELECT {{0}} FROM {{1}} WHERE {{2}}{groups})", value, source, where)
                return join(f"{{0}} {no}IN {{1}}", operand, query)
            case 4:
                value = self._aggregate(inner)
                query = join("(SELECT {0} FROM {1} WHERE {2})", value, source, where)
                return join(f"{{0}} {no}IN {{1}}", self._member(outer), query)
            case _:
                operator = random.choice(["=", "<>", "<", ">="])
                return join(f"{{0}} {operator} {{1}}", self._member(outer), self._value(outer, inner, depth))

    def _member(self, name: str) -> Pair:
        columns = ["vlan", "protocol", "n"] if self.of_results else [*NULLABLE, "len", "protocol"]
        column = same(f"{name}.{self.random.choice(columns)}")
        return join("({0} % 3)", column) if self.random.random() < 0.2 else column

    def _aggregate(self, inner: str) -> Pair:
        aggregate = self.random.choice(AGGREGATES)
        return join(aggregate, self._member(inner))

    def _value(self, outer: str, inner: str, depth: int = 0) -> Pair:
        """Return a sub-query with one value."""
        where, source = self._inner_where(outer, inner, depth), self._source(inner)
        value = self._aggregate(inner)
        match self.random.randrange(4):
            case 0:
                value = join("{0} * 2 + {1}", value, self._aggregate(inner))
            case 1:
                value = join("coalesce({0}, 7)", value)
        return join("(SELECT {0} FROM {1} WHERE {2})", value, source, where)
