"""Binder: converts the syntax tree of an expression to a typed expression. It resolves names and checks types.

Operands must have the same type, except that INT and FLOAT may be mixed. A `QueryError` points to the wrong operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import NoReturn

from highlevel.plan.answer_nodes import RowFunctionKind
from lowlevel.expressions.tree import Binary, Column, IsNull, Literal, Unary, columns_of
from lowlevel.expressions.tree import Expression as Bound
from lowlevel.expressions.types import ARITHMETIC, COMPARISON, INTEGERS, LOGICAL, NUMBERS, Op, Type
from lowlevel.expressions.user_functions import DEFINED as USER_FUNCTIONS
from queries.binding.aggregates import (
    BOUNDED_AGGREGATES,
    HOLISTIC_AGGREGATES,
    INTEGER_AGGREGATES,
    SELECTIONS,
    VALUE_AGGREGATES,
    VALUE_TYPES,
    VARIANCES,
    Aggregates,
    is_as_large_as_a_time,
    is_product_of_times,
)
from queries.binding.comparisons import Operand, compare, member, time_literal
from queries.binding.conditionals import as_number, case, filter_argument, null_operand
from queries.binding.filter_joins import SEEN_WITHIN
from queries.binding.running_aggregates import RUNNING_AGGREGATES, check_arguments
from queries.binding.user_aggregates import ARGUMENT, DEFINED
from queries.binding.window_functions import OrderKey, WindowFunctions
from queries.text import dialects, tree
from queries.text.errors import QueryError
from queries.text.expressions import MAX_DEPTH, ExpressionParser
from queries.text.lexer import Kind
from queries.text.literals import INT64_MIN, number_literal
from queries.text.printer import expression_text
from queries.text.tree import Expression, Query, Word

CONDITION_AGGREGATES = ("sum", "avg", *VARIANCES, *VALUE_AGGREGATES)
"""Aggregates that accept a condition as argument. They use 1 for TRUE and 0 for FALSE."""

MAX_CHAIN = 32
"""Largest number of operands of a chain that is nested to the left. Longer chains become balanced trees."""

NameResolver = Callable[[Word, Word | None], Bound | None]
"""A function that returns the meaning of a name, or None if the name is a string in double quotes.

