"""Write generated files into a folder. Files that the user has changed are not overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from capture.errors import WiretideError


class ChangedFilesError(WiretideError):
    """Files of the output folder would be overwritten. The user must choose another folder, or replace the files."""


def write_files(files: Mapping[str, str], folder: Path, *, replace: bool) -> None:
    """Write the text of each file by its relative path, and print the paths.

    Unless `replace`, raises ChangedFilesError before the first file is written if a file exists and differs.
    """
    changed = [name for name, text in files.items() if _differs(folder / name, text)]
    if changed and not replace:
        listed = ", ".join(str(folder / name) for name in changed)
        raise ChangedFilesError(f"these files exist and differ: {listed}; expected --force, or another folder with -o")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
        print(folder / name)


def _differs(path: Path, text: str) -> bool:
    return path.exists() and path.read_text("utf-8", errors="replace") != text
