"""Datagrams of all versions to rows, in the order in which they came.

The kernel does what there is much of: headers, sequence numbers, and sets of flow records whose template is known.
Whatever changes what follows (a template, options, a sender not met before) and every set whose template it does not
know it hands back, and goes on behind it when it is called again: a set is read by what was known when it came.

    NetFlow v5, v7   a header of 24 bytes with the number of records, records of 48 and 52 bytes
    NetFlow v9       a header of 20 bytes, sets to the end of the datagram (RFC 3954)
    IPFIX            a header of 16 bytes with the length of the message, sets (RFC 7011)
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be
from capture.flows.kernels.records import (
    SAMPLED,
    TIMES_OPEN,
    prepare_rows,
    record_end,
    settle_rates,
    settle_times,
    write_fixed,
    write_variable,
)
from capture.flows.kernels.sequence import BEHIND, WRAP, fill_gaps, follow_sequence
from capture.flows.kernels.sessions import (
    ADDRESS_VERSION,
    DATAGRAMS,
    DEFAULT_DEN,
    DEFAULT_NUM,
    DOMAIN,
    EXPECTED,
    HIGH,
    LOW,
    PORT,
    RECORDS,
    RECOVERED,
    STARTED,
    UNREADABLE,
    USED,
    VERSION,
    WIDTH,
    lookup_session,
    lookup_template,
)
from capture.flows.kernels.texts import texts_have_room
from capture.native import helper, kernel, outlined


@helper
def header_length(version):  # type: ignore[no-untyped-def]
    """Bytes of a version's header, or 0 for a version that is not read."""
    if version in (5, 7):
        return 24
    if version == 9:
        return 20
    return 16 if version == 10 else 0


@helper
def record_length(version):  # type: ignore[no-untyped-def]
    """Bytes of a record of NetFlow v5 or v7."""
    return 48 if version == 5 else 52


@helper
def header_clock(buf, at, version):  # type: ignore[no-untyped-def]
    """Read uptime (ms), time of the export (ns), sequence number and domain of the header at `at`."""
    if version == 10:
        return np.int64(0), u32be(buf, at + 4) * 1_000_000_000, u32be(buf, at + 8), u32be(buf, at + 12)
    uptime = u32be(buf, at + 4)
    export = u32be(buf, at + 8) * 1_000_000_000
    if version == 9:
        return uptime, export, u32be(buf, at + 12), u32be(buf, at + 16)
    domain = u16be(buf, at + 20) if version == 5 else np.int64(0)
    return uptime, export + u32be(buf, at + 12), u32be(buf, at + 16), domain


(JOB_START, JOB_LENGTH, JOB_ARRIVAL, JOB_ADDRESS_VERSION, JOB_HIGH, JOB_LOW, JOB_PORT) = range(7)
"""Rows of the matrix of datagrams: offset and length in the buffer, time of arrival in ns, address and port."""

JOB_ROWS = 7

(NEXT, AT, SET, ROW, SESSION, SEEN, UNSURE, ORDER, CLOCK, PAUSE) = range(10)
"""Words of the state: the datagram that is next; in it the next set or record, or -1 before its header; the set whose
records are being read, or -1; the rows written; the session; the records so far; whether there are others that cannot
be counted; BEHIND for a late datagram; a count of all datagrams ever, which is the clock of USED; and whether to return
once this datagram is done."""

STATE_WORDS = 10

(LAYOUT_LENGTH, LAYOUT_FIXED, LAYOUT_STEP, LAYOUT_STEPS_END, LAYOUT_FIELD, LAYOUT_FIELDS, LAYOUT_FLAGS) = range(7)
"""Words of a layout: the length of the shortest record, whether that is the length of all, its first step and the one
behind the last, its first field's length and how many fields there are, and the flags of kernels.records."""

LAYOUT_WORDS = 7

(COMMON_EXPORTER, COMMON_PORT, COMMON_DOMAIN, COMMON_VERSION, COMMON_EXPORT, COMMON_ARRIVAL) = range(6)
"""Words that say which rows of the matrix take what the header and the sender say; -1 for none."""

COMMON_WORDS = 6

DONE, ROWS_FULL, TEXTS_FULL, NEW_SESSION, TEMPLATES, UNKNOWN, PAUSED = range(7)
"""Why the kernel returned. For TEMPLATES and UNKNOWN the set is `state[SET]` and what follows it `state[AT]`; it goes
on behind the set once `state[SET]` is -1."""

LAYOUT_V5, LAYOUT_V7 = 0, 1
"""Numbers of the layouts that need no template."""

