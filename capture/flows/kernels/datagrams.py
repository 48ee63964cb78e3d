"""Decode export datagrams of all versions into rows, in arrival order.

The kernel handles headers, sequence numbers, and sets of flow records with a known template. It returns at a datagram
of a new sender, at a set of templates or options, and at a set of records with an unknown template. The next call
continues after that set. So each set is decoded with the templates that were known when it arrived.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.bytes import u16be
from capture.flows.kernels.headers import header_clock, header_length, record_length
from capture.flows.kernels.records import (
    NEEDS_RATES,
    NEEDS_TIMES,
    clear_unknown_rates,
    fill_missing_times,
    prepare_rows,
    record_end,
    write_fixed,
    write_variable,
)
from capture.flows.kernels.sequence import NUMBER_COUNT, OUT_OF_ORDER, fill_gaps, follow_sequence
from capture.flows.kernels.sessions import (
    ADDRESS_VERSION,
    DATAGRAMS,
    DEFAULT_DEN,
    DEFAULT_NUM,
    DOMAIN,
    EXPECTED_NUMBER,
    HIGH,
    IS_EXPECTED_KNOWN,
    LAST_USE,
    LOW,
    PORT,
    RECORDS,
    RECOVERED,
    SESSION_WORDS,
    UNREADABLE,
    VERSION,
    lookup_session,
    lookup_template,
)
from capture.flows.kernels.texts import TextTable, texts_have_room
from capture.flows.kernels.values import FlowRows, Sender
from capture.native import Integer, Integers, kernel, outlined

(JOB_START, JOB_LENGTH, JOB_ARRIVAL, JOB_ADDRESS_VERSION, JOB_HIGH, JOB_LOW, JOB_PORT) = range(7)
"""Rows of the datagram table: offset and length in the buffer, arrival time in ns, address and port of the sender."""

JOB_ROWS = 7
"""Number of rows of the datagram table."""

(
    STATE_DATAGRAM,
    STATE_OFFSET,
    STATE_SET,
    STATE_ROW,
    STATE_SESSION,
    STATE_RECORDS,
    STATE_UNCOUNTED,
    STATE_ORDER,
    STATE_CLOCK,
    STATE_PAUSE,
) = range(10)
"""Words of the state, in which the kernel stores its position between two calls.

STATE_DATAGRAM: next datagram. STATE_OFFSET: offset of the next set or record in it, -1 before its header. STATE_SET:
offset of the set that is being read, or -1. STATE_ROW: rows written. STATE_SESSION: session of the datagram.
STATE_RECORDS: its records so far. STATE_UNCOUNTED: 1 if it has further records that cannot be counted. STATE_ORDER:
OUT_OF_ORDER for a late datagram. STATE_CLOCK: number of all datagrams so far, the clock of LAST_USE. STATE_PAUSE: 1 to
return after this datagram.
"""

STATE_WORDS = 10
"""Number of words of the state."""

(LAYOUT_LENGTH, LAYOUT_FIXED, LAYOUT_STEP, LAYOUT_STEPS_END, LAYOUT_FIELD, LAYOUT_FIELDS, LAYOUT_FLAGS) = range(7)
"""Words of a layout, the compiled form of a template.

LENGTH: length of the shortest record. FIXED: 1 if all records have this length. STEP, STEPS_END: range of the layout's
steps. FIELD, FIELDS: offset and number of its field lengths. FLAGS: flags of kernels.records.
"""

LAYOUT_WORDS = 7
"""Number of words of a layout."""

(COMMON_EXPORTER, COMMON_PORT, COMMON_DOMAIN, COMMON_VERSION, COMMON_EXPORT, COMMON_ARRIVAL) = range(6)
"""Words with the matrix rows of the columns that have the same value in all rows of a set: their values are in the
header of the datagram or in its sender. A word is -1 if the column is not requested."""

COMMON_WORDS = 6
"""Number of words with matrix rows of common columns."""

DONE, ROWS_FULL, TEXTS_FULL, NEW_SESSION, TEMPLATE_SET, UNKNOWN_TEMPLATE, PAUSED = range(7)
"""Reasons for which the kernel returns. For TEMPLATE_SET and UNKNOWN_TEMPLATE, `state[STATE_SET]` is the offset of the
set and `state[STATE_OFFSET]` the offset after the set. The caller handles the set and writes -1 to `state[STATE_SET]`.
The next call then continues after the set."""

LAYOUT_V5, LAYOUT_V7 = 0, 1
"""Indices of the layouts that need no template."""

COUNTER_NAMES = (
    "field_unreadable", "header_cut", "version_unknown", "count_beyond_datagram", "length_beyond_datagram",
    "set_malformed", "set_reserved", "record_beyond_set",
)  # fmt: skip
"""Counters of the kernel outside of sessions: unreadable fields, and errors of datagrams.

