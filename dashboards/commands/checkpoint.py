"""`wiretide checkpoint`: show the progress and the sizes of a run's folder, or verify all its files."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from dashboards.command_options import Argument, UsageError

if TYPE_CHECKING:
    from highlevel.spark.run_folder.inspection import RunSummary
    from queries.pipeline.folder_uri import RunFolder


class Action(StrEnum):
    """The actions of the command `checkpoint`."""

    SHOW = "show"
    VERIFY = "verify"


def checkpoint(
    action: Annotated[Action, Argument(help="show: progress and sizes; verify: read and check every file.")],
    folder: Annotated[
        str,
        Argument(metavar="FOLDER", help="The folder of a run, a path or URI (`folder` of the pipeline)."),
    ],
) -> None:
    """Inspect the folder of `wiretide run`. Nothing is changed.

    show: micro-batches, inputs, queries with their watermarks, the sizes of state and results, and damaged inputs. The
    folder may be in use.

    verify: each file that a restart or a reader of results needs is read and compared with its checksum. The exit
    status is 1 if a file is damaged or missing. No process may use the folder during this time.

    \b
    wiretide checkpoint show state
    wiretide checkpoint verify s3a://BUCKET/PREFIX
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from dashboards.wire_text import escape_lines
    from highlevel.spark.remote.inspection import summarise_stored
    from highlevel.spark.run_folder.inspection import summarise
    from queries.pipeline.folder_uri import parse_run_folder

    try:
        location = parse_run_folder(folder)
    except ValueError as error:
        raise UsageError(f"FOLDER: {error}") from error
    if action is Action.VERIFY:
        _verify(location)
    else:
        summary = summarise_stored(location.uri) if location.uri else summarise(location.path)
        print(escape_lines(summary_text(summary)))


def summary_text(summary: RunSummary) -> str:
    """Return the summary of a run's folder as text: tables of inputs, queries, folders and damages."""
    import pyarrow as pa

    from dashboards.output.table import align_table
    from lowlevel.punctuation import BEGINNING, END
    from lowlevel.times import time_texts

    state = f"finished micro-batches: {summary.next_batch}"
    if summary.planned >= summary.next_batch:
        state += f"; micro-batch {summary.planned} is planned and not committed, so it is repeated"
    inputs = [
        [path, *(("-", "-") if progress is None else (f"{progress[0]:,}", f"{progress[1]:,}"))]
        for path, progress in summary.inputs.items()
    ]
    queries = []
    for name in summary.queries:
        watermark = summary.totals.watermarks.get(name, BEGINNING)
        known = {BEGINNING: "-", END: "end of input"}
        final = known[watermark] if watermark in known else time_texts(pa.array([watermark]))[0].as_py()
        count, size = summary.results.get(name, (0, 0))
        queries.append([name, final, f"{count:,}", f"{size:,}"])
    damages = [[damage.path, damage.place, damage.reason, damage.copy or "-"] for damage in summary.totals.damages]
    folders = [[name, f"{count:,}", f"{size:,}"] for name, (count, size) in summary.files.items()]
    tables = [
        align_table(["input", "read", "known"], inputs),
        align_table(["query", "final until", "files", "bytes"], queries),
        align_table(["folder", "files", "bytes"], folders),
        *([align_table(["damaged input", "place", "reason", "copy"], damages)] if damages else []),
    ]
    return "\n\n".join([state, *tables])


def _verify(location: RunFolder) -> None:
    from dashboards.wire_text import escape
    from highlevel.spark.errors import FolderError
    from highlevel.spark.remote.inspection import verify_stored
    from highlevel.spark.run_folder.inspection import read_run, verify
    from highlevel.spark.run_folder.locks import is_in_use

    parts: Iterable[tuple[object, str | None]]
    if location.uri:
        parts = verify_stored(location.uri)
    else:
        read_run(location.path)
        if is_in_use(location.path):
            raise FolderError(f"{location.path} is in use by a run, whose files change; stop it, or verify a copy")
        parts = verify(location.path)
    count = damaged = 0
    for _, problem in parts:
        count += 1
        if problem is not None:
            damaged += 1
            print(escape(problem))
    if damaged:
        raise FolderError(f"{location.uri or location.path}: {damaged:,} of {count:,} parts are damaged or missing")
    print(f"{count:,} parts are intact")
