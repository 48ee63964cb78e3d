"""Lists of partial matches: all runs in memory, and those that a later row or a deadline may complete."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.compiled_automaton import Floats, Words
from highlevel.patterns.kernels import layout
from highlevel.patterns.kernels import open_runs as open_run_kernels
from highlevel.patterns.kernels.layout import NODE_WORDS
from highlevel.patterns.kernels.open_runs import BY_DEADLINE, BY_ROW
from highlevel.patterns.memory import chain
from highlevel.patterns.store import PartialMatches
from lowlevel.punctuation import END


@dataclass(frozen=True)
class Runs:
    """Runs: partition, times of the first and the last row, state, and the register as in Results."""

    partitions: Words
    starts: Words
    lasts: Words
    states: list[str]
    words: Words
    floats: Floats


class NodePlaces(NamedTuple):
    """Nodes with their partitions and their entries."""

    partitions: Words
    entries: Words
    nodes: Words


def all_runs(matches: PartialMatches, partitions: int) -> Runs:
    """Return all runs, ordered by partition, last row and first row."""
    memory = matches.memory
    places = [
        (partition, entry, node)
        for partition in range(min(partitions, len(memory.partitions)))
        for entry in chain(memory.entries, int(memory.partitions[partition, layout.FIRST]), layout.AFTER)
        for node in chain(memory.nodes, int(memory.entries[entry, layout.NODES]), layout.NEXT_NODE)
    ]
    found = np.array(places, np.int64).reshape(-1, 3).T
    is_true = memory.nodes[found[2], layout.RUN_END] > memory.entries[found[1], layout.TIME]
    return runs_of(matches, NodePlaces(*found[:, is_true]))


def runs_of(matches: PartialMatches, places: NodePlaces) -> Runs:
    """Return the runs of nodes."""
    words, lasts = matches.memory.nodes[places.nodes], matches.memory.entries[places.entries, layout.TIME]
    states = np.array(matches.compiled.states)[words[:, layout.STATE]].tolist()
    floats = matches.memory.float_nodes[places.nodes]
    return Runs(places.partitions, words[:, layout.START], lasts, states, words[:, NODE_WORDS:], floats)


def open_runs(matches: PartialMatches, partitions: int, chances: Words, newest: int, watermark: int) -> NodePlaces:
    """Return the nodes of open runs (`kernels.open_runs`, which defines `chances`, a value for each state)."""
    count, _ = _find_open_runs(matches, partitions, chances, newest, np.zeros((1, 3), np.int64))
    places = np.zeros((count + 1, 3), np.int64)
    _find_open_runs(matches, partitions, chances, newest, places)
    is_open = np.zeros(count + 1, np.int64)
    if (chances == BY_DEADLINE).any():
        first, machine = matches.compiled.first_deadlines, matches.compiled.machine
        open_run_kernels.check_deadlines(
            matches.automata, machine, matches.memory.store(), first, places.reshape(-1), is_open, count, watermark
        )
    states = matches.memory.nodes[places[:count, 2], layout.STATE]
    return NodePlaces(*places[:count][(chances[states] == BY_ROW) | (is_open[:count] > 0)].T)


def count_open_runs(
    matches: PartialMatches, partitions: int, chances: Words, newest: int, watermark: int
) -> tuple[int, int]:
    """Return the number of open runs, and the time of their earliest first row; END without one."""
    if not (chances == BY_DEADLINE).any():
        return _find_open_runs(matches, partitions, chances, newest, np.zeros((1, 3), np.int64))
    starts = matches.memory.nodes[open_runs(matches, partitions, chances, newest, watermark).nodes, layout.START]
    return len(starts), int(starts.min()) if len(starts) else END


def _find_open_runs(
    matches: PartialMatches, partitions: int, chances: Words, newest: int, places: Words
) -> tuple[int, int]:
    known, room, earliest = min(partitions, len(matches.memory.partitions)), len(places) - 1, np.full(1, END)
    count = open_run_kernels.find_open_runs(
        matches.automata, matches.memory.store(), chances, earliest, places.reshape(-1), known, newest, room
    )
    return int(count), int(earliest[0])
