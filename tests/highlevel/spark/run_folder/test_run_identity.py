"""Folders of runs that are resumed or refused, and the queries that keep their IDs.

A query that receives the ID of another one would load its windows. A query that loses its ID would lose its windows.
"""

import gzip
import os
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from random import Random

import pytest

from highlevel.inline.engine import Input
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.decompressed_inputs import decompress_once
from highlevel.spark.inputs.source import open_captures
from highlevel.spark.run_folder.checked_files import read_document, write_document
from highlevel.spark.run_folder.identity import (
    STATE_FORMAT,
    QueryChanges,
    RunIdentity,
    apply_identity,
    continue_identity,
    describe_run,
    read_identity,
    write_identity,
)
from lowlevel.expressions.user_functions import load
from queries.binding.definitions import define
from queries.gsql import compile_query
from tests.references.netflow_bytes import v5, v5_record

SQL = {
    "a": "SELECT count(*) FROM M [RANGE 1 s]",
    "b": "SELECT count(*) FROM M [RANGE 2 s]",
    "c": "SELECT count(*) FROM N [RANGE 3 s]",
}

BEGINS = "it begins where its inputs continue, so its first windows lack earlier rows"
ENDED = "its inputs have been read to their ends, so it has no results in this folder"


def described(queries: dict[str, str], *inputs: Input) -> tuple[InputAssignment, RunIdentity]:
    plans = [compile_query(sql, name) for name, sql in queries.items()]
    assignment = InputAssignment.of(plans, inputs)
    return assignment, describe_run(assignment, 2, 100, False, open_captures(inputs))


def ids_after(
    stored: RunIdentity, queries: dict[str, str], *inputs: Input, batch: int = 5
) -> tuple[RunIdentity, dict[str, int], QueryChanges]:
    _, new = described(queries, *inputs)
    identity, changes = continue_identity(Path("run"), stored, new, batch, batch)
    return identity, {query.name: query.id for query in identity.queries}, changes


def test_equal_queries_keep_their_ids_in_any_order_and_spelling() -> None:
    _, stored = described(SQL)
    assert {query.name: query.id for query in stored.queries} == {"a": 0, "b": 1, "c": 2}
    respelt = {"c": "select COUNT(*)  from N [range 3 seconds] -- three", "b": SQL["b"], "a": SQL["a"]}
    _, ids, changes = ids_after(stored, respelt)
    assert ids == {"c": 2, "b": 1, "a": 0}
    assert not changes
    assert changes.kept == ("c", "b", "a")


def test_changed_added_removed_and_renamed_queries_never_use_the_id_of_another() -> None:
    _, stored = described(SQL)
    identity, ids, changes = ids_after(
        stored, {"a": SQL["a"], "b": "SELECT sum(len) FROM M [RANGE 2 s]", "d": SQL["c"], "e": SQL["a"]}
    )
    assert ids == {"a": 0, "b": 3, "d": 2, "e": 4}
    assert changes == QueryChanges(("a",), (("c", "d"),), ("b",), ("e",), ())
    assert {query.name: query.since for query in identity.queries} == {"a": 0, "b": 5, "d": 0, "e": 5}
    _, ids, changes = ids_after(identity, SQL, batch=9)
    assert ids == {"a": 0, "b": 5, "c": 2}
    assert changes == QueryChanges(("a",), (("d", "c"),), ("b",), (), ("e",))


def test_queries_that_exchange_their_names_exchange_their_ids() -> None:
    _, stored = described({"a": SQL["a"], "b": SQL["b"]})
    _, ids, changes = ids_after(stored, {"a": SQL["b"], "b": SQL["a"]})
    assert ids == {"a": 1, "b": 0}
    assert set(changes.renamed) == {("a", "b"), ("b", "a")}
    assert not changes.removed


def test_equal_queries_with_two_names_keep_both_states() -> None:
    _, stored = described({"a": SQL["a"], "b": SQL["a"]})
    _, ids, changes = ids_after(stored, {"b": SQL["a"], "a": SQL["a"], "c": SQL["a"]})
    assert ids == {"b": 1, "a": 0, "c": 2}
    assert changes.added == ("c",)


