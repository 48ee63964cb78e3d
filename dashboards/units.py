"""Units of values, from the names of their columns: `bytes`, `bits_per_second`, `median_ms`."""

from __future__ import annotations

from capture.lazy_dataclasses import dataclass
from dashboards.prometheus.names import prometheus_name


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: its symbol on the live page, and its identifier in Grafana."""

    symbol: str
    grafana: str


NUMBER = Unit("", "short")

UNITS: tuple[tuple[tuple[str, ...], Unit], ...] = (
    (("bits", "per", "second"), Unit("bit/s", "bps")),
    (("bytes", "per", "second"), Unit("B/s", "Bps")),
    (("packets", "per", "second"), Unit("packets/s", "pps")),
    (("bits",), Unit("bit", "decbits")),
    (("bytes",), Unit("B", "decbytes")),
    (("milliseconds",), Unit("ms", "ms")),
    (("ms",), Unit("ms", "ms")),
    (("seconds",), Unit("s", "s")),
    (("latency",), Unit("s", "s")),
    (("percent",), Unit("%", "percent")),
)
"""Units by successive words in the name of a column. The first match decides."""


def unit_of(column: str) -> Unit:
    """Return the unit of a value column; NUMBER for other names.

    >>> [unit_of(name).symbol for name in ("bytes_from_a", "bits_per_second", "p95_ms", "packets", "srcPortBits")]
    ['B', 'bit/s', 'ms', '', 'bit']
    """
    words = tuple(prometheus_name(column).split("_"))
    for sequence, unit in UNITS:
        if any(words[position : position + len(sequence)] == sequence for position in range(len(words))):
            return unit
    return NUMBER
