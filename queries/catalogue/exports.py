"""Ready queries about flow exports and samples, and their health."""

from __future__ import annotations

from queries.catalogue.ready_query import ReadyQuery

EXPORTS: tuple[ReadyQuery, ...] = ()
