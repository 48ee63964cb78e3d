"""Reference implementation of aggregates over all values of a group."""

import math
from collections import Counter
from fractions import Fraction
from ipaddress import ip_address
from typing import Any

from highlevel.aggregation import DetailFunction


def twin(function: DetailFunction, parameter: float, values: list[Any]) -> Any:
    """Return the result of a function for the non-NULL values of one group."""
    if function is DetailFunction.COUNT_DISTINCT:
        return len(set(values))
    if not values:
        return None
    order = sorted(values, key=lambda value: (isinstance(value, bytes) and len(value), value))
    counts = Counter(order)
    if function is DetailFunction.QUANTILE:
        at = Fraction(parameter * (len(order) - 1))
        low, high = order[math.floor(at)], order[math.ceil(at)]
        return float(low) if low == high else float(low + (high - low) * (at - math.floor(at)))
    frequent = sorted(counts, key=lambda value: (-counts[value], order.index(value)))
    if function in (DetailFunction.MIN, DetailFunction.MAX):
        return order[0 if function is DetailFunction.MIN else -1]
    if function is DetailFunction.MODE:
        return frequent[0]
    if function is DetailFunction.ENTROPY:
        return -sum(count / len(order) * math.log2(count / len(order)) for count in counts.values())
    return " ".join(f"{spelled(value)}={counts[value]}" for value in frequent[: int(parameter)])


def spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex(":") if len(value) == 6 else str(ip_address(value))
    return str(value)
