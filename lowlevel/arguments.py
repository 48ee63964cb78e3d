"""What a row gives to a sub-aggregate: one word, and where its argument is NULL the word that changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lowlevel.evaluate import evaluate
from lowlevel.opcodes import IDENTITIES, opcode
from lowlevel.subaggregates import Kind, SubAggregate
from lowlevel.types import Type
from lowlevel.vectors import Columns


def argument_values(sub: SubAggregate, columns: Columns, out: npt.NDArray[np.int64]) -> None:
    """Write one word for each of the rows to `out`: 1 or 0 for a count, bits of a float64 where the type is FLOAT."""
    if sub.argument is None:
        out[:] = 1
        return
    rows = len(out)
    vector = evaluate(sub.argument, columns)
    argument = out.view(np.float64) if sub.type is Type.FLOAT else out
    if sub.kind is Kind.COUNT:
        argument[:] = True if vector.valid is None else vector.valid
        return
    if sub.kind in (Kind.EARLIEST, Kind.LATEST):
        vector = replace(columns["ts"], valid=vector.valid)
    argument[:] = vector.data  # type: ignore[union-attr]  # the compiler admits no address here
    if vector.valid is not None:
        argument[~np.broadcast_to(vector.valid, rows)] = IDENTITIES[opcode(sub)]
