"""Partials as in a spool: packets and bytes by address pair, from a table that is too small for its groups."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from bench.query_text import PAIRS
from lowlevel.punctuation import Item, Punctuation

LINK = "link"
SLOTS = 1 << 14


def read_items(path: Path) -> list[Item]:
    """Return all items of a node over a capture: batches of partials, and punctuations."""
    from capture.files.scan import scan
    from capture.open import open_mapped
    from lowlevel.node.node import Node
    from queries.gsql import compile_query

    file = open_mapped(path, "a bench")
    node = Node(LINK, file, [compile_query(PAIRS).leaves[0].low], SLOTS)
    return [item for block in scan(file).blocks for _, item in node.process(block)]


def partials_of(items: list[Item]) -> list[pa.RecordBatch]:
    """Return the batches of the items."""
    return [item for item in items if not isinstance(item, Punctuation)]
