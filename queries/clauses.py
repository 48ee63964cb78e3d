"""The clauses of a query: its tokens cut at SELECT, FROM, WHERE, GROUP BY and HAVING, with streams and window read.

The window clause stands where the papers print it: behind an item of the select list, or behind the streams of FROM.
It is taken out here, so that what is left of SELECT is plain SQL. Whatever SQL has and GSQL has not is named here, at
its place in the text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from queries.errors import QueryError
from queries.everyday_windows import cut_call, read_call
from queries.reserved_words import UNSUPPORTED, unsupported
from queries.streams import From, Streams
from queries.tokens import Kind, Token, tokenise
from queries.window_clause import WindowClause, read_window_clause

SPREADABLE = "flows"
"""The kind whose rows last from one time to another."""

CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING")


@dataclass(frozen=True, slots=True)
class Clause:
    """The tokens of one clause behind its keyword; `end` is the first token that no longer belongs to it."""

    keyword: Token
    tokens: tuple[Token, ...]
    end: Token


@dataclass(frozen=True, slots=True)
class Clauses:
    """A query cut into clauses; those that may be missing are None, and `window` is then of `WHOLE_INPUT`.

    `window_name` is the name that GROUP BY gives to the window's start, where it has a window.
    """

    sql: str
    select: Clause
    source: From
    window: WindowClause
    where: Clause | None
    group_by: Clause | None
    having: Clause | None
    window_name: Token | None = None


def read_clauses(sql: str) -> Clauses:
    """Cut `sql` into clauses. Raises `QueryError` for anything but one SELECT with its clauses in order."""
    tokens = count_distinct(_one_statement(sql, tokenise(sql)))
    cut = _cut(sql, tokens)
    if "FROM" not in cut:
        raise QueryError("the query has no FROM", sql, tokens[-1].start, "FROM and the names of streams")
    outside, windows = {}, []
    for name, clause in cut.items():
        outside[name], found = _without_window(sql, name, clause)
        windows += found
    if len(windows) > 1:
        raise QueryError("a second window clause", sql, windows[1][0].start, "one window clause for the query")
    window, window_name = WindowClause(), None
    if windows:
        window = read_window_clause(sql, windows[0][1:-1], windows[0][-1])
    group_by = outside.get("GROUP BY")
    if group_by is not None:
        others, call = cut_call(sql, group_by.tokens)
        if call:
            if windows:
                raise QueryError("a second window, in GROUP BY", sql, call[0].start, "one window for the query")
            kind, window_name = read_call(sql, call)
            window = WindowClause(kind)
            group_by = Clause(group_by.keyword, others, group_by.end) if others else None
    from_clause = outside["FROM"]
    source = Streams(sql, from_clause.tokens, from_clause.end).read()
    if window.spread is not None and source.kind != SPREADABLE:
        expected = f"it over {SPREADABLE}: a row of {source.kind} has one time, and is in the window of that"
        raise QueryError(f"SPREAD over {source.kind}", sql, window.spread.start, expected)
    return Clauses(
        sql,
        outside["SELECT"],
        source,
        window,
        outside.get("WHERE"),
        group_by,
        outside.get("HAVING"),
        window_name,
    )


def count_distinct(tokens: list[Token]) -> list[Token]:
    """Read `count(DISTINCT x)` as `count_distinct(x)`."""
    kept: list[Token] = []
    for token in tokens:
        if token.keyword == "DISTINCT" and [each.keyword for each in kept[-2:]] == ["COUNT", "("]:
            kept[-2] = replace(kept[-2], text="count_distinct")
        else:
            kept.append(token)
    return kept


def _one_statement(sql: str, tokens: list[Token]) -> list[Token]:
    """Drop one semicolon at the end; refuse another, and whatever begins with no SELECT."""
    if len(tokens) > 1 and tokens[-2].text == ";" and tokens[-2].kind is Kind.SYMBOL:
        tokens = [*tokens[:-2], Token(Kind.END, "", tokens[-2].start, tokens[-2].start)]
    for token in tokens:
        if token.keyword == ";":
            raise QueryError("several statements", sql, token.start, "one query")
    if tokens[0].keyword in UNSUPPORTED:
        raise unsupported(sql, UNSUPPORTED[tokens[0].keyword], tokens[0])
    if tokens[0].keyword != "SELECT":
        raise QueryError(f"got {tokens[0].shown}", sql, tokens[0].start, "SELECT")
    return tokens


def _cut(sql: str, tokens: list[Token]) -> dict[str, Clause]:
    """Cut at the clause keywords outside parentheses and brackets."""
    starts: list[tuple[str, int, int]] = []  # clause, first token, first token behind the keyword
    open_tokens: list[Token] = []
    for at, token in enumerate(tokens[:-1]):
        bracketed = bool(open_tokens) and open_tokens[-1].text == "["
        if token.keyword in ("(", "["):
            if token.keyword == "[" and open_tokens:
                raise QueryError(
                    "a '[' within parentheses or brackets",
                    sql,
                    token.start,
                    "the window clause behind an item or a stream",
                )
            open_tokens.append(token)
        elif token.keyword in (")", "]"):
            if not open_tokens or {"(": ")", "[": "]"}[open_tokens.pop().text] != token.text:
                raise QueryError(f"got {token.shown} that closes nothing", sql, token.start)
        elif bracketed:
            continue
        elif token.keyword in UNSUPPORTED:
            raise unsupported(sql, UNSUPPORTED[token.keyword], token)
        elif token.keyword == "SELECT" and at > 0:
            what = "a subquery" if open_tokens else "a second SELECT (UNION joins streams, not queries)"
            raise unsupported(sql, what, token)
        elif (name := _clause_name(tokens, at)) and not open_tokens:
            expected = CLAUSES[CLAUSES.index(starts[-1][0]) + 1 :] if starts else CLAUSES
            if name not in expected:
                problem = (
                    f"{name} is given twice"
                    if name in (start[0] for start in starts)
                    else f"{name} behind {starts[-1][0]}"
                )
                raise QueryError(problem, sql, token.start, "the clauses in the order " + ", ".join(CLAUSES))
            width = {"GROUP": 3 if tokens[at + 1].text == "-" else 2}.get(token.keyword, 1)
            starts.append((name, at, at + width))
    if open_tokens:
        raise QueryError(f"'{open_tokens[-1].text}' is never closed", sql, open_tokens[-1].start)
    ends = [start[1] for start in starts[1:]] + [len(tokens) - 1]
    return {
        name: Clause(tokens[first], tuple(tokens[begin:end]), tokens[end])
        for (name, first, begin), end in zip(starts, ends, strict=True)
    }


def _clause_name(tokens: list[Token], at: int) -> str | None:
    """The clause that begins at `at`, if any. GROUP-BY and GROUPBY are misprints of papers, read as meant."""
    word = tokens[at].keyword
    following = [token.keyword for token in tokens[at + 1 : at + 3]]
    if word == "GROUPBY" or (word == "GROUP" and (following[:1] == ["BY"] or following == ["-", "BY"])):
        return "GROUP BY"
    return word if word in CLAUSES else None


def _without_window(sql: str, name: str, clause: Clause) -> tuple[Clause, list[tuple[Token, ...]]]:
    """Take the window clauses out of SELECT and FROM; refuse them where no item or stream stands before them."""
    kept: list[Token] = []
    windows: list[tuple[Token, ...]] = []
    at = 0
    while at < len(clause.tokens):
        token = clause.tokens[at]
        if token.keyword != "[":
            kept.append(token)
            at += 1
            continue
        close = next(index for index in range(at, len(clause.tokens)) if clause.tokens[index].keyword == "]")
        behind = clause.tokens[close + 1].keyword if close + 1 < len(clause.tokens) else ""
        if name == "FROM" and behind == ",":
            raise unsupported(sql, "a join (streams with commas between them)", clause.tokens[close + 1])
        misplaced = name not in ("SELECT", "FROM") or not kept or kept[-1].keyword == ","
        if misplaced or (close + 1 < len(clause.tokens) and (name == "FROM" or behind not in (",", "AS"))):
            raise QueryError(
                f"a window clause within {name}",
                sql,
                token.start,
                "it behind an item of SELECT, or behind the last stream of FROM",
            )
        windows.append(clause.tokens[at : close + 1])
        at = close + 1
    return Clause(clause.keyword, tuple(kept), clause.end), windows
