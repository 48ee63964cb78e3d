"""PIPELINE.toml: one file with everything, and a table of wrong ones with the place and the advice each must get."""

from pathlib import Path

import pytest

from capture.errors import InputError
from lowlevel.table.flushing import Flushing
from lowlevel.watermarks.jumps import JUMP
from lowlevel.watermarks.rule import Kind, WatermarkRule
from queries.gsql import compile_query
from queries.pipeline.file import QueryText, parse_pipeline, read_pipeline
from queries.pipeline.node_settings import NodeSettings, SpooledLink
from queries.pipeline.sections import PipelineError

WHOLE = """
folder = "kept"
speed = 60
[links]
Main1 = "main1.pcap"
Main2 = ["a-*.pcap", "deep/b.pcap"]
[queries.talkers]
sql = "SELECT srcIP, count(*) AS n FROM Main1 [RANGE 1 minute] GROUP BY srcIP"
rank = "n"
[queries.all]
sql = "SELECT count(*) FROM Main1 UNION Main2 [RANGE 1 minute]"
layer = "inner"
[metrics]
host = "::1"
port = 0
top = 3
[spark]
master = "local[2]"
partitions = 4
"""
SPOOLED = '[links.M]\ncapture = "x"\nspool = "s"\n'
LINKS = '[links]\nM = "m.pcap"\n'
QUERIES = '[queries.q]\nsql = "SELECT count(*) FROM M [RANGE 1 minute]"\n'


def test_a_whole_file_says_what_it_says(tmp_path: Path) -> None:
    file = parse_pipeline(WHOLE, tmp_path)
    assert file.folder == tmp_path / "kept"
    assert file.links == {
        "Main1": [str(tmp_path / "main1.pcap")],
        "Main2": [str(tmp_path / "a-*.pcap"), str(tmp_path / "deep" / "b.pcap")],
    }
    assert file.queries["talkers"] == QueryText(
        "SELECT srcIP, count(*) AS n FROM Main1 [RANGE 1 minute] GROUP BY srcIP", "n"
    )
    assert file.ranks == {"talkers": "n"}
    assert (file.speed, file.host, file.port, file.top) == (60, "::1", 0, 3)
    assert (file.master, file.partitions) == ("local[2]", 4)
    assert [(plan.name, plan.layer) for plan in file.plans()] == [("talkers", "outer"), ("all", "inner")]


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    file = parse_pipeline(LINKS + QUERIES, tmp_path)
    assert (file.folder, file.speed, file.ranks) == (tmp_path / "state", None, {})
    assert (file.host, file.port, file.top) == ("127.0.0.1", 9464, 10)
    assert (file.master, file.partitions) == ("local[*]", None)


def test_links_with_a_spool_are_apart_and_their_bounds_are_read(tmp_path: Path) -> None:
    text = """
[links]
Plain = "p.pcap"
Same = {capture = "same.pcap"}
[links.Wire]
capture = "interface:eth0"
spool = "spool/wire"
promise = "late 2s"
lull = "5s"
clock_jump = "10m"
[links.Pipe]
capture = "tap"
spool = "/var/spool/pipe"
[links.Standard]
capture = "-"
spool = "in"
[node]
flush = "slow"
disorder = 2
every = 16
memory = "64 MiB"
segment_bytes = "1M"
segment_time = "2s"
spool_bytes = "1GiB"
when_full = "oldest"
"""
    file = parse_pipeline(text + QUERIES.replace("FROM M", "FROM Wire UNION Plain"), tmp_path)
    assert file.links == {"Plain": [str(tmp_path / "p.pcap")], "Same": [str(tmp_path / "same.pcap")]}
    assert file.spooled == {
        "Wire": SpooledLink("Wire", "interface:eth0", tmp_path / "spool" / "wire", "late 2s", "5s", "10m"),
        "Pipe": SpooledLink("Pipe", str(tmp_path / "tap"), Path("/var/spool/pipe")),
        "Standard": SpooledLink("Standard", "-", tmp_path / "in"),
    }
    assert file.node == NodeSettings("slow", 2, 16, 64 << 20, 10**6, 2 * 10**9, 1 << 30, "oldest")
    assert file.node.flushing() == Flushing("slow", 2, 16)
    assert file.spooled["Wire"].watermark_rule(live=True) == WatermarkRule(
        Kind.LATE_BY_TIME, 2 * 10**9, 5 * 10**9, 600 * 10**9
    )
    assert file.spooled["Pipe"].watermark_rule(live=True).jump == JUMP
    (tmp_path / "p.pcap").touch()
    (tmp_path / "same.pcap").touch()
    assert [each.link for each in file.inputs(file.plans())] == ["Plain", "Same"]
    assert [each.path.name for each in file.spools] == ["wire", "pipe", "in"]


