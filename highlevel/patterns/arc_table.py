"""ArcTable: the arcs of an automaton while a file with arcs changes (Chandramouli et al., 2010, §2.5).

    arc                          applies to rows with a time
    of the automaton             in [FROM, TO) of its statement; a missing time is no bound
    of the first version         the same
    that a later version adds    the same, but without FROM after the newest row
    that a version removes       until the newest row; with FROM until the watermark, so its results are withdrawn

An arc with FROM in the past also applies to the rows in memory. Rows below the watermark have used the arcs before.

Names of states are compared without case. The first spelling of a name is used for all versions, because runs in memory
are in this state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.automaton import Arc
from lowlevel.punctuation import BEGINNING, END
from lowlevel.watch.contents import RuleForm

ARCS, ARC_STATES = "arcs", "states of arcs"
"""Tables of a snapshot."""


@dataclass(frozen=True)
class ArcRule:
    """An arc of a file. `text` is its statement, `begin` and `end` are the times of FROM and TO in ns, or None."""

    text: str
    arc: Arc
    begin: int | None = None
    end: int | None = None

    @property
    def timed_arc(self) -> Arc:
        """The arc with the times of FROM and TO."""
        begin = BEGINNING if self.begin is None else self.begin
        return replace(self.arc, begin=begin, end=END if self.end is None else self.end)


class ArcForm(RuleForm):
    """Reads statements of arcs as `ArcRule`."""

    @abstractmethod
    def rules(self, statements: Sequence[str]) -> list[ArcRule]:
        """Return the rule of each statement."""


class TimedRule:
    """A rule and the times `[begin, end)` at which it applies. `is_listed`: the newest version has it. Immutable."""

    def __init__(self, rule: ArcRule, begin: int, end: int, *, is_listed: bool = True) -> None:
        self.rule = rule
        self.is_listed = is_listed
        self.arc = replace(rule.arc, begin=begin, end=end)

    def may_apply(self, watermark: int) -> bool:
        """Return whether the arc applies to rows from the watermark on."""
        return self.arc.end > max(self.arc.begin, watermark)


class ArcTable:
    """The arcs of a file. Not thread safe."""

    def __init__(self) -> None:
        """Begin without a version of the file."""
        self._rules: list[TimedRule] = []
        self._states: dict[str, str] = {}
        """The states of all versions by their names in lower case."""
        self.arcs: dict[int, Arc] = {}
        """The arcs of the file that can apply to rows from the watermark on, by their identities."""
        self.has_version = False
        """True after the first version of the file."""

    def update(self, rules: Sequence[ArcRule], now: int, watermark: int) -> tuple[list[Arc], list[Arc]]:
        """Use a new version of the file. All rows so far are before `now`. Return the removed and the added arcs."""
        by_text = {rule.text: self._with_known_states(rule) for rule in rules}
        kept: list[TimedRule] = []
        for timed in self._rules:
            if timed.is_listed and timed.rule.text not in by_text:
                last = now if timed.rule.begin is None else watermark
                timed = TimedRule(timed.rule, timed.arc.begin, min(timed.arc.end, last), is_listed=False)
            if timed.is_listed or timed.may_apply(watermark):
                kept.append(timed)
        known = {timed.rule.text for timed in kept if timed.is_listed}
        first = now if self.has_version else BEGINNING
        for text, rule in by_text.items():
            if text not in known:
                begin = first if rule.begin is None else rule.begin
                kept.append(TimedRule(rule, begin, END if rule.end is None else rule.end))
        self._rules, self.has_version = kept, True
        old, self.arcs = self.arcs, self._arcs_from(watermark)
        removed = [arc for identity, arc in old.items() if identity not in self.arcs]
        return removed, [arc for identity, arc in self.arcs.items() if identity not in old]

    def _with_known_states(self, rule: ArcRule) -> ArcRule:
        """Return the rule with the first spelling of its states."""
        source, target = (self._states.setdefault(name.lower(), name) for name in (rule.arc.source, rule.arc.target))
        if (source, target) == (rule.arc.source, rule.arc.target):
            return rule
        return replace(rule, arc=replace(rule.arc, source=source, target=target))

    def _arcs_from(self, watermark: int) -> dict[int, Arc]:
        return {id(each.arc): each.arc for each in self._rules if each.may_apply(watermark)}

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rules with their times, and the names of states, after the first version."""
        rules = self._rules
        table = pa.table({
            "text": pa.array([each.rule.text for each in rules], pa.string()),
            "begin": pa.array([each.arc.begin for each in rules], pa.int64()),
            "end": pa.array([each.arc.end for each in rules], pa.int64()),
            "is_listed": pa.array([each.is_listed for each in rules], pa.bool_()),
        })  # fmt: skip
        return {ARCS: table, ARC_STATES: pa.table({"name": pa.array(self._states.values(), pa.string())})}

    def restore(self, tables: dict[str, pa.Table], form: ArcForm, watermark: int) -> None:
        """Load a snapshot. `form` reads the statements."""
        table = tables[ARCS]
        self._states = {name.lower(): name for name in tables[ARC_STATES]["name"].to_pylist()}
        rules = map(self._with_known_states, form.rules(table["text"].to_pylist()))
        times = (table[name].to_pylist() for name in ("begin", "end", "is_listed"))
        self._rules = [
            TimedRule(rule, begin, end, is_listed=is_listed)
            for rule, begin, end, is_listed in zip(rules, *times, strict=True)
        ]
        self.has_version, self.arcs = True, self._arcs_from(watermark)


def changed_times(old: Sequence[Arc], new: Sequence[Arc], since: int, until: int) -> tuple[int, int] | None:
    """Return the interval of the times in `[since, until)` at which other arcs apply, or None.

    `old` and `new` may lack arcs that both have. Expressions are compared by their identity: for equal ones the
    interval may be too long, which costs time only.
    """
    weights: dict[tuple[str, str, bool, int, int, int], dict[int, int]] = {}
    for arcs, weight in ((old, -1), (new, 1)):
        for arc in arcs:
            begin, end = max(since, arc.begin), min(until, arc.end)
            if begin < end:
                parts = arc.source, arc.target, arc.is_silent, id(arc.fence), id(arc.transfer), id(arc.deadline)
                by_time = weights.setdefault(parts, {})
                by_time[begin] = by_time.get(begin, 0) + weight
                by_time[end] = by_time.get(end, 0) - weight
    changed = [time for by_time in weights.values() for time, weight in by_time.items() if weight]
    return (min(changed), max(changed)) if changed else None
