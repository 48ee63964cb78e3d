"""Scripts: queries with Gigascope's blocks DEFINE and PARAM. They are converted to the text of one query.

    DEFINE { query_name 'talkers'; comment 'senders to the server'; server '10.0.0.1'; }
    PARAM { least UINT DEFAULT 100 BETWEEN 1 AND 5000; }
    SELECT srcIP, count(*) AS n FROM M [RANGE 1 minute] WHERE destIP = #server GROUP BY srcIP HAVING n >= $least;

    SELECT sum(n) AS packets FROM talkers [RANGE 1 hour]

becomes, with the value 250 of `least`

                                                        WITH talkers AS (
    SELECT srcIP, count(*) AS n FROM M [RANGE 1 minute] WHERE destIP = '10.0.0.1' GROUP BY srcIP HAVING n >= 250)

    SELECT sum(n) AS packets FROM talkers [RANGE 1 hour]

Blocks are replaced by blanks, so lines keep their numbers, and an error in the query states the line of the script.

    CREATE AUTOMATON scan ON packets (ORDER BY ts …);        becomes a query of WITH, with the name of the automaton:
    WITH scan AS (SELECT * FROM packets AUTOMATON (ORDER BY ts …))
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import pairwise

from capture.lazy_dataclasses import dataclass
from queries.text.errors import QueryError
from queries.text.lexer import RESERVED_WORDS, Kind, Token, tokenize
from queries.text.parameters import Parameter, ParameterType, literals

TYPES: dict[str, tuple[ParameterType, int | None, int | None]] = {
    "USHORT": (ParameterType.INTEGER, 0, 2**16 - 1),
    "UINT": (ParameterType.INTEGER, 0, 2**32 - 1),
    "INT": (ParameterType.INTEGER, -(2**31), 2**31 - 1),
    "ULLONG": (ParameterType.INTEGER, 0, None),
    "LLONG": (ParameterType.INTEGER, None, None),
    "FLOAT": (ParameterType.FLOAT, None, None),
    "BOOL": (ParameterType.BOOLEAN, None, None),
    "STRING": (ParameterType.TEXT, None, None),
    "V_STR": (ParameterType.TEXT, None, None),
    "IP": (ParameterType.ADDRESS, None, None),
    "IPV6": (ParameterType.ADDRESS, None, None),
    "PREFIX": (ParameterType.PREFIX, None, None),
    "DURATION": (ParameterType.DURATION, None, None),
    "WINDOW": (ParameterType.WINDOW, None, None),
}
"""Types in PARAM with their ranges: Gigascope's types, and three types for ready queries. Integers have 64 bits."""

NAME_PROPERTY = "query_name"
TEXT_PROPERTIES = ("comment", "title", "namespace")
TUNING_PROPERTIES = (
    *("real_time", "aggregate_slots", "slow_flush", "select_lfta", "max_lfta_disorder", "max_hfta_disorder"),
    *("algorithm", "num_bloom", "bloom_size", "reusable", "visibility", "print_warnings", "liveness_timeout"),
)
"""Properties that tune Gigascope. They never change its results, and have no effect here."""

REFUSED_PROPERTIES = {
    "lfta_aggregation": "no such property: `wiretide capture` runs the low level of queries in a separate process"
}
PROPERTIES = (NAME_PROPERTY, *TEXT_PROPERTIES, *TUNING_PROPERTIES)

_NUMBERS = (ParameterType.INTEGER, ParameterType.FLOAT)


def expand(sql: str, values: Mapping[str, object] | None = None) -> str:
    """Convert a script to the text of one query: its last query, which may read the other queries by name.

    `values`: the values of parameters by name; case does not matter. Raises QueryError for a wrong block, and for a
    wrong or missing value of a parameter.
    """
    return _ScriptParser(sql).expand(values or {})


def declared_parameters(sql: str) -> list[str]:
    """Return the names of the parameters of a script, in lower case. Raises QueryError for a wrong block."""
    parser = _ScriptParser(sql)
    parser.statements()
    return [parameter.name for parameter in parser.parameters]


@dataclass
class _Statement:
    """One query of a script: its first token, its end, its name, and the constants in its DEFINE with their values."""

    first: Token
    end: Token
    name: Token | None
    constants: dict[str, tuple[Token, Token]]
    used_constants: set[str] = field(default_factory=set)