def test_a_node_may_be_left_to_its_defaults(tmp_path: Path) -> None:
    file = parse_pipeline(SPOOLED + QUERIES, tmp_path)
    assert file.node == NodeSettings("paced", 1, 1, 256 << 20, 16 << 20, 10**9, 4 << 30, "stop")
    assert file.inputs(file.plans()) == []


GROUPS = "SELECT srcIP, count(*) AS n FROM M [RANGE 1 minute] GROUP BY srcIP"


@pytest.mark.parametrize(
    ("keys", "sql"),
    [
        ("consistency = 'WAIT 2 s'\nemit = 'changes'", "WITH CONSISTENCY (WAIT 2 s) EMIT CHANGES"),
        ("consistency = 'weak'\nemit = 'changes'", "WITH WEAK CONSISTENCY EMIT CHANGES"),
        ("consistency = 'REMEMBER 2 s'", "WITH CONSISTENCY (REMEMBER 2 s)"),
        ("emit = 'final'", "EMIT FINAL"),
    ],
)
def test_keys_of_a_query_state_its_consistency_as_clauses_of_its_text_do(tmp_path: Path, keys: str, sql: str) -> None:
    (plan,) = parse_pipeline(f"{LINKS}[queries.q]\nsql = '{GROUPS};'\n{keys}\n", tmp_path).plans()
    assert plan.root == compile_query(f"{GROUPS} {sql}").root


