"""Random queries in the SQL of Wiretide and of DuckDB, from one grammar.

Both texts have the same meaning. They differ in these points:

* Integer division is `/` here and `//` in DuckDB; regular expressions and networks have other functions.
* A window is a clause here, and a group by its start in DuckDB.
* `first` and `last` are `arg_min` and `arg_max` by the time in DuckDB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

INT, FLOAT, BOOL, TEXT, ADDRESS = "int", "float", "bool", "text", "address"
SECOND = 10**9

COLUMNS = {
    INT: ["len", "ttl", "protocol", "ip_version", "srcPort", "destPort", "tcp_flags", "icmp_type", "vlan"],
    TEXT: ["link"],
    ADDRESS: ["srcIP", "destIP"],
}
TEXTS = ["office", "Backbone_2", "none"]
PATTERNS = ["%", "off%", "%_2", "o_fice", "%BONE%", "b%", "", "Backbone\\_2"]
ADDRESSES = ["10.0.0.1", "10.0.0.3", "192.168.1.2", "2001:db8::1", "8.8.8.8"]


@dataclass(frozen=True)
class Pair:
    """One expression in both languages."""

    ours: str
    duck: str

    def __format__(self, _: str) -> str:
        raise TypeError("use .ours or .duck")


def same(text: str) -> Pair:
    return Pair(text, text)


def join(template: str, *parts: Pair, duck: str | None = None) -> Pair:
    """Fill a template; `duck` if DuckDB has another one."""
    return Pair(
        template.format(*(part.ours for part in parts)), (duck or template).format(*(part.duck for part in parts))
    )


class Expressions:
    """Draws expressions over columns."""

    def __init__(self, random: Random, columns: dict[str, list[str]], calls: bool = False) -> None:
        """Draw with `random` over `columns` by type. `calls`: with calls of users' functions."""
        self.random = random
        self.columns = columns
        self.calls = calls
        self.spells = False
        """Whether texts may be made of values; such texts are no groups."""

    def draw(self, kind: str, depth: int = 2) -> Pair:
        """Draw an expression of a type."""
        return {INT: self.integer, FLOAT: self.decimal, BOOL: self.condition, TEXT: self.text, ADDRESS: self.address}[
            kind
        ](depth)

    def integer(self, depth: int) -> Pair:
        random = self.random
        if depth == 0 or random.random() < 0.3:
            return same(random.choice(self.columns[INT]) if random.random() < 0.8 else str(random.randrange(-3, 300)))
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        if self.calls and random.random() < 0.4:
            forms = ["by_row({0}, {1})", "by_column({0}, {1})", "by_machine({0}, {1})", "or_minus_one({0}, {1})"]
            return join(random.choice([*forms, "count_null({0}, {2})"]), a, b, self.text(depth - 1))
        if self.spells and random.random() < 0.1:
            forms = ["length(CAST({0} AS VARCHAR))", "CAST(CAST({0} AS VARCHAR) AS BIGINT)"]
            forms += ["TRY_CAST(replace(CAST({0} AS VARCHAR), '1', 'x') AS BIGINT)", "TRY_CAST(link AS INTEGER)"]
            return join(random.choice(forms if "link" in self.columns[TEXT] else forms[:3]), a)
        match random.randrange(11):
            case 0 | 1:
                return join(random.choice(["({0} + {1})", "({0} - {1})", "({0} * {1})"]), a, b)
            case 2:
                divisor = same(str(random.choice([1, 2, 3, 7, 100, 0])))
                return join("({0} / {1})", a, divisor, duck="({0} // {1})")
            case 3:
                return join("({0} % {1})", a, same(str(random.choice([2, 5, 100, 0]))))
            case 4:
                return join(random.choice(["({0} & 255)", "({0} | 8)"]), a)
            case 5:
                return join("coalesce({0}, {1})", a, b)
            case 6:
                return join("nullif({0}, {1})", a, b)
            case 7:
                if random.random() < 0.3:
                    cases = "CASE WHEN {0} <= 64 THEN 64 WHEN {0} <= 500 THEN 500 END"
                    return join("bucket({0}, 64, 500)", a, duck=cases)
                return join(random.choice(["greatest({0}, {1})", "least({0}, {1})"]), a, b)
            case 8:
                forms = ["(- {0})", "abs({0})", "sign({0})", "mod({0}, 7)", "CAST({0} AS BIGINT)"]
                return join(random.choice([*forms, "CAST({0} > 9 AS INTEGER)"]), a)
            case _:
                return self._case(a, b, depth)

    def _case(self, a: Pair, b: Pair, depth: int) -> Pair:
        condition = self.condition(depth - 1)
        if self.random.random() < 0.3:
            return join("CASE WHEN {0} THEN {1} END", condition, a)
        return join("CASE WHEN {0} THEN {1} ELSE {2} END", condition, a, b)

    def decimal(self, depth: int) -> Pair:
        a = self.integer(max(0, depth - 1))
        match self.random.randrange(6):
            case 0:
                return join("({0} * 1.5)", a)
            case 1:
                return join("({0} / 4.0)", a)
            case 2:
                return join(
                    "({0} * 1.0 / {1})", a, self.integer(max(0, depth - 1)), duck="({0} * 1e0 / nullif({1}, 0))"
                )
            case 3:
                return join("CAST({0} AS DOUBLE)", a)
            case 4:
                forms = ["floor({0} / 4.0)", "ceil({0} / 4.0)", "round({0} / 8.0)", "sqrt(abs({0}))"]
                forms += ["ln(abs({0}) + 1)", "log2(abs({0}) + 1)", "power({0} % 10, 2)"]
                return join(self.random.choice(forms), a)
            case _:
                return join("({0} - 0.25)", a)

    def text(self, depth: int) -> Pair:
        if self.calls and depth > 0 and self.random.random() < 0.5:
            if self.columns[ADDRESS] and self.random.random() < 0.3:
                return join("last_digit({0})", self.address(0))
            return join("tagged({0}, {1})", self.integer(depth - 1), self.text(depth - 1))
        if self.spells and self.random.random() < 0.5:
            a, b = self.integer(max(0, depth - 1)), same("link") if depth == 0 else self.text(depth - 1)
            cast = join("CAST({0} AS VARCHAR)", a)
            forms = [cast, join("({0} || ':' || {1})", a, b), join("concat({0}, {1}, '-')", b, a)]
            return self.random.choice([*forms, join("upper({0} || {1})", cast, b)])
        if depth == 0 or self.random.random() < 0.5:
            return same("link" if self.random.random() < 0.7 else self.random.choice(TEXTS_OF_LINK))
        condition = self.condition(depth - 1)
        results = [same(f"'{value}'") for value in self.random.sample(["x", "y", "long text", ""], 2)]
        return join("CASE WHEN {0} THEN {1} ELSE {2} END", condition, *results)

    def address(self, depth: int) -> Pair:
        return same(self.random.choice(self.columns[ADDRESS]))

    def condition(self, depth: int) -> Pair:
        random = self.random
        if self.calls and random.random() < 0.2:
            return join("is_odd({0})", self.integer(max(0, depth - 1)))
        if depth > 0 and random.random() < 0.4:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return join(random.choice(["({0} AND {1})", "({0} OR {1})", "(NOT {0})"]), a, b)
        match random.randrange(9):
            case 0:
                return join(f"({{0}} IS {random.choice(['', 'NOT '])}NULL)", self._column(INT))
            case 1:
                values = ", ".join(str(random.choice([6, 17, 1, 53, 443, 64, 7])) for _ in range(random.randint(1, 3)))
                return join(f"({{0}} {random.choice(['IN', 'NOT IN'])} ({values}))", self._column(INT))
            case 2 if "link" in self.columns[TEXT]:
                word = random.choice(["LIKE", "ILIKE", "NOT LIKE"])
                pattern = random.choice(PATTERNS)
                escape = " ESCAPE '\\'" if "\\" in pattern else ""
                return Pair(f"(link {word} '{pattern}')", f"(link {word} '{pattern}'{escape})")
            case 3 if "link" in self.columns[TEXT]:
                return same(f"(link {random.choice(['=', '<>'])} '{random.choice(TEXTS)}')")
            case 4 if self.columns[ADDRESS]:
                return join(f"({{0}} {random.choice(['=', '<>'])} '{random.choice(ADDRESSES)}')", self.address(0))
            case 5 if self.columns[ADDRESS]:
                address = self.address(0)
                return join("({0} IN '10.0.0.0/8')", address, duck="({0} LIKE '10.%')")
            case 6:
                low = random.randrange(0, 200)
                return join(f"({{0}} BETWEEN {low} AND {low + random.randrange(300)})", self._column(INT))
            case _:
                operator = random.choice(["=", "<>", "<", "<=", ">", ">="])
                return join(f"({{0}} {operator} {{1}})", self.integer(min(depth, 1)), self.integer(0))

    def _column(self, kind: str) -> Pair:
        return same(self.random.choice(self.columns[kind]))


