"""Queries with SUPERGROUP or CLEANING: the sampling operator.

    … ► Leaf of rows ► Apply ► Sample

Apply computes the keys and the arguments of aggregates for each row. It is compiled as a query without groups. The key
that increases with the time column is the number of the window.

Sample evaluates the condition `ssample(…)` or `rsample(…)` in WHERE. The other conditions are evaluated on the input of
Apply. The call determines which functions with a state the query has, and their size and seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NoReturn, TypeGuard

from highlevel.aggregation import Output
from highlevel.plan.nodes import DUE, KEPT, PANE, Apply, Node
from highlevel.plan.plan import Plan
from highlevel.plan.sample_node import STATE_VALUE, TICKET, Sample, SampleAggregate, SampleKind, StateFunctions
from highlevel.sampling.families import FAMILIES, Family
from lowlevel.expressions.tree import Column, columns_of
from lowlevel.expressions.tree import Expression as Bound
from lowlevel.expressions.types import NUMBERS, Op, Type
from queries.binding.binder import Binder, known_aggregates
from queries.plans.output_names import output_names
from queries.plans.subqueries import ReadableQuery
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.lexer import Kind
from queries.text.tree import Call, Condition, Expression, Name, Query, SelectItem, Star, Supergroups, Word, calls_in

SUPERAGGREGATES = ("count$", "sum$", "min$", "max$", "count_distinct$")
AGGREGATES = ("count", "sum", "min", "max", "first")

FAMILY_OF = {function: name for name, family in FAMILIES.items() for function in family.names}
"""The family (the functions that share a state) of each function with a state."""

RowCompiler = Callable[[Query], ReadableQuery]


def compile_sample(query: Query, compile_rows: RowCompiler, name: str, layer: str) -> ReadableQuery:
    """Compile a query with supergroups. `compile_rows` compiles a query without groups, which computes the rows."""
    return _SampleCompiler(query).compile(compile_rows, name, layer)


class _SampleCompiler:
    def __init__(self, query: Query) -> None:
        assert query.supergroups is not None
        self._query = query
        self._clauses: Supergroups = query.supergroups
        self._check()
        self._arguments: dict[Expression, str] = {}
        self._where = query.where
        self._functions = self._take_admission()
        self._state_calls: dict[str, Call] = {}
        for expression in self._expressions():
            for call in calls_in(expression):
                if call.function.text.lower() in (*AGGREGATES[:-1], *SUPERAGGREGATES):
                    argument = self._argument(call)
                    if argument is not None:
                        self._arguments.setdefault(argument, f"argument {len(self._arguments) + 1}")
        self.aggregates: dict[Call, SampleAggregate] = {}
        self._columns: dict[str, Column] = {}
        self._keys: dict[Expression, str] = {}

    def _check(self) -> None:
        """Raise QueryError for clauses that the sampling operator does not support."""
        query, clauses = self._query, self._clauses
        word = clauses.keyword
        if not query.group_by or query.call is not None:
            self._fail(f"{word.text.upper()} without groups", word.start, "GROUP BY with columns before it")
        if (clauses.when is None) != (clauses.by is None):
            given, missing = ("WHEN", "BY") if clauses.by is None else ("BY", "WHEN")
            condition = clauses.when or clauses.by
            assert condition is not None
            self._fail(f"CLEANING {given} without CLEANING {missing}", condition.keyword.start, "both clauses")
        if query.window is not None:
            expected = "the window as a group: GROUP BY time/60 AS minute"
            self._fail("a window clause in a query that samples", query.window.start, expected)
        if query.order is not None:
            start = query.order.keyword.start
            clause = "ORDER BY" if query.order.items else query.order.keyword.text.upper()
            self._fail(f"{clause} in a query that samples", start, "ORDER BY in a query that reads this one")
        if query.distinct is not None:
            self._fail("DISTINCT in a query that samples", query.distinct.start, "no DISTINCT: groups are different")

    def _expressions(self) -> Iterator[Expression]:
        yield from (item.expression for item in self._query.select)
        for condition in (self._query.having, self._clauses.when, self._clauses.by):
            if condition is not None:
                yield condition.expression

    def _argument(self, call: Call) -> Expression | None:
        """Return the argument of an aggregate; None for `*`."""
        word, name = call.function, call.function.text.lower()
        if call.where is not None:
            self._fail(f"FILTER after {name} in a query that samples", call.where.start, "WHERE, or CASE in sum(…)")
        if len(call.arguments) != 1:
            self._fail(f"{name} with {len(call.arguments)} arguments", word.start, "one argument")
        argument = call.arguments[0]
        if isinstance(argument, Star):
            if name not in ("count", "count$", "count_distinct$"):
                self._fail(f"{name}(*)", argument.start, f"an argument, for example {name}(len)")
            return None
        if name == "count_distinct$":
            self._fail("count_distinct$ over a column", argument.start, "count_distinct$(*), the number of groups")
        inner = next((inner for inner in calls_in(argument) if inner.function.text.lower() in SUPERAGGREGATES), None)
        if inner is not None:
            expected = f"{inner.function.text} in first(…), or outside of {name}"
            self._fail(f"{inner.function.text} within {name}", inner.start, expected)
        self._refuse_aggregates(argument, name)
        return argument

    def _take_admission(self) -> StateFunctions | None:
        """Remove the function with a state from WHERE, and add its weight to the arguments."""
        if self._query.where is None:
            return None
        condition = self._query.where.expression
        conjunction = isinstance(condition, tree.Operation) and condition.op is Op.AND
        conjuncts = list(condition.operands) if isinstance(condition, tree.Operation) and conjunction else [condition]
        calls = {number: call for number, each in enumerate(conjuncts) if (call := _admitting_call(each)) is not None}
        for number, each in enumerate(conjuncts):
            inner = next((call for call in calls_in(each) if call.function.text.lower() in FAMILY_OF), None)
            if inner is not None and number not in calls:
                name = inner.function.text.lower()
                family = FAMILIES[FAMILY_OF[name]]
                expected = f"{family.admit}(…) as one of the conditions that AND combines"
                self._fail(f"{name} within a condition of WHERE", inner.start, expected)
        if not calls:
            return None
        (number, call), *others = calls.items()
        if others:
            self._fail(f"a second {others[0][1].function.text.lower()}", others[0][1].start, "one sample per query")
        rest = tuple(conjuncts[:number] + conjuncts[number + 1 :])
        if not rest:
            self._where = None
        else:
            remaining = rest[0] if len(rest) == 1 else tree.Operation(Op.AND, rest, rest[0].start)
            self._where = replace(self._query.where, expression=remaining)
        return self._functions_of(call)

    def _functions_of(self, call: Call) -> StateFunctions:
        name = call.function.text.lower()
        family = FAMILIES[FAMILY_OF[name]]
        weights = 1 if family.weighted else 0
        usage = f"{name}({'len, ' * weights}100), or with a seed: {name}({'len, ' * weights}100, 7)"
        if call.where is not None or not weights < len(call.arguments) <= weights + 2:
            self._fail(f"{name} with other arguments", call.start, usage)
        numbers = []
        for argument, least in zip(call.arguments[weights:], (1, 0), strict=False):
            value = int(argument.text) if _is_count(argument) else -1
            if not least <= value < 2**31:
                problem = f"{'a size' if least else 'a seed'} of {name} that is not a constant in the range"
                minus = argument.minus if isinstance(argument, tree.Constant) else None
                self._fail(problem, argument.start if minus is None else minus, f"{least} to 2147483647")
            numbers.append(value)
        weight = None
        if family.weighted:
            argument = call.arguments[0]
            if isinstance(argument, Star):
                self._fail(f"{name}(*)", argument.start, usage)
            self._refuse_aggregates(argument, name)
            weight = self._arguments.setdefault(argument, f"argument {len(self._arguments) + 1}")
        return StateFunctions(FAMILY_OF[name], numbers[0], numbers[1] if len(numbers) > 1 else 0, weight)

    def _refuse_aggregates(self, expression: Expression, clause: str) -> None:
        for call in calls_in(expression):
            name = call.function.text.lower()
            if name in known_aggregates():
                self._fail(f"the aggregate {name} within {clause}", call.start, "columns of the rows")

    def compile(self, compile_rows: RowCompiler, name: str, layer: str) -> ReadableQuery:
        query, clauses = self._query, self._clauses
        items = []
        for number, item in enumerate(query.group_by, 1):
            self._refuse_aggregates(item.expression, "GROUP BY")
            if not tree.has_names(item.expression):
                self._fail("GROUP BY over a constant", item.start, "a column, or an expression over columns")
            key = f"key {number}" if item.alias is None else item.alias.text
            self._keys[item.expression] = key
            if item.alias is not None:
                self._keys[Name(item.alias)] = key
            items.append(SelectItem(item.expression, Word(key, item.start, quoted=True)))
        keys = tuple(dict.fromkeys(self._keys.values()))
        for argument, column in self._arguments.items():
            items.append(SelectItem(argument, Word(column, argument.start, quoted=True)))
        rows = compile_rows(
            replace(query, select=tuple(items), where=self._where, group_by=(), having=None, supergroups=None)
        )
        below = rows.node(None)
        self._columns = {column.name: column for column in below.columns}
        self._check_time(below, keys)
        self._check_weight()
        supergroup = tuple(self._bind_supergroup(item) for item in clauses.items)
        bound = [self._bind("SELECT", item.expression) for item in query.select]
        names = output_names(query.sql, query.select, bound, self._names(), lambda _: None, ())
        outputs = [Output(*each) for each in zip(names, bound, strict=True)]
        having = self._bind_condition(query.having)
        when, by = self._bind_condition(clauses.when), self._bind_condition(clauses.by)
        supers = {DUE.name, *(aggregate.name for aggregate in self.aggregates.values() if aggregate.of_supergroup)}
        if when is not None and not {column.name for column in columns_of(when)} <= supers:
            assert clauses.when is not None
            expected = f"superaggregates: {', '.join(SUPERAGGREGATES)}"
            self._fail("CLEANING WHEN over a group", clauses.when.expression.start, expected)
        tickets = (
            [self._ticket_aggregate]
            if any(group_argument == self._ticket_aggregate.column for group_argument in self._group_arguments)
            else []
        )
        aggregates = (*self.aggregates.values(), *tickets)
        root = Sample(below, keys, supergroup, aggregates, when, by, having, tuple(outputs), self._functions)
        times = root.time_columns

        def node(_time: str | None) -> Node:
            return root

        return ReadableQuery(root.columns, times, node, Plan(name, query.sql, root, layer))

    @property
    def _ticket_aggregate(self) -> SampleAggregate:
        """The smallest ticket (random number) of a group's rows."""
        return SampleAggregate(".group ticket", SampleKind.MIN, Type.INT, TICKET)

    @property
    def _group_arguments(self) -> tuple[Bound | None, ...]:
        return () if self._functions is None else (self._functions.clean, self._functions.finish)

    def _check_weight(self) -> None:
        if self._functions is None or self._functions.weight is None:
            return
        kind = self._columns[self._functions.weight].type
        if kind not in (Type.INT, Type.FLOAT):
            argument = next(each for each, name in self._arguments.items() if name == self._functions.weight)
            admit = FAMILIES[self._functions.family].admit
            self._fail(f"{admit} over a value of type {kind}", argument.start, "integer or float")

    def _check_time(self, below: Node, keys: tuple[str, ...]) -> None:
        """Raise QueryError for times that cannot be the window."""
        assert isinstance(below, Apply)
        for output in below.time_outputs:
            if output.name not in keys:
                start = next(argument.start for argument, name in self._arguments.items() if name == output.name)
                self._fail("an aggregate over a time in a query that samples", start, "other columns")
            if self._functions is not None and output.source == PANE and output.length == 1:
                start = next(expression.start for expression, name in self._keys.items() if name == output.name)
                expected = "time/60 for the window, and ts % 60000000000 for the time within a minute"
                self._fail("a window for each ts in a query that samples", start, expected)
            if output.length > 1 and output.length % 10**9:
                start = next(expression.start for expression, name in self._keys.items() if name == output.name)
                self._fail(f"a window of {output.length} ns", start, "time/60 for a minute, in place of ts/60")

    def _names(self) -> dict[Bound, str]:
        """Return the names of keys and aggregates in results: `count`, `sum_len`."""
        names: dict[Bound, str] = {}
        for expression, key in self._keys.items():
            if isinstance(expression, Name):
                names[self._columns[key]] = expression.word.text
        for call, aggregate in self.aggregates.items():
            of = call.arguments[0]
            name = aggregate.kind + (f"_{of.word.text}" if isinstance(of, Name) else "")
            names[aggregate.column] = name
        return names

    def _bind_supergroup(self, item: SelectItem) -> str:
        key = self._keys.get(item.expression)
        if key is None:
            self._fail("SUPERGROUP over a value that is not a group", item.start, "items of GROUP BY")
        return key

    def _bind_condition(self, condition: Condition | None) -> Bound | None:
        if condition is None:
            return None
        clause = condition.keyword.text.upper()
        bound = self._bind(clause, condition.expression)
        if bound.type is not Type.BOOL:
            problem = f"{clause} over a value of type {bound.type}"
            self._fail(problem, condition.expression.start, "a condition, for example count(*) > 10")
        return bound

    def _bind(self, clause: str, expression: Expression) -> Bound:
        return _SampleBinder(self, self._query.sql, clause, expression, self._resolve).bind()

    def _resolve(self, word: Word, table: Word | None) -> Bound | None:
        """Return the group with a name, ignoring case."""
        for expression, key in self._keys.items():
            if isinstance(expression, Name) and expression.word.text.lower() == word.text.lower():
                return self._columns[key]
        problem = f"column '{word.text}' is neither grouped by nor inside an aggregate"
        expected = f"GROUP BY {word.text}, or an aggregate of it"
        raise QueryError(problem, self._query.sql, (table or word).start, expected)

    def key(self, expression: Expression) -> Column | None:
        """Return the column of a group."""
        name = self._keys.get(expression)
        return None if name is None else self._columns[name]

    def aggregate(self, call: Call, bind: Callable[[Expression], Bound]) -> Column:
        """Return the column of an aggregate, or of an aggregate over a supergroup."""
        known = self.aggregates.get(call)
        if known is None:
            name = call.function.text.lower()
            known = self._first_aggregate(call, bind) if name == "first" else self._row_aggregate(call)
            self.aggregates[call] = known
        return known.column

    def _row_aggregate(self, call: Call) -> SampleAggregate:
        name = call.function.text.lower()
        kind, argument = SampleKind(name.rstrip("$")), self._argument(call)
        column = None if argument is None else self._columns[self._arguments[argument]]
        value = Type.INT
        if kind not in (SampleKind.COUNT, SampleKind.GROUPS):
            assert column is not None
            assert argument is not None
            valid = (Type.INT, Type.FLOAT) if kind is SampleKind.SUM else NUMBERS
            if column.type not in valid:
                self._fail(f"{name} over a value of type {column.type}", argument.start, " or ".join(valid))
            value = column.type
        return SampleAggregate(f".aggregate {len(self.aggregates) + 1}", kind, value, column, name.endswith("$"))

    def state_call(self, call: Call, clause: str, bind: Callable[[Expression], Bound]) -> Column:
        """Return the column with the result of a function with a state."""
        name = call.function.text.lower()
        family = FAMILIES[FAMILY_OF[name]]
        clauses = _clauses_of(family, name)
        if clause not in clauses:
            self._fail(f"{name} in {clause}", call.start, f"{name} in {' or '.join(clauses)}")
        functions = self._functions
        if functions is None or functions.family != FAMILY_OF[name]:
            example = f"{family.admit}({'len, ' if family.weighted else ''}100)"
            self._fail(f"{name} without {family.admit}", call.start, f"WHERE {example}")
        known = self._state_calls.setdefault(name, call)
        if known != call:
            self._fail(f"a second {name}, with another argument", call.start, "the same argument")
        expected = 1 if name == family.due or (family.weighted and name != family.value) else 0
        if len(call.arguments) != expected or call.where is not None:
            usage = f"{name}({'count_distinct$(*)' if name == family.due else 'sum(len)' * expected})"
            self._fail(f"{name} with other arguments", call.start, usage)
        if name == family.value:
            return STATE_VALUE
        argument: Bound = bind(call.arguments[0]) if expected else self._ticket_aggregate.column
        if argument.type not in (Type.INT, Type.FLOAT):
            self._fail(f"{name} over a value of type {argument.type}", call.arguments[0].start, "integer or float")
        if name == family.due:
            supers = {aggregate.name for aggregate in self.aggregates.values() if aggregate.of_supergroup}
            if not {column.name for column in columns_of(argument)} <= supers:
                self._fail("CLEANING WHEN over a group", call.arguments[0].start, "superaggregates: count_distinct$(*)")
            self._functions = replace(functions, due=argument)
            return DUE
        if name == family.clean:
            self._functions = replace(functions, clean=argument)
        else:
            self._functions = replace(functions, finish=argument)
        return KEPT

    def _first_aggregate(self, call: Call, bind: Callable[[Expression], Bound]) -> SampleAggregate:
        if len(call.arguments) != 1 or call.where is not None:
            self._fail("first with other arguments", call.start, "first(x), without FILTER")
        bound = bind(call.arguments[0])
        supers = {aggregate.name for aggregate in self.aggregates.values() if aggregate.of_supergroup}
        if not {column.name for column in columns_of(bound)} <= supers or bound.type not in NUMBERS:
            expected = "superaggregates, for example first(count$(*) / 100)"
            self._fail("first over a value of the row", call.arguments[0].start, expected)
        return SampleAggregate(f".aggregate {len(self.aggregates) + 1}", SampleKind.FIRST, bound.type, bound)

    def _fail(self, problem: str, start: int, expected: str) -> NoReturn:
        raise QueryError(problem, self._query.sql, start, expected)


