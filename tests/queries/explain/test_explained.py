"""Output of `wiretide explain` for a pipeline and for a spool, and how it distinguishes them from a query.

The tests detect a table that is wrongly described as shared, and bounds that differ from those that the node prints.
They detect a path that is parsed as SQL, and an input that is required although it is only explained.
"""

import os
from pathlib import Path
from random import Random

import pytest

import wiretide
from capture.errors import InputError
from dashboards.commands.explain import ExplainError, explain_text
from dashboards.monitors.node_links import open_links
from dashboards.output.console import format_bytes
from lowlevel.layers import Layer
from lowlevel.node.memory import max_table_bytes
from lowlevel.node.node import TABLE_SLOTS
from lowlevel.punctuation import Punctuation
from lowlevel.spool.inspection import inspect
from lowlevel.spool.writer import SpoolWriter
from lowlevel.table.flushing import Flushing
from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.pipeline.file import read_pipeline
from queries.pipeline.sections import PipelineError
from queries.text.errors import QueryError
from tests.references.pcap_bytes import pcap_bytes
from tests.references.spool_items import LINK, pairs_plan, random_batch

PIPELINE = """
[links]
Archive = "day-*.pcap"
[links.Wire]
capture = "interface:eth0"
spool = "spool/wire"
promise = "late 2s"
lull = "5s"
clock_jump = "10m"
[links.Tap]
capture = "tap"
spool = "spool/tap"
[links.Idle]
capture = "idle.pcap"
spool = "spool/idle"
[queries.pairs]
sql = "SELECT srcIP, destIP, count(*) AS n FROM Wire UNION Tap [RANGE 1 minute] GROUP BY srcIP, destIP"
[queries.bytes]
sql = "SELECT srcIP, destIP, sum(len) AS s FROM wire UNION Archive [RANGE 1 minute] GROUP BY srcIP, destIP"
[queries.ports]
sql = "SELECT destPort, count(*) AS n FROM Wire [RANGE 7 seconds] GROUP BY destPort"
layer = "inner"
[node]
flush = "slow"
every = 16
memory = "64MiB"
"""

BY_VERSION = "up to 2, by the IP versions of addresses"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "p.toml").write_text(PIPELINE)
    os.mkfifo(tmp_path / "tap")
    return tmp_path


def sections(text: str) -> dict[str, list[str]]:
    """The lines of each part by its first line."""
    parts = [part.split("\n") for part in text.split("\n\n")]
    return {first: rest for first, *rest in parts}


def test_a_pipeline_says_of_each_link_who_reads_it_and_with_which_tables(site: Path) -> None:
    """No packet capture is there, and no interface of that name."""
    found = sections(explain_text(str(site / "p.toml")))
    assert found["pipeline: 4 links, 3 queries"] == [
        f"  results         {site}/state, and the state from which `wiretide run` continues"
    ]
    wire = found["link Wire: interface:eth0, which `wiretide capture` reads"]
    assert [line for line in wire if not line.startswith("  tables")] == [
        "  queries         pairs, bytes, ports",
        "  promise         late 2s, lull 5s, clock jump 10m",
        "  flush           slow, disorder 1, one entry for every 16 packets",
        f"  table           pairs, bytes: shared, because they have the same groups; {BY_VERSION}",
        "  table           ports",
        "  memory          32.0 MiB for the tables: its part of [node] memory",
        f"  spool           {site}/spool/wire: `wiretide explain {site}/spool/wire` shows its content",
        "  spool bounds    segments of 16.0 MiB or 1 s, 4.0 GiB on the disk at most; when full: stop",
    ]
    tap = found[f"link Tap: {site}/tap, which `wiretide capture` reads"]
    assert tap[:2] == ["  queries         pairs", "  promise         late 10s"]
    assert found[f"link Idle: {site}/idle.pcap, which `wiretide capture` reads"] == [
        "  queries         none: this link is not read"
    ]
    plans = read_pipeline(site / "p.toml").plans()
    most = format_bytes(max_table_bytes(TABLE_SLOTS, [plans[1].leaves[0].low], Flushing()))
    assert found[f"link Archive: {site}/day-*.pcap, which `wiretide run` reads"] == [
        "  queries         bytes",
        "  promise         exact: each file is scanned before it is read",
        "  flush           at_once, and all at the end of each task",
        f"  tables          262,144 slots per table, at most {most} for all tables",
        f"  table           bytes; {BY_VERSION}",
        "  memory          each running task has its own tables",
    ]
    assert explain_text(str(site / "p.toml")).endswith("\n\n" + "\n\n".join(explain(plan) for plan in plans))


@pytest.mark.parametrize(
    "flush, fed", [("at_once", "; reads the partials of the table of pairs, not packets"), ("paced", "")]
)
def test_a_table_that_is_fed_says_from_which(flush: str, fed: str, site: Path) -> None:
    text = PIPELINE.replace("destPort", "srcIP").replace("7 seconds", "1 minute").replace('layer = "inner"\n', "")
    (site / "p.toml").write_text(text.replace('"slow"\nevery = 16', f'"{flush}"'))
    wire = sections(explain_text(str(site / "p.toml")))["link Wire: interface:eth0, which `wiretide capture` reads"]
    assert f"  table           ports{fed}; {BY_VERSION}" in wire


