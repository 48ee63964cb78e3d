"""The positions of a row pattern, and the positions that may follow each of them.

A position is one use of a variable. `A{2,5}` has five positions, `A+` has one that may follow itself.

    A (B | C)+     A ► B, C     B ► B, C     C ► B, C        and a match may end after B and after C

This is the construction of Glushkov (1961) for regular expressions. In addition, a match prefers the first of the
positions that may follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

from queries.text import tree
from queries.text.errors import QueryError

MAX_STATES = 2_000
"""Maximum number of states of an automaton. The variable of `A{2,5}` counts five times."""

MAX_PARTS = 100_000
"""Maximum number of parts of a pattern, including parts such as `^` that match no row. A part with {2,5} counts five
times.
"""

MAX_ARCS = 20_000
"""Maximum number of arcs of an automaton. It has an arc from each position to each position that may follow."""


class Following(NamedTuple):
    """The positions that can follow a node, the preferred ones first. A node is a point between parts of the pattern.

    `may_end`: the pattern may end at the node. `may_end_last`: it may end there if no row of the partition follows.
    """

    positions: list[int]
    may_end: bool
    may_end_last: bool


class _SearchState(NamedTuple):
    """A node that the search reaches without consuming a row.

    `is_last`: `$` was passed, so no row may follow. `empty_repetitions`: the quantifiers with a repetition that has
    begun and has consumed no row so far.
    """

    node: int
    is_last: bool
    empty_repetitions: frozenset[int]


class Positions:
    """The positions of a pattern, and the positions that follow each of them, preferred ones first.

    Raises QueryError for a pattern that is too large.
    """

    def __init__(self, sql: str, start: int) -> None:
        self._sql = sql
        self._start = start
        self.variables: list[str] = []
        self.node_after: list[int] = []
        """The node after each position."""
        self._targets: list[list[int]] = [[]]
        """For each node, the nodes that follow it without consuming a row, the preferred ones first.

        Node 0 is the end of the pattern.
        """
        self._position_of: dict[int, int] = {}
        self._anchors: dict[int, tree.PatternAnchor] = {}
        """The nodes of `^` and `$`."""
        self._repeats: dict[int, int] = {}
        """The nodes at which a quantifier begins a repetition or ends, with the node after the quantifier."""
        self._ends: dict[int, int] = {}
        """The nodes after a repetition, with the node at which it has begun."""
        self._parts = 0
        self.excluded: set[int] = set()
        """Positions whose rows are excluded."""
        self._exclusions = 0

    def add(self, pattern: tree.RowPattern, after: int) -> int:
        """Add a pattern before the node `after`. Return the node at which the pattern begins."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            expected = "smaller numbers in { }, or a shorter PERMUTE"
            raise QueryError(f"a pattern of more than {MAX_PARTS} parts", self._sql, self._start, expected)
        match pattern:
            case tree.PatternVariable(word):
                if len(self.variables) == MAX_STATES:
                    expected = f"at most {MAX_STATES}: smaller numbers in {{ }}, or count(A.*) in DEFINE"
                    raise QueryError(f"a pattern of more than {MAX_STATES} variables", self._sql, self._start, expected)
                node = self._add_node([])
                self._position_of[node] = len(self.variables)
                if self._exclusions:
                    self.excluded.add(len(self.variables))
                self.variables.append(word.text)
                self.node_after.append(after)
                return node
            case tree.PatternSequence(parts):
                for part in reversed(parts):
                    after = self.add(part, after)
                return after
            case tree.PatternChoice(parts):
                return self._add_node([self.add(part, after) for part in parts])
            case tree.PatternPermutation(parts):
                return self.add(_orders(parts), after)
            case tree.PatternAnchor():
                node = self._add_node([after])
                self._anchors[node] = pattern
                return node
            case tree.PatternExclusion(part):
                self._exclusions += 1
                node = self.add(part, after)
                self._exclusions -= 1
                return node
            case tree.PatternRepeat(part, minimum, maximum, is_reluctant):
                return self._repeat(part, minimum, maximum, is_reluctant, after)

    def _repeat(self, part: tree.RowPattern, minimum: int, maximum: int | None, is_reluctant: bool, after: int) -> int:
        if maximum is None:
            loop = self._add_node([])
            begin = self._add_repetition(part, loop, loop, after, is_reluctant)
            node, copies = (loop, minimum) if minimum == 0 else (begin, minimum - 1)
        else:
            node, copies = after, minimum
            for _ in range(maximum - minimum):
                repeat, following = self._add_node([]), node
                self._add_repetition(part, repeat, following, after, is_reluctant)
                node = repeat
        for _ in range(copies):
            node = self.add(part, node)
        return node

    def _add_repetition(
        self, part: tree.RowPattern, repeat: int, following: int, after: int, is_reluctant: bool
    ) -> int:
        """Make the node `repeat` a choice between a repetition, which leads to `following`, and the node `after`.

        Return the first node of the repetition.
        """
        end = self._add_node([following])
        self._ends[end] = repeat
        begin = self.add(part, end)
        self._repeats[repeat] = after
        self._targets[repeat] = [after, begin] if is_reluctant else [begin, after]
        return begin

    def _add_node(self, targets: list[int]) -> int:
        self._targets.append(targets)
        return len(self._targets) - 1

    def reachable(self, first: Sequence[int]) -> list[int]:
        """Return all positions that can be reached from `first`, in breadth-first order."""
        order, arcs = dict.fromkeys(first), len(first)
        waiting = deque(first)
        while waiting:
            following = self.following(self.node_after[waiting.popleft()]).positions
            arcs += len(following)
            if arcs > MAX_ARCS:
                expected = (
                    f"at most {MAX_ARCS}: fewer optional parts in sequence, such as A{{,9}} in place of (A?){{9}}"
                )
                raise QueryError(f"a pattern with more than {MAX_ARCS} arcs", self._sql, self._start, expected)
            waiting += [each for each in following if each not in order]
            order |= dict.fromkeys(following)
        return list(order)

    def following(self, node: int) -> Following:
        """Return the positions that follow a node after the first row."""
        return self._following(node, "$")

    def anchor_starts(self) -> list[int]:
        """Return the offsets of the anchors in the text, in ascending order."""
        return sorted(anchor.start for anchor in self._anchors.values())

    def following_at_start(self, node: int, *, is_first: bool) -> Following:
        """Return the positions that follow a node before the first row of a match.

        `is_first`: this row is the first one of its partition.
        """
        return self._following(node, "^" if is_first else "")

    def _following(self, node: int, true_anchor: str) -> Following:
        """Return the positions that follow a node. `true_anchor`: the anchor that can be true at the node.

        Positions that are less preferred than the end are left out, because the shorter match is preferred to them.
        If a repetition matches no row, its quantifier ends after it.
        """
        positions, visited, may_end_last = dict[int, None](), set[_SearchState](), False
        waiting = [_SearchState(node, False, frozenset())]
        while waiting:
            state = waiting.pop()
            if state in visited:
                continue
            visited.add(state)
            node, is_last, empty_repetitions = state
            if node == 0 and not is_last:
                return Following(list(positions), True, False)
            may_end_last |= node == 0
            if node in self._position_of and not is_last:
                positions[self._position_of[node]] = None
            anchor = self._anchors.get(node)
            if anchor is not None and anchor.text != true_anchor:
                continue
            targets = self._targets[node]
            repeat = self._ends.get(node)
            if repeat in empty_repetitions:
                targets, empty_repetitions = [self._repeats[repeat]], empty_repetitions - {repeat}
            after, is_last = self._repeats.get(node), is_last or (anchor is not None and true_anchor == "$")
            waiting += [
                _SearchState(
                    target, is_last, empty_repetitions if after in (None, target) else empty_repetitions | {node}
                )
                for target in reversed(targets)
            ]
        return Following(list(positions), False, may_end_last)


def _orders(parts: Sequence[tree.RowPattern]) -> tree.RowPattern:
    """Return all orders of patterns, preferred ones first. Orders of variables share their beginnings."""
    if len(parts) == 1:
        return parts[0]
    if not all(isinstance(part, tree.PatternVariable) for part in parts):
        return tree.PatternChoice(tuple(tree.PatternSequence(order) for order in permutations(parts)))
    return tree.PatternChoice(
        tuple(
            tree.PatternSequence((first, _orders([*parts[:index], *parts[index + 1 :]])))
            for index, first in enumerate(parts)
        )
    )