def test_final_rows_have_a_name(tmp_path: Path) -> None:
    text = f"{LINKS}[queries.q]\nsql = '{GROUPS} -- one line'\nemit = 'changes'\nfinal = 'certain'\n"
    file = parse_pipeline(text, tmp_path)
    assert file.final_results == {"q": "certain"}
    assert file.plans()[0].has_changes


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            "emit = 'changes'\nconsistency = 'REMEMBER FOREVER'\n[links.L]\ncapture = 'a.pcap'\nspool = 's'",
            "queries.q: got REMEMBER FOREVER",
        ),
        ("emit = 'all'", "queries.q.emit: got 'all', expected changes or final"),
        ("consistency = 'WAIT 2 rows'", "queries.q.consistency, emit: line 2, column 24: WAIT 2 rows"),
        ("consistency = 'SLOW'", "queries.q.consistency, emit: line 2, column 19: got 'SLOW' in WITH CONSISTENCY"),
        (
            "emit = 'changes'\n[queries.r]\nsql = 'SELECT n FROM q EMIT CHANGES'",
            "got EMIT CHANGES of results without a time (n)",
        ),
        ("final = 'certain'", "queries.q.final: got 'certain', expected a query with EMIT CHANGES"),
        ("emit = 'changes'\nfinal = 'Q'", "queries.q.final: got 'Q', the name of queries.q; expected another name"),
        (
            "emit = 'changes'\nfinal = 'b'\n[queries.c]\nsql = 'SELECT n FROM M'\nfinal = 'B'",
            "queries.c.final: got 'B', the name of queries.q.final",
        ),
    ],
)
def test_a_wrong_consistency_is_an_error_of_its_key(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(PipelineError) as refused:
        parse_pipeline(f"{LINKS}[queries.q]\nsql = '{GROUPS}'\n{keys}\n", tmp_path).plans()
    assert message in str(refused.value)


def test_each_query_over_a_spooled_link_may_state_its_memory(tmp_path: Path) -> None:
    keys = "consistency = 'REMEMBER 1 h'\nemit = 'changes'\n"
    (plan,) = parse_pipeline(f"{SPOOLED}[queries.q]\nsql = '{GROUPS}'\n{keys}", tmp_path).plans()
    assert plan.leaves[0].low.slack == 3600 * 10**9


def test_an_absolute_path_stays_where_it_is(tmp_path: Path) -> None:
    file = parse_pipeline('folder = "/var/lib/x"\n[links]\nM = "/data/m.pcap"\n' + QUERIES, tmp_path)
    assert (file.folder, file.links) == (Path("/var/lib/x"), {"M": ["/data/m.pcap"]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # Nothing to do.
        ("", "no query: expected at least one section"),
        (LINKS, "no query: expected at least one section"),
        (QUERIES, "no link: expected a section [links]"),
        # Names that are not known.
        (
            "folders = 1\n" + LINKS + QUERIES,
            "folders is not known; valid here: folder, speed, functions, links, queries",
        ),
        (LINKS + QUERIES + "[metrics]\nprot = 1\n", "metrics.prot is not known; valid here: host, port, top"),
        (LINKS + QUERIES + "[spark]\nx = 1\n", "spark.x is not known; valid here: master, partitions, conf"),
        (LINKS + QUERIES + "ranks = 1\n", "queries.q.ranks is not known; valid here: sql, rank, layer"),
        # Values of the wrong kind.
        ("folder = 3\n" + LINKS + QUERIES, "folder: got 3, expected text"),
        ("links = 3\n" + QUERIES, "links: got 3, expected a section"),
        ("queries = 3\n" + LINKS, "queries: got 3, expected a section"),
        ("queries.q = 3\n" + LINKS, "queries.q: got 3, expected a section"),
        (LINKS + "[queries.q]\nsql = 3\n", "queries.q.sql: got 3, expected text"),
        (LINKS + "[queries.q]\nsql = ' '\n", "queries.q.sql is missing"),
        (LINKS + "[queries.q]\n", "queries.q.sql is missing"),
        ("[links]\nM = 3\n" + QUERIES, "links.M: got 3, expected a path or a list of paths"),
        ("[links]\nM = ''\n" + QUERIES, "links.M: got '', expected a path or a list of paths"),
        ("[links]\nM = ['a', '']\n" + QUERIES, "links.M: got ['a', ''], expected a path or a list of paths"),
        ("[links]\nM = []\n" + QUERIES, "links.M: got [], expected a path or a list of paths"),
        ('[links]\nM = ["a", 3]\n' + QUERIES, "links.M: got ['a', 3], expected a path or a list of paths"),
        # Numbers out of range.
        ("speed = 0\n" + LINKS + QUERIES, "speed: got 0, expected a number, more than 0"),
        ("speed = true\n" + LINKS + QUERIES, "speed: got True, expected a number"),
        ("speed = nan\n" + LINKS + QUERIES, "speed: got nan, expected a number, more than 0"),
        ("speed = inf\n" + LINKS + QUERIES, "speed: got inf, expected a number, more than 0, finite"),
        (f"speed = 1{'0' * 400}\n" + LINKS + QUERIES, "expected a number, more than 0, finite"),
        ("speed = 1e999\n" + LINKS + QUERIES, "speed: got inf"),
        (LINKS + QUERIES + "[metrics]\nport = 65536\n", "metrics.port: got 65536, expected a whole number, 0 (any"),
        (LINKS + QUERIES + "[metrics]\nport = 1.5\n", "metrics.port: got 1.5, expected a whole number"),
        (LINKS + QUERIES + "[metrics]\ntop = 0\n", "metrics.top: got 0, expected a whole number, at least 1"),
        (LINKS + QUERIES + "[page]\nenabled = 1\n", "page.enabled: got 1, expected true or false"),
        (LINKS + QUERIES + "[page]\nkeep = '0s'\n", "page.keep: got 0 ns, expected a time of more than 0"),
        (LINKS + QUERIES + "[page]\nkeep = 'long'\n", "page.keep: "),
        (LINKS + QUERIES + "[page]\nsize = '1K'\n", "page.size: got 1,000 bytes, expected at least 1 MiB"),
        (LINKS + QUERIES + "[page]\nsizes = '1K'\n", "page.sizes is not known; valid here: enabled, keep, size"),
        (LINKS + QUERIES + "[spark]\npartitions = 0\n", "spark.partitions: got 0, expected a whole number, at least 1"),
        # Links that a node spools, and the node.
        (
            SPOOLED.replace("spool =", "spol =") + QUERIES,
            "links.M.spol is not known; valid here: capture, spool, promise, lull, clock_jump",
        ),
        ("[links.M]\nspool = 's'\n" + QUERIES, "links.M.capture is missing: expected an input, such as interface:eth0"),
        ("[links.M]\ncapture = 3\n" + QUERIES, "links.M.capture: got 3, expected text"),
        ("[links.M]\ncapture = 'x'\nspool = ''\n" + QUERIES, "links.M.spool: got '', expected a folder"),
        ("[links.M]\ncapture = 'x'\nspool = 'x'\n" + QUERIES, "links.M.spool: got the folder of its capture"),
        ("[links.M]\ncapture = 'x/*'\nspool = 'x'\n" + QUERIES, "links.M.spool: got the folder of its capture"),
        ("[links.M]\ncapture = 'x'\nlull = '5s'\n" + QUERIES, "links.M.lull is for a link with a spool"),
        ("[links.M]\ncapture = 'x'\nclock_jump = '5s'\n" + QUERIES, "links.M.clock_jump is for a link with a spool"),
        (SPOOLED + "clock_jump = 'far'\n" + QUERIES, "links.M: got a clock jump of 'far': expected a duration such as"),
        (SPOOLED + "clock_jump = 5\n" + QUERIES, "links.M.clock_jump: got 5, expected text"),
        (SPOOLED + "clock_jump = '999ms'\n" + QUERIES, "links.M: got a clock jump of '999ms', expected at least 1s"),
        (SPOOLED + "lull = 'long'\n" + QUERIES, "links.M: got a lull of 'long': expected a duration such as"),
        (
            SPOOLED + "promise = 'soon'\n" + QUERIES,
            "links.M: got the promise 'soon', expected one of exact, ordered, late",
        ),
        (
            SPOOLED + "[links.N]\ncapture = 'y'\nspool = 's'\n" + QUERIES,
            "/s, also the spool of M; expected another",
        ),
        (
            SPOOLED + QUERIES + "[node]\nflsh = 1\n",
            "node.flsh is not known; valid here: flush, disorder, every, memory, segment",
        ),
        (SPOOLED + QUERIES + "[node]\nflush = 'often'\n", "node.flush: got 'often', expected at_once or iop_slow or"),
        (SPOOLED + QUERIES + "[node]\nwhen_full = 'wait'\n", "node.when_full: got 'wait', expected stop or oldest"),
        (SPOOLED + QUERIES + "[node]\ndisorder = -1\n", "node.disorder: got -1, expected a whole number, 0 or more"),
        (SPOOLED + QUERIES + "[node]\ndisorder = 1025\n", "node: got a disorder of 1025 panes, expected 0 to 1,024"),
        (SPOOLED + QUERIES + "[node]\nevery = 0\n", "node.every: got 0, expected a whole number, 1 or more"),
        (SPOOLED + QUERIES + "[node]\nevery = '8'\n", "node.every: got '8', expected a whole number, 1 or more"),
        (
            SPOOLED + QUERIES + "[node]\nflush = 'lazy'\nevery = 8\n",
            'node.every: got 8 with flush = "lazy", expected flush = "slow", which uses it',
        ),
        (
            SPOOLED + QUERIES + "[node]\nflush = 'slow'\nevery = 1_073_741_825\n",
            "node: got one entry for every 1073741825 packets, expected 1 to 1,073,741,824",
        ),
        (SPOOLED + QUERIES + "[node]\nmemory = 'much'\n", "node.memory: much: got no size, expected bytes such as"),
        (SPOOLED + QUERIES + "[node]\nmemory = 3\n", "node.memory: got 3, expected text"),
        (SPOOLED + QUERIES + "[node]\nmemory = '1K'\n", "node.memory: got 1,000 bytes, expected at least 1 MiB"),
        (
            SPOOLED + QUERIES + "[node]\nsegment_bytes = '1'\n",
            "node.segment_bytes: got 1 bytes, expected at least 4,096",
        ),
        (
            SPOOLED + QUERIES + "[node]\nsegment_time = '0'\n",
            "node: got a segment time of 0 ns, expected at least 1",
        ),
        (
            SPOOLED + QUERIES + "[node]\nspool_bytes = '1M'\n",
            "node: got a spool of 1000000 bytes, expected at least",
        ),
    ],
)
def test_a_wrong_file_is_told_the_place_and_what_was_expected(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError) as error:
        parse_pipeline(text, tmp_path)
    assert message in str(error.value)
    assert error.value.status == 2


def test_a_file_that_is_no_toml_is_named_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("folder = \n")
    with pytest.raises(PipelineError, match=r"wrong\.toml: .*line 1, column 10"):
        read_pipeline(path)
    path.write_text(LINKS)
    with pytest.raises(PipelineError, match=r"wrong\.toml: no query"):
        read_pipeline(path)


def test_a_file_that_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: cannot be read: .*No such file"):
        read_pipeline(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(InputError, match=r"latin\.toml: got a file that is no text"):
        read_pipeline(tmp_path / "latin.toml")


def test_relative_paths_begin_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "p.toml").write_text(LINKS + QUERIES)
    monkeypatch.chdir(tmp_path)
    file = read_pipeline(Path("site/p.toml"))
    assert (file.folder, file.links) == (tmp_path / "site" / "state", {"M": [str(tmp_path / "site" / "m.pcap")]})


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("state", "BASE/state"),
        ("file:/data/a%20run", "/data/a run"),
        ("file:" + "///data/x", "/data/x"),
        ("a:b", "BASE/a:b"),
    ],
)
def test_a_folder_is_a_path_or_a_file_uri(folder: str, path: str, tmp_path: Path) -> None:
    text = f"folder = {folder!r}\n[links]\nM = 'm.pcap'\n[queries.q]\nsql = 'SELECT count(*) FROM M [RANGE 1 s]'\n"
    assert str(parse_pipeline(text, tmp_path).folder) == path.replace("BASE", str(tmp_path))


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("hdfs://host:8020/x", r"expected a path, file:/PATH or s3a://BUCKET/PREFIX: .* for the scheme hdfs"),
        ("s3a://bucket", "folder: got 's3a://bucket', expected s3a://BUCKET/PREFIX"),
        ("s3a://bucket/a b", "expected s3a://BUCKET/PREFIX"),
        ("s3a://bucket/a/../b", "expected s3a://BUCKET/PREFIX"),
        ("s3a://bucket/a/.", "expected s3a://BUCKET/PREFIX"),
        ("s3a://KEY:SECRET@bucket/x", "folder: got 's3a://…@bucket/x', expected s3a://BUCKET/PREFIX without cred"),
        ("hdfs://user:SECRET@host/x", "folder: got 'hdfs://…@host/x', expected a path"),
        ("file://host/x", "expected file:/PATH without a host"),
    ],
)
def test_a_folder_of_another_scheme_is_refused(folder: str, message: str, tmp_path: Path) -> None:
    text = f"folder = {folder!r}\n[links]\nM = 'm.pcap'\n[queries.q]\nsql = 'SELECT count(*) FROM M [RANGE 1 s]'\n"
    with pytest.raises(PipelineError, match=message):
        parse_pipeline(text, tmp_path)


