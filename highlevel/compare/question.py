"""Questions: queries that can be compared.

The plan of a question reads single rows, and computes groups of windows over links, or a join of two inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import BOUNDS, Aggregation, Output
from highlevel.joins.spec import JoinKind, JoinSpec, Side, Tumbling
from highlevel.plan.answer_nodes import Fill, Over, Running, Sort
from highlevel.plan.nodes import PANE, Apply, Distinct, Filter, Join, Leaf, Node, Union, Windowed
from highlevel.plan.plan import Plan
from highlevel.windows.kind import WHOLE_INPUT, SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.subaggregates import count_of_rows

SUPPORTED = (
    "tumbling or sliding windows over time of one link or several (UNION and MERGE too), or an inner join of two with "
    "a band or a tumbling window, with or without such windows on top"
)
"""Queries that have an in-order counterpart."""

LEFT_TIME, RIGHT_TIME = ".left_time", ".right_time"
"""Names of the columns of times in pairs, if the query does not return these times."""


class NotComparedError(WiretideError):
    """A query without an in-order counterpart, or an option that does not fit."""

    status = 2

    def __init__(self, unsupported: str) -> None:
        """`unsupported`: a description of the query. The message also lists the supported queries."""
        super().__init__(f"{unsupported} cannot be compared; expected {SUPPORTED}")


@dataclass(frozen=True)
class Question:
    """The plan of a query, changed to read single rows.

    Its last result columns are not part of the answer; they identify rows.

    `result_columns`: the result columns of the query. `keys`: the columns that identify a result; without windows all
    columns. `count_column`: the column with the number of rows of a group, None without windows.
    """

    plan: Plan
    result_columns: tuple[str, ...]
    keys: tuple[str, ...]
    count_column: str | None

    @property
    def join(self) -> Join | None:
        """Join of the plan, or None."""
        return next((node for node in self.plan.nodes if isinstance(node, Join)), None)

    @property
    def windowed(self) -> bool:
        """Return True if results are groups of windows."""
        return self.count_column is not None

    @property
    def window(self) -> SlidingWindow | None:
        """The windows of the results, None without windows."""
        return self.plan.root.aggregation.window if isinstance(self.plan.root, Windowed) else None  # type: ignore[return-value]

    @property
    def max_settle_time(self) -> int:
        """Maximum time in ns from the arrival of a row to the last result that it affects, with exact watermarks."""
        window, join = self.window, self.join
        longest = window.range + window.slide if window is not None else 0
        if join is not None:
            of_join = join.spec.window
            longest += of_join.length if isinstance(of_join, Tumbling) else of_join.left_range + of_join.right_range
        return longest


def question_of(plan: Plan) -> Question:
    """Convert a plan to a question. Raise NotComparedError if the plan has no in-order counterpart."""
    root = plan.root
    if any(isinstance(node, Sort) for node in plan.nodes):
        raise NotComparedError("a query with ORDER BY or LIMIT")
    if any(isinstance(node, Fill) for node in plan.nodes):
        raise NotComparedError("a query with FILL")
    if any(isinstance(node, Running) for node in plan.nodes):
        raise NotComparedError("a query with CLOSING WHEN")
    if plan.is_by_arrival:
        raise NotComparedError("a query with WITH CONSISTENCY or EMIT CHANGES")
    if isinstance(root, Windowed):
        _check_windows(root.aggregation)
        counting = root.aggregation.with_row_counts()
        if root.merges_partials and isinstance(root.input, Leaf):
            row_plan = replace(counting.low, reduced=False, pane=1)
            leaf = replace(root.input, low=row_plan)
            return _question_of_windows(plan, Windowed(leaf, replace(counting, low=row_plan), PANE))
        windowed = Windowed(_make_row_wise(root.input), replace(counting, low=replace(counting.low, pane=1)), root.time)
        return _question_of_windows(plan, windowed)
    return _question_of_pairs(plan, _make_row_wise(root))


def _check_windows(aggregation: Aggregation) -> None:
    window = aggregation.window
    if window == WHOLE_INPUT:
        raise NotComparedError("a query without a window")
    if not isinstance(window, SlidingWindow):
        raise NotComparedError(f"a window of this kind ({type(window).__name__})")
    if window.origin or aggregation.low.origin:
        raise NotComparedError("a window with another origin")
    if aggregation.foldings or aggregation.low.spread:
        raise NotComparedError("a query with sketches, or with rows that are spread over time,")
    if aggregation.emit_late:
        raise NotComparedError("a query that reports late rows")


def _question_of_windows(plan: Plan, root: Windowed) -> Question:
    aggregation = root.aggregation
    keys = {key.name: key.expression.type for key in aggregation.low.keys}
    columns: dict[str, Column] = {column.name: column for column in root.input.columns}
    hidden_outputs: list[Output] = []
    for name in aggregation.group_by:
        column = Column(name, keys[name], nullable=True) if name in keys else columns[name]
        hidden_outputs.append(Output(f".{name}", column))
    counted = count_of_rows(aggregation.low.subaggregates)
    assert counted is not None, "the plan counts rows"
    (rows,) = (sub for sub in aggregation.low.subaggregates if sub.name == counted)
    hidden = (*hidden_outputs, Output(".rows", Column(counted, rows.type)))
    root = replace(root, aggregation=replace(aggregation, select=(*aggregation.select, *hidden)))
    graph = Plan(plan.name, plan.sql, root, plan.layer)
    if sum(isinstance(node, Join) for node in graph.nodes) > 1:
        raise NotComparedError("a query with several joins")
    return Question(graph, tuple(plan.schema.names), (*BOUNDS, *(out.name for out in hidden_outputs)), ".rows")


def _question_of_pairs(plan: Plan, root: Node) -> Question:
    graph = Plan(plan.name, plan.sql, root, plan.layer)
    if sum(isinstance(node, Join) for node in graph.nodes) != 1:
        raise NotComparedError("a query of rows, without a window or a join, or with several joins")
    return Question(graph, tuple(plan.schema.names), tuple(plan.schema.names), None)


def _make_row_wise(node: Node) -> Node:
    """Return a node whose joins have two inputs and whose other operators process single rows."""
    match node:
        case Leaf() if not node.low.reduced:
            return node
        case Union():
            return node.with_inputs(map(_make_row_wise, node.inputs))
        case Filter() | Apply():
            return replace(node, input=_make_row_wise(node.input))
        case Join():
            return _with_times(replace(node, left=_make_row_wise(node.left), right=_make_row_wise(node.right)))
    words = {Over: "with window functions (OVER)", Distinct: "with DISTINCT"}
    raise NotComparedError(f"a query {words.get(type(node), 'that reads groups')}")


def _with_times(join: Join) -> Join:
    """Return the join with the times of both sides in its results, which are needed for latencies."""
    spec = join.spec
    if spec.kind is not JoinKind.INNER:
        raise NotComparedError(f"a {spec.kind} join")
    if len(join.left.time_columns) != 1 or len(join.right.time_columns) != 1:
        raise NotComparedError("a join of rows without a time")
    left, right = _with_time(spec.left, LEFT_TIME), _with_time(spec.right, RIGHT_TIME)
    return replace(join, spec=replace(spec, left=left, right=right))


def _with_time(side: Side, name: str) -> Side:
    return side if side.time_output is not None else replace(side, columns=(*side.columns, (side.time, name)))


def times_of_pairs(spec: JoinSpec) -> tuple[str, str]:
    """Return the columns of pairs that contain the times of their left and right rows."""
    names: Sequence[str | None] = (spec.left.time_output, spec.right.time_output)
    left, right = names
    assert left is not None, "_with_times added the times to the columns"
    assert right is not None, "_with_times added the times to the columns"
    return left, right
