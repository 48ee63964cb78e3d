"""The data source `wiretide` as a stream: each capture of a folder is read once, when it appears.

    offset    {"files": {"/archive/a.pcap": 1234, …}}    the bytes of each file that has been read

As for Spark's own file source, a file must be complete when it appears: write it elsewhere and move it into the folder.
If the size of a file has changed after it was read, an error is raised: its new rows would be lost, or its old rows
read twice. Files whose names begin with a dot or an underscore are ignored, so a writer can use such a name until the
file is complete. A file that was removed from the folder is also removed from the offset, so that offsets stay small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from capture.errors import InputError
from highlevel.inline.engine import Input
from highlevel.spark.data_source.capture_rows import CaptureReader, FileRange, plan_ranges

MAX_FILES = 20_000
"""Maximum number of files in the folders of a stream. An offset contains them all."""

Offset = dict[str, dict[str, int]]


class CaptureStreamReader(CaptureReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches of whole files. `read` runs in the tasks."""

    _last_files: dict[str, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset without files."""
        return {"files": {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the number of files of a micro-batch that the user has set, otherwise no limit."""
        return ReadAllAvailable() if self.options.max_files is None else ReadMaxFiles(self.options.max_files)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read only files that exist now."""
        self._last_files = self._list_files()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the offset with the next files, in the order of their paths.

        Raises InputError for a file whose size has changed since it was read, and for too many files.
        """
        known, present = start["files"], self._list_files()
        for path, size in known.items():
            if present.get(path, size) != size:
                raise make_change_error(path, present[path], size)
        readable = present.keys() if self._last_files is None else present.keys() & self._last_files.keys()
        new = sorted(readable - known.keys())
        if isinstance(limit, ReadMaxFiles):
            new = new[: limit.max_files]
        if not new:
            return start
        kept = {path: size for path, size in known.items() if path in present}
        return {"files": kept | {path: present[path] for path in new}}

    def _list_files(self) -> dict[str, int]:
        """Return the size of each file. A folder or glob without a capture is empty."""
        files: dict[str, int] = {}
        for input_ in self._list_inputs(self.options.paths):
            if not input_.path.name.startswith((".", "_")):
                try:
                    files[str(input_.path.absolute())] = input_.path.stat().st_size
                except FileNotFoundError:  # removed meanwhile
                    continue
        if len(files) > MAX_FILES:
            paths = ", ".join(self.options.paths)
            raise InputError(
                f"{paths}: got {len(files):,} files, expected at most {MAX_FILES:,}: move files away that were read"
            )
        return files

    def _list_inputs(self, paths: Sequence[str]) -> Iterator[Input]:
        for path in paths:
            try:
                yield from self.bind_files([path])
            except InputError:
                continue  # no file yet

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Divide the files between two offsets into tasks. Raises InputError for a file that has changed or is gone."""
        new = {path: size for path, size in end["files"].items() if start["files"].get(path) != size}
        # Files are bound one by one, so that the name of a link does not depend on the other files of the micro-batch.
        inputs = [input_ for path in sorted(new) for input_ in self.bind_files([path])]
        ranges = plan_ranges(inputs, self.options, self.cores, self.where)
        for part in ranges:
            assert isinstance(part, FileRange)
            size = part.input.path.stat().st_size
            if size != new[str(part.input.path)]:
                raise make_change_error(str(part.input.path), size, new[str(part.input.path)])
        return ranges

    def commit(self, end: Offset) -> None:
        """Do nothing: the files belong to the user."""

    def stop(self) -> None:
        """Do nothing, because no resources are open."""


def make_change_error(path: str, size: int, expected_size: int) -> InputError:
    """Return the error for a file whose size has changed since the stream planned to read it."""
    return InputError(
        f"{path}: got {size} bytes, expected {expected_size}: it changed after a stream read it; expected files that "
        "are complete when they appear in the folder"
    )
