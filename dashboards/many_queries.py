"""Several queries in one pass over the inputs: their names, their results, and the files of their answers.

The batches of different queries arrive in any order. Until the pass ends, each result is stored in memory, or in a
temporary file if it has more than SPILL_BYTES.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from dashboards.answer import answer_all
from dashboards.idle_kernels import IdleKernels
from dashboards.output.console import compile_kernels, progress_bar, warn
from dashboards.output.formats import SUFFIXES, Format, Times
from dashboards.output.run_warnings import plan_warnings
from dashboards.output.writers import open_output, write_answer
from dashboards.request import INLINE
from dashboards.stop_signals import interrupt_at_sigterm
from highlevel.inline.engine import Input
from highlevel.plan.plan import Plan
from queries.pipeline.input_options import Slack

SPILL_BYTES = 4 << 20
"""Bytes of a result above which it is stored in a temporary file."""


@dataclass(frozen=True)
class AnswerFormat:
    """The format of answers. `times`: the format of times; None: the default of the format.

    `raw_csv`: texts are not escaped.
    """

    format: Format
    times: Times | None = None
    raw_csv: bool = False

    @property
    def suffix(self) -> str:
        """The suffix of files."""
        return next(suffix for suffix, format_ in SUFFIXES.items() if format_ is self.format)


class StoredResult:
    """The batches of one query: added during the pass, read after the pass. A context manager that removes the file."""

    def __init__(self, plan: Plan) -> None:
        """Store results of `plan`."""
        self.plan = plan
        self._file = tempfile.SpooledTemporaryFile(SPILL_BYTES, prefix="wiretide-")  # noqa: SIM115  # closed by close
        self._writer = pa.ipc.new_stream(self._file, plan.schema)

    def __enter__(self) -> StoredResult:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Store a batch."""
        self._writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the batches in their order, after the last `add`."""
        self._writer.close()
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as reader:
            yield from reader


@contextlib.contextmanager
def open_results(plans: Sequence[Plan]) -> Iterator[list[StoredResult]]:
    """Return an empty result for each plan. Their files are removed at the end of the context."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(StoredResult(plan)) for plan in plans]


def answer_all_into(
    plans: Sequence[Plan],
    inputs: Sequence[Input],
    folder: Path | None,
    answer_format: AnswerFormat,
    slots: int | None = None,
    threads: int | None = None,
    slack: Slack | None = None,
    on: str = INLINE,
    spark_settings: Mapping[str, str] | None = None,
) -> tuple[Samples, list[str]]:
    """Answer queries over files in one pass. Write a file for each into `folder`, or all as tables to standard output.

    Arguments are those of `answer_all`. Return the counters and the warnings. Raises InputError for an input that
    cannot be read, and for a folder or file that cannot be written.
    """
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot be made: {error.strerror}") from error
    if on != INLINE:
        compile_kernels()
    with open_results(plans) as results:
        with (
            interrupt_at_sigterm(),
            answer_all(plans, inputs, slots, threads, slack, on=on, spark_settings=spark_settings) as answer,
        ):
            if answer.run is not None:
                compile_kernels(is_idle=IdleKernels(answer.run))
            for warning in dict.fromkeys(warning for plan in plans for warning in plan_warnings(plan)):
                warn(warning)
            with progress_bar(is_shown=answer.shows_progress, detail=answer.pairs_text) as bar:
                answer.report_progress(bar)
                answer.warn_of_large_state(warn if bar is None else bar.warn)
                for number, batch in answer.batches:
                    results[number].add(batch)
            samples, warnings = answer.samples(), answer.warnings()
        for result in results:
            name = result.plan.name
            with open_output(None if folder is None else folder / f"{name}{answer_format.suffix}") as sink:
                if folder is None:
                    sink.write(f"{name}\n".encode())
                write_answer(
                    result.plan,
                    result.batches(),
                    answer_format.format,
                    sink,
                    style=answer_format.times,
                    raw_csv=answer_format.raw_csv,
                )
                if folder is None and result is not results[-1]:
                    sink.write(b"\n")
    return samples, warnings
