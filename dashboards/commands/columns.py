"""`wiretide columns`: list the columns of each kind of rows."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from dashboards.command_options import Argument, Option

if TYPE_CHECKING:
    from lowlevel.kinds import RowKind

HEADER = ("column", "type", "NULL", "meaning")


class Kind(StrEnum):
    """The kinds of rows in `lowlevel.kinds.KINDS`. They are repeated here, because `--help` must not import them."""

    PACKETS = "packets"
    FRAMES = "frames"
    FLOWS = "flows"
    SAMPLES = "samples"


def column_lines(rows: RowKind, *, with_all_columns: bool = False) -> list[str]:
    """Return a table with a line for each column of a kind.

    With `with_all_columns`, the table contains columns of the inner IP layer and all IPFIX elements too.
    """
    names = dict.fromkeys([*rows.listed_names, *(rows.unlisted_names() if with_all_columns else ())])
    specs = [spec for name in names if (spec := rows.find(name)) is not None]
    cells = [HEADER, *((spec.name, spec.type, "yes" if spec.nullable else "no", spec.help) for spec in specs)]
    return align_rows(cells)


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row. The cells are aligned, with at least two blanks between them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]]) for row in rows
    ]


def columns(
    kind: Annotated[Kind | None, Argument(help="The kind of rows. Default: list the kinds.")] = None,
    every: Annotated[
        bool, Option("--all", help="Also list columns of the inner IP layer and all IPFIX elements.")
    ] = False,
) -> None:
    """List the columns that queries can use, with type and meaning."""
    from lowlevel.kinds import row_kind_of

    if kind is not None:
        print("\n".join(column_lines(row_kind_of(kind), with_all_columns=every)))
        return
    for name in Kind:
        rows = row_kind_of(name)
        names = rows.listed_names
        print(f"{name:<8}  a row is {rows.row_description}; {len(names)} columns: {', '.join(names[:6])}, …")
    print("\nwiretide columns KIND lists the columns of one kind.")
