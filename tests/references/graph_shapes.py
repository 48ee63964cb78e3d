"""The graph of a query as short lines about each node, those that are read first: for tables of texts and graphs."""

from __future__ import annotations

from highlevel.joins.spec import Band
from highlevel.plan.nodes import Apply, Distinct, Filter, Join, Leaf, Node, TimeGroups, Union, Windowed
from lowlevel.expressions.tree import Expression
from queries.gsql import compile_query
from queries.text.printer import expression_text

SECOND = 10**9


def shape(sql: str, layer: str = "outer") -> list[str]:
    """Compile a query that is a graph, and tell each of its nodes."""
    plan = compile_query(sql, layer=layer)
    names = dict(zip(plan.nodes, plan.node_names, strict=True))
    return [line for node, name in names.items() for line in f"{name}: {_told(node, names)}".split("; ") if line]


def _told(node: Node, names: dict[Node, str]) -> str:
    match node:
        case Leaf():
            keys = " ".join(key.name for key in node.low.keys)
            pane = "rows" if not node.low.reduced else f"panes {node.low.pane / SECOND:g} s"
            return f"{'+'.join(node.streams)} {pane} [{keys}] {_text(node.low.where)}".rstrip()
        case Union():
            return " ".join(names[each] for each in node.inputs)
        case Filter():
            return _text(node.where)
        case Apply():
            outputs = ", ".join(
                out.name if out.name == _text(out.expression) else f"{out.name}={_text(out.expression)}"
                for out in node.outputs
            )
            time_outputs = ", ".join(
                f"{each.name} < {each.source}"
                + (f" - {each.shift / SECOND:g} s" if each.shift else "")
                + (f" / {each.length / SECOND:g} s" if each.length > 1 else "")
                for each in node.time_outputs
            )
            return f"{outputs} | {time_outputs}".rstrip(" |")
        case Distinct():
            return " ".join(node.keys)
        case Join():
            return _join(node, names)
        case Windowed():
            keys = " ".join(f"{key.name}={_text(key.expression)}" for key in node.aggregation.low.keys)
            of = node.aggregation.window
            window = f"{of.range / SECOND:g}/{of.slide / SECOND:g} s of {node.time}"
            return f"{window if node.aggregation.windowed else 'all'} [{keys}]"
        case TimeGroups():
            times = ", ".join(f"{column}/{interval}={name}" for column, interval, name in node.times)
            keys = " ".join(f"{key.name}={_text(key.expression)}" for key in node.aggregation.low.keys)
            return f"{times} [{keys}]"


def _join(node: Join, names: dict[Node, str]) -> str:
    spec = node.spec
    window = spec.window
    if isinstance(window, Band):
        length = f"{window.low / SECOND:g}..{window.high / SECOND:g} s"
    else:
        length = f"tumbling {window.length / SECOND:g} s"
    keys = ", ".join(f"{_text(one)} = {_text(other)}" for one, other in spec.keys)
    columns = " ".join(column.name for column in node.columns)
    sides = f"{names[node.left]}.{spec.left.time} {spec.kind} {names[node.right]}.{spec.right.time}"
    residual = _text(spec.residual)
    tested = "".join([f"; keys {keys}" if keys else "", f"; pairs {residual}" if residual else ""])
    return f"{sides}, {length}, {node.watermark_form}{tested}; gives {columns}"


def _text(expression: Expression | None) -> str:
    return "" if expression is None else expression_text(expression)
