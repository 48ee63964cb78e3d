"""Write the final rows of a query with changes into a file, in the pass of its changes: `wiretide query --final-to`.

    the query ──────────────────► changes, for the output of the command
    the query without changes ──► final rows ──► queue ──► thread that writes the file

Both queries have the same watermarks, so a row is written when no later change of it follows. The queue is short, so a
slow file delays the query instead of using memory.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import BinaryIO

import pyarrow as pa

from capture.errors import InputError
from capture.metrics import Samples
from dashboards.answer import Answer, answer_all
from dashboards.output.formats import SUFFIXES, Format, Times
from dashboards.output.writers import open_output, write_answer
from highlevel.inline.engine import ALL_METRICS, Input
from highlevel.plan.plan import Plan
from lowlevel.watermarks.idle import IdleRule
from queries.pipeline.input_options import Slack

FINAL = "final"
"""The name of the query without changes."""

MAX_QUEUED_BATCHES = 16


def final_format(path: Path, plan: Plan) -> Format:
    """Return the format of a file of final rows, by its suffix.

    Raises InputError for another suffix, and for a query without changes.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--final-to {path}: expected a name with one of {', '.join(SUFFIXES)}")
    if not plan.has_changes:
        raise InputError(f"--final-to {path}: got a query without changes, expected EMIT CHANGES at its end")
    return SUFFIXES[path.suffix.lower()]


class FinalRows:
    """The file of the final rows of a query with changes over captures."""

    def __init__(self, path: Path, plan: Plan, times: Times | None, *, live: bool) -> None:
        """Write into `path`. `times`: the form of times in text formats.

        Raises InputError for a wrong suffix, or a query without changes.

        `live`: the query reads live inputs, so users read the file while it grows.
        """
        self._format = final_format(path, plan)
        self._path, self._times, self._live = path, times, live
        self._plans = [plan, replace(plan.with_final_rows(), name=FINAL)]
        self._queue: Queue[pa.RecordBatch | None] = Queue(MAX_QUEUED_BATCHES)
        self._error: Exception | None = None

    @contextlib.contextmanager
    def answer(
        self,
        inputs: Sequence[Input],
        slots: int | None,
        threads: int | None,
        slack: Slack | None,
        lull: IdleRule | None,
    ) -> Iterator[Answer[pa.RecordBatch]]:
        """Answer the query, and write its final rows. The arguments are those of `dashboards.answer.answer`.

        The file is complete at the end of the context. If the query fails, a file that is not live is not written.
        """
        growing = self._live and self._format not in (Format.PARQUET, Format.OPENMETRICS)
        with (
            answer_all(self._plans, inputs, slots, threads, slack, lull) as both,
            open_output(self._path, live=growing) as sink,
        ):
            writer = threading.Thread(target=self._write, args=(sink,), name="final rows")
            writer.start()
            try:
                samples = lambda: _without_counters_of_final_rows(both.samples())  # noqa: E731
                yield Answer(self._split(both.batches), samples, both.readings, both.run, both.remedy)
            finally:
                self._queue.put(None)
                writer.join()
            self._raise_error()

    def _split(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Yield the changes, and give the final rows to the thread."""
        for number, batch in batches:
            if number == 0:
                yield batch
                continue
            self._raise_error()
            self._queue.put(batch)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _write(self, sink: BinaryIO) -> None:
        batches = iter(self._queue.get, None)
        try:
            write_answer(self._plans[1], batches, self._format, sink, live=self._live, style=self._times)
        except Exception as error:  # the main thread raises it again
            self._error = error
            for _ in batches:  # the query must not wait for room in the queue
                pass


def _without_counters_of_final_rows(samples: Samples) -> Samples:
    """Return the samples of the query with changes and of its links.

    The other samples would count each late row a second time.
    """
    kept = Samples()
    for (name, labels), value in samples.items():
        if "query" not in (known := ALL_METRICS[name].labels) or labels[known.index("query")] != FINAL:
            kept[name, labels] = value
    return kept
