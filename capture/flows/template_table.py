"""The templates of all sessions, and the table in which kernels find those of them that are in use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from capture.flows.kernels.sessions import TEMPLATE_WORDS, place_templates
from capture.flows.sessions import Session
from capture.flows.steps import Layouts
from capture.flows.templates import REFUSALS, Announcement, Bounds, Definition, announcements

CHANGES = ("new", "same", "other", "withdrawn", "evicted")
"""Effects of a template record: it adds a template, repeats, replaces or withdraws one. `evicted` is the effect on the
template that was announced longest ago, if a new one needs its room."""

HEARD = 16
"""Sets of templates that a session says again and again, and that are known by a digest of their bytes."""

ALL_OF_FLOWS, ALL_OF_OPTIONS = 2, 3
"""Numbers in a withdrawal that stand for every template of a kind (RFC 7011 §8.1)."""


class TemplateTable:
    """Takes in announcements, and compiles a template when the first data of it come: most of a hostile sender's never.

    `changes` and `refused` count template records; a session's own templates are in the session.
    """

    def __init__(self, bounds: Bounds, layouts: Layouts) -> None:
        """Keep as many templates as `bounds` allows."""
        self.bounds = bounds
        self.layouts = layouts
        self.changes = dict.fromkeys(CHANGES, 0)
        self.refused = dict.fromkeys(REFUSALS, 0)
        self.slots = np.zeros(TEMPLATE_WORDS << (4 * bounds.templates - 1).bit_length(), np.int64)
        self.listener: Callable[[Session, Announcement], None] | None = None
        """Called with every template record that is accepted."""
        self._announced: dict[tuple[int, int], Session] = {}
        """Session of each template, by session number and template number, in the order of their announcements."""
        self._placed: set[tuple[int, int]] = set()

    @property
    def count(self) -> int:
        """Templates of all sessions."""
        return len(self._announced)

    @property
    def mask(self) -> int:
        """What the number of a slot is cut down to."""
        return len(self.slots) // TEMPLATE_WORDS - 1

    def announce_set(self, session: Session, number: int, body: bytes) -> list[int]:
        """Take in a set of template records; return the templates whose data mean something now that they did not.

        Many exporters say all their templates in every datagram: what was heard before is not read again.
        """
        digest = hashlib.blake2b(body, digest_size=16, salt=bytes([number])).digest()
        known = session.heard.get(digest)
        if known is not None:
            self.changes["same"] += known
            return []
        before = self.changes["same"]
        records = list(announcements(session.key.version, number in (1, 3), body))
        found = [each.id for each in records if self.announce(session, each)]
        if self.changes["same"] - before == len(records) and len(session.heard) < HEARD:
            session.heard[digest] = len(records)
        return found

    def announce(self, session: Session, each: Announcement) -> bool:
        """Take in one template record; return whether data of its number means something now that it did not before."""
        if each.refused:
            self.refused[each.refused] += 1
            return False
        if self.listener is not None:
            self.listener(session, each)
        if each.definition is None:
            self._withdraw(session, each.id)
            return False
        known = session.templates.get(each.id)
        if known == each.definition:
            self.changes["same"] += 1
            self._note(session, each.id, each.definition)
            return False
        if known is None:
            if len(session.templates) >= self.bounds.session_templates:
                self._evict(session, next(iter(session.templates)))
            if self.count >= self.bounds.templates:
                (_, oldest), owner = next(iter(self._announced.items()))
                self._evict(owner, oldest)
        self.changes["new" if known is None else "other"] += 1
        session.heard.clear()
        self._note(session, each.id, each.definition)
        self._displace(session, each.id)
        return True

    def _note(self, session: Session, template: int, definition: Definition) -> None:
        """Make a template the one that was announced last."""
        session.templates.pop(template, None)
        session.templates[template] = definition
        self._announced.pop((session.number, template), None)
        self._announced[session.number, template] = session

    def _evict(self, session: Session, template: int) -> None:
        self._remove(session, template)
        self.changes["evicted"] += 1

    def _remove(self, session: Session, template: int) -> None:
        del session.templates[template], self._announced[session.number, template]
        session.heard.clear()
        self._displace(session, template)

    def _withdraw(self, session: Session, template: int) -> None:
        ended = [template]
        if template in (ALL_OF_FLOWS, ALL_OF_OPTIONS):
            options = template == ALL_OF_OPTIONS
            ended = [each for each, definition in session.templates.items() if definition.options == options]
        for each in ended:
            if each in session.templates:
                self._remove(session, each)
                self.changes["withdrawn"] += 1

    def forget(self, session: Session) -> None:
        """Forget all templates of a session that ends."""
        for template in list(session.templates):
            self._remove(session, template)

    def compile(self, session: Session, template: int) -> None:
        """Compile a template of flow records where kernels find it. Tables that are full begin anew: they ask again."""
        full = 2 * self.bounds.templates
        if len(self.layouts) > full or len(self._placed) >= full:
            self.layouts.clear()
            self.slots[:] = 0
            self._placed.clear()
        self._place(session, template, self.layouts.number(session.templates[template]))
        self._placed.add((session.number, template))

    def _displace(self, session: Session, template: int) -> None:
        """Make kernels ask again; the slot stays taken until the tables begin anew."""
        if (session.number, template) in self._placed:
            self._place(session, template, -1)

    def _place(self, session: Session, template: int, layout: int) -> None:
        key = np.array([(session.number + 1) << 16 | template, layout], np.int64)
        place_templates(self.slots, self.mask, key[:1], key[1:], 1)
