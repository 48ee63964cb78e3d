"""Folders of runs that are resumed or refused: the stored purpose of the run is compared word by word."""

import gzip
import os
from pathlib import Path
from random import Random

import pytest

from highlevel.inline.engine import Input
from highlevel.spark.checked_files import read_document, write_document
from highlevel.spark.decompressed_inputs import decompress_once
from highlevel.spark.errors import FolderError
from highlevel.spark.input_assignment import InputAssignment
from highlevel.spark.run_identity import STATE_FORMAT, claim_folder, describe_run
from lowlevel.expressions.user_functions import load
from queries.binding.define import define
from queries.gsql import compile_query
from tests.references.netflow_bytes import v5, v5_record


def described(sql: str) -> dict[str, object]:
    return describe_run(InputAssignment.of([compile_query(sql, "q")], []), 2, 100, False)


def test_a_folder_of_another_format_of_the_state_is_refused(tmp_path: Path) -> None:
    mine = described("SELECT count(*) FROM M [RANGE 1 s]")
    claim_folder(tmp_path, mine)
    claim_folder(tmp_path, mine)
    before = read_document(tmp_path / "run.json")
    del before["state format"]
    write_document(tmp_path / "run.json", before)
    with pytest.raises(FolderError, match=f"a different state format: got {STATE_FORMAT}, expected none"):
        claim_folder(tmp_path, mine)


def test_a_capture_with_other_bytes_in_its_middle_is_another_input_and_a_copy_is_the_same(tmp_path: Path) -> None:
    content = bytearray(v5([v5_record(packets=number) for number in range(30)]) * 300)
    path = tmp_path / "a.dat"
    path.write_bytes(content)
    before = path.stat()
    plans = [compile_query("SELECT count(*) FROM flows", "q")]

    def described_now() -> dict[str, object]:
        return describe_run(InputAssignment.of(plans, [Input("a", path)]), 2, 100, False)

    claim_folder(tmp_path, described_now())
    copy = tmp_path / "copy"
    copy.write_bytes(content)
    copy.replace(path)  # another inode and time, the same bytes
    claim_folder(tmp_path, described_now())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(FolderError, match="a different input 0"):
        claim_folder(tmp_path, described_now())


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


def test_a_users_aggregate_of_other_parts_is_another_run(tmp_path: Path) -> None:
    sql = "SELECT half(len) FROM M [RANGE 1 s]"
    define("half", {"n": "sum(x)"}, lambda n: n / 2)
    claim_folder(tmp_path, described(sql))
    claim_folder(tmp_path, described(sql))
    define("half", {"n": "max(x)"}, lambda n: n / 2)
    with pytest.raises(FolderError, match=r"a different query 0, half\(len\)"):
        claim_folder(tmp_path, described(sql))


def test_a_function_of_a_user_with_other_types_is_refused_and_with_another_text_continues(tmp_path: Path) -> None:
    sql = "SELECT count(*) FROM M [RANGE 1 s] WHERE len > 3 GROUP BY score(len)"
    for number, (text, is_refused) in enumerate(
        [
            ("def score(x: int) -> int: return x", False),
            ("def score(x: int) -> int: return x + 1", False),
            ("def score(x: int) -> str: return str(x)", True),
            ("def score(x: float) -> int: return 1", True),
        ]
    ):
        file = tmp_path / f"{number}.py"
        file.write_text(f"import wiretide\n@wiretide.function\n{text}\n")
        load(file)
        mine = described(sql)
        if is_refused:
            with pytest.raises(
                FolderError, match=r"a different query 0, function score: got score\(.*expected score\(int"
            ):
                claim_folder(tmp_path, mine)
        else:
            claim_folder(tmp_path, mine)
