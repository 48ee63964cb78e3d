"""Meld: the union of any number of inputs, without order and without a buffer (Li 2008, §8.1)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lowlevel.punctuation import BEGINNING, Item, Punctuation

UNION = "*"
"""The link name in the punctuations of a union."""


class Meld:
    """Returns rows at once, and the smallest watermark of all inputs when it grows.

    There is no watermark until every input has a watermark. The state is one watermark per input.
    """

    def __init__(self, inputs: int) -> None:
        """`inputs` is the number of inputs, at least one; their ports are 0 to inputs - 1."""
        self.watermarks = [BEGINNING] * inputs
        self.watermark = BEGINNING

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Return the rows unchanged."""
        yield batch

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Raise the watermark of the input. Emit a punctuation if the minimum over all inputs has grown."""
        self.watermarks[port] = max(self.watermarks[port], punctuation.watermark)
        low = min(self.watermarks)
        if low > self.watermark:
            self.watermark = low
            yield Punctuation(UNION, low)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the watermarks of all inputs in port order, and the emitted watermark, as one table."""
        return {"meld": pa.table({"bound": [*self.watermarks, self.watermark]})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Restore the watermarks.

        Inputs added since the snapshot start at the emitted watermark, so that it never decreases.
        """
        *watermarks, self.watermark = tables["meld"]["bound"].to_pylist()
        self.watermarks[: len(watermarks)] = watermarks
        self.watermarks = [max(watermark, self.watermark) for watermark in self.watermarks]
