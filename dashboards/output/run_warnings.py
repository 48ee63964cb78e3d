"""Warnings of a run: unreadable input, late rows, losses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from capture.metrics import (
    FLOW_SESSIONS,
    RECORDS_READ,
    RECORDS_SKIPPED,
    REFUSED_BY_FALLBACK,
    SFLOW_DATAGRAMS,
    Samples,
)
from capture.packets.fallback import EXTRA, NOT_INSTALLED
from capture.packets.link_layers import supported_link_types
from highlevel.inline.input_outcomes import UNSUPPORTED, Reading
from highlevel.metrics import (
    DEADLINES_OUTSIDE,
    FILL_GROUPS_FORGOTTEN,
    FILL_ROWS_LEFT_OUT,
    LATE_PARTIALS,
    LATE_ROWS,
    PARTIALS_BEYOND_CAP,
    ROWS_BEYOND_CAP,
    ROWS_FORGOTTEN,
    SKIP_ERRORS,
    SUMS_OVERFLOWED,
    UNCLOSED_GROUPS_ENDED,
)
from highlevel.plan.plan import Plan
from lowlevel.metrics import LULL_WATERMARKS, ROWS_ACCEPTED, ROWS_FILTERED

_INSTALL = f"dpkt is not installed: pip install 'wiretide[{EXTRA}]'"


def run_warnings(samples: Samples, readings: Sequence[Reading], remedy: str | None = None) -> Iterator[str]:
    """Yield a sentence for each problem of the inputs and for late rows.

    `remedy`: the setting to change if rows are late.

    Problems are damaged files, unsupported link types, packets that an interface lost, flow records without a template,
    flows of an input without exports, and groups beyond the CAP of RANGE ALL.
    """
    for reading in readings:
        for cause, files in reading.damage.items():
            where = (
                f"in {count(files, 'file')}" if reading.several else f"after {count(reading.records, 'whole record')}"
            )
            yield f"{reading.name}: {cause.replace('_', ' ')}, {where}"
        if reading.refused:
            yield f"{reading.name}: {count(reading.refused, 'file')} skipped, not readable as capture data"
        if reading.dropped:
            yield (
                f"{reading.name}: {count(reading.dropped, 'packet')} dropped by the system, because the ring was full. "
                "Use a larger ring, such as ?ring=256MiB, or fewer bytes of each packet, such as ?snaplen=128"
            )
        if reading.unreadable:
            yield f"{reading.name}: {count(reading.unreadable, 'packet')} in the ring could not be read"
        if reading.down:
            yield f"{reading.name}: the interface was down {count(reading.down, 'time')}"
        if reading.unread_sets:
            sets = count(reading.unread_sets, "set")
            yield f"{reading.name}: {sets} of flow records arrived without their template, and are not in the answer"
        if reading.unsupported:
            yield (
                f"{reading.name}: {reading.unsupported:,} of {count(reading.records, 'record')} are of "
                f"{_link_types(reading)}, and not in the answer"
            )
    if samples.total(RECORDS_READ) and not samples.total(ROWS_ACCEPTED) and not samples.total(ROWS_FILTERED):
        names = {name for name, _ in samples}
        if FLOW_SESSIONS.name in names and not any(reading.unread_sets for reading in readings):
            yield "no flow record of NetFlow or IPFIX in the input: routers export flows; FROM packets reads packets"
        if SFLOW_DATAGRAMS.name in names:
            yield "no flow sample of sFlow in the input: switches export samples; FROM packets reads packets"
    if undecoded := int(samples.total(REFUSED_BY_FALLBACK, cause=NOT_INSTALLED)):
        yield f"{count(undecoded, 'record')} need the fallback decoder, and are not in the answer: {_INSTALL}"
    if samples.total(LATE_PARTIALS):
        late = count(int(samples.total(LATE_ROWS)), "late row")
        lull = " or --lull" if samples.total(LULL_WATERMARKS) else ""
        yield f"{late} missed a window that was already final: use {remedy or f'a larger --slack{lull}'}"
    if beyond := int(samples.total(PARTIALS_BEYOND_CAP)):
        rows = int(samples.total(ROWS_BEYOND_CAP))
        lost = count(rows, "row") if rows else count(beyond, "partial")
        yield f"{lost} of groups beyond the CAP of RANGE ALL are not in the answer: use a larger CAP"
    if left_out := int(samples.total(FILL_ROWS_LEFT_OUT)):
        yield f"FILL did not add {count(left_out, 'row')}: it adds at most 100,000 between two windows with rows"
    if cut := int(samples.total(UNCLOSED_GROUPS_ENDED)):
        yield f"{count(cut, 'group')} of CLOSING WHEN ended early: a gap had over 10,000 windows or 100,000 rows"
    if overflowed := int(samples.total(SUMS_OVERFLOWED)):
        verb = "is" if overflowed == 1 else "are"
        yield (
            f"{count(overflowed, 'sum')} of integers {verb} beyond 64 bits, and NULL in the answer: use avg, or a sum "
            "of floats, such as sum(x * 1.0)"
        )
    if forgotten := int(samples.total(FILL_GROUPS_FORGOTTEN)):
        yield f"FILL has forgotten {count(forgotten, 'group')}: it knows the 10,000 groups with the latest rows"
    if forgotten := int(samples.total(ROWS_FORGOTTEN)):
        yield (
            f"DISTINCT ON or MERGE has forgotten {count(forgotten, 'row')} before WITHIN had passed, because it stores "
            "at most 1,048,576: later copies count as rows, and later records as other flows. Use a shorter WITHIN"
        )
    if errors := int(samples.total(SKIP_ERRORS)):
        matches = "1 match" if errors == 1 else f"{errors:,} matches"
        yield (
            f"AFTER MATCH SKIP TO did not apply to {matches}: the variable has no row after the first row of the match,"
            " so the next match began at the row after it. Use SKIP TO NEXT ROW, or a variable that has such a row"
        )
    if outside := int(samples.total(DEADLINES_OUTSIDE)):
        yield (
            f"ARC … AT did not apply to {count(outside, 'run')}, because the time after AT was not before the end of "
            "WITHIN: use a longer WITHIN"
        )


def plan_warnings(plan: Plan) -> Iterator[str]:
    """Yield warnings about the plan before the query runs. They concern joins that test every pair of rows."""
    if plan.joins_without_key:
        joins = count(len(plan.joins_without_key), "join")
        verb = "has" if len(plan.joins_without_key) == 1 else "have"
        yield (
            f"{joins} of {plan.name} {verb} no equality between both sides, so every pair of rows within the windows "
            "is tested. Add an equality, such as a.srcIP = b.destIP, or shorter windows"
        )


def describe_unsupported(samples: Samples, readings: Sequence[Reading]) -> str | None:
    """Return a message if there were records and all of them have unsupported link types, otherwise None."""
    records = int(samples.total(RECORDS_READ))
    if not records or records != samples.total(RECORDS_SKIPPED, cause=UNSUPPORTED):
        return None
    types = sorted({link_type for reading in readings for link_type in reading.link_types})
    listed = f" ({', '.join(map(str, types))})" if types else ""
    subject = f"all {records:,} records are of link types" if records > 1 else "the only record is of a link type"
    not_supported = "that are not supported" if records > 1 else "that is not supported"
    install = f"; {_INSTALL}" if samples.total(REFUSED_BY_FALLBACK, cause=NOT_INSTALLED) else ""
    return f"{subject} {not_supported}{listed}{install}; supported: {supported_link_types()}"


def count(amount: int, noun: str) -> str:
    """Return a count with its noun.

    >>> count(1, "row"), count(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def _link_types(reading: Reading) -> str:
    if not reading.link_types:
        return "link types that are not supported"
    plural = "s" if len(reading.link_types) > 1 else ""
    return f"link type{plural} {', '.join(map(str, reading.link_types))}, not supported"
