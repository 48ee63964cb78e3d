"""Prepare the folder of a run when a process starts. The folder is new, or contains the state of an earlier process.

The earlier process may have ended at any moment. So its temporary files are removed. If it was changing the number of
partitions or the queries, this change is finished or repeated. The caller has locked the folder (`locks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from capture.lazy_dataclasses import dataclass
from capture.private_files import check_private_folder
from highlevel.spark.inputs import quarantine
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.decompressed_inputs import Say
from highlevel.spark.run_folder import watched_copies
from highlevel.spark.run_folder.checkpoint import check_checkpoint, newest_planned
from highlevel.spark.run_folder.identity import (
    QueryChanges,
    RunIdentity,
    apply_identity,
    continue_identity,
    read_identity,
    write_identity,
)
from highlevel.spark.run_folder.result_files import move_to_dates, remove_results, rename_results, set_aside_results
from highlevel.spark.run_folder.staged_results import remove_staged
from highlevel.spark.run_folder.state_partitions import divide_state, finish_division
from highlevel.spark.run_folder.totals import Totals, TotalsFiles

WRITTEN_FOLDERS = ("inputs", "state", "totals", "output", quarantine.FOLDER, watched_copies.FOLDER)
"""Subfolders in which Wiretide writes. Not listed: Spark writes to `checkpoint`, and `staged` is emptied at each
start.
"""


@dataclass(frozen=True)
class FolderStart:
    """The state from which a run continues.

    `next_batch`: the first micro-batch of this process. The earlier process may have begun it. `last_batch`: the newest
    micro-batch with totals, -1 for a new folder. It may be repeated. `totals`: the counters after `last_batch`.
    `changes`: differences between the queries of the folder and those of `assignment`.
    """

    assignment: InputAssignment
    next_batch: int
    last_batch: int
    totals: Totals
    changes: QueryChanges


def check_subfolders(folder: Path) -> None:
    """Raise UnsafeFolderError if another user can write to a subfolder of the run's folder."""
    for name in (*WRITTEN_FOLDERS, "checkpoint", "staged"):
        if (folder / name).exists():
            check_private_folder(folder / name)


def prepare_folder(folder: Path, assignment: InputAssignment, new: RunIdentity, say: Say) -> FolderStart:
    """Prepare a folder for a run with the identity `new`. `say` receives lines about changed queries and partitions.

    Raises FolderError for a folder that is damaged, or of a run that differs in more than queries and partitions.
    """
    stored = read_identity(folder)
    known = new if stored is None else stored
    remove_temporary_files(folder)
    remove_staged(folder / "staged")
    move_to_dates(folder / "output", folder / "staged" / "undated")
    finish_division(folder, known.partitions)
    offset_keys = {input_.offset_key: input_.since for input_ in known.inputs}
    next_batch = check_checkpoint(folder, None if known.reads_frames else offset_keys)
    totals_files = TotalsFiles(folder / "totals")
    totals_files.load(next_batch - 1)
    last_batch = totals_files.last_batch_id()
    totals = totals_files.load(last_batch)
    changes = QueryChanges()
    if stored is None:
        write_identity(folder, new)
    else:
        identity, changes = continue_identity(folder, stored, new, next_batch, newest_planned(folder) + 1)
        assignment = apply_identity(assignment, new, identity)
        for line in _change_folder(folder, assignment, stored, identity, changes, next_batch):
            say(line)
        ended = [
            query.name for query in identity.queries if query.since == next_batch and totals.is_finished(query.inputs)
        ]
        for line in changes.lines(ended) if changes else ():
            say(line)
    totals.rename_queries(assignment.query_names)
    return FolderStart(assignment, next_batch, last_batch, totals, changes)


def _change_folder(
    folder: Path,
    assignment: InputAssignment,
    stored: RunIdentity,
    identity: RunIdentity,
    changes: QueryChanges,
    next_batch: int,
) -> Iterator[str]:
    """Change the state, the results and run.json from the identity `stored` to `identity`. Yield lines for the user."""
    is_divided = stored.partitions != identity.partitions
    if is_divided:
        divide_state(folder, assignment, stored.partitions, next_batch - 1)
    if not (changes or is_divided or stored.settings != identity.settings):
        return
    # This is done before run.json is written, so that after an interruption the next start repeats it.
    TotalsFiles(folder / "totals").remove(next_batch)  # the files of an earlier attempt are not those of these queries
    if changes:
        yield from _set_results_aside(folder / "output", assignment, changes, next_batch)
    write_identity(folder, identity)
    finish_division(folder, identity.partitions)
    if is_divided:
        yield f"the state of open windows has {identity.partitions} partitions now; it had {stored.partitions}"


def _set_results_aside(
    output: Path, assignment: InputAssignment, changes: QueryChanges, next_batch: int
) -> Iterator[str]:
    """Remove results that will be computed again. Rename or set aside the results of renamed and changed queries."""
    remove_results(output, next_batch)
    old_names = {new_name: old_name for old_name, new_name in changes.renamed}
    for plan in assignment.plans:
        if plan.has_changes and plan.name in old_names:  # later changes may withdraw rows in the old folder
            rename_results(output, old_names[plan.name], plan.name)
        is_another_query = plan.has_changes and plan.name in changes.changed
        old_folder = set_aside_results(output, plan, always=is_another_query)
        if old_folder is not None:
            reason = "its text has changed" if is_another_query else "its columns have changed"
            yield f"query {plan.name}: {reason}; its results so far are now in {old_folder}"


def remove_temporary_files(folder: Path) -> None:
    """Remove temporary files of a killed process: their names begin with a dot. Files of Spark are not removed."""
    for subfolder in WRITTEN_FOLDERS:
        for path in (folder / subfolder).rglob(".*"):
            if path.is_file():  # not the folder of a query with a leading dot in its name
                path.unlink(missing_ok=True)
