"""Which files a query reads: bare paths, or names in FROM bound to files, globs and folders."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from pathlib import Path

from capture.errors import InputError
from highlevel.inline import Input
from highlevel.plan import QueryPlan


def bind_files(paths: Iterable[str]) -> list[Input]:
    """Make every name in FROM mean the union of `paths`; each file is a link named after it, without its suffix."""
    return [Input(file.stem, file) for path in paths for file in expand(path)]


def bind_streams(streams: Mapping[str, Iterable[str]]) -> list[Input]:
    """Bind each name to its files; together they are one link of that name."""
    return [Input(name, file, name) for name, paths in streams.items() for path in paths for file in expand(path)]


def expand(path: str) -> list[Path]:
    """Return the files that a path names: itself, a folder's files, or a glob's matches, sorted by name.

    Raises InputError where there are none. A folder's hidden files are left out.
    """
    place = Path(path)
    if place.is_dir():
        found = sorted(file for file in place.iterdir() if file.is_file() and not file.name.startswith("."))
        if not found:
            raise InputError(f"{path}: the folder holds no file, expected captures")
        return found
    if place.exists() or not glob.has_magic(path):
        return [place]
    found = sorted(match for match in _matches(Path(path)) if match.is_file())
    if not found:
        raise InputError(f"{path}: no file matches")
    return found


def _matches(pattern: Path) -> Iterable[Path]:
    """Return the matches of a glob; a folder's own name may hold one too."""
    if pattern.is_absolute():
        return Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
    return Path().glob(str(pattern))


def check_streams(plans: Iterable[QueryPlan], inputs: Iterable[Input]) -> None:
    """Raise InputError where a name in FROM has no file: it would be silent for ever."""
    inputs = list(inputs)
    bound = {each.stream.lower() for each in inputs if each.stream is not None}
    if any(each.stream is None for each in inputs):
        return
    for plan in plans:
        for stream in plan.streams:
            if stream.lower() not in bound:
                names = ", ".join(sorted({str(each.stream) for each in inputs})) or "none"
                raise InputError(f"query {plan.name}: no file for the stream {stream}; bound are: {names}")
