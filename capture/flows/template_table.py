"""The templates of all sessions, and the hash table of the templates that kernels use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from capture.flows.kernels.sessions import TEMPLATE_WORDS, set_layouts
from capture.flows.layouts import Layouts
from capture.flows.sessions import Session
from capture.flows.templates import REFUSAL_CAUSES, Announcement, DecoderLimits, Definition, read_announcements

RECORD_EFFECTS = ("new", "same", "other", "withdrawn", "evicted")
"""Effects of a template record: a new ID, the same definition again, another definition, a withdrawal, an eviction. An
eviction removes the template that was announced longest ago, to make room for a new template."""

MAX_REPEATED_SETS = 16
"""Maximum number of repeated template sets per session that are recognised by a digest of their bytes."""

ALL_OF_FLOWS, ALL_OF_OPTIONS = 2, 3
"""IDs in a withdrawal that mean all templates of a kind (RFC 7011 §8.1)."""


class TemplateTable:
    """The templates of all sessions. A template is compiled when its first data arrive, so bogus templates cost little.

    `changes` and `refused` count template records. The templates themselves are stored in the sessions.
    """

    def __init__(self, limits: DecoderLimits, layouts: Layouts) -> None:
        """Make a table for `limits.templates` templates."""
        self.limits = limits
        self.layouts = layouts
        self.changes = dict.fromkeys(RECORD_EFFECTS, 0)
        self.refused = dict.fromkeys(REFUSAL_CAUSES, 0)
        self.slots = np.zeros(TEMPLATE_WORDS << (4 * limits.templates - 1).bit_length(), np.int64)
        self.listener: Callable[[Session, Announcement], None] | None = None
        """A function that is called with every accepted template record."""
        self._announced: dict[tuple[int, int], Session] = {}
        """Session of each template, by session index and template ID, in the order of announcement."""
        self._compiled: set[tuple[int, int]] = set()

    @property
    def count(self) -> int:
        """Number of templates of all sessions."""
        return len(self._announced)

    @property
    def mask(self) -> int:
        """Bit mask that converts a hash into a slot number."""
        return len(self.slots) // TEMPLATE_WORDS - 1

    def announce_set(self, session: Session, set_id: int, body: bytes) -> list[int]:
        """Process a set of template records. Return the IDs of new and changed templates.

        Many exporters repeat all templates in every datagram. Repeated sets are recognised by a digest and not parsed.
        """
        digest = hashlib.blake2b(body, digest_size=16, salt=bytes([set_id])).digest()
        known = session.repeated_sets.get(digest)
        if known is not None:
            self.changes["same"] += known
            return []
        before = self.changes["same"]
        records = list(read_announcements(session.key.version, set_id in (1, 3), body))
        changed_ids = [record.id for record in records if self.announce(session, record)]
        if self.changes["same"] - before == len(records) and len(session.repeated_sets) < MAX_REPEATED_SETS:
            session.repeated_sets[digest] = len(records)
        return changed_ids

    def announce(self, session: Session, announcement: Announcement) -> bool:
        """Process one template record. Return whether it changes how data of its ID are decoded."""
        if announcement.refusal_cause:
            self.refused[announcement.refusal_cause] += 1
            return False
        if self.listener is not None:
            self.listener(session, announcement)
        if announcement.definition is None:
            self._withdraw(session, announcement.id)
            return False
        known = session.templates.get(announcement.id)
        if known == announcement.definition:
            self.changes["same"] += 1
            self._store_newest(session, announcement.id, announcement.definition)
            return False
        if known is None:
            if len(session.templates) >= self.limits.session_templates:
                self._evict(session, next(iter(session.templates)))
            if self.count >= self.limits.templates:
                (_, oldest), owner = next(iter(self._announced.items()))
                self._evict(owner, oldest)
        self.changes["new" if known is None else "other"] += 1
        session.repeated_sets.clear()
        self._store_newest(session, announcement.id, announcement.definition)
        self._clear_layout(session, announcement.id)
        return True

    def _store_newest(self, session: Session, template_id: int, definition: Definition) -> None:
        """Store a template as the most recently announced template."""
        session.templates.pop(template_id, None)
        session.templates[template_id] = definition
        self._announced.pop((session.number, template_id), None)
        self._announced[session.number, template_id] = session

    def _evict(self, session: Session, template_id: int) -> None:
        self._remove(session, template_id)
        self.changes["evicted"] += 1

    def _remove(self, session: Session, template_id: int) -> None:
        del session.templates[template_id], self._announced[session.number, template_id]
        session.repeated_sets.clear()
        self._clear_layout(session, template_id)

    def _withdraw(self, session: Session, template_id: int) -> None:
        withdrawn_ids = [template_id]
        if template_id in (ALL_OF_FLOWS, ALL_OF_OPTIONS):
            options = template_id == ALL_OF_OPTIONS
            withdrawn_ids = [
                known_id for known_id, definition in session.templates.items() if definition.is_options == options
            ]
        for withdrawn_id in withdrawn_ids:
            if withdrawn_id in session.templates:
                self._remove(session, withdrawn_id)
                self.changes["withdrawn"] += 1

    def forget(self, session: Session) -> None:
        """Remove all templates of a session that is closed."""
        for template_id in list(session.templates):
            self._remove(session, template_id)

    def compile(self, session: Session, template_id: int) -> None:
        """Compile a template of flow records for the kernels.

        Full tables are cleared first. The kernels then request the cleared templates again.
        """
        limit = 2 * self.limits.templates
        if len(self.layouts) > limit or len(self._compiled) >= limit:
            self.layouts.clear()
            self.slots[:] = 0
            self._compiled.clear()
        self._set_layout(session, template_id, self.layouts.number(session.templates[template_id]))
        self._compiled.add((session.number, template_id))

    def _clear_layout(self, session: Session, template_id: int) -> None:
        """Make kernels request a template again. Its slot stays used until the tables are cleared."""
        if (session.number, template_id) in self._compiled:
            self._set_layout(session, template_id, -1)

    def _set_layout(self, session: Session, template_id: int, layout: int) -> None:
        key = np.array([(session.number + 1) << 16 | template_id, layout], np.int64)
        set_layouts(self.slots, self.mask, key[:1], key[1:], 1)
