"""Folders of runs that are gone on with, or are not: what they were made for is compared word by word."""

from pathlib import Path

import pytest

from highlevel.spark.checked_files import read_document, write_document
from highlevel.spark.errors import FolderError
from highlevel.spark.feeds import Feeds
from highlevel.spark.run_identity import STATE_FORMAT, claim, identity
from queries import user_aggregates
from queries.gsql import compile_query


def described(sql: str) -> dict[str, object]:
    return identity(Feeds.of([compile_query(sql, "q")], []), 2, 100, False)


def test_a_folder_of_another_format_of_the_state_is_refused(tmp_path: Path) -> None:
    mine = described("SELECT count(*) FROM M [RANGE 1 s]")
    claim(tmp_path, mine)
    claim(tmp_path, mine)
    before = read_document(tmp_path / "run.json")
    del before["state format"]
    write_document(tmp_path / "run.json", before)
    with pytest.raises(FolderError, match=f"a different state format: got {STATE_FORMAT}, expected none"):
        claim(tmp_path, mine)


def test_a_users_aggregate_of_other_parts_is_another_run(tmp_path: Path) -> None:
    sql = "SELECT half(len) FROM M [RANGE 1 s]"
    user_aggregates.define("half", {"n": "sum(x)"}, lambda n: n / 2)
    claim(tmp_path, described(sql))
    claim(tmp_path, described(sql))
    user_aggregates.define("half", {"n": "max(x)"}, lambda n: n / 2)
    with pytest.raises(FolderError, match=r"a different query 0, half\(len\)"):
        claim(tmp_path, described(sql))
