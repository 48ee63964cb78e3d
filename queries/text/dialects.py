"""Hints in error messages: what to write in GSQL for constructs of other SQL dialects, and for misspelt keywords."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

OPERATORS: Mapping[str, str] = {
    "==": "= for equal values",
    "&&": "AND between conditions",
    "<=>": "=, or IS NULL",
    "=<": "<=",
    "=>": ">=",
    "!<": ">=",
    "!>": "<=",
    "**": "a product: x * x",
    "//": "/, which divides integers to an integer, or -- before a comment",
}
"""Operators of other languages, which the lexer reads as two symbols, and what to write for each."""

_CHARACTERS: Mapping[str, str] = {
    "`": 'double quotes around a name: "srcIP"',
    "!": "NOT before a condition, or <> between values",
    "#": "-- before a comment",
    "@": "SQL; `wiretide queries NAME` prints the SQL of a ready query, and `wiretide query` accepts @NAME",
    "≠": "<>",
    "≤": "<=",
    "≥": ">=",
    "×": "*",
    "÷": "/",
    **dict.fromkeys("‐‑‒–—−", "-, the minus of ASCII"),
    **dict.fromkeys("‚‛„‟«»´", "single quotes around a text, double quotes around a name"),
}

WORDS: Mapping[str, str] = {
    "TOP": "LIMIT and a number at the end of the query",
    "FETCH": "LIMIT and a number",
    **dict.fromkeys(("INTERSECT", "EXCEPT"), "a query before and after it: SELECT … EXCEPT SELECT …"),
    "QUALIFY": "WHERE in a query over the query: SELECT … FROM (SELECT …, rank() OVER (…) AS place …) WHERE place < 4",
    "WINDOW": "[RANGE 1 minute] after the streams; after OVER the window itself: OVER (ORDER BY …)",
    "REGEXP": "matches(x, 'regular expression')",
    "RLIKE": "matches(x, 'regular expression')",
    "SIMILAR": "matches(x, 'regular expression')",
    "GLOB": "LIKE with % and _, or matches(x, 'regular expression')",
    "ESCAPE": r"\ before % or _",
    "DIV": "/, which divides integers to an integer",
    "FILTER": "parentheses: FILTER (WHERE …)",
    "WITHIN": "quantile(x, 0.5)",
    "IGNORE": "no IGNORE NULLS; a query over only the rows that are not NULL",
    "TABLESAMPLE": "LIMIT and a number",
    "SORT": "ORDER BY",
    "MINUS": "EXCEPT",
    "RECURSIVE": "WITH and queries that read only earlier queries",
    "NATURAL": "JOIN … USING (the names of columns)",
    "CROSS": "JOIN with ON",
    "ASOF": "JOIN with ON; the windows of the two tables limit the distance in time of their rows",
    "LATERAL": "a query of WITH, or a join",
    "STRAIGHT_JOIN": "JOIN",
}
"""Words of other dialects that are not reserved in GSQL, and what to write for each."""

BEFORE_ITEMS: Mapping[str, str] = {
    "TOP": WORDS["TOP"],
    "ALL": "SELECT without ALL",
    "UNIQUE": "DISTINCT",
    "ON": "DISTINCT without ON; GROUP BY and first(x) return one row for each group",
}
"""Words of other dialects between SELECT and the first item, and what to write for each."""

JOIN_KINDS = ("NATURAL", "CROSS", "ASOF")
"""Words before JOIN that GSQL does not support."""

STATEMENTS: Mapping[str, str] = {
    "EXPLAIN": "SELECT; the command `wiretide explain` shows the plan of a query",
    "DESCRIBE": "SELECT; the command `wiretide explain` shows the columns of a result",
    "SHOW": "SELECT; the command `wiretide queries` lists the ready queries",
}

_CLOCK = "a time such as '2016-08-02T02:19:00Z': a query over files has no current time"
_CASE = "CASE WHEN condition THEN x ELSE y END"
_WINDOW = "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), or [RANGE 1 minute] after the streams"
_LIST = "a list of constants after IN: x IN (1, 2), or a sub-query"

CLOCKS = ("now", "current_timestamp", "current_date", "current_time", "localtimestamp", "sysdate", "getdate")
"""Functions and words that mean the current time."""

STATE_FUNCTIONS = (
    *("ssample", "ssdo_clean", "ssclean_with", "ssfinal_clean", "ssthreshold"),
    *("rsample", "rsdo_clean", "rsclean_with", "rsfinal_clean"),
)
"""Functions with a state, which only queries with the sampling operator have."""

FUNCTIONS: Mapping[str, str] = {
    **dict.fromkeys(CLOCKS, _CLOCK),
    **dict.fromkeys(("if", "iff", "iif", "decode"), _CASE),
    **dict.fromkeys(("count$", "sum$", "min$", "max$", "count_distinct$"), "SUPERGROUP or CLEANING WHEN in the query"),
    **dict.fromkeys(STATE_FUNCTIONS, "SUPERGROUP or CLEANING WHEN in the query"),
    **dict.fromkeys(("ifnull", "nvl", "isnull"), "coalesce(x, y)"),
    **dict.fromkeys(("regexp_matches", "regexp_like", "regexp", "rlike"), "matches(x, 'regular expression')"),
    **dict.fromkeys(("percentile", "percentile_cont", "percentile_disc"), "quantile(x, 0.99)"),
    **dict.fromkeys(("count_if", "countif"), "count(*) FILTER (WHERE condition)"),
    **dict.fromkeys(("sum_if", "sumif"), "sum(x) FILTER (WHERE condition)"),
    **dict.fromkeys(("time_bucket", "time_slice", "date_bin", "bin"), _WINDOW),
    **dict.fromkeys(("any", "some", "all"), _LIST),
    **dict.fromkeys(("hour", "minute", "second", "dayofweek"), "extract(hour FROM ts)"),
    **dict.fromkeys(("date_part", "datepart"), "extract(hour FROM ts)"),
    **dict.fromkeys(("network", "netmask", "subnet"), "mask(ip, 24), or mask(ip, 24, 64) for IPv4 and IPv6"),
    "pair": "least(srcIP, destIP) and greatest(srcIP, destIP), which are equal in both directions",
    **dict.fromkeys(("vendor", "oui"), "mac_vendor(srcMAC, 'file')"),
    **dict.fromkeys(("array_agg", "string_agg", "group_concat", "listagg"), "top(x, 10), or the values as rows"),
    **dict.fromkeys(("rand", "random"), "an expression over columns: equal inputs have equal results"),
    "mean": "avg(x)",
    "grouping": "grouping(x) of a column in ROLLUP, CUBE or GROUPING SETS",
    "ntile": "a rank divided by the number of rows: rank() OVER (…) * 4 / count(*) OVER ()",
}
"""Functions of other dialects by their names in lower case, and what to write for each."""

COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(("bytes", "size", "octets", "frame_len"), "len"),
    **dict.fromkeys(("timestamp", "datetime", "frame_time"), "ts"),
    **dict.fromkeys(("src", "saddr", "sip", "source", "client"), "srcIP"),
    **dict.fromkeys(("dst", "daddr", "dip", "dest", "destination", "server"), "destIP"),
    **dict.fromkeys(("port", "dport", "dst_port"), "destPort"),
    "flags": "tcp_flags",
}
"""The GSQL columns for column names of other tools."""

KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "JOIN", "USING", "WITH"),
    *("DISTINCT", "BETWEEN", "LIKE", "AND", "CASE", "WHEN", "THEN", "ELSE", "OVER", "PARTITION", "NULLS", "DESC"),
)
"""Keywords that are often misspelt."""


def misspelt_keyword(word: str) -> str | None:
    """Return the keyword that differs from a word (in capitals) by one letter, or by two letters that are exchanged.

    >>> misspelt_keyword("WERE"), misspelt_keyword("FORM"), misspelt_keyword("LINK")
    ('WHERE', 'FROM', None)
    """
    keyword = next((keyword for keyword in KEYWORDS if _differs_by_one(word, keyword)), None)
    return f"{keyword} BY" if keyword in ("GROUP", "ORDER", "PARTITION") else keyword


def _differs_by_one(word: str, keyword: str) -> bool:
    if word == keyword or abs(len(word) - len(keyword)) > 1:
        return False
    first = next((at for at, (one, other) in enumerate(zip(word, keyword, strict=False)) if one != other), None)
    if first is None:
        return len(keyword) > 3
    one, other = word[first:], keyword[first:]
    if one[1::-1] + one[2:] == other and len(one) > 1:
        return True
    return len(keyword) > 3 and (one[1:] == other or one == other[1:] or one[1:] == other[1:])


def instead_of_character(character: str) -> str:
    """Return the hint for a character with which no token begins.

    >>> instead_of_character("（")
    "'(' of ASCII"
    """
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    plain = unicodedata.normalize("NFKC", character)
    if plain != character and plain.isascii() and plain.isprintable():
        return f"'{plain}' of ASCII"
    if not character.isprintable():
        return f"a query without the invisible character U+{ord(character):04X}"
    return "a word, a number, a string or an operator"