class _SampleBinder(Binder):
    """Binds expressions over groups, aggregates and superaggregates."""

    def __init__(self, compilation: _SampleCompiler, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._compilation = compilation

    def _bind(self, node: Expression, depth: int) -> Bound:
        return self._compilation.key(node) or super()._bind(node, depth)

    def _call(self, node: tree.Call, depth: int) -> Bound:
        name = node.function.text.lower()
        if name in known_aggregates() and name not in AGGREGATES:
            expected = ", ".join((*AGGREGATES, *SUPERAGGREGATES))
            self._fail(f"the aggregate {name} in a query that samples", node, expected)
        if name in FAMILY_OF:
            return self._compilation.state_call(node, self._clause, lambda argument: self._bind(argument, depth + 1))
        if name not in (*AGGREGATES, *SUPERAGGREGATES):
            return super()._call(node, depth)
        return self._compilation.aggregate(node, lambda argument: self._bind(argument, depth + 1))


def _admitting_call(condition: Expression) -> Call | None:
    """Return the call of `ssample(…)` or `ssample(…) = TRUE`."""
    if isinstance(condition, tree.Operation) and condition.op is Op.EQ and len(condition.operands) == 2:
        left, right = condition.operands
        if isinstance(right, tree.Constant) and right.kind is Kind.WORD and right.text == "TRUE":
            condition = left
    if isinstance(condition, Call):
        name = condition.function.text.lower()
        if name in FAMILY_OF and name == FAMILIES[FAMILY_OF[name]].admit:
            return condition
    return None


def _is_count(argument: Expression) -> TypeGuard[tree.Constant]:
    is_number = isinstance(argument, tree.Constant) and argument.kind is Kind.NUMBER
    return is_number and isinstance(argument, tree.Constant) and not argument.negative and argument.text.isdecimal()


def _clauses_of(family: Family, name: str) -> tuple[str, ...]:
    """Return the clauses that may contain a function."""
    if name == family.admit:
        return ("WHERE",)
    if name == family.due:
        return ("CLEANING WHEN",)
    if name == family.clean:
        return ("CLEANING BY",)
    return ("HAVING",) if name == family.finish else ("SELECT",)