def test_a_folder_in_an_object_store_has_a_copy_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = "folder = '{}'\n[links]\nM = 'm.pcap'\n[queries.q]\nsql = 'SELECT count(*) FROM M [RANGE 1 s]'\n"
    uris = ("s3://lake/a/run", "s3a://lake/a/run/", "S3A://lake/a/run")
    pipelines = [parse_pipeline(text.format(uri), tmp_path) for uri in uris]
    assert {(pipeline.folder_name, pipeline.folder) for pipeline in pipelines} == {
        ("s3a://lake/a/run", pipelines[0].folder)
    }
    assert pipelines[0].folder.parts[-4:-2] == ("wiretide", "runs")
    assert parse_pipeline(text.format("s3a://lake/b/run"), tmp_path).folder != pipelines[0].folder
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store")
    assert parse_pipeline(text.format(uris[0]), tmp_path).folder != pipelines[0].folder
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert parse_pipeline(text.format(uris[0]), tmp_path).folder.is_relative_to(tmp_path / "home" / ".cache")
    local = parse_pipeline(text.format("run"), tmp_path)
    assert (local.folder_name, local.folder_uri) == (str(tmp_path / "run"), "")
    local.require_local_folder("manifests")
    with pytest.raises(PipelineError, match=r"folder: got s3a://lake/a/run, .*: manifests contain no credentials"):
        pipelines[0].require_local_folder("manifests")


