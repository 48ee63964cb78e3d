"""Explain: the automaton of CREATE AUTOMATON, as a list of its arcs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from highlevel.patterns.arc_table import ArcRule
from highlevel.patterns.automaton import Arc
from highlevel.plan.automaton_nodes import AcceptedRuns, ChangingAcceptedRuns
from highlevel.plan.link_watermarks import link_of_partitions
from lowlevel.expressions.tree import Literal
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, END
from lowlevel.watch.watched_file import WatchedFile, read_watchlist
from queries.explain.lines import length_text, line
from queries.text.printer import expression_text


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
    for arc in automaton.arcs:
        yield line("arc", f"{arc.source} ► {arc.target}: {arc_text(arc)}")
    if isinstance(node.rules, WatchedFile):
        for rule in read_watchlist(node.rules).rules:
            assert isinstance(rule, ArcRule), rule
            yield line("arc of file", f"{rule.arc.source} ► {rule.arc.target}: {arc_text(rule.timed_arc)}")
    yield line("final", ", ".join(automaton.finals))
    if automaton.window is not None:
        yield line("within", f"{length_text(automaton.window)} after the first row of the run")
    yield line("state", "rows that wait, and the runs that a later row can extend")
    if (link := link_of_partitions(node)) is not None:
        yield line("links", f"rows wait for the watermark of their {link} only")
    if isinstance(node, ChangingAcceptedRuns):
        wait = node.consistency.wait
        due = "the watermark is later" if wait is None else f"the newest row is {length_text(wait)} later"
        yield line("wait (B)", f"a row is used when {due}; late and withdrawn rows correct results")
