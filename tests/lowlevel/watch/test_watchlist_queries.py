"""Queries over watchlists, from GSQL to rows: by hand over a capture, in pipelines, and the errors for wrong uses."""

from __future__ import annotations

from collections import Counter
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from lowlevel.expressions.tree import InWatchlist
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.table.feeding import find_feeders
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError
from queries.text.errors import QueryError
from queries.text.printer import expression_text
from tests.harness.links import write_links
from tests.references.packet_rows import decode_file

TABLE = {
    "10.0.0.0/29": "sources",
    "10.0.0.4/31": "high sources",
    "192.168.0.0/16": "home",
    "192.168.0.3": "one at home",
    "2001:db8::8/125": "none of six",
    "2001:db8::2/127": "two of six",
    "10.168.0.4/30": "ten",
}
BAD = ("10.0.0.0/30", "2001:db8::1")
PORTS = (53, 443, 65536)


def files(folder: Path) -> None:
    (folder / "who.tbl").write_text("".join(f"{prefix}\t{label}\n" for prefix, label in TABLE.items()))
    (folder / "bad.txt").write_text("\n".join(BAD))
    (folder / "ports").write_text("\n".join(map(str, PORTS)))


def rows(plan: Plan, inputs: list[Input], threads: int = 1) -> Counter[tuple[Any, ...]]:
    batches = InlineRun([plan], inputs, threads=threads).results()
    return Counter(tuple(row.values()) for _, batch in batches for row in batch.to_pylist())


@cache
def who(address: Any) -> str | None:
    around = [text for text in TABLE if ip_network(text).version == address.version and address in ip_network(text)]
    return TABLE[max(around, key=lambda text: ip_network(text).prefixlen)] if around else None


@cache
def bad(address: Any) -> bool:
    return any(address in ip_network(text) for text in BAD)


@pytest.fixture
def packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Input], list[dict[str, Any]]]:
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    inputs = write_links(tmp_path, 5)
    names = ("ts", "srcIP", "destIP", "destPort", "len")
    return inputs, [row for each in inputs for row in decode_file(each.path, names=names)[0]]


SQL = "SELECT getlpmid(destIP, 'who.tbl') AS customer, count(*) AS n, sum(len) AS bytes FROM packets {} GROUP BY {}"


def test_rows_are_kept_and_grouped_by_lists_as_they_are_by_hand(packets) -> None:
    inputs, every = packets
    tests = {
        "WHERE in_list(srcIP, 'bad.txt')": lambda row: bad(row["srcIP"]),
        "WHERE NOT in_list(srcIP, 'bad.txt')": lambda row: not bad(row["srcIP"]),
        "WHERE in_list(destPort, 'ports')": lambda row: row["destPort"] in PORTS,
        "WHERE NOT in_list(destPort, 'ports')": lambda row: row["destPort"] not in (None, *PORTS),
        "WHERE in_list(destPort + 0, 'ports') OR in_list(srcIP, 'bad.txt')": (
            lambda row: row["destPort"] in PORTS or bad(row["srcIP"])
        ),
        "WHERE getlpmid(srcIP, 'who.tbl') = 'high sources'": lambda row: who(row["srcIP"]) == "high sources",
        "WHERE getlpmid(srcIP, 'who.tbl') <> getlpmid(destIP, 'who.tbl')": (
            lambda row: None not in (who(row["srcIP"]), who(row["destIP"])) and who(row["srcIP"]) != who(row["destIP"])
        ),
        "WHERE getlpmid(srcIP, 'who.tbl') IS NULL": lambda row: who(row["srcIP"]) is None,
    }
    for where, test in tests.items():
        count: Counter[str | None] = Counter()
        size: Counter[str | None] = Counter()
        for row in every:
            if test(row):
                count[who(row["destIP"])] += 1
                size[who(row["destIP"])] += row["len"]
        wanted = Counter((each, count[each], size[each]) for each in count)
        assert 0 < count.total() < len(every), where
        for threads in (1, 2):
            assert rows(compile_query(SQL.format(where, "customer")), inputs, threads) == wanted, where


def test_labels_go_from_a_finer_table_into_a_coarser_one(packets) -> None:
    inputs, every = packets
    plans = [compile_query(SQL.format("", keys), keys) for keys in ("customer, srcIP", "customer")]
    assert find_feeders([plan.leaves[0].low for plan in plans]) == [None, 0]
    found = Counter(
        tuple(row.values())
        for number, batch in InlineRun(plans, inputs).results()
        if number == 1
        for row in batch.to_pylist()
    )
    assert Counter({customer: n for customer, n, _ in found}) == Counter(who(row["destIP"]) for row in every)


def test_a_list_is_an_argument_and_a_condition_on_groups_too(packets) -> None:
    inputs, every = packets
    sql = """SELECT destPort, count(getlpmid(srcIP, 'who.tbl')) AS known FROM packets
             GROUP BY destPort HAVING in_list(destPort, 'ports')"""
    wanted = Counter(row["destPort"] for row in every if row["destPort"] in PORTS and who(row["srcIP"]))
    assert {row[0]: row[1] for row in rows(compile_query(sql), inputs)} == dict(wanted)


