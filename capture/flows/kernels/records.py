"""The records of one set to rows: by columns where all records are equally long, by records where they are not.

What is done with the fields of a template is a list of steps (`capture.flows.steps`), STEP words each: the code,
the field's offset in a record of fixed length, its length, the first row it is written to, the field's place in the
template (for records of variable length), how far into the field to begin, and the limit or the kind of sampling key.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be, u64be
from capture.flows.kernels.sessions import (
    DEFAULT_DEN,
    DEFAULT_NUM,
    ELSE_DEN,
    ELSE_NUM,
    FORCED_NUM,
    GUESSED,
    INIT,
    KEY_KINDS,
    KEYS,
    KEYS_END,
)
from capture.flows.kernels.values import (
    ABSENT,
    ABSENT_ADDRESS,
    ADDRESS4,
    ADDRESS6,
    ADDRESS6_ELSE,
    END,
    LASTS,
    LATEST,
    LATEST_MS,
    MILLISECONDS,
    MISSING,
    RATE,
    RATE_DEN,
    RATE_KEY,
    RATE_NUM,
    SINCE,
    START,
    UNREADABLE,
    UNSIGNED,
    UPTIME,
    unsigned,
    uptime_time,
    write_address,
    write_rate,
    write_value,
)
from capture.native import helper, outlined

STEP = 7
"""Words of a step."""

VARIABLE_LENGTH = 65535
"""Length in a template of a field that says its length itself."""

TIMES_OPEN, SAMPLED = 1, 2
"""Flags of a layout: its records may lack a start or an end; the rates by which they are sampled are wanted."""

KEY = 4
"""Words of a sampling key: its kind, the number, and the packets that stand for so many sampled."""


@outlined
def write_key_rate(sessions, session_row, keys, kind, value, row, out, capacity):  # type: ignore[no-untyped-def]
    """How a record is sampled that names its sampler, selector or interface, where the session announced some."""
    if not sessions[session_row + KEY_KINDS] >> kind & 1:
        return
    num = sessions[session_row + ELSE_NUM]
    den = sessions[session_row + ELSE_DEN]
    for index in range(sessions[session_row + KEYS], sessions[session_row + KEYS_END]):
        if keys[index * KEY] == kind and keys[index * KEY + 1] == value:
            num = keys[index * KEY + 2]
            den = keys[index * KEY + 3]
    out[RATE_NUM * capacity + row] = num
    out[RATE_DEN * capacity + row] = den


@outlined
def write_field(  # type: ignore[no-untyped-def]
    buf, at, length, code, limit, dest, row, sessions, session_row, keys, uptime, export, out, valid, capacity, slots,
    ends, arena, used, counts
):  # fmt: skip
    """One step of one record, whatever its code: the slow path."""
    place = dest * capacity + row
    if code in (ADDRESS4, ADDRESS6, ADDRESS6_ELSE, ABSENT_ADDRESS):
        write_address(buf, at, length, code, place, out, valid, capacity, counts)
    elif code == RATE_KEY:
        if 0 < length <= 8:
            write_key_rate(sessions, session_row, keys, limit, unsigned(buf, at, length), row, out, capacity)
    elif code >= RATE:
        write_rate(unsigned(buf, at, length) if 0 < length <= 8 else np.int64(-1), code, row, out, capacity)
    else:
        write_value(
            buf, at, length, code, limit, place, row, out, valid, capacity, uptime, export, slots, ends, arena, used,
            counts,
        )  # fmt: skip


@helper
def write_column(  # type: ignore[no-untyped-def]
    buf, at, stride, length, code, limit, dest, row, rows, sessions, session_row, keys, uptime, export, out, valid,
    capacity, slots, ends, arena, used, counts
):  # fmt: skip
    """One step of `rows` records that are `stride` bytes apart, the field of the first at `at`.

    The commonest codes have loops of their own, which nothing has to be asked in.
    """
    place = dest * capacity + row
    if code == UNSIGNED and length <= 8 and not 0 < limit < 8 * length and length:
        if length == 4:
            for index in range(rows):
                out[place + index] = u32be(buf, at + index * stride)
        elif length == 2:
            for index in range(rows):
                out[place + index] = u16be(buf, at + index * stride)
        elif length == 1:
            for index in range(rows):
                out[place + index] = np.int64(buf[at + index * stride])
        elif length == 8:
            for index in range(rows):
                out[place + index] = np.int64(u64be(buf, at + index * stride))
        else:
            for index in range(rows):
                out[place + index] = unsigned(buf, at + index * stride, length)
        for index in range(rows):
            valid[place + index] = 1
    elif code == ADDRESS4 and length == 4:
        for index in range(rows):
            out[place + 2 * capacity + index] = u32be(buf, at + index * stride)
        for index in range(rows):
            out[place + index] = 4
            out[place + capacity + index] = 0
            valid[place + index] = 1
    elif code == UPTIME and length == 4:
        now = export // 1_000_000
        rest = export % 1_000_000
        for index in range(rows):
            out[place + index] = uptime_time(u32be(buf, at + index * stride), uptime, now) + rest
            valid[place + index] = 1
    elif code == MILLISECONDS and length == 8:
        for index in range(rows):
            value = np.int64(u64be(buf, at + index * stride))
            known = 0 <= value <= LATEST_MS
            counts[UNREADABLE] += 0 if known else 1
            out[place + index] = value * 1_000_000 if known else np.int64(MISSING)
            valid[place + index] = 1 if known else 0
    elif code == ABSENT:
        for index in range(rows):
            out[place + index] = MISSING
            valid[place + index] = 0
    else:
        for index in range(rows):
            write_field(
                buf, at + index * stride, length, code, limit, dest, row + index, sessions, session_row, keys, uptime,
                export, out, valid, capacity, slots, ends, arena, used, counts,
            )  # fmt: skip


@outlined
def prepare_rows(sessions, session_row, flags, row, rows, out, capacity):  # type: ignore[no-untyped-def]
    """What the session says of the rows before their records do: how they are sampled, when it was started."""
    if flags & SAMPLED:
        num = sessions[session_row + FORCED_NUM] or sessions[session_row + DEFAULT_NUM]
        den = np.int64(1) if sessions[session_row + FORCED_NUM] else sessions[session_row + DEFAULT_DEN]
        for index in range(row, row + rows):
            out[RATE_NUM * capacity + index] = num
            out[RATE_DEN * capacity + index] = den
    if flags & TIMES_OPEN:
        since = sessions[session_row + INIT]
        for index in range(row, row + rows):
            out[SINCE * capacity + index] = since


@outlined
def settle_times(sessions, session_row, export, row, rows, out, capacity):  # type: ignore[no-untyped-def]
    """Start and end of each row, from what there is of start, end and duration; else the time of the export."""
    guessed = 0
    for index in range(row, row + rows):
        start = out[START * capacity + index]
        end = out[END * capacity + index]
        lasts = out[LASTS * capacity + index]
        if start == MISSING or end == MISSING:
            if lasts != MISSING and start > LATEST - lasts:
                lasts = np.int64(MISSING)  # no such end can be said
            if end == MISSING:
                if start == MISSING:
                    end = export
                    guessed += 1
                elif lasts == MISSING:
                    end = start
                    guessed += 1
                else:
                    end = start + lasts
            elif lasts == MISSING:
                guessed += 1
            if start == MISSING:
                start = end if lasts == MISSING else end - lasts
            out[START * capacity + index] = start
            out[END * capacity + index] = end
    sessions[session_row + GUESSED] += guessed


@outlined
def settle_rates(row, rows, out, capacity):  # type: ignore[no-untyped-def]
    """Where nothing is known a rate is 0 packets of 1."""
    for index in range(row, row + rows):
        if out[RATE_NUM * capacity + index] <= 0 or out[RATE_DEN * capacity + index] <= 0:
            out[RATE_NUM * capacity + index] = 0
            out[RATE_DEN * capacity + index] = 1


@outlined
def write_fixed(  # type: ignore[no-untyped-def]
    buf, at, stride, rows, steps, step, steps_end, sessions, session_row, keys, uptime, export, row, out, valid,
    capacity, slots, ends, arena, used, counts
):  # fmt: skip
    """Write `rows` records of `stride` bytes from `buf[at:]`, a column at a time."""
    forced = sessions[session_row + FORCED_NUM]
    kinds = sessions[session_row + KEY_KINDS]
    while step < steps_end:
        code = steps[step * STEP]
        if code < RATE or not (forced or (code == RATE_KEY and not kinds >> steps[step * STEP + 6] & 1)):
            write_column(
                buf, at + steps[step * STEP + 1] + steps[step * STEP + 5], stride, steps[step * STEP + 2], code,
                steps[step * STEP + 6], steps[step * STEP + 3], row, rows, sessions, session_row, keys, uptime,
                export, out, valid, capacity, slots, ends, arena, used, counts,
            )  # fmt: skip
        step += 1


@outlined
def record_end(buf, at, end, fields, first, count, places):  # type: ignore[no-untyped-def]
    """Where the record at `at` ends, or -1 where that is behind `end`; `fields[first:]` are `count` lengths.

    `places` (2 x count) takes each field's offset in `buf` and its length.
    """
    for index in range(count):
        length = fields[first + index]
        if length == VARIABLE_LENGTH:
            if at + 1 > end:
                return np.int64(-1)
            length = np.int64(buf[at])
            at += 1
            if length == 255:
                if at + 2 > end:
                    return np.int64(-1)
                length = u16be(buf, at)
                at += 2
        if at + length > end:
            return np.int64(-1)
        places[2 * index] = at
        places[2 * index + 1] = length
        at += length
    return np.int64(at)


@outlined
def write_variable(  # type: ignore[no-untyped-def]
    buf, places, steps, step, steps_end, sessions, session_row, keys, uptime, export, row, out, valid, capacity, slots,
    ends, arena, used, counts
):  # fmt: skip
    """Write one record whose fields are at `places`."""
    forced = sessions[session_row + FORCED_NUM]
    while step < steps_end:
        code = steps[step * STEP]
        field = steps[step * STEP + 4]
        inside = steps[step * STEP + 5]
        length = np.int64(0)
        at = np.int64(0)
        if field >= 0:
            at = places[2 * field] + inside
            length = places[2 * field + 1] - inside
            if inside or steps[step * STEP + 2] != VARIABLE_LENGTH:
                length = min(length, steps[step * STEP + 2])
        if not (forced and code >= RATE):
            write_field(
                buf, at, max(length, 0), code, steps[step * STEP + 6], steps[step * STEP + 3], row, sessions,
                session_row, keys, uptime, export, out, valid, capacity, slots, ends, arena, used, counts,
            )  # fmt: skip
        step += 1
