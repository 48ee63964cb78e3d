"""Explained plans as text: the low level, the high level, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from highlevel.aggregation import Aggregation
from highlevel.joins.spec import Band, JoinKind, WatermarkForm
from highlevel.plan.answer_nodes import Fill, Frame, Over, RowFunctionKind, Running, Sort, SortKey
from highlevel.plan.automaton_nodes import AcceptedRuns
from highlevel.plan.change_nodes import ChangingJoin, ChangingResults, NetChanges, WatchedColumns
from highlevel.plan.lifetime_nodes import (
    TOUCHED,
    ChangingInstantRanks,
    ChangingOverlapJoin,
    ChangingSnapshots,
    InstantRanks,
    OverlapJoin,
    Snapshots,
    TouchedWindows,
)
from highlevel.plan.nodes import (
    PANE,
    Apply,
    ChangingWindows,
    Distinct,
    Filter,
    Join,
    Leaf,
    Node,
    Repeat,
    TimeGroups,
    Union,
    Windowed,
)
from highlevel.plan.partitioning import substitute_columns
from highlevel.plan.pattern_nodes import Matches
from highlevel.plan.plan import Plan
from highlevel.plan.result_windows import result_windows
from highlevel.plan.revision_nodes import (
    ChangingFirstCopies,
    ChangingFlowMerge,
    ChangingNetRows,
    FirstCopies,
    FlowMerge,
    NetRows,
    Role,
)
from highlevel.plan.sample_node import Sample
from highlevel.speculation.consistency import Consistency
from highlevel.windows.kind import LifetimeWindow
from lowlevel.durations import duration_text
from lowlevel.expressions.tree import Expression, columns_of
from lowlevel.kinds import TABLE, row_kind_of
from queries.explain.automata import automaton_lines
from queries.explain.lines import (
    consistency_lines,
    function_lines,
    high_lines,
    length_text,
    line,
    low_lines,
    rates_text,
    remember_line,
    seen_within_lines,
    watched_file_lines,
)
from queries.explain.row_patterns import matches_lines
from queries.text.printer import expression_text

JOIN_RESULTS = {
    JoinKind.INNER: "pairs that match",
    JoinKind.LEFT: "pairs that match, and left rows without a match, once no match can arrive",
    JoinKind.RIGHT: "pairs that match, and right rows without a match, once no match can arrive",
    JoinKind.FULL: "pairs that match, and rows of both sides without a match, once no match can arrive",
    JoinKind.SEMI: "left rows with a match, once each",
    JoinKind.ANTI: "left rows without a match, once no match can arrive",
}
"""The results of each kind of join."""


LIFETIME_JOIN_RESULTS = {
    JoinKind.INNER: "pairs, true while both rows are true",
    JoinKind.LEFT: "pairs, true while both rows are true, and left rows while they have no match",
    JoinKind.RIGHT: "pairs, true while both rows are true, and right rows while they have no match",
    JoinKind.FULL: "pairs, true while both rows are true, and rows of both sides while they have no match",
    JoinKind.SEMI: "left rows while they have a match",
    JoinKind.ANTI: "left rows while they have no match",
}
"""The results of each kind of join of lifetimes."""


def graph_lines(plan: Plan) -> Iterator[str]:
    """Yield the nodes, inputs before their readers, with a blank line before each node."""
    names = dict(zip(plan.nodes, plan.node_names, strict=True))
    verb = "runs" if len(plan.leaves) == 1 else "run"
    inputs = "tables" if any(leaf.low.kind == TABLE for leaf in plan.leaves) else "packets"
    node_counts = f"{len(plan.nodes)} nodes, of which {len(plan.leaves)} {verb} next to the {inputs}"
    yield f"graph: {node_counts}; rows in any order of arrival, until a watermark covers them"
    for node, name in names.items():
        reads = ", ".join(names[each] for each in node.inputs)
        yield ""
        yield f"{name}: " + (_low_level(node) if isinstance(node, Leaf) else f"over {reads}")
        yield from node_lines(node, names)
        yield line("watermark", _watermark(node, plan))
    functions = list(function_lines(plan))
    if functions:
        yield from ("", "functions of users:", *functions)
    watched = list(watched_file_lines(plan))
    if watched:
        yield from ("", "watchlists:", *watched)


def _low_level(leaf: Leaf) -> str:
    if leaf.low.kind == TABLE:
        return f"the rows of {leaf.streams[0]}, in batches"
    how = "in a table of fixed size" if leaf.low.reduced else "and each row that passes WHERE is passed on unchanged"
    return f"low level, next to the {leaf.low.kind}, once per link, {how}"


def node_lines(node: Node, names: dict[Node, str]) -> Iterator[str]:
    """Yield the lines about a node, without its watermark. `names` are the names of all nodes."""
    match node:
        case Leaf():
            yield from _leaf(node)
        case ChangingResults():
            how = "with all rows that are not final" if result_windows(node.body) is None else "of each changed window"
            yield line("again", f"{type(node.body).__name__.lower()} {how}; old results get -1, new ones +1")
            yield from node_lines(node.body, names)
            yield from _result_consistency(node)
        case Union():
            yield line("meld", "rows pass at once; the watermark is the minimum of the inputs")
        case Filter():
            yield line("keep", _text(node.where))
        case Apply():
            yield from _columns(node)
        case NetChanges():
            yield line("add up", "the weights of equal rows of each batch; rows with a weight of 0 are left out")
        case WatchedColumns():
            yield from (line("column", f"{out.name} = {_text(out.expression)}") for out in node.outputs)
            yield line("again", "rows above the watermark when a file changes: -1 for the old row, +1 for the new")
            wait = node.consistency.wait
            due = "the watermark is later" if wait is None else f"the newest row is {length_text(wait)} later"
            yield line("wait (B)", f"a row is returned when {due}")
        case Distinct():
            yield line("distinct", f"the first row of each {', '.join(node.keys)}")
            yield line("state", f"keys, until the watermark of {' and '.join(node.time_columns)} is later")
        case FirstCopies():
            yield line(
                "copy", f"a row at most {length_text(node.within)} after a row with equal {', '.join(node.keys)}"
            )
            yield line("state", f"rows of the last {length_text(node.within)}, and those that can still be copies")
            if isinstance(node, ChangingFirstCopies):
                yield from _row_consistency(node.consistency)
        case NetRows():
            yield line("add up", f"the changes of equal rows, by {node.change}; a row that was withdrawn is left out")
            yield line("state", "different rows, until the watermark is later than their time")
            if isinstance(node, ChangingNetRows):
                yield from _row_consistency(node.consistency)
        case FlowMerge():
            idle = "" if node.idle is None else f", and begin at most {length_text(node.idle)} after the one before"
            yield line("key", ", ".join(node.keys))
            yield line("flow", f"records that end at most {length_text(node.within)} apart{idle}")
            yield line("last", f"a record with {_text(node.ended)}")
            yield from (line(role, ", ".join(map(_shown_name, names))) for role, names in _columns_by_role(node))
            yield line("state", "one row for each open flow, and records that can still arrive out of order")
            if isinstance(node, ChangingFlowMerge):
                yield from _row_consistency(node.consistency)
        case Repeat():
            yield line("repeat", f"each row as many times as {node.count} states")
        case Join():
            yield from _join(node, names)
            if isinstance(node, ChangingJoin):
                yield from _join_consistency(node)
        case Snapshots():
            yield from _snapshots(node)
        case InstantRanks():
            yield from _instant_ranks(node)
        case OverlapJoin():
            yield from _overlap_join(node, names)
        case TouchedWindows():
            yield from _touched_windows(node)
        case Windowed():
            yield line(
                "time", _shown_name(node.time) if node.aggregation.windowed else "none: the whole input is one window"
            )
            if not node.merges_partials:
                yield from _partial_columns(node.aggregation)
            yield from list(high_lines(node.aggregation))[1:]
            if isinstance(node, ChangingWindows):
                yield from consistency_lines(node.consistency)
        case TimeGroups():
            yield from _groups(node)
        case Over():
            yield from _over(node)
        case Matches():
            yield from matches_lines(node)
        case AcceptedRuns():
            yield from automaton_lines(node)
        case Fill():
            yield from _fill(node)
        case Running():
            yield from _running(node)
        case Sample():
            yield from _sample(node)
        case Sort():
            yield from _sort(node)
        case _:
            parameters = {field.name: getattr(node, field.name) for field in fields(node)}
            yield from (line(name, str(value)) for name, value in parameters.items() if value not in node.inputs)


def _leaf(leaf: Leaf) -> Iterator[str]:
    low = leaf.low
    if low.kind == TABLE:
        yield line("columns", ", ".join(key.name.removeprefix(f"{TABLE}.") for key in low.keys))
        yield line("time", leaf.streams[1] or "none")
        return
    every = "the files of every link, or of the link with this name"
    bound = every if leaf.reads_all_links else "the files bound to each name; every link separately"
    yield line("streams", f"{' UNION '.join(leaf.streams)}: {bound}")
    yield line("rows", f"{low.kind}: each is {row_kind_of(low.kind).row_description}")
    yield line("columns", f"{', '.join(sorted(low.columns))}: only these are decoded")
    if low.sampling is not None:
        yield line("sampling", f"{rates_text(low.sampling)}, regardless of the announced rates")
    where = "every row" if low.where is None else f"{expression_text(low.where)}, before the row is stored"
    yield line("keep", where)
    yield from seen_within_lines(low)
    if low.reduced:
        yield line("key", ", ".join(expression_text(key.expression) for key in low.keys) or "none")
        yield line("pane", duration_text(low.pane))
    else:
        yield line("passes on", ", ".join(["ts", *(key.name for key in low.keys)]))
    if low.has_arrival_watermarks:
        yield remember_line(low.slack)


def _join(join: Join, names: dict[Node, str]) -> Iterator[str]:
    spec = join.spec
    left, right = (str(dict(side.columns)[side.time]) for side in (spec.left, spec.right))
    yield line("kind", f"{spec.kind}: {JOIN_RESULTS[spec.kind]}; left is {names[join.left]}, right {names[join.right]}")
    if isinstance(spec.window, Band):
        low, high = _signed_duration(spec.window.low), _signed_duration(spec.window.high)
        yield line("window", f"{right} - {left} from {low} to {high}, both included ({_origin(spec.window)})")
        kept = (max(0, spec.window.high), max(0, -spec.window.low))
        later = [f"{duration_text(delay)} later than" if delay else "later than" for delay in kept]
        yield line("state", f"left rows until the watermark of {right} is {later[0]} their {left},")
        yield line("", f"right rows until the watermark of {left} is {later[1]} their {right}")
    else:
        yield line("window", f"{left} and {right} in the same {duration_text(spec.window.length)}, tumbling")
        yield line("state", "rows of a side until the watermark of the other side is later than their window")
    for one, other in spec.keys:
        yield line("key", f"{expression_text(one)} of the left = {expression_text(other)} of the right")
    if not spec.keys:
        yield line("key", "none: every row is compared with every row of the other side in its window")
    if spec.residual is not None:
        yield line("of pairs", expression_text(spec.residual))
    yield line("columns", ", ".join(column.name for column in join.columns))


def _join_consistency(join: ChangingJoin) -> Iterator[str]:
    """Yield the lines about the consistency of a join of changes."""
    (time,) = join.time_columns
    if join.consistency.wait is not None and join.spec.kind is not JoinKind.INNER:
        yield line("correct", "a row without a match is returned at once, and withdrawn when a match arrives")
    if join.consistency.wait is None:
        yield line("wait (B)", "a result is returned when it is final, so no result is corrected")
    elif join.aligned:
        yield line("wait (B)", f"a result is returned when both inputs have its {time}, or one has a later row")
    else:
        yield line(
            "wait (B)",
            f"a result is returned when the newest row is {length_text(join.consistency.wait)} later than its {time}",
        )
    yield line("remember (M)", "rows of both sides, until no later change can affect a result of them")


def _columns_by_role(node: FlowMerge) -> Iterator[tuple[Role, list[str]]]:
    """Yield each role and its columns."""
    for role in Role:
        if names := [name for name, own in node.roles if own is role]:
            yield role, names


def _row_consistency(consistency: Consistency) -> Iterator[str]:
    """Yield the lines about the consistency of rows that are made of several rows."""
    if consistency.wait is None:
        yield line("wait (B)", "a row is returned when it is final, so no row is corrected")
    else:
        waited = length_text(consistency.wait)
        yield line("wait (B)", f"rows are compared when the newest row is {waited} later; old results get -1")
    yield line("remember (M)", "rows, until no later row can change a result of them")


def _result_consistency(node: ChangingResults) -> Iterator[str]:
    """Yield the lines about the consistency of results over changes."""
    (time,) = node.time_columns
    if isinstance(node.body, Windowed) and not node.at_once:
        yield line("wait (B)", "a window is returned when the input has reached its end")
    else:
        yield line("wait (B)", "none: the input has waited")
    yield line("remember (M)", f"rows and results, until the watermark of {time} is later")


def _origin(window: Band) -> str:
    """Return the boundary of a window, and whether conditions narrow the window."""
    boundary = f"{window.boundary.name.replace('_', '-')} {window.boundary.value}"
    is_narrowed = window.least is not None or window.greatest is not None
    return f"{boundary}, narrowed by the conditions" if is_narrowed else boundary


def _columns(node: Apply) -> Iterator[str]:
    """Yield the computed columns, then the unchanged columns."""
    kept = []
    for out in node.outputs:
        text = _text(out.expression)
        if text == out.name:
            kept.append(out.name)
        else:
            yield line("column", f"{out.name} = {text}")
    if kept:
        yield line("unchanged", ", ".join(kept))


def _partial_columns(aggregation: Aggregation) -> Iterator[str]:
    """Yield the keys and sub-aggregates that a row becomes."""
    for key in aggregation.low.keys:
        yield line("key", f"{key.name} = {_text(key.expression)}")
    for sub in aggregation.low.subaggregates:
        argument = "*" if sub.argument is None else _text(sub.argument)
        yield line("of each row", f"{sub.name} = {sub.kind}({argument})")


def _snapshots(node: Snapshots) -> Iterator[str]:
    window = node.aggregation.window
    assert isinstance(window, LifetimeWindow)
    length = f"{duration_text(window.length)} later" if window.length is not None else ""
    yield line("lifetime", f"a row is true from {_shown_name(node.time)} until {length or _shown_name(str(node.end))}")
    yield from _partial_columns(node.aggregation)
    yield from list(high_lines(node.aggregation))[1:]
    yield from _late_by(node.late_by)
    if not isinstance(node, ChangingSnapshots) or node.consistency.wait is None:
        yield line("wait (B)", "a row is used when no earlier row can follow, so no result is corrected")
    else:
        yield line("wait (B)", f"a row is used when the newest row begins {length_text(node.consistency.wait)} later")
        yield line("correct", "the results that a row divides or changes: -1 for the old row, +1 for the new")
    yield line("state", "rows that wait, and the snapshots that a later row can change")


def _instant_ranks(node: InstantRanks) -> Iterator[str]:
    ranks = node.ranks
    if node.lifetime is not None:
        length = f"{duration_text(node.lifetime.length)} later" if node.lifetime.length is not None else ""
        until = length or _shown_name(str(node.lifetime.end))
        yield line("lifetime", f"a row is true from {_shown_name(node.lifetime.start)} until {until}")
        yield from _late_by(node.lifetime.late_by)
    keys = _sort_keys(ranks.keys)
    among = f" among rows with equal {', '.join(ranks.partition)}" if ranks.partition else ""
    yield line("order", f"{f'{keys}, then ' if keys else ''}the other columns, at each instant{among}")
    if ranks.function is not None:
        yield line("rank", f"{ranks.name} = {ranks.function}()")
    if node.hidden:
        yield line("keys only", ", ".join(node.hidden))
    if ranks.limit is not None or ranks.offset:
        after = f", after the first {ranks.offset:,}" if ranks.offset else ""
        count = "all" if ranks.limit is None else f"{ranks.limit:,}"
        yield line("limit", f"{count} rows at each instant{after}")
    if isinstance(node, ChangingInstantRanks) and node.open_ended:
        yield line("wait (B)", "none: the input has waited; a result is returned when it begins, without an end")
    elif isinstance(node, ChangingInstantRanks) and node.consistency.wait is not None:
        wait = length_text(node.consistency.wait)
        yield line("wait (B)", f"a result is returned when the newest row begins {wait} after its end")
        yield line("correct", "the results with other rows or ranks: -1 for the old row, +1 for the new")
    else:
        yield line("wait (B)", "a result is returned when it is final, so no result is corrected")
    yield line("state", "rows and results that end after the watermark")


def _overlap_join(node: OverlapJoin, names: dict[Node, str]) -> Iterator[str]:
    kind = LIFETIME_JOIN_RESULTS[node.kind]
    yield line("kind", f"{node.kind}: {kind}; left is {names[node.left]}, right {names[node.right]}")
    for name, side in zip(("left", "right"), node.sides, strict=True):
        lifetime = side.lifetime
        length = f"{duration_text(lifetime.length)} later" if lifetime.length is not None else ""
        until = length or _shown_name(str(lifetime.end))
        yield line("lifetime", f"a row of the {name} is true from {_shown_name(lifetime.start)} until {until}")
        yield from _late_by(lifetime.late_by)
    for one, other in node.keys:
        yield line("key", f"{_text(one)} of the left = {_text(other)} of the right")
    if not node.keys:
        yield line("key", "none: every row is compared with every row of the other side")
    if node.residual is not None:
        yield line("of pairs", _text(node.residual))
    yield line("columns", ", ".join(column.name for column in node.columns))
    if isinstance(node, ChangingOverlapJoin) and node.consistency.wait is not None:
        yield line("wait (B)", f"a row is used when the newest row begins {length_text(node.consistency.wait)} later")
        yield line("correct", "a row that is withdrawn withdraws its pairs")
    elif isinstance(node, ChangingOverlapJoin):
        yield line("wait (B)", "a row is used when no earlier row can follow, so no result is corrected")
    yield line("state", "rows of a side until no row of the other side can begin before their end")


def _touched_windows(node: TouchedWindows) -> Iterator[str]:
    length = f"{duration_text(node.length)} later" if node.length is not None else ""
    yield line("lifetime", f"a row is true from {_shown_name(node.start)} until {length or _shown_name(str(node.end))}")
    yield line(
        "repeat", f"each row once for each window of {duration_text(node.window_length)} that its lifetime touches"
    )
    yield from _late_by(node.late_by)


def _late_by(late_by: int | None) -> Iterator[str]:
    if late_by is None:
        yield line("remember (M)", "all rows: without REMEMBER any row may begin earlier than the rows before it")
    elif late_by:
        yield line("remember (M)", f"rows that begin up to {duration_text(late_by)} below the watermark")


def _groups(node: TimeGroups) -> Iterator[str]:
    yield from _partial_columns(node.aggregation)
    if node.aggregation.having is not None:
        yield line("having", expression_text(node.aggregation.having))
    for out in node.aggregation.select:
        yield line("output", f"{out.name} = {expression_text(out.expression)} ({out.expression.type})")
    times = " and ".join(column for column, _, _ in node.times)
    kind = "watermark" if len(node.times) == 1 else "joint watermark"
    yield line("state", f"a group until the {kind} of {times} covers it")


def _over(node: Over) -> Iterator[str]:
    for function in node.functions:
        argument = function.argument or ("*" if function.kind is RowFunctionKind.COUNT else "")
        argument += f", {function.distance}" if function.distance != 1 else ""
        partition = ", ".join(function.partition)
        clauses = [f"PARTITION BY {partition}"] if partition else []
        clauses += [f"ORDER BY {_sort_keys(function.order)}"] if function.order else []
        clauses += [function.frame.text] if function.frame != Frame() else []
        yield line("function", f"{function.name} = {function.kind}({argument}) OVER ({' '.join(clauses)})")
    yield from (line("output", f"{out.name} = {expression_text(out.expression)}") for out in node.outputs)
    until = (
        f"the watermark of {_shown_name(node.final_time_column)}" if node.final_time_column else "the end of the input"
    )
    has_history = any(node.final_time_column not in function.partition for function in node.functions)
    kept = "; then the rows that later rows use" if node.final_time_column and has_history else ""
    yield line("state", f"all rows, until {until}{kept}")


def _fill(node: Fill) -> Iterator[str]:
    value = "the values of the group's last row" if node.repeats else "NULL" if node.value is None else str(node.value)
    yield line("key", ", ".join(node.keys) or "none")
    yield line(
        "fill", f"{', '.join(node.filled_columns) or 'no column'} with {value}, in windows without rows of the group"
    )
    yield from (line("output", f"{out.name} = {expression_text(out.expression)}") for out in node.computed)
    yield line("state", "the last row of each group")


def _running(node: Running) -> Iterator[str]:
    yield line("key", ", ".join(node.keys) or "none")
    for function in node.functions:
        windows = "all windows of the group" if function.length is None else f"the last {function.length} windows"
        decay = "" if function.decay == 1 else f", each times {function.decay:g} for each later window"
        yield line("function", f"{function.name} = the sum of {function.argument} in {windows}{decay}")
    yield from (line("output", f"{out.name} = {expression_text(out.expression)}") for out in node.outputs)
    if node.having is not None:
        yield line("having", expression_text(node.having))
    yield line("closing", f"a group ends when {expression_text(node.closing)}")
    yield line("state", "the sums of each living group")


def _sample(node: Sample) -> Iterator[str]:
    yield line("key", ", ".join(node.keys))
    yield line("supergroup", ", ".join(node.supergroup) or "all groups of the window")
    for each in node.aggregates:
        argument = "*" if each.argument is None else expression_text(each.argument)
        scope = "supergroup" if each.of_supergroup else "group"
        yield line("aggregate", f"{each.name} = {each.kind}({argument}) of the {scope}")
    if node.functions is not None:
        functions = node.functions
        weight = "" if functions.weight is None else f", weight {functions.weight}"
        yield line("sample", f"{functions.family}, size {functions.size}, seed {functions.seed}{weight}")
    for name, condition in (("clean when", node.when), ("clean by", node.by), ("having", node.having)):
        if condition is not None:
            yield line(name, expression_text(condition))
    yield from (line("output", f"{out.name} = {expression_text(out.expression)}") for out in node.outputs)
    times = node.input.time_columns
    yield line("state", f"groups, until the {f'watermark of {times[0]}' if times else 'end of the input'}")


def _sort_keys(keys: Sequence[SortKey]) -> str:
    return ", ".join(key.column + " DESC" * key.descending + " NULLS FIRST" * key.nulls_first for key in keys)


def _sort(node: Sort) -> Iterator[str]:
    keys = _sort_keys(node.keys)
    scope = "in each window" if node.window_columns else "over all rows"
    if not node.passes_through:
        yield line("order", f"{f'{keys}, then ' if keys else ''}the other columns, {scope}")
    if node.hidden:
        yield line("keys only", ", ".join(node.hidden))
    if node.limit is not None:
        after = f", after the first {node.offset:,}" if node.offset else ""
        yield line("limit", f"{node.limit:,} rows{' per window' if node.window_columns else ''}{after}")
    elif node.offset:
        yield line("offset", f"without the first {node.offset:,} rows{' per window' if node.window_columns else ''}")
    if node.passes_through:
        yield line("state", "none: any rows are the first ones")
    else:
        until = f"the watermark of {_shown_name(node.time_columns[0])}" if node.time_columns else "the end of the input"
        yield line("state", f"{'all' if node.limit is None else 'the first'} rows, until {until}")


def _watermark(node: Node, plan: Plan) -> str:
    """Return the times of a node's watermarks and, for a join, the nodes that need them."""
    times = " and ".join(_shown_name(name) for name in node.time_columns)
    if not times or (isinstance(node, InstantRanks | OverlapJoin | Snapshots | TouchedWindows) and node.waits_for_end):
        return "none before the end"
    if not isinstance(node, Join):
        return times
    if node.watermark_form is WatermarkForm.JOINT:
        return f"{times}, joint: a group is written once a joint watermark covers both times"
    readers = [type(each).__name__.lower() for each in plan.nodes if node in each.inputs]
    return f"{times}, for {', '.join(readers) or 'the results'}"


def _text(expression: Expression) -> str:
    """Return the text of an expression over rows, with ts for the pane column."""
    spelled = {column.name: replace(column, name=_shown_name(column.name)) for column in columns_of(expression)}
    return expression_text(substitute_columns(expression, spelled))


def _shown_name(name: str) -> str:
    return {PANE: "ts", TOUCHED: "the touched window"}.get(name, name)


def _signed_duration(nanoseconds: int) -> str:
    if nanoseconds == 0:
        return "0"
    return ("-" if nanoseconds < 0 else "") + duration_text(abs(nanoseconds))


def explain(plan: Plan) -> str:
    """Return the plan as lines of text, without a line end at the end."""
    head = [f"query {plan.name}: {' '.join(plan.sql.split())}", ""]
    if plan.scan is None:
        return "\n".join([*head, *graph_lines(plan)])
    (leaf,), aggregation = plan.leaves, plan.scan.aggregation
    watched = [*function_lines(plan), *watched_file_lines(plan)]
    changes = consistency_lines(plan.scan.consistency) if isinstance(plan.scan, ChangingWindows) else ()
    return "\n".join([*head, *low_lines(leaf, aggregation, watched), "", *high_lines(aggregation, leaf), *changes])
