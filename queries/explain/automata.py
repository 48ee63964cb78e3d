"""Explain: the automaton of CREATE AUTOMATON, as a list of its arcs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from highlevel.patterns.arc_table import ArcRule
from highlevel.patterns.automaton import Arc, keeps_run
from highlevel.patterns.compilation import AutomatonCompiler
from highlevel.patterns.row_words import ValueNumbers
from highlevel.plan.automaton_nodes import AcceptedRuns, ChangingAcceptedRuns, DistinctRowsOfRuns, RowsOfRuns
from highlevel.plan.link_watermarks import link_of_arcs, link_of_partitions
from lowlevel.expressions.tree import Literal
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, END
from lowlevel.watch.watched_file import WatchedFile, read_watchlist
from queries.explain.lines import length_text, line
from queries.text.printer import expression_text


class ListedArc(NamedTuple):
    """An arc of AUTOMATON. `is_ignorable`: a run ignores a row to which no other arc applies."""

    arc: Arc
    is_of_file: bool
    is_ignorable: bool

    @property
    def text(self) -> str:
        """The condition, the new values, the times of FROM and TO, and a mark if the arc is ignorable."""
        return arc_text(self.arc) + "; a row is ignored if no other arc applies" * self.is_ignorable


def list_arcs(node: AcceptedRuns) -> list[ListedArc]:
    """Return the arcs of an automaton, and then those of its file, which is read now."""
    arcs = list(node.automaton.arcs)
    if isinstance(node.rules, WatchedFile):
        arcs += [rule.timed_arc for rule in read_watchlist(node.rules).rules if isinstance(rule, ArcRule)]
    compiled = AutomatonCompiler(node.automaton, ValueNumbers().numbers_of).compile(arcs)
    can_ignore = dict(zip(compiled.states, compiled.can_ignore.tolist(), strict=True))
    own = len(node.automaton.arcs)
    return [ListedArc(arc, at >= own, keeps_run(arc) and bool(can_ignore[arc.source])) for at, arc in enumerate(arcs)]


def arc_text(arc: Arc) -> str:
    """Return the condition of an arc, its new values, and the times of FROM and TO."""
    if arc.deadline is not None:
        return f"at {expression_text(arc.deadline)}, if no row has come before"
    condition = "every row" if arc.fence == Literal(True, Type.BOOL) else expression_text(arc.fence)
    if arc.is_silent:
        condition = "without a row" if arc.fence == Literal(True, Type.BOOL) else f"without a row, {condition}"
    changes = ", ".join(f"{name} = {expression_text(value)}" for name, value in arc.transfer)
    text = f"{condition}; {changes}" if changes else condition
    times = (("from", arc.begin, BEGINNING), ("to", arc.end, END))
    return text + "".join(f", {name} {np.datetime64(time, 'ns')}" for name, time, none in times if time != none)


def automaton_lines(node: AcceptedRuns) -> Iterator[str]:
    """Yield the lines about the runs of an automaton."""
    automaton = node.automaton
    (time,) = node.input.time_columns
    yield line("partition", ", ".join(node.keys) or "all rows are in one")
    yield line("order", time if node.number is None else f"{time}, numbered by {node.number}: a gap ends a run")
    if node.until is not None:
        yield line("lifetime", f"a row is true until {node.until}")
    for field in automaton.register:
        yield line("register", f"{field.name} = {expression_text(field.initial)}")
    yield line("start", automaton.start)
    for listed in list_arcs(node):
        ends = f"{listed.arc.source} ► {listed.arc.target}"
        yield line("arc of file" if listed.is_of_file else "arc", f"{ends}: {listed.text}")
    yield line("final", ", ".join(automaton.finals))
    if automaton.window is not None:
        yield line("within", f"{length_text(automaton.window)} after the first row of the run")
    if isinstance(node, DistinctRowsOfRuns):
        yield line("results", "all" if node.where is None else f"those with {expression_text(node.where)}")
        yield line("returns", "the rows that change the run of a result, and its first and last row: each row once")
        kept = "the rows since these runs began, and which of them were returned"
        yield line("state", f"rows that wait, the runs that a later row can extend, {kept}")
    elif isinstance(node, RowsOfRuns):
        yield line("returns", "the rows that change a run, and its first and last row, with the result")
        yield line("state", "rows that wait, the runs that a later row can extend, and the rows since these runs began")
    else:
        yield line("state", "rows that wait, and the runs that a later row can extend")
    if (link := link_of_partitions(node)) is not None:
        yield line("links", f"rows wait for the watermark of their {link} only")
    elif (link := link_of_arcs(node)) is not None:
        yield line("links", f"runs that no later row needs, by the conditions over {link}, are removed early")
    if isinstance(node, ChangingAcceptedRuns):
        wait = node.consistency.wait
        due = "the watermark is later" if wait is None else f"the newest row is {length_text(wait)} later"
        yield line("wait (B)", f"a row is used when {due}; late and withdrawn rows correct results")
