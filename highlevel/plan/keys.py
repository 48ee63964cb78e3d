"""The key of the results of a query: the columns that identify a row, so that a correction replaces one row.

windows                  the end of the window and the columns of the groups
joins                    the keys of both sides, equal columns once; of the left side only for SEMI and ANTI
stored results           the key of their query
ranks at each instant    the key of their groups, which are true until the end of a result
other nodes              the key of their input
packets, unions, Repeat  none: two rows may be equal in all columns (Repeat returns a row several times)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Aggregation, Output
from highlevel.joins.spec import JoinKind, Port, Tumbling
from highlevel.operators.window_operator import WINDOW_END
from highlevel.plan.answer_nodes import Fill, Over, Running
from highlevel.plan.answer_nodes import Sort as SortNode
from highlevel.plan.change_nodes import ChangingResults, RowsOfChanges
from highlevel.plan.lifetime_nodes import InstantRanks, OverlapJoin
from highlevel.plan.nodes import Apply, Distinct, Join, Leaf, Node, Repeat, Subset, TimeGroups, Windowed
from lowlevel.expressions.tree import Column


@dataclass(frozen=True, slots=True)
class Key:
    """Columns that identify a row. `missing`: columns of the key that the select list does not contain.

    If `missing` is empty, no two rows of a result are equal.
    """

    columns: tuple[str, ...]
    missing: tuple[str, ...] = ()


def key_of(node: Node) -> Key | None:
    """Return the key of the rows of a node; None if they have no key."""
    match node:
        case ChangingResults():
            return key_of(node.body)
        case RowsOfChanges():
            return key_of(node.input)
        case Leaf(key=key) if key:
            return Key(key)
        case Windowed(aggregation=aggregation):
            end = (WINDOW_END,) if aggregation.windowed else ()
            return _key_of_groups(Key((*end, *aggregation.group_by)), aggregation)
        case TimeGroups(aggregation=aggregation):
            return _key_of_groups(Key(tuple(aggregation.group_by)), aggregation)
        case Running():
            return _after_select(Key((node.end, *node.keys)), node.outputs, (node.end,))
        case Over():
            return _after_select(key_of(node.input), node.outputs, node.window_columns)
        case Apply():
            return _after_select(key_of(node.input), node.outputs)
        case Fill() | SortNode():
            return _without_hidden(key_of(node.input), node.hidden)
        case InstantRanks(lifetime=None):
            return _without_hidden(key_of(node.input), node.hidden)
        case Distinct():
            return Key(node.keys)
        case Repeat():
            return None
        case Subset():
            return key_of(node.input)
        case Join():
            return _key_of_join(node)
        case OverlapJoin():
            return _key_of_overlap_join(node)
        case _:
            return None


def stored_key(node: Node) -> tuple[str, ...]:
    """Return the columns that identify a row of stored results; () if rows have no key, or lack a column of the key."""
    key = key_of(node)
    return () if key is None or key.missing else key.columns


def _key_of_groups(key: Key, aggregation: Aggregation) -> Key | None:
    """Return the key of groups in a select list.

    If GROUP BY has a column that the select list lacks, `missing` has its name.
    """
    selected = _after_select(key, aggregation.select, (WINDOW_END,))
    spelled = {one.name: one.expression.name for one in aggregation.low.keys if isinstance(one.expression, Column)}
    assert selected is not None, "groups have a key"
    return Key(selected.columns, tuple(spelled.get(name, name) for name in selected.missing))


def _key_of_join(node: Join) -> Key | None:
    spec, left, right = node.spec, key_of(node.left), key_of(node.right)
    if spec.kind.is_left_only:
        return _rename_columns(left, spec.left.columns)
    if spec.kind in (JoinKind.INNER, JoinKind.LEFT):
        right = _without_determined(right, _equal_columns(node, Port.RIGHT))
    elif spec.kind is JoinKind.RIGHT:
        left = _without_determined(left, _equal_columns(node, Port.LEFT))
    first, second = _rename_columns(left, spec.left.columns), _rename_columns(right, spec.right.columns)
    if first is None or second is None:
        return None
    return Key((*first.columns, *second.columns), (*first.missing, *second.missing))


def _key_of_overlap_join(node: OverlapJoin) -> Key | None:
    """Return the keys of both sides. Columns of the right side that a join key makes equal to left columns are omitted.

    A row is in the result once for each part of its lifetime, so the key also has the end of this part.
    """
    left, right = key_of(node.left), key_of(node.right)
    equal = {key.name for _, key in node.keys if isinstance(key, Column)}
    first = _rename_columns(left, node.sides[0].columns)
    if node.kind is not JoinKind.INNER and first is not None:
        first = Key((WINDOW_END, *first.columns), first.missing)
        equal = equal if node.kind is JoinKind.LEFT else set()
    if node.kind.is_left_only:
        return first
    second = _rename_columns(_without_determined(right, equal), node.sides[1].columns)
    if first is None or second is None:
        return None
    return Key((*first.columns, *second.columns), (*first.missing, *second.missing))


def _equal_columns(node: Join, port: Port) -> set[str]:
    """Return the columns of a side whose values follow from a row of the other side."""
    window = node.spec.window
    own = (pair[port] for pair in node.spec.keys)
    names = {key.name for key in own if isinstance(key, Column)}
    has_equal_times = not isinstance(window, Tumbling) and window.low == window.high == 0
    return names | ({node.spec.side(port).time} if has_equal_times else set())


def _after_select(key: Key | None, outputs: Sequence[Output], kept: Collection[str] = ()) -> Key | None:
    """Return a key with the names that its columns have in the select list. The columns `kept` are not renamed."""
    names = {out.expression.name: out.name for out in outputs if isinstance(out.expression, Column)}
    return _rename_columns(key, {**{name: name for name in kept}, **names}.items())


def _without_determined(key: Key | None, determined: Collection[str]) -> Key | None:
    """Return a key without columns that other columns determine."""
    return None if key is None else Key(tuple(name for name in key.columns if name not in determined), key.missing)


def _without_hidden(key: Key | None, hidden: Collection[str]) -> Key | None:
    return None if key is None else _rename_columns(key, ((name, name) for name in key.columns if name not in hidden))


def _rename_columns(key: Key | None, pairs: Iterable[tuple[str, str]]) -> Key | None:
    if key is None:
        return None
    names = dict(pairs)
    missing = tuple(name for name in key.columns if name not in names)
    return Key(tuple(names[name] for name in key.columns if name in names), (*key.missing, *missing))
