"""From sqlglot's tree of an expression to ours: names resolved, types checked, literals read.

Types do not mix, save INT with FLOAT. Each rule that is broken is a `QueryError` at the first token of the operand
that breaks it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import NoReturn

from sqlglot import exp

from lowlevel.expressions.tree import Binary, Column, Expression, IsNull, Literal, Unary
from lowlevel.expressions.types import ARITHMETIC, BITWISE, COMPARISON, INTEGERS, LOGICAL, NUMBERS, Op, Type
from queries.aggregates import (
    BOUNDED,
    INTEGERS_ALONE,
    VARIANCES,
    Aggregates,
    is_as_large_as_a_time,
    is_product_of_times,
)
from queries.comparisons import Operand, compare, member, time_literal
from queries.details import DETAILED
from queries.errors import QueryError
from queries.expression_text import expression_text
from queries.filter_joins import SEEN_WITHIN
from queries.functions import FUNCTIONS, call
from queries.grammar import Item
from queries.literals import number_literal
from queries.precedence import Tree
from queries.reserved_words import SUPPORTED
from queries.selections import SELECTED
from queries.tokens import Kind, Token
from queries.user_aggregates import DEFINED

MAX_DEPTH = 100
"""Levels of a tree, at most: both levels evaluate it by recursion."""

_BINARY: dict[type[exp.Expr], Op] = {
    exp.Add: Op.ADD,
    exp.Sub: Op.SUB,
    exp.Mul: Op.MUL,
    exp.Div: Op.DIV,
    exp.Mod: Op.MOD,
    exp.BitwiseAnd: Op.BIT_AND,
    exp.BitwiseOr: Op.BIT_OR,
    exp.BitwiseXor: Op.BIT_XOR,
    exp.BitwiseLeftShift: Op.SHIFT_LEFT,
    exp.BitwiseRightShift: Op.SHIFT_RIGHT,
    exp.EQ: Op.EQ,
    exp.NEQ: Op.NE,
    exp.LT: Op.LT,
    exp.LTE: Op.LE,
    exp.GT: Op.GT,
    exp.GTE: Op.GE,
    exp.And: Op.AND,
    exp.Or: Op.OR,
}
_UNARY: dict[type[exp.Expr], Op] = {exp.Not: Op.NOT, exp.Neg: Op.NEG, exp.BitwiseNot: Op.BIT_NOT}

MAX_CHAIN = 32
"""Operands of one operator in a row that are bound as they are written; longer chains become balanced trees."""

ASSOCIATIVE = frozenset({Op.AND, Op.OR, Op.ADD, Op.MUL, Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR})

Resolve = Callable[[Token, Token | None], Expression | None]
"""Find what a name means; the second token is the stream before its dot. None: nothing, so it may be a string."""


class Binder:
    """Binds one item of a clause.

    Without `aggregates`, aggregates are refused; `inside` resolves the names in their arguments.
    """

    def __init__(
        self,
        sql: str,
        clause: str,
        item: Item,
        resolve: Resolve,
        aggregates: Aggregates | None = None,
        inside: Resolve | None = None,
    ) -> None:
        """`clause` is the name that messages use."""
        self._sql = sql
        self._clause = clause
        self._tree = Tree(sql, item.tokens)
        self._resolve = resolve
        self._aggregates = aggregates
        self._inside = inside or resolve
        self.columns: dict[Column, Token] = {}
        """Input columns outside aggregates, with the first place of each."""

    def bind(self) -> Expression:
        """Bind the whole item."""
        return self._bind(self._tree.root, 1)

    def _bind(self, node: exp.Expr, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            problem = f"an expression of more than {MAX_DEPTH} levels"
            self._fail(problem, node, "a shorter one, or parts of it as columns of a query in FROM")
        if isinstance(node, exp.Paren):
            return self._bind(node.this, depth)
        if type(node) in _BINARY:
            return self._binary(_BINARY[type(node)], node, depth)
        if type(node) in _UNARY:
            return self._unary(_UNARY[type(node)], node, depth)
        if isinstance(node, exp.Literal | exp.Column | exp.Identifier):
            return self._leaf(node)
        if isinstance(node, exp.Between):
            operand = self._operand(node.this, depth)
            lower = compare(Op.GE, operand, self._operand(node.args["low"], depth))
            upper = compare(Op.LE, operand, self._operand(node.args["high"], depth))
            return Binary(Op.AND, lower, upper)
        if isinstance(node, exp.In):
            return self._in(node, depth)
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return IsNull(self._bind(node.this, depth + 1))
        if isinstance(node, exp.Anonymous):
            return self._call(node, depth)
        problem = f"got an expression that is not supported in {self._clause}"
        raise QueryError(problem, self._sql, self._tree.token(node).start, SUPPORTED)

    def _leaf(self, node: exp.Expr) -> Expression:
        """A name or a literal."""
        token = self._tree.token(node)
        if token.kind is Kind.NUMBER:
            return self._number(token, negated=isinstance(node.parent, exp.Neg))
        if token.kind is Kind.STRING:
            return Literal(token.text, Type.TEXT)
        if token.kind is Kind.TIME:
            return time_literal(self._sql, token)
        if token.kind is Kind.BYTES:
            return Literal(bytes.fromhex(token.text), Type.BYTES)
        if token.keyword in ("TRUE", "FALSE"):
            return Literal(token.keyword == "TRUE", Type.BOOL)
        stream = None
        if isinstance(node, exp.Column) and node.args.get("table"):
            stream, token = self._tree.token(node.args["table"]), self._tree.token(node.this)
        found = self._resolve(token, stream)
        if found is None:
            return Literal(token.text, Type.TEXT)
        if isinstance(found, Column):
            self.columns.setdefault(found, token)
        return found

    def _number(self, token: Token, negated: bool) -> Literal:
        value = number_literal(token.text, negated)
        if value is None:
            expected = "integers of 64 bits with sign, or finite decimals"
            raise QueryError(f"the number {token.text} is out of range", self._sql, token.start, expected)
        return Literal(value, Type.FLOAT if isinstance(value, float) else Type.INT)

    def _unary(self, op: Op, node: exp.Expr, depth: int) -> Expression:
        operand = self._bind(node.this, depth + 1)
        if op is Op.NOT:
            self._need((Type.BOOL,), operand, node.this, op)
        elif op is Op.NEG:
            self._need(NUMBERS, operand, node.this, op)
            if isinstance(operand, Literal) and isinstance(operand.value, int | float):
                if operand.type is Type.INT and operand.value == -(2**63):
                    self._fail("the number is out of range", node, "integers of 64 bits with sign")
                return Literal(-operand.value, operand.type)
        else:
            self._need(INTEGERS, operand, node.this, op)
        return Unary(op, operand)

    def _binary(self, op: Op, node: exp.Expr, depth: int) -> Expression:
        if op in COMPARISON:
            return compare(op, self._operand(node.this, depth), self._operand(node.expression, depth))
        chain = operands_of(node) if op in ASSOCIATIVE else []
        if len(chain) > MAX_CHAIN:
            return self._chain(op, chain, depth)
        left = self._bind(node.this, depth + 1)
        right = self._bind(node.expression, depth + 1)
        types: tuple[Type, ...] = (Type.BOOL,) if op in LOGICAL else INTEGERS
        if op in ARITHMETIC and op is not Op.MOD:
            types = NUMBERS
        self._need(types, left, node.this, op)
        self._need(types, right, node.expression, op)
        if is_product_of_times(op, left, right):
            problem = f"{expression_text(Binary(op, left, right))}, a product of times, which needs more than 64 bits"
            self._fail(problem, node.this, "floats, for example ts * 1.0 * ts, or differences of times")
        shift = op in BITWISE and op in (Op.SHIFT_LEFT, Op.SHIFT_RIGHT)
        if shift and isinstance(right, Literal) and isinstance(right.value, int) and not 0 <= right.value < 64:
            self._fail(f"got a shift by {right.value} bits", node.expression, "0 to 63")
        return Binary(op, left, right)

    def _chain(self, op: Op, nodes: Sequence[exp.Expr], depth: int) -> Expression:
        """Bind a long chain of one operator as a balanced tree, whose depth is the logarithm of its length.

        Both levels give the same value: logic is associative with NULL too, and integers wrap. Decimals round, so
        a chain with one is refused.
        """
        bound = [self._bind(each, depth + 1) for each in nodes]
        types: tuple[Type, ...] = (Type.BOOL,) if op in LOGICAL else (Type.INT,)
        for operand, node in zip(bound, nodes, strict=True):
            if operand.type is Type.FLOAT and op in ARITHMETIC:
                problem = f"a chain of {len(nodes)} decimals with {op}"
                self._fail(problem, node, f"at most {MAX_CHAIN} of them, or parentheses around parts of the chain")
            self._need(types, operand, node, op)
        while len(bound) > 1:
            pairs = [Binary(op, *bound[at : at + 2]) for at in range(0, len(bound) - 1, 2)]
            bound = [*pairs, *bound[len(pairs) * 2 :]]
        return bound[0]

    def _operand(self, node: exp.Expr, depth: int) -> Operand:
        plain = isinstance(node, exp.Column) and not node.args.get("table")
        return Operand(self._sql, self._tree.token(node), self._bind(node, depth + 1), plain)

    def _in(self, node: exp.In, depth: int) -> Expression:
        nodes = [node.args["field"]] if node.args.get("field") is not None else node.expressions
        constants = self._tree.constants(nodes)
        if constants is None:
            return member(self._operand(node.this, depth), [self._operand(value, depth) for value in nodes])
        operands: list[Operand] = []
        sign = None
        for token in constants:
            if token.keyword == "-":
                sign = token
                continue
            literal = (
                self._number(token, negated=sign is not None)
                if token.kind is Kind.NUMBER
                else Literal(token.text, Type.TEXT)
            )
            if sign is not None:
                assert isinstance(literal.value, int | float)
                literal = Literal(-literal.value, literal.type)
            operands.append(Operand(self._sql, sign or token, literal, False))
            sign = None
        return member(self._operand(node.this, depth), operands)

    def _call(self, node: exp.Anonymous, depth: int) -> Expression:
        name_token = self._tree.token(node)
        name = name_token.text.lower()
        if name == SEEN_WITHIN and self._clause != "WHERE":
            self._fail(f"{name} in {self._clause}", node, "it in WHERE, of rows as they come from a link")
        if name in FUNCTIONS:
            return call(self._sql, name_token, [self._operand(each, depth) for each in node.expressions])
        if self._is_selection(name, node):
            return self._selection(name_token, node, depth)
        if name not in BOUNDED and name not in DETAILED and name not in DEFINED:
            choices = (*BOUNDED, *DETAILED, *SELECTED, *DEFINED, *FUNCTIONS)
            problem = f"unknown function '{name_token.text}'"
            raise QueryError(problem, self._sql, name_token.start, "an aggregate or a function", choices, name)
        if self._aggregates is None:
            self._fail(
                f"the aggregate {name} in {self._clause}",
                node,
                "aggregates in SELECT and HAVING only, not within each other",
            )
        if name in DETAILED:
            inner = self._argument_binder(name)
            operands = [inner._operand(each, depth) for each in node.expressions]
            return self._aggregates.details.add(self._sql, name_token, operands)
        if len(node.expressions) != 1:
            self._fail(f"{name} with {len(node.expressions)} arguments", node, "one argument")
        argument = node.expressions[0]
        if isinstance(argument, exp.Star):
            if name != "count":
                self._fail(f"{name}(*)", node, f"count(*), or {name} of a number")
            return self._aggregates.add(name, None)
        inner = self._argument_binder(name)
        bound = inner._bind(argument, depth + 1)
        if name in DEFINED:
            return self._aggregates.user_columns.add(self._sql, name_token, bound, self._aggregates)
        if name != "count":
            self._need(INTEGERS if name in INTEGERS_ALONE else NUMBERS, bound, argument, name)
        if name in ("sum", *VARIANCES) and is_as_large_as_a_time(bound):
            problem = (
                "which six rows take beyond 64 bits" if name == "sum" else "whose squares are beyond what floats tell"
            )
            self._fail(f"{name}({expression_text(bound)}), {problem}", argument, "min, max or avg of it")
        return self._aggregates.add(name, bound)

    def _is_selection(self, name: str, node: exp.Anonymous) -> bool:
        """Whether a call compares the groups of a window; `top(x, 3)` tells of values, and `top(3, x)` of groups."""
        return name in SELECTED and (name not in DETAILED or isinstance(node.expressions[0], exp.Literal))

    def _selection(self, name: Token, node: exp.Anonymous, depth: int) -> Expression:
        if self._aggregates is None or self._clause != "HAVING":
            self._fail(f"{name.text.lower()} of groups in {self._clause}", node, "it in HAVING, of groups of a window")
        operands = [self._operand(each, depth) for each in node.expressions]
        return self._aggregates.selections.add(self._sql, name, operands, self._aggregates.add("count", None))

    def _argument_binder(self, function: str) -> Binder:
        """Return a binder of the same tree for what stands in the parentheses of an aggregate."""
        inner = copy(self)
        inner._clause, inner._aggregates, inner._resolve = f"the argument of {function}", None, self._inside
        inner.columns = {}
        return inner

    def _need(self, types: Sequence[Type], operand: Expression, node: exp.Expr, what: str) -> None:
        if operand.type not in types:
            self._fail(f"{what} over a value of type {operand.type}", node, " or ".join(types))

    def _fail(self, problem: str, node: exp.Expr, expected: str) -> NoReturn:
        raise QueryError(problem, self._sql, self._tree.token(node).start, expected)


def operands_of(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain such as `a OR b OR c`, which sqlglot nests to the left, from left to right."""
    operands = []
    kind = type(node)
    while type(node) is kind:
        operands.append(node.expression)
        node = node.this
    return [node, *reversed(operands)]
