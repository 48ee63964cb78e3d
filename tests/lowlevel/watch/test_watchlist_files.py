"""Watchlists in files that change: when and by which part they are read again, and the old list if they cannot be read.

* A clock under control of the test detects polls that are too frequent or that stop.
* Broken, vanished and returning files catch a list that is emptied by them, and a warning that is repeated.
* Two versions within one block catch rows of a block that are judged by different lists.
* Labels of several versions catch numbers that mean another text after a reload.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from capture.errors import InputError
from capture.files.scan import scan
from capture.metrics import Samples
from capture.open import open_capture
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from lowlevel.expressions.columns import TextVector
from lowlevel.expressions.evaluate import find_in_watchlist, find_longest_prefix
from lowlevel.expressions.tree import Column, InWatchlist, LongestPrefix, columns_of, parts_of
from lowlevel.expressions.types import Type
from lowlevel.metrics import WATCHLIST_ENTRIES, WATCHLIST_FAILED, WATCHLIST_RELOADS
from lowlevel.node.node import Node
from lowlevel.node.node_watchlists import NodeWatchlists, bind_watchlists, find_watched_files
from lowlevel.watch.contents import Form
from lowlevel.watch.watched_file import CheckResult, WatchedFile, Watchlist, Watchlists
from queries.gsql import compile_query
from tests.harness.links import write_links
from tests.references.made_rows import vector_of

SRC = Column("srcIP", Type.ADDRESS, nullable=True)
TEN, ELEVEN = ip_address("10.0.0.1"), ip_address("11.0.0.1")


def write(path: Path, text: str) -> None:
    """Put another version in place, as programs should: whole, by renaming; its inode or its size differs."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def opened(path: Path, form: Form = Form.ADDRESSES) -> Watchlist:
    return Watchlists().open(WatchedFile(str(path), form))


def inside(file: Watchlist, *addresses: Any) -> list[bool]:
    return find_in_watchlist(vector_of(list(addresses), Type.ADDRESS, []), file.version.contents).data.tolist()


def labelled(vector: TextVector) -> list[str | None]:
    assert vector.valid is not None
    return [vector.names[each] if ok else None for each, ok in zip(vector.ids.tolist(), vector.valid, strict=True)]


def test_a_file_is_looked_at_at_most_once_a_second(tmp_path: Path) -> None:
    path = tmp_path / "list"
    write(path, "10.0.0.0/8\n")
    file = opened(path)
    assert inside(file, TEN, ELEVEN) == [True, False]
    assert file.refresh(100.0) is CheckResult.SAME
    write(path, "11.0.0.0/8 # changed\n")
    assert file.refresh(100.9) is CheckResult.SAME
    assert inside(file, TEN, ELEVEN) == [True, False]
    assert file.refresh(101.0) is CheckResult.RELOADED
    assert inside(file, TEN, ELEVEN) == [False, True]
    assert file.refresh(200.0) is CheckResult.SAME


