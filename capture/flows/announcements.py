"""Announcements of exporters in one file (templates, sampling, start), and an interface to other files of the link."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Protocol

from capture.flows.sampling import Sampling
from capture.flows.sessions import Session, SessionKey
from capture.flows.templates import Announcement, DecoderLimits, Definition
from capture.lazy_dataclasses import dataclass

TemplateKey = tuple[SessionKey, int]
"""A session and a template ID."""


@dataclass(slots=True)
class Announcements:
    """The templates that one file announces: the first and the last definition of each (None: withdrawn).

    `sampling`, `exporter_starts`: the sampling and the exporter's start (ms) of each session at the end of the file.
    """

    first_definitions: dict[TemplateKey, Definition] = field(default_factory=dict)
    last_definitions: dict[TemplateKey, Definition | None] = field(default_factory=dict)
    sampling: dict[SessionKey, Sampling] = field(default_factory=dict)
    exporter_starts: dict[SessionKey, int] = field(default_factory=dict)

    def add(self, session: Session, announcement: Announcement) -> None:
        """Add a template record that a decoder has accepted, up to the number of templates that a decoder stores."""
        key = session.key, announcement.id
        if announcement.definition is not None and key not in self.first_definitions:
            if len(self.first_definitions) >= DecoderLimits().templates:
                return
            self.first_definitions[key] = announcement.definition
        if (
            announcement.definition is not None
            or key in self.last_definitions
            or len(self.last_definitions) < DecoderLimits().templates
        ):
            self.last_definitions[key] = announcement.definition


class OtherFiles(Protocol):
    """The other files of a link, which together are one recording."""

    def earlier_definition(self, key: SessionKey, template: int) -> Definition | None:
        """Return the last definition of a template in earlier files; None if there is none or it was withdrawn."""
        ...

    def rates(self, key: SessionKey) -> tuple[Sampling | None, int | None]:
        """Return the last sampling and exporter's start (ms) that earlier files announced; None if not announced."""
        ...

    def later_announcements(self) -> Iterator[Announcements]:
        """Yield the announcements of the later files, in file order."""
        ...