def test_queries_of_single_rows_have_no_table(site: Path) -> None:
    window = "[RANGE 1000 rows, SLIDE 10 rows, WA row-num] GROUP BY"
    text = PIPELINE.replace("Wire [RANGE 7 seconds] GROUP BY", f"Idle {window}")
    text += f"""
[queries.rows]
sql = "SELECT destIP, count(*) AS n FROM Archive {window} destIP"
"""
    (site / "p.toml").write_text(text)
    said: list[str] = []
    found = sections(explain_text(str(site / "p.toml")))
    idle = found[f"link Idle: {site}/idle.pcap, which `wiretide capture` reads"]
    assert [line.split()[0] for line in idle] == ["queries", "promise", "flush", "no", "spool", "spool"]
    assert idle[3] == "  no table        ports: each row is passed on unchanged"
    archive = found[f"link Archive: {site}/day-*.pcap, which `wiretide run` reads"]
    assert [line.split()[0] for line in archive] == ["queries", "promise", "flush", "tables", "table", "no", "memory"]
    (site / "idle.pcap").write_bytes(pcap_bytes([]))
    pipeline = read_pipeline(site / "p.toml")
    (link,) = open_links(pipeline, pipeline.leaves(pipeline.plans()), [pipeline.spooled["Idle"]], said.append)
    link.worker.spool.abandon()
    assert said[1].startswith("  tables: none, each row is passed on unchanged; flush slow")


def test_the_bounds_of_a_link_are_those_that_the_node_says_at_its_start(site: Path) -> None:
    for old, new in (("Wire UNION Tap", "Tap"), ("wire UNION Archive", "Archive"), ("FROM Wire [", "FROM Archive [")):
        path = site / "p.toml"
        path.write_text(path.read_text().replace(old, new))
    pipeline = read_pipeline(path)
    said: list[str] = []
    writer = os.open(site / "tap", os.O_RDWR)  # for whom it would wait
    (link,) = open_links(pipeline, pipeline.leaves(pipeline.plans()), [pipeline.spooled["Tap"]], said.append)
    link.worker.spool.abandon()
    os.close(writer)
    found = sections(explain_text(str(path)))[f"link Tap: {site}/tap, which `wiretide capture` reads"]
    told = {line[:16].strip(): line[18:] for line in found}
    tables = told["tables"].removesuffix(" of all that can occur")
    assert said[1:] == [
        f"  tables: {tables}; flush {told['flush']}; promise {told['promise']}",
        f"  spool: {told['spool bounds']}",
    ]


def test_what_is_wrong_with_a_pipeline_is_said(site: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read: .*No such file"):
        explain_text(str(site / "none.toml"))
    for number, (old, new, message) in enumerate(
        [
            ("[links]", "[links", r"broken0\.toml: .*line 2"),
            ("flush =", "flsh =", r"broken1\.toml: node\.flsh is not known"),
            ("destPort, count", "destPort, cuont", r"queries\.ports\.sql: line 1, column 18: unknown function 'cuont'"),
            (" [RANGE 7 seconds]", "", r"queries\.ports\.sql has no window"),
            ('"64MiB"', '"2MiB"', r"node\.memory, for link Wire: got 1,048,576 bytes for 3 tables, expected at least"),
        ]
    ):
        assert old in PIPELINE
        path = site / f"broken{number}.toml"
        path.write_text(PIPELINE.replace(old, new))
        with pytest.raises(PipelineError, match=message):
            explain_text(str(path))
    (site / "unbound.toml").write_text(PIPELINE.replace("FROM Wire [", "FROM Wore ["))
    with pytest.raises(InputError, match="query ports: no file for the stream Wore; bound are: Archive, Idle, Tap, Wi"):
        explain_text(str(site / "unbound.toml"))


def test_the_folder_of_a_spool_is_inspected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = SpoolWriter(tmp_path / "s", LINK, [("pairs", "0")])
    assert explain_text(str(tmp_path / "s")).startswith(f"{tmp_path}/s: link not known yet\n  segments   none\n")
    writer.append(0, random_batch(Random(1), pairs_plan(), 10))
    writer.append(0, Punctuation(LINK, 5))
    writer.close()
    wiretide.app(["explain", str(tmp_path / "s")], standalone_mode=False)
    printed = capsys.readouterr().out.splitlines()
    assert printed == list(inspect(tmp_path / "s").lines())
    assert "  holding    10 partials in 2 items, 10 still to be read" in printed


def test_what_is_no_path_is_a_query_and_what_is_neither_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sql = "SELECT count(*) FROM p.toml [RANGE 1 minute]"
    assert explain_text("SELECT count(*) FROM p [RANGE 1 minute]", Layer.INNER) == explain(
        compile_query("SELECT count(*) FROM p [RANGE 1 minute]", layer=Layer.INNER)
    )
    for text in (sql, "", " ", "SELECT " + "x" * 5000, "a\0b c"):
        with pytest.raises(QueryError):
            explain_text(text)
    with pytest.raises(InputError, match="nothing: no such file or folder; expected a query, PIPELINE"):
        explain_text("nothing")
    with pytest.raises(InputError, match="xxx: cannot be read: File name too long"):
        explain_text("x" * 300)  # as what lies in a folder that may not be looked into
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / "a.pcap").touch()
    with pytest.raises(InputError, match="captures: the folder has no segments; expected the folder of a spool"):
        explain_text("captures")
    (tmp_path / "with spaces.conf").write_text("[links]\n")
    with pytest.raises(PipelineError, match=r"with spaces\.conf: no query"):
        explain_text("with spaces.conf")
    with pytest.raises(ExplainError, match="captures and --layer: --layer needs a query"):
        explain_text("captures", Layer.OUTER)
