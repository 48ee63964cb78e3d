"""The templates of all sessions, and the table in which kernels find those of them that are in use."""

from __future__ import annotations

import hashlib

import numpy as np

from capture.flows.bounds import Bounds
from capture.flows.kernels.sessions import TEMPLATE_WORDS, place_templates
from capture.flows.layouts import Layouts
from capture.flows.sessions import Session
from capture.flows.templates import REFUSALS, Announcement, announcements

CHANGES = ("new", "same", "other", "withdrawn")
"""What a template record does: it is the first of its number, says the same again, replaces one, or ends one."""

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
        self.count = 0
        self._placed: set[tuple[int, int]] = set()

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
        if each.definition is None:
            self._withdraw(session, each.id)
            return False
        known = session.templates.get(each.id)
        if known == each.definition:
            self.changes["same"] += 1
            return False
        if known is None:
            if len(session.templates) >= self.bounds.session_templates or self.count >= self.bounds.templates:
                self.refused["too_many_templates"] += 1
                return False
            self.count += 1
        self.changes["new" if known is None else "other"] += 1
        session.heard.clear()
        session.templates[each.id] = each.definition
        self._displace(session, each.id)
        return True

    def _withdraw(self, session: Session, template: int) -> None:
        ended = [template]
        if template in (ALL_OF_FLOWS, ALL_OF_OPTIONS):
            options = template == ALL_OF_OPTIONS
            ended = [each for each, definition in session.templates.items() if definition.options == options]
        for each in ended:
            if session.templates.pop(each, None) is not None:
                self.changes["withdrawn"] += 1
                session.heard.clear()
                self.count -= 1
                self._displace(session, each)

    def forget(self, session: Session) -> None:
        """Forget all templates of a session that ends."""
        for template in session.templates:
            self._displace(session, template)
        self.count -= len(session.templates)
        session.templates.clear()

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