class _ScriptParser:
    """Reads the blocks of a script, and collects the changes that convert the script to one query."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._tokens = tokenize(sql)
        self._at = 0
        self.parameters: list[Parameter] = []
        self._changes: list[tuple[int, int, str]] = []

    def expand(self, values: Mapping[str, object]) -> str:
        """Return the text of the query."""
        statements = self.statements()
        known = {parameter.name for parameter in self.parameters}
        # Keep the case of an unknown name for the error message.
        given = {name.lower() if name.lower() in known else name: value for name, value in values.items()}
        one_line = " ".join(self._sql.split())
        texts = literals(self.parameters, given, one_line) if values or self.parameters else {}
        for statement in statements:
            self._replace_names(statement, texts)
        self._join(statements)
        return self._apply_changes()

    def statements(self) -> list[_Statement]:
        """Read all queries and their blocks."""
        statements = [self._statement()]
        while self._token.kind is not Kind.END:
            statements.append(self._statement())
        return statements

    # --- reading ---

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._token
        self._at += token.kind is not Kind.END
        return token

    def _accept(self, keyword: str) -> bool:
        accepted = self._token.keyword == keyword
        self._at += accepted
        return accepted

    def _error(
        self, token: Token, problem: str, expected: str, choices: Sequence[str] = (), got: str = ""
    ) -> QueryError:
        return QueryError(problem, self._sql, token.start, expected, choices, got)

    def _got(self, expected: str, choices: Sequence[str] = ()) -> QueryError:
        return self._error(self._token, f"got {self._token.name_in_messages}", expected, choices, self._token.text)

    def _statement(self) -> _Statement:
        """Read the blocks before a query, and the query up to its semicolon."""
        properties: dict[str, tuple[Token, Token]] = {}
        while self._tokens[min(self._at + 1, len(self._tokens) - 1)].keyword == "{":
            start = self._token.start
            match self._token.keyword:
                case "DEFINE":
                    self._define(properties)
                case "PARAM":
                    self._param()
                case _:
                    raise self._got("DEFINE or PARAM before '{'", ("DEFINE", "PARAM"))
            self._blank(start, self._tokens[self._at - 1].end)
        first = self._token
        if first.kind is Kind.END or first.keyword == ";":
            raise self._got("a query after the blocks")
        created = self._creation() if first.keyword == "CREATE" else None
        while self._token.keyword != ";" and self._token.kind is not Kind.END:
            if self._token.keyword == "{" and not self._is_quantifier():
                raise self._got("a query without '{': DEFINE and PARAM are before SELECT")
            self._at += 1
        end = self._take()
        if created is not None:
            self._place_automaton(first, created, end)
            if NAME_PROPERTY in properties:
                raise self._error(
                    properties[NAME_PROPERTY][0], "query_name before CREATE", "one name: that after AUTOMATON"
                )
            if self._token.kind is Kind.END:
                raise self._got(f"a query after CREATE AUTOMATON: SELECT * FROM {created.text}")
            properties[NAME_PROPERTY] = created, created
        name = properties[NAME_PROPERTY][1] if NAME_PROPERTY in properties else None
        constants = {key: tokens for key, tokens in properties.items() if key not in PROPERTIES}
        return _Statement(first, end, name, constants)

    def _creation(self) -> Token:
        """Read `CREATE AUTOMATON name ON`. Return the name."""
        self._at += 1
        if not self._accept("AUTOMATON"):
            raise self._got("AUTOMATON: other tables are created by queries with a name, WITH name AS (SELECT …)")
        name = self._take()
        if name.kind not in (Kind.WORD, Kind.QUOTED):
            raise self._error(name, f"got {name.name_in_messages}", "the name of the automaton")
        self._check_name(name)
        if not self._accept("ON"):
            raise self._got(f"ON and its rows: CREATE AUTOMATON {name.text} ON packets (ORDER BY ts …)")
        return name

    def _place_automaton(self, first: Token, name: Token, end: Token) -> None:
        """Replace the words around the rows and the automaton of CREATE AUTOMATON."""
        tokens = [token for token in self._tokens if name.end <= token.start < end.start]
        depth, at = 0, len(tokens) - 1
        while at > 0:
            depth += (tokens[at].keyword == ")") - (tokens[at].keyword == "(")
            if depth == 0:
                break
            at -= 1
        if at <= 1 or tokens[-1].keyword != ")":
            expected = f"the automaton after its rows: CREATE AUTOMATON {name.text} ON packets (ORDER BY …)"
            raise self._error(end, f"got {end.name_in_messages}", expected)
        on = tokens[0]
        self._changes.append((first.start, on.end, "SELECT * FROM" + "\n" * self._sql.count("\n", first.start, on.end)))
        self._changes.append((tokens[at].start, tokens[at].start, "AUTOMATON "))

    def _is_quantifier(self) -> bool:
        """Return whether the current '{' belongs to a row pattern: `{2,3}` or `{-`."""
        following = self._tokens[self._at + 1]
        return following.kind is Kind.NUMBER or following.keyword in (",", "-")

    def _open_block(self) -> None:
        self._at += 1
        if not self._accept("{"):
            raise self._got("'{'")

    def _define(self, properties: dict[str, tuple[Token, Token]]) -> None:
        self._open_block()
        while not self._accept("}"):
            name = self._token
            if name.keyword == "PARAM":
                self._param()
                self._accept(";")
                continue
            if name.kind is not Kind.WORD:
                raise self._got("a property such as query_name, or '}'", PROPERTIES)
            self._at += 1
            key = name.text.lower()
            if key in REFUSED_PROPERTIES:
                raise self._error(name, f"the property {name.text}", REFUSED_PROPERTIES[key])
            if key in properties:
                raise self._error(name, f"{name.text} is given twice", "each property once")
            value = self._token
            if value.kind not in (Kind.STRING, Kind.QUOTED, Kind.NUMBER):
                raise self._got(f"the value of {name.text} in quotes")
            properties[key] = name, value
            self._at += 1
            self._end_of_entry("a property")
        if NAME_PROPERTY in properties:
            self._check_name(properties[NAME_PROPERTY][1])

    def _end_of_entry(self, entry: str) -> None:
        if not self._accept(";") and self._token.keyword != "}":
            raise self._got(f"';' after {entry}")

    def _check_name(self, name: Token) -> None:
        if not name.text.strip() or not name.text.isprintable():
            raise self._error(name, f"got the query_name {name.name_in_messages}", "a name such as 'talkers'")

    def _param(self) -> None:
        self._open_block()
        while not self._accept("}"):
            name = self._token
            if name.kind is not Kind.WORD:
                raise self._got("the name of a parameter, or '}'")
            self._at += 1
            type_ = self._token
            if type_.keyword not in TYPES:
                problem = f"got {type_.name_in_messages} as the type of {name.text}"
                raise self._error(type_, problem, "a type", tuple(TYPES), type_.text)
            self._at += 1
            parameter = self._parameter(name, type_)
            known = next((other for other in self.parameters if other.name == parameter.name), None)
            if known is None:
                self.parameters.append(parameter)
            elif known != parameter:
                expected = "the same type, default and bounds in all queries of a script"
                raise self._error(name, f"a second parameter {name.text}", expected)
            self._end_of_entry("a parameter")

    def _parameter(self, name: Token, type_: Token) -> Parameter:
        """Read the default and the bounds of a parameter."""
        kind, low, high = TYPES[type_.keyword]
        default: str | None = None
        start = self._token
        if self._accept("DEFAULT"):
            start = self._token
            default = self._value()
        minimum: int | float | None = low
        maximum: int | float | None = high
        if self._token.keyword == "BETWEEN":
            if kind not in _NUMBERS:
                raise self._error(self._token, f"bounds of {name.text}", "no bounds: only numbers have bounds")
            unbounded = Parameter(name.text.lower(), kind, None, "", low, high)
            self._at += 1
            minimum = self._bound(unbounded)
            if not self._accept("AND"):
                raise self._got("AND and the upper bound")
            at = self._token
            maximum = self._bound(unbounded)
            if minimum > maximum:
                raise self._error(at, f"got bounds from {minimum} to {maximum}", "the smaller bound first")
        parameter = Parameter(name.text.lower(), kind, None, "", minimum, maximum)
        if default is None:
            return parameter
        self._check_value(parameter, default, start, "the default")
        return Parameter(parameter.name, kind, default, "", minimum, maximum)

    def _value(self) -> str:
        """Read a value in PARAM: a string, or all words up to the next keyword or the end of the entry."""
        first = self._token
        while self._token.kind is not Kind.END and self._token.keyword not in (";", "}", "{", "BETWEEN", "AND"):
            self._at += 1
        last = self._tokens[self._at - 1]
        if self._tokens[self._at] is first:
            raise self._got("a value")
        if first is last and first.kind in (Kind.STRING, Kind.QUOTED):
            return first.text
        return self._sql[first.start : last.end]

    def _bound(self, parameter: Parameter) -> int | float:
        start = self._token
        value = self._value()
        self._check_value(parameter, value, start, "a bound")
        return float(value) if parameter.type is ParameterType.FLOAT else int(value)

    def _check_value(self, parameter: Parameter, value: str, token: Token, role: str) -> None:
        try:
            parameter.literal(value)
        except ValueError as error:
            problem = f"got {value!r} as {role} of {parameter.name}" + (f": {error}" if str(error) else "")
            raise self._error(token, problem, parameter.expected) from None

    # --- the text of one query ---

    def _blank(self, start: int, end: int) -> None:
        self._changes.append((start, end, re.sub(r"[^\n]", " ", self._sql[start:end])))

    def _replace_names(self, statement: _Statement, texts: Mapping[str, str]) -> None:
        """Replace `$name` and `#name` in a query by literals. Raises QueryError for other names."""
        for token in self._tokens:
            if not statement.first.start <= token.start < statement.end.start:
                continue
            name = token.text[1:].lower()
            if token.kind is Kind.PARAMETER:
                if name not in texts:
                    expected = f"a parameter, such as PARAM {{ {name} UINT DEFAULT 100; }} before the query"
                    choices = [f"${parameter.name}" for parameter in self.parameters]
                    raise self._error(
                        token, f"unknown parameter {token.name_in_messages}", expected, choices, token.text
                    )
                text = texts[name]
                self._changes.append((token.start, token.end, " " + text if text.startswith("-") else text))
            elif token.kind is Kind.CONSTANT:
                if name not in statement.constants:
                    expected = f"a constant, such as DEFINE {{ {name} 'text'; }} before the query"
                    choices = [f"#{constant}" for constant in statement.constants]
                    raise self._error(
                        token, f"unknown constant {token.name_in_messages}", expected, choices, token.text
                    )
                statement.used_constants.add(name)
                quoted = statement.constants[name][1].text.replace("'", "''")
                self._changes.append((token.start, token.end, f"'{quoted}'"))
        for name, (word, _) in statement.constants.items():
            if name not in statement.used_constants:
                expected = f"a property, or a constant that the query uses as #{name}"
                raise self._error(word, f"unknown property {name!r}", expected, PROPERTIES, name)

    def _join(self, statements: Sequence[_Statement]) -> None:
        """Move all queries except the last into WITH.

        Raises QueryError for a query without a name, and for an unused query.
        """
        for number, (statement, following) in enumerate(pairwise(statements)):
            if statement.name is None:
                expected = "DEFINE { query_name 'name'; } before every query except the last"
                raise self._error(statement.first, "a query without a name", expected)
            name = statement.name.text
            later = (token for token in self._tokens if token.start >= following.first.start)
            words = {token.text.lower() for token in later if token.kind in (Kind.WORD, Kind.QUOTED)}
            if name.lower() not in words:
                expected = f"a later query with FROM {name}: only the last query is answered"
                raise self._error(statement.name, f"no query reads {name!r}", expected)
            plain = name.isascii() and name.isidentifier() and name.upper() not in RESERVED_WORDS
            query_name = name if plain else '"' + name.replace('"', '""') + '"'
            index = self._tokens.index(statement.first)
            start = self._tokens[index - 1].end if index else 0
            self._changes.append((start, start, f"{', ' if number else 'WITH '}{query_name} AS ("))
            self._changes.append((statement.end.start, statement.end.end, ")"))
        last = statements[-1]
        if len(statements) > 1 and last.first.keyword == "WITH":
            self._changes.append((last.first.start, last.first.end, ","))

    def _apply_changes(self) -> str:
        parts, position = [], 0
        for start, end, text in sorted(self._changes, key=lambda change: change[:2]):
            parts += [self._sql[position:start], text]
            position = end
        return "".join([*parts, self._sql[position:]])
