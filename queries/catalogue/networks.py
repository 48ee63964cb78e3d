"""Ready queries about layers below and inside IP: fragments, multicast, VLANs, tunnels."""

from __future__ import annotations

from queries.catalogue.ready_query import ReadyQuery

NETWORKS: tuple[ReadyQuery, ...] = ()
