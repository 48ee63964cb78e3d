"""Lines of explained plans: the low level, the high level, and parts that both kinds of plans share."""

from __future__ import annotations

from collections.abc import Iterator

from capture.flows.sampling import FixedRates
from highlevel.aggregation import Aggregation, DetailFunction
from highlevel.plan.nodes import Leaf
from highlevel.sliding.window_rows import incremental_strategy
from highlevel.speculation.consistency import FOREVER, Consistency
from highlevel.windows.kind import (
    AnyWindow,
    LandmarkWindow,
    LifetimeWindow,
    SessionWindow,
    SlideByTuple,
    SlidingWindow,
    TupleWindow,
)
from lowlevel.durations import duration_text
from lowlevel.expressions.types import Type
from lowlevel.expressions.user_functions import UserFunction
from lowlevel.kinds import row_kind_of
from lowlevel.layers import Layer
from lowlevel.node.filter_join import MAX_KEYS, count_filter_join_bytes, list_filter_joins
from lowlevel.node.node_watchlists import find_instances, find_watched_files
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.subaggregates import MERGE, SubAggregate
from lowlevel.table.keys import KeyLayout, code_widths
from lowlevel.watch.contents import RuleForm
from lowlevel.watch.settings import Setting
from lowlevel.watch.watched_file import read_watchlist
from queries.text.printer import expression_text


def pane_text(window: AnyWindow) -> str:
    """Return the length of a pane and the reason for it."""
    match window:
        case SlidingWindow() if window.range == window.slide:
            why = "the window itself, as windows do not overlap"
        case SlidingWindow():
            why = "the largest common divisor of RANGE and SLIDE; each row is counted once"
        case LandmarkWindow():
            why = "the SLIDE; running totals add one slide at a time"
        case SessionWindow():
            why = "the gap; rows of a group less than the gap apart are in one session"
        case SlideByTuple():
            why = "windows begin and end at rows, so each row is passed on unchanged"
        case TupleWindow():
            why = "windows are counted in rows, so each row is passed on unchanged"
        case LifetimeWindow():
            why = "windows begin and end with the lifetimes of rows, so each row is passed on unchanged"
    return f"{duration_text(window.pane)}: {why}"


def window_lines(window: AnyWindow) -> Iterator[tuple[str, str]]:
    """Yield lines about the window as (heading, text)."""
    match window:
        case SlidingWindow():
            kind = (
                "tumbling" if window.range == window.slide else "gapped" if window.range < window.slide else "sliding"
            )
            size = f"RANGE {duration_text(window.range)}, SLIDE {duration_text(window.slide)}"
            yield "windows", f"{kind}, {size}, from {_origin_text(window.origin)}"
            if window.range > window.pane:
                yield "roll up", f"{window.range // window.pane} panes per window, {_overlap(window)}"
        case LandmarkWindow():
            yield "windows", f"landmark, all since {_origin_text(window.origin)}, SLIDE {duration_text(window.slide)}"
            yield "roll up", f"running totals of up to {window.cap:,} groups, written for each slide with rows"
        case SessionWindow():
            yield "windows", f"sessions of each group, ended by {duration_text(window.gap)} without a row"
            yield "roll up", "intervals from the first ts to the last; intervals less than the gap apart are merged"
        case SlideByTuple():
            yield "windows", f"sliding by rows, RANGE {duration_text(window.range)} up to {_slide_text(window)}"
            yield "roll up", "rows wait until no earlier row can arrive; then they are processed in the order of ts"
        case TupleWindow():
            pane = window.over_row_numbers.pane
            whose = "each partition's rows" if window.partitioned else "rows"
            yield "windows", f"of {whose} as they arrive, {_sizes(window)}"
            yield (
                "roll up",
                f"panes of {rows_text(pane)}, {window.range // pane} per window, {_overlap(window.over_row_numbers)}",
            )
            if window.idle is not None:
                yield (
                    "forget",
                    f"a partition starts again if its next row is {duration_text(window.idle)} or more later",
                )
        case LifetimeWindow():
            yield "windows", "the times between two neighbouring starts or ends of lifetimes of a group"


def rows_text(count: int) -> str:
    """Return `1 row` or `1,000 rows`."""
    return "1 row" if count == 1 else f"{count:,} rows"


def _sizes(window: TupleWindow) -> str:
    return f"RANGE {rows_text(window.range)}, SLIDE {rows_text(window.slide_rows)}"


def _slide_text(window: SlideByTuple) -> str:
    if window.every == 1:
        return "each row"
    return f"one row in {window.every}, " + ("in the order of ts" if window.in_time_order else "as they arrive")


def _origin_text(origin: int) -> str:
    return "the epoch" if origin == 0 else f"{origin} ns after the epoch"


def _overlap(window: SlidingWindow) -> str:
    fewest, rest = divmod(window.range, window.slide)
    return f"each row in {fewest} windows" if rest == 0 else f"each row in {fewest} or {fewest + 1} windows"


