"""Translate EQL rules: an event becomes a WHERE, a sequence MATCH_RECOGNIZE, a missing event an ANTI JOIN.

Elastic's engine stores at most one open sequence in each state, for each key: a sequence that reaches a state replaces
the sequence in this state. The row pattern computes the same matches. Consider a sequence in the state `k` (k events
have matched). `h` is the state of the next later sequence with the same key, so `h < k`:

    the row is event k+1                     the sequence goes on to k+1
    the row is event h+1, and h+1 < k        the later sequence follows: h := h+1
    the row is event h+1, and h+1 = k        the later sequence replaces this one, which ends without a match
    the row is the event of UNTIL            all sequences end

A later sequence begins at any row that is event 1, so nothing is stored for `h = 0`. In the pattern, a row that
advances only the later sequence has the variable Fk, and a row that advances both sequences has Gk. So h is the number
of rows with these variables.

    PATTERN (E1 (O1)* (E2 | G2) (O2 | F2)* E3)     for three events
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queries.text.errors import QueryError
from queries.translation.eql_parser import EqlRule, Item, parse_eql
from queries.translation.fields import SHOWN, FieldNames
from queries.translation.tree import Condition, Junction, Truth

LINE = 98
"""Maximum number of characters of a line with a list."""

MAX_EVENTS = 100
"""Maximum number of events of a sequence."""


def eql_to_sql(text: str, kind: str = "packets") -> str:
    """Return a rule as a query over `packets` or `flows`. Raises QueryError for parts that cannot be translated."""
    rule = parse_eql(text)
    names = FieldNames(kind, text)
    if not rule.is_sequence:
        return _event_query(rule.items[0].condition, names)
    return _Sequence(rule, names).sql()


def _event_query(condition: Condition, names: FieldNames) -> str:
    return f"SELECT {', '.join(SHOWN[names.kind])}\nFROM {names.kind}\nWHERE {names.condition(condition)}"


class _Sequence:
    """A sequence: its events, and the missing events before the first, between events, and after the last one."""

    def __init__(self, rule: EqlRule, names: FieldNames) -> None:
        self._rule = rule
        self._names = names
        self._events = [item for item in rule.items if not item.is_missing]
        self._gaps: list[list[Item]] = [[] for _ in range(len(self._events) + 1)]
        event = 0
        for item in rule.items:
            event += not item.is_missing
            if item.is_missing:
                self._gaps[event].append(item)
        self._check()

    def _check(self) -> None:
        text = self._names.text
        missing = [item for gap in self._gaps for item in gap]
        if not self._events:
            raise QueryError("got a sequence of missing events only", text, 0, "an event without '!'")
        if len(self._events) > MAX_EVENTS:
            problem = f"got {len(self._events)} events"
            raise QueryError(problem, text, self._events[MAX_EVENTS].position, f"at most {MAX_EVENTS}")
        if missing and self._rule.span is None:
            raise QueryError("a missing event needs a time", text, missing[0].position, "sequence with maxspan=…")
        for gap in self._gaps[1:-1]:
            if gap and len(self._events) > 2:
                expected = "missing events between events only in sequences of two events"
                raise QueryError("a missing event between events", text, gap[0].position, expected)
        if self._rule.until is not None and missing:
            problem = "until with a missing event"
            raise QueryError(problem, text, self._rule.until.position, "one of both")
        if self._rule.until is not None and self._rule.until.is_missing:
            raise QueryError("until with '!'", text, self._rule.until.position, "until [CATEGORY where CONDITION]")
        for item in (*self._rule.items, *([self._rule.until] if self._rule.until else [])):
            if len(item.keys) != len(self._events[0].keys):
                problem = f"got {len(item.keys)} fields after by"
                expected = f"{len(self._events[0].keys)}, as many as the first event has"
                raise QueryError(problem, text, item.position, expected)

    def sql(self) -> str:
        """Return the query."""
        matches = self._matches()
        before, after = self._gaps[0], self._gaps[-1]
        if not before and not after:
            return matches
        span = self._rule.span
        indented = matches.replace("\n", "\n      ")
        query, shown = f"({indented}) AS M", self._result_names()
        joins = [(each, False) for each in before] + [(each, True) for each in after]
        for number, (item, is_after) in enumerate(joins, 1):
            name = f"N{number}"
            rows = self._event_rows([item], name)
            times = (
                f"{name}.ts > M.match_end AND {name}.ts - M.match_start <= {span}"
                if is_after
                else f"{name}.ts < M.match_start AND M.match_end - {name}.ts <= {span}"
            )
            keys = "".join(f"M.key{key} = {name}.key{key} AND " for key in range(1, len(item.keys) + 1))
            ranges = (f"{span} ns", "0 s") if is_after else ("0 s", f"{span} ns")
            query = f"{query} [RANGE {ranges[0]}]\nANTI JOIN ({rows}) AS {name} [RANGE {ranges[1]}]\n  ON {keys}{times}"
            columns = _wrapped((f"M.{each}" for each in shown), 7)
            query = f"SELECT {columns}\nFROM {query}"
            if number < len(joins):
                query = "(" + query.replace("\n", "\n      ") + ") AS M"
        return query

    def _result_names(self) -> list[str]:
        keys = [f"key{number}" for number in range(1, len(self._events[0].keys) + 1)]
        columns = [f"{name}{event}" for event in range(1, len(self._events) + 1) for name in self._shown]
        return [*keys, "match_start", "match_end", *columns]

    @property
    def _shown(self) -> tuple[str, ...]:
        return SHOWN[self._names.kind]

    def _matches(self) -> str:
        events = self._events
        marks = [f"q{number}" for number in range(1, len(events) + 1)]
        relevant = [*events, *(item for gap in self._gaps[1:-1] for item in gap)]
        marks += [f"n{number}" for number in range(1, len(relevant) - len(events) + 1)]
        if self._rule.until is not None:
            relevant.append(self._rule.until)
            marks.append("u")
        rows = self._marked_rows(relevant, marks)
        pattern, define, alternatives = self._pattern(marks)
        measures = _wrapped(
            f"{_last_value(alternatives[event], name)} AS {name}{event + 1}"
            for event in range(len(events))
            for name in self._shown
        )
        keys = [f"key{number}" for number in range(1, len(events[0].keys) + 1)]
        partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
        within = "" if self._rule.span is None else f" WITHIN {self._rule.span + 1} ns"
        return (
            f"SELECT {_wrapped(self._result_names(), 7)}\nFROM ({rows})\n"
            f"MATCH_RECOGNIZE (\n    {partition}ORDER BY ts\n    MEASURES {measures}\n"
            f"    AFTER MATCH SKIP TO NEXT ROW\n    PATTERN ({pattern}){within}\n"
            f"    DEFINE {f',{chr(10)}           '.join(define)})"
        )

    def _event_rows(self, items: Sequence[Item], name: str) -> str:
        """Return a query for the times and keys of the rows of `items`."""
        return " UNION ALL ".join(
            f"SELECT ts{self._key_columns(item)} FROM {self._names.kind} WHERE {self._selected([item])}"
            for item in items
        )

    def _key_columns(self, item: Item) -> str:
        return "".join(f", {self._names.column(key)} AS key{number}" for number, key in enumerate(item.keys, 1))

    def _selected(self, items: Sequence[Item]) -> str:
        """Return the condition that selects the rows of the items. Rows without a key are not part of a sequence."""
        condition = Junction("OR", tuple(item.condition for item in items)) if len(items) > 1 else items[0].condition
        text = "" if condition == Truth(True) else self._names.condition(condition)
        keys = [f"{self._names.column(key)} IS NOT NULL" for key in items[0].keys]
        parts = [*([f"({text})" if keys and len(items) > 1 else text] if text else []), *keys]
        return " AND ".join(dict.fromkeys(parts)) or "TRUE"

    def _marked_rows(self, items: Sequence[Item], marks: Sequence[str]) -> str:
        """Return a query for the rows of all items, with a column for each item: 1 if the row is this event, else 0."""
        columns = {item.position: self._key_columns(item) for item in items}
        shown = ", ".join(self._shown)
        if len(set(columns.values())) == 1:
            cases = [self._mark(item, mark) for item, mark in zip(items, marks, strict=True)]
            lines = ",\n             ".join(cases)
            return (
                f"SELECT {shown}{self._key_columns(items[0])},\n             {lines}\n      FROM {self._names.kind}"
                f"\n      WHERE {self._selected(items)}"
            )
        # Events have different keys, so a row is repeated for each event that it matches. ORDER BY puts the row of the
        # later event first, because a sequence looks for its later event first.
        parts = []
        for item, mark in zip(items, marks, strict=True):
            cases = [self._mark(item, mark) if each == mark else f"0 AS {each}" for each in marks]
            parts.append(
                f"SELECT {shown}{self._key_columns(item)}, {', '.join(cases)}\n      FROM {self._names.kind}"
                f"\n      WHERE {self._selected([item])}"
            )
        return "\n      UNION ALL ".join(parts)

    def _mark(self, item: Item, mark: str) -> str:
        condition = self._names.condition(item.condition)
        return f"1 AS {mark}" if condition == "TRUE" else f"CASE WHEN {condition} THEN 1 ELSE 0 END AS {mark}"

    def _pattern(self, marks: Sequence[str]) -> tuple[str, list[str], list[list[str]]]:
        """Return the pattern, the definitions of its variables, and the variables of each event."""
        count = len(self._events)
        end = " AND u = 0" if "u" in marks else ""
        missing = "".join(f" AND {mark} = 0" for mark in marks if mark.startswith("n"))
        movers = [f"G{number}" for number in range(2, count)] + [f"F{number}" for number in range(2, count)]
        parts, define, variables = ["E1"], ["E1 AS q1 = 1"], [["E1"]]
        for state in range(1, count):
            event, other, follower = f"q{state + 1}", f"O{state}", f"F{state}"
            known = [each for each in movers if int(each[1:]) <= state]
            define.append(f"{other} AS {event} = 0 AND NOT ({self._moves(known, state)}){missing}{end}")
            between = other
            if state > 1:
                moved = self._moves(known, state, follower)
                define.append(
                    f"{follower} AS {event} = 0 AND ({moved}) AND {_later_state(known, follower)} < {state - 1}{end}"
                )
                between = f"({other} | {follower})"
            parts.append(f"{between}*")
            last = state + 1 == count
            both = f"G{state + 1}"
            if last:
                define.append(f"E{state + 1} AS {event} = 1{end}")
                parts.append(f"E{state + 1}")
                variables.append([f"E{state + 1}"])
                continue
            define.append(f"E{state + 1} AS {event} = 1 AND NOT ({self._moves(known, state)}){end}")
            define.append(f"{both} AS {event} = 1 AND ({self._moves([*known, both], state, both)}){end}")
            parts.append(f"(E{state + 1} | {both})")
            variables.append([f"E{state + 1}", both])
        return " ".join(parts), define, variables

    def _moves(self, movers: Sequence[str], state: int, tested: str = "") -> str:
        """Return the condition that the row advances the later sequence.

        `tested` is the variable of the row, if it is in `movers`.
        """
        if state == 1:
            return "q1 = 1"
        later = _later_state(movers, tested)
        return " OR ".join(f"{later} = {number} AND q{number + 1} = 1" for number in range(state))


def _later_state(movers: Sequence[str], tested: str) -> str:
    """Return the state of the later sequence before the row.

    The row itself is subtracted, because counts include it.
    """
    counts = " + ".join(f"count({each}.*)" for each in movers) or "0"
    return f"({counts} - 1)" if tested else f"({counts})"


def _wrapped(parts: Iterable[str], indent: int = 13) -> str:
    """Join the parts of a list, in lines of at most LINE characters that begin with `indent` blanks."""
    lines = [""]
    for part in parts:
        if lines[-1] and indent + len(lines[-1]) + len(part) > LINE:
            lines.append("")
        lines[-1] += f"{part}, "
    return ("\n" + " " * indent).join(lines).replace(", \n", ",\n").rstrip(", ")


def _last_value(variables: Sequence[str], name: str) -> str:
    values = [f"{each}.{name}" for each in variables]
    return values[0] if len(values) == 1 else f"coalesce({', '.join(values)})"
