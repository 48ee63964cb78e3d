"""Settings of a collector on loopback."""

from __future__ import annotations

from pathlib import Path

from capture.collector import inspection  # noqa: F401  # declares its kernels
from capture.collector.settings import Settings

LOCAL = ("127.0.0.1", 0)


SMALL = 200_000
"""A receive buffer that everybody gets, so that no test hangs on privileges."""


def settings(folder: Path, *listen: tuple[str, int], **more: object) -> Settings:
    return Settings(listen or (LOCAL,), folder, **({"receive_buffer": SMALL} | more))  # type: ignore[arg-type]
