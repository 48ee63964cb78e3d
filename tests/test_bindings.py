"""Which files a query reads. A name bound to the wrong files, or to none without a word, is a wrong answer."""

from pathlib import Path

import pytest

from capture.errors import WiretideError
from highlevel.inline import Input
from queries.bindings import bind_files, bind_streams, check_streams, expand
from queries.gsql import compile_query


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.pcap", "a.pcap", ".hidden.pcap", "odd[1].pcap", "sub/c.pcap"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("a.pcap", ["a.pcap"]),
        ("", ["a.pcap", "b.pcap", "odd[1].pcap"]),  # hidden files and folders inside are left out
        ("[ab].pcap", ["a.pcap", "b.pcap"]),
        ("*/c.pcap", ["sub/c.pcap"]),
        ("**/c.pcap", ["sub/c.pcap"]),
        ("odd[1].pcap", ["odd[1].pcap"]),  # a file of that very name comes before a pattern
        ("missing.pcap", ["missing.pcap"]),  # opening it says what is wrong
    ],
)
def test_a_path_names_a_file_a_folder_or_a_glob(path: str, names: list[str], folder: Path) -> None:
    assert expand(f"{folder}/{path}") == [folder / name for name in names]


def test_a_glob_may_be_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert expand("[ab]*") == [Path("a.pcap"), Path("b.pcap")]


@pytest.mark.parametrize(("path", "message"), [("x*.pcap", "no file matches"), ("empty", "the folder holds no file")])
def test_a_path_without_files_is_an_error(path: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(WiretideError, match=message):
        expand(str(tmp_path / path))


def test_bare_files_feed_every_name_and_are_links_of_their_own(folder: Path) -> None:
    inputs = bind_files([str(folder / "b.pcap"), str(folder / "sub")])
    assert inputs == [Input("b", folder / "b.pcap"), Input("c", folder / "sub" / "c.pcap")]
    plan = compile_query("SELECT count(*) FROM whatever")
    assert all(each.feeds(plan) for each in inputs)
    check_streams([plan], inputs)


def test_files_bound_to_a_name_are_one_link(folder: Path) -> None:
    inputs = bind_streams({"M": [str(folder / "a.pcap"), str(folder / "sub")], "N": [str(folder / "b.pcap")]})
    assert [(each.link, each.path.name, each.stream) for each in inputs] == [
        ("M", "a.pcap", "M"),
        ("M", "c.pcap", "M"),
        ("N", "b.pcap", "N"),
    ]
    plan = compile_query("SELECT count(*) FROM m")
    assert [each.feeds(plan) for each in inputs] == [True, True, False]


def test_a_name_without_a_file_is_an_error_that_lists_the_bound_ones(folder: Path) -> None:
    inputs = bind_streams({"Main1": [str(folder / "a.pcap")], "Main2": [str(folder / "b.pcap")]})
    check_streams([compile_query("SELECT count(*) FROM MAIN1 UNION main2")], inputs)
    plan = compile_query("SELECT count(*) FROM Main1 UNION Main3", "pairs")
    with pytest.raises(WiretideError, match="query pairs: no file for the stream Main3; bound are: Main1, Main2"):
        check_streams([plan], inputs)
