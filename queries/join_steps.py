"""The items of a join as steps: what each is called, which rows it has, over which window and time it is joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from highlevel.joins.spec import JoinKind
from queries.errors import QueryError
from queries.join_tree import Step
from queries.join_window import ItemWindow, read_item_window
from queries.relations import Relation
from queries.table_names import NamedTable
from queries.tables import Item, Table, name_of


def join_steps(sql: str, items: Sequence[Item], relation_of: Callable[[Table], Relation]) -> list[Step]:
    """Return a step for each item of a join, in their order; QueryError where windows or names do not fit."""
    steps: list[Step] = []
    windows = [read_item_window(sql, item.window) if item.window else None for item in items]
    shared = windows[-1] if windows[-1] is not None and windows[-1].tumbling else None
    for item, own in zip(items, windows, strict=True):
        name = name_of(item)
        if name is None:
            expected = "AS and a name behind it, by which its columns are told from those of the others"
            raise QueryError("an item of a join without a name", sql, item.place.start, expected)
        if name.lower() in (step.table.name.lower() for step in steps):
            expected = "AS and another name behind one of them"
            place = item.alias or item.place
            raise QueryError(f"two items of FROM are called {name}", sql, place.start, expected)
        if "." in name:
            place = item.alias or item.place
            raise QueryError(f"an item of a join called {name}", sql, place.start, "AS and a name without a dot")
        window = own or shared
        if window is None:
            place = (item.join or items[1].join or item).place
            expected = (
                "[RANGE n, WA ts] behind each item, or [RANGE TUMBLING n, WA ts] behind the last: "
                "without them every row would be kept for ever"
            )
            raise QueryError(f"a join without a window for {name}", sql, place.start, expected)
        first = next((each for each in windows if each is not None), window)
        if (window.tumbling, window.tumbling and (window.range, window.origin)) != (
            first.tumbling,
            first.tumbling and (first.range, first.origin),
        ):
            expected = "RANGE of each item, or one RANGE TUMBLING for all"
            raise QueryError("a join of windows of two kinds", sql, window.place.start, expected)
        relation = relation_of(item.table)
        kind = JoinKind.INNER if item.join is None else item.join.kind
        time = _time_of(sql, item, name, relation, window)
        steps.append(Step(item, NamedTable(name, relation), window, time, kind))
    said = [window for window in windows if window is not None and window.boundary is not None]
    for window in said[1:]:
        if window.boundary is not said[0].boundary:
            expected = "BOUNDARY once: it is of what two windows make together"
            raise QueryError("a join with two boundaries", sql, window.place.start, expected)
    if said:
        return [replace(step, window=replace(step.window, boundary=said[0].boundary)) for step in steps]
    return steps


def _time_of(sql: str, item: Item, name: str, relation: Relation, window: ItemWindow) -> str:
    """Find the column that the window of an item is over."""
    if not relation.times:
        expected = "rows with a time: a query that is read selects ts, or has windows"
        raise QueryError(f"a join with {name}, whose rows have no time", sql, item.place.start, expected)
    if window.time is None:
        return relation.times[0]
    table, column = window.time
    if table is not None and table.text.lower() != name.lower() and not window.tumbling:
        raise QueryError(f"the window of {name} over {table.text}", sql, table.start, f"WA {name}.{column.text}")
    wanted = "ts" if column.text.lower() == "time" else column.text.lower()
    found = next((time for time in relation.times if time.lower() == wanted), None)
    if found is None:
        problem = f"the window of {name} over {column.shown}"
        raise QueryError(problem, sql, column.start, "a time of its rows, in ns", relation.times, column.text)
    return found
