"""Reference implementation of sessions."""

from __future__ import annotations

from tests.references.windows_oracle import Arrival

GAPS = (1, 2, 5, 10, 40, 300)


def sessions(gap: int, arrivals: list[Arrival]) -> set[tuple]:
    """By the definition: the rows of a group in order of time, cut wherever there is no row for the gap."""
    found = set()
    for group in {each.group for each in arrivals}:
        rows = sorted(each for each in arrivals if each.group == group)
        session = [rows[0]]
        for each in [*rows[1:], None]:
            if each is not None and each.ts - session[-1].ts < gap:
                session.append(each)
                continue
            numbers = [row.number for row in session]
            first, last = session[0].ts, session[-1].ts
            found.add((first, last + gap, group, len(session), sum(numbers), first, last, max(numbers)))
            session = [] if each is None else [each]
    return found
