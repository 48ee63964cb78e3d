"""`python -m lowlevel.spool FOLDER…` says what is in spools."""

import sys
from pathlib import Path

from lowlevel.spool.errors import SpoolError
from lowlevel.spool.inspection import inspect


def main(folders: list[str]) -> int:
    """Print a spool after the other; return the exit status."""
    status = 0 if folders else 2
    if not folders:
        print("usage: python -m lowlevel.spool FOLDER…", file=sys.stderr)
    for folder in folders:
        try:
            print(*inspect(Path(folder)).lines(), sep="\n")
        except SpoolError as error:
            print(error, file=sys.stderr)
            status = error.status
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
