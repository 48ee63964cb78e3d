"""Compiled templates as the arrays that kernels take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from capture.flows.kernels import datagrams as kernel
from capture.flows.kernels.records import STEP
from capture.flows.places import Places
from capture.flows.steps import compile_steps
from capture.flows.templates import Definition, Field

_BOTH = (
    (8, 4), (12, 4), (15, 4), (10, 2), (14, 2), (2, 4), (1, 4), (22, 4), (21, 4), (7, 2), (11, 2), (0, 1), (6, 1),
    (4, 1), (5, 1), (16, 2), (17, 2), (9, 1), (13, 1), (0, 2),
)  # fmt: skip

NETFLOW_V5 = Definition.of(5, [Field(*each) for each in _BOTH])
"""A record of NetFlow v5, as a template would say it; element 0 is padding."""

NETFLOW_V7 = Definition.of(7, [Field(*each) for each in (*_BOTH, (43, 4))])
"""A record of NetFlow v7, which adds the address of the router that was gone around."""


class Words:
    """Rows of numbers in one flat array that grows."""

    def __init__(self, width: int) -> None:
        """Begin without rows of `width` numbers."""
        self.width = width
        self.rows = 0
        self.flat: npt.NDArray[np.int64] = np.zeros(64 * width, np.int64)

    def add(self, rows: Sequence[Sequence[int]]) -> None:
        """Append rows; arrays handed out before may be another one afterwards."""
        need = (self.rows + len(rows)) * self.width
        if need > len(self.flat):
            self.flat = np.concatenate([self.flat, np.zeros(need, np.int64)])
        if rows:
            self.flat[self.rows * self.width : need] = np.array(rows, np.int64).reshape(-1)
        self.rows += len(rows)


class Layouts:
    """Compiled definitions as the arrays that kernels take. Equal definitions are compiled once."""

    def __init__(self, places: Places) -> None:
        """Begin with the layouts of the versions that have no templates."""
        self.places = places
        self.clear()

    def clear(self) -> None:
        """Forget all layouts but those of NetFlow v5 and v7; numbers given before mean nothing any more."""
        self.numbers: dict[Definition, int] = {}
        self.words = Words(kernel.LAYOUT_WORDS)
        self.steps = Words(STEP)
        self.fields = Words(1)
        for number, definition in ((kernel.LAYOUT_V5, NETFLOW_V5), (kernel.LAYOUT_V7, NETFLOW_V7)):
            assert self.number(definition) == number

    def __len__(self) -> int:
        return self.words.rows

    def number(self, definition: Definition) -> int:
        """Return the number of a definition of flow records, compiling it where that is new."""
        known = self.numbers.get(definition)
        if known is not None:
            return known
        steps, flags = compile_steps(definition, self.places)
        lengths = [] if definition.fixed else [(each.length,) for each in definition.fields]
        first, field = self.steps.rows, self.fields.rows
        self.words.add([(definition.shortest, definition.fixed, first, first + len(steps), field, len(lengths), flags)])
        self.steps.add(steps)
        self.fields.add(lengths)
        number = self.numbers[definition] = self.words.rows - 1
        return number