def test_a_query_that_is_wrong_or_never_closes_a_window_is_refused(tmp_path: Path) -> None:
    wrong = parse_pipeline(LINKS + QUERIES.replace("count(*)", "cuont(*)"), tmp_path)
    with pytest.raises(PipelineError, match=r"queries\.q\.sql: line 1, column 8: .*'cuont'"):
        wrong.plans()
    clauses = "PARTITION BY srcIP ORDER BY ts MEASURES next(len) AS n PATTERN (A $)"
    sql = f"SELECT srcIP, n FROM M MATCH_RECOGNIZE ({clauses})"
    waiting = parse_pipeline(f"[links]\nM = 'm.pcap'\n[queries.q]\nsql = '{sql}'\n", tmp_path)
    with pytest.raises(PipelineError, match=r"without EMIT CHANGES.* expected for example EMIT CHANGES at the end"):
        waiting.plans()
    for name in ("", ".", ".."):
        with pytest.raises(PipelineError, match=r"queries: got the name '\.*', expected for example"):
            parse_pipeline(f"[links]\nM = 'm.pcap'\n[queries.'{name}']\nsql = 'SELECT count(*) FROM M'\n", tmp_path)
    unwindowed = parse_pipeline(LINKS + QUERIES.replace("[RANGE 1 minute]", ""), tmp_path)
    with pytest.raises(PipelineError, match=r"queries\.q\.sql has no window.*expected for example \[RANGE 1 minute"):
        unwindowed.plans()


