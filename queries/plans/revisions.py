"""DISTINCT ON, MERGE and CHANGES BY after a table in FROM: a row of the result may depend on several rows of the table.

A condition on only key columns selects whole keys, so it is evaluated on the input. Other conditions are evaluated on
the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.plan.nodes import Apply, Filter, Node, TimeOutput
from highlevel.plan.revision_nodes import OPEN, RECORDS, FirstCopies, FlowMerge, NetRows, Role
from lowlevel.expressions.tree import Binary, Column, Conditional, Expression, IsNull, Literal, computed_column
from lowlevel.expressions.types import Op, Type
from queries.binding.binder import Binder
from queries.binding.names import Names, Scope
from queries.plans.relations import (
    LinkRelation,
    NamedTable,
    Relation,
    RelationNode,
    TableNames,
    conjunction,
    names_in,
    rename_columns,
)
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.literals import duration_of
from queries.text.printer import expression_text

FLOW_KEY = (
    *("exporter", "observation_domain", "input"),
    *("srcIP", "destIP", "srcPort", "destPort", "protocol", "tos"),
)
"""The default key of MERGE: the columns that are equal in all records of a flow."""

START_COLUMN, REASON_COLUMN, FLAGS_COLUMN, PROTOCOL_COLUMN = "start_ts", "flowEndReason", "tcp_flags", "protocol"
ACTIVE_TIMEOUT, TCP, FIN_OR_RST = 2, 6, 5

_COUNTERS = frozenset({"packets", "bytes", "raw_packets", "raw_bytes"})
_INITIATOR_COUNTERS = frozenset({"initiatorOctets", "initiatorPackets", "responderOctets", "responderPackets"})


@dataclass(frozen=True)
class FirstCopiesRelation:
    """A table without copies. `keys` are the names of the compared columns."""

    inner: Relation
    keys: tuple[str, ...]
    within: int

    @property
    def times(self) -> tuple[str, ...]:
        """The default time column of the table."""
        return self.inner.times[:1]

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The columns of the table."""
        return self.inner.visible_names

    def column(self, name: str) -> Column | None:
        """Return a column of the table."""
        return self.inner.column(name)

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Return the first copies."""
        below, above = _split_conditions(where, self.keys, self.inner)
        used = {*needed, *self.keys, *self.times, *names_in(above)}
        relation_node = self.inner.make_node(used, self.times[0], below)
        node = FirstCopies(relation_node.node, tuple(relation_node.names[key] for key in self.keys), self.within)
        return _with_names(node, self, used, relation_node.names, above)


@dataclass(frozen=True)
class FlowsRelation:
    """Flow records that are merged to flows."""

    inner: LinkRelation
    keys: tuple[str, ...]
    within: int
    idle: int | None

    @property
    def times(self) -> tuple[str, ...]:
        """The end of the flow."""
        return self.inner.times

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The columns of records, and the additional columns of flows."""
        return (*self.inner.visible_names, RECORDS, OPEN)

    def column(self, name: str) -> Column | None:
        """Return a column of records or of flows."""
        own = {RECORDS: Column(RECORDS, Type.INT), OPEN: Column(OPEN, Type.BOOL)}
        return own.get(name.lower()) or self.inner.column(name)

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Return the flows."""
        below, above = _split_conditions(where, self.keys, self.inner)
        shown = {*needed, *self.keys, *self.times, START_COLUMN, *names_in(above)} - {RECORDS, OPEN}
        ended = self._end_condition
        relation_node = self.inner.make_node(shown | names_in([ended]), self.times[0], below)
        names = {name: relation_node.names[name] for name in sorted(shown)}
        roles = tuple((names[name], Role.LAST if name in self.keys else _role(name)) for name in names)
        keys = tuple(names[key] for key in self.keys)
        ended = rename_columns(ended, relation_node.names)
        node = FlowMerge(relation_node.node, keys, roles, self.within, self.idle, names[START_COLUMN], ended)
        names |= {RECORDS: RECORDS, OPEN: OPEN}
        return _with_names(node, self, names, names, above)

    @property
    def _end_condition(self) -> Expression:
        """The condition that marks the last record of a flow: the reason of its export, or else a FIN or RST."""
        columns = (self.inner.column(name) for name in (REASON_COLUMN, FLAGS_COLUMN, PROTOCOL_COLUMN))
        reason, flags, protocol = (column for column in columns if column is not None)
        closing = Binary(Op.NE, Binary(Op.BIT_AND, flags, Literal(FIN_OR_RST, Type.INT)), Literal(0, Type.INT))
        closed = Binary(Op.AND, Binary(Op.EQ, protocol, Literal(TCP, Type.INT)), closing)
        return Conditional(IsNull(reason), closed, Binary(Op.NE, reason, Literal(ACTIVE_TIMEOUT, Type.INT)))


@dataclass(frozen=True)
class NetRelation:
    """The rows that a change log adds up to. `change`: the column with the operation or the weight."""

    inner: Relation
    change: str

    @property
    def times(self) -> tuple[str, ...]:
        """The time columns of the table."""
        return self.inner.times

    @property
    def visible_names(self) -> tuple[str, ...]:
        """The columns of the table except `change`."""
        return tuple(name for name in self.inner.visible_names if name != self.change)

    def column(self, name: str) -> Column | None:
        """Return a column of the table except `change`."""
        return None if name.lower() == self.change.lower() else self.inner.column(name)

    def make_node(self, needed: Iterable[str], time: str | None, where: Sequence[Expression]) -> RelationNode:
        """Return the rows. A withdrawal must be equal to its row in all columns, so all columns are read."""
        placed = self.inner.make_node(self.inner.visible_names, time or self.times[0], where)
        node = NetRows(placed.node, placed.names[self.change])
        return RelationNode(node, {name: column for name, column in placed.names.items() if name != self.change})


def without_copies(sql: str, clause: tree.DistinctOn, inner: Relation) -> FirstCopiesRelation:
    """Bind DISTINCT ON. Raises QueryError for a table without a time column, and for columns of bytes."""
    _check_time(sql, "DISTINCT ON", clause.keyword, inner)
    return FirstCopiesRelation(
        inner, _bind_keys(sql, "DISTINCT ON", clause.columns, inner), _bind_length(sql, clause.within)
    )


def merged_flows(sql: str, clause: tree.MergeRecords, inner: Relation) -> FlowsRelation:
    """Bind MERGE. Raises QueryError for other rows than flow records."""
    if not isinstance(inner, LinkRelation) or inner.links.source.kind != "flows":
        kind = inner.links.source.kind if isinstance(inner, LinkRelation) else "results of a query"
        expected = "flow records (flows or LINK.flows), as in (SELECT … FROM flows MERGE WITHIN …)"
        raise QueryError(f"MERGE of {kind}", sql, clause.keyword.start, expected)
    keys = _bind_keys(sql, "MERGE BY", clause.columns, inner) if clause.columns else FLOW_KEY
    idle = None if clause.idle is None else _bind_length(sql, clause.idle)
    return FlowsRelation(inner, keys, _bind_length(sql, clause.within), idle)


def net_rows(sql: str, clause: tree.ChangeLog, inner: Relation) -> NetRelation:
    """Bind CHANGES BY. Raises QueryError for packets, for rows without a time, and for a column of another type."""
    if isinstance(inner, LinkRelation):
        expected = "a table or a query: captures have no withdrawn rows"
        raise QueryError(f"CHANGES BY of {inner.links.source.kind}", sql, clause.keyword.start, expected)
    _check_time(sql, "CHANGES BY", clause.keyword, inner)
    word, column = clause.column, inner.column(clause.column.text)
    if column is None:
        expected = "the column with the operation or the weight of each change"
        raise QueryError(f"unknown column '{word.text}'", sql, word.start, expected, inner.visible_names, word.text)
    if column.type not in (Type.INT, Type.TEXT):
        expected = "a text such as +I, -D, insert or delete, or an integer: the weight"
        raise QueryError(f"CHANGES BY a column of type {column.type}", sql, word.start, expected)
    return NetRelation(inner, column.name)


def _bind_length(sql: str, length: tree.Length) -> int:
    return 0 if float(length.number) == 0 else duration_of(sql, length)


def _check_time(sql: str, clause: str, keyword: tree.Word, inner: Relation) -> None:
    if not inner.times:
        expected = "rows with a time: a query that selects ts, or a table with a time column"
        raise QueryError(f"{clause} of rows without a time", sql, keyword.start, expected)


def _bind_keys(sql: str, clause: str, columns: Sequence[tree.Expression], inner: Relation) -> tuple[str, ...]:
    """Return the names of key columns. The low level computes expressions over columns of links."""
    names: Names = (
        inner.names(None)
        if isinstance(inner, LinkRelation)
        else TableNames(sql, [NamedTable("", inner)], qualify=False)
    )
    keys: list[str] = []
    for column in columns:
        bound = Binder(sql, clause, column, Scope(names).resolve_in_row).bind()
        if isinstance(bound, Column):
            name = bound.name
        elif isinstance(inner, LinkRelation):
            name = expression_text(bound)
            inner.computed[name] = bound
        else:
            expected = "a column; a query in FROM computes others: (SELECT ts, len / 100 AS n FROM …) DISTINCT ON (n)"
            raise QueryError(f"an expression in {clause}", sql, column.start, expected)
        if bound.type is Type.BYTES:
            raise QueryError(f"{clause} with bytes", sql, column.start, f"text({name}), or columns of other types")
        keys.append(name)
    return tuple(dict.fromkeys(keys))


def _split_conditions(
    where: Sequence[Expression], keys: Sequence[str], inner: Relation
) -> tuple[list[Expression], list[Expression]]:
    """Divide conditions into conditions that read only key columns, and all others."""
    below = [each for each in where if names_in([each]) <= set(keys)]
    above = [each for each in where if each not in below]
    return below, [inner.move_byte_functions_down(each) for each in above] if isinstance(inner, LinkRelation) else above


def _with_names(
    node: Node,
    relation: FirstCopiesRelation | FlowsRelation,
    used_columns: Iterable[str],
    names: Mapping[str, str],
    where: Sequence[Expression],
) -> RelationNode:
    """Return the rows that satisfy all of `where`, with the `used_columns` columns by their names in the relation."""
    inner, (time,) = relation.inner, relation.times
    computed = inner.computed if isinstance(inner, LinkRelation) else {}
    outputs: list[Output] = []
    for name in sorted(used_columns):
        column = computed_column(name, computed[name]) if name in computed else relation.column(name)
        assert column is not None, name
        outputs.append(Output(name, replace(column, name=names[name])))
    named = Apply(node, tuple(outputs), (TimeOutput(time, names[time]),))
    condition = conjunction(where)
    rows = named if condition is None else Filter(named, condition)
    return RelationNode(rows, {out.name: out.name for out in outputs})


def _role(name: str) -> Role:
    """Return how a column of flow records is merged."""
    if name in _COUNTERS or name in _INITIATOR_COUNTERS or name.endswith("DeltaCount"):
        return Role.SUM
    if name in (FLAGS_COLUMN, "tcpControlBits", "reverseTcpControlBits"):
        return Role.BITS
    if name.endswith("TotalCount") or name in ("ts", "end_ts", "export_ts", "arrival_ts"):
        return Role.GREATEST
    return Role.LEAST if name == START_COLUMN or name.startswith("flowStart") else Role.LAST
