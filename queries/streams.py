"""The links of FROM: which of them are read, and what kind of their rows.

    packets, frames, flows, samples    rows of that kind of every link
    Main1.flows                        rows of that kind of the link Main1
    Main1                              the packets of the link Main1

All links of one union are of one kind: other kinds have other columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capture.flows.sampling import FixedRates
from lowlevel.kinds import KINDS
from queries.errors import QueryError
from queries.tables import StreamName

PACKETS = "packets"
"""The kind of a link that names none."""

SPREADABLE = "flows"
"""The kind whose rows last from one time to another."""


@dataclass(frozen=True, slots=True)
class From:
    """`streams` are links as they are spelled, or a kind alone for all links; `kind` is what their rows are."""

    streams: tuple[str, ...]
    kind: str

    @property
    def shown(self) -> tuple[str, ...]:
        """The streams as they may be written in FROM."""
        return tuple(
            stream if self.kind == PACKETS or stream.lower() == self.kind else f"{stream}.{self.kind}"
            for stream in self.streams
        )


def links_of(sql: str, streams: Sequence[StreamName]) -> From:
    """Return the union of links, each as it is spelled; QueryError for two kinds, and for one link twice."""
    names: list[str] = []
    kind_of_all: str | None = None
    for stream in streams:
        token = stream.token
        kind = stream.kind or (token.text.lower() if token.text.lower() in KINDS else PACKETS)
        if kind_of_all not in (None, kind):
            problem = f"{kind} beside {kind_of_all}"
            raise QueryError(problem, sql, token.start, "streams of one kind, since each has columns of its own")
        if token.text.lower() in (name.lower() for name in names):
            raise QueryError(f"stream {token.shown} is listed twice", sql, token.start, "each stream once")
        alone = next((name for name in (*names, token.text) if name.lower() in KINDS), None)
        if names and alone:
            problem = f"'{alone}' beside other streams"
            raise QueryError(problem, sql, token.start, f"{alone} alone, which are those of every link")
        kind_of_all = kind
        names.append(token.text)
    return From(tuple(names), kind_of_all or PACKETS)


@dataclass(frozen=True, slots=True)
class Links:
    """What a query of links has besides their names: the streams, the layer of plain names, rates set by hand."""

    source: From
    layer: str
    sampling: FixedRates | None = None
