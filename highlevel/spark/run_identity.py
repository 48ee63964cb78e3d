"""Identity of a run's folder, so that a checkpoint is never continued with other queries or inputs.

Offsets count blocks of certain files and segments of certain spools, and state belongs to certain queries in a certain
number of partitions. This identity is written to `run.json` when a folder is first used, and compared at each later
start.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from capture.files.capture import Capture
from capture.files.read_ahead import CHUNK_BYTES
from capture.open import open_mapped
from highlevel.spark.checked_files import read_document, write_document
from highlevel.spark.errors import FolderError
from highlevel.spark.feeds import InputAssignment
from lowlevel.expressions.user_functions import UserFunction
from lowlevel.layers import Layer
from lowlevel.node.watching import instances_in

STATE_FORMAT = 6
"""Version of the layout of operator states and results. A version that cannot continue older folders raises it."""


def fingerprint(file: Capture) -> str:
    """Return a digest of all bytes of a file. A touched, renamed or copied file has the same digest."""
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(file.data), CHUNK_BYTES):
        digest.update(memoryview(file.data[start : start + CHUNK_BYTES]))  # type: ignore[arg-type]
    return f"{len(file.data)} bytes, {digest.hexdigest()}"


def identity(feeds: InputAssignment, parts: int, block_records: int, paced: bool) -> dict[str, Any]:
    """Describe a run by the names that the error message uses. Raises InputError for a file that is no capture."""
    described: dict[str, Any] = {
        "state format": STATE_FORMAT,
        "operator partitions": parts,
        "records in a block": block_records,
        "paced by a speed": paced,
    }
    # By number, because state is stored by number: exchanged queries would load each other's windows.
    for number, plan in enumerate(feeds.plans):
        described[f"query {number}"] = f"{plan.name}: {plan.sql}" + (" (inner)" if plan.layer == Layer.INNER else "")
        for function in instances_in(plan, UserFunction):
            described[f"query {number}, function {function.name}"] = f"{function.usage} of type {function.result}"
        for aggregated in plan.aggregations:
            kept = {sub.name: f"{sub.kind} of {sub.argument}" for sub in aggregated.low.subaggregates}
            for column in aggregated.user_columns:
                described[f"query {number}, {column.shown}"] = f"a function in Python of {column.parts}, over {kept}"
    for number, each in enumerate(feeds.inputs):
        held = "a spool" if each.spool else fingerprint(open_mapped(each.path, "the stream engine"))
        described[f"input {number}"] = f"{each.path}, link {each.link}, stream {each.stream or 'any'}, {held}"
    return described


def claim(folder: Path, described: dict[str, Any]) -> None:
    """Claim `folder` for this run, or check that it belongs to this run.

    Raises FolderError that names the first difference.
    """
    path = folder / "run.json"
    if not path.exists():
        if (folder / "checkpoint").exists():
            raise FolderError(f"{path}: missing, but there is a checkpoint; use another folder, or delete {folder}")
        write_document(path, described, indent=1)
        return
    before = read_document(path)
    for key in [*described, *before]:
        if before.get(key) != described.get(key):
            raise FolderError(
                f"{folder} contains a run with a different {key}: got {described.get(key, 'none')}, "
                f"expected {before.get(key, 'none')}; take another folder, or delete this one to start again"
            )
