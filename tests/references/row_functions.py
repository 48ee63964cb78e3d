"""Window functions of SQL by their definition, row by row: the reference implementation of `Over`."""

from __future__ import annotations

from collections.abc import Sequence

from highlevel.plan.answer_nodes import RowFunction, RowFunctionKind, SortKey

NAMES = ["ts", "other", "g", "n"]
"""The columns of the rows."""


def function_values(function: RowFunction, rows: Sequence[tuple]) -> list:
    """The definition, row by row: rows of the partition, in order, and the value that the function makes of them."""
    partition = dict.fromkeys(function.partition)
    order = tuple(key for key in function.order if key.column not in partition)
    groups: dict[tuple, list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(tuple(row[NAMES.index(name)] for name in partition), []).append(number)
    results: list = [None] * len(rows)
    for members in groups.values():
        keys = (*order, *(SortKey(name) for name in NAMES if name not in {*partition, *(k.column for k in order)}))
        ordered = _sorted_numbers(rows, members, keys)
        peer_key = [tuple(rows[number][NAMES.index(key.column)] for key in order) for number in ordered]
        for position, number in enumerate(ordered):
            first_peer = peer_key.index(peer_key[position])
            end = len(ordered) - peer_key[::-1].index(peer_key[position])
            bounds = first_peer, end, len(set(peer_key[:end]))
            peers = (first_peer, end)
            frame = [at for at in range(len(ordered)) if _in_frame(function, peer_key, peers, position, at)]
            results[number] = _function_value(function, rows, ordered, position, bounds, frame)
    return results


def _in_frame(function: RowFunction, keys: list[tuple], peers: tuple[int, int], position: int, index: int) -> bool:
    """Return whether the row `index` of the sorted partition is in the frame of the row `position`."""
    frame = function.frame
    if not frame.by_values:
        return (frame.first is None or index >= position + frame.first) and (
            frame.last is None or index <= position + frame.last
        )

    def distance_of(at: int) -> float:
        """The distance of a row's key from the current row's, in the direction of the order."""
        (key,) = function.order
        other, current = keys[at][0], keys[position][0]
        return current - other if key.descending else other - current

    def is_bounded(bound: float | None, is_after_peers: bool, is_before_peers: bool, at_least: bool) -> bool:
        if bound is None:
            return True
        if bound == 0 or keys[position][0] is None:  # the peers
            return not (is_before_peers if at_least else is_after_peers)
        if keys[index][0] is None:  # outside of the interval of values, on the side of the NULLs
            return function.order[0].nulls_first != at_least
        return distance_of(index) >= bound if at_least else distance_of(index) <= bound

    is_before, is_after = index < peers[0], index >= peers[1]
    return is_bounded(frame.first, is_after, is_before, True) and is_bounded(frame.last, is_after, is_before, False)


def _sorted_numbers(rows: Sequence[tuple], members: list[int], keys: Sequence[SortKey]) -> list[int]:
    ordered = list(members)
    for key in reversed(keys):
        place = NAMES.index(key.column)
        nulls = [number for number in ordered if rows[number][place] is None]
        values = [number for number in ordered if rows[number][place] is not None]
        values.sort(key=lambda number: rows[number][place], reverse=False)
        if key.descending:  # stable: equal values keep their order
            values = [number for _, group in _grouped_descending(rows, values, place) for number in group]
        ordered = nulls + values if key.nulls_first else values + nulls
    return ordered


def _grouped_descending(rows: Sequence[tuple], numbers: list[int], place: int) -> list[tuple[object, list[int]]]:
    groups: dict[object, list[int]] = {}
    for number in numbers:
        groups.setdefault(rows[number][place], []).append(number)
    return list(reversed(groups.items()))


def _function_value(
    function: RowFunction,
    rows: Sequence[tuple],
    ordered: list[int],
    position: int,
    bounds: tuple[int, int, int],
    framed: list[int],
) -> object:
    first_peer, end, peers = bounds
    place = None if function.argument is None else NAMES.index(function.argument)

    def value_at(index: int) -> object:
        return rows[ordered[index]][place] if 0 <= index < len(ordered) and place is not None else None

    frame = [value_at(index) for index in framed if place is None or value_at(index) is not None]
    numbers = [value for value in frame if isinstance(value, int)]
    match function.kind:
        case RowFunctionKind.ROW_NUMBER:
            return position + 1
        case RowFunctionKind.RANK:
            return first_peer + 1
        case RowFunctionKind.DENSE_RANK:
            return peers
        case RowFunctionKind.PERCENT_RANK:
            return first_peer / (len(ordered) - 1) if len(ordered) > 1 else 0.0
        case RowFunctionKind.CUME_DIST:
            return end / len(ordered)
        case RowFunctionKind.LAG:
            return value_at(position - function.distance)
        case RowFunctionKind.LEAD:
            return value_at(position + function.distance)
        case RowFunctionKind.FIRST_VALUE:
            return value_at(framed[0]) if framed else None
        case RowFunctionKind.LAST_VALUE:
            return value_at(framed[-1]) if framed else None
        case RowFunctionKind.COUNT:
            return len(frame)
        case RowFunctionKind.SUM:
            return sum(numbers) if numbers else None
        case RowFunctionKind.AVG:
            return sum(numbers) / len(numbers) if numbers else None
        case RowFunctionKind.MIN:
            return min(numbers, default=None)
        case RowFunctionKind.MAX:
            return max(numbers, default=None)
