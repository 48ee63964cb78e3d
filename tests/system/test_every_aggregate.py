"""Every aggregate of GSQL, on every engine and in every form of output.

The aggregates are all that the binder supports. The arguments are a number, a nullable number, a float, an address, a
MAC and a text, if the aggregate accepts them. So a new aggregate is tested as soon as it exists. The tests can catch an
output that does not know an aggregate or its type, and an engine that gives other values.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

import wiretide
from dashboards.monitors.pipeline import Monitor
from dashboards.monitors.window_lines import window_lines
from dashboards.output.formats import Format
from dashboards.output.writers import write_results
from dashboards.prometheus.exporter import Exporter
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from queries.binding.aggregates import BOUNDED_AGGREGATES, HOLISTIC_AGGREGATES
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from queries.text.errors import QueryError
from tests.references.exporter_rows import exposition
from tests.references.pcap_bytes import NS, pcap_bytes

ARGUMENTS = ("len", "destPort", "len * 0.5", "ts", "destIP", "srcMAC", "link")
WINDOW = "[RANGE 1 minute, SLIDE 1 minute, WA ts]"
DOCS = Path(__file__).parents[2] / "docs" / "guide"
CALLS = [
    "count(*)",
    "count(DISTINCT x)",
    "rms(x)",
    *(f"{name}(x)" for name in BOUNDED_AGGREGATES),
    *HOLISTIC_AGGREGATES.values(),
]


def define_rms() -> None:
    wiretide.aggregate("rms", {"n": "count(x)", "q": "sum(x * x)"}, lambda n, q: np.sqrt(q / n))


def accepted(call: str) -> bool:
    try:
        compile_query(f"SELECT {call} FROM packets {WINDOW}")
    except QueryError:
        return False
    return True


@dataclass(frozen=True)
class Question:
    """A query by srcIP over one window, whose columns a0, a1, … are `calls`, and its plan."""

    name: str
    calls: list[str]
    sql: str
    plan: Plan


def question_of(name: str, argument: str) -> Question:
    calls = [re.sub(r"\bx\b", argument, call) for call in CALLS]
    calls = [call for call in dict.fromkeys(calls) if accepted(call)]
    columns = ", ".join(f"{call} AS a{place}" for place, call in enumerate(calls))
    sql = f"SELECT srcIP, {columns} FROM packets {WINDOW} GROUP BY srcIP"
    return Question(name, calls, sql, compile_query(sql, name))


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    """One query for each argument, so that the values of different arguments do not multiply."""
    define_rms()
    return [question_of(f"q{place}", argument) for place, argument in enumerate(ARGUMENTS)]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packets of three sources within a minute, of which one has no ports and another a single packet."""
    random = Random("every aggregate")
    records = []
    for number in range(60):
        source = random.choice([1, 1, 2]) if number else 3
        protocol = 1 if source == 2 else 17
        length = 40 + number % 7
        header = bytes([0x45, 0, 0, length, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, source, 10, 0, 1, number % 3])
        body = bytes([0, 9, 0, 50 + number % 4]).ljust(length - 20, b"\0")
        ethernet = bytes(6) + bytes([2, 0, 0, 0, 0, number % 2]) + b"\x08\x00"
        records.append((1_700_000_000 * NS + number * NS // 10, ethernet + header + body))
    path = tmp_path_factory.mktemp("aggregates") / "M.pcap"
    path.write_bytes(pcap_bytes(records))
    return path


@pytest.fixture(scope="module")
def answers(questions: list[Question], capture: Path) -> dict[str, pa.Table]:
    """The answers of the inline engine, by the names of the questions."""
    plans = [question.plan for question in questions]
    run = InlineRun(plans, [Input("M", capture)])
    found = {plan.name: [plan.schema.empty_table()] for plan in plans}
    for number, batch in run.results():
        found[plans[number].name].append(pa.Table.from_batches([batch]))
    return {name: pa.concat_tables(tables) for name, tables in found.items()}


def rows_by_source(table: pa.Table) -> dict[str, list[Any]]:
    """The values of a0, a1, … by source address; addresses as text."""
    names = [name for name in table.column_names if re.fullmatch(r"a\d+", name)]
    return {spelled(row["srcIP"]): [spelled(row[name]) for name in names] for row in table.to_pylist()}


def spelled(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex(":") if len(value) == 6 else str(ip_address(value))
    return value


def near(one: Any, other: Any) -> bool:
    return one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    )


def differing(question: Question, got: dict[str, list[Any]], want: dict[str, list[Any]]) -> list[str]:
    """The aggregates whose values differ."""
    assert got.keys() == want.keys()
    return [
        call
        for place, call in enumerate(question.calls)
        if not all(near(got[source][place], want[source][place]) for source in want)
    ]


def test_the_documents_name_every_aggregate() -> None:
    text = (DOCS / "sql.md").read_text().split("## Aggregates")[1].split("## Names")[0]
    all_values = (DOCS / "aggregates.md").read_text()
    assert set(HOLISTIC_AGGREGATES) <= set(re.findall(r"`(\w+)\(", all_values))
    assert set(BOUNDED_AGGREGATES) <= set(re.findall(r"`(\w+)", text))


def test_the_questions_ask_for_every_aggregate(questions: list[Question], answers: dict[str, pa.Table]) -> None:
    asked = {call.split("(")[0] for question in questions for call in question.calls}
    assert asked == {call.split("(")[0] for call in CALLS}
    assert all(table.num_rows == 3 for table in answers.values())


def column_readers() -> dict[Format, Callable[[bytes], list[dict[str, Any]]]]:
    """Return a function per format that reads the rows of a result. Text formats return texts or None."""
    return {
        Format.CSV: lambda text: list(csv.DictReader(io.StringIO(text.decode(), newline=""))),
        Format.JSON: lambda text: [json.loads(line) for line in text.decode().splitlines()],
        Format.PARQUET: lambda data: pq.read_table(pa.BufferReader(data)).to_pylist(),
        Format.ARROW: lambda data: pa.ipc.open_stream(data).read_all().to_pylist(),
        Format.TABLE: table_rows,
    }


def table_rows(text: bytes) -> list[dict[str, Any]]:
    """Return the rows of one table. The rule below its header defines where columns begin and end."""
    header, rule, *lines = text.decode().rstrip().splitlines()
    places = [match.span() for match in re.finditer("-+", rule)]
    names = [header[start:end].strip() for start, end in places]
    return [dict(zip(names, (line[start:end].strip() for start, end in places), strict=True)) for line in lines if line]


def valued(found: Any, want: Any) -> Any:
    """Convert a text from the output to the type of the expected value."""
    if found in ("", "NULL"):
        return None
    return type(want)(found) if isinstance(found, str) and want is not None else spelled(found)


@pytest.mark.parametrize("kind", [kind for kind in Format if kind is not Format.OPENMETRICS])
def test_every_aggregate_is_written_and_read_back(
    kind: Format, questions: list[Question], answers: dict[str, pa.Table]
) -> None:
    for question in questions:
        plan, table = question.plan, answers[question.name]
        sink = io.BytesIO()
        write_results(table.combine_chunks().to_batches(), plan.schema, kind, sink, times=plan.times)
        rows = {spelled(row["srcIP"]): row for row in column_readers()[kind](sink.getvalue())}
        want = rows_by_source(table)
        assert rows.keys() == want.keys()
        if "min(ts)" in question.calls:
            continue  # times have spellings of their own, which test_result_files is about
        for source, values in want.items():
            for place, (call, value) in enumerate(zip(question.calls, values, strict=True)):
                got = valued(rows[source][f"a{place}"], value)
                if kind is Format.TABLE and isinstance(value, float):
                    value = float(f"{value:.6g}")
                assert near(got, value), (kind, call, source)


def check_metrics(exposition: str, question: Question, table: pa.Table) -> None:
    """Each number is a gauge with a series for each source that has one; texts and addresses are labels."""
    families = {family.name: family for family in text_string_to_metric_families(exposition)}
    types = question.plan.schema
    for place, call in enumerate(question.calls):
        column = f"a{place}"
        values = {source: row[place] for source, row in rows_by_source(table).items()}
        if pa.types.is_string(types.field(column).type) or pa.types.is_binary(types.field(column).type):
            shown = {sample.labels["src_ip"]: sample.labels[column] for sample in families[count_of(question)].samples}
            assert shown == {source: value or "" for source, value in values.items()}, call
            continue
        family = families[f"wiretide_query_{question.name}_{column}"]
        shown = {sample.labels["src_ip"]: sample.value for sample in family.samples}
        assert shown == pytest.approx({source: value for source, value in values.items() if value is not None}), call


def count_of(question: Question) -> str:
    return f"wiretide_query_{question.name}_a{question.calls.index('count(*)')}"


def test_every_aggregate_is_exposed_to_prometheus(questions: list[Question], answers: dict[str, pa.Table]) -> None:
    exporter = Exporter([question.plan for question in questions], [])
    for question in questions:
        exporter.add_results(question.name, answers[question.name])
    for question in questions:
        check_metrics(exposition(exporter), question, answers[question.name])


def test_every_aggregate_is_on_the_console(questions: list[Question], answers: dict[str, pa.Table]) -> None:
    for question in questions:
        (line,) = window_lines(question.plan, answers[question.name])
        assert re.findall(r"\b(a\d+) ", line) == [f"a{place}" for place in range(len(question.calls))]


@pytest.mark.parametrize("parts", [1, 2])
def test_the_tasks_of_spark_give_every_aggregate(
    parts: int, questions: list[Question], answers: dict[str, pa.Table], capture: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    from tests.harness.spark_tasks import batch_answer, stream_answers

    inputs = [Input("M", capture)]
    streamed = stream_answers([question.plan for question in questions], inputs, parts, tmp_path, Random(parts))
    for question in questions:
        want = rows_by_source(answers[question.name])
        batch = batch_answer(question.plan, inputs, parts, Random(parts))
        assert differing(question, rows_by_source(batch), want) == []
        assert differing(question, rows_by_source(streamed[question.name]), want) == []


@pytest.mark.spark
def test_a_pipeline_on_spark_gives_every_aggregate(
    spark, questions: list[Question], answers: dict[str, pa.Table], capture: Path, tmp_path: Path
) -> None:
    """All aggregates in one run of `wiretide run`: its files, its metrics and its messages."""
    from highlevel.spark.batch import run_batch
    from tests.harness.spark_results import read_results

    define_rms()
    queries = "".join(f'[queries.{question.name}]\nsql = "{question.sql}"\n' for question in questions)
    text = f'folder = "state"\n[links]\nM = "{capture}"\n{queries}[metrics]\nport = 0\n'
    pipeline = parse_pipeline(text, tmp_path)
    said: list[str] = []
    with Monitor(pipeline, said.append) as monitor:
        monitor.wait()
        shown = exposition(monitor.exporter)
    for question in questions:
        want = answers[question.name]
        assert (
            differing(question, rows_by_source(read_results(tmp_path / "state", question.plan)), rows_by_source(want))
            == []
        )
        check_metrics(shown, question, want)
        assert sum(f"  {question.name}: 3 rows" in line for line in said) == 1
    numbers = questions[0]
    batch = run_batch(spark, numbers.plan, [Input("M", capture)])
    assert differing(numbers, rows_by_source(batch), rows_by_source(answers[numbers.name])) == []