COUNTS = (
    "field_unreadable", "header_cut", "version_unknown", "count_beyond_datagram", "length_beyond_datagram",
    "set_malformed", "set_reserved", "record_beyond_set",
)  # fmt: skip
"""What the kernel counts beside the sessions: fields, and what is wrong with datagrams, by cause. The header does not
fit; its version is none we read; it announces more records, or bytes, than there are; a set's length is less than its
header or more than is left, and the rest of the datagram is not read; a set's number is reserved; a record of variable
length goes on behind its set."""

(_, HEADER_CUT, VERSION_UNKNOWN, COUNT_BEYOND, LENGTH_BEYOND, SET_MALFORMED, SET_RESERVED, RECORD_BEYOND) = range(8)


@outlined
def close_datagram(sessions, session_row, version, number, state):  # type: ignore[no-untyped-def]
    """Expect what follows a datagram whose sequence number is `number`."""
    units = np.int64(1) if version == 9 else state[SEEN]
    if state[ORDER] == BEHIND:
        sessions[session_row + RECOVERED] += fill_gaps(sessions, session_row, number, units)
    else:
        sessions[session_row + EXPECTED] = (number + units) & (WRAP - 1)
        sessions[session_row + STARTED] = 0 if state[UNSURE] and version != 9 else 1


@outlined
def write_common(sessions, session_row, common, export, arrival, row, rows, out, valid, capacity):  # type: ignore[no-untyped-def]
    """Write the columns that are the same for all rows of a set."""
    dest = common[COMMON_EXPORTER]
    if dest >= 0:
        there = sessions[session_row + ADDRESS_VERSION]
        for index in range(row, row + rows):
            out[dest * capacity + index] = there
            out[(dest + 1) * capacity + index] = sessions[session_row + HIGH]
            out[(dest + 2) * capacity + index] = sessions[session_row + LOW]
            valid[dest * capacity + index] = 1 if there else 0
    dest = common[COMMON_PORT]
    if dest >= 0:
        for index in range(row, row + rows):
            out[dest * capacity + index] = sessions[session_row + PORT]
            valid[dest * capacity + index] = 1 if sessions[session_row + ADDRESS_VERSION] else 0
    for word in range(COMMON_DOMAIN, COMMON_WORDS):
        dest = common[word]
        if dest >= 0:
            value = sessions[session_row + DOMAIN]
            if word == COMMON_VERSION:
                value = sessions[session_row + VERSION]
            elif word == COMMON_EXPORT:
                value = export
            elif word == COMMON_ARRIVAL:
                value = arrival
            for index in range(row, row + rows):
                out[dest * capacity + index] = value
                valid[dest * capacity + index] = 1


