"""Several queries in one pass: the command and `Inputs.query_all` give each query the answer of its own run."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import wiretide
from capture.errors import InputError
from dashboards import many_queries
from dashboards.command_arguments import split_words
from queries.query_text import query_names
from queries.text.errors import QueryError
from tests.harness.command_line import run
from tests.references.small_captures import icmp, udp, write

FRAME = udp("10.0.0.1", "10.0.0.9", 1, 53)
PROTOCOLS = "SELECT protocol, count(*) AS n FROM packets GROUP BY protocol ORDER BY protocol"
ROWS = "SELECT ts, srcIP FROM packets"
QUERIES = ["@top-talkers", PROTOCOLS, ROWS, "SELECT count(*) FROM packets [RANGE 10 s] WHERE len > 9999"]
NAMES = ["top-talkers", "query-2", "query-3", "query-4"]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    packets = [(1, FRAME), (2, icmp("10.0.0.2", "10.0.0.9")), (3, FRAME), (25, FRAME)]
    return write(tmp_path / "M.pcap", packets)


def test_tables_follow_each_other_under_the_names_of_the_queries(capture: Path) -> None:
    parts = run("query", capture, *QUERIES, cwd=capture.parent)[1].split("\n\n")
    assert [part.split("\n")[0] for part in parts] == NAMES
    for part, text in zip(parts, QUERIES, strict=True):
        alone = run("query", capture, text, cwd=capture.parent)[1]
        assert part.split("\n", 1)[1].rstrip("\n") == alone.rstrip("\n")


@pytest.mark.parametrize("spill", [many_queries.SPILL_BYTES, 1], ids=["memory", "files"])
@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_a_folder_has_a_file_for_each_query(
    format_: str, spill: int, capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_queries, "SPILL_BYTES", spill)
    plans, inputs = _bound(capture)
    style = many_queries.AnswerFormat(many_queries.Format(format_))
    many_queries.answer_all_into(plans, inputs, tmp_path / "new" / "answers", style)
    files = sorted(path.name for path in (tmp_path / "new" / "answers").iterdir())
    assert files == sorted(f"{name}.{format_}" for name in NAMES)
    for name, text in zip(NAMES, QUERIES, strict=True):
        path = tmp_path / "new" / "answers" / f"{name}.{format_}"
        table = pa.csv.read_csv(path) if format_ == "csv" else pa.parquet.read_table(path)
        expected = wiretide.query(text, capture)
        assert table.column_names == expected.column_names
        assert table.num_rows == expected.num_rows
        if format_ == "parquet":
            assert table == expected


def _bound(capture: Path) -> tuple[list, list]:
    from dashboards import request

    return request.bind_all(request.texts_of(QUERIES, None), "outer", None, [capture], None, follow=False)


def test_each_query_has_the_parameters_that_it_declares(capture: Path) -> None:
    words = ["--param", "n=1", "--param", "packets=1"]
    _, output, _ = run("query", capture, "@top-talkers", "@floods", *words, cwd=capture.parent)
    talkers, floods = output.split("\n\n")
    assert len(talkers.split("\n")) == 4  # name, header, line, one row
    assert floods.split("\n")[0] == "floods"
    assert len(floods.rstrip("\n").split("\n")) > 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["M.pcap", "@floods", "SELECT cuont(*) FROM p"], "query-2: line 1, column 8: unknown function 'cuont'"),
        (["M.pcap", "@floods", "@flods"], "unknown query '@flods'"),
        (
            ["M.pcap", "@floods", "@floods", "--param", "m=1"],
            "expected a parameter of one of these queries",
        ),
        (
            ["M.pcap", "@packets", PROTOCOLS, "--format", "csv"],
            "for one output, expected -o FOLDER",
        ),
        (["M.pcap", "@packets", PROTOCOLS, "-o", "M.pcap"], "expected a folder for their answers"),
        (["M.pcap", "@packets", PROTOCOLS, "-o", "M.pcap/x"], "M.pcap/x: cannot be made: Not a directory"),
        (["-", "@packets", PROTOCOLS], "several queries read complete files: got -"),
        (["M.pcap", "@packets", PROTOCOLS, "--follow"], "several queries read complete files: got --follow"),
        (["M.pcap", "@packets", PROTOCOLS, "--on", "local", "--threads", "2"], "--threads needs the inline engine"),
        (["M.pcap", "@packets", PROTOCOLS, "-o", "-"], "--output -: got several queries, expected a folder"),
        (["@packets", PROTOCOLS], "no input"),
    ],
)
def test_wrong_requests_are_refused(words: list[str], message: str, capture: Path) -> None:
    status, output, error = run("query", *words, cwd=capture.parent)
    assert status == (1 if "cannot be made" in message else 2)
    assert message in " ".join(error.split())
    assert not output


def test_queries_are_told_from_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "select 1.pcap").touch()
    assert split_words(["@floods"]) == ([], ["@floods"])
    assert split_words(["a", "b", "with x as (select 1) select 2 from x"])[0] == ["a", "b"]
    assert split_words(["select 1.pcap", "select 2 from p", "select\n3 from p"])[0] == ["select 1.pcap"]
    assert split_words(["selected", "mistyped"]) == (["selected"], ["mistyped"])


def test_names_are_unique() -> None:
    assert query_names(["@a", "@a", "@A", "SELECT 1", "@query-4"]) == ["a", "a-2", "a-3", "query-4", "query-4-2"]


def test_results_of_python_are_those_of_single_queries(capture: Path) -> None:
    with wiretide.open(capture) as inputs:
        results = inputs.query_all(QUERIES)
        named = inputs.query_all({"protocols": PROTOCOLS, "talkers": "@top-talkers"}, {"n": 1})
        singles = [inputs.query(text) for text in QUERIES]
        assert [*results] == NAMES
        for result, single in zip(results.values(), singles, strict=True):
            assert result.arrow() == single.arrow()
        assert list(results["query-2"].windows()) == list(singles[1].windows())
    assert named["protocols"].pandas().equals(singles[1].pandas())
    assert named["talkers"].arrow().num_rows == 1


@pytest.mark.spark
def test_results_of_spark_are_those_of_the_inline_engine(spark: object, capture: Path) -> None:
    """All queries are one job."""
    with wiretide.open(capture) as inline, wiretide.open(capture, on="local") as on_spark:
        found, expected = on_spark.query_all(QUERIES), inline.query_all(QUERIES)
    assert [*found] == NAMES
    for name, result in expected.items():
        assert found[name].arrow().sort_by([(column, "ascending") for column in result.schema.names]) == result.arrow()


def test_python_over_tables_runs_each_query(capture: Path) -> None:
    table = pa.table({"a": [1, 2, 2]})
    results = wiretide.open(table).query_all({"x": "SELECT count(*) AS n FROM t", "y": "SELECT DISTINCT a FROM t"})
    assert results["x"].arrow().to_pylist() == [{"n": 3}]
    assert results["y"].arrow().num_rows == 2


def test_python_refuses_a_text_live_inputs_and_wrong_queries(capture: Path, tmp_path: Path) -> None:
    with wiretide.open(capture) as inputs:
        with pytest.raises(ValueError, match="got the text '@floods', expected a list of queries"):
            inputs.query_all("@floods")
        with pytest.raises(QueryError, match="bad: line 1, column 8: unknown function 'cuont'"):
            inputs.query_all({"good": PROTOCOLS, "bad": "SELECT cuont(*) FROM p"})
    with pytest.raises(InputError, match="got several queries over standard input, expected files"):
        wiretide.open("-").query_all([PROTOCOLS, ROWS])


def test_a_damaged_file_is_warned_of_once(capture: Path) -> None:
    path = capture.with_suffix(".pcap.gz")
    path.write_bytes(gzip.compress(capture.read_bytes())[:-12])
    with pytest.warns(RuntimeWarning) as warned:
        wiretide.open(path).query_all([PROTOCOLS, ROWS])
    assert len(warned) == 1
    assert warned[0].filename == __file__
