"""A graph of a query as people read it: its nodes in order, what each reads, does, promises and keeps, and how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from highlevel.aggregation import Aggregation
from highlevel.joins.spec import Band, JoinKind, Progress
from highlevel.plan.nodes import PANE, Apply, Distinct, Join, Leaf, Node, PairGroups, Select, Union, Windowed
from highlevel.plan.partitioning import substituted
from highlevel.plan.plan import Plan
from lowlevel.durations import duration_text
from lowlevel.expressions.tree import Expression, columns_of
from lowlevel.kinds import columns_of_kind
from queries.explain.lines import high_lines, line, rates_text, remembering_lines, watched_lines
from queries.text.printer import expression_text

KINDS = {
    JoinKind.INNER: "pairs that match",
    JoinKind.LEFT: "pairs that match, and rows of the left without a partner once none can come",
    JoinKind.RIGHT: "pairs that match, and rows of the right without a partner once none can come",
    JoinKind.FULL: "pairs that match, and rows of either side without a partner once none can come",
    JoinKind.SEMI: "rows of the left at their first match, once each",
    JoinKind.ANTI: "rows of the left without a partner, once none can come",
}
"""What leaves each kind of join."""


def graph_lines(plan: Plan) -> Iterator[str]:
    """Yield the nodes, those that are read before those that read them, with a blank line before each."""
    names = dict(zip(plan.nodes, plan.node_names, strict=True))
    verb = "runs" if len(plan.leaves) == 1 else "run"
    many = f"{len(plan.nodes)} nodes, of which {len(plan.leaves)} {verb} next to the packets"
    yield f"graph: {many}; rows in any order of arrival, up to what is promised"
    for node, name in names.items():
        reads = ", ".join(names[each] for each in node.inputs)
        yield ""
        yield f"{name}: " + (_low_level(node) if isinstance(node, Leaf) else f"over {reads}")
        yield from _node_lines(node, names)
        yield line("promises", _promises(node, plan))
    watched = list(watched_lines(plan))
    if watched:
        yield from ("", "looked into:", *watched)


def _low_level(leaf: Leaf) -> str:
    how = "in a table of fixed size" if leaf.low.reduced else "and each row that passes WHERE is passed on as it is"
    return f"low level, next to the {leaf.low.kind}, once per link, {how}"


def _node_lines(node: Node, names: dict[Node, str]) -> Iterator[str]:
    match node:
        case Leaf():
            yield from _leaf(node)
        case Union():
            yield line("meld", "rows pass at once; progress is that of the slowest input")
        case Select():
            yield line("keep", _text(node.where))
        case Apply():
            yield from _columns(node)
        case Distinct():
            yield line("distinct", f"the first row of each {', '.join(node.keys)}")
            yield line("state", f"what was seen, until {' and '.join(node.progress)} is promised beyond it")
        case Join():
            yield from _join(node, names)
        case Windowed():
            yield line(
                "time", _spelled(node.time) if node.aggregation.windowed else "none: the whole input is one window"
            )
            if not node.merges_partials:
                yield from _of_rows(node.aggregation)
            yield from list(high_lines(node.aggregation))[1:]
        case PairGroups():
            yield from _groups(node)
        case _:
            parameters = {field.name: getattr(node, field.name) for field in fields(node)}
            yield from (line(name, str(value)) for name, value in parameters.items() if value not in node.inputs)


def _leaf(leaf: Leaf) -> Iterator[str]:
    low = leaf.low
    every = "those of every link, or of the one that has this name"
    bound = every if leaf.of_every_link else "the files bound to each name, every link on its own"
    yield line("streams", f"{' UNION '.join(leaf.streams)}: {bound}")
    yield line("rows", f"{low.kind}: each is {columns_of_kind(low.kind).row}")
    yield line("columns", f"{', '.join(sorted(low.columns))}: all that is decoded")
    if low.sampling is not None:
        yield line("sampling", f"{rates_text(low.sampling)}, whatever exporters announce")
    where = "every row" if low.where is None else f"{expression_text(low.where)}, before anything is kept for the row"
    yield line("keep", where)
    yield from remembering_lines(low)
    if low.reduced:
        yield line("key", ", ".join(expression_text(key.expression) for key in low.keys) or "none")
        yield line("pane", duration_text(low.pane))
    else:
        yield line("goes up", ", ".join(["ts", *(key.name for key in low.keys)]))


def _join(join: Join, names: dict[Node, str]) -> Iterator[str]:
    spec = join.spec
    left, right = (str(dict(side.columns)[side.time]) for side in (spec.left, spec.right))
    yield line("kind", f"{spec.kind}: {KINDS[spec.kind]}; left is {names[join.left]}, right {names[join.right]}")
    if isinstance(spec.window, Band):
        low, high = _signed(spec.window.low), _signed(spec.window.high)
        yield line("window", f"{right} - {left} from {low} to {high}, both included ({_edge(spec.window)})")
        kept = (max(0, spec.window.high), max(0, -spec.window.low))
        beyond = [f"{duration_text(each)} beyond" if each else "beyond" for each in kept]
        yield line("state", f"rows of the left until {right} is promised {beyond[0]} their {left},")
        yield line("", f"rows of the right until {left} is promised {beyond[1]} their {right}")
    else:
        yield line("window", f"{left} and {right} in the same {duration_text(spec.window.length)}, tumbling")
        yield line("state", "rows of a side until the other is promised beyond their window")
    for one, other in spec.keys:
        yield line("key", f"{expression_text(one)} of the left = {expression_text(other)} of the right")
    if not spec.keys:
        yield line("key", "none: every row of the one window is compared with every row of the other")
    if spec.residual is not None:
        yield line("of pairs", expression_text(spec.residual))
    yield line("gives", ", ".join(column.name for column in join.columns))


def _edge(window: Band) -> str:
    return f"{window.boundary.name.replace('_', '-')} {window.boundary.value}"


def _columns(node: Apply) -> Iterator[str]:
    """Say what is computed, and which columns are as they were."""
    kept = []
    for out in node.outputs:
        text = _text(out.expression)
        if text == out.name:
            kept.append(out.name)
        else:
            yield line("column", f"{out.name} = {text}")
    if kept:
        yield line("as they are", ", ".join(kept))


def _of_rows(aggregation: Aggregation) -> Iterator[str]:
    """Say what each row is as a partial."""
    for key in aggregation.low.keys:
        yield line("key", f"{key.name} = {_text(key.expression)}")
    for sub in aggregation.low.subaggregates:
        argument = "*" if sub.argument is None else _text(sub.argument)
        yield line("of each row", f"{sub.name} = {sub.kind}({argument})")


def _groups(node: PairGroups) -> Iterator[str]:
    yield from _of_rows(node.aggregation)
    if node.aggregation.having is not None:
        yield line("having", expression_text(node.aggregation.having))
    for out in node.aggregation.select:
        yield line("output", f"{out.name} = {expression_text(out.expression)} ({out.expression.type})")
    times = " and ".join(column for column, _, _ in node.times)
    what = "is promised beyond it" if len(node.times) == 1 else "are promised beyond it, in both at once: a box"
    yield line("state", f"a group until {times} {what}")


def _promises(node: Node, plan: Plan) -> str:
    """Say what is promised of a node's rows, and for whose sake."""
    shown = " and ".join(_spelled(name) for name in node.progress)
    if not shown:
        return "nothing before the end"
    if not isinstance(node, Join):
        return shown
    if node.form is Progress.JOINT:
        return f"{shown}, as boxes: groups of both leave as soon as one covers them"
    readers = [type(each).__name__.lower() for each in plan.nodes if node in each.inputs]
    return f"{shown}: what its reader goes by ({', '.join(readers) or 'nobody: these are the results'})"


def _text(expression: Expression) -> str:
    """Print an expression over rows, whose time is ts to those who ask."""
    spelled = {column.name: replace(column, name=_spelled(column.name)) for column in columns_of(expression)}
    return expression_text(substituted(expression, spelled))


def _spelled(name: str) -> str:
    return "ts" if name == PANE else name


def _signed(nanoseconds: int) -> str:
    if nanoseconds == 0:
        return "0"
    return ("-" if nanoseconds < 0 else "") + duration_text(abs(nanoseconds))
