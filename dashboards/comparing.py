"""A comparison as it is asked for, in Python or on the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from capture.errors import WiretideError
from capture.units import SECOND
from highlevel.compare.answers import shown_rows
from highlevel.compare.arrivals import arrange
from highlevel.compare.comparison import Comparison, compare
from highlevel.compare.injection import Injection
from highlevel.compare.question import Question, question_of
from highlevel.compare.recording import LIMIT, record
from lowlevel.durations import parse_duration
from lowlevel.layers import Layer

Bar = Callable[[str], AbstractContextManager[Callable[[int, int], None] | None]]
"""Makes what shows how far something is that is counted in a unit, or nothing."""

Given = TypeVar("Given")
Read = TypeVar("Read")


class ComparisonError(WiretideError):
    """An answer that is not what the inline engine gives."""


@dataclass(frozen=True)
class Settings:
    """What is done to arrivals, which slacks are tried, and how often; times in ns."""

    injection: Injection = Injection()  # noqa: RUF009  # it is frozen
    slacks: Sequence[int] = (0, SECOND, 5 * SECOND)
    repeat: int = 3
    tick: int | None = None
    limit: int = LIMIT


def no_bar(_: str) -> AbstractContextManager[None]:
    """Show nothing."""
    return nullcontext()


def run_comparison(
    sql: str,
    files: Iterable[str | os.PathLike[str]],
    streams: Mapping[str, Iterable[str]] | None = None,
    layer: str = Layer.OUTER,
    settings: Settings = Settings(),
    bar: Bar = no_bar,
    prepared: Callable[[], None] | None = None,
) -> Comparison:
    """Read the rows once, check the exact answer against that of the inline engine, and measure all variants.

    Raises QueryError for a wrong query, NotComparedError for one that has no in-order counterpart, InputError for a
    wrong input. `bar` shows bytes, then runs; `prepared` is called before there is anything to compute.
    """
    import pyarrow as pa

    from dashboards import request
    from dashboards.answer import answer

    plan, inputs = request.bind(sql, layer, None, files, streams, follow=False)
    question = question_of(plan)
    if prepared is not None:
        prepared()
    with bar("bytes") as reading:
        recordings = record(question.plan.leaves, inputs, settings.limit, reading)
    settle = question.settle + max(settings.slacks, default=0)
    arrivals = arrange(recordings, settings.injection.apply(recordings), settle, settings.tick)
    with bar("runs") as running:
        found = compare(question, arrivals, settings.slacks, settings.repeat, running)
    with answer(plan, inputs) as inline:
        defined = pa.Table.from_batches(inline.batches, plan.schema)
    check(question, found, defined)
    return found


def check(question: Question, found: Comparison, defined: object) -> None:
    """Raise ComparisonError where the exact answer out of order is not that of the inline engine."""
    import pyarrow as pa

    assert isinstance(defined, pa.Table)
    expected = shown_rows(defined, question.shown)
    if expected != found.exact.shown:
        lacking, more = (expected - found.exact.shown).total(), (found.exact.shown - expected).total()
        raise ComparisonError(
            f"the exact answer is not that of the inline engine: {lacking} rows are missing, {more} more are there"
        )


def settings(
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
    """Read settings as they are written on the command line; ValueError, with the option, for a wrong one."""
    if min(repeat, limit) < 1 or seed < 0:
        raise ValueError(f"got repeat {repeat}, limit {limit}, seed {seed}: expected 1, 1 and 0 at least")
    length = None if tick is None else _read("tick", parse_duration, tick)
    if length == 0:
        raise ValueError("--tick: got 0, expected more")
    injection = Injection(
        _read("skew", skews, skew),
        _read("lull", lulls, lull),
        _read("disorder", parse_duration, disorder),
        _read("block", parse_duration, block),
        seed,
    )
    return Settings(injection, _read("slack", durations, slack), repeat, length, limit)


def _read(option: str, parse: Callable[[Given], Read], given: Given) -> Read:
    try:
        return parse(given)
    except ValueError as error:
        raise ValueError(f"--{option}: {error}") from error


def durations(text: str) -> list[int]:
    """Read several durations with commas between them; ValueError for what is none.

    >>> durations("0, 1s,500ms")
    [0, 1000000000, 500000000]
    """
    found = [parse_duration(part) for part in text.split(",")]
    if len(set(found)) < len(found):
        raise ValueError(f"got {text}, expected each time once")
    return found


def skews(texts: Iterable[str]) -> dict[str, int]:
    """Read NAME=TIME each; ValueError for what is not that."""
    return {name: parse_duration(time) for name, time in map(_pair, texts)}


def lulls(texts: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """Read NAME=START+LENGTH each, a name as often as it has lulls; ValueError for what is not that.

    >>> lulls(["a=60s+30s"])
    {'a': [(60000000000, 30000000000)]}
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for name, times in map(_pair, texts):
        start, plus, length = times.partition("+")
        if not plus:
            raise ValueError(f"got {times}, expected when it begins and how long it is, such as 60s+30s")
        found.setdefault(name, []).append((parse_duration(start), parse_duration(length)))
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        raise ValueError(f"got {text}, expected the name of a link, = and a time")
    return name, value