PARAMETER_FUNCTIONS = frozenset(function for function in DetailFunction if "quantile" in function or "top" in function)
"""Functions with a second argument."""


def low_lines(leaf: Leaf, aggregation: Aggregation, watched: list[str]) -> Iterator[str]:
    """Yield the lines about the low level."""
    low = leaf.low
    kind = row_kind_of(low.kind)
    where = "in a table of fixed size" if low.reduced else "and each row is passed on unchanged"
    yield f"low level: next to the {low.kind}, once per link, {where}"
    bound = "the files bound to it" if len(leaf.streams) == 1 else "the files bound to each name; every link separately"
    bound = "the files of every link, or of the link with this name" if leaf.reads_all_links else bound
    yield line("streams", f"{' UNION '.join(leaf.streams)}: {bound}")
    yield line("rows", f"{low.kind}: each is {kind.row_description}")
    if kind.is_layered:
        other = "outer." if leaf.layer == Layer.INNER else "inner."
        yield line("layer", f"{leaf.layer}, for names of columns that do not begin with {other}")
    yield line("columns", f"{', '.join(sorted(low.columns))}: only these are decoded")
    if low.sampling is not None:
        yield line("sampling", f"{rates_text(low.sampling)}, regardless of the announced rates")
    where = "every row" if low.where is None else expression_text(low.where)
    yield line("keep", where + ("" if low.where is None else ", before the row is stored"))
    for key in low.keys:
        width = f": {_width(key)}" if low.reduced else ""
        yield line(
            "value" if key.name in aggregation.partial_columns[len(aggregation.group_by) :] else "key",
            f"{key.name} = {expression_text(key.expression)}{width}",
        )
    if low.reduced:
        yield line("key words", _words(low.keys))
    for sub in low.subaggregates:
        yield line("keep per group" if low.reduced else "of each row", f"{sub.name} = {_call(sub)}")
    yield from seen_within_lines(low)
    yield from watched
    if low.spread:
        yield line("spread", "counters of a row are divided among the panes from its start_ts to its end_ts")
    if aggregation.windowed:
        yield line("pane", pane_text(aggregation.window))
    else:
        yield line("pane", "the whole input: the query has no window, so its result follows at the end of the input")


def seen_within_lines(low: LowLevelPlan) -> Iterator[str]:
    """Yield the line about keys that `seen_within` stores for later rows."""
    if low.depends_on_earlier_rows:
        keys, size = MAX_KEYS * len(list_filter_joins([low])), count_filter_join_bytes([low])
        yield line("remembers", f"keys for seen_within: {keys:,} at most, {size:,} bytes; one reader for each capture")


def watched_file_lines(plan: object) -> Iterator[str]:
    """Yield the watchlists and settings of a plan of any kind."""
    for file in {(file.path, str(file.form)): file for file in find_watched_files(plan)}.values():
        contents = read_watchlist(file)
        if isinstance(file.form, Setting):
            value = str(contents.value).lower() if file.form.type is Type.BOOL else str(contents.value)
            yield line("setting", f"{file.path}: {file.form.name} = {value}")
            continue
        if isinstance(file.form, RuleForm):
            count = contents.line_count
            yield line("rules", f"{file.path}: {count:,} {file.form}{'s' * (count != 1)}")
            continue
        yield line("watchlist", f"{file.path}: {contents.line_count:,} lines, {contents.bytes:,} bytes in memory")


def function_lines(plan: object) -> Iterator[str]:
    """Yield the functions of users that a plan of any kind calls."""
    for function in dict.fromkeys(find_instances(plan, UserFunction)):
        how = "compiled by numba" if function.compiled else "over columns" if function.of_columns else "for each row"
        where = f", {function.location}" if function.location else ""
        yield line("function", f"{function.usage} of type {function.result}: Python, {how}{where}")


def consistency_lines(consistency: Consistency) -> Iterator[str]:
    """Yield the lines about provisional results."""
    if consistency.wait is None:
        yield line("wait (B)", "a window is returned when it is final, so no result is corrected")
    else:
        yield line(
            "wait (B)",
            f"a window is returned when the newest row is {length_text(consistency.wait)} later than its end",
        )
        yield line("correct", "a returned window after each block with rows of it: -1 for the old row, +1 for the new")
    if consistency.early is not None:
        yield line("early", f"a window is also returned before its end, once in {length_text(consistency.early)}")


def remember_line(slack: int | None) -> str:
    """Return the line about the allowed disorder that a query states, or about that of the input."""
    if slack is None:
        return line(
            "remember (M)", "rows as long as the input allows: 10 seconds if it is live, without limit in files"
        )
    if slack == FOREVER:
        return line("remember (M)", "all rows: no row is too late, and the state of all windows is kept")
    return line("remember (M)", f"rows up to {length_text(slack)} older than the newest row of their link")


def length_text(nanoseconds: int) -> str:
    """Return a length of time as text."""
    return "0 s" if nanoseconds == 0 else duration_text(nanoseconds)


