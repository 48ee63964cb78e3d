"""Check Spark's checkpoint before Spark starts.

    checkpoint/offsets/<batch id>    ends of micro-batch n: "v1", metadata, {"0 /a.pcap": 12, ...}, one a line;
                                     for DataFrames a line for each source of Spark, in its own form
    checkpoint/commits/<batch id>    written when micro-batch n is done
    checkpoint/metadata              the ID of the query

Spark continues after the newest commit, or repeats the newest offsets that have no commit. The totals of micro-batch n
contain the checksum of its offsets. So this check detects a checkpoint that is damaged, deleted, or older than the
state and the results. With such a checkpoint, Spark would repeat rows under other batch IDs, or continue with the wrong
state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from highlevel.results.stored_files import first_batch, list_files
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.checked_files import REMEDY, checksum, read_bytes
from highlevel.spark.run_folder.totals import TotalsFiles


def offsets_checksum(checkpoint: Path, batch_id: int) -> str:
    """Return the checksum of the planned offsets of a micro-batch. Spark writes them before the micro-batch runs."""
    return checksum(read_bytes(checkpoint / "offsets" / str(batch_id)))


def read_run_id(folder: Path) -> str:
    """Return the ID that Spark has given to the run of a folder. Every folder has a different ID."""
    return str(_parse(folder / "checkpoint" / "metadata", 1)["id"])


def newest_planned(folder: Path) -> int:
    """Return the number of the newest micro-batch with planned offsets in a run's folder, or -1."""
    return max(_batch_ids(folder / "checkpoint" / "offsets"), default=-1)


def check_checkpoint(folder: Path, offset_keys: Mapping[str, int] | None) -> int:
    """Return the number of the next micro-batch of a run's folder.

    `offset_keys` contains each key of the offsets, with the first micro-batch whose offsets contain this key; None if
    sources of Spark have planned the offsets, in forms of their own. Raises FolderError if the checkpoint is damaged,
    or does not belong to the totals and results of the folder.
    """
    checkpoint = folder / "checkpoint"
    totals_files = TotalsFiles(folder / "totals")
    planned_ids, committed_ids = _batch_ids(checkpoint / "offsets"), _batch_ids(checkpoint / "commits")
    newest_batch_id = max(planned_ids, default=-1)
    newest_result_id = max(
        [*committed_ids, totals_files.last_batch_id(), *_result_batch_ids(folder / "output")], default=-1
    )
    if newest_result_id > newest_batch_id:
        raise FolderError(
            f"{checkpoint}: incomplete: it ends with micro-batch {newest_batch_id}, but {folder} contains micro-batch "
            f"{newest_result_id}; {REMEDY}"
        )
    if newest_batch_id < 0:
        return 0
    next_batch_id = newest_batch_id + 1 if newest_batch_id in committed_ids else newest_batch_id
    _parse(checkpoint / "metadata", 1)
    if newest_batch_id in committed_ids:
        _parse(checkpoint / "commits" / str(newest_batch_id), 2)
    for batch_id in range(max(0, next_batch_id - 1), newest_batch_id + 1):
        path = checkpoint / "offsets" / str(batch_id)
        if offset_keys is not None:
            _check_offsets(path, batch_id, offset_keys)
        if batch_id < next_batch_id or batch_id == totals_files.last_batch_id():
            expected_checksum = totals_files.load(batch_id).offsets
            if offsets_checksum(checkpoint, batch_id) != expected_checksum:
                raise FolderError(f"{path}: damaged: got another checksum than {expected_checksum}; {REMEDY}")
    return next_batch_id


def _check_offsets(path: Path, batch_id: int, offset_keys: Mapping[str, int]) -> None:
    planned_offsets = _parse(path, 3)
    expected_keys = {key for key, since in offset_keys.items() if since <= batch_id}
    if not expected_keys <= set(planned_offsets) <= set(offset_keys) or not all(
        type(value) is int for value in planned_offsets.values()
    ):
        raise FolderError(f"{path}: damaged: got offsets of {', '.join(planned_offsets) or 'no input'}; {REMEDY}")


def _batch_ids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]


def _result_batch_ids(output: Path) -> list[int]:
    return [first_batch(path) for folder in output.glob("*/") for path in list_files(folder)]


def _parse(path: Path, line_count: int) -> dict[str, object]:
    """Return the JSON object in a line of a file of the checkpoint."""
    try:
        lines = read_bytes(path).decode().splitlines()
        if len(lines) != line_count or (line_count > 1 and lines[0] != "v1"):
            raise ValueError(lines)
        document = json.loads(lines[-1])
        if not isinstance(document, dict):
            raise ValueError(document)
    except FileNotFoundError:
        raise FolderError(f"{path}: missing; {REMEDY}") from None
    except ValueError:
        raise FolderError(f"{path}: damaged: not a file of a checkpoint of Spark; {REMEDY}") from None
    return document
