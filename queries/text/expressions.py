"""Parser of expressions: recursive descent, with a table of operator precedences (binding strengths).

    weakest   OR
              AND
              NOT
              = <>
              < <= > >=
              IN  BETWEEN  LIKE  IS NULL
              & | ^ << >>  ||
              + -
              * / %
    strongest ::

Operators of equal precedence associate to the left. NOT without parentheses is allowed only at the start of an operand
of AND, OR or NOT, because elsewhere a reader could not see how far it extends.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace

from lowlevel.durations import UNITS
from lowlevel.expressions.types import Op
from queries.text import dialects
from queries.text.errors import QueryError
from queries.text.lexer import Kind, Token
from queries.text.literals import duration_of
from queries.text.token_reader import TokenReader
from queries.text.tree import (
    ASSOCIATIVE,
    Between,
    Call,
    Case,
    Cast,
    Concatenation,
    Constant,
    Exists,
    Expression,
    Frame,
    FrameBound,
    In,
    IsNull,
    Length,
    Like,
    Name,
    Null,
    Operation,
    OrderItem,
    Over,
    Query,
    ScalarQuery,
    Star,
    Unary,
    Word,
)

MAX_NESTING = 20
"""Largest number of nested parentheses, calls and prefix operators."""

WITHOUT_ARGUMENT = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")
"""Window functions without an argument."""

MAX_BRANCHES = 50
"""Largest number of WHEN in a CASE. They become nested conditions."""

MAX_DEPTH = 100
"""Largest depth of an expression. It is limited because the low and the high level evaluate expressions by
recursion.
"""

OR, AND, NOT, EQUALITY, ORDER, RANGE, BITWISE, TERM, FACTOR = range(9)

STRENGTHS: dict[Op, int] = {
    Op.OR: OR,
    Op.AND: AND,
    **dict.fromkeys((Op.EQ, Op.NE), EQUALITY),
    **dict.fromkeys((Op.LT, Op.LE, Op.GT, Op.GE), ORDER),
    **dict.fromkeys((Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.SHIFT_LEFT, Op.SHIFT_RIGHT), BITWISE),
    **dict.fromkeys((Op.ADD, Op.SUB), TERM),
    **dict.fromkeys((Op.MUL, Op.DIV, Op.MOD), FACTOR),
}
"""Precedences of binary operators; the smallest binds weakest."""

FRAME_DIRECTIONS = ("PRECEDING", "FOLLOWING")

_AMOUNT = re.compile(r"\s*(\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})\s*([a-z]+)\s*", re.ASCII | re.IGNORECASE)
_BINARY = {op.value: (op, strength) for op, strength in STRENGTHS.items()}
_PREFIX = {"-": Op.NEG, "+": None, "~": Op.BIT_NOT, "NOT": Op.NOT}
_LITERALS = (Kind.NUMBER, Kind.STRING, Kind.BYTES, Kind.TIME)
_OPERAND = "a column, a literal, a function or '('"


class ExpressionParser(TokenReader):
    """Reads expressions; each method starts at the current token."""

    _in_row_pattern = False  # in MATCH_RECOGNIZE, where count(A.*) and CLASSIFIER() are valid
    _nesting = 0

    def whole_expression(self) -> Expression:
        """Read the text as one expression."""
        expression = self._expression()
        if self._token.kind is not Kind.END:
            raise self._missing_operator()
        return expression

    def _expression(self, weakest: int = OR) -> Expression:
        """Read an expression whose operators have at least the precedence `weakest`."""
        left = self._operand(weakest)
        for _ in range(MAX_DEPTH):
            keyword = self._token.keyword
            if keyword in _BINARY:
                op, strength = _BINARY[keyword]
                if strength < weakest:
                    return left
                left = Operation(op, (left, *self._right_operands(op, strength)), left.start)
            elif keyword == "||" and weakest <= BITWISE:
                left = self._concatenation(left)
            elif keyword in ("IN", "BETWEEN", "IS", "LIKE", "ILIKE", "NOT") and weakest <= RANGE:
                left = self._range(left)
            else:
                return left
        expected = "a shorter expression, or parts of it as columns of a query in FROM"
        raise QueryError(f"an expression of more than {MAX_DEPTH} levels", self._sql, left.start, expected)

    def _right_operands(self, op: Op, strength: int) -> Iterator[Expression]:
        """Read the operator and its right operand. In a chain of an associative operator, read all right operands."""
        while self._accept(op.value):
            yield self._expression(strength + 1)
            if op not in ASSOCIATIVE:
                return

    def _concatenation(self, first: Expression) -> Concatenation:
        """Read all further operands of a chain of ||."""
        operands = [first]
        while self._accept("||"):
            operands.append(self._expression(TERM))
        return Concatenation(tuple(operands), first.start)

    def _operand(self, weakest: int) -> Expression:
        """Read an operand, and the casts that follow it: `x::DOUBLE`."""
        operand = self._uncast_operand(weakest)
        while self._accept("::"):
            operand = Cast(operand, self._type(), operand.start)
        return operand

    def _type(self) -> Word:
        """Read the name of a type. DOUBLE PRECISION means DOUBLE. Sizes, as in VARCHAR(20), are ignored."""
        if self._token.kind is not Kind.WORD:
            raise self._unexpected("a type, for example INTEGER or DOUBLE")
        word = self._word()
        if word.text.upper() == "DOUBLE":
            self._accept("PRECISION")
        for length in (3, 5):
            sizes = [self._ahead(count) for count in range(length)]
            texts = [size.keyword if size.kind is not Kind.NUMBER else "0" for size in sizes]
            if texts in (["(", "0", ")"], ["(", "0", ",", "0", ")"]):
                self._at += length
                break
        return word

    def _cast(self) -> Cast:
        """Read CAST(x AS type) or TRY_CAST(x AS type)."""
        keyword = self._take()
        if not self._accept("("):
            raise self._unexpected(f"'(' after {keyword.keyword}")
        self._nest()
        operand = Null(self._take().start) if self._token.keyword == "NULL" else self._in_parentheses()
        self._parentheses += 1
        if not self._accept("AS"):
            raise self._unexpected("an operator, or AS and a type, for example CAST(x AS DOUBLE)")
        kind = self._type()
        self._parentheses -= 1
        self._close()
        self._nesting -= 1
        return Cast(operand, kind, keyword.start, keyword.keyword == "TRY_CAST")

    def _uncast_operand(self, weakest: int) -> Expression:
        token = self._token
        if token.keyword in _PREFIX:
            return self._prefix(weakest)
        if self._begins_query():
            return ScalarQuery(self._inner_query(), token.start)
        if token.keyword == "EXISTS":
            self._at += 1
            if not self._begins_query():
                raise self._unexpected("a query in parentheses after EXISTS")
            return Exists(self._inner_query(), token.start)
        if token.keyword == "(":
            self._nest()
            self._at += 1
            inner = self._in_parentheses()
            self._close()
            self._nesting -= 1
            return inner
        if token.kind in _LITERALS:
            return self._literal()
        if token.keyword == "INTERVAL":
            return self._duration()
        if token.keyword in ("TRUE", "FALSE"):
            self._at += 1
            return Constant(Kind.WORD, token.keyword, token.start)
        if token.keyword == "CASE":
            return self._case()
        if token.keyword in ("CAST", "TRY_CAST"):
            return self._cast()
        if token.keyword == "*":
            raise QueryError("'*' as an item is not supported", self._sql, token.start, "named columns, or count(*)")
        if token.keyword == "NULL":
            raise self._unexpected("IS NULL or IS NOT NULL: nothing equals NULL")
        if token.keyword == "SELECT":
            expected = "parentheses around a sub-query, or double quotes around a name"
            raise QueryError(f"got {token.name_in_messages} in {self._clause}", self._sql, token.start, expected)
        if not self._is_name(token):
            raise self._unexpected(_OPERAND)
        if self._ahead().keyword == "." and self._ahead(2).keyword == "*" and self._in_list and not self._parentheses:
            table = self._word()
            self._at += 2
            return Star(table.start, table)
        if self._in_row_pattern and token.keyword in ("FINAL", "RUNNING") and self._ahead().kind is Kind.WORD:
            return self._final_or_running()
        return self._call() if self._ahead().keyword == "(" else self._name()

    def _duration(self) -> Constant:
        """Read `INTERVAL '1' HOUR` or `INTERVAL '90 seconds'` as an integer constant, in ns."""
        start = self._take().start
        text = self._take().text if self._token.kind in (Kind.NUMBER, Kind.STRING) else ""
        if self._token.kind is Kind.WORD and self._token.text.lower() in UNITS:
            text += f" {self._take().text}"
        amount = _AMOUNT.fullmatch(text)
        if amount is None or amount[2].lower() not in UNITS:
            expected = "a length of time such as INTERVAL '1' HOUR or INTERVAL '90 seconds'"
            raise QueryError(f"got INTERVAL {text.strip() or self._token.name_in_messages}", self._sql, start, expected)
        nanoseconds = duration_of(self._sql, Length(amount[1], amount[2], start, start))
        return Constant(Kind.NUMBER, str(nanoseconds), start)

    def _begins_query(self) -> bool:
        """Return whether the current parenthesis begins a query, which may be a set operation."""
        following = self._ahead().keyword
        return self._token.keyword == "(" and (following in ("SELECT", "WITH") or self._begins_enclosed())

    def _begins_enclosed(self, *operators: str) -> bool:
        """Return whether a query in parentheses and then one of `operators` follow the current parenthesis."""
        at = self._at + 1
        while self._tokens[at].keyword == "(":
            at += 1
        if at == self._at + 1 or self._tokens[at].keyword not in ("SELECT", "WITH"):
            return False
        depth = at - self._at - 1
        while depth:
            depth += {"(": 1, ")": -1}.get(self._tokens[at].keyword, 0)
            at += 1
        return self._tokens[at].keyword in (operators or ("UNION", "INTERSECT", "EXCEPT"))

    def _inner_query(self) -> Query:
        """Read a query in parentheses.

        The parser of queries overrides this; a single expression cannot contain a query.
        """
        self._at += 1
        raise self._unsupported("a sub-query here", self._token)

    def _prefix(self, weakest: int) -> Expression:
        token = self._token
        op = _PREFIX[token.keyword]
        self._nest()
        if op is Op.NOT and weakest > NOT:
            raise self._unexpected("parentheses around NOT … here")
        self._at += 1
        if op is Op.NEG and self._token.kind is Kind.NUMBER:
            operand: Expression = self._literal(token)
        else:
            operand = self._expression(NOT) if op is Op.NOT else self._operand(FACTOR)
            if op is not None:
                operand = Unary(op, operand, operand.start)
        self._nesting -= 1
        return operand

    def _literal(self, minus: Token | None = None) -> Constant:
        token = self._take()
        if token.kind is Kind.NUMBER and self._token.kind is Kind.WORD and self._token.start == token.end:
            raise QueryError(f"got '{token.text}{self._token.text}'", self._sql, token.start, "a number or a name")
        return Constant(token.kind, token.text, token.start, minus is not None, minus.start if minus else None)

    def _name(self) -> Name:
        word = self._word()
        if self._token.keyword != ".":
            return Name(word)
        self._at += 1
        if not self._is_name(self._token):
            raise self._not_a_name("the name of a column after '.'")
        column = self._word()
        if self._token.keyword == ".":
            raise self._unexpected("a column, or one stream and its column")
        return Name(column, word)

    def _final_or_running(self) -> Call:
        """Read FINAL or RUNNING, and the call after it. RUNNING is the default."""
        keyword = self._take().keyword
        call = self._call() if self._ahead().keyword == "(" else None
        if not isinstance(call, Call):
            raise self._unexpected(f"an aggregate, FIRST or LAST after {keyword}: {keyword} LAST(A.len)")
        return replace(call, is_final=keyword == "FINAL")

    def _call(self) -> Call | Over:
        function = self._word()
        self._nest()
        self._at += 1
        if function.text.lower() in dialects.STATE_FUNCTIONS and self._token.keyword == ")":
            self._close()
            self._nesting -= 1
            return Call(function, ())
        remedy = dialects.FUNCTIONS.get(function.text.lower())
        if remedy is not None and self._token.keyword in (")", "SELECT"):
            raise QueryError(f"unknown function '{function.text}'", self._sql, function.start, remedy)
        if self._in_row_pattern and self._token.keyword == ")":
            self._close()
            self._nesting -= 1
            return Call(function, ())
        if self._token.keyword == ")":
            if self._ahead().keyword != "OVER":
                ranks = function.text.lower() in WITHOUT_ARGUMENT
                raise self._unexpected("OVER after the parentheses" if ranks else "an argument")
            self._close()
            self._nesting -= 1
            return self._over(Call(function, ()))
        if self._token.keyword == "DISTINCT" and function.text.lower() == "count":
            self._at += 1
            function = Word("count_distinct", function.start)
        if self._token.keyword == "*" and self._ahead().keyword == ")":
            arguments: list[Expression] = [Star(self._take().start)]
        elif self._in_row_pattern and self._ahead().keyword == "." and self._ahead(2).keyword == "*":
            variable = self._word()
            self._at += 1
            arguments = [Star(self._take().start, variable)]
        else:
            arguments = [self._in_parentheses()]
            if function.text.lower() == "extract" and self._accept("FROM"):
                arguments = [*map(_field, arguments), self._in_parentheses()]
            while self._accept(","):
                arguments.append(self._in_parentheses())
        self._close()
        self._nesting -= 1
        call = Call(function, tuple(arguments), self._filter())
        return self._over(call) if self._token.keyword == "OVER" else call

    def _over(self, call: Call) -> Over:
        """Read OVER (PARTITION BY … ORDER BY …) after a function."""
        self._nest()
        self._at += 1
        if not self._accept("("):
            raise self._unexpected("'(' after OVER: windows have no names")
        self._parentheses += 1
        partition: list[Expression] = []
        order: tuple[OrderItem, ...] = ()
        if self._accept("PARTITION"):
            self._expect_by()
            while not partition or self._accept(","):
                partition.append(self._expression())
        if self._accept("ORDER"):
            self._expect_by()
            order = self._order_items()
        frame = self._frame() if self._token.keyword in ("ROWS", "RANGE", "GROUPS") else None
        self._parentheses -= 1
        if not self._accept(")"):
            following = ("PARTITION BY, ORDER BY", "an operator, ',', ORDER BY", "an operator, ASC, DESC, NULLS, ','")
            expected = f"{following[2 if order else bool(partition)]} or ')'"
            raise self._unexpected("')' after the frame" if frame else expected)
        self._nesting -= 1
        return Over(call, tuple(partition), order, frame)

    def _frame(self) -> Frame:
        """Read `ROWS 5 PRECEDING`, or `RANGE BETWEEN 10 seconds PRECEDING AND CURRENT ROW`."""
        keyword = self._take()
        if keyword.keyword == "GROUPS":
            raise QueryError("a frame of GROUPS in OVER", self._sql, keyword.start, "ROWS or RANGE")
        if self._accept("BETWEEN"):
            first = self._frame_bound()
            if not self._accept("AND"):
                raise self._unexpected("AND and the last row of the frame")
            last = self._frame_bound()
        else:
            first, last = self._frame_bound(), FrameBound(None, None, keyword.start)
        if self._token.keyword == "EXCLUDE":
            raise QueryError(
                "EXCLUDE in OVER", self._sql, self._token.start, "a frame with all rows between its bounds"
            )
        return Frame(keyword.keyword == "RANGE", first, last, keyword.start)

    def _frame_bound(self) -> FrameBound:
        start = self._token.start
        if self._token.keyword == "CURRENT" and self._ahead().keyword == "ROW":
            self._at += 2
            return FrameBound(None, None, start)
        distance = None if self._accept("UNBOUNDED") else self._frame_distance()
        if self._token.keyword not in FRAME_DIRECTIONS:
            raise self._unexpected("PRECEDING or FOLLOWING")
        return FrameBound(self._take().keyword, distance, start)

    def _frame_distance(self) -> Constant | Length:
        """Read a number, or a length of time: `10 seconds`, `'10 seconds'`, `INTERVAL '10' SECOND`."""
        start = self._token.start
        if self._token.kind is Kind.NUMBER and self._ahead().text.lower() not in UNITS:
            return self._literal()
        length = self._interval(FRAME_DIRECTIONS)
        if length is None:
            expected = "UNBOUNDED, CURRENT ROW, a number of rows, or a length of time such as 10 seconds"
            raise QueryError("no distance in the frame of OVER", self._sql, start, expected)
        return length

    def _interval(self, following: Collection[str]) -> Length | None:
        """Read `INTERVAL '1' MINUTE`, `INTERVAL '1 minute'`, `'1 minute'` or `1 minute` before one of `following`.

        Otherwise return None.
        """
        start, text = self._token.start, ""
        self._accept("INTERVAL")
        if self._token.kind in (Kind.NUMBER, Kind.STRING):
            text = self._take().text
        if self._token.kind is Kind.WORD and self._token.keyword not in following:
            text += f" {self._take().text}"
        amount = _AMOUNT.fullmatch(text)
        if self._token.keyword not in following or amount is None or amount[2].lower() not in UNITS:
            return None
        return Length(amount[1], amount[2], start, start)

    def _expect_by(self) -> None:
        if not self._accept("BY"):
            raise self._unexpected("BY and columns")

    def _order_items(self) -> tuple[OrderItem, ...]:
        """Read the items after ORDER BY."""
        items: list[OrderItem] = []
        while not items or self._accept(","):
            expression = self._expression()
            descending = self._accept("DESC")
            if not descending:
                self._accept("ASC")
            nulls_first = False
            if self._accept("NULLS"):
                nulls_first = self._accept("FIRST")
                if not nulls_first and not self._accept("LAST"):
                    raise self._unexpected("FIRST or LAST")
            items.append(OrderItem(expression, descending, nulls_first))
        return tuple(items)

    def _filter(self) -> Expression | None:
        """Read FILTER (WHERE condition) after an aggregate."""
        if self._token.keyword != "FILTER" or self._ahead().keyword != "(":
            return None
        self._nest()
        self._at += 2
        if not self._accept("WHERE"):
            raise self._unexpected("WHERE and a condition")
        condition = self._in_parentheses()
        self._close()
        self._nesting -= 1
        return condition

    def _case(self) -> Case:
        start = self._take().start
        self._nest()
        self._parentheses += 1
        operand = None if self._token.keyword == "WHEN" else self._expression()
        branches: list[tuple[Expression, Expression]] = []
        while not branches or self._token.keyword == "WHEN":
            if not self._accept("WHEN"):
                raise self._unexpected("WHEN and a condition")
            condition = self._expression()
            if not self._accept("THEN"):
                raise self._unexpected("an operator, or THEN and a value")
            branches.append((condition, self._expression_or_null()))
            if len(branches) > MAX_BRANCHES:
                expected = f"at most {MAX_BRANCHES} WHEN"
                raise QueryError("a CASE with too many branches", self._sql, start, expected)
        otherwise = self._expression_or_null() if self._accept("ELSE") else Null(start)
        if not self._accept("END"):
            raise self._unexpected("an operator, WHEN, ELSE or END")
        self._parentheses -= 1
        self._nesting -= 1
        return Case(operand, tuple(branches), otherwise, start)

    def _expression_or_null(self) -> Expression:
        """Read a result of CASE, an item of SELECT, or a new value of a field: an expression or NULL."""
        if self._token.keyword == "NULL":
            return Null(self._take().start)
        return self._expression()

    def _range(self, operand: Expression) -> Expression:
        """Read IN, BETWEEN, LIKE or IS NULL after its operand. NOT may precede IN, BETWEEN and LIKE."""
        start = operand.start
        negated = self._accept("NOT")
        if negated and self._token.keyword not in ("IN", "BETWEEN", "LIKE", "ILIKE"):
            raise self._unexpected("IN, BETWEEN, LIKE or ILIKE after NOT")
        keyword = self._take().keyword
        if keyword == "IS":
            negated = self._accept("NOT")
            if not self._accept("NULL"):
                problem = f"got {self._token.name_in_messages} after IS in {self._clause}"
                raise QueryError(problem, self._sql, self._token.start, "NULL or NOT NULL after IS")
            condition: Expression = IsNull(operand, start)
        elif keyword in ("LIKE", "ILIKE"):
            condition = Like(operand, self._expression(BITWISE), keyword == "ILIKE", start)
        elif keyword == "BETWEEN":
            low = self._expression(BITWISE)
            if not self._accept("AND"):
                raise self._unexpected("AND and the upper bound of BETWEEN")
            condition = Between(operand, low, self._expression(BITWISE), start)
        else:
            condition = In(operand, self._values(), start)
        return Unary(Op.NOT, condition, start) if negated else condition

    def _values(self) -> tuple[Expression, ...]:
        """Read the values after IN. A list may have 100,000 literals, so literals are read in a fast loop."""
        if self._token.kind in (Kind.STRING, Kind.QUOTED):
            return (self._operand(FACTOR),)
        if self._begins_query():
            start = self._token.start
            return (ScalarQuery(self._inner_query(), start),)
        if not self._accept("("):
            expected = "a list in parentheses, a query in parentheses, or a prefix like '10.0.0.0/8'"
            raise QueryError(
                f"got {self._token.name_in_messages} in {self._clause}", self._sql, self._token.start, expected
            )
        tokens, values = self._tokens, list[Expression]()
        while True:
            token, following = tokens[self._at], self._ahead()
            if (token.kind is Kind.STRING or token.kind is Kind.NUMBER) and following.keyword in (",", ")"):
                values.append(Constant(token.kind, token.text, token.start))
                self._at += 1
            else:
                values.append(self._in_parentheses())
            if not self._accept(","):
                break
        self._close()
        return tuple(values)

    def _in_parentheses(self) -> Expression:
        self._parentheses += 1
        expression = self._expression()
        self._parentheses -= 1
        return expression

    def _close(self) -> None:
        if not self._accept(")"):
            self._parentheses += 1
            raise self._missing_operator()

    def _nest(self) -> None:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            expected = f"at most {MAX_NESTING} levels"
            raise QueryError("an expression nested too deeply", self._sql, self._token.start, expected)


def _field(expression: Expression) -> Expression:
    """Convert the name before FROM in `extract(hour FROM ts)` to a text."""
    if isinstance(expression, Name) and expression.table is None:
        return Constant(Kind.STRING, expression.word.text, expression.start)
    return expression
