"""A plan as people read it: what runs next to the packets, what runs above, and why."""

from __future__ import annotations

from collections.abc import Iterator

from capture.flows.sampling import HandRates
from highlevel.plan import QueryPlan
from highlevel.window import Window
from lowlevel.durations import UNITS
from lowlevel.expressions import Type
from lowlevel.keys import KeyLayout, code_widths
from lowlevel.kinds import columns_of_kind
from lowlevel.layers import Layer
from lowlevel.plan import Key
from lowlevel.subaggregates import MERGE, SubAggregate
from queries.expression_text import expression_text

_UNITS = ("days", "hours", "minutes", "seconds", "ms", "us", "ns")


def explain(plan: QueryPlan) -> str:
    """Return the plan as lines of text, without a line end behind the last."""
    return "\n".join([f"query {plan.name}: {' '.join(plan.sql.split())}", "", *_low(plan), "", *_high(plan)])


def _low(plan: QueryPlan) -> Iterator[str]:
    low = plan.low
    kind = columns_of_kind(low.kind)
    yield f"low level: next to the {low.kind}, once per link, in a table of fixed size"
    bound = "the files bound to it" if len(plan.streams) == 1 else "the files bound to each, every link on its own"
    bound = "those of every link" if plan.of_every_link else bound
    yield _line("streams", f"{' UNION '.join(plan.streams)}: {bound}")
    yield _line("rows", f"{low.kind}: each is {kind.row}")
    if kind.layered:
        beside = "outer." if plan.layer == Layer.INNER else "inner."
        yield _line("layer", f"{plan.layer}, where a name does not begin with {beside}")
    yield _line("columns", f"{', '.join(sorted(low.columns))}: all that is decoded")
    if low.sampling is not None:
        yield _line("sampling", f"{_rates(low.sampling)}, whatever exporters announce")
    where = "every row" if low.where is None else expression_text(low.where)
    yield _line("keep", where + ("" if low.where is None else ", before anything is kept for the row"))
    for key in low.keys:
        yield _line("key", f"{key.name} = {expression_text(key.expression)}: {_width(key)}")
    yield _line("key words", _words(low.keys))
    for sub in low.subaggregates:
        yield _line("keep per group", f"{sub.name} = {_call(sub)}")
    if low.spread:
        yield _line("spread", "counters of a row are divided among the panes from its start_ts to its end_ts")
    if plan.windowed:
        yield _line("pane", f"{duration_text(low.pane)}: {_why(plan.window)}")
    else:
        yield _line("pane", "the whole input: the query has no window, so its answer comes when the input ends")


def _high(plan: QueryPlan) -> Iterator[str]:
    yield "high level: over partials, in any order of arrival, up to what punctuation has closed"
    if plan.windowed:
        window = plan.window
        kind = "tumbling" if window.range == window.slide else "gapped" if window.range < window.slide else "sliding"
        since = "the epoch" if window.origin == 0 else f"{window.origin} ns after the epoch"
        size = f"RANGE {duration_text(window.range)}, SLIDE {duration_text(window.slide)}"
        yield _line("windows", f"{kind}, {size}, from {since}")
        if window.range > window.pane:
            yield _line("roll up", f"{window.range // window.pane} panes per window, {_overlap(window)}")
    if len(plan.streams) > 1:
        yield _line("meld", f"{len(plan.streams)} streams: progress is that of the slowest link")
    group = ", ".join(_shown(plan, name) for name in plan.group_by)
    yield _line("group by", group or f"nothing: one row per window, none for a window without {plan.low.kind}")
    for sub in plan.low.subaggregates:
        yield _line("merge", f"{sub.name} by {MERGE[sub.kind]}")
    if plan.having is not None:
        yield _line("having", expression_text(plan.having))
    if plan.windowed:
        yield _line("output", "window_start, window_end: ns since the epoch, half-open")
    for out in plan.select:
        yield _line("output", f"{out.name} = {expression_text(out.expression)} ({out.expression.type})")


def duration_text(nanoseconds: int) -> str:
    """Return a length of time in the largest unit that it is a whole number of.

    >>> duration_text(600 * 10**9), duration_text(10**9), duration_text(6_400_000_000)
    ('10 minutes', '1 second', '6400 ms')
    """
    unit = next(unit for unit in _UNITS if nanoseconds % UNITS[unit] == 0)
    count = nanoseconds // UNITS[unit]
    return f"{count} {unit.removesuffix('s') if count == 1 and len(unit) > 2 else unit}"


def _line(what: str, text: str) -> str:
    return f"  {what:<14}  {text}"


def _call(sub: SubAggregate) -> str:
    return f"{sub.kind}({'*' if sub.argument is None else expression_text(sub.argument)})"


def _width(key: Key) -> str:
    """Bits that the key takes in the table."""
    if key.expression.type is Type.ADDRESS:
        absent = ", none for NULL" if key.expression.nullable else ""
        four, six = (sum(code_widths(key, version)) for version in (4, 6))
        return f"{four} bits for IPv4, {six} for IPv6{absent}, in tables of their own"
    bits = sum(code_widths(key, 0))
    if key.expression.type is Type.TEXT:
        return f"{bits} bits, the number of the text{', NULL included' if key.expression.nullable else ''}"
    return f"{bits} bits{', NULL included' if key.expression.nullable else ''}"


def _words(keys: tuple[Key, ...]) -> str:
    if not keys:
        return "none: one entry per pane"
    four, six = (KeyLayout(keys, (version,) * len(keys)).words for version in (4, 6))
    return f"{four} of 64 bits" + ("" if four == six else f" for IPv4, {six} for IPv6")


def _why(window: Window) -> str:
    if window.range == window.slide:
        return "the window itself, as windows do not overlap"
    return "the largest interval that all windows are made of, gcd of RANGE and SLIDE; each row is counted once"


def _overlap(window: Window) -> str:
    fewest, rest = divmod(window.range, window.slide)
    return f"each row in {fewest} windows" if rest == 0 else f"each row in {fewest} or {fewest + 1} windows"


def _shown(plan: QueryPlan, name: str) -> str:
    """A grouping column with what it holds."""
    texts = {key.name: expression_text(key.expression) for key in plan.low.keys}
    return f"{name} = {texts[name]}" if name in texts else name


def _rates(sampling: HandRates) -> str:
    if isinstance(sampling, int):
        return f"1 packet in {sampling} for every exporter"
    return ", ".join(f"1 packet in {rate} for {exporter}" for exporter, rate in sampling)
