"""A node that is started again inside a file of flow exports: records that waited for their template are counted."""

from itertools import count
from pathlib import Path

import pytest

from capture.files.positions import initial_position
from capture.flows.waiting_sets import NODE_RESTARTED
from capture.metrics import FLOW_SETS_DROPPED, RECORDS_READ
from capture.open import open_capture
from lowlevel.node.link_worker import LinkWorker
from lowlevel.node.node import Node
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.writer import SpoolWriter
from queries.gsql import compile_query
from tests.references.netflow_bytes import a_set, ipfix, template

PLAN = compile_query("SELECT count(*) FROM flows")
MESSAGES = 40_000  # more than two blocks


def capturing(path: Path, spool: Path) -> LinkWorker:
    opened = open_capture(path)
    node = Node("A", opened, [PLAN.leaves[0].low], 64)
    writer = SpoolWriter(
        spool, "A", [(PLAN.name, fingerprint(PLAN.leaves[0].low))], cuts=initial_position(opened) is not None
    )
    return LinkWorker(opened, node, [(PLAN.name, PLAN.leaves[0].low)], writer, count(10**18).__next__)


@pytest.mark.parametrize("announced", [True, False])
def test_sets_that_waited_when_a_node_was_stopped_are_counted_by_the_next(tmp_path: Path, announced: bool) -> None:
    first = [a_set(2, template(256, [(8, 4)])), a_set(256, bytes(4))]
    messages = [ipfix(first), ipfix([a_set(2, template(257, [(8, 4)]))] if announced else [])]
    messages += [ipfix([a_set(257, bytes(8))])] * 3
    messages += [ipfix([a_set(256, bytes(4))])] * MESSAGES
    messages += [ipfix([a_set(2, template(257, [(8, 4)])), a_set(257, bytes(4))])]
    path = tmp_path / "a.ipfix"
    path.write_bytes(b"".join(messages))
    polls = iter([False])
    link = capturing(path, tmp_path / "s")
    link.run(lambda: next(polls, True))
    assert not link.has_ended
    assert not link.samples.total(FLOW_SETS_DROPPED)
    for _ in range(2):  # a start that reads nothing changes nothing
        link = capturing(path, tmp_path / "s")
        assert link.lost_sets == (0 if announced else 3)
        link.spool.abandon()
    link = capturing(path, tmp_path / "s")
    link.run(lambda: False)
    assert link.has_ended
    assert 0 < link.samples.total(RECORDS_READ) < len(messages)
    assert link.samples.total(FLOW_SETS_DROPPED, cause=NODE_RESTARTED) == (0 if announced else 3)