* header_cut: the header is truncated.
* version_unknown: unsupported version.
* count_beyond_datagram, length_beyond_datagram: the header announces more records or bytes than the datagram has.
* set_malformed: a set is shorter than its header, or ends after the datagram. The datagram is not read further.
* set_reserved: reserved set ID.
* record_beyond_set: a record of variable length exceeds its set.
"""

(_, HEADER_CUT, VERSION_UNKNOWN, COUNT_BEYOND, LENGTH_BEYOND, SET_MALFORMED, SET_RESERVED, RECORD_BEYOND) = range(8)


class DatagramTable(NamedTuple):
    """Datagrams to decode, for kernels: JOB_ROWS rows of `stride` words for the `datagram_count` datagrams.

    All datagrams are completely inside the buffer.
    """

    table: Integers
    stride: Integer
    datagram_count: Integer


class SessionTable(NamedTuple):
    """The sessions and their hash table (see `kernels.sessions`), for kernels."""

    rows: Integers
    slots: Integers
    mask: Integer


class Layouts(NamedTuple):
    """The layouts of templates, for kernels: LAYOUT_WORDS `words` each, which point into `steps` and `fields`.

    `template_slots`, `template_mask`: the hash table of templates (see `kernels.sessions`).
    """

    template_slots: Integers
    template_mask: Integer
    words: Integers
    steps: Integers
    fields: Integers


@outlined
def close_datagram(sessions, session_row, version, sequence_number, state):  # type: ignore[no-untyped-def]
    """Update the sequence number that the session expects after a datagram with `sequence_number`."""
    units = np.int64(1) if version == 9 else state[STATE_RECORDS]
    if state[STATE_ORDER] == OUT_OF_ORDER:
        sessions[session_row + RECOVERED] += fill_gaps(sessions, session_row, sequence_number, units)
    else:
        sessions[session_row + EXPECTED_NUMBER] = (sequence_number + units) & (NUMBER_COUNT - 1)
        sessions[session_row + IS_EXPECTED_KNOWN] = 0 if state[STATE_UNCOUNTED] and version != 9 else 1


@outlined
def write_common(sender: Sender, common, arrival, row, rows, output: FlowRows):  # type: ignore[no-untyped-def]
    """Write the columns that have the same value in all rows of a set."""
    dest = common[COMMON_EXPORTER]
    if dest >= 0:
        address_version = sender.sessions[sender.session_row + ADDRESS_VERSION]
        for index in range(row, row + rows):
            output.values[dest * output.capacity + index] = address_version
            output.values[(dest + 1) * output.capacity + index] = sender.sessions[sender.session_row + HIGH]
            output.values[(dest + 2) * output.capacity + index] = sender.sessions[sender.session_row + LOW]
            output.valid[dest * output.capacity + index] = 1 if address_version else 0
    dest = common[COMMON_PORT]
    has_address = sender.sessions[sender.session_row + ADDRESS_VERSION] != 0
    if dest >= 0:
        for index in range(row, row + rows):
            output.values[dest * output.capacity + index] = sender.sessions[sender.session_row + PORT]
            output.valid[dest * output.capacity + index] = 1 if has_address else 0
    for word in range(COMMON_DOMAIN, COMMON_WORDS):
        dest = common[word]
        if dest >= 0:
            value = sender.sessions[sender.session_row + DOMAIN]
            if word == COMMON_VERSION:
                value = sender.sessions[sender.session_row + VERSION]
            elif word == COMMON_EXPORT:
                value = sender.export_time
            elif word == COMMON_ARRIVAL:
                value = arrival
            for index in range(row, row + rows):
                output.values[dest * output.capacity + index] = value
                output.valid[dest * output.capacity + index] = 1


@kernel("i64(u8*, DatagramTable, i64, i64*, SessionTable, Layouts, i64*, i64*, i64*, i64, TextTable, FlowRows)")
def decode_datagrams(  # type: ignore[no-untyped-def]
    buf, datagrams: DatagramTable, is_retry, state, sessions: SessionTable, layouts: Layouts, keys, field_positions,
    common, has_texts, texts: TextTable, output: FlowRows,
):  # fmt: skip
    """Decode datagrams of `buf`, from the position in `state`. Return the reason for the return (DONE, ...).

    * `is_retry`: 1 if the datagrams are sets that waited for their template. Then only their records are counted.
    * `state`: STATE_WORDS words.
    * `keys`: sampling keys, KEY_WORDS words each.
    * `field_positions`: scratch space, two words per field of the longest template.
    * `common`: COMMON_WORDS words. `has_texts`: 1 if there are text columns.
    """
    stride = datagrams.stride
    while state[STATE_DATAGRAM] < datagrams.datagram_count:
        job = state[STATE_DATAGRAM]
        start = datagrams.table[JOB_START * stride + job]
        length = datagrams.table[JOB_LENGTH * stride + job]
        arrival = datagrams.table[JOB_ARRIVAL * stride + job]
        version = u16be(buf, start) if length >= 2 else np.int64(0)
        header = header_length(version)
        if header == 0 or length < header:
            output.counts[HEADER_CUT if header or length < 2 else VERSION_UNKNOWN] += 1
            state[STATE_DATAGRAM] = job + 1
            continue
        uptime, export_time, sequence_number, domain = header_clock(buf, start, version)
        end = start + length
        beyond = 0
        if version in (5, 7):
            record = record_length(version)
            announced = u16be(buf, start + 2)
            if header + announced * record > length:
                beyond = COUNT_BEYOND
                announced = (length - header) // record
            end = start + header + announced * record
        elif version == 10:
            announced = u16be(buf, start + 2)
            if announced > length:
                beyond = LENGTH_BEYOND
            elif announced < header:
                output.counts[HEADER_CUT] += 1
                state[STATE_DATAGRAM] = job + 1
                continue
            else:
                end = start + announced
        if state[STATE_OFFSET] < 0:
            address = JOB_ADDRESS_VERSION * stride + job
            session = lookup_session(
                sessions.rows, sessions.slots, sessions.mask, version, datagrams.table[address],
                datagrams.table[JOB_HIGH * stride + job], datagrams.table[JOB_LOW * stride + job],
                datagrams.table[JOB_PORT * stride + job], domain,
            )  # fmt: skip
            if session < 0:
                return NEW_SESSION
            session_row = session * SESSION_WORDS
            state[STATE_SESSION] = session
            state[STATE_OFFSET] = start + header
            state[STATE_SET] = -1
            state[STATE_RECORDS] = 0
            state[STATE_UNCOUNTED] = 1 if beyond else 0
            state[STATE_ORDER] = OUT_OF_ORDER
            if not is_retry:
                state[STATE_CLOCK] += 1
                sessions.rows[session_row + LAST_USE] = state[STATE_CLOCK]
                sessions.rows[session_row + DATAGRAMS] += 1
                state[STATE_ORDER] = follow_sequence(
                    sessions.rows, session_row, version, sequence_number, uptime, export_time
                )
                if beyond:
                    output.counts[beyond] += 1
            if version == 5:
                sessions.rows[session_row + DEFAULT_NUM] = u16be(buf, start + 22) & 0x3FFF
                sessions.rows[session_row + DEFAULT_DEN] = 1
        session_row = state[STATE_SESSION] * SESSION_WORDS
        sender = Sender(sessions.rows, session_row, keys, uptime, export_time)
        while True:
            offset = state[STATE_OFFSET]
            if version in (5, 7):
                layout = np.int64(LAYOUT_V5 if version == 5 else LAYOUT_V7)
                set_end = end
                if offset >= end:
                    break
            else:
                if state[STATE_SET] < 0:
                    if offset + 4 > end:
                        break
                    kind = u16be(buf, offset)
                    size = u16be(buf, offset + 2)
                    if kind == 0 and size == 0:
                        break  # padding up to the end
                    if size < 4 or offset + size > end:
                        output.counts[SET_MALFORMED] += 1
                        state[STATE_UNCOUNTED] = 1
                        break
                    if kind < 256:
                        state[STATE_OFFSET] = offset + size
                        known = kind in (2, 3) if version == 10 else kind in (0, 1)
                        if known:
                            state[STATE_SET] = offset
                            return TEMPLATE_SET
                        output.counts[SET_RESERVED] += 1
                        continue
                    state[STATE_SET] = offset
                    offset += 4
                set_end = state[STATE_SET] + u16be(buf, state[STATE_SET] + 2)
                layout = lookup_template(
                    layouts.template_slots, layouts.template_mask, state[STATE_SESSION], u16be(buf, state[STATE_SET])
                )
                if layout < 0:
                    state[STATE_OFFSET] = set_end
                    return UNKNOWN_TEMPLATE
                state[STATE_OFFSET] = offset
            layout *= LAYOUT_WORDS
            shortest = layouts.words[layout + LAYOUT_LENGTH]
            row = state[STATE_ROW]
            step = layouts.words[layout + LAYOUT_STEP]
            steps_end = layouts.words[layout + LAYOUT_STEPS_END]
            flags = layouts.words[layout + LAYOUT_FLAGS]
            if offset + shortest <= set_end:
                if row >= output.capacity:
                    return ROWS_FULL
                if has_texts and not texts_have_room(texts):
                    return TEXTS_FULL
            rows = np.int64(0)
            unreadable = output.counts[0]
            if layouts.words[layout + LAYOUT_FIXED]:
                rows = min((set_end - offset) // shortest, output.capacity - row)
                if rows > 0:
                    prepare_rows(sender, flags, row, rows, output)
                    write_fixed(
                        buf, offset, shortest, rows, layouts.steps, step, steps_end, sender, texts, row, output
                    )  # fmt: skip
                offset += rows * shortest
                whole = offset + shortest > set_end
            else:
                whole = offset + shortest > set_end
                while row + rows < output.capacity:
                    following = np.int64(-1)
                    if offset + shortest <= set_end:
                        following = record_end(
                            buf, offset, set_end, layouts.fields, layouts.words[layout + LAYOUT_FIELD],
                            layouts.words[layout + LAYOUT_FIELDS], field_positions,
                        )  # fmt: skip
                        if following < 0:
                            output.counts[RECORD_BEYOND] += 1
                            state[STATE_UNCOUNTED] = 1
                    if following < 0:
                        whole = True
                        break
                    prepare_rows(sender, flags, row + rows, 1, output)
                    write_variable(
                        buf, field_positions, layouts.steps, step, steps_end, sender, texts, row + rows, output
                    )  # fmt: skip
                    offset = following
                    rows += 1
            if rows > 0:
                if flags & NEEDS_TIMES:
                    fill_missing_times(sender, row, rows, output)
                if flags & NEEDS_RATES:
                    clear_unknown_rates(row, rows, output)
                write_common(sender, common, arrival, row, rows, output)
            sessions.rows[session_row + RECORDS] += rows
            sessions.rows[session_row + UNREADABLE] += output.counts[0] - unreadable
            state[STATE_RECORDS] += rows
            state[STATE_ROW] = row + rows
            state[STATE_OFFSET] = offset
            if whole:
                if version in (5, 7):
                    break
                state[STATE_OFFSET] = set_end
                state[STATE_SET] = -1
        if not is_retry:
            close_datagram(sessions.rows, session_row, version, sequence_number, state)
        state[STATE_OFFSET] = -1
        state[STATE_DATAGRAM] = job + 1
        if state[STATE_PAUSE]:
            state[STATE_PAUSE] = 0
            return PAUSED
    return DONE
