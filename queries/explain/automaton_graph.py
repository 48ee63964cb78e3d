r"""Automata of a plan as a graph for Graphviz (`dot -Tsvg`): MATCH_RECOGNIZE and AUTOMATON.

    digraph automata {
        subgraph cluster_0 {
            "0 idle" -> "0 busy" [label="len > 1000\nn = 1"];
            …

Final states have two borders. States that are final only after the last row have a dashed border. Arcs that consume
no row are dashed, and arcs with a deadline (AT) are dotted. Arcs of a file are blue. Other arcs are gray if they are
ignorable.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from highlevel.patterns.automaton import Arc, Automaton
from highlevel.plan.automaton_nodes import AcceptedRuns
from highlevel.plan.change_nodes import ChangingResults
from highlevel.plan.nodes import nodes_of
from highlevel.plan.pattern_nodes import Matches
from highlevel.plan.plan import Plan
from lowlevel.expressions.tree import Literal
from lowlevel.expressions.types import Type
from queries.explain.automata import list_arcs
from queries.explain.lines import length_text
from queries.text.printer import expression_text

WIDTH = 40
"""Largest number of characters in a line of a label. A longer word has a separate line."""

HEAD = """digraph automata {
    rankdir=LR;
    fontname="sans-serif";
    node [shape=circle, fontname="sans-serif"];
    edge [fontname="sans-serif", fontsize=11];
"""


def automaton_nodes(plan: Plan) -> list[AcceptedRuns | Matches]:
    """Return the nodes of a plan that have an automaton; inputs are first."""
    bodies = (node.body if isinstance(node, ChangingResults) else node for node in nodes_of(plan.root))
    return [node for node in bodies if isinstance(node, AcceptedRuns | Matches)]


def automaton_graph(plan: Plan) -> str:
    """Return the automata of a plan in the language DOT. The graph is empty without automata."""
    parts = [HEAD]
    for number, node in enumerate(automaton_nodes(plan)):
        parts += [f"    subgraph cluster_{number} {{\n"]
        parts += [f"        {line}\n" for line in _lines(number, node)]
        parts += ["    }\n"]
    return "".join([*parts, "}\n"])


def _lines(number: int, node: AcceptedRuns | Matches) -> Iterator[str]:
    """Yield the statements about one automaton. The names of its states begin with its number."""
    automaton = node.automaton
    keys = f"partitions by {', '.join(node.keys)}" if node.keys else "one partition"
    within = [] if automaton.window is None else [f"within {length_text(automaton.window)}"]
    clause = "AUTOMATON" if isinstance(node, AcceptedRuns) else "MATCH_RECOGNIZE"
    yield f"label={_quoted(', '.join([clause, keys, *within]))};"
    register = [f"{field.name} = {expression_text(field.initial)}" for field in automaton.register]
    edges = list(_edges(node))
    names = [*automaton.states, *(name for arc, _, _ in edges for name in (arc.source, arc.target))]
    begin = _quoted(f"{number}")
    yield f"{begin} [shape=point];"
    for name in dict.fromkeys(names):
        yield f"{_quoted(f'{number} {name}')} [label={_quoted(name)}{_border(automaton, name)}];"
    shown = "\n".join(register) if isinstance(node, AcceptedRuns) else ""
    yield f"{begin} -> {_quoted(f'{number} {automaton.start}')} [label={_quoted(shown)}];"
    for arc, label, color in edges:
        style = ", style=dashed" if arc.is_silent else ", style=dotted" if arc.deadline is not None else ""
        ends = " -> ".join(_quoted(f"{number} {name}") for name in (arc.source, arc.target))
        yield f"{ends} [label={_quoted(label)}{style}{color}];"


def _edges(node: AcceptedRuns | Matches) -> Iterator[tuple[Arc, str, str]]:
    """Yield the arcs with their labels and colors.

    The label is the condition. An arc of AUTOMATON also has its new values; other registers are internal.
    """
    if isinstance(node, Matches):
        for arc in node.automaton.arcs:
            yield arc, "every row" if arc.fence == Literal(True, Type.BOOL) else expression_text(arc.fence), ""
        return
    for listed in list_arcs(node):
        color = ", color=blue" if listed.is_of_file else ", color=gray" if listed.is_ignorable else ""
        yield listed.arc, listed.text, color


def _border(automaton: Automaton, name: str) -> str:
    if name in automaton.finals:
        return ", peripheries=2"
    return ", peripheries=2, style=dashed" if name in automaton.last_finals else ""


def _quoted(text: str) -> str:
    r"""Return a text as a string of DOT, in lines of at most WIDTH characters.

    >>> _quoted('a "b"\\c')
    '"a \\"b\\"\\\\c"'
    """
    printable = "".join(character if character.isprintable() or character == "\n" else "�" for character in text)
    wrapped = [textwrap.wrap(part, WIDTH, break_long_words=False) or [""] for part in printable.split("\n")]
    lines = [line.replace("\\", "\\\\").replace('"', '\\"') for part in wrapped for line in part]
    return '"' + "\\n".join(lines) + '"'
