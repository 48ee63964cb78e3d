"""The checkpoint of Spark, checked before Spark starts.

    checkpoint/offsets/<batch id>    ends of micro-batch n: "v1", metadata, {"0 /a.pcap": 12, ...}, one a line
    checkpoint/commits/<batch id>    written after micro-batch n is done
    checkpoint/metadata              the id of the query

Spark continues after the newest commit, or repeats the newest offsets that have no commit. Totals n contain the
checksum of offsets n. So a start detects a checkpoint that is damaged, deleted, or older than the state and the
results. Such a checkpoint would repeat rows under other batch IDs, or continue with the wrong state.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from highlevel.spark.checked_files import REMEDY, checksum, read_bytes
from highlevel.spark.errors import FolderError
from highlevel.spark.totals import TotalsFiles


def offsets_checksum(checkpoint: Path, batch_id: int) -> str:
    """Return the checksum of the planned offsets of a micro-batch, which Spark writes before it runs."""
    return checksum(read_bytes(checkpoint / "offsets" / str(batch_id)))


def check_checkpoint(folder: Path, inputs: Collection[str]) -> int:
    """Return the number of the next micro-batch of a run's folder.

    `inputs` are the keys of the offsets. Raises FolderError if the checkpoint is damaged, or does not belong to the
    totals and results of the folder.
    """
    checkpoint = folder / "checkpoint"
    files = TotalsFiles(folder / "totals")
    offsets, commits = _numbers(checkpoint / "offsets"), _numbers(checkpoint / "commits")
    newest = max(offsets, default=-1)
    done = max([*commits, files.last(), *_results(folder / "output")], default=-1)
    if done > newest:
        raise FolderError(
            f"{checkpoint}: incomplete: it ends with micro-batch {newest}, but {folder} contains micro-batch {done}; "
            f"{REMEDY}"
        )
    if newest < 0:
        return 0
    following = newest + 1 if newest in commits else newest
    _parse(checkpoint / "metadata", 1)
    if newest in commits:
        _parse(checkpoint / "commits" / str(newest), 2)
    for batch_id in range(max(0, following - 1), newest + 1):
        path = checkpoint / "offsets" / str(batch_id)
        found = _parse(path, 3)
        if set(found) != set(inputs) or not all(type(value) is int for value in found.values()):
            raise FolderError(f"{path}: damaged: got offsets of {', '.join(found) or 'no input'}; {REMEDY}")
        if batch_id < following or batch_id == files.last():
            expected = files.load(batch_id).offsets
            if offsets_checksum(checkpoint, batch_id) != expected:
                raise FolderError(f"{path}: damaged: got another checksum than {expected}; {REMEDY}")
    return following


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]


def _results(output: Path) -> list[int]:
    return [int(path.stem[5:]) for path in output.glob("*/part-*.parquet") if path.stem[5:].isdigit()]


def _parse(path: Path, line: int) -> dict[str, object]:
    """Return the JSON object in a line of a file of the checkpoint."""
    try:
        lines = read_bytes(path).decode().splitlines()
        if len(lines) != line or (line > 1 and lines[0] != "v1"):
            raise ValueError(lines)
        found = json.loads(lines[-1])
        if not isinstance(found, dict):
            raise ValueError(found)
    except FileNotFoundError:
        raise FolderError(f"{path}: missing; {REMEDY}") from None
    except ValueError:
        raise FolderError(f"{path}: damaged: not a file of a checkpoint of Spark; {REMEDY}") from None
    return found
