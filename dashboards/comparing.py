"""Run a comparison of in-order and out-of-order execution: parse its settings, read the rows, check the results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from highlevel.compare.answers import rows_of_answer
from highlevel.compare.arrivals import arrange
from highlevel.compare.comparison import Comparison, compare
from highlevel.compare.injection import Injection
from highlevel.compare.question import Question, question_of
from highlevel.compare.recording import DEFAULT_LIMIT, record
from lowlevel.durations import parse_duration
from lowlevel.layers import Layer

ShowProgress = Callable[[str], AbstractContextManager[Callable[[int, int], None] | None]]
"""Show a progress bar for a unit (`bytes`, `runs`), and provide the function that sets it; None if no bar is shown."""

Text = TypeVar("Text")
Value = TypeVar("Value")


class ComparisonError(WiretideError):
    """A variant without late rows returned other rows than the inline engine."""


@dataclass(frozen=True)
class Settings:
    """The settings of a comparison. Times are in ns.

    * `injection`: delays that are added to the arrival times. `slacks`: the slacks to measure.
    * `repeat`: number of runs of each variant.
    * `tick`: arrival time in one batch; None: a 4000th of the total time.
    * `limit`: maximum number of rows in memory.
    """

    injection: Injection = Injection()  # it is frozen
    slacks: Sequence[int] = (0, SECOND, 5 * SECOND)
    repeat: int = 3
    tick: int | None = None
    limit: int = DEFAULT_LIMIT


DEFAULTS = Settings()
"""The settings of a comparison without options."""


def show_no_progress(_: str) -> AbstractContextManager[None]:
    """Show no progress bar."""
    return nullcontext()


def run_comparison(
    sql: str,
    files: Iterable[str | os.PathLike[str]],
    streams: Mapping[str, Iterable[str]] | None = None,
    layer: str = Layer.OUTER,
    settings: Settings = DEFAULTS,
    show_progress: ShowProgress = show_no_progress,
    prepare: Callable[[], None] | None = None,
) -> Comparison:
    """Read the rows once, measure all variants, and compare the exact answer with the answer of the inline engine.

    `show_progress` shows the progress, first in bytes, then in runs. `prepare` is called after the checks of the query.
    Raises QueryError for a wrong query, NotComparedError for a query without an in-order counterpart, InputError for a
    wrong input.
    """
    import pyarrow as pa

    from dashboards import request
    from dashboards.answer import answer

    plan, inputs = request.bind(sql, layer, None, files, streams, follow=False)
    question = question_of(plan)
    if prepare is not None:
        prepare()
    with show_progress("bytes") as reading:
        recordings = record(question.plan.leaves, inputs, settings.limit, reading)
    settle = question.max_settle_time + max(settings.slacks, default=0)
    arrivals = arrange(recordings, settings.injection.apply(recordings), settle, settings.tick)
    with show_progress("runs") as running:
        comparison = compare(question, arrivals, settings.slacks, settings.repeat, running)
    with answer(plan, inputs) as inline:
        reference = pa.Table.from_batches(inline.batches, plan.schema)
    check_answer(question, comparison, reference)
    return comparison


def check_answer(question: Question, comparison: Comparison, reference: object) -> None:
    """Raise ComparisonError if the exact out-of-order answer differs from `reference`, the inline engine's answer."""
    import pyarrow as pa

    assert isinstance(reference, pa.Table)
    expected, exact = rows_of_answer(reference, question.result_columns), comparison.exact.shown
    if expected != exact:
        missing, extra = (expected - exact).total(), (exact - expected).total()
        raise ComparisonError(
            f"the exact answer differs from the answer of the inline engine: {missing} rows are missing, {extra} rows "
            "are additional"
        )


def parse_settings(
    slack: str,
    skew: Iterable[str],
    lull: Iterable[str],
    disorder: str,
    block: str,
    seed: int,
    repeat: int,
    tick: str | None,
    limit: int,
) -> Settings:
    """Parse the options of `wiretide compare`. Raises ValueError, with the name of the option, for a wrong value."""
    if min(repeat, limit) < 1 or seed < 0:
        raise ValueError(f"got repeat {repeat}, limit {limit}, seed {seed}: expected at least 1, 1 and 0")
    length = None if tick is None else _parse_option("tick", parse_duration, tick)
    if length == 0:
        raise ValueError("--tick: got 0, expected a longer time")
    injection = Injection(
        _parse_option("skew", parse_skews, skew),
        _parse_option("lull", parse_lulls, lull),
        _parse_option("disorder", parse_duration, disorder),
        _parse_option("block", parse_duration, block),
        seed,
    )
    return Settings(injection, _parse_option("slack", parse_durations, slack), repeat, length, limit)


def _parse_option(option: str, parse: Callable[[Text], Value], text: Text) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"--{option}: {error}") from error


def parse_durations(text: str) -> list[int]:
    """Parse durations separated by commas into ns. Raises ValueError for text that is no duration.

    >>> parse_durations("0, 1s,500ms")
    [0, 1000000000, 500000000]
    """
    times = [parse_duration(part) for part in text.split(",")]
    if len(set(times)) < len(times):
        raise ValueError(f"got {text}, expected each time once")
    return times


def parse_skews(texts: Iterable[str]) -> dict[str, int]:
    """Parse `NAME=TIME`, one per link, into ns by link name. Raises ValueError for other text."""
    return {name: parse_duration(time) for name, time in map(_parse_pair, texts)}


def parse_lulls(texts: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """Parse `NAME=START+LENGTH`, one per lull, into (start, length) in ns by link name. Raises ValueError.

    >>> parse_lulls(["a=60s+30s"])
    {'a': [(60000000000, 30000000000)]}
    """
    by_link: dict[str, list[tuple[int, int]]] = {}
    for name, times in map(_parse_pair, texts):
        start, plus, length = times.partition("+")
        if not plus:
            raise ValueError(f"got {times}, expected START+LENGTH, such as 60s+30s")
        by_link.setdefault(name, []).append((parse_duration(start), parse_duration(length)))
    return by_link


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise ValueError(f"got {text}, expected NAME=TIME with the name of a link")
    return name, value
