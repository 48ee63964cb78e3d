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
from highlevel.spark.input_assignment import InputAssignment
from lowlevel.expressions.user_functions import UserFunction
from lowlevel.layers import Layer
from lowlevel.node.watching import find_instances

STATE_FORMAT = 6
"""Version of the layout of operator states and results. A version that cannot continue older folders raises it."""


def digest_file(file: Capture) -> str:
    """Return a digest of all bytes of a file. A touched, renamed or copied file has the same digest."""
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(file.data), CHUNK_BYTES):
        digest.update(memoryview(file.data[start : start + CHUNK_BYTES]))  # type: ignore[arg-type]
    return f"{len(file.data)} bytes, {digest.hexdigest()}"


def describe_run(assignment: InputAssignment, part_count: int, block_records: int, is_paced: bool) -> dict[str, Any]:
    """Describe a run by the names that the error message uses. Raises InputError for a file that is no capture."""
    description: dict[str, Any] = {
        "state format": STATE_FORMAT,
        "operator partitions": part_count,
        "records in a block": block_records,
        "paced by a speed": is_paced,
    }
    # By number, because state is stored by number: exchanged queries would load each other's windows.
    for number, plan in enumerate(assignment.plans):
        description[f"query {number}"] = f"{plan.name}: {plan.sql}" + (" (inner)" if plan.layer == Layer.INNER else "")
        for function in find_instances(plan, UserFunction):
            description[f"query {number}, function {function.name}"] = f"{function.usage} of type {function.result}"
        for aggregation in plan.aggregations:
            subaggregates = {sub.name: f"{sub.kind} of {sub.argument}" for sub in aggregation.low.subaggregates}
            for column in aggregation.user_columns:
                description[f"query {number}, {column.name_in_messages}"] = (
                    f"a function in Python of {column.parts}, over {subaggregates}"
                )
    for number, input_ in enumerate(assignment.inputs):
        content = "a spool" if input_.spool else digest_file(open_mapped(input_.path, "the stream engine"))
        description[f"input {number}"] = (
            f"{input_.path}, link {input_.link}, stream {input_.stream or 'any'}, {content}"
        )
    return description


def claim_folder(folder: Path, description: dict[str, Any]) -> None:
    """Claim `folder` for this run, or check that it belongs to this run.

    Raises FolderError that names the first difference.
    """
    path = folder / "run.json"
    if not path.exists():
        if (folder / "checkpoint").exists():
            raise FolderError(f"{path}: missing, but there is a checkpoint; use another folder, or delete {folder}")
        write_document(path, description, indent=1)
        return
    stored_description = read_document(path)
    for key in [*description, *stored_description]:
        if stored_description.get(key) != description.get(key):
            raise FolderError(
                f"{folder} contains a run with a different {key}: got {description.get(key, 'none')}, expected "
                f"{stored_description.get(key, 'none')}; take another folder, or delete this one to start again"
            )