def test_links_become_inputs_and_a_stream_without_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.pcap").touch()
    file = parse_pipeline(LINKS + QUERIES, tmp_path)
    assert [(each.link, each.path) for each in file.inputs(file.plans())] == [("M", tmp_path / "m.pcap")]
    other = parse_pipeline(LINKS + QUERIES.replace("FROM M", "FROM N"), tmp_path)
    with pytest.raises(InputError, match="no file for the stream N; bound are: M"):
        other.inputs(other.plans())


def test_a_glob_beside_a_pipeline_in_a_folder_with_brackets_finds_its_files(tmp_path: Path) -> None:
    site = tmp_path / "b[1]"
    site.mkdir()
    (site / "m1.pcap").touch()
    (site / "p.toml").write_text(LINKS.replace("m.pcap", "m*.pcap") + QUERIES)
    file = read_pipeline(site / "p.toml")
    assert [each.path for each in file.inputs(file.plans())] == [site / "m1.pcap"]


HOURS = '[queries.hours]\nsql = "SELECT sum(n) AS n FROM minutes [RANGE 1 hour]"\n'
MINUTES = '[queries.minutes]\nsql = "SELECT srcIP, count(*) AS n FROM M [RANGE 1 minute] GROUP BY srcIP"\n'


def test_queries_read_each_other_by_name_in_any_order(tmp_path: Path) -> None:
    for text in (HOURS + MINUTES, MINUTES + HOURS):
        plans = {plan.name: plan for plan in parse_pipeline(LINKS + text, tmp_path).plans()}
        assert [type(node).__name__ for node in plans["hours"].nodes] == ["Leaf", "Windowed", "Apply", "Windowed"]
        assert plans["minutes"].streams == plans["hours"].streams == ("M",)


