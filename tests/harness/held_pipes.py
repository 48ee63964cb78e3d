"""Pipes that stay open while a process reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held_open(pipe: Path) -> Iterator[int]:
    """A descriptor to write to a named pipe whose readers come and go."""
    end = os.open(pipe, os.O_RDWR)
    try:
        yield end
    finally:
        os.close(end)
