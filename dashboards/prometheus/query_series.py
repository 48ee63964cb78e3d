"""A closed window of a query as a limited number of series: the groups with the greatest values, and `other`.

The select list has two kinds of columns. **Labels** identify a group: columns of GROUP BY, expressions over only such
columns, and every address, MAC or text. **Values** are numbers computed from aggregates. Each value column is one gauge
with at most `top + 1` series. Without this limit, labels with addresses could cause any number of series.

Rows can have equal labels if SELECT lacks a column of GROUP BY. Such rows are one group here, because Prometheus
rejects a scrape in which a series is repeated. Their values are combined (folded) in the same way as for `other`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass
from dashboards.prometheus.names import Names, label_name, prometheus_name
from dashboards.prometheus.stable_groups import StableGroups
from highlevel.aggregation import Output
from highlevel.plan.plan import Plan
from highlevel.results.row_limit import REST_ROWS
from lowlevel.expressions.arrow import to_text
from lowlevel.expressions.tree import Binary, Column, Expression, Literal, Present, Unary, WideSum, columns_of
from lowlevel.expressions.types import Op, Type
from lowlevel.subaggregates import MERGE, Kind

# All groups without separate series are *folded* into `other`. The values of `other` are those that the query would
# return if all these groups were one group. Rows contain only values, no sub-aggregates. So only some expressions can
# be folded: count(*), count(x), sum(x) add the values min(x), max(x) the smallest, the largest value -f, f + g, f - g,
# f * c, f / c (FLOAT) add the values, if the values of f and g are added; c is a constant avg(x), sum(x) / count(*),
# count(*) + 1, … impossible: the values of the groups do not determine the value of all first(x), last(x),
# count(DISTINCT x), … impossible: rows contain neither times nor the values of a group bit_and(x), bit_or(x),
# bit_xor(x) not supported: Arrow has no such aggregate A sum over no value is NULL, not 0. Folding skips a NULL. In
# `f + g`, a NULL in one operand would also remove the value of the other operand, so neither operand may be nullable.


SUM = "sum"
FOLDS = (SUM, "min", "max")
"""Arrow's aggregates that can fold values."""


def fold_of(expression: Expression, kinds: Mapping[str, Kind]) -> str | None:
    """Return the Arrow aggregate (`sum`, `min`, `max`) that folds values of `expression`, or None.

    `kinds`: the kind of each sub-aggregate of the plan, by its column name.
    """
    match expression:
        case Column(name=name):
            merge = MERGE[kinds[name]] if name in kinds else None
            return merge if merge in FOLDS else None
        case Present(value=value) | WideSum(high=value):
            return fold_of(value, kinds)
        case Unary(op=Op.NEG, operand=operand):
            return SUM if fold_of(operand, kinds) == SUM else None
        case Binary(op=Op.ADD | Op.SUB, left=left, right=right):
            exact = not left.nullable and not right.nullable
            return SUM if exact and fold_of(left, kinds) == fold_of(right, kinds) == SUM else None
        case Binary(op=Op.MUL, left=Literal(value=int() | float()), right=factor):
            return SUM if fold_of(factor, kinds) == SUM else None
        case Binary(op=Op.MUL, left=factor, right=Literal(value=int() | float())):
            return SUM if fold_of(factor, kinds) == SUM else None
        case Binary(op=Op.DIV, left=dividend, right=Literal(value=int() | float() as divisor)) if divisor:
            return SUM if expression.type is Type.FLOAT and fold_of(dividend, kinds) == SUM else None
        case _:
            return None


MAX_GROUPS_OF_SMALL_WINDOW = 2_000
"""In a window with at most this number of groups, a dictionary finds the shown groups faster than comparisons of
columns.
"""

OTHER = "other"
"""The value of all labels of the series for the groups without separate series."""

ADDRESSES = (Type.ADDRESS, Type.MAC)
"""Types whose values are bytes, which are converted to text for labels."""

Series = tuple[tuple[str, ...], float]
"""Label values, in the order of `QuerySeries.labels`, and the value."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value column: its name in the rows, metric name, help, and the aggregate that folds it (None: impossible)."""

    column: str
    name: str
    help: str
    fold: str | None


@dataclass(frozen=True, slots=True)
class ShownSeries:
    """The series of one window, one tuple per value column.

    `groups`: number of result rows. `folded`: number of result rows that are part of `other`.
    """

    series: tuple[tuple[Series, ...], ...]
    groups: int
    folded: int


