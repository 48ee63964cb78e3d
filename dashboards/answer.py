"""One query answered by whichever engine: result batches as they become final, and what there is to say afterwards."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from capture.errors import InputError
from capture.metrics import Samples
from dashboards.output.run_warnings import nothing_readable, run_warnings
from dashboards.request import INLINE
from dashboards.stop_signals import stopping
from highlevel.inline.engine import InlineRun, Input
from highlevel.inline.readings import Reading
from highlevel.plan.plan import Plan
from lowlevel.watermarks.idle import IdleRule


@dataclass
class Answer:
    """The `batches` are to be taken first; then `samples` and `readings` are whole."""

    batches: Iterator[pa.RecordBatch]
    samples: Callable[[], Samples]
    readings: Callable[[], list[Reading]]
    run: InlineRun | None = field(default=None)

    @property
    def live(self) -> bool:
        """Whether the answer ends only when its live inputs do, or somebody stops them."""
        return self.run is not None and self.run.live

    @property
    def shows_progress(self) -> bool:
        """Whether it is known how much there is to read, and how much has been."""
        return self.run is not None and not self.run.live

    def pairs(self) -> str:
        """Return how many pairs of rows the joins have found so far, empty if there are none."""
        pairs = 0 if self.run is None else self.run.pairs
        return f"{pairs:,} pairs joined" if pairs else ""

    def warn_of_state(self, warn: Callable[[str], None]) -> None:
        """Call `warn` once if open windows and joins come to hold much memory while batches are taken."""
        if self.run is not None:
            self.run.on_large_state = lambda held: warn(
                f"open windows and joins hold {held / 1e9:,.1f} GB and may need more: each group and each joinable row "
                "needs memory until its window is final; shorter windows, fewer groups or sketches need less"
            )

    def show(self, progress: Callable[[int, int], None] | None) -> None:
        """Call `progress` with (bytes done, bytes in all) while batches are taken."""
        if self.run is not None:
            self.run.progress = progress

    @contextlib.contextmanager
    def until_stopped(self) -> Iterator[None]:
        """Let the first Ctrl-C or SIGTERM end live inputs, and so the answer with what has been read.

        Signals come to the main thread: in others nothing stops the inputs but their end.
        """
        with contextlib.ExitStack() as stack:
            if self.run is not None and self.run.live and threading.current_thread() is threading.main_thread():
                stack.enter_context(stopping(self.run.stop))
            yield

    def warnings(self) -> list[str]:
        """Say what is not in the answer. Raises InputError where nothing could be: no link type is supported."""
        samples, readings = self.samples(), self.readings()
        nothing = nothing_readable(samples, readings)
        if nothing is not None:
            raise InputError(nothing)
        return list(run_warnings(samples, readings))


@contextlib.contextmanager
def answer(
    plan: Plan,
    inputs: Sequence[Input],
    on: str = INLINE,
    slots: int | None = None,
    threads: int | None = None,
    slack: int | None = None,
    lull: IdleRule | None = None,
) -> Iterator[Answer]:
    """Open the inputs and begin. Raises InputError for a wrong input.

    `threads`, `slack`, `lull` and inputs that are followed are for the inline engine: ValueError with another.
    """
    from lowlevel.node.node import TABLE_SLOTS

    slots = slots or TABLE_SLOTS
    if on == INLINE:
        run = InlineRun([plan], inputs, slots, threads=threads, slack=slack, lull=lull)
        with contextlib.closing(run.results()) as results:
            yield Answer((batch for _, batch in results), run.samples, run.readings, run)
        return
    if threads is not None or slack is not None or lull is not None or any(each.follow for each in inputs):
        raise ValueError(
            f"got threads, a slack, a lull or something to follow with the engine {on}, expected them with {INLINE}"
        )
    from capture.open import open_finite
    from highlevel.spark.batch import BatchRun
    from highlevel.spark.java import require_java
    from highlevel.spark.session import close, session

    require_java()
    for each in inputs:
        open_finite(each.path, "Spark")  # what is wrong with an input is said before a JVM is started
    spark = session("local[*]" if on == "local" else on)
    try:
        batch = BatchRun(spark, plan, list(inputs), slots)
        found = batch.run().to_batches()
        yield Answer(iter(found), lambda: batch.samples, lambda: batch.readings)
    finally:
        close(spark)