def test_a_query_over_a_changed_query_is_changed_too() -> None:
    text = "SELECT max(n) FROM t [RANGE 1 minute]"

    def over(length: int) -> RunIdentity:
        plan = compile_query(f"WITH t AS (SELECT count(*) AS n FROM M [RANGE {length} s]) {text}", "q")
        return describe_run(InputAssignment.of([plan], []), 2, 100, False, {})

    _, changes = continue_identity(Path("run"), over(1), over(2), 5, 5)
    assert changes.changed == ("q",)


def test_every_start_says_what_became_of_each_query() -> None:
    changes = QueryChanges(("a",), (("old", "new"),), ("b", "d"), ("e",), ("f",))
    assert list(changes.lines(["d"])) == [
        "queries that keep their open windows: a",
        "query new: was old; it keeps its open windows, and its results go to a new folder",
        f"query b: changed; its open windows are dropped; {BEGINS}",
        f"query d: changed; its open windows are dropped; {ENDED}",
        f"query e: new; {BEGINS}",
        "query f: removed; its open windows are dropped, its results stay",
    ]


def test_inputs_that_queries_bring_and_leave_keep_their_ids_and_their_places(tmp_path: Path) -> None:
    spools = [Input(link, tmp_path / link, link, spool=True) for link in ("N", "M")]
    _, stored = described({"a": SQL["a"]}, spools[1])
    assignment, new = described({"c": SQL["c"], "a": SQL["a"]}, *spools)
    identity, _ = continue_identity(tmp_path, stored, new, 5, 6)
    assert [(each.id, each.link, each.since, each.is_read) for each in identity.inputs] == [
        (0, "M", 0, True),
        (1, "N", 6, True),
    ]
    applied = apply_identity(assignment, new, identity)
    assert [input_.link for input_ in applied.inputs] == ["M", "N"]
    assert (applied.query_ids, applied.first_batches) == ((1, 0), (5, 0))
    assert applied.offset_keys == [f"0 {tmp_path / 'M'}", f"1 {tmp_path / 'N'}"]
    without, *_ = ids_after(identity, {"c": SQL["c"]}, spools[0])
    assert [each.is_read for each in without.inputs] == [False, True]
    again, *_ = ids_after(without, SQL, *spools)
    assert [(each.id, each.is_read) for each in again.inputs] == [(0, True), (1, True)]


def test_a_query_that_would_read_other_inputs_is_refused(tmp_path: Path) -> None:
    spools = [Input("M", tmp_path / name, "M", spool=True) for name in ("one", "two")]
    _, stored = described({"a": SQL["a"]}, spools[0])
    with pytest.raises(FolderError, match=r"the query a reads other inputs: got .*/two, expected .*/one; take another"):
        ids_after(stored, {"a": SQL["a"]}, spools[1])


def test_a_pipeline_without_a_common_query_is_refused() -> None:
    _, stored = described({"a": SQL["a"], "b": SQL["b"]})
    with pytest.raises(FolderError, match="run contains a run of other queries: got c, expected some of a, b; take"):
        ids_after(stored, {"c": SQL["c"]})


def test_a_folder_of_another_format_of_the_state_is_refused(tmp_path: Path) -> None:
    _, mine = described({"a": SQL["a"]})
    assert read_identity(tmp_path) is None
    write_identity(tmp_path, mine)
    assert read_identity(tmp_path) == mine
    before = read_document(tmp_path / "run.json")
    for found in (6, STATE_FORMAT + 1, "none"):
        write_document(tmp_path / "run.json", before | {"state format": found})
        with pytest.raises(FolderError, match=f"another version of Wiretide: got .* {found}, expected 7 or 8 or 9;"):
            read_identity(tmp_path)
    write_document(tmp_path / "run.json", before | {"state format": 8})
    assert read_identity(tmp_path) is not None
    (query,) = before["queries"]
    document = before | {"state format": 8, "queries": [query | {"sql": "SELECT * FROM M AUTOMATON (START a FINAL a)"}]}
    write_document(tmp_path / "run.json", document)
    with pytest.raises(FolderError, match="got the state format 8, expected 9 for row patterns;"):
        read_identity(tmp_path)
    (tmp_path / "run.json").unlink()
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(FolderError, match="missing, but there is a checkpoint"):
        read_identity(tmp_path)


