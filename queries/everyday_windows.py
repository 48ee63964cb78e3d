"""Windows as other systems spell them in GROUP BY; the plans are those of the window clause.

    GROUP BY srcIP, TUMBLE(ts, INTERVAL '1' MINUTE)                  [RANGE 1 minute, SLIDE 1 minute]
    GROUP BY srcIP, HOP(ts, INTERVAL '1' MINUTE, INTERVAL '1' HOUR)  [RANGE 1 hour, SLIDE 1 minute]
    GROUP BY srcIP, SESSION(ts, INTERVAL '30' SECOND)                [SESSION 30 seconds]
    GROUP BY srcIP, ts/60 AS tb                                      [RANGE 1 minute, SLIDE 1 minute], tb its number

A length may also be written `1 minute`, `'1 minute'` or `INTERVAL '1 minute'`. `ts/60` is Gigascope's: there time
counts seconds. Here it counts nanoseconds, but nobody wants windows of 60 ns: a divisor below a million counts seconds,
and `ts/60000000000` says the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from capture.units import SECOND
from highlevel.windows.kind import AnyWindow, SessionWindow, SlidingWindow
from lowlevel.durations import UNITS
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from queries.errors import QueryError
from queries.tokens import Kind, Token, tokenise
from queries.window_clause import MAX_PANES
from queries.window_parameters import duration_of

USAGE = {
    "TUMBLE": "TUMBLE(ts, INTERVAL '1' MINUTE)",
    "HOP": "HOP(ts, INTERVAL '1' MINUTE, INTERVAL '10' MINUTE): how far windows are apart, and how long they are",
    "SESSION": "SESSION(ts, INTERVAL '30' SECOND)",
}

LEAST_NANOSECONDS = 1_000_000
"""What ts is divided by counts ns from here on, and seconds below."""

TS = Column("ts", Type.TIME)


def cut_call(sql: str, tokens: Sequence[Token]) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
    """Part the tokens of GROUP BY into (others, call): the first item that is a call of USAGE, without its commas.

    The call is empty where there is none. QueryError for a second.
    """
    items = _items(tokens)
    calls = [item for item in items if len(item) > 1 and item[0].keyword in USAGE and item[1].text == "("]
    if not calls:
        return tuple(tokens), ()
    if len(calls) > 1:
        raise QueryError("a second window in GROUP BY", sql, calls[1][0].start, "one window for the query")
    others = [item for item in items if item is not calls[0]]
    commas = [token for token in tokens if token.text == ","]
    kept: list[Token] = []
    for place, item in enumerate(others):
        kept += [commas[0], *item] if place else item
    return tuple(kept), tuple(calls[0])


def read_call(sql: str, call: Sequence[Token]) -> tuple[AnyWindow, Token | None]:
    """Read a call that `cut_call` found, with an `AS name` behind it; the name means the start of the window."""
    name = call[0].keyword
    close = next((place for place, token in enumerate(call) if token.text == ")"), None)
    arguments = _items(call[2:close]) if close is not None else []
    alias = None
    if close is None or len(arguments) != (3 if name == "HOP" else 2):
        raise QueryError(f"got {name} with other arguments", sql, call[0].start, USAGE[name])
    behind = call[close + 1 :]
    if behind:
        if len(behind) != 2 or behind[0].keyword != "AS" or behind[1].kind not in (Kind.WORD, Kind.QUOTED):
            raise QueryError(f"got {behind[0].shown} behind {name}", sql, behind[0].start, "AS and a name, or nothing")
        alias = behind[1]
    if len(arguments[0]) != 1 or arguments[0][0].text.casefold() != "ts":
        raise QueryError(f"{name} over {arguments[0][0].shown}", sql, arguments[0][0].start, "ts: windows are over it")
    lengths = [_length(sql, argument, name) for argument in arguments[1:]]
    if name == "SESSION":
        return SessionWindow(lengths[0]), alias
    window = SlidingWindow(lengths[-1], lengths[0])
    if window.range // window.pane > MAX_PANES:
        problem = f"{window.range // window.pane} panes per window"
        raise QueryError(problem, sql, call[0].start, f"at most {MAX_PANES}: one length a multiple of the other")
    return window, alias


def window_of_quotient(expression: Expression, ts: Column = TS) -> tuple[SlidingWindow, Expression] | None:
    """Return the window that GROUP BY `ts/n` means, and the number of a window in it; None for another expression.

    >>> window_of_quotient(Binary(Op.DIV, TS, Literal(60, Type.INT)))[0].range // SECOND
    60
    """
    if not isinstance(expression, Binary) or expression.op is not Op.DIV or not isinstance(expression.right, Literal):
        return None
    divisor = expression.right.value
    if not isinstance(divisor, int) or isinstance(divisor, bool) or divisor <= 0:
        return None
    if expression.left == Binary(Op.DIV, ts, Literal(SECOND, Type.INT)):
        length = divisor * SECOND
    elif expression.left == ts:
        length = divisor * SECOND if divisor < LEAST_NANOSECONDS else divisor
    else:
        return None
    number = Binary(Op.DIV, Column("window_start", Type.TIME), Literal(length, Type.INT))
    return SlidingWindow(length, length), number


def _items(tokens: Sequence[Token]) -> list[list[Token]]:
    """Cut at the commas outside parentheses."""
    items: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")") if token.kind is Kind.SYMBOL else 0
        if token.text == "," and token.kind is Kind.SYMBOL and depth == 0:
            items.append([])
        else:
            items[-1].append(token)
    return items


def _length(sql: str, argument: Sequence[Token], name: str) -> int:
    """Read a length of time, ns."""
    words = list(argument)
    if words and words[0].keyword == "INTERVAL":
        words = words[1:]
    if words and words[0].kind is Kind.STRING:
        text, place = words[0].text, words[0].start
        inside = [Token(each.kind, each.text, place, place) for each in tokenise(text)[:-1]]
        words = [*inside, *words[1:]]
    if len(words) != 2 or words[0].kind is not Kind.NUMBER or words[1].text.lower() not in UNITS:
        at = argument[0].start if argument else 0
        raise QueryError(f"got no length of time in {name}", sql, at, USAGE[name], tuple(UNITS))
    return duration_of(sql, words[0], words[1])