@pytest.mark.parametrize("harm", ["broken", "vanished", "a folder", "changing"])
def test_a_list_stays_where_its_file_is_none(tmp_path: Path, harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "list"
    write(path, "10.0.0.0/8\n")
    file = opened(path)
    assert inside(file, TEN) == [True]
    match harm:
        case "broken":
            write(path, "11.0.0.0/8\nnonsense\n")
        case "changing":
            write(path, "11.0.0.0/8\n")
            real = os.fstat
            monkeypatch.setattr(os, "fstat", lambda number: [path.write_text("11.0.0.0"), real(number)][1])
        case _:
            path.rename(tmp_path / "aside")
    if harm == "a folder":
        path.mkdir()
    told = {"broken": "line 2: got 'nonsense'", "changing": "changed while it was read"}
    with pytest.warns(RuntimeWarning, match=told.get(harm, "cannot be read")) as warned:
        assert file.refresh(10.0) is CheckResult.FAILED
    assert str(warned[0].message).endswith("; the watchlist stays as it was")
    assert inside(file, TEN, ELEVEN) == [True, False]
    if harm != "changing":
        assert file.refresh(20.0) is CheckResult.SAME  # warned of once: a warning is an error here
    monkeypatch.undo()
    if harm == "a folder":
        path.rmdir()
    if harm in ("vanished", "a folder"):
        (tmp_path / "aside").rename(path)
        assert file.refresh(30.0) is CheckResult.SAME  # the very file that is known
    write(path, "11.0.0.0/16\n")
    assert file.refresh(40.0) is CheckResult.RELOADED
    assert inside(file, TEN, ELEVEN) == [False, True]


def test_a_file_that_was_never_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none: cannot be read as a watchlist: No such file"):
        inside(opened(tmp_path / "none"), TEN)


def test_a_thread_that_is_in_a_block_goes_on_with_the_old_list(tmp_path: Path) -> None:
    path = tmp_path / "list"
    write(path, "10.0.0.0/8\n")
    nodes = [NodeWatchlists(True, Watchlists(), lambda: 5.0) for _ in range(2)]
    (mine,), (other,) = (node.bind((InWatchlist(SRC, WatchedFile(str(path), Form.ADDRESSES)),)) for node in nodes)
    nodes[0].begin_block()
    write(path, "11.0.0.0/8  \n")
    thread = threading.Thread(target=nodes[1].begin_block)
    thread.start()
    thread.join()
    assert inside(other.file, TEN, ELEVEN) == [False, True]
    assert inside(mine.file, TEN, ELEVEN) == [True, False]
    nodes[0].clock = lambda: 6.0
    nodes[0].begin_block()
    assert inside(mine.file, TEN, ELEVEN) == [False, True]


def test_whoever_comes_while_another_reads_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "list"
    write(path, "10.0.0.0/8\n")
    file = opened(path)
    assert inside(file, TEN) == [True]
    write(path, "11.0.0.0/8  \n")
    with file._lock:
        assert file.refresh(5.0) is CheckResult.SAME
    assert file.refresh(5.0) is CheckResult.RELOADED


def test_a_number_of_a_label_means_the_same_in_every_version(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write(path, "10.0.0.0/8 a\n11.0.0.0/8 b\n")
    lists = Watchlists()
    file, same = (lists.open(WatchedFile(str(path), Form.LABELS)) for _ in range(2))
    addresses = vector_of([TEN, ELEVEN, None, ip_address("::1")], Type.ADDRESS, [])
    before = find_longest_prefix(addresses, file.version)
    assert labelled(before) == ["a", "b", None, None]
    write(path, "10.0.0.0/8 c\n10.0.0.1 b\n::/0 a\n")
    assert file.refresh(1.0) is CheckResult.RELOADED
    after = find_longest_prefix(addresses, file.version)
    assert labelled(after) == ["b", None, None, "a"]
    assert before.names is after.names
    assert labelled(before) == ["a", "b", None, None]
    assert after.ids[0] == before.ids[1]
    assert find_longest_prefix(addresses, same.version).ids[3] == before.ids[0]  # another query's
    assert find_longest_prefix(vector_of([], Type.ADDRESS, []), file.version).ids.tolist() == []


def test_null_is_neither_in_a_list_nor_out_of_it(tmp_path: Path) -> None:
    write(tmp_path / "list", "0.0.0.0/0\n::/0\n")
    vector = find_in_watchlist(
        vector_of([TEN, None, ip_address("::1")], Type.ADDRESS, []),
        opened(tmp_path / "list").version.contents,
    )
    assert vector.valid is not None
    assert vector.data[vector.valid].tolist() == [True, True]
    assert vector.valid.tolist() == [True, False, True]


def test_who_takes_a_plan_over_reads_the_file_itself(tmp_path: Path) -> None:
    path = tmp_path / "list"
    write(path, "10.0.0.0/8\n")
    expression = InWatchlist(SRC, WatchedFile(str(path), Form.ADDRESSES))
    lists = Watchlists()
    assert inside(bind_watchlists(expression, lists).file, TEN) == [True]
    write(path, "11.0.0.0/8  # another\n")
    taken = pickle.loads(pickle.dumps(expression))
    assert taken == expression
    assert hash(taken) == hash(expression)
    assert repr(taken) == repr(expression)
    assert inside(bind_watchlists(taken, Watchlists()).file, TEN, ELEVEN) == [False, True]
    assert inside(bind_watchlists(expression, lists).file, TEN, ELEVEN) == [True, False]
    assert repr(bind_watchlists(expression, lists)) == repr(expression)
    assert taken != InWatchlist(SRC, WatchedFile(str(path), Form.NUMBERS))
    assert InWatchlist(SRC, taken.file) != LongestPrefix(SRC, taken.file)


def counted(watching: NodeWatchlists) -> dict[str, float]:
    samples = Samples()
    watching.add_samples(samples, "a")
    names = (WATCHLIST_ENTRIES, WATCHLIST_RELOADS, WATCHLIST_FAILED)
    return {metric.name: samples.total(metric) for metric in names}


def plan_of(path: Path) -> Plan:
    sql = f"SELECT getlpmid(destIP, '{path}') AS who, sum(len) FROM packets WHERE NOT getlpmid(srcIP, '{path}') IS NULL"
    return compile_query(f"{sql} GROUP BY who", "q")


def test_files_are_followed_between_blocks_where_the_input_is_live(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write(path, "10.0.0.0/8 a\n")
    plan = plan_of(path)
    assert {column.name for tree in plan.leaves[0].low.trees for column in columns_of(tree)} == {
        "srcIP",
        "destIP",
        "len",
    }
    assert plan.leaves[0].low.where in list(parts_of(plan.leaves[0].low.where or SRC))
    clock = [0.0]
    for live in (True, False):
        write(path, "10.0.0.0/8 a\n")
        watching = NodeWatchlists(live, Watchlists(), lambda: clock[0])
        low = plan_of(path).leaves[0].low
        bound = watching.bind(low)
        assert bound != low
        assert bound == watching.bind(low)
        assert list(find_watched_files(bound)) == []
        watching.begin_block()
        write(path, "10.0.0.0/8 a\n11.0.0.0/8 b\n")
        clock[0] += 2
        watching.begin_block()
        expected = 2 if live else 1
        assert [file.version.contents.line_count for file in watching.files] == [expected]
        write(path, "nonsense")
        clock[0] += 2
        assert [file.version.contents.line_count for file in watching.files] == [expected]
        if live:
            with pytest.warns(RuntimeWarning, match="the watchlist stays as it was"):
                watching.begin_block()
        told = counted(watching)
        assert list(told.values()) == ([2, 1, 1] if live else [1, 0, 0])


def test_a_node_follows_files_for_inputs_that_are_live_alone(tmp_path: Path) -> None:
    write(tmp_path / "table", "0.0.0.0/0 a\n")
    path = write_links(tmp_path, 3)[0].path
    low = plan_of(tmp_path / "table").leaves[0].low
    mapped, followed = open_capture(path), open_capture(path, follow=True)
    assert Node("a", followed, [low]).watchlists.is_live
    node = Node("a", mapped, [low])
    assert not node.watchlists.is_live
    for block in scan(mapped).blocks:
        for _ in node.process(block):
            pass
    samples = node.samples([("q",)])
    assert samples.total(WATCHLIST_ENTRIES, link="a", file=str(tmp_path / "table")) == 1
    followed.close()


def test_lists_above_the_low_level_are_looked_at_when_they_are_asked(tmp_path: Path, monkeypatch) -> None:
    """A node polls only the lists of its own plans. The other parts of its queries poll their lists themselves."""
    path = tmp_path / "table"
    write(path, "10.0.0.0/8 a\n")
    sql = f"SELECT srcIP, getlpmid(srcIP, '{path}') AS who FROM M WHERE in_list(srcIP, '{tmp_path}/list')"
    write(tmp_path / "list", "0.0.0.0/0\n")
    plan = compile_query(sql, "q")
    lows = [leaf.low for leaf in plan.leaves]
    (of_low,) = set(find_watched_files(tuple(lows)))
    (of_plan,) = set(find_watched_files(plan)) - {of_low}
    assert (of_low.path, of_plan.path) == (str(tmp_path / "list"), str(path))
    (below,) = Watchlists().read([of_low])
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    for followed in (False, True):
        (above,) = Watchlists(is_followed=followed).read([of_plan])
        assert above.version.contents.line_count == (2 if followed else 1)
        write(path, "".join(f"10.0.0.{each} a\n" for each in range(3 if followed else 2)))
        write(tmp_path / "list", "# none any more\n")
        assert above.version.contents.line_count == (2 if followed else 1)
        clock[0] += 2
        assert above.version.contents.line_count == (3 if followed else 1)
        assert below.version.contents.line_count == 1


def test_a_live_run_follows_them(tmp_path: Path) -> None:
    path = write_links(tmp_path, 3)[0].path
    write(tmp_path / "table", "0.0.0.0/0 a\n")
    for follow in (False, True):
        plan = compile_query(f"SELECT srcIP, getlpmid(srcIP, '{tmp_path}/table') AS who FROM M", "q")
        run = InlineRun([plan], [Input("a", path, follow=follow)])
        assert run.watchlists.is_followed == follow
        assert [file.is_followed for file in run.watchlists.read(find_watched_files(plan))] == [follow]


def test_a_table_keeps_labels_that_a_later_version_brings(tmp_path: Path) -> None:
    """Groups of two versions of a table are in one low-level table: the numbers of their labels must not collide."""
    path = tmp_path / "table"
    write(path, "0.0.0.0/0 old\n")
    plan = plan_of(path)
    capture = open_capture(write_links(tmp_path, 3)[0].path)
    node, now = Node("a", capture, [plan.leaves[0].low]), 0.0
    node.watchlists.is_live, node.watchlists.clock = True, lambda: now
    items = []
    blocks = scan(capture, 64).blocks
    assert len(blocks) > 2
    for block in blocks:
        items += [item for _, item in node.process(block)]
        if block is blocks[0]:
            write(path, "0.0.0.0/0 new, with another size\n")
            now += 2
    items += [item for _, item in node.flush()]
    names: set[str | None] = set()
    for item in items:
        if hasattr(item, "column"):
            names |= set(item.column("k0").to_pylist())
    assert names - {None} == {"old", "new, with another size"}
