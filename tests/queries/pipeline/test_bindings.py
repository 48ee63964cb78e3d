"""Which files a query reads. A name bound to the wrong files, or to none without a word, is a wrong answer."""

import os
from pathlib import Path
from random import Random

import pytest

from capture.errors import InputError, WiretideError
from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query
from queries.pipeline.inputs import bind_files, bind_streams, check_streams, expand, link_names
from tests.references import small_captures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = (
        "b.pcap",
        "a.pcap",
        ".hidden.pcap",
        "templates.json",
        "odd[1].pcap",
        "sub/c.pcap",
        ".away/c.pcap",
        "b[1]/d.pcap",
        "b1/e.pcap",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("a.pcap", ["a.pcap"]),
        ("", ["a.pcap", "b.pcap", "odd[1].pcap"]),  # hidden files, templates and folders inside are left out
        ("[ab].pcap", ["a.pcap", "b.pcap"]),
        ("*/c.pcap", ["sub/c.pcap"]),
        ("**/c.pcap", ["sub/c.pcap"]),
        ("*.pcap", ["a.pcap", "b.pcap", "odd[1].pcap"]),  # what is hidden from a folder is hidden from a glob
        (".h*", [".hidden.pcap"]),
        ("b[1]/*.pcap", ["b[1]/d.pcap"]),  # a folder of that very name comes before a pattern
        ("b[1]/../b[1]/[d].pcap", ["b[1]/../b[1]/d.pcap"]),
        ("b?/*.pcap", ["b1/e.pcap"]),
        ("odd[1].pcap", ["odd[1].pcap"]),  # a file of that very name comes before a pattern
        ("missing.pcap", ["missing.pcap"]),  # opening it returns the error
    ],
)
def test_a_path_names_a_file_a_folder_or_a_glob(path: str, names: list[str], folder: Path) -> None:
    assert expand(f"{folder}/{path}") == [folder / name for name in names]


def test_a_glob_may_be_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert expand("[ab]*.pcap") == [Path("a.pcap"), Path("b.pcap")]
    assert expand("b[1]/*") == [Path("b[1]/d.pcap")]


def test_an_empty_path_is_not_the_folder_at_hand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(WiretideError, match="got an empty path"):
        expand("")


