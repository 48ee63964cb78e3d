"""Answer queries with the inline engine or with Spark: first the result batches, then the counters."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from dashboards.output.run_warnings import describe_unsupported, run_warnings
from dashboards.request import INLINE
from dashboards.stop_signals import call_at_signal
from highlevel.inline.engine import InlineRun, Input
from highlevel.inline.input_outcomes import Reading
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.plan import Plan, leaves_of
from lowlevel.node.node import TABLE_SLOTS
from lowlevel.watermarks.idle import IdleRule
from queries.pipeline.input_options import Slack

Rows = TypeVar("Rows")


@dataclass
class Answer(Generic[Rows]):
    """The answer of one query, or of several in one pass.

    * `batches`: the results, as soon as they are final. For several queries: pairs (number of the query, batch).
    * `samples`, `readings`: counters, complete after the last batch.
    * `run`: the run of the inline engine; None with Spark. `remedy`: the setting that prevents late rows, which
      warnings name; None: the allowed disorder.
    """

    batches: Iterator[Rows]
    samples: Callable[[], Samples]
    readings: Callable[[], list[Reading]]
    run: InlineRun | None = field(default=None)
    remedy: str | None = None

    @property
    def live(self) -> bool:
        """True if an input is live. The query then ends when the inputs end or the user stops it."""
        return self.run is not None and self.run.live

    @property
    def shows_progress(self) -> bool:
        """True if a progress bar can be shown, because the size of the input is known."""
        return self.run is not None and not self.run.live

    def pairs_text(self) -> str:
        """Return a text with the number of row pairs that the joins have found so far; an empty text for 0."""
        pairs = 0 if self.run is None else self.run.pairs
        return f"{pairs:,} pairs joined" if pairs else ""

    def warn_of_large_state(self, warn: Callable[[str], None]) -> None:
        """Call `warn` once if open windows and joins need much memory."""
        if self.run is not None:
            self.run.on_large_state = lambda size: warn(
                f"open windows and joins use {size / 1e9:,.1f} GB and may need more: each group and each joinable row "
                "needs memory until its window is final. Shorter windows, fewer groups or sketches need less."
            )

    def report_progress(self, progress: Callable[[int, int], None] | None) -> None:
        """Call `progress` with the bytes read and the total bytes, while the caller reads the batches."""
        if self.run is not None:
            self.run.progress = progress

    @contextlib.contextmanager
    def until_stopped(self) -> Iterator[None]:
        """End live inputs at the first Ctrl-C or SIGTERM. The answer then contains the rows that were read before.

        Has an effect only in the main thread, because Python handles signals there.
        """
        with contextlib.ExitStack() as stack:
            if self.run is not None and self.run.live and threading.current_thread() is threading.main_thread():
                stack.enter_context(call_at_signal(self.run.stop))
            yield

    def warnings(self) -> list[str]:
        """Return warnings about data that is missing from the answer.

        Raises InputError if all records have unsupported link types.
        """
        samples, readings = self.samples(), self.readings()
        error = describe_unsupported(samples, readings)
        if error is not None:
            raise InputError(error)
        return list(run_warnings(samples, readings, self.remedy))


StartRun = Callable[[], contextlib.AbstractContextManager[Answer[pa.RecordBatch]]]
"""Open the inputs of a query and start it."""

StartAll = Callable[[], contextlib.AbstractContextManager[Answer[tuple[int, pa.RecordBatch]]]]
"""Open the inputs of several queries and start them."""


def check_engine(on: str, threads: int | None, slack: Slack | None, lull: IdleRule | None, follow: bool) -> None:
    """Raise ValueError if `on` is another engine and an option of the inline engine is given."""
    if on != INLINE and (threads is not None or slack is not None or lull is not None or follow):
        raise ValueError(f"threads, slack, lull and follow need the engine {INLINE}; got the engine {on}")


@contextlib.contextmanager
def answer(
    plan: Plan,
    inputs: Sequence[Input],
    on: str = INLINE,
    slots: int | None = None,
    threads: int | None = None,
    slack: Slack | None = None,
    lull: IdleRule | None = None,
    spark_settings: Mapping[str, str] | None = None,
    frames: Mapping[str, Any] | None = None,
) -> Iterator[Answer[pa.RecordBatch]]:
    """Open the inputs and start the query. Raises InputError for an input that cannot be read.

    `on`: the engine. `slots`: slots of each low-level table. `slack`: allowed disorder.
    For Spark: `spark_settings`: the settings that the user gave. `frames`: the DataFrames of inputs by link. Raises
    ValueError if `threads`, `slack`, `lull` or a followed input is given and the engine is not inline.
    """
    with answer_all([plan], inputs, slots, threads, slack, lull, on, spark_settings, frames) as all_:
        yield Answer((batch for _, batch in all_.batches), all_.samples, all_.readings, all_.run, all_.remedy)


def _remedy(plans: Sequence[Plan]) -> str | None:
    """Return the remedy for late rows, or None for the default remedy."""
    states_disorder = any(leaf.low.slack is not None for leaf in leaves_of(plans))
    return "a longer REMEMBER" if states_disorder else None


def _sort_by_window(rows: pa.Table) -> pa.Table:
    """Return rows sorted by their windows, because Spark divides windows. Rows of one window keep their order."""
    order = np.lexsort([rows.column(name).to_numpy() for name in (WINDOW_START, WINDOW_END)])
    return rows.take(pa.array(order)).combine_chunks()


@contextlib.contextmanager
def answer_all(
    plans: Sequence[Plan],
    inputs: Sequence[Input],
    slots: int | None = None,
    threads: int | None = None,
    slack: Slack | None = None,
    lull: IdleRule | None = None,
    on: str = INLINE,
    spark_settings: Mapping[str, str] | None = None,
    frames: Mapping[str, Any] | None = None,
) -> Iterator[Answer[tuple[int, pa.RecordBatch]]]:
    """Open the inputs and start the queries in one pass, on Spark in one job. Arguments and errors as for `answer`."""
    if on == INLINE:
        late, exported = (None, None) if slack is None else (slack.late, slack.exported)
        sizes = slots or TABLE_SLOTS
        run = InlineRun(plans, inputs, sizes, threads=threads, slack=late, lull=lull, export_delay=exported)
        with contextlib.closing(run), contextlib.closing(run.results()) as results:
            yield Answer(results, run.samples, run.readings, run, _remedy(plans))
        return
    check_engine(on, threads, slack, lull, any(source.follow for source in inputs))
    from highlevel.spark.batch import BatchRun
    from highlevel.spark.session.session import open_finite_session

    captures = [source.path for source in inputs if source.is_capture]
    with open_finite_session(on, captures, spark_settings or {}) as spark:
        batch = BatchRun(spark, plans, list(inputs), slots or TABLE_SLOTS, frames=frames or {})
        answers = zip(plans, batch.run(), strict=True)
        batches = (
            (number, rows)
            for number, (plan, table) in enumerate(answers)
            for rows in (_sort_by_window(table) if plan.windowed else table).to_batches()
        )
        yield Answer(batches, lambda: batch.samples, lambda: batch.readings, remedy=_remedy(plans))
