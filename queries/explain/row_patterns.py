"""Explain: the automaton of MATCH_RECOGNIZE, as a list of its arcs."""

from __future__ import annotations

from collections.abc import Iterator

from highlevel.plan.pattern_nodes import MatchedRows, Matches, SkipRule
from lowlevel.expressions.tree import Literal
from lowlevel.expressions.types import Type
from queries.explain.lines import length_text, line
from queries.text.printer import expression_text

ALWAYS = Literal(True, Type.BOOL)


def matches_lines(node: Matches) -> Iterator[str]:
    """Yield the lines about the matches of a row pattern."""
    automaton = node.automaton
    (time,) = node.input.time_columns
    yield line("partition", ", ".join(node.keys) or "all rows are in one")
    after = max((each.distance for each in node.neighbours), default=0)
    followers = f", and for the next {_rows(after)} of the partition" if after > 0 else ""
    yield line("order", f"{time}; rows wait until the watermark is later{followers}")
    for arc in automaton.arcs:
        condition = "every row" if arc.fence == ALWAYS else expression_text(arc.fence)
        yield line("arc", f"{arc.source} ► {arc.target}: {condition}")
    for name, changes in _changes(node):
        yield line("field", f"{name}: {changes}")
    if automaton.finals:
        yield line("final", ", ".join(automaton.finals))
    if automaton.empty_fence != ALWAYS:
        yield line("final", f"{automaton.start} only if {expression_text(automaton.empty_fence)}")
    if automaton.last_finals:
        yield line("final", f"{', '.join(automaton.last_finals)} after the last row of the partition")
    if automaton.window is not None:
        yield line("within", f"{length_text(automaton.window)} after the first row of the match")
    target = f" the row of {node.skip_field}" if node.skip is SkipRule.TO_FIELD else ""
    yield line("after match", f"SKIP {node.skip}{target}")
    if isinstance(node, MatchedRows):
        shown = ["the rows of each match" + f" except those of {', '.join(node.excluded)}" * bool(node.excluded)]
        shown += ["the row of each empty match"] * (node.has_empty and automaton.start in automaton.finals)
        shown += ["rows without match"] * node.has_unmatched
        yield line("rows", ", ".join(shown))
    with_rows = " with their rows" if isinstance(node, MatchedRows) else ""
    before = max((-each.distance for each in node.neighbours), default=0)
    state = ["rows that wait", f"the runs of the automaton{with_rows}"]
    state += [f"the last {_rows(before)} of each partition"] * (before > 0)
    yield line("state", ", ".join(state))


def _rows(count: int) -> str:
    return f"{count} rows" if count > 1 else "row"


def _changes(node: Matches) -> Iterator[tuple[str, str]]:
    """Yield each field with its new values, and the states to which arcs with them lead."""
    for field in node.automaton.register:
        targets: dict[str, dict[str, None]] = {}
        for arc in node.automaton.arcs:
            for name, value in arc.transfer:
                if name == field.name:
                    targets.setdefault(expression_text(value), {})[arc.target] = None
        yield field.name, "; ".join(f"{value} in {', '.join(states)}" for value, states in targets.items())