class QuerySeries:
    """The labels and value columns of the series of one query. They depend only on the plan. Immutable.

    * `rank`: the value column that selects the shown groups; None means the first value column of the select list.
    * `has_counters`: True if value columns that can be added have counters too. `histogram`: the column of bounds of a
      histogram.

    Raises ValueError for equal names, and for a `rank` that is not a value column.
    """

    def __init__(
        self,
        plan: Plan,
        top: int,
        rank: str | None = None,
        *,
        has_counters: bool = False,
        histogram: str | None = None,
    ) -> None:
        aggregation = plan.aggregation
        if aggregation is None:
            raise ValueError(f"the results of query {plan.name!r} have no windows: only windows have series")
        self.is_provisional = plan.has_changes
        """True if the shown window may still be corrected."""
        self.plan = plan = plan.with_final_rows()
        self.aggregation = aggregation
        self.top, self.has_counters, self.histogram = top, has_counters, histogram
        columns = Names("column")
        for index, name in enumerate(plan.schema.names):
            columns.reserve(name, f"column {index + 1} of the results of query {plan.name!r}")
        kinds = {sub.name: sub.kind for sub in aggregation.low.subaggregates}
        aggregates = {*kinds, *(column.name for column in aggregation.details)}
        aggregates |= {column.name for column in aggregation.user_columns}
        aggregates |= plan.computed_names
        values = [out for out in aggregation.select if self._is_value(out, aggregates)]
        self._keys = [out for out in aggregation.select if out not in values]
        self.labels = tuple(label_name(out.name) for out in self._keys)
        labels = Names("label")
        for label, key in zip(self.labels, self._keys, strict=True):
            labels.reserve(label, f"column {key.name!r} of query {plan.name!r}")
        names = [out.name for out in values]
        if rank is not None and rank not in names:
            raise ValueError(
                f"query {plan.name!r} cannot be ranked by {rank!r}; "
                + (f"its value columns are {', '.join(names)}" if names else "it has no value column")
            )
        self._rank = names.index(rank) if rank is not None else 0
        self.values = tuple(
            Value(
                out.name,
                f"wiretide_query_{prometheus_name(plan.name)}_{prometheus_name(out.name)}",
                self._help(out.name, fold := fold_of(out.expression, kinds), names[self._rank]),
                fold,
            )
            for out in values
        )

    @property
    def rank(self) -> str | None:
        """The column that selects the shown groups; None if there is no value column."""
        return self.values[self._rank].column if self.values else None

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the result that identify a group, in the order of `labels`."""
        return tuple(key.name for key in self._keys)

    @staticmethod
    def _is_value(out: Output, aggregates: set[str]) -> bool:
        if out.expression.type in (*ADDRESSES, Type.TEXT):
            return False
        return any(column.name in aggregates for column in columns_of(out.expression))

    def _help(self, column: str, fold: str | None, rank: str) -> str:
        sql = " ".join(self.plan.sql.split())
        newest = "newest window, which is corrected until it is final," if self.is_provisional else "last closed window"
        where = f"in the {newest} of query {self.plan.name}"
        if not self._keys:
            return f"Column {column} {where}. SQL: {sql}"
        other_rule = {
            "sum": f"the series whose labels are all {OTHER} adds up the rest",
            "min": f"the series whose labels are all {OTHER} has the smallest value of the rest",
            "max": f"the series whose labels are all {OTHER} has the greatest value of the rest",
            None: f"there is no series {OTHER}, because values of this column cannot be combined",
        }[fold]
        groups = f"{self.top} groups" if self.top > 1 else "group"
        shown = f"the {groups} with the greatest {rank}, which change rarely,"
        return f"Column {column} of {shown} {where}; {other_rule}. SQL: {sql}"

    def select_series(
        self,
        rows: pa.Table,
        stable: StableGroups | None = None,
        time: int = 0,
        rank: str | None = None,
        rest: pa.Table | None = None,
    ) -> ShownSeries:
        """Return the series of the result rows of one window.

        The shown groups are first, in descending order of the rank column, then `other`. `stable` selects the shown
        groups from several windows; `time` identifies the window. Without `stable`, the groups with the largest values
        in this window are shown. Groups with equal values are in the order of their keys (addresses by their bytes,
        NULL last). A NULL value has no series. Values are float64, as all values in Prometheus. `rank`: another rank
        column. `rest`: sums over further rows of the result (`spark.run_folder.staged_results`), which are added to
        `other`.
        """
        groups = self._merge_equal_labels(rows)
        names = [value.column for value in self.values]
        ranked = f"v{self._rank if rank is None else names.index(rank)}"
        order = [(ranked, "descending")] if self.values else []
        order += [(f"k{index}", "ascending") for index in range(len(self._keys))]
        top = groups.filter(pc.invert(groups["reserved"]))
        if self._keys and stable is not None and self.values:
            top = self._select_stable_groups(top, order, stable, time)
        elif self._keys:
            top = top.take(pc.select_k_unstable(top, self.top, order))
        remaining = groups.filter(pc.invert(pc.is_in(groups["index"], value_set=top["index"].combine_chunks())))
        labels = self._label_texts(top)
        other = (OTHER,) * len(self._keys)
        series = []
        for index, value in enumerate(self.values):
            named = zip(labels, top[f"v{index}"].to_pylist(), strict=True)
            shown = [(texts, number) for texts, number in named if number is not None]
            if value.fold is not None:
                numbers = remaining[f"v{index}"]
                if rest is not None:
                    numbers = pa.chunked_array(
                        [*numbers.chunks, *rest[value.column].cast(pa.float64(), safe=False).chunks]
                    )
                folded = pc.call_function(value.fold, [numbers]).as_py()
                shown += [] if folded is None else [(other, folded)]
            series.append(tuple(shown))
        rest_rows = 0 if rest is None else pc.sum(rest[REST_ROWS], min_count=0).as_py()
        folded_rows = pc.sum(remaining["rows"], min_count=0).as_py()
        return ShownSeries(tuple(series), rows.num_rows + rest_rows, folded_rows + rest_rows)

    def _select_stable_groups(
        self, groups: pa.Table, order: list[tuple[str, str]], stable: StableGroups, time: int
    ) -> pa.Table:
        """Return the groups of the window that `stable` selects, in its order."""
        names = [f"k{index}" for index in range(len(self._keys))]
        largest = groups.take(pc.select_k_unstable(groups, stable.candidates, order))
        if groups.num_rows > largest.num_rows and stable.shown:
            shown = self._positions(groups.select(names), stable.shown)
            missing = shown[~np.isin(groups["index"].to_numpy()[shown], largest["index"].to_numpy())]
            largest = pa.concat_tables([largest, pc.take(groups, array_of(missing))])
        keys = list(zip(*(largest[name].to_pylist() for name in names), strict=True))
        numbers = largest[order[0][0]].to_pylist()
        selected = set(stable.update(time, dict(zip(keys, numbers, strict=True))))
        chosen = largest.filter(array_of(np.array([key in selected for key in keys], np.bool_)))
        return chosen.take(pc.sort_indices(chosen, sort_keys=order))

    @staticmethod
    def _positions(keys: pa.Table, shown: Sequence[Hashable]) -> npt.NDArray[np.int64]:
        """Return the positions of the shown groups that are among `keys`."""
        if keys.num_rows <= MAX_GROUPS_OF_SMALL_WINDOW:
            position = {
                key: index
                for index, key in enumerate(zip(*(column.to_pylist() for column in keys.columns), strict=True))
            }
            return np.array([position[group] for group in shown if group in position], np.int64)
        is_shown = np.zeros(keys.num_rows, np.bool_)
        for group in shown:  # comparing a million keys 49 times is faster than making a million tuples
            assert isinstance(group, tuple)
            is_group = np.ones(keys.num_rows, np.bool_)
            for column, key in zip(keys.columns, group, strict=True):
                equal = pc.is_null(column) if key is None else pc.equal(column, pa.scalar(key, column.type))
                is_group &= pc.fill_null(equal, False).to_numpy()
            is_shown |= is_group
        return np.flatnonzero(is_shown)

    def _merge_equal_labels(self, rows: pa.Table) -> pa.Table:
        """Return one row per set of labels: keys `k…`, values `v…`, `rows` (merged rows), `reserved`, `index`.

        `reserved` is true if all labels are `other`: such a group is always folded.
        """
        table = pa.table({"rows": pa.repeat(1, rows.num_rows)})
        reserved = pa.repeat(bool(self._keys), rows.num_rows)
        keys = [f"k{index}" for index in range(len(self._keys))]
        for name, key in zip(keys, self._keys, strict=True):
            column = rows[key.name]
            if key.expression.type is Type.FLOAT:
                # Labels are compared as texts, because for Arrow two NaN differ.
                column = column.cast(pa.string())
            elif key.expression.type is Type.TEXT:
                column = pc.fill_null(column, "")
            is_other = pc.equal(column, OTHER) if key.expression.type is Type.TEXT else False
            reserved = pc.and_(reserved, is_other)
            table = table.append_column(name, column)
        table = table.append_column("reserved", reserved)
        merges = [("rows", "sum"), ("reserved", "any")]
        for index, value in enumerate(self.values):
            table = table.append_column(f"v{index}", rows[value.column].cast(pa.float64(), safe=False))
            merges.append((f"v{index}", value.fold or "max"))
        merged = table.group_by(keys, use_threads=False).aggregate(merges)
        merged = merged.rename_columns([*keys, "rows", "reserved", *(f"v{index}" for index in range(len(self.values)))])
        single = pc.equal(merged["rows"], 1)
        for index, value in enumerate(self.values):
            if value.fold is None:
                kept = pc.if_else(single, merged[f"v{index}"], pa.scalar(None, pa.float64()))
                merged = merged.set_column(merged.schema.get_field_index(f"v{index}"), f"v{index}", kept)
        return merged.append_column("index", pa.array(range(merged.num_rows), pa.int64()))

    def _label_texts(self, groups: pa.Table) -> list[tuple[str, ...]]:
        """Return the labels of each group as text. NULL becomes the empty text, which means no label in Prometheus."""
        columns = []
        for index, key in enumerate(self._keys):
            column = groups[f"k{index}"]
            texts = to_text(column) if key.expression.type in ADDRESSES else column.cast(pa.string())
            columns.append(pc.fill_null(texts, "").to_pylist())
        return list(zip(*columns, strict=True)) if columns else [()] * groups.num_rows