@kernel(
    "i64(u8*, i64*, i64, i64, i64, i64*, i64*, i64*, i64, i64*, i64, i64*, i64*, i64*, i64*, i64*, i64*, i64, i64*, "
    "u8*, i64, i64*, i64*, u8*, i64*, i64*)"
)
def decode_datagrams(  # type: ignore[no-untyped-def]
    buf, jobs, stride, count, again, state, sessions, session_slots, session_mask, templates, template_mask, layouts,
    steps, fields, keys, places, common, texts, out, valid, capacity, slots, ends, arena, used, counts
):  # fmt: skip
    """Decode `count` datagrams of `buf` from where `state` stands; return why that ended.

    `jobs` is JOB_ROWS x `stride`; each datagram is wholly inside `buf`. `again` says that the datagrams are sets that
    waited for their template: nothing but their records is counted. `sessions` and `templates` are tables of
    `kernels.sessions` with their masks, `layouts` is LAYOUT_WORDS each, `steps` and `fields` what layouts point to,
    `keys` the sampling keys, `places` room for twice the fields of the longest template. `common` says where headers
    go, `texts` whether there are columns of text. `out` (rows x `capacity`) and `valid` (bytes) take the rows,
    `slots, ends, arena, used` are the dictionary, `counts` has a word for each of COUNTS.
    """
    while state[NEXT] < count:
        job = state[NEXT]
        start = jobs[JOB_START * stride + job]
        length = jobs[JOB_LENGTH * stride + job]
        arrival = jobs[JOB_ARRIVAL * stride + job]
        version = u16be(buf, start) if length >= 2 else np.int64(0)
        header = header_length(version)
        if header == 0 or length < header:
            counts[HEADER_CUT if header or length < 2 else VERSION_UNKNOWN] += 1
            state[NEXT] = job + 1
            continue
        uptime, export, number, domain = header_clock(buf, start, version)
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
                counts[HEADER_CUT] += 1
                state[NEXT] = job + 1
                continue
            else:
                end = start + announced
        if state[AT] < 0:
            session = lookup_session(
                sessions, session_slots, session_mask, version, jobs[JOB_ADDRESS_VERSION * stride + job],
                jobs[JOB_HIGH * stride + job], jobs[JOB_LOW * stride + job], jobs[JOB_PORT * stride + job], domain,
            )  # fmt: skip
            if session < 0:
                return NEW_SESSION
            session_row = session * WIDTH
            state[SESSION] = session
            state[AT] = start + header
            state[SET] = -1
            state[SEEN] = 0
            state[UNSURE] = 1 if beyond else 0
            state[ORDER] = BEHIND
            if not again:
                state[CLOCK] += 1
                sessions[session_row + USED] = state[CLOCK]
                sessions[session_row + DATAGRAMS] += 1
                state[ORDER] = follow_sequence(sessions, session_row, version, number, uptime, export)
                if beyond:
                    counts[beyond] += 1
            if version == 5:
                sessions[session_row + DEFAULT_NUM] = u16be(buf, start + 22) & 0x3FFF
                sessions[session_row + DEFAULT_DEN] = 1
        session_row = state[SESSION] * WIDTH
        while True:
            at = state[AT]
            if version in (5, 7):
                layout = np.int64(LAYOUT_V5 if version == 5 else LAYOUT_V7)
                set_end = end
                if at >= end:
                    break
            else:
                if state[SET] < 0:
                    if at + 4 > end:
                        break
                    kind = u16be(buf, at)
                    size = u16be(buf, at + 2)
                    if kind == 0 and size == 0:
                        break  # zeros up to the end
                    if size < 4 or at + size > end:
                        counts[SET_MALFORMED] += 1
                        state[UNSURE] = 1
                        break
                    if kind < 256:
                        state[AT] = at + size
                        known = kind in (2, 3) if version == 10 else kind in (0, 1)
                        if known:
                            state[SET] = at
                            return TEMPLATES
                        counts[SET_RESERVED] += 1
                        continue
                    state[SET] = at
                    at += 4
                set_end = state[SET] + u16be(buf, state[SET] + 2)
                layout = lookup_template(templates, template_mask, state[SESSION], u16be(buf, state[SET]))
                if layout < 0:
                    state[AT] = set_end
                    return UNKNOWN
                state[AT] = at
            layout *= LAYOUT_WORDS
            shortest = layouts[layout + LAYOUT_LENGTH]
            row = state[ROW]
            step = layouts[layout + LAYOUT_STEP]
            steps_end = layouts[layout + LAYOUT_STEPS_END]
            flags = layouts[layout + LAYOUT_FLAGS]
            if at + shortest <= set_end:
                if row >= capacity:
                    return ROWS_FULL
                if texts and not texts_have_room(ends, used):
                    return TEXTS_FULL
            rows = np.int64(0)
            unreadable = counts[0]
            if layouts[layout + LAYOUT_FIXED]:
                rows = min((set_end - at) // shortest, capacity - row)
                if rows > 0:
                    prepare_rows(sessions, session_row, flags, row, rows, out, capacity)
                    write_fixed(
                        buf, at, shortest, rows, steps, step, steps_end, sessions, session_row, keys, uptime, export,
                        row, out, valid, capacity, slots, ends, arena, used, counts,
                    )  # fmt: skip
                at += rows * shortest
                whole = at + shortest > set_end
            else:
                whole = at + shortest > set_end
                while row + rows < capacity:
                    following = np.int64(-1)
                    if at + shortest <= set_end:
                        following = record_end(
                            buf, at, set_end, fields, layouts[layout + LAYOUT_FIELD],
                            layouts[layout + LAYOUT_FIELDS], places,
                        )  # fmt: skip
                        if following < 0:
                            counts[RECORD_BEYOND] += 1
                            state[UNSURE] = 1
                    if following < 0:
                        whole = True
                        break
                    prepare_rows(sessions, session_row, flags, row + rows, 1, out, capacity)
                    write_variable(
                        buf, places, steps, step, steps_end, sessions, session_row, keys, uptime, export, row + rows,
                        out, valid, capacity, slots, ends, arena, used, counts,
                    )  # fmt: skip
                    at = following
                    rows += 1
            if rows > 0:
                if flags & TIMES_OPEN:
                    settle_times(sessions, session_row, export, row, rows, out, capacity)
                if flags & SAMPLED:
                    settle_rates(row, rows, out, capacity)
                write_common(sessions, session_row, common, export, arrival, row, rows, out, valid, capacity)
            sessions[session_row + RECORDS] += rows
            sessions[session_row + UNREADABLE] += counts[0] - unreadable
            state[SEEN] += rows
            state[ROW] = row + rows
            state[AT] = at
            if whole:
                if version in (5, 7):
                    break
                state[AT] = set_end
                state[SET] = -1
        if not again:
            close_datagram(sessions, session_row, version, number, state)
        state[AT] = -1
        state[NEXT] = job + 1
        if state[PAUSE]:
            state[PAUSE] = 0
            return PAUSED
    return DONE