def high_lines(aggregation: Aggregation, leaf: Leaf | None = None) -> Iterator[str]:
    """Yield the lines about the high level."""
    order = "in the order of arrival" if aggregation.low.in_arrival_order else "in any order of arrival"
    yield f"high level: over partials, {order}, until punctuation closes a window"
    if aggregation.windowed:
        for heading, text in window_lines(aggregation.window):
            yield line(heading, text)
        if isinstance(aggregation.window, SlidingWindow) and aggregation.window.range > aggregation.window.pane:
            yield line("by cost", f"{incremental_strategy(aggregation.low.subaggregates)}; small windows are merged")
    if leaf is not None and len(leaf.streams) > 1:
        yield line("meld", f"{len(leaf.streams)} streams: the watermark is the minimum of the links")
    group = ", ".join(_key_text(aggregation, name) for name in aggregation.group_by)
    yield line("group by", group or f"none: one row per window, no row for a window without {aggregation.low.kind}")
    if aggregation.emit_late:
        yield line("late rows", "additional results of their windows, marked in the column late")
    if aggregation.low.has_arrival_watermarks:
        yield remember_line(aggregation.low.slack)
    for sub in aggregation.low.subaggregates:
        yield line("merge", f"{sub.name} by {MERGE[sub.kind]}")
    for folding in aggregation.foldings:
        values = _key_text(aggregation, folding.source)
        text = f"{folding.column} = a sketch for {folding.function} of {values}, per pane and group"
        yield line("fold", text)
    for detail in aggregation.details:
        sources = {folding.column: folding.source for folding in aggregation.foldings}
        parameter = "" if detail.function not in PARAMETER_FUNCTIONS else f", {detail.parameter:g}"
        arguments = ", ".join(_key_text(aggregation, sources.get(key, key)) for key in detail.keys)
        call = f"{detail.function}({arguments}{parameter})"
        how = f"from {detail.key}" if detail.key in sources else f"each value {detail.count} times"
        yield line("detail", f"{detail.name} = {call}, {how}, once a window is final")
    for column in aggregation.user_columns:
        parts = ", ".join(f"{part} = {expression_text(value)}" for part, value in column.parts)
        yield line("user's", f"{column.name} = {column.name_in_messages} of {parts}, by a function in Python")
    for selection in aggregation.selections:
        compared = f"{selection.kind}({selection.parameter}, {expression_text(selection.value)})"
        yield line("select", f"{selection.name} = {compared} among all groups of a window, in one task")
    if aggregation.having is not None:
        yield line("having", expression_text(aggregation.having))
    if aggregation.windowed:
        unit = "ns since the epoch" if aggregation.window.timed else "numbers of rows"
        yield line("output", f"window_start, window_end: {unit}, half-open")
    for out in aggregation.select:
        yield line("output", f"{out.name} = {expression_text(out.expression)} ({out.expression.type})")


def line(heading: str, text: str) -> str:
    """Return one line about a part of a plan."""
    return f"  {heading:<14}  {text}"


def parts_of_line(text: str) -> tuple[str, str]:
    """Return the heading and the text of a line. A line that continues another one has no heading.

    >>> parts_of_line(line("keep", "len > 5"))
    ('keep', 'len > 5')
    """
    return text[2:16].strip(), text[18:]


def _call(sub: SubAggregate) -> str:
    return f"{sub.kind}({'*' if sub.argument is None else expression_text(sub.argument)})"


def _width(key: Key) -> str:
    """Return the number of bits of the key in the table."""
    if key.expression.type is Type.ADDRESS:
        absent = ", none for NULL" if key.expression.nullable else ""
        four, six = (sum(code_widths(key, version)) for version in (4, 6))
        return f"{four} bits for IPv4, {six} for IPv6{absent}, in separate tables"
    bits = sum(code_widths(key, 0))
    if key.expression.type is Type.TEXT:
        return f"{bits} bits, the number of the text{', NULL included' if key.expression.nullable else ''}"
    return f"{bits} bits{', NULL included' if key.expression.nullable else ''}"


def _words(keys: tuple[Key, ...]) -> str:
    if not keys:
        return "none: one entry per pane"
    four, six = (KeyLayout(keys, (version,) * len(keys)).words for version in (4, 6))
    return f"{four} of 64 bits" + ("" if four == six else f" for IPv4, {six} for IPv6")


def _key_text(aggregation: Aggregation, name: str) -> str:
    """Return a grouping column with its expression."""
    texts = {key.name: expression_text(key.expression) for key in aggregation.low.keys}
    return f"{name} = {texts[name]}" if name in texts else name


def rates_text(sampling: FixedRates) -> str:
    """Return the text of sampling rates that the user set."""
    if isinstance(sampling, int):
        return f"1 packet in {sampling} for every exporter"
    return ", ".join(f"1 packet in {rate} for {exporter}" for exporter, rate in sampling)
