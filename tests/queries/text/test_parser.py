"""SQL text to a syntax tree.

* The round trip through a printer finds precedence, chains and clauses that the tree loses or changes. Every query of
  the tests, the catalogue and the guide is printed from its tree and parsed again.
* The positions find nodes that point at another word: errors would point there too.
* The table of malformed texts finds constructs whose error has lost its position or its advice.
* The large texts find recursion and quadratic time.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache

import pytest

from queries.catalogue.catalogue import CATALOGUE
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.expressions import ExpressionParser
from queries.text.lexer import Kind, tokenize
from queries.text.parser import parse_query
from tests.documents.blocks import GUIDE, ROOT, blocks_of, sql_statements
from tests.references.query_printer import query_text


@cache
def queries() -> tuple[str, ...]:
    """Every text in tests and documents that is a query."""
    texts = [query.sql() for query in CATALOGUE.values()]
    texts += [text for page in GUIDE.glob("*.md") for block in blocks_of(page) for text in sql_statements(block)]
    texts += [path.read_bytes().decode() for path in (ROOT / "tests/fuzz/corpus/sql").iterdir()]
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "SELECT" in node.value:
                texts.append(node.value)
    return tuple(text for text in dict.fromkeys(texts) if parses(text))


def parses(text: str) -> bool:
    try:
        parse_query(text)
    except QueryError:
        return False
    return True


def words_of(node: object) -> Iterator[tree.Word | tree.Constant | tree.Star]:
    if isinstance(node, tuple):
        for child in node:
            yield from words_of(child)
    elif isinstance(node, tree.Word | tree.Constant | tree.Star):
        yield node
    elif is_dataclass(node):
        for field in fields(node):
            yield from words_of(getattr(node, field.name))


def test_every_query_keeps_its_tree_when_it_is_printed_and_parsed_again() -> None:
    assert len(queries()) > 400
    for sql in queries():
        parsed = parse_query(sql)
        printed = query_text(parsed)
        assert parse_query(printed) == parsed, (sql, printed)
        assert hash(parse_query(printed)) == hash(parsed)


def test_every_word_and_literal_points_at_itself() -> None:
    for sql in queries():
        for node in words_of(parse_query(sql)):
            there = sql[node.start :]
            match node:
                case tree.Star():
                    assert there.startswith(("*", "MERGE", "merge", "SELECT", "select", "(")), sql
                case tree.Constant(kind=Kind.TIME):
                    assert there[:9].upper() == "TIMESTAMP", sql
                case tree.Constant(kind=Kind.NUMBER) if there[:8].upper() == "INTERVAL":
                    assert node.text.isdecimal(), sql  # a length of time in ns
                case tree.Constant(kind=Kind.STRING | Kind.QUOTED | Kind.BYTES):
                    assert there[0] in "'\"‘’“”xX", sql
                case tree.Word(text=","):
                    assert there[0] in ",:", sql
                case tree.Word(text="count_distinct"):
                    assert there[:5].lower() == "count", sql
                case tree.Word(quoted=True):
                    assert there[0] == '"', sql
                case _:
                    spelled = there.lstrip("'\"‘’“”")[: len(node.text)]
                    assert spelled.upper().replace("_", "-") == node.text.upper().replace("_", "-"), sql


def test_blanks_comments_and_redundant_parentheses_do_not_change_the_tree() -> None:
    one = parse_query("SELECT srcIP, count(*) FROM M [RANGE 1 minute] WHERE a + b * c > 5 AND NOT d = 1 GROUP BY srcIP")
    other = parse_query(
        """SELECT (srcIP), -- the source
        count ( * ) FROM (M) [RANGE 1 minute]
        WHERE /* both */ ((a + (b * c)) > 5) AND (NOT (d = 1)) GROUP BY (srcIP);"""
    )
    assert one == other
    assert hash(one) == hash(other)


SAME = [
    ("a OR b AND c", "a OR (b AND c)"),
    ("NOT a = b AND c", "(NOT (a = b)) AND c"),
    ("NOT NOT a", "NOT (NOT a)"),
    ("a = b < c", "a = (b < c)"),
    ("a & b + c", "a & (b + c)"),
    ("a | b & c", "(a | b) & c"),
    ("a << 1 | b", "(a << 1) | b"),
    ("a - b - c", "(a - b) - c"),
    ("a / b * c % d", "((a / b) * c) % d"),
    ("-a * b", "(-a) * b"),
    ("~a & b", "(~a) & b"),
    ("a + b IN (1)", "(a + b) IN (1)"),
    ("a BETWEEN b + 1 AND c & 3 OR d", "(a BETWEEN (b + 1) AND (c & 3)) OR d"),
    ("a NOT IN (1, 2)", "NOT a IN (1, 2)"),
    ("a IS NOT NULL", "NOT a IS NULL"),
    ("a <> 1", "a != 1"),
    ("+a", "a"),
    ("count(DISTINCT a)", "count_distinct(a)"),
    ("a IN '10.0.0.0/8'", "a IN ('10.0.0.0/8')"),
    ("a LIKE 'x' AND b NOT ILIKE 'y'", "(a LIKE 'x') AND (NOT (b ILIKE 'y'))"),
    ("extract(hour FROM a)", "extract('hour', a)"),
    ("CASE WHEN a THEN b END + c", "(CASE WHEN a THEN b ELSE NULL END) + c"),
    ("CASE a + b WHEN c OR d THEN e ELSE f + g END", "CASE (a + b) WHEN (c OR d) THEN e ELSE (f + g) END"),
]


@pytest.mark.parametrize("text, meaning", SAME)
def test_an_expression_is_read_with_this_precedence(text: str, meaning: str) -> None:
    assert ExpressionParser(text).whole_expression() == ExpressionParser(meaning).whole_expression()


def test_a_chain_of_one_associative_operator_is_one_operation() -> None:
    chain = ExpressionParser("a AND b AND c AND (d AND e)").whole_expression()
    assert isinstance(chain, tree.Operation)
    assert [type(operand).__name__ for operand in chain.operands] == ["Name", "Name", "Name", "Operation"]


def test_large_texts_are_parsed_without_recursion() -> None:
    values = ",".join(str(number) for number in range(100_000))
    listed = parse_query(f"SELECT len FROM M WHERE len IN ({values})").where
    assert listed is not None
    assert isinstance(listed.expression, tree.In)
    assert len(listed.expression.values) == 100_000
    terms = " OR ".join(f"len = {number} AND ttl = 1" for number in range(5_000))
    chain = parse_query(f"SELECT len FROM M WHERE {terms}").where
    assert chain is not None
    assert hash(chain) == hash(parse_query(f"SELECT len FROM M WHERE {terms}").where)
    assert parse_query("SELECT len FROM " + " UNION ".join(f"M{number}" for number in range(5_000)))
    assert parse_query(f"SELECT {'a' * 10**6} FROM M")


# SQL with « before the position of the error, then a part of the message.
MALFORMED = [
    ("«", "expected SELECT"),
    ("«(SELECT ts FROM M)", "expected SELECT"),
    ("SELECT ts FROM M «)", "without an opening bracket"),
    ("SELECT ts FROM M WHERE «(len > 5", "never closed"),
    ("SELECT ts FROM M WHERE (len > 5«]", "without an opening bracket"),
    ("SELECT ts FROM M «[RANGE 1 s", "never closed"),
    ("SELECT ts FROM M WHERE link = «“eth0", "never closed"),
    ('SELECT ts FROM «"M', "a quoted name that is never closed"),
    ("SELECT ts FROM M WHERE payload = «x'123'", "pairs of hexadecimal digits"),
    ("SELECT ts FROM M WHERE len > «1.2.3", "addresses are strings"),
    ("SELECT ts FROM M WHERE len > «#5", "got the character '#'"),
    ("SELECT ts FROM M«; SELECT ts FROM N", "several statements"),
    ("SELECT ts «WHERE len > 5 FROM M", "the query has no FROM"),
    ("SELECT ts FROM M WHERE len > 5 «FROM N", "FROM after WHERE"),
    ("SELECT ts FROM M HAVING len > 5 «GROUP BY ts", "GROUP BY after HAVING"),
    ("SELECT ts FROM M GROUP BY ts «GROUP BY len", "GROUP BY is given twice"),
    ("SELECT ts FROM M WHERE len > 5 UNION «N", "got 'N' after UNION"),
    ("SELECT ts FROM M WHERE len > 5 INTERSECT «N", "got 'N' after a set operator"),
    ("SELECT ts FROM M «SELECT ts FROM N", "a second SELECT"),
    ("SELECT ts FROM M EXCEPT ALL «N", "got 'N' after a set operator"),
    ("SELECT ts FROM M INTERSECT ALL «DISTINCT SELECT ts FROM N", "got 'DISTINCT'"),
    ("SELECT ts FROM M «ORDER BY ts UNION SELECT ts FROM N", "ORDER BY before UNION"),
    ("SELECT ts FROM M «LIMIT 5 UNION ALL SELECT ts FROM N", "LIMIT before UNION"),
    ("«(SELECT ts FROM M) ORDER BY ts", "UNION, INTERSECT or EXCEPT after ')'"),
    ("SELECT ts FROM M" + " EXCEPT SELECT ts FROM M" * 49 + " «EXCEPT SELECT ts FROM M", "at most 50 queries"),
    (
        "SELECT ts FROM M" + " UNION SELECT a FROM M UNION ALL SELECT a FROM M" * 10 + " UNION «SELECT a FROM M",
        "at most 20 levels",
    ),
    ("SELECT ts FROM M WHERE len > (SELECT len N«)", "the query has no FROM"),
    ("SELECT ts FROM M ORDER BY ts «WHERE len > 5", "WHERE after ORDER BY"),
    ("SELECT ts FROM M «FETCH FIRST 3 ROWS ONLY", "FETCH is not supported"),
    ("SELECT ts FROM M WHERE CAST(a «, INT) = 5", "expected an operator, or AS and a type"),
    ("SELECT ts FROM M WHERE CAST «a AS INT = 5", "expected '(' after CAST"),
    ("SELECT ts FROM M WHERE CAST(a AS «5) = 5", "expected a type, for example INTEGER"),
    ("SELECT a::«'int' FROM M", "expected a type, for example INTEGER"),
    ("SELECT CAST(a AS INT «UNSIGNED) FROM M", "got 'UNSIGNED'"),
    ("SELECT ts, «* FROM M", "'*' as an item"),
    ("SELECT ts ts2 «ts3 FROM M", "',' or FROM"),
    ("SELECT ts AS «where FROM M", "a name after AS"),
    ("SELECT ts AS a «b FROM M", "',' or FROM"),
    ("SELECT f(«) FROM M", "an argument"),
    ("SELECT f(a«; b) FROM M", "several statements"),
    ("SELECT f(a «b) FROM M", "an operator, '(' or ')'"),
    ("SELECT a.b«.c FROM M", "one stream and its column"),
    ("SELECT a.«from FROM M", "the name of a column after '.'"),
    ("SELECT «5x FROM M", "got '5x'"),
    ("SELECT a FROM M WHERE a = «NOT b", "parentheses around NOT"),
    ("SELECT a FROM M WHERE a NOT «= b", "IN, BETWEEN, LIKE or ILIKE after NOT"),
    ("SELECT a FROM M WHERE a IS «5", "NULL or NOT NULL"),
    ("SELECT a FROM M WHERE a BETWEEN 1 «= 2 AND 3", "the upper bound of BETWEEN"),
    ("SELECT a FROM M WHERE a IN «b", "a list in parentheses"),
    ("SELECT a FROM M WHERE a IN (1,«)", "got ')'"),
    ("SELECT a FROM M WHERE " + "(" * 20 + "«(a)" + ")" * 20, "nested too deeply"),
    ("SELECT a FROM M WHERE " + "NOT " * 20 + "«NOT a", "nested too deeply"),
    ("SELECT a FROM M WHERE " + "a = 1 AND «b" + " - b" * 101, "more than 100 levels"),
    ("SELECT a FROM " + "(" * 19 + "«(M)" + ")" * 19, "at most 20 levels"),
    ("SELECT a FROM M JOIN «WHERE a", "a stream"),
    ("SELECT a FROM M LEFT «N", "got 'N' after LEFT"),
    ("SELECT a FROM M a «c", "got 'c' after a stream"),
    ("SELECT a FROM M «[RANGE 1 s] UNION N", "after the last stream"),
    ("SELECT a FROM (MERGE a.ts «FROM a)", "the time of the next stream"),
    ("WITH a AS «SELECT ts FROM M", "AS and a query in parentheses"),
    ("WITH «select AS (SELECT ts FROM M) SELECT ts FROM M", "the name of a query"),
    ("SELECT a FROM M [«5 s]", "a window parameter"),
    ("SELECT a FROM M [RANGE «s]", "a length"),
    ("SELECT a FROM M [RANGE 5 «parsecs]", "a unit of time, or rows"),
    ("SELECT a FROM M [RANGE 5 s «RANGE 5 s]", "RANGE is given twice"),
    ("SELECT a FROM M [WA «5]", "got WA '5'"),
    ("SELECT a FROM M [PA «5]", "got PA '5'"),
    ("SELECT a FROM M [LATE «maybe]", "DROP or EMIT"),
    ("SELECT a FROM M [ORIGIN «len]", "got ORIGIN 'len'"),
    ("SELECT a FROM M GROUP BY «TUMBLE()", "TUMBLE with other arguments"),
    ("SELECT a FROM M GROUP BY TUMBLE(ts, «'soon')", "no length of time in TUMBLE"),
    ("SELECT a FROM M GROUP BY TUMBLE(«5, 1 minute)", "TUMBLE over '5'"),
]


@pytest.mark.parametrize("marked, message", MALFORMED)
def test_a_malformed_text_is_refused_at_its_position(marked: str, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_query(marked.replace("«", ""))
    assert caught.value.position == marked.index("«"), str(caught.value)
    assert message in str(caught.value)
    assert caught.value.expected


def test_tokens_cover_the_text_except_for_blanks_and_comments() -> None:
    for sql in queries():
        covered = list(sql)
        for token in tokenize(sql):
            covered[token.start : token.end] = " " * (token.end - token.start)
        rest = re.sub(r"--[^\n]*|/\*.*?\*/", "", "".join(covered), flags=re.DOTALL)
        assert not rest.strip(), sql


def test_the_name_of_a_group_and_of_a_table_in_it_are_one_name() -> None:
    query = parse_query('SELECT n FROM Today."top-talkers" t, (SELECT n FROM today.total) u', {"today"})
    assert isinstance(query.tables[0].table, tree.Stream)
    assert query.tables[0].table.word.text == "Today.top-talkers"
    subquery = query.tables[1].table
    assert isinstance(subquery, tree.Subquery)
    assert subquery.query.tables[0].table == tree.Stream(tree.Word("today.total", 0, quoted=True))
    with pytest.raises(QueryError, match="unknown kind of rows 'total'"):
        parse_query("SELECT n FROM before.total", {"today"})
