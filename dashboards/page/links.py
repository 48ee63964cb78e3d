"""The links of a pipeline for the live page: counters, watermarks, silence, and the queries that a link holds back.

    waiting   no data yet                          silent    no data for SILENT_SECONDS or longer
    active    data since the last SILENT_SECONDS   ended     the input has ended: the link has no watermark any more

A query waits for the smallest watermark of its links. A link *holds back* a query if its watermark is the smallest, and
another link of the query is ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from capture.lazy_dataclasses import dataclass
from capture.metrics import (
    BYTES_READ,
    FILES_DAMAGED,
    INTERFACE_DROPPED,
    PACKETS_DECODED,
    RECORDS_READ,
    Metric,
    Samples,
)
from highlevel.metrics import (
    LOW_WATERMARK,
    PUNCTUATION_LAG,
    SPOOL_LATENESS,
    SPOOL_LINK_COUNTS,
    SPOOL_PARTIALS_LOST,
    SPOOL_PARTIALS_READ,
    SPOOL_PARTIALS_SHED,
)
from lowlevel.metrics import LULL_WATERMARKS, RECORDS_SHED, ROWS_BELOW_WATERMARK

SILENT_SECONDS = 10.0

COUNTERS: Mapping[str, tuple[Metric, ...]] = {
    "records": (RECORDS_READ, SPOOL_LINK_COUNTS["records"]),
    "packets": (PACKETS_DECODED, SPOOL_LINK_COUNTS["packets"]),
    "bytes": (BYTES_READ, SPOOL_LINK_COUNTS["bytes"]),
    "late": (ROWS_BELOW_WATERMARK, SPOOL_LINK_COUNTS["late"]),
    "dropped": (INTERFACE_DROPPED, RECORDS_SHED, SPOOL_LINK_COUNTS["dropped"], SPOOL_LINK_COUNTS["shed"]),
    "lulls": (LULL_WATERMARKS, SPOOL_LINK_COUNTS["lulls"]),
    "partials_lost": (SPOOL_PARTIALS_LOST, SPOOL_PARTIALS_SHED),
    "damaged": (FILES_DAMAGED,),
}
"""Counters of the page, each with the metrics that are added: metrics of the link, or of its spool."""

_LINK_LABEL = RECORDS_READ.labels.index("link")


@dataclass(slots=True)
class _Activity:
    """The amount of data of a link so far, and the time of its last growth."""

    amount: float
    time: float
    has_watermark: bool = False


class LinkStates:
    """Follows the activity of links. Not thread safe; `now` is in seconds since the epoch."""

    def __init__(self) -> None:
        self._activity: dict[str, _Activity] = {}

    def observe(self, links: Iterable[str], samples: Samples, now: float) -> list[dict[str, Any]]:
        """Return the states of `links`, and of other links in `samples`, sorted by name."""
        names = {*links, *(labels[-1] for name, labels in samples if name == LOW_WATERMARK.name)}
        names |= {labels[_LINK_LABEL] for name, labels in samples if name == RECORDS_READ.name}
        watermarks = _watermarks_by_link(samples)
        holding = _find_held_queries(watermarks)
        return [
            self._observe(link, samples, now, watermarks.get(link, {}), holding.get(link, {})) for link in sorted(names)
        ]

    def _observe(
        self, link: str, samples: Samples, now: float, watermarks: Mapping[str, float], holding: Mapping[str, float]
    ) -> dict[str, Any]:
        counts = {
            field: sum(samples.total(metric, link=link) for metric in metrics) for field, metrics in COUNTERS.items()
        }
        amount = counts["records"] + samples.total(SPOOL_PARTIALS_READ, link=link)
        activity = self._activity.setdefault(link, _Activity(amount, now))
        if amount != activity.amount:
            activity.amount, activity.time = amount, now
        activity.has_watermark |= bool(watermarks)
        is_silent = now - activity.time >= SILENT_SECONDS
        if not amount:
            state = "waiting"
        elif not watermarks and (activity.has_watermark or is_silent):
            state = "ended"
        else:
            state = "silent" if is_silent else "active"
        lags = [
            value for (name, labels), value in samples.items() if name == PUNCTUATION_LAG.name and labels[-1] == link
        ]
        return {
            "name": link,
            "state": state,
            "since": activity.time,
            **counts,
            "watermark": min(watermarks.values(), default=None),
            "lag": max(lags, default=None),
            "lateness": samples.get((SPOOL_LATENESS.name, (link,))),
            "holds": [{"query": query, "seconds": seconds} for query, seconds in sorted(holding.items())],
        }


def _watermarks_by_link(samples: Samples) -> dict[str, dict[str, float]]:
    """Return the watermark by link and query, in seconds."""
    watermarks: dict[str, dict[str, float]] = {}
    for (name, labels), value in samples.items():
        if name == LOW_WATERMARK.name:
            query, link = labels
            watermarks.setdefault(link, {})[query] = value
    return watermarks


def _find_held_queries(watermarks: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return by link the queries that the link holds back, each with the seconds to the next link of the query.

    >>> _find_held_queries({"a": {"q": 10.0}, "b": {"q": 25.0}, "c": {"q": 13.0}})
    {'a': {'q': 3.0}}
    """
    by_query: dict[str, list[tuple[float, str]]] = {}
    for link, bounds in watermarks.items():
        for query, low in bounds.items():
            by_query.setdefault(query, []).append((low, link))
    holding: dict[str, dict[str, float]] = {}
    for query, bounds_of_links in by_query.items():
        ordered = sorted(bounds_of_links)
        if len(ordered) > 1 and ordered[1][0] > ordered[0][0]:
            holding.setdefault(ordered[0][1], {})[query] = ordered[1][0] - ordered[0][0]
    return holding
