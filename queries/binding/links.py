"""The links that FROM names, and the kind of their rows.

    packets, frames, flows, samples    rows of this kind of every link
    Main1.flows                        rows of this kind of the link Main1
    Main1                              the packets of the link Main1

All links of one union must have rows of the same kind, because each kind has other columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from capture.flows.sampling import FixedRates
from capture.lazy_dataclasses import dataclass
from lowlevel.kinds import KINDS
from queries.text.errors import QueryError
from queries.text.tree import Stream

PACKETS = "packets"
"""The kind of rows if FROM states only the name of a link."""

SPREADABLE_KIND = "flows"
"""The kind whose rows have a start and an end, so that SPREAD can divide them."""


@dataclass(frozen=True, slots=True)
class LinkUnion:
    """A union of links. `streams`: the names of the links as written, or one kind of rows, which means all links."""

    streams: tuple[str, ...]
    kind: str

    @property
    def stream_names(self) -> tuple[str, ...]:
        """The streams as FROM contains them."""
        return tuple(
            stream if self.kind == PACKETS or stream.lower() == self.kind else f"{stream}.{self.kind}"
            for stream in self.streams
        )


def links_of(sql: str, streams: Sequence[Stream]) -> LinkUnion:
    """Return the union of links. Raises QueryError for two kinds of rows, and for a link that is listed twice."""
    names: list[str] = []
    kind_of_all: str | None = None
    for stream in streams:
        word = stream.word
        kind = stream.kind or (word.text.lower() if word.text.lower() in KINDS else PACKETS)
        if kind_of_all not in (None, kind):
            problem = f"{kind} together with {kind_of_all}"
            raise QueryError(problem, sql, word.start, "streams of one kind, because each kind has different columns")
        if word.text.lower() in (name.lower() for name in names):
            raise QueryError(f"stream {word.name_in_messages} is listed twice", sql, word.start, "each stream once")
        alone = next((name for name in (*names, word.text) if name.lower() in KINDS), None)
        if names and alone:
            problem = f"'{alone}' together with other streams"
            raise QueryError(problem, sql, word.start, f"only {alone}, which means the rows of every link")
        kind_of_all = kind
        names.append(word.text)
    return LinkUnion(tuple(names), kind_of_all or PACKETS)


@dataclass(frozen=True, slots=True)
class Links:
    """The links of a query, the IP layer of names without a prefix, and the sampling rates that the user has set."""

    source: LinkUnion
    layer: str
    sampling: FixedRates | None = None
