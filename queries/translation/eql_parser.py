"""Parser of EQL (Elastic's Event Query Language): event queries and sequences.

    rule      ::= event | 'sequence' (by | maxspan)* item+ ('until' item)?
    item      ::= ('[' | '![') event ']' by? runs?
    event     ::= category 'where' condition
    by        ::= 'by' field (',' field)*        maxspan ::= 'with' 'maxspan' '=' number unit
    runs      ::= 'with' 'runs' '=' number
    condition ::= and / or / not / comparison / field ':' value / field in (…) / field like … / cidrMatch(…)

`sample`, `join`, pipes and other functions are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from queries.text.errors import QueryError
from queries.translation.tree import (
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    FieldName,
    Junction,
    Membership,
    Negation,
    Operand,
    Truth,
)

_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<text>\"{3}[^\r\n]*?\"{3}|\"(?:\\.|[^"\\\r\n])*\"|'(?:\\.|[^'\\\r\n])*')
      | (?P<number>\d+\.\d+|\.\d+|\d+(?![\w.]))
      | (?P<span>\d+[a-z]+)
      | (?P<name>\?{0,1}@?[A-Za-z_][\w@]*(?:\.[A-Za-z_]\w*)*~?|`[^`\r\n]+`)
      | (?P<sign>!\[|==|!=|<=|>=|[][()=<>,:|+*/%-])""",
    re.VERBOSE | re.DOTALL,
)
_UNITS = {"ms": SECOND // 1000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND}
_COMPARISONS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_CATEGORIES = ("network", "any")
MAX_RUNS = 100
"""Maximum number of repetitions of an item."""

_NESTED = 100
"""Maximum nesting depth of parentheses."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its kind, its text, and its position in the rule."""

    kind: str
    text: str
    position: int


@dataclass(frozen=True, slots=True)
class Item:
    """An event of a sequence. `keys`: fields after `by`. `is_missing`: the event must not happen."""

    condition: Condition
    keys: tuple[FieldName, ...]
    is_missing: bool
    position: int


@dataclass(frozen=True, slots=True)
class EqlRule:
    """A rule. `is_sequence` is False for a single event. `span` is in ns; None without maxspan."""

    items: tuple[Item, ...]
    is_sequence: bool = False
    span: int | None = None
    until: Item | None = None


def parse_eql(text: str) -> EqlRule:
    """Parse a rule. Raises QueryError with the position."""
    return _Parser(text).rule()


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise QueryError(f"got {text[at]!r}", text, at, "EQL")
        if found.lastgroup != "blank":
            yield Token(str(found.lastgroup), found[0], at)
        at = found.end()
    yield Token("end", "", len(text))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: Sequence[Token] = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def rule(self) -> EqlRule:
        first = self._next
        if first.kind == "name" and first.text in ("sample", "join"):
            raise self._error(f"'{first.text}' is not supported", "sequence, or CATEGORY where CONDITION")
        if not self._take("sequence"):
            item = Item(self._event(), (), False, first.position)
            self._end()
            return EqlRule((item,))
        keys: tuple[FieldName, ...] = ()
        span = None
        while self._next.text in ("by", "with"):
            if self._next.text == "by":
                keys = self._keys()
            else:
                span = self._span()
        items: list[Item] = []
        while self._next.text in ("[", "!["):
            items += self._item(keys)
        if not items:
            raise self._error(f"got {self._shown}", "[CATEGORY where CONDITION]")
        until = self._item(keys)[0] if self._take("until") else None
        self._end()
        return EqlRule(tuple(items), True, span, until)

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    @property
    def _shown(self) -> str:
        return "the end of the rule" if self._next.kind == "end" else f"'{self._next.text}'"

    def _error(self, problem: str, expected: str) -> QueryError:
        return QueryError(problem, self._text, self._next.position, expected)

    def _take(self, text: str) -> bool:
        if self._next.text == text and self._next.kind in ("name", "sign"):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._error(f"got {self._shown}", f"'{text}'")

    def _end(self) -> None:
        if self._next.text == "|":
            raise self._error("pipes are not supported", "the rule without pipes; LIMIT and GROUP BY in SQL")
        if self._next.kind != "end":
            raise self._error(f"got {self._shown}", "the end of the rule")

    def _keys(self) -> tuple[FieldName, ...]:
        self._expect("by")
        keys = [self._field()]
        while self._take(","):
            keys.append(self._field())
        return tuple(keys)

    def _field(self) -> FieldName:
        token = self._next
        if token.kind != "name" or token.text.endswith("~"):
            raise self._error(f"got {self._shown}", "a field")
        self._at += 1
        return FieldName(token.text.strip("`").lstrip("?"), token.position)

    def _span(self) -> int:
        self._expect("with")
        if not self._take("maxspan"):
            raise self._error(f"got {self._shown}", "'maxspan'")
        if not (self._take("=") or self._take("==")):
            raise self._error(f"got {self._shown}", "'='")
        token = self._next
        found = re.fullmatch(r"(\d{1,9})([a-z]+)", token.text)
        if found is None or found[2] not in _UNITS or int(found[1]) == 0:
            raise self._error(f"got {self._shown}", f"a time such as 30s, with {', '.join(_UNITS)}")
        self._at += 1
        return int(found[1]) * _UNITS[found[2]]

    def _item(self, keys: tuple[FieldName, ...]) -> list[Item]:
        """Parse an item. With `runs`, the item is returned several times."""
        position, is_missing = self._next.position, self._next.text == "!["
        if not (self._take("[") or self._take("![")):
            raise self._error(f"got {self._shown}", "'['")
        condition = self._event()
        self._expect("]")
        own = self._keys() if self._next.text == "by" else ()
        runs = 1
        while self._next.text in ("with", "fork", "as"):
            if not self._take("with"):
                raise self._error(f"'{self._next.text}' is not supported", "the item without it")
            self._expect("runs")
            self._expect("=")
            if self._next.kind != "number" or not 1 <= float(self._next.text) <= MAX_RUNS or "." in self._next.text:
                raise self._error(f"got {self._shown}", f"a number from 1 to {MAX_RUNS}")
            runs = int(self._next.text)
            self._at += 1
        return [Item(condition, (*keys, *own), is_missing, position)] * runs

    def _event(self) -> Condition:
        token = self._next
        if token.kind == "text":
            raise self._error(f"got the event category {token.text}", " or ".join(_CATEGORIES))
        category = self._field()
        if category.name not in _CATEGORIES:
            problem = f"got the event category '{category.name}'"
            raise QueryError(problem, self._text, category.position, "network or any: rows of packets or flows")
        self._expect("where")
        return self._or()

    def _or(self) -> Condition:
        parts = [self._and()]
        while self._take("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Junction("OR", tuple(parts))

    def _and(self) -> Condition:
        parts = [self._not()]
        while self._take("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else Junction("AND", tuple(parts))

    def _not(self) -> Condition:
        negations = 0
        while self._take("not"):
            negations += 1
        condition = self._term()
        return Negation(condition) if negations % 2 else condition

    def _term(self) -> Condition:
        token = self._next
        if token.text == "(":
            begin = self._at
            self._at += 1
            self._deeper()
            condition = self._or()
            self._depth -= 1
            self._expect(")")
            if self._next.text not in (*_COMPARISONS, "=", "+", "-", "*", "/", "%"):
                return condition
            self._at = begin  # the parentheses belong to arithmetic
        if token.text in ("true", "false"):
            self._at += 1
            return Truth(token.text == "true")
        if token.kind == "name" and self._tokens[self._at + 1].text == "(" and token.text not in ("in", "like"):
            return self._function()
        return self._comparison()

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _NESTED:
            raise self._error("the parentheses are nested too deeply", f"at most {_NESTED} levels")

    def _function(self) -> Condition:
        token = self._next
        name = token.text.lower().rstrip("~")
        if name not in ("cidrmatch", "wildcard"):
            raise self._error(f"the function '{token.text}' is not supported", "cidrMatch, wildcard, or comparisons")
        self._at += 2
        field = self._field()
        values = []
        while self._take(","):
            values.append(self._constant())
        self._expect(")")
        if not values:
            raise self._error(f"'{token.text}' has no value", f"{token.text}(field, value)")
        return Membership(field, "cidr" if name == "cidrmatch" else "like", tuple(values), token.position)

    def _comparison(self) -> Condition:
        left = self._sum()
        token = self._next
        if token.text in _COMPARISONS or token.text == "=":
            self._at += 1
            return Comparison(_COMPARISONS.get(token.text, "="), left, self._sum(), token.position)
        is_negated = self._take("not")
        word = self._next.text
        if (
            isinstance(left, FieldName)
            and word in ("in", "in~", "like", "like~", ":")
            and not (is_negated and word == ":")
        ):
            self._at += 1
            many = word != ":" and self._take("(") if not word.startswith("in") else self._take("(")
            if word.startswith("in") and not many:
                raise self._error(f"got {self._shown}", "'('")
            values = [self._constant()]
            while many and self._take(","):
                values.append(self._constant())
            if many:
                self._expect(")")
            kind = "equal" if word.startswith("in") else "like"
            condition = Membership(left, kind, tuple(values), token.position)
            return Negation(condition) if is_negated else condition
        if word in ("regex", "regex~"):
            raise self._error(f"'{word}' is not supported", "==, in, like or cidrMatch")
        raise self._error(f"got {self._shown}", "a comparison such as == or in")

    def _constant(self) -> Constant:
        operand = self._sum()
        if not isinstance(operand, Constant):
            raise QueryError("got an expression", self._text, operand.position, "a number or a text")
        return operand

    def _sum(self) -> Operand:
        operand = self._product()
        while self._next.text in ("+", "-"):
            token = self._next
            self._at += 1
            operand = Arithmetic(token.text, operand, self._product(), token.position)
        return operand

    def _product(self) -> Operand:
        operand = self._atom()
        while self._next.text in ("*", "/", "%"):
            token = self._next
            self._at += 1
            operand = Arithmetic(token.text, operand, self._atom(), token.position)
        return operand

    def _atom(self) -> Operand:
        token = self._next
        if token.text == "(" and token.kind == "sign":
            self._at += 1
            self._deeper()
            operand = self._sum()
            self._depth -= 1
            self._expect(")")
            return operand
        sign = 1
        if token.kind == "sign" and token.text == "-":
            self._at += 1
            sign, token = -1, self._next
            if token.kind != "number":
                raise self._error(f"got {self._shown}", "a number")
        if token.kind == "number":
            self._at += 1
            value = float(token.text) if "." in token.text else int(token.text)
            return Constant(sign * value, token.position)
        if token.kind == "text":
            self._at += 1
            return Constant(_unquoted(token.text), token.position)
        if token.kind == "name" and token.text in ("true", "false", "null"):
            self._at += 1
            return Constant({"true": True, "false": False, "null": None}[token.text], token.position)
        if token.kind == "name" and self._tokens[self._at + 1].text == "(":
            raise self._error(f"the function '{token.text}' is not supported", "a field or a value")
        if token.kind != "name":
            raise self._error(f"got {self._shown}", "a field or a value")
        return self._field()


def _unquoted(text: str) -> str:
    if text.startswith('"""'):
        return text[3:-3]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text[1:-1])
