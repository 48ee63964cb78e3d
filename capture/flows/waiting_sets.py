"""Data sets that arrived before their template.

They are stored, up to a limit, and decoded when the template arrives.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from capture.flows.sampling import SCOPE_INTERFACE
from capture.flows.templates import V9, VARIABLE_LENGTH, DecoderLimits, Definition
from capture.lazy_dataclasses import dataclass

SCOPE_TYPES_END = 6
"""Field types below this number are scope types in NetFlow v9 (RFC 3954 §6.1): system, interface, line card, ..."""

V9_INTERFACE = 2
"""Scope type of an interface in NetFlow v9."""

INGRESS, EGRESS = 10, 14
"""Elements ingressInterface and egressInterface."""

SYSTEM_INIT_TIME = 160
"""Element systemInitTimeMilliseconds: the start of the exporter."""


def split_records(definition: Definition, body: bytes) -> Iterator[list[bytes]]:
    """Split a set into records, and records into fields. A record that exceeds the set is omitted."""
    offset = 0
    shortest = definition.min_record_bytes
    fields = definition.fields
    while offset + shortest <= len(body):
        record: list[bytes] = []
        for field in fields:
            length = field.length
            if length == VARIABLE_LENGTH:
                length = body[offset] if offset < len(body) else 0
                offset += 1
                if length == 255:
                    length = int.from_bytes(body[offset : offset + 2], "big")
                    offset += 2
            if offset + length > len(body):
                return
            record.append(body[offset : offset + length])
            offset += length
        yield record


def option_values(definition: Definition, record: list[bytes]) -> dict[int, bytes]:
    """Return the values of the IANA-registered elements of an option record by element ID.

    An interface in the scope is added as SCOPE_INTERFACE.
    """
    values: dict[int, bytes] = {}
    for index, (field, data) in enumerate(zip(definition.fields, record, strict=True)):
        is_in_scope = index < definition.scope_fields
        if is_in_scope and definition.version == V9 and field.id < SCOPE_TYPES_END:
            if field.id == V9_INTERFACE:
                values[SCOPE_INTERFACE] = data
        elif not field.enterprise:
            values.setdefault(field.id, data)
            if is_in_scope and field.id in (INGRESS, EGRESS):
                values[SCOPE_INTERFACE] = data
    return values


SET_OVERHEAD = 256
"""Bytes charged for a set in addition to its content: the memory of its Python objects."""

DROP_CAUSES = ("session_full", "all_full", "session_forgotten")
"""Causes for which a set is dropped: the limit of its session, the limit of all sessions, removal of its session."""

NODE_RESTARTED = "node_restarted"
"""Cause for which a set is lost: it waited in the memory of a node that ended. The next node does not read it again."""


@dataclass(frozen=True, slots=True)
class WaitingSet:
    """One set, the export header of its datagram, and the arrival time (ns)."""

    serial: int
    session: int
    template: int
    header: bytes
    body: bytes
    arrival: int

    @property
    def cost(self) -> int:
        """Bytes charged for the set."""
        return len(self.header) + len(self.body) + SET_OVERHEAD


class WaitingSets:
    """Waiting sets by session and template. The oldest sets are dropped first. `dropped` counts sets by cause."""

    def __init__(self, limits: DecoderLimits) -> None:
        """Begin without sets."""
        self.limits = limits
        self.sets: dict[int, WaitingSet] = {}  # in the order of arrival, like the sets of each session
        self.by_session: defaultdict[int, dict[int, WaitingSet]] = defaultdict(dict)
        self.templates: Counter[tuple[int, int]] = Counter()
        self.session_cost: Counter[int] = Counter()
        self.cost = 0
        self.kept = 0
        self.dropped = dict.fromkeys(DROP_CAUSES, 0)

    def __len__(self) -> int:
        return len(self.sets)

    def add(self, session: int, template: int, header: bytes, body: bytes, arrival: int) -> None:
        """Store one set, and drop older sets if a limit is exceeded."""
        self.kept += 1
        waiting_set = WaitingSet(self.kept, session, template, header, body, arrival)
        self.sets[waiting_set.serial] = self.by_session[session][waiting_set.serial] = waiting_set
        self.templates[session, template] += 1
        self.session_cost[session] += waiting_set.cost
        self.cost += waiting_set.cost
        while self.session_cost[session] > self.limits.session_waiting_bytes:
            self._drop(next(iter(self.by_session[session].values())), "session_full")
        while self.cost > self.limits.waiting_bytes:
            self._drop(next(iter(self.sets.values())), "all_full")

    def has(self, session: int, template: int) -> bool:
        """Return whether sets of a template wait."""
        return self.templates[session, template] > 0

    def templates_missing(self) -> list[tuple[int, int]]:
        """Return session and template ID of all templates for which sets wait."""
        return list(self.templates)

    def take(self, session: int, template: int) -> list[WaitingSet]:
        """Remove and return all sets of a template, in the order of arrival."""
        if not self.has(session, template):
            return []
        sets = [waiting_set for waiting_set in self.by_session[session].values() if waiting_set.template == template]
        for waiting_set in sets:
            self._remove(waiting_set)
        return sets

    def remove_session(self, session: int) -> None:
        """Drop all sets of a closed session."""
        for waiting_set in list(self.by_session.get(session, {}).values()):
            self._drop(waiting_set, "session_forgotten")

    def _drop(self, waiting_set: WaitingSet, cause: str) -> None:
        self._remove(waiting_set)
        self.dropped[cause] += 1

    def _remove(self, waiting_set: WaitingSet) -> None:
        del self.sets[waiting_set.serial], self.by_session[waiting_set.session][waiting_set.serial]
        self.cost -= waiting_set.cost
        self.session_cost[waiting_set.session] -= waiting_set.cost
        self.templates[waiting_set.session, waiting_set.template] -= 1
        if not self.templates[waiting_set.session, waiting_set.template]:
            del self.templates[waiting_set.session, waiting_set.template]
        if not self.by_session[waiting_set.session]:
            del self.by_session[waiting_set.session], self.session_cost[waiting_set.session]
