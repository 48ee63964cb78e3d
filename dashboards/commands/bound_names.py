"""Names in FROM that the command line binds to files: NAME=PATH."""

from __future__ import annotations

import typer


def bound_names(pairs: list[str]) -> dict[str, list[str]]:
    """Return the paths of each name. Raises BadParameter for what has none."""
    bound: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise typer.BadParameter(f"-s {pair}: got no NAME=PATH, expected for example -s Main1=main1.pcap")
        bound.setdefault(name, []).append(path)
    return bound
