"""The outputs of a query on the command line: format, files, plots and changes. Wrong options are refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.command_options import UsageError
from dashboards.output.formats import COMPRESSED, SUFFIXES, ChangeForm, Format
from dashboards.wire_text import escape

if TYPE_CHECKING:
    import pyarrow as pa

    from dashboards.output.change_forms import ChangeWriter
    from highlevel.plan.plan import Plan


def format_of(format: Format | None, output: Path | None) -> Format:  # noqa: A002
    """Return the given format, by default the format of the output file's suffix, or TABLE without an output file."""
    if format is not None:
        return format
    if output is None or not output.suffix or (output.exists() and not output.is_file()):
        return Format.TABLE
    suffix = output.suffix.lower()
    if suffix in COMPRESSED:
        raise UsageError(f"--output {output}: results are not compressed; expected a name without {suffix}")
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise UsageError(f"--output {output}: unknown suffix {suffix}; expected {known}, or --format")
    return SUFFIXES[suffix]


def check_several(output_format: Format, output: Path | None) -> None:
    """Raise UsageError for options that cannot be combined with several queries."""
    if output is None and output_format is not Format.TABLE:
        raise UsageError(f"--format {output_format}: got several queries for one output, expected -o FOLDER")
    if output is not None and (str(output) == "-" or (output.exists() and not output.is_dir())):
        raise UsageError(f"--output {output}: got several queries, expected a folder for their answers")
    if output is not None and output.suffix.lower() in SUFFIXES and not output.exists():
        example = f"-o {output.stem} --format {SUFFIXES[output.suffix.lower()]}"
        raise UsageError(f"--output {output}: got a file for several queries, expected a folder, such as {example}")


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[str | Path]) -> None:
    """Raise UsageError if two options write the same file, or an option writes an input. `outputs`: files by option.

    Two paths are the same file also if one is a link to the other. Pipes and devices may be given twice.
    """
    uses = {_file_identity(path): f"the input {path}" for path in inputs}
    for name, path in outputs.items():
        if path is None or (path.exists() and not path.is_file()):
            continue
        use = uses.setdefault(_file_identity(path), f"the file of {name}")
        if use != f"the file of {name}":
            raise UsageError(f"{name} {path}: got {use}, expected another file")


def _file_identity(path: str | Path) -> object:
    """Return the device and inode number of a file; its absolute path if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):  # a glob, or a text with the character 0
        return os.path.realpath(path) if "\0" not in str(path) else path
    return status.st_dev, status.st_ino


def check_changes(form: ChangeForm, output_format: Format, several: bool, plot: Path | None) -> None:
    """Raise UsageError for options that cannot be combined with the option --changes."""
    if several:
        raise UsageError(f"--changes {form}: got several queries, expected one")
    if plot is not None or output_format is Format.OPENMETRICS:
        given = "--plot" if plot is not None else f"--format {output_format}"
        raise UsageError(f"--changes {form} with {given}: samples and plots cannot be corrected")
    if form is ChangeForm.DEBEZIUM and output_format in (Format.TABLE, Format.CSV):
        raise UsageError(
            f"--changes {form} with --format {output_format}: rows are in envelopes, expected --format json, arrow "
            "or parquet"
        )


def change_writer(plan: Plan, form: ChangeForm | None) -> ChangeWriter | None:
    """Return the writer of a format of changes; None if `form` is None.

    Raises InputError if the plan has no such format.
    """
    if form is None:
        return None
    from dashboards.output.change_forms import ChangeWriter

    return ChangeWriter(plan, form)


def check_plot(plot: Path, several: bool) -> None:
    """Raise an error if the plot cannot be drawn, before the inputs are read."""
    from dashboards.plots.drawing import require_matplotlib
    from dashboards.plots.plot_file import check_plot_file

    if several:
        raise UsageError(f"--plot {plot}: got several queries, expected one")
    check_plot_file(plot)
    require_matplotlib("--plot")


class Drawing:
    """The option --plot: collects the rows of the answer and draws them. Does nothing if the option is not given."""

    def __init__(self, plan: Plan, path: Path | None, is_output_requested: bool) -> None:
        """Draw into `path`. `is_output_requested`: True if the rows are also written.

        Raises PlotError if the plan cannot be drawn.
        """
        self._path, self._rows = path, None
        if path is not None:
            from dashboards.plots.answer_charts import AnswerRows

            self._rows = AnswerRows(plan)
        self.writes_rows = path is None or is_output_requested

    def collect(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and store them for the plot."""
        return batches if self._rows is None else self._rows.collect(batches)

    def read(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Read all batches without printing them."""
        for _ in batches:
            pass

    def write(self) -> None:
        """Draw the rows, and print a message about the plot to standard error."""
        if self._path is not None and self._rows is not None:
            from dashboards.plots.plot_file import write_plot

            print(escape(write_plot(self._path, self._rows)), file=sys.stderr)