@pytest.mark.parametrize(
    ("path", "message"), [("x*.pcap", "no file matches"), ("empty", "the folder contains no file")]
)
def test_a_path_without_files_is_an_error(path: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(WiretideError, match=message):
        expand(str(tmp_path / path))


def test_bare_files_feed_every_name_and_are_links_of_their_own(folder: Path) -> None:
    inputs = bind_files([str(folder / "b.pcap"), str(folder / "sub")])
    assert inputs == [Input("b", folder / "b.pcap"), Input("c", folder / "sub" / "c.pcap")]
    plan = compile_query("SELECT count(*) FROM whatever")
    assert all(each.feeds(plan.leaves[0]) for each in inputs)
    check_streams([plan], inputs)


@pytest.mark.parametrize(
    ("files", "links"),
    [
        (["/x/mon/a.pcap", "/x/tue/b.pcap"], ["a", "b"]),
        (["/x/mon/a.pcap", "/x/tue/a.cap"], ["a.pcap", "a.cap"]),
        (["/x/mon/a.pcap", "/x/tue/a.pcap", "/x/tue/b.pcap"], ["mon/a.pcap", "tue/a.pcap", "b"]),
        (["/mon/x/a.pcap", "/tue/x/a.pcap"], ["mon/x/a.pcap", "tue/x/a.pcap"]),
        (["/x/a.pcap", "/x/a.cap", "/y/a.pcap.gz"], ["a.pcap", "a.cap", "a.pcap.gz"]),
        (["/x/a.pcap.zst", "/x/b.PCAP.GZ", "/x/c.xz", "-"], ["a", "b", "c", "stdin"]),
        (["-", "/x/stdin.pcap"], ["-", "stdin.pcap"]),
        (["/a.pcap", "/x/a.pcap"], ["a.pcap", "x/a.pcap"]),
        (["/x/caf\udce9.pcap", "/x/caf\u00e9.pcap"], ["caf\\xe9", "caf\u00e9"]),
        (["/\udcff/a.pcap", "/y/a.pcap"], ["\\xff/a.pcap", "y/a.pcap"]),
        ([], []),
    ],
)
def test_links_of_bare_files_are_told_apart(files: list[str], links: list[str]) -> None:
    assert link_names([Path(file) for file in files]) == links


@pytest.mark.parametrize("name", ["logins.csv", "logins.CSV.gz", "logins.parquet", "logins.jsonl"])
def test_a_table_without_a_schema_is_refused_before_the_query_is_compiled(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("user\neve\n")
    with pytest.raises(InputError, match=rf"{name}: got a table .*, or wiretide query --schema FILE"):
        bind_files([str(tmp_path / name)])
    with pytest.raises(InputError, match="got a table without a schema"):
        bind_streams({"logins": [str(tmp_path / name)]})


def test_links_of_relative_files_are_told_apart_by_where_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub" / "a.pcap").touch()
    monkeypatch.chdir(folder / "sub")
    assert [each.link for each in bind_files(["a.pcap", "../a.pcap"])] == ["sub/a.pcap", f"{folder.name}/a.pcap"]


@pytest.mark.parametrize(
    ("files", "streams"),
    [
        (["a.pcap", "a.pcap"], {}),
        (["a.pcap", "sub/../a.pcap"], {}),
        (["a.pcap", "same.pcap"], {}),
        ([], {"M": ["a.pcap", "[a].pcap"]}),
        ([], {"M": ["a.pcap"], "m": ["same.pcap"]}),
        (["a.pcap"], {"M": ["a.pcap"]}),
    ],
)
def test_a_file_that_would_be_counted_twice_is_refused(
    files: list[str], streams: dict[str, list[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("same.pcap").symlink_to("a.pcap")
    inputs = bind_files(files) + bind_streams(streams)
    with pytest.raises(WiretideError, match=r"(a|same)\.pcap.* is bound twice to .*counted twice"):
        check_streams([compile_query("SELECT count(*) FROM M")], inputs)


def test_a_file_may_be_two_streams(folder: Path) -> None:
    inputs = bind_streams({"M": [str(folder / "a.pcap")], "N": [str(folder / "a.pcap")]})
    check_streams([compile_query("SELECT count(*) FROM M UNION N")], inputs)


def test_files_bound_to_a_name_are_one_link(folder: Path) -> None:
    inputs = bind_streams({"M": [str(folder / "a.pcap"), str(folder / "sub")], "N": [str(folder / "b.pcap")]})
    assert [(each.link, each.path.name, each.stream) for each in inputs] == [
        ("M", "a.pcap", "M"),
        ("M", "c.pcap", "M"),
        ("N", "b.pcap", "N"),
    ]
    plan = compile_query("SELECT count(*) FROM m")
    assert [each.feeds(plan.leaves[0]) for each in inputs] == [True, True, False]


def test_a_name_without_a_file_is_an_error_that_lists_the_bound_ones(folder: Path) -> None:
    inputs = bind_streams({"Main1": [str(folder / "a.pcap")], "Main2": [str(folder / "b.pcap")]})
    check_streams([compile_query("SELECT count(*) FROM MAIN1 UNION main2")], inputs)
    plan = compile_query("SELECT count(*) FROM Main1 UNION Main3", "pairs")
    with pytest.raises(WiretideError, match="query pairs: no file for the stream Main3; bound are: Main1, Main2"):
        check_streams([plan], inputs)


def test_a_folder_that_is_followed_is_one_link_named_after_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "sub")
    assert bind_files(["."], follow=True) == [Input("sub", Path(), None, True)]
    assert bind_files(["../b1/", "c.pcap"], follow=True) == [
        Input("b1", Path("../b1"), None, True),
        Input("c", Path("c.pcap"), None, True),
    ]
    assert bind_streams({"M": [str(folder / "sub")]}, follow=True) == [Input("M", folder / "sub", "M", True)]


def test_a_glob_that_is_followed_is_one_link_whose_files_may_be_to_come(folder: Path) -> None:
    assert bind_files([f"{folder}/main-*.pcap"], follow=True) == [Input("main-*", folder / "main-*.pcap", None, True)]
    assert bind_streams({"M": [f"{folder}/*.pcap"]}, follow=True) == [Input("M", folder / "*.pcap", "M", True)]
    nested = bind_files([f"{folder}/*/c.pcap"], follow=True)  # a glob over folders is the files that there are
    assert nested == [Input("c", folder / "sub" / "c.pcap", None, True)]


def test_a_file_beside_the_folder_that_is_followed_with_it_is_refused(folder: Path) -> None:
    plan = compile_query("SELECT count(*) FROM M UNION N")
    for path in (".", "*.pcap"):
        twice = bind_streams({"M": [f"{folder}/a.pcap", f"{folder}/{path}"]}, follow=True)
        with pytest.raises(WiretideError, match=r"a\.pcap is one of .*, which is followed; expected only one of them"):
            check_streams([plan], twice)
    check_streams([plan], bind_streams({"M": [f"{folder}/a.pcap", f"{folder}/b*.pcap"], "N": [str(folder)]}, True))


def test_standard_input_is_a_link_and_a_file_of_that_name_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("./-").touch()
    assert bind_files(["-"], follow=True) == [Input("stdin", Path("-"))]
    assert bind_streams({"Main1": ["-"]}) == [Input("Main1", Path("-"), "Main1")]
    assert bind_files(["./-"]) == [Input("-", folder / "-")]


@pytest.mark.parametrize("streams", [{"M": ["PATH", "PATH"]}, {"M": ["PATH"], "N": ["PATH"]}])
@pytest.mark.parametrize("path", ["-", "pipe"])
def test_what_can_be_read_once_is_given_once(
    path: str, streams: dict[str, list[str]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    os.mkfifo("pipe")
    inputs = bind_streams({name: [path for _ in paths] for name, paths in streams.items()})
    with pytest.raises(WiretideError, match=f"{path} is given 2 times; expected once"):
        check_streams([compile_query("SELECT count(*) FROM M UNION N")], inputs)


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("packets", ["A", "B", "flows"]),
        ("Flows", ["flows"]),
        ("flows.flows", ["flows"]),
        ("flows.packets", ["flows"]),
        ("a.flows", ["A"]),
        ("a.frames UNION B.frames", ["A", "B"]),
        ("A UNION b", ["A", "B"]),
    ],
)
def test_a_kind_reads_every_input_unless_it_is_the_name_of_one(source: str, read: list[str], folder: Path) -> None:
    inputs = bind_streams(
        {"A": [str(folder / "a.pcap")], "B": [str(folder / "b.pcap")], "flows": [str(folder / "sub")]}
    )
    plan = compile_query(f"SELECT count(*) FROM {source}")
    check_streams([plan], inputs)
    assert [each.stream for each in inputs if each.feeds(plan.leaves[0])] == read
    assert all(each.feeds(plan.leaves[0]) for each in bind_files([str(folder / "a.pcap")]))


def test_a_kind_of_a_link_without_files_is_named(folder: Path) -> None:
    inputs = bind_streams({"A": [str(folder / "a.pcap")]})
    with pytest.raises(InputError, match="query query: no file for the stream B; bound are: A"):
        check_streams([compile_query("SELECT count(*) FROM B.flows")], inputs)
    with pytest.raises(InputError, match="no file for the stream frames; bound are: none"):
        check_streams([compile_query("SELECT count(*) FROM frames")], [])


def test_a_link_that_is_bound_as_packets_is_what_that_name_reads(tmp_path: Path) -> None:
    """On all engines. The names of other kinds, and other names, keep their meaning."""
    pytest.importorskip("pyspark")
    from tests.harness.spark_tasks import batch_answers, stream_answers

    frame = small_captures.udp("10.0.0.1", "10.0.0.2", 1, 2)
    for name, count in (("packets", 2), ("A", 3)):
        small_captures.write(tmp_path / f"{name}.pcap", [(second, frame) for second in range(count)])
    inputs = bind_streams({name: [str(tmp_path / f"{name}.pcap")] for name in ("packets", "A")})
    expected = {"packets": 2, "PACKETS": 2, "packets.frames": 2, "A": 3, "A.packets": 3, "frames": 5, "packets p": 2}
    plans = [compile_query(f"SELECT count(*) AS n FROM {source}", source) for source in expected]
    check_streams(plans, inputs)
    found = {plans[number].name: batch["n"].to_pylist() for number, batch in InlineRun(plans, inputs).results()}
    assert found == {source: [count] for source, count in expected.items()}
    streamed = stream_answers(plans, inputs, 2, tmp_path / "state", Random(1))
    answers = batch_answers(plans, inputs, 2, Random(1))
    for plan in plans:
        assert streamed[plan.name]["n"].to_pylist() == [expected[plan.name]]
        assert answers[plan.name]["n"].to_pylist() == [expected[plan.name]]


def test_a_folder_of_folders_is_refused_with_the_pattern_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "x" / "monday" / "night").mkdir(parents=True)
    (tmp_path / "x" / "monday" / "night" / "a.pcap").write_bytes(b"")
    pattern = f"{tmp_path}/x/**"
    with pytest.raises(InputError, match="contains no file") as refused:
        expand(f"{tmp_path}/x")
    assert f"use '{pattern}'" in str(refused.value)
    assert expand(pattern) == [tmp_path / "x" / "monday" / "night" / "a.pcap"]
