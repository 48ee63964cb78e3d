"""The inputs of `wiretide.lifetimes`: queries and tables, read as rows with lifetimes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dashboards import request
from dashboards.inputs import Options, open_inputs
from highlevel.speculation.lifetimes.model import LifetimeError
from highlevel.speculation.lifetimes.sources import LifetimeColumns
from highlevel.speculation.lifetimes.streams import Lifetimes, lifetimes_of
from lowlevel.durations import parse_duration
from lowlevel.layers import Layer

DEFAULTS: dict[str, Any] = {
    "streams": None,
    "layer": Layer.OUTER,
    "sampling": (),
    "threads": None,
    "slack": None,
    "follow": False,
    "lull": None,
    "schema": None,
}
"""Options of `wiretide.query` that a query of lifetimes has, with their defaults."""


def open_lifetimes(
    rows: str | pa.Table | pa.RecordBatch,
    files: Sequence[str | os.PathLike[str] | request.Frame],
    start: str,
    end: str,
    identifier: tuple[str, ...],
    remember: str | None,
    counts_from: int | None,
    params: Mapping[str, object] | None,
    options: Mapping[str, Any],
) -> Lifetimes:
    """Return the stream of a query over files, or of a table. Raises LifetimeError for wrong options and columns."""
    unknown = set(options) - set(DEFAULTS)
    if unknown:
        raise LifetimeError(f"got the option {min(unknown)!r}, expected one of {', '.join(DEFAULTS)}")
    columns = LifetimeColumns(start, end, identifier, _parse_remember(remember), counts_from)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        if files or options or params:
            raise LifetimeError("got files or options together with a table, expected only the table")
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        return lifetimes_of(table.schema, table.to_batches, columns)
    chosen = {**DEFAULTS, **options}
    given = ("layer", "sampling", "threads", "slack", "follow", "lull")
    parsed = Options.parse(request.INLINE, *(chosen[name] for name in given))
    result = open_inputs(files, chosen["streams"], parsed, schema=chosen["schema"]).query(rows, params)
    return lifetimes_of(result.schema, result.batches, columns)


def _parse_remember(text: str | None) -> int | None:
    """Return the duration in ns. Raises LifetimeError for another text."""
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise LifetimeError(f"got remember {text!r}, {error}") from error
