"""Progress: what a stream promises about its future (Li 2008, §4 and §5.2)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

END = 2**63 - 1
"""The low watermark of a stream that has ended: P(inf)."""

BEGINNING = -(2**63)
"""The low watermark of a stream that has never spoken: no bound at all."""


@dataclass(frozen=True, slots=True)
class Punctuation:
    """A promise: no later row of `link` has a progressing value below `low`.

    Between the levels the value is `ts` in ns; after Bucket it is a window id. `END` says that nothing follows.
    """

    link: str
    low: int


Item = pa.RecordBatch | Punctuation
"""What flows between operators: rows, or a promise about the rows to come."""
