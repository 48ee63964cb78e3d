"""Meld: the union of any number of inputs, without order and without a buffer (Li 2008, §8.1)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lowlevel.punctuation import BEGINNING, Item, Punctuation

UNION = "*"
"""The link name in punctuation of a union."""


class Meld:
    """Pass rows through at once, and emit the smallest watermark of the inputs once.

    Without a watermark of every input there is no watermark. State: one value per input.
    """

    def __init__(self, inputs: int) -> None:
        """Unite `inputs` (at least one) inputs, ports 0 to inputs - 1."""
        self.bounds = [BEGINNING] * inputs
        self.promised = BEGINNING

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Pass the rows on."""
        yield batch

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Raise the watermark of the input. Emit a punctuation if the minimum over all inputs has grown."""
        self.bounds[port] = max(self.bounds[port], punctuation.watermark)
        low = min(self.bounds)
        if low > self.promised:
            self.promised = low
            yield Punctuation(UNION, low)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the watermarks of all inputs in port order, and the emitted watermark, as one table."""
        return {"meld": pa.table({"bound": [*self.bounds, self.promised]})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Restore the watermarks.

        Inputs added since then start at the emitted watermark, so that it never decreases.
        """
        *bounds, self.promised = tables["meld"]["bound"].to_pylist()
        self.bounds[: len(bounds)] = bounds
        self.bounds = [max(bound, self.promised) for bound in self.bounds]
