"""Inspect the folder of a run: show progress and sizes, and verify all files. Nothing is changed.

The plans of the queries are not needed: the identity of the run, the checkpoint and the manifests name all files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from capture.lazy_dataclasses import dataclass
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.checked_files import REMEDY, read_document
from highlevel.spark.run_folder.checkpoint import check_checkpoint
from highlevel.spark.run_folder.identity import RunIdentity, read_identity
from highlevel.spark.run_folder.state import PartitionState
from highlevel.spark.run_folder.totals import Totals, TotalsFiles


@dataclass
class RunSummary:
    """The contents of the folder of a run. Sizes are in bytes, times in ns.

    `next_batch` is the number of the next micro-batch, and `planned` the number of the last planned one, or -1.
    `inputs` contains (position, size) of each input by its path, in blocks or segments; None before the first
    micro-batch. `queries` contains the text of each query by its name. `files` contains (number, bytes) of the files in
    each subfolder, `results` the same for the results of each query.
    """

    next_batch: int
    planned: int
    totals: Totals
    inputs: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    results: dict[str, tuple[int, int]] = field(default_factory=dict)


def read_run(folder: Path) -> RunIdentity:
    """Return the identity of the run of a folder. Raises FolderError if it is damaged, or not the folder of a run."""
    try:
        identity = read_identity(folder)
    except NotADirectoryError:
        identity = None
    if identity is None:
        raise FolderError(f"{folder}: got no run.json, expected the folder of a run, such as state")
    return identity


def summarise(folder: Path) -> RunSummary:
    """Return progress and sizes of a folder, which may be in use.

    Raises FolderError if one of its documents is damaged.
    """
    identity = read_run(folder)
    planned, committed = (_newest(folder / "checkpoint" / name) for name in ("offsets", "commits"))
    totals_files = TotalsFiles(folder / "totals")
    totals = totals_files.load(totals_files.last_batch_id())
    totals.rename_queries({query.id: query.name for query in identity.queries})
    summary = RunSummary(max(planned, committed + 1), planned, totals)
    for input_ in identity.inputs:
        summary.inputs[input_.path] = totals.progress.get(input_.id)
    for query in identity.queries:
        summary.queries[query.name] = query.sql
    for name in ("checkpoint", "inputs", "output", "state", "totals"):
        summary.files[name] = _measure(folder / name)
    for path in sorted((folder / "output").glob("*/")):
        summary.results[unquote(path.name)] = _measure(path)
    return summary


def verify(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Read every file that a restart or a reader of results needs. Yield each path with its problem or None.

    The folder must not be in use.
    """
    identity = read_run(folder)
    yield folder / "run.json", None
    next_batch, problem = 0, None
    try:
        next_batch = check_checkpoint(folder, {input_.offset_key: input_.since for input_ in identity.inputs})
    except FolderError as error:
        problem = str(error)
    yield folder / "checkpoint", problem
    for path in sorted((folder / "totals").glob("[0-9]*.json")):
        yield path, _problem_of(path, partial(TotalsFiles(folder / "totals").load, int(path.stem)))
    parts = {path for path in (folder / "state").rglob("[0-9]*") if path.is_dir() and path.name.isdigit()}
    if next_batch > 0:
        parts |= {folder / "state" / str(part) for part in range(identity.partitions)}
    for part in sorted(parts):
        batches = {int(path.stem) for path in part.glob("[0-9]*.json")}
        if problem is None and next_batch > 0:
            batches.add(next_batch - 1)  # the next micro-batch reads this version of the state
        for batch in sorted(batches):
            path = part / f"{batch}.json"
            yield path, _problem_of(path, partial(_load_state, part, batch))
    for path in sorted((folder / "output").rglob("part-*.parquet")):
        yield path, verify_results(path)


def verify_results(path: Path) -> str | None:
    """Read a file of results, and return its problem or None."""
    return _problem_of(path, partial(_read_rows, path))


def _load_state(part: Path, batch: int) -> None:
    manifest = part / f"{batch}.json"
    keys = dict.fromkeys(read_document(manifest), False) if manifest.exists() else {"0.0": False}
    PartitionState(part.parent, int(part.name)).load(batch, keys)


def _read_rows(path: Path) -> None:
    pq.ParquetFile(path, page_checksum_verification=True).read()


def _problem_of(path: Path, read: Callable[[], Any]) -> str | None:
    """Return why `read` fails for a path, or None."""
    try:
        read()
    except FolderError as error:
        return str(error)
    except (pa.ArrowException, OSError) as error:
        return f"{path}: damaged: {str(error).splitlines()[0]}; {REMEDY}"
    return None


def _newest(folder: Path) -> int:
    return max((int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()), default=-1)


def _measure(folder: Path) -> tuple[int, int]:
    """Return the number of files below a folder, and their bytes. Files may disappear meanwhile."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return len(sizes), sum(sizes)