TEXTS_OF_LINK = [
    *("upper(link)", "lower(link)", "trim(link)", "substring(link, 2, 3)", "left(link, 4)", "'<' || link || '>'"),
    *("replace(link, 'c', '-')", "split_part(link, '_', 2)", "split_part(link, 'f', -1)", "split_part(link, '', 3)"),
]
OPERATORS = ["UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
AGGREGATES = ["count(*)", "count", "sum", "min", "max", "avg", "count_distinct", "count_pairs"]
AGGREGATES += ["stddev", "var_pop", "median"]
TIMED = {"first": "arg_min", "last": "arg_max"}
"""Aggregates that need the time of rows, with their names in DuckDB."""


class RandomQuery:
    """A query in both languages. `ordered`: whether its rows have an order. `ours`, `duck`: the texts."""

    def __init__(self, seed: str, calls: bool = False) -> None:
        """Draw a query for a seed. `calls`: with functions of users."""
        self.random = Random(seed)
        self.calls = calls
        self.ordered = False
        columns = COLUMNS
        source = same("packets")
        if self.random.random() < 0.2:
            columns, source = self._subquery()
        self.expressions = Expressions(self.random, columns, calls)
        self.has_time = source.ours == "packets"
        where = join(" WHERE {0}", self.expressions.condition(2)) if self.random.random() < 0.7 else same("")
        draw = self.random.choice([self._rows, self._groups, self._groups, self._groups, self._operation])
        query = draw(source, where)
        self.ours, self.duck = query.ours, query.duck

    def _subquery(self) -> tuple[dict[str, list[str]], Pair]:
        """Return the columns of a query in FROM, and the query."""
        inner = Expressions(self.random, COLUMNS, self.calls)
        selected = [inner.integer(2), inner.integer(2)]
        where = inner.condition(1)
        query = join("(SELECT {0} AS a, {1} AS b, link, srcIP FROM packets WHERE {2}) q", *selected, where)
        return {INT: ["a", "b"], TEXT: ["link"], ADDRESS: ["srcIP"]}, query

    def _rows(self, source: Pair, where: Pair) -> Pair:
        random = self.random
        self.expressions.spells = random.random() < 0.5
        items = [
            self.expressions.draw(random.choice([INT, INT, FLOAT, TEXT, ADDRESS])) for _ in range(random.randint(1, 3))
        ]
        may_be_distinct = not self.expressions.spells and any(self._names(item) for item in items)
        distinct = "DISTINCT " if random.random() < 0.3 and may_be_distinct else ""
        names = [f"c{number}" for number in range(len(items))]
        if not distinct and random.random() < 0.3:
            items.append(self._window_function())
            names.append("f")
        selected = list_of([join(f"{{0}} AS {name}", item) for item, name in zip(items, names, strict=True)])
        query = join(f"SELECT {distinct}{{0}} FROM {{1}}{{2}}", selected, source, where)
        return self._sorted(query, names)

    def _operation(self, source: Pair, where: Pair) -> Pair:
        """Draw two or three queries with set operators between them: rows, or groups in equal windows."""
        random, draw = self.random, self.expressions
        kinds = [random.choice([INT, INT, FLOAT, TEXT, ADDRESS, BOOL]) for _ in range(random.randint(1, 2))]
        names = [f"c{number}" for number in range(len(kinds))]
        window = random.choice([(10, 10), (20, 10)]) if self.has_time and random.random() < 0.3 else None
        parts = []
        for _ in range(random.randint(2, 3)):
            items = [draw.draw(kind, 1) for kind in kinds]
            condition = join(" WHERE {0}", draw.condition(1)) if random.random() < 0.8 else where
            selected = list_of([join(f"{{0}} AS {name}", item) for item, name in zip(items, names, strict=True)])
            if window is None:
                parts.append(join("SELECT {0} FROM {1}{2}", selected, source, condition))
            else:
                keys = [item for item in items if self._names(item)] or [same("len")]
                parts.append(
                    self._windowed(window, list_of([selected, same("count(*) AS n")]), condition, keys, names, same(""))
                )
        enclosed = random.random() < 0.5
        template = "({0})" if enclosed else "{0}"
        whole = join(template, parts[0])
        for part in parts[1:]:
            operator = random.choice(OPERATORS)
            whole = join(f"{{0}} {operator} {{1}}", whole, join(template, part))
        return whole if window else self._sorted(whole, names)

    def _names(self, item: Pair) -> bool:
        names = {name for names in self.expressions.columns.values() for name in names}
        return not names.isdisjoint(re.findall(r"\w+", item.ours))

    def _window_function(self) -> Pair:
        random, draw = self.random, self.expressions
        partition = join("PARTITION BY {0} ", draw.integer(1)) if random.random() < 0.6 else same("")
        aggregates = ["count(*)", "sum({0})", "min({0})", "max({0})", "avg({0})"]
        if self.has_time and random.random() < 0.3:  # all times are different, so that the order of rows is known
            kind = random.choice([*aggregates, "lag({0})", "lead({0}, 2)", "first_value({0})", "last_value({0})"])
            by_values = random.random() < 0.5
            frame = same("") if kind.startswith("l") and "last" not in kind else self._frame(by_values, is_time=True)
            return join(f"{kind} OVER ({{1}}ORDER BY ts{{2}})", draw.integer(1), partition, frame)
        order = join("ORDER BY {0}", draw.integer(1)) if random.random() < 0.7 else same("")
        kind = random.choice(["rank()", "dense_rank()", *aggregates])
        frame = self._frame(by_values=True) if order.ours and "rank" not in kind and random.random() < 0.6 else same("")
        return join(
            f"{kind} OVER ({{1}}{{2}}{{3}})",
            draw.integer(1),
            partition,
            order,
            frame,
            duck=f"{kind} OVER ({{1}}{{2}}{' NULLS LAST' if order.ours else ''}{{3}})",
        )

    def _frame(self, by_values: bool, is_time: bool = False) -> Pair:
        """Draw a frame. Distances between times are seconds, in DuckDB ns."""
        random = self.random
        unit = (" seconds", SECOND) if by_values and is_time else ("", 1)
        distances = sorted(random.randint(-9, 5) for _ in range(2))
        bounds = []
        for distance, outermost in zip(distances, ("PRECEDING", "FOLLOWING"), strict=True):
            if random.random() < 0.2:
                bounds.append(same(f"UNBOUNDED {outermost}"))
            elif distance == 0:
                bounds.append(same("CURRENT ROW"))
            else:
                side = "PRECEDING" if distance < 0 else "FOLLOWING"
                bounds.append(Pair(f"{abs(distance)}{unit[0]} {side}", f"{abs(distance) * unit[1]} {side}"))
        keyword = "RANGE" if by_values else "ROWS"
        return join(f" {keyword} BETWEEN {{0}} AND {{1}}", *bounds)

    def _groups(self, source: Pair, where: Pair) -> Pair:
        random, draw = self.random, self.expressions
        keys = [draw.draw(random.choice([INT, INT, TEXT, ADDRESS, BOOL])) for _ in range(random.randint(0, 2))]
        keys = [key for key in keys if self._names(key)]
        aggregates = [self._aggregate() for _ in range(random.randint(1, 3))]
        names = [f"k{number}" for number in range(len(keys))] + [f"a{number}" for number in range(len(aggregates))]
        items = [join(f"{{0}} AS {name}", item) for item, name in zip([*keys, *aggregates], names, strict=True)]
        selected = list_of(items)
        having = self._having() if keys and random.random() < 0.4 else same("")
        window = random.choice([None, None, (10, 10), (7, 7), (20, 10), (30, 10)]) if self.has_time else None
        if window is not None:
            return self._windowed(window, selected, where, keys, names, having)
        if keys and len({key.ours for key in keys}) == len(keys) and random.random() < 0.25:
            return self._grouping_sets(source, where, keys, selected, names)
        grouped = join(" GROUP BY {0}", list_of(keys)) if keys else same("")
        # SQL has one row for no rows, if there are no groups. Here no rows have no result.
        some = same("") if keys else Pair("", " HAVING count(*) > 0")
        query = join("SELECT {0} FROM {1}{2}{3}{4}{5}", selected, source, where, grouped, having, some)
        return self._sorted(query, names)

    def _grouping_sets(self, source: Pair, where: Pair, keys: list[Pair], selected: Pair, names: list[str]) -> Pair:
        """Draw ROLLUP, CUBE or GROUPING SETS. In DuckDB no rows have one total, here none."""
        kind = self.random.choice(["ROLLUP ({0})", "CUBE ({0})", "GROUPING SETS (({0}), ())", "GROUPING SETS ({0})"])
        grouped = join(f" GROUP BY {kind}", list_of(keys))
        if self.random.random() < 0.5:
            names = [*names, "g"]
            selected = list_of([selected, join("grouping({0}) AS g", self.random.choice(keys))])
        some = Pair("", " HAVING count(*) > 0")
        if self.random.random() < 0.3:
            number = self._number()
            some = join(" HAVING {0} > 5", number, duck=" HAVING {0} > 5 AND count(*) > 0")
        return self._sorted(join("SELECT {0} FROM {1}{2}{3}{4}", selected, source, where, grouped, some), names)

    def _windowed(
        self, window: tuple[int, int], selected: Pair, where: Pair, keys: list[Pair], names: list[str], having: Pair
    ) -> Pair:
        length, slide = window
        ours = f"SELECT {selected.ours} FROM packets [RANGE {length} s, SLIDE {slide} s, WA ts]{where.ours}"
        ours += f" GROUP BY {list_of(keys).ours}" if keys else ""
        start = f"(ts // {slide * SECOND} - i) * {slide * SECOND}"
        groups = ", ".join([start, *(key.duck for key in keys)])
        duck = f"SELECT {start} AS s, {start} + {length * SECOND} AS e, {selected.duck} "
        duck += f"FROM packets, range({length // slide}) AS r(i){where.duck} GROUP BY {groups}"
        return Pair(ours + having.ours, duck + having.duck)

    def _having(self) -> Pair:
        return join(
            f"{{0}} {self.random.choice(['>', '<', '<>'])} {{1}}", join(" HAVING {0}", self._number()), same("5")
        )

    def _number(self) -> Pair:
        return self.random.choice([same("count(*)"), join("max({0})", self.expressions.integer(1))])

    def _aggregate(self) -> Pair:
        random, draw = self.random, self.expressions
        kind = random.choice([*AGGREGATES, *TIMED] if self.has_time else AGGREGATES)
        if kind == "count(*)":
            call = same("count(*)")
        elif kind == "count_distinct":
            call = join("count(DISTINCT {0})", self._over_columns(random.choice([INT, TEXT, ADDRESS])))
        elif kind == "count_pairs":
            kinds = [random.choice([INT, TEXT, ADDRESS]) for _ in range(2)]
            duck = "count(DISTINCT CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN row({0}, {1}) END)"
            call = join("count(DISTINCT {0}, {1})", *map(self._over_columns, kinds), duck=duck)
        elif kind in TIMED:  # all times are different
            values = self._over_columns(random.choice([INT, TEXT, ADDRESS]))
            call = join(f"{kind}({{0}})", values, duck=f"{TIMED[kind]}({{0}}, ts)")
        elif kind == "count":
            call = join("count({0})", draw.draw(random.choice([INT, ADDRESS, TEXT]), 1))
        else:
            call = join(f"{kind}({{0}})", self._over_columns(INT))
        if random.random() < 0.25:
            call = join("{0} FILTER (WHERE {1})", call, draw.condition(1))
        return call

    def _over_columns(self, kind: str) -> Pair:
        """Draw an expression that is not constant."""
        drawn = self.expressions.draw(kind)
        return drawn if self._names(drawn) else same(self.expressions.columns[kind][0])

    def _sorted(self, query: Pair, names: list[str]) -> Pair:
        """Sort by all columns in a random order, so that the order is unique; addresses and texts have other orders."""
        random = self.random
        unordered = ("srcIP", "destIP", "stddev", "var_pop")  # sums of floats are rounded in another order
        if random.random() < 0.6 or any(name in query.ours for name in unordered):
            return query
        self.ordered = True
        keys = random.sample(names, len(names))
        ours, duck = [], []
        for name in keys:
            direction = random.choice(["", " DESC", " ASC"])
            nulls = random.choice(["", " NULLS FIRST", " NULLS LAST"])
            ours.append(name + direction + nulls)
            duck.append(name + direction + (nulls or " NULLS LAST"))
        limit = f" LIMIT {random.randint(0, 20)}" if random.random() < 0.6 else ""
        limit += f" OFFSET {random.randint(0, 5)}" if limit and random.random() < 0.4 else ""
        return Pair(
            f"{query.ours} ORDER BY {', '.join(ours)}{limit}", f"{query.duck} ORDER BY {', '.join(duck)}{limit}"
        )


def list_of(parts: list[Pair]) -> Pair:
    return Pair(", ".join(part.ours for part in parts), ", ".join(part.duck for part in parts))
