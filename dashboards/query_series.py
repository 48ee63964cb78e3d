"""One query's closed window as a bounded number of series: the groups with the greatest values, the rest as `other`.

The columns of the select list split in two. **Labels** are those that identify a group: columns of GROUP BY,
expressions over nothing but such columns, and every address, MAC or text. **Values** are the numbers computed from
aggregates. Each value column is one gauge with at most `top + 1` series, whatever the traffic does: an address in a
label is only safe because of this bound.

Rows with equal labels, possible where GROUP BY has a column that SELECT has not, are one group here: Prometheus
refuses a scrape that holds a series twice. Their values are folded as for `other`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dashboards.fold import fold_of
from dashboards.names import Names, label_name, prometheus_name
from highlevel.plan import Output, QueryPlan
from lowlevel.addresses import to_text
from lowlevel.expressions import columns_of
from lowlevel.types import Type

OTHER = "other"
"""The label value, in each label, of the series that carries the groups outside the top."""

ADDRESSES = (Type.ADDRESS, Type.MAC)
"""Types whose values are bytes that are spelled."""

Series = tuple[tuple[str, ...], float]
"""Label values, in the order of `QuerySeries.labels`, and the value."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value column: its place in the rows, its metric name and help, and the aggregate that folds it, if any."""

    column: str
    name: str
    help: str
    fold: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """One window as it is exposed. `series` has one entry per value column; `groups` and `folded` count result rows."""

    series: tuple[tuple[Series, ...], ...]
    groups: int
    folded: int


class QuerySeries:
    """The shape of one query's series, known before the first row; immutable.

    `rank` names the value column that decides which groups are shown; None is the first one of the select list.
    Raises ValueError for names that cannot be told apart or are not there.
    """

    def __init__(self, plan: QueryPlan, top: int, rank: str | None = None) -> None:
        self.plan = plan
        self.top = top
        columns = Names("column")
        for place, name in enumerate(plan.schema.names):
            columns.take(name, f"column {place + 1} of the results of query {plan.name!r}")
        kinds = {sub.name: sub.kind for sub in plan.low.subaggregates}
        aggregates = {*kinds, *(each.name for each in plan.details), *(each.name for each in plan.user_columns)}
        values = [out for out in plan.select if self._is_value(out, aggregates)]
        self._keys = [out for out in plan.select if out not in values]
        self.labels = tuple(label_name(out.name) for out in self._keys)
        labels = Names("label")
        for label, key in zip(self.labels, self._keys, strict=True):
            labels.take(label, f"column {key.name!r} of query {plan.name!r}")
        names = [out.name for out in values]
        if rank is not None and rank not in names:
            raise ValueError(
                f"query {plan.name!r} cannot be ranked by {rank!r}; "
                + (f"its columns of values are {', '.join(names)}" if names else "it has no column of values")
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

    @staticmethod
    def _is_value(out: Output, aggregates: set[str]) -> bool:
        if out.expression.type in (*ADDRESSES, Type.TEXT):
            return False
        return any(column.name in aggregates for column in columns_of(out.expression))

    def _help(self, column: str, fold: str | None, rank: str) -> str:
        sql = " ".join(self.plan.sql.split())
        where = f"in the last closed window of query {self.plan.name}"
        if not self._keys:
            return f"Column {column} {where}. SQL: {sql}"
        rest = {
            "sum": f"the series whose labels are all {OTHER} adds up the rest",
            "min": f"the series whose labels are all {OTHER} has the least value of the rest",
            "max": f"the series whose labels are all {OTHER} has the greatest value of the rest",
            None: f"there is no series {OTHER}, because values of this column cannot be combined",
        }[fold]
        groups = f"{self.top} groups" if self.top > 1 else "group"
        return f"Column {column} of the {groups} with the greatest {rank} {where}; {rest}. SQL: {sql}"

    def shown(self, rows: pa.Table) -> Shown:
        """Reduce the result rows of one window, of the plan's schema, to its series.

        The groups shown come by falling rank, ties by their keys in rising order (addresses by their bytes, NULL last),
        then `other`. A NULL value has no series. Values are float64, as everything in Prometheus is.
        """
        groups = self._by_labels(rows)
        order = [] if not self.values else [(f"v{self._rank}", "descending")]
        order += [(f"k{place}", "ascending") for place in range(len(self._keys))]
        own = groups.filter(pc.invert(groups["reserved"]))
        top = own.take(pc.select_k_unstable(own, self.top, order)) if self._keys else own
        rest = groups.filter(pc.invert(pc.is_in(groups["place"], value_set=top["place"].combine_chunks())))
        labels = self._texts(top)
        other = (OTHER,) * len(self._keys)
        series = []
        for place, value in enumerate(self.values):
            named = zip(labels, top[f"v{place}"].to_pylist(), strict=True)
            shown = [(texts, number) for texts, number in named if number is not None]
            if value.fold is not None:
                folded = pc.call_function(value.fold, [rest[f"v{place}"]]).as_py()
                shown += [] if folded is None else [(other, folded)]
            series.append(tuple(shown))
        return Shown(tuple(series), rows.num_rows, pc.sum(rest["rows"], min_count=0).as_py())

    def _by_labels(self, rows: pa.Table) -> pa.Table:
        """Give one row per label set: keys `k…`, values `v…`, `rows` merged into it, `reserved`, its `place`."""
        table = pa.table({"rows": pa.repeat(1, rows.num_rows)})
        reserved = pa.repeat(bool(self._keys), rows.num_rows)
        keys = [f"k{place}" for place in range(len(self._keys))]
        for name, key in zip(keys, self._keys, strict=True):
            column = rows[key.name]
            if key.expression.type is Type.FLOAT:
                # Equal labels are equal texts: Arrow would tell two NaN apart.
                column = column.cast(pa.string())
            elif key.expression.type is Type.TEXT:
                column = pc.fill_null(column, "")
            is_other = pc.equal(column, OTHER) if key.expression.type is Type.TEXT else False
            reserved = pc.and_(reserved, is_other)
            table = table.append_column(name, column)
        table = table.append_column("reserved", reserved)
        merges = [("rows", "sum"), ("reserved", "any")]
        for place, value in enumerate(self.values):
            table = table.append_column(f"v{place}", rows[value.column].cast(pa.float64(), safe=False))
            merges.append((f"v{place}", value.fold or "max"))
        merged = table.group_by(keys, use_threads=False).aggregate(merges)
        merged = merged.rename_columns([*keys, "rows", "reserved", *(f"v{place}" for place in range(len(self.values)))])
        single = pc.equal(merged["rows"], 1)
        for place, value in enumerate(self.values):
            if value.fold is None:
                kept = pc.if_else(single, merged[f"v{place}"], pa.scalar(None, pa.float64()))
                merged = merged.set_column(merged.schema.get_field_index(f"v{place}"), f"v{place}", kept)
        return merged.append_column("place", pa.array(range(merged.num_rows), pa.int64()))

    def _texts(self, groups: pa.Table) -> list[tuple[str, ...]]:
        """Spell the labels of each group; NULL is the empty text, which to Prometheus is a label that is not there."""
        columns = []
        for place, key in enumerate(self._keys):
            column = groups[f"k{place}"]
            texts = to_text(column) if key.expression.type in ADDRESSES else column.cast(pa.string())
            columns.append(pc.fill_null(texts, "").to_pylist())
        return list(zip(*columns, strict=True)) if columns else [()] * groups.num_rows
