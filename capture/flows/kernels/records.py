"""Decode the records of one set: column by column if all records have the same length, otherwise record by record.

A layout (`capture.flows.layouts`) is a list of steps, one per output field. The STEP_WORDS words of a step are:

0. the code, see `kernels.values`
1. the field's offset in a record of fixed length
2. the field's length
3. the first output column to write: value i of column c is `values[c * capacity + i]`
4. the field's index in the template, for records of variable length
5. the offset of the value inside the field
6. for the code RATE_KEY the kind of the sampling key (sampler, selector or interface), otherwise the largest number
   of bits of a value (0: no limit)
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be, u64be
from capture.flows.kernels.sessions import (
    DEFAULT_DEN,
    DEFAULT_NUM,
    FORCED_NUM,
    GUESSED_TIMES,
    INIT_TIME,
    KEY_KINDS,
    KEYS,
    KEYS_END,
    UNKNOWN_KEY_DEN,
    UNKNOWN_KEY_NUM,
)
from capture.flows.kernels.texts import TextTable
from capture.flows.kernels.values import (
    ABSENT,
    ABSENT_ADDRESS,
    ADDRESS4,
    ADDRESS6,
    ADDRESS6_ELSE,
    DURATION_ROW,
    END_ROW,
    EXPORTER_START_ROW,
    MAX_TIME_MS,
    MAX_TIME_NS,
    MILLISECONDS,
    MISSING_TIME,
    RATE,
    RATE_DENOMINATOR_ROW,
    RATE_KEY,
    RATE_NUMERATOR_ROW,
    START_ROW,
    UNREADABLE_INDEX,
    UNSIGNED,
    UPTIME,
    FlowRows,
    Sender,
    unsigned,
    uptime_time,
    write_address,
    write_rate,
    write_value,
)
from capture.native import helper, outlined

STEP_WORDS = 7
"""Number of words of a step."""

VARIABLE_LENGTH = 65535
"""Length that a template states for a field of variable length. Each record contains the real length."""

NEEDS_TIMES, NEEDS_RATES = 1, 2
"""Flags of a layout. NEEDS_TIMES: records may have no start or end time. NEEDS_RATES: the output contains the
sampling rate of each row."""

KEY_WORDS = 4
"""Number of words of a sampling key: its kind, the ID, and the sampling rate as numerator and denominator."""


@outlined
def write_key_rate(sender: Sender, kind, value, row, output: FlowRows):  # type: ignore[no-untyped-def]
    """Write the sampling rate that the exporter announced for a record's key (sampler, selector or interface).

    If the exporter has announced rates for other keys of this kind, but not for this key, write the session's rate for
    unknown keys.
    """
    if not sender.sessions[sender.session_row + KEY_KINDS] >> kind & 1:
        return
    num = sender.sessions[sender.session_row + UNKNOWN_KEY_NUM]
    den = sender.sessions[sender.session_row + UNKNOWN_KEY_DEN]
    for index in range(sender.sessions[sender.session_row + KEYS], sender.sessions[sender.session_row + KEYS_END]):
        if sender.keys[index * KEY_WORDS] == kind and sender.keys[index * KEY_WORDS + 1] == value:
            num = sender.keys[index * KEY_WORDS + 2]
            den = sender.keys[index * KEY_WORDS + 3]
    output.values[RATE_NUMERATOR_ROW * output.capacity + row] = num
    output.values[RATE_DENOMINATOR_ROW * output.capacity + row] = den


@outlined
def write_field(  # type: ignore[no-untyped-def]
    buf, offset, length, code, limit_or_kind, first_column, row, sender: Sender, texts: TextTable, output: FlowRows
):  # fmt: skip
    """Run one step for one record, for any code (slow path)."""
    target = first_column * output.capacity + row
    if code in (ADDRESS4, ADDRESS6, ADDRESS6_ELSE, ABSENT_ADDRESS):
        write_address(buf, offset, length, code, target, output)
    elif code == RATE_KEY:
        if 0 < length <= 8:
            write_key_rate(sender, limit_or_kind, unsigned(buf, offset, length), row, output)
    elif code >= RATE:
        write_rate(unsigned(buf, offset, length) if 0 < length <= 8 else np.int64(-1), code, row, output)
    else:
        write_value(buf, offset, length, code, limit_or_kind, target, row, sender, texts, output)


@helper
def write_column(  # type: ignore[no-untyped-def]
    buf, offset, stride, length, code, limit_or_kind, first_column, row, row_count, sender: Sender, texts: TextTable,
    output: FlowRows,
):  # fmt: skip
    """Run one step for `row_count` records that are `stride` bytes apart; the field of the first record is at `offset`.

    The most frequent codes have separate loops without tests inside.
    """
    target = first_column * output.capacity + row
    if code == UNSIGNED and length <= 8 and not 0 < limit_or_kind < 8 * length and length:
        if length == 4:
            for index in range(row_count):
                output.values[target + index] = u32be(buf, offset + index * stride)
        elif length == 2:
            for index in range(row_count):
                output.values[target + index] = u16be(buf, offset + index * stride)
        elif length == 1:
            for index in range(row_count):
                output.values[target + index] = np.int64(buf[offset + index * stride])
        elif length == 8:
            for index in range(row_count):
                output.values[target + index] = np.int64(u64be(buf, offset + index * stride))
        else:
            for index in range(row_count):
                output.values[target + index] = unsigned(buf, offset + index * stride, length)
        for index in range(row_count):
            output.valid[target + index] = 1
    elif code == ADDRESS4 and length == 4:
        for index in range(row_count):
            output.values[target + 2 * output.capacity + index] = u32be(buf, offset + index * stride)
        for index in range(row_count):
            output.values[target + index] = 4
            output.values[target + output.capacity + index] = 0
            output.valid[target + index] = 1
    elif code == UPTIME and length == 4:
        now = sender.export_time // 1_000_000
        rest = sender.export_time % 1_000_000
        for index in range(row_count):
            output.values[target + index] = uptime_time(u32be(buf, offset + index * stride), sender.uptime, now) + rest
            output.valid[target + index] = 1
    elif code == MILLISECONDS and length == 8:
        for index in range(row_count):
            value = np.int64(u64be(buf, offset + index * stride))
            known = 0 <= value <= MAX_TIME_MS
            output.counts[UNREADABLE_INDEX] += 0 if known else 1
            output.values[target + index] = value * 1_000_000 if known else np.int64(MISSING_TIME)
            output.valid[target + index] = 1 if known else 0
    elif code == ABSENT:
        for index in range(row_count):
            output.values[target + index] = MISSING_TIME
            output.valid[target + index] = 0
    else:
        for index in range(row_count):
            write_field(
                buf, offset + index * stride, length, code, limit_or_kind, first_column, row + index, sender, texts,
                output,
            )  # fmt: skip


@outlined
def prepare_rows(sender: Sender, flags, row, row_count, output: FlowRows):  # type: ignore[no-untyped-def]
    """Fill rows with the sampling rate and the start of their exporter.

    If records have fields with these values, the steps that run later overwrite them.
    """
    if flags & NEEDS_RATES:
        forced = sender.sessions[sender.session_row + FORCED_NUM]
        num = forced or sender.sessions[sender.session_row + DEFAULT_NUM]
        den = np.int64(1) if forced else sender.sessions[sender.session_row + DEFAULT_DEN]
        for index in range(row, row + row_count):
            output.values[RATE_NUMERATOR_ROW * output.capacity + index] = num
            output.values[RATE_DENOMINATOR_ROW * output.capacity + index] = den
    if flags & NEEDS_TIMES:
        since = sender.sessions[sender.session_row + INIT_TIME]
        for index in range(row, row + row_count):
            output.values[EXPORTER_START_ROW * output.capacity + index] = since


@outlined
def fill_missing_times(sender: Sender, row, row_count, output: FlowRows):  # type: ignore[no-untyped-def]
    """Compute a missing start or end time from the other time and the duration.

    If there is no duration, use the other time. If there is no other time, use the export time.
    """
    guessed = 0
    for index in range(row, row + row_count):
        start = output.values[START_ROW * output.capacity + index]
        end = output.values[END_ROW * output.capacity + index]
        duration = output.values[DURATION_ROW * output.capacity + index]
        if start == MISSING_TIME or end == MISSING_TIME:
            if duration != MISSING_TIME and start > MAX_TIME_NS - duration:
                duration = np.int64(MISSING_TIME)  # the end would overflow
            if end == MISSING_TIME:
                if start == MISSING_TIME:
                    end = sender.export_time
                    guessed += 1
                elif duration == MISSING_TIME:
                    end = start
                    guessed += 1
                else:
                    end = start + duration
            elif duration == MISSING_TIME:
                guessed += 1
            if start == MISSING_TIME:
                start = end if duration == MISSING_TIME else end - duration
            output.values[START_ROW * output.capacity + index] = start
            output.values[END_ROW * output.capacity + index] = end
    sender.sessions[sender.session_row + GUESSED_TIMES] += guessed


@outlined
def clear_unknown_rates(row, row_count, output: FlowRows):  # type: ignore[no-untyped-def]
    """Write the rate 0/1, which means unknown, to rows whose sampling rate is unknown."""
    for index in range(row, row + row_count):
        num = RATE_NUMERATOR_ROW * output.capacity + index
        den = RATE_DENOMINATOR_ROW * output.capacity + index
        if output.values[num] <= 0 or output.values[den] <= 0:
            output.values[num] = 0
            output.values[den] = 1


@outlined
def write_fixed(  # type: ignore[no-untyped-def]
    buf, offset, stride, row_count, steps, step, steps_end, sender: Sender, texts: TextTable, row, output: FlowRows
):  # fmt: skip
    """Write `row_count` records of `stride` bytes from `buf[offset:]`, column by column."""
    forced = sender.sessions[sender.session_row + FORCED_NUM]
    kinds = sender.sessions[sender.session_row + KEY_KINDS]
    while step < steps_end:
        code = steps[step * STEP_WORDS]
        if code < RATE or not (forced or (code == RATE_KEY and not kinds >> steps[step * STEP_WORDS + 6] & 1)):
            write_column(
                buf, offset + steps[step * STEP_WORDS + 1] + steps[step * STEP_WORDS + 5], stride,
                steps[step * STEP_WORDS + 2], code, steps[step * STEP_WORDS + 6], steps[step * STEP_WORDS + 3], row,
                row_count, sender, texts, output,
            )  # fmt: skip
        step += 1


@outlined
def record_end(buf, offset, end, field_lengths, first, count, field_positions):  # type: ignore[no-untyped-def]
    """Return the end of the record at `offset`, or -1 if it is beyond `end`.

    `field_lengths[first:first + count]`: the lengths of the template's fields. The offset in `buf` and the length of
    each field are written to `field_positions` (2 x count).
    """
    for index in range(count):
        length = field_lengths[first + index]
        if length == VARIABLE_LENGTH:
            if offset + 1 > end:
                return np.int64(-1)
            length = np.int64(buf[offset])
            offset += 1
            if length == 255:
                if offset + 2 > end:
                    return np.int64(-1)
                length = u16be(buf, offset)
                offset += 2
        if offset + length > end:
            return np.int64(-1)
        field_positions[2 * index] = offset
        field_positions[2 * index + 1] = length
        offset += length
    return np.int64(offset)


@outlined
def write_variable(  # type: ignore[no-untyped-def]
    buf, field_positions, steps, step, steps_end, sender: Sender, texts: TextTable, row, output: FlowRows
):  # fmt: skip
    """Write one record whose fields are listed in `field_positions`."""
    forced = sender.sessions[sender.session_row + FORCED_NUM]
    while step < steps_end:
        code = steps[step * STEP_WORDS]
        field = steps[step * STEP_WORDS + 4]
        inside = steps[step * STEP_WORDS + 5]
        length = np.int64(0)
        offset = np.int64(0)
        if field >= 0:
            offset = field_positions[2 * field] + inside
            length = field_positions[2 * field + 1] - inside
            if inside or steps[step * STEP_WORDS + 2] != VARIABLE_LENGTH:
                length = min(length, steps[step * STEP_WORDS + 2])
        if not (forced and code >= RATE):
            write_field(
                buf, offset, max(length, 0), code, steps[step * STEP_WORDS + 6], steps[step * STEP_WORDS + 3], row,
                sender, texts, output,
            )  # fmt: skip
        step += 1