def test_it_prints_as_it_compiles_and_explains_what_is_watched(tmp_path: Path, monkeypatch) -> None:
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    plan = compile_query(SQL.format("WHERE NOT in_list(srcIP, 'bad.txt')", "customer"))
    assert plan.leaves[0].low.where is not None
    text = expression_text(plan.leaves[0].low.where)
    assert text == f"NOT in_list(srcIP, '{tmp_path}/bad.txt')"
    monkeypatch.chdir("/")
    assert (
        compile_query(SQL.format(f"WHERE {text}", "customer").replace("who", f"{tmp_path}/who")).leaves[0].low.where
        == plan.leaves[0].low.where
    )
    told = explain(plan)
    assert f"  key             k0 = getlpmid(destIP, '{tmp_path}/who.tbl'): 33 bits, the number of the text" in told
    assert f"  watchlist       {tmp_path}/bad.txt: 2 lines, " in told
    assert f"  watchlist       {tmp_path}/who.tbl: 7 lines, " in told


def test_plans_over_other_files_or_functions_are_told_apart(tmp_path: Path, monkeypatch) -> None:
    files(tmp_path)
    (tmp_path / "more").write_text("10.0.0.0/30\n")
    monkeypatch.chdir(tmp_path)
    conditions = [
        "in_list(srcIP, 'bad.txt')",
        "in_list(srcIP, 'more')",
        "in_list(destIP, 'more')",
        "in_list(len, 'ports')",
    ]
    lows = [compile_query(f"SELECT count(*) FROM packets WHERE {each}").leaves[0].low for each in conditions]
    assert len({fingerprint(low) for low in lows}) == len(set(lows)) == len(lows)


WRONG = [
    ("WHERE in_list(srcIP, 'none')", 51, "none: cannot be read as a watchlist: No such file or directory"),
    ("WHERE in_list(srcIP, 'who.tbl')", 51, "who.tbl: line 1: got 'sources' after the first word"),
    ("WHERE in_list(srcIP, 'ports')", 51, "ports: line 1: got '53', expected an address or a prefix"),
    ("WHERE in_list(destPort, 'bad.txt')", 54, "bad.txt: line 1: got '10.0.0.0/30', expected an integer"),
    ("WHERE getlpmid(srcIP, 'bad.txt') = 'x'", 52, "bad.txt: line 1: got '10.0.0.0/30' without a label"),
    ("WHERE getlpmid(len, 'who.tbl') = 'x'", 45, "getlpmid over a value of type integer; expected a column"),
    ("WHERE in_list(payload, 'bad.txt')", 44, "in_list over a value of type bytes; expected a column or expression of"),
    ("WHERE in_list('10.0.0.1', 'bad.txt')", 44, "in_list over a constant"),
    ("WHERE in_list(srcIP)", 36, "in_list with 1 argument; expected in_list(x, 'file')"),
    ("WHERE in_list(srcIP, destIP)", 51, "in_list with a file name that is not a text"),
    ("WHERE in_lst(srcIP, 'bad.txt')", 36, "unknown function 'in_lst'; expected an aggregate or a function"),
]


@pytest.mark.parametrize(("where", "column", "problem"), WRONG, ids=[where for where, _, _ in WRONG])
def test_what_is_wrong_is_told_with_its_place(
    where: str, column: int, problem: str, tmp_path: Path, monkeypatch
) -> None:
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryError) as raised:
        compile_query(f"SELECT count(*) FROM packets {where}")
    first = str(raised.value).splitlines()[0]
    assert first.startswith(f"line 1, column {column}: ")
    assert problem in first


def test_paths_in_a_pipeline_begin_at_its_file(tmp_path: Path, monkeypatch) -> None:
    files(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sql = "SELECT count(*) FROM M [RANGE 1 minute] WHERE in_list(srcIP, '{}')"
    text = '[links]\nM = "m.pcap"\n[queries.q]\nsql = "' + sql + '"\n'
    (plan,) = parse_pipeline(text.format("bad.txt"), tmp_path).plans()
    assert isinstance(plan.leaves[0].low.where, InWatchlist)
    assert plan.leaves[0].low.where.file.path == str(tmp_path / "bad.txt")
    with pytest.raises(
        PipelineError, match=r"queries\.q\.sql: line 1, column 62: .*/none: cannot be read as a watchlist"
    ):
        parse_pipeline(text.format("none"), tmp_path).plans()
    with pytest.raises(QueryError, match=r"elsewhere/bad\.txt: cannot be read"):
        compile_query(sql.format("bad.txt"))


@pytest.mark.spark
def test_tasks_of_spark_read_the_files_themselves(spark, packets) -> None:
    from highlevel.spark.batch import run_batch

    inputs, _ = packets
    plan = compile_query(SQL.format("WHERE NOT in_list(srcIP, 'bad.txt')", "customer"))
    answer = run_batch(spark, plan, inputs)
    found = Counter(tuple(row.values()) for row in answer.to_pylist())
    assert found == rows(plan, inputs)
