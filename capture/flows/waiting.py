"""Sets of data that came before their template: kept as they came, bounded, and read when the template is there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from capture.flows.sampling import SCOPE_INTERFACE
from capture.flows.templates import V9, VARIABLE, Bounds, Definition

SCOPE_TYPES = 6
"""Numbers below are scope types in NetFlow v9 (RFC 3954 §6.1): system, interface, line card, cache, template."""

V9_INTERFACE = 2
INGRESS, EGRESS = 10, 14

STARTED = 160
"""systemInitTimeMilliseconds."""


def records(definition: Definition, body: bytes) -> Iterator[list[bytes]]:
    """Cut a set's bytes into records of fields. One that goes on behind the set is not there."""
    at = 0
    shortest = definition.shortest
    fields = definition.fields
    while at + shortest <= len(body):
        found: list[bytes] = []
        for each in fields:
            length = each.length
            if length == VARIABLE:
                length = body[at] if at < len(body) else 0
                at += 1
                if length == 255:
                    length = int.from_bytes(body[at : at + 2], "big")
                    at += 2
            if at + length > len(body):
                return
            found.append(body[at : at + length])
            at += length
        yield found


def option_values(definition: Definition, record: list[bytes]) -> dict[int, bytes]:
    """Registered elements of an option record by number, the scope's too; its interface under SCOPE_INTERFACE."""
    values: dict[int, bytes] = {}
    for number, (each, data) in enumerate(zip(definition.fields, record, strict=True)):
        scope = number < definition.scope
        if scope and definition.version == V9 and each.id < SCOPE_TYPES:
            if each.id == V9_INTERFACE:
                values[SCOPE_INTERFACE] = data
        elif not each.enterprise:
            values.setdefault(each.id, data)
            if scope and each.id in (INGRESS, EGRESS):
                values[SCOPE_INTERFACE] = data
    return values


OVERHEAD = 256
"""Bytes that a set is charged beside its own: what keeping it costs."""

CAUSES = ("session_full", "all_full", "session_forgotten")
"""Why a set is dropped unread: its session keeps no more, all sessions together do not, or its session is gone."""

NODE_RESTARTED = "node_restarted"
"""Why a set is lost that waited in the memory of a node that ended: the next one continues after it."""


@dataclass(frozen=True, slots=True)
class WaitingSet:
    """One set with the export header it came under, and when that arrived (ns)."""

    serial: int
    session: int
    template: int
    header: bytes
    body: bytes
    arrival: int

    @property
    def cost(self) -> int:
        """Bytes that it is charged."""
        return len(self.header) + len(self.body) + OVERHEAD


class Waiting:
    """Sets by session and template, the oldest dropped first. `dropped` counts sets by cause."""

    def __init__(self, bounds: Bounds) -> None:
        """Keep as much as `bounds` says."""
        self.bounds = bounds
        self.sets: dict[int, WaitingSet] = {}  # in the order in which they came, as those of each session
        self.by_session: defaultdict[int, dict[int, WaitingSet]] = defaultdict(dict)
        self.templates: Counter[tuple[int, int]] = Counter()
        self.session_cost: Counter[int] = Counter()
        self.cost = 0
        self.kept = 0
        self.dropped = dict.fromkeys(CAUSES, 0)

    def __len__(self) -> int:
        return len(self.sets)

    def keep(self, session: int, template: int, header: bytes, body: bytes, arrival: int) -> None:
        """Keep one set, and drop older ones where there is no room."""
        self.kept += 1
        each = WaitingSet(self.kept, session, template, header, body, arrival)
        self.sets[each.serial] = self.by_session[session][each.serial] = each
        self.templates[session, template] += 1
        self.session_cost[session] += each.cost
        self.cost += each.cost
        while self.session_cost[session] > self.bounds.session_waiting_bytes:
            self._drop(next(iter(self.by_session[session].values())), "session_full")
        while self.cost > self.bounds.waiting_bytes:
            self._drop(next(iter(self.sets.values())), "all_full")

    def holds(self, session: int, template: int) -> bool:
        """Whether a set of a template waits."""
        return self.templates[session, template] > 0

    def templates_missing(self) -> list[tuple[int, int]]:
        """Return the session and template numbers that sets wait for."""
        return list(self.templates)

    def take(self, session: int, template: int) -> list[WaitingSet]:
        """Hand out all sets of a template, in the order in which they came."""
        if not self.holds(session, template):
            return []
        found = [each for each in self.by_session[session].values() if each.template == template]
        for each in found:
            self._remove(each)
        return found

    def forget(self, session: int) -> None:
        """Drop all sets of a session that is no more."""
        for each in list(self.by_session.get(session, {}).values()):
            self._drop(each, "session_forgotten")

    def _drop(self, each: WaitingSet, cause: str) -> None:
        self._remove(each)
        self.dropped[cause] += 1

    def _remove(self, each: WaitingSet) -> None:
        del self.sets[each.serial], self.by_session[each.session][each.serial]
        self.cost -= each.cost
        self.session_cost[each.session] -= each.cost
        self.templates[each.session, each.template] -= 1
        if not self.templates[each.session, each.template]:
            del self.templates[each.session, each.template]
        if not self.by_session[each.session]:
            del self.by_session[each.session], self.session_cost[each.session]