The second word is the stream before the dot.
"""


class Binder:
    """Binds one expression of a clause.

    If `aggregates` is None, aggregates are errors. `resolve_in_arguments` resolves the names in their arguments. If
    `functions` is None, window functions (OVER) are errors.
    """

    def __init__(
        self,
        sql: str,
        clause: str,
        expression: Expression,
        resolve: NameResolver,
        aggregates: Aggregates | None = None,
        resolve_in_arguments: NameResolver | None = None,
        functions: WindowFunctions | None = None,
    ) -> None:
        """`clause` is the name of the clause in messages."""
        self._sql = sql
        self._clause = clause
        self._expression = expression
        self._resolve = resolve
        self._aggregates = aggregates
        self._resolve_in_arguments = resolve_in_arguments or resolve
        self._functions = functions
        self.columns: dict[Column, Word] = {}
        """Input columns outside aggregates, with the first use of each."""

    def bind(self) -> Bound:
        """Bind the whole expression."""
        return self._bind(self._expression, 1)

    def _bind(self, node: Expression, depth: int) -> Bound:
        if depth > MAX_DEPTH:
            problem = f"an expression of more than {MAX_DEPTH} levels"
            self._fail(problem, node, "a shorter expression, or parts of it as columns of a query in FROM")
        match node:
            case tree.Operation():
                bound = self._operation(node, depth)
            case tree.Unary():
                bound = self._unary(node, depth)
            case tree.Constant():
                bound = self._constant(node)
            case tree.Name():
                bound = self._name(node)
            case tree.Between():
                operand = self._operand(node.operand, depth)
                low = compare(Op.GE, operand, self._operand(node.low, depth))
                bound = Binary(Op.AND, low, compare(Op.LE, operand, self._operand(node.high, depth)))
            case tree.In():
                operands = [self._member(value, depth) for value in node.values]
                bound = member(self._operand(node.operand, depth), operands)
            case tree.Like():
                from queries.binding.patterns import like

                bound = like(node, self._operand(node.operand, depth), self._operand(node.pattern, depth))
            case tree.Cast():
                from queries.binding.scalar_functions import cast

                bound = cast(self._result(node.operand, depth), node.type, is_try=node.is_try)
            case tree.Concatenation():
                from queries.binding.scalar_functions import concatenation

                bound = concatenation([self._operand(operand, depth) for operand in node.operands])
            case tree.IsNull():
                bound = _is_null(self._bind(node.operand, depth + 1))
            case tree.Case():
                bound = self._case(node, depth)
            case tree.Null():
                if node is not self._expression or self._clause != "SELECT":
                    self._fail("got NULL", node, "NULL only as a result of CASE; x IS NULL tests for NULL")
                bound = Literal(None, Type.INT)
            case tree.Call():
                bound = self._call(node, depth)
            case tree.Over():
                bound = self._bind_over(node, depth)
            case tree.ScalarQuery() | tree.Exists():
                expected = "`wiretide query` with files as input: a sub-query outside FROM is computed first"
                self._fail(f"a sub-query in {self._clause}", node, expected)
            case tree.Star():
                self._fail("'*' as an item is not supported", node, "named columns, or count(*)")
        return bound

    def _constant(self, node: tree.Constant) -> Literal:
        if node.kind is Kind.NUMBER:
            value = number_literal(node.text, node.negative)
            if value is None:
                expected = "integers of 64 bits with sign, or finite decimals"
                self._fail(f"the number {node.text} is out of range", node, expected)
            return Literal(value, Type.FLOAT if isinstance(value, float) else Type.INT)
        if node.kind is Kind.TIME:
            return time_literal(self._sql, node.start, node.text)
        if node.kind is Kind.BYTES:
            return Literal(bytes.fromhex(node.text), Type.BYTES)
        return Literal(node.text, Type.TEXT) if node.kind is Kind.STRING else Literal(node.text == "TRUE", Type.BOOL)

    def _name(self, node: tree.Name) -> Bound:
        bound = self._resolve(node.word, node.table)
        if isinstance(bound, Column):
            self.columns.setdefault(bound, node.word)
        return Literal(node.word.text, Type.TEXT) if bound is None else bound

    def _unary(self, node: tree.Unary, depth: int) -> Bound:
        operand = self._bind(node.operand, depth + 1)
        types = {Op.NOT: (Type.BOOL,), Op.NEG: NUMBERS}.get(node.op, INTEGERS)
        self._check_type(types, operand, node.operand, "-" if node.op is Op.NEG else node.op)
        if node.op is not Op.NEG or not isinstance(operand, Literal) or not isinstance(operand.value, int | float):
            return Unary(node.op, operand)
        if operand.type is Type.INT and operand.value == INT64_MIN:
            self._fail("the number is out of range", node, "integers of 64 bits with sign")
        return Literal(-operand.value, operand.type)

    def _operation(self, node: tree.Operation, depth: int) -> Bound:
        op, operands = node.op, node.operands
        if op in COMPARISON:
            return compare(op, self._operand(operands[0], depth), self._operand(operands[1], depth))
        if len(operands) > MAX_CHAIN:
            return self._chain(op, operands, depth)
        types: tuple[Type, ...] = (Type.BOOL,) if op in LOGICAL else INTEGERS
        if op in ARITHMETIC and op is not Op.MOD:
            types = NUMBERS
        # A chain nests to the left, so its first operand is the deepest.
        bound = self._bind(operands[0], depth + len(operands) - 1)
        for number, operand in enumerate(operands[1:], 1):
            right = self._bind(operand, depth + len(operands) - number)
            self._check_type(types, bound, node, op)
            self._check_type(types, right, operand, op)
            if is_product_of_times(op, bound, right):
                product = expression_text(Binary(op, bound, right))
                problem = f"{product}, a product of times, which needs more than 64 bits"
                self._fail(problem, node, "floats, for example ts * 1.0 * ts, or differences of times")
            shift = op in (Op.SHIFT_LEFT, Op.SHIFT_RIGHT)
            if shift and isinstance(right, Literal) and isinstance(right.value, int) and not 0 <= right.value < 64:
                self._fail(f"got a shift by {right.value} bits", operand, "0 to 63")
            bound = Binary(op, bound, right)
        return bound

    def _chain(self, op: Op, operands: Sequence[Expression], depth: int) -> Bound:
        """Bind a long chain of one operator as a balanced tree, whose depth is logarithmic.

        Both trees have the same value, because AND and OR are associative even with NULL, and integer arithmetic modulo
        2**64 is associative. Sums of decimals are rounded, so a chain with a decimal is an error.
        """
        bound = [self._bind(operand, depth + 1) for operand in operands]
        types: tuple[Type, ...] = (Type.BOOL,) if op in LOGICAL else (Type.INT,)
        for value, operand in zip(bound, operands, strict=True):
            if value.type is Type.FLOAT and op in ARITHMETIC:
                problem = f"a chain of {len(operands)} decimals with {op}"
                self._fail(problem, operand, f"at most {MAX_CHAIN} of them, or parentheses around parts of the chain")
            self._check_type(types, value, operand, op)
        while len(bound) > 1:
            pairs = [Binary(op, *bound[at : at + 2]) for at in range(0, len(bound) - 1, 2)]
            bound = [*pairs, *bound[len(pairs) * 2 :]]
        return bound[0]

    def _operand(self, node: Expression, depth: int) -> Operand:
        quoted = node.word.text if isinstance(node, tree.Name) and not node.table and node.word.quoted else None
        return Operand(self._sql, node.start, self._bind(node, depth + 1), quoted)

    def _member(self, node: Expression, depth: int) -> Operand:
        """Bind a value of an IN list. Errors point at the sign of the value."""
        if not isinstance(node, tree.Constant):
            return self._operand(node, depth)
        start = node.start if node.minus is None else node.minus
        return Operand(self._sql, start, self._constant(node), None)

    def _case(self, node: tree.Case, depth: int) -> Bound:
        # Each branch becomes a conditional within the previous one.
        depth += len(node.branches)
        conditions = [self._case_condition(node.operand, condition, depth) for condition, _ in node.branches]
        results = [*(result for _, result in node.branches), node.otherwise]
        return case("CASE", conditions, [self._result(result, depth) for result in results])

    def _case_condition(self, operand: Expression | None, node: Expression, depth: int) -> Bound:
        if operand is not None:
            return compare(Op.EQ, self._operand(operand, depth), self._operand(node, depth))
        bound = self._bind(node, depth + 1)
        self._check_type((Type.BOOL,), bound, node, "WHEN")
        return bound

    def _result(self, node: Expression, depth: int) -> Operand:
        return null_operand(self._sql, node.start) if isinstance(node, tree.Null) else self._operand(node, depth)

    def _call(self, node: tree.Call, depth: int) -> Bound:
        word, arguments = node.function, node.arguments
        name = word.text.lower()
        selects = compares_groups(node)
        if node.where is not None and (selects or name not in known_aggregates()):
            self._fail(f"FILTER after {name}", node.where, "FILTER after an aggregate such as count(*)")
        if name == SEEN_WITHIN and self._clause != "WHERE":
            self._fail(f"{name} in {self._clause}", node, "the function in WHERE, over rows of a link")
        if name in USER_FUNCTIONS or not (selects or name in known_aggregates()):
            from queries.binding.functions import FUNCTIONS, call

            if name in FUNCTIONS or name in USER_FUNCTIONS:
                return call(self._sql, word, [self._operand(argument, depth) for argument in arguments])
            choices = (*known_aggregates(), *FUNCTIONS, *USER_FUNCTIONS)
            expected = dialects.FUNCTIONS.get(name, "an aggregate or a function")
            if name in set(RowFunctionKind):
                expected = f"OVER after it: {name}(…) OVER (ORDER BY …)"
            raise QueryError(f"unknown function '{word.text}'", self._sql, word.start, expected, choices, name)
        if selects:
            return self._selection(node, depth)
        if self._aggregates is None:
            expected = "aggregates in SELECT and HAVING only, not within each other"
            self._fail(f"the aggregate {name} in {self._clause}", node, expected)
        inner = self._argument_binder(name)
        if name in RUNNING_AGGREGATES:
            return self._bind_running(node, inner, depth, self._aggregates)
        if name in HOLISTIC_AGGREGATES:
            operands = [inner._operand(argument, depth) for argument in arguments]
            if node.where is not None:
                condition = inner._filter(node.where, depth)
                operands[0] = replace(operands[0], bound=filter_argument(condition, operands[0].bound))
            return self._aggregates.holistic.add(self._sql, word, operands)
        if len(arguments) != 1:
            self._fail(f"{name} with {len(arguments)} arguments", node, "one argument")
        return self._bind_bounded(name, node, inner, depth, self._aggregates)

    def _bind_running(self, node: tree.Call, inner: Binder, depth: int, aggregates: Aggregates) -> Bound:
        """Bind a running aggregate.

        It adds up the sums of single windows, so the query needs such a sum as aggregate.
        """
        name = node.function.text.lower()
        if aggregates.running is None:
            expected = f"CLOSING WHEN after GROUP BY, which ends groups: CLOSING WHEN {name}(…) = 0"
            self._fail(f"{name} without CLOSING WHEN", node, expected)
        operands = [inner._operand(argument, depth) for argument in node.arguments]
        if operands and operands[0].bound.type is Type.BOOL:
            operands[0] = replace(operands[0], bound=as_number(operands[0].bound))
        check_arguments(self._sql, node.function, operands)
        if node.where is not None:
            operands[0] = replace(
                operands[0], bound=filter_argument(inner._filter(node.where, depth), operands[0].bound)
            )
        total = aggregates.add("sum", operands[0].bound)
        return aggregates.running.add(self._sql, node.function, operands, total)

    def _bind_over(self, node: tree.Over, depth: int) -> Bound:
        """Bind a window function. Its arguments may be aggregates of the groups."""
        if self._functions is None:
            expected = "window functions in SELECT and ORDER BY only, and not within each other"
            self._fail(f"OVER in {self._clause}", node, expected)
        inner = copy(self)  # the copy shares `columns`
        inner._functions = None
        star = [isinstance(argument, tree.Star) for argument in node.call.arguments] == [True]
        arguments = None if star else [inner._operand(argument, depth + 1) for argument in node.call.arguments]
        partition = [inner._bind(key, depth + 1) for key in node.partition]
        order = [
            OrderKey(inner._bind(item.expression, depth + 1), item.descending, item.nulls_first) for item in node.order
        ]
        return self._functions.add(self._sql, node, arguments, partition, order)

    def _bind_bounded(self, name: str, node: tree.Call, inner: Binder, depth: int, aggregates: Aggregates) -> Bound:
        """Bind an aggregate whose state has a fixed size, or a user-defined aggregate."""
        argument = node.arguments[0]
        if isinstance(argument, tree.Star):
            if name != "count":
                self._fail(f"{name}(*)", node, f"count(*), or {name} of a number")
            if node.where is None:
                return aggregates.add(name, None)
            return aggregates.add(name, filter_argument(inner._filter(node.where, depth), Literal(1, Type.INT)))
        bound = inner._bind(argument, depth + 1)
        selects_condition = bound.type is Type.BOOL and name in VALUE_AGGREGATES
        if bound.type is Type.BOOL and name in (*CONDITION_AGGREGATES, *DEFINED):
            bound = as_number(bound)
        if node.where is not None:
            condition = inner._filter(node.where, depth)
            if name == "count" and bound.type is Type.BYTES:  # a conditional cannot return bytes
                condition = Binary(Op.AND, condition, Unary(Op.NOT, _is_null(bound)))
                bound = Literal(1, Type.INT)
            bound = filter_argument(condition, bound)
        if name in DEFINED:
            return self._user_aggregate(node.function, bound, aggregates)
        if name in VALUE_AGGREGATES and bound.type in (Type.ADDRESS, Type.TEXT, Type.MAC):
            return aggregates.add_non_numeric(self._sql, node.function, Operand(self._sql, argument.start, bound))
        accepted = INTEGERS if name in INTEGER_AGGREGATES else NUMBERS
        if name != "count" and bound.type not in accepted:
            self._check_type(VALUE_TYPES if name in VALUE_AGGREGATES else accepted, bound, argument, name)
        if name in ("sum", *VARIANCES) and is_as_large_as_a_time(bound):
            problem = (
                "which exceeds 64 bits after six rows"
                if name == "sum"
                else "whose squares exceed the precision of floats"
            )
            self._fail(f"{name}({expression_text(bound)}), {problem}", argument, "min, max or avg of it")
        selected = aggregates.add(name, bound)
        return Binary(Op.NE, selected, Literal(0, Type.INT)) if selects_condition else selected

    def _user_aggregate(self, word: Word, argument: Bound, aggregates: Aggregates) -> Column:
        definition, columns = DEFINED[word.text.lower()], aggregates.user_columns
        placeholder = columns.column(definition.name, argument)
        if placeholder.name in columns.uses:
            return placeholder
        try:
            parts = tuple(
                bind_part(f"the part {part} of {definition.name}", text, argument, aggregates)
                for part, text in definition.parts
            )
        except QueryError as error:
            problem = f"{placeholder.name}, of which a part is '{error.sql}': {error.message}"
            raise QueryError(problem, self._sql, word.start, error.expected) from None
        columns.add(placeholder, definition, parts)
        return placeholder

    def _selection(self, node: tree.Call, depth: int) -> Bound:
        """Bind a condition on the groups of a window."""
        if self._aggregates is None or self._clause != "HAVING":
            problem = f"{node.function.text.lower()} of groups in {self._clause}"
            self._fail(problem, node, "the condition in HAVING, over groups of a window")
        operands = [self._operand(argument, depth) for argument in node.arguments]
        return self._aggregates.selections.add(self._sql, node.function, operands, self._aggregates.add("count", None))

    def _filter(self, node: Expression, depth: int) -> Bound:
        """Bind the condition of FILTER."""
        bound = self._bind(node, depth + 1)
        self._check_type((Type.BOOL,), bound, node, "FILTER (WHERE …)")
        return bound

    def _argument_binder(self, function: str) -> Binder:
        """Return a binder for the argument of an aggregate."""
        inner = copy(self)
        inner._functions = None
        inner._clause, inner._aggregates, inner._resolve = (
            f"the argument of {function}",
            None,
            self._resolve_in_arguments,
        )
        inner.columns = {}
        return inner

    def _check_type(self, types: Sequence[Type], operand: Bound, node: Expression, what: str) -> None:
        if operand.type not in types:
            self._fail(f"{what} over a value of type {operand.type}", node, " or ".join(types))

    def _fail(self, problem: str, node: Expression, expected: str) -> NoReturn:
        raise QueryError(problem, self._sql, node.start, expected)


def _is_null(operand: Bound) -> Bound:
    """Return `operand IS NULL`. The low level does not evaluate constants of bytes."""
    constant = isinstance(operand, Literal) and operand.type is Type.BYTES
    return Literal(False, Type.BOOL) if constant else IsNull(operand)


def known_aggregates() -> tuple[str, ...]:
    """Return the names of all aggregates, including user-defined ones."""
    return (*BOUNDED_AGGREGATES, *HOLISTIC_AGGREGATES, *SELECTIONS, *RUNNING_AGGREGATES, *DEFINED)


def has_groups(query: Query) -> bool:
    """Return whether a query has groups: GROUP BY, or an aggregate in SELECT, HAVING or ORDER BY."""
    expressions = [item.expression for item in query.select]
    expressions += [] if query.order is None else [item.expression for item in query.order.items]
    expressions += [] if query.having is None else [query.having.expression]
    aggregates = {name.lower() for name in known_aggregates()}
    called = (call.function.text.lower() for expression in expressions for call in tree.calls_in(expression))
    return bool(query.group_by) or query.call is not None or any(name in aggregates for name in called)


def bind_part(clause: str, text: str, argument: Bound, aggregates: Aggregates) -> Bound:
    """Bind a part of a user-defined aggregate over its argument.

    Raises QueryError for a part that is not an aggregate of the argument. Positions of the error refer to `text`.
    """

    def resolve_argument(word: Word, stream: Word | None) -> Bound:
        if stream is None and word.text.lower() == ARGUMENT:
            return argument
        raise QueryError(f"got {word.name_in_messages}", text, word.start, f"the argument, which is called {ARGUMENT}")

    def refuse_name(word: Word, _stream: Word | None) -> NoReturn:
        expected = f"aggregates of {ARGUMENT} only, for example sum({ARGUMENT})"
        raise QueryError(f"got {word.name_in_messages}", text, word.start, expected)

    expression = ExpressionParser(text, clause).whole_expression()
    bound = Binder(text, clause, expression, refuse_name, aggregates, resolve_argument).bind()
    if not any(columns_of(bound)):
        raise QueryError("got a constant", text, 0, f"an aggregate, for example sum({ARGUMENT})")
    return bound


def compares_groups(call: tree.Call) -> bool:
    """Return whether a call is a condition on the groups of a window: heavy, or `top(3, x)`, but not `top(x, 3)`."""
    name = call.function.text.lower()
    return name in SELECTIONS and (name not in HOLISTIC_AGGREGATES or _is_literal(call.arguments[0]))


def _is_literal(node: Expression) -> bool:
    """Return whether an argument is a literal.

    `top(3, x)` compares groups, but `top(x, 3)` counts the values of one group.
    """
    return isinstance(node, tree.Constant) and not node.negative and node.kind is not Kind.WORD
