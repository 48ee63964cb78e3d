"""Kernels of the buffering aggregate: one scan over the buffer per window, one output row per group.

Tuples are stored in time order, with one array per value. Without groups each sub-aggregate is a loop over contiguous
numbers. With groups the kernel looks up the output row of each tuple's group.
"""

from __future__ import annotations

from capture.native import helper, kernel
from lowlevel.table.entries import MAX, MAX_FLOAT, MIN, MIN_FLOAT, SUM


@helper
def fold(values, values_float, begin, end, kind, out, out_float, at):  # type: ignore[no-untyped-def]
    """Aggregate the values `[begin, end)`, which are not empty, into `out[at]`."""
    if kind == SUM:
        total = values[begin]
        for position in range(begin + 1, end):
            total += values[position]
        out[at] = total
    elif kind == MIN:
        total = values[begin]
        for position in range(begin + 1, end):
            total = min(total, values[position])
        out[at] = total
    elif kind == MAX:
        total = values[begin]
        for position in range(begin + 1, end):
            total = max(total, values[position])
        out[at] = total
    else:
        found = values_float[begin]
        for position in range(begin + 1, end):
            value = values_float[position]
            if kind == MIN_FLOAT:
                found = min(found, value)
            elif kind == MAX_FLOAT:
                found = max(found, value)
            else:
                found += value
        out_float[at] = found


@helper
def fold_groups(  # type: ignore[no-untyped-def]
    group_ids, values, values_float, capacity, begin, end, ops, op_count, group_rows, base, wid, out, out_float, rows
):  # fmt: skip
    """Aggregate the tuples `[begin, end)` by group into `out`, from row `rows`. Return the number of rows in `out`.

    `group_rows[group] - base` is the output row of a group in this window. A negative difference is from an earlier
    window.
    """
    width = 2 + op_count
    first = rows
    for tuple_ in range(begin, end):
        group = group_ids[tuple_]
        row = group_rows[group] - base
        if row < first:
            row = rows
            rows += 1
            group_rows[group] = base + row
            out[row * width] = wid
            out[row * width + 1] = group
            for op in range(op_count):
                out[row * width + 2 + op] = values[op * capacity + tuple_]
            continue
        for op in range(op_count):
            kind = ops[op]
            at = row * width + 2 + op
            value = values[op * capacity + tuple_]
            real = values_float[op * capacity + tuple_]
            if kind == SUM:
                out[at] += value
            elif kind == MIN:
                out[at] = min(out[at], value)
            elif kind == MAX:
                out[at] = max(out[at], value)
            elif kind == MIN_FLOAT:
                out_float[at] = min(out_float[at], real)
            elif kind == MAX_FLOAT:
                out_float[at] = max(out_float[at], real)
            else:
                out_float[at] += real
    return rows


@kernel(
    "i64(i64*, i64*, i64*, f64*, i64, i64, i64, i64, i64, i64, i64, i64*, i64, i64, i64*, i64, i64*, f64*, i64, i64*)"
)
def scan_windows(  # type: ignore[no-untyped-def]
    times, group_ids, values, values_float, capacity, tail, origin, length, slide, low, grouped, ops, op_count,
    group_count, group_rows, base, out, out_float, out_capacity, state,
):  # fmt: skip
    """Write rows (wid, group, values…) of the windows `[state[0], low)`. Return their number.

    `times[:tail]` are in rising order. `state` contains the next window, the index of its first possible tuple, and the
    number of scanned tuples. The kernel returns before a window that may have more rows than `out` has room for.
    """
    rows = 0
    begin = state[1]
    end = begin
    width = 2 + op_count
    wid = state[0]
    while wid < low and begin < tail:
        stop = origin + (wid + 1) * slide
        start = stop - length
        while begin < tail and times[begin] < start:
            begin += 1
        end = max(end, begin)
        while end < tail and times[end] < stop:
            end += 1
        if begin == end:
            if begin < tail:
                wid = max(wid + 1, min(low, (times[begin] - origin) // slide))  # skip the windows of a gap
            continue
        if rows + min(group_count, end - begin) > out_capacity:
            break
        state[2] += end - begin
        if grouped:
            rows = fold_groups(
                group_ids, values, values_float, capacity, begin, end, ops, op_count, group_rows, base, wid, out,
                out_float, rows,
            )  # fmt: skip
        else:
            out[rows * width] = wid
            out[rows * width + 1] = 0
            for op in range(op_count):
                at = rows * width + 2 + op
                fold(values, values_float, op * capacity + begin, op * capacity + end, ops[op], out, out_float, at)
            rows += 1
        wid += 1
    if begin == tail:
        wid = max(wid, low)
    state[0] = wid
    state[1] = begin
    return rows
