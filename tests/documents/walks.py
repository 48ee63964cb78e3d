"""Count the modules and the returns of the five walks of the tour, as they are executed.

    .venv/bin/python -m tests.documents.walks

A step is the first call of a function of the product. A return is a step into a module that the walk has visited before
and left: a reader of the code must go back to it. Kernels run as machine code, so their helpers are no steps. All steps
are in one thread. The micro-batch is its work without Spark: the planner, a task that reads, and a task of operators.
The command line is counted without the steps of the first two walks, which it contains.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from tests.documents.blocks import ROOT

SQL = "SELECT srcIP, sum(len) AS bytes FROM M [RANGE 1 minute] WHERE protocol = 6 GROUP BY srcIP"
FOLDERS = ("capture", "lowlevel", "highlevel", "queries", "dashboards", "wiretide")


class Walk(NamedTuple):
    """The number of modules that a walk visits, and of its returns to a module that it has left."""

    modules: int
    returns: int


def count(modules: Iterable[str]) -> Walk:
    """Count a walk whose steps are in these modules."""
    visited: set[str] = set()
    returns, previous = 0, ""
    for module in modules:
        returns += module != previous and module in visited
        visited.add(module)
        previous = module
    return Walk(len(visited), returns)


class Steps:
    """The steps of an action in this thread: modules of functions in the order of their first calls."""

    def __init__(self, known: Iterable[CodeType] = ()) -> None:
        """Record all functions except `known`."""
        self.modules: list[str] = []
        self.known = set(known)

    def record(self, action: Callable[[], object]) -> Steps:
        """Run the action twice, and record the second time, when kernels are loaded and caches are filled."""
        action()
        sys.setprofile(self._on_event)
        try:
            action()
        finally:
            sys.setprofile(None)
        return self

    def _on_event(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in self.known or not code.co_filename.startswith(f"{ROOT}/"):
            return
        module = code.co_filename.removeprefix(f"{ROOT}/").removesuffix(".py")
        # Bodies of modules and classes are no functions: they have no fast local variables.
        if module.partition("/")[0] in FOLDERS and code.co_flags & 1 and not _is_imported(frame):
            self.known.add(code)
            self.modules.append(module)


def _is_imported(frame: FrameType | None) -> bool:
    """Return True if the body of a module calls this function."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is not None and "importlib" in (frame.f_back.f_code.co_filename if frame.f_back else "")


def run_micro_batch(path: Path, folder: Path) -> None:
    """Read the first blocks of a capture and feed them to the operators, as a micro-batch does."""
    from highlevel.inline.engine import Input
    from highlevel.spark.inputs.assignment import InputAssignment
    from highlevel.spark.inputs.source import CaptureReader, StreamSpec, index_captures
    from highlevel.spark.run_folder.totals import Totals
    from highlevel.spark.tasks.host import LevelTask
    from queries.gsql import compile_query

    assignment = InputAssignment.of([compile_query(SQL, "q")], [Input("M", path)], partitions=1)
    spec = StreamSpec(assignment, slots=64, block_records=100, max_blocks=1, speed=None, task_count=1)
    reader = CaptureReader(spec, index_captures(spec))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    batches = [batch for block_range in reader.partitions(start, end) for batch in reader.read(block_range)]
    for level in range(assignment.levels):
        batches = list(LevelTask(assignment, folder, 0, level)(iter(batches)))
    Totals().add(assignment, [], [])


def write_flow_record(path: Path) -> None:
    """Write an IPFIX message with a template and one flow record of this template."""
    from tests.references.netflow_bytes import a_set, ipfix, template

    record = bytes([10, 0, 0, 1]) + (1000).to_bytes(8, "big") + (1_700_000_000_000).to_bytes(8, "big")
    path.write_bytes(ipfix([a_set(2, template(256, [(8, 4), (1, 8), (152, 8)])), a_set(256, record)]))


def count_walks(folder: Path) -> dict[str, Walk]:
    """Execute the walks over small captures, which are written into `folder`."""
    import wiretide
    from capture.generate import Profile, generate
    from highlevel.inline.engine import InlineRun, Input
    from lowlevel.rows.batches import row_batches
    from queries.gsql import compile_query

    packets, flows = folder / "packets.pcap", folder / "flows.ipfix"
    generate(Profile(packets=500, rate=5.0, groups=20), packets)
    write_flow_record(flows)
    plan = compile_query(SQL)
    words = ["query", str(packets), SQL, "--threads", "1", "-o", os.devnull, "--format", "csv"]

    text = Steps().record(lambda: compile_query(SQL))
    rows = Steps().record(lambda: list(InlineRun([plan], [Input("M", packets)], threads=1).results()))
    datagram = Steps().record(lambda: list(row_batches(flows, ["ts", "srcIP", "bytes"], "flows")))
    batch = Steps().record(lambda: run_micro_batch(packets, folder))
    command = Steps(text.known | rows.known).record(lambda: wiretide.app(words, standalone_mode=False))
    walks = {
        "SQL text to plan": text,
        "packet bytes to result row": rows,
        "NetFlow datagram to row": datagram,
        "micro-batch on Spark": batch,
        "command line to printed rows": command,
    }
    return {name: count(steps.modules) for name, steps in walks.items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        for walk, (modules, returns) in count_walks(Path(made)).items():
            print(f"{walk:30} {modules:3} modules {returns:3} returns")
