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
        self.input_watermarks = [BEGINNING] * inputs
        self.emitted_watermark = BEGINNING

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Return the rows unchanged."""
        yield batch

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Raise the watermark of the input. Emit a punctuation if the minimum over all inputs has grown."""
        self.input_watermarks[port] = max(self.input_watermarks[port], punctuation.watermark)
        low = min(self.input_watermarks)
        if low > self.emitted_watermark:
            self.emitted_watermark = low
            yield Punctuation(UNION, low)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the watermarks of all inputs in port order, and the emitted watermark, as one table."""
        return {"meld": pa.table({"bound": [*self.input_watermarks, self.emitted_watermark]})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Restore the watermarks.

        Inputs that were added since the snapshot begin with the emitted watermark, so that it does not decrease.
        """
        *watermarks, self.emitted_watermark = tables["meld"]["bound"].to_pylist()
        self.input_watermarks[: len(watermarks)] = watermarks
        self.input_watermarks = [max(watermark, self.emitted_watermark) for watermark in self.input_watermarks]