def test_a_capture_with_other_bytes_in_its_middle_is_another_input_and_a_copy_is_the_same(tmp_path: Path) -> None:
    content = bytearray(v5([v5_record(packets=number) for number in range(30)]) * 300)
    path = tmp_path / "a.dat"
    path.write_bytes(content)
    before = path.stat()
    queries = {"q": "SELECT count(*) FROM flows"}
    _, stored = described(queries, Input("a", path))
    ids_after(stored, queries, Input("a", path))
    copy = tmp_path / "copy"
    copy.write_bytes(content)
    copy.replace(path)  # another inode and time, the same bytes
    ids_after(stored, queries, Input("a", path))
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(FolderError, match=r"a run with another content of .*a\.dat: got .*, expected"):
        ids_after(stored, queries, Input("a", path))


def test_a_folder_of_an_earlier_version_continues_over_the_same_capture_only(tmp_path: Path) -> None:
    content = v5([v5_record(packets=number) for number in range(30)]) * 3
    path, queries = tmp_path / "a.dat", {"q": "SELECT count(*) FROM flows"}
    path.write_bytes(content)
    _, new = described(queries, Input("a", path))
    earlier = f"{len(content)} bytes, {blake2b(content, digest_size=16).hexdigest()}"
    stored = replace(new, inputs=(replace(new.inputs[0], content=earlier),))
    identity, _, _ = ids_after(stored, queries, Input("a", path))
    assert identity.inputs == new.inputs
    path.write_bytes(bytes([*content[:-1], content[-1] ^ 1]))
    with pytest.raises(FolderError, match=r"a run with another content of .*a\.dat: got .*, expected"):
        ids_after(stored, queries, Input("a", path))


def test_a_compressed_capture_with_other_bytes_in_its_middle_is_decompressed_again(tmp_path: Path) -> None:
    content = bytearray(Random(1).randbytes(400_000))
    path = tmp_path / "a.pcap.gz"
    found = []
    for bit in (0, 1, 0):
        content[200_000] = bit
        path.write_bytes(gzip.compress(content, mtime=0, compresslevel=0))
        found.append(decompress_once(path, tmp_path / "inputs", lambda _: None))
        assert found[-1].read_bytes() == content
    assert found[0] == found[2] != found[1]


def test_a_users_aggregate_of_other_parts_is_another_query() -> None:
    queries = {"q": "SELECT half(len) FROM M [RANGE 1 s]"}
    define("half", {"n": "sum(x)"}, lambda n: n / 2)
    _, stored = described(queries)
    define("half", {"n": "sum(x)"}, lambda n: n / 3)
    assert ids_after(stored, queries)[1] == {"q": 0}
    define("half", {"n": "max(x)"}, lambda n: n / 2)
    assert ids_after(stored, queries)[1] == {"q": 1}


def test_a_function_of_a_user_with_other_types_makes_another_query_and_one_with_another_text_does_not(
    tmp_path: Path,
) -> None:
    queries = {"q": "SELECT count(*) FROM M [RANGE 1 s] WHERE len > 3 GROUP BY score(len)"}
    stored = None
    for number, (text, expected) in enumerate(
        [
            ("def score(x: int) -> int: return x", 0),
            ("def score(x: int) -> int: return x + 1", 0),
            ("def score(x: int) -> str: return str(x)", 1),
            ("def score(x: float) -> int: return 1", 1),
        ]
    ):
        file = tmp_path / f"{number}.py"
        file.write_text(f"import wiretide\n@wiretide.function\n{text}\n")
        load(file)
        stored = described(queries)[1] if stored is None else stored
        assert ids_after(stored, queries)[1] == {"q": expected}, text