@pytest.mark.parametrize(
    "queries, message",
    [
        ('[queries.m]\nsql = "SELECT count(*) FROM N [RANGE 1 s]"\n', r"queries\.m is called like links\.M"),
        (HOURS + MINUTES.replace("minutes", "Hours"), r"queries\.Hours is called like queries\.hours"),
    ],
)
def test_a_name_that_means_two_things_is_refused(queries: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=message):
        parse_pipeline(LINKS + queries, tmp_path)


@pytest.mark.parametrize(
    "queries, message",
    [
        (
            HOURS + MINUTES.replace("FROM M", "FROM hours"),
            r"queries\.hours\.sql: .* reads itself: hours reads minutes, which reads hours",
        ),
        (
            HOURS + MINUTES.replace("FROM M", "FROM Mian"),
            r"in the query minutes, which hours reads: 'Mian' is neither a link nor a query",
        ),
        (HOURS + MINUTES.replace("[RANGE 1 minute] ", ""), r"queries\.hours\.sql: .*without the name of a time column"),
        (
            HOURS.replace(" [RANGE 1 hour]", "") + MINUTES,
            r"queries\.hours\.sql has no window, so it would have no results before the end",
        ),
        (
            '[queries.largest]\nsql = "SELECT ts, len FROM M ORDER BY len DESC LIMIT 9"\n',
            r"queries\.largest\.sql sorts rows without windows, so it would have no results before the end",
        ),
        (
            '[queries.ranks]\nsql = "SELECT len, rank() OVER (ORDER BY len) AS place FROM M"\n',
            r"queries\.ranks\.sql has OVER over rows without windows, so it would have no results before the end",
        ),
    ],
)
def test_queries_that_cannot_be_read_by_others_are_refused(queries: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=message):
        parse_pipeline(LINKS + queries, tmp_path).plans()


def test_a_node_has_to_do_with_the_leaves_of_queries_each_by_a_name(tmp_path: Path) -> None:
    pair = "SELECT a.ts FROM M a [RANGE 1 s, WA ts], M b [RANGE 2 s, WA ts] WHERE a.srcIP = b.destIP AND b.len > 9"
    spooled = parse_pipeline(SPOOLED + HOURS + MINUTES + f'[queries.pairs]\nsql = "{pair}"\n', tmp_path)
    leaves = spooled.leaves(spooled.plans())
    assert [leaf.name for leaf in leaves] == ["hours", "minutes", "pairs 1", "pairs 2"]
    clash = f'{MINUTES}[queries."pairs 1"]\nsql = "SELECT ts FROM M"\n[queries.pairs]\nsql = "{pair}"\n'
    pipeline = parse_pipeline(SPOOLED + clash, tmp_path)
    with pytest.raises(PipelineError, match="got 'pairs 1' as the name of a query and of a part of another query"):
        pipeline.leaves(pipeline.plans())
