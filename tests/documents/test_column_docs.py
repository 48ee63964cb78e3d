"""docs/guide/columns.md lists every column exactly as it is declared, so that the two cannot diverge."""

import re
from pathlib import Path

import pytest

from capture.flows.columns import FLOW_COLUMNS
from capture.packets.columns import COLUMNS, FRAME_COLUMNS, INNER_COLUMNS, NEVER_NULL, ColumnSpec
from capture.sflow.columns import CHANGED_HELP, SAMPLE_COLUMNS, SAMPLING_COLUMNS
from lowlevel.expressions.types import Type
from lowlevel.kinds import KINDS, row_kind_of

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "columns.md").read_text("utf-8")


def row(spec: ColumnSpec) -> str:
    """The line of a table that describes a column."""
    layer = "yes" if spec.is_layered else ""
    return f"| `{spec.name}` | {spec.type} | {'may be' if spec.nullable else ''} | {layer} | {spec.help} |"


def section(title: str) -> str:
    """The text below a heading."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found, title
    return found.group(1)


@pytest.mark.parametrize(
    ("title", "specs"),
    [
        ("Packets and frames", COLUMNS.values()),
        ("Samples", [*(SAMPLE_COLUMNS[name] for name in CHANGED_HELP), *SAMPLING_COLUMNS.values()]),
        ("Flows", FLOW_COLUMNS.values()),
    ],
)
def test_the_tables_hold_every_column_in_order_and_nothing_else(title: str, specs: list[ColumnSpec]) -> None:
    assert re.findall(r"^\| `.*$", section(title), re.MULTILINE) == [row(spec) for spec in specs]


def test_what_a_frame_always_has_is_said() -> None:
    assert f"only {', '.join(f'`{name}`' for name in NEVER_NULL)} are never NULL" in " ".join(TEXT.split())
    assert [name for name, spec in FRAME_COLUMNS.items() if not spec.nullable] == list(NEVER_NULL)


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_can_be_asked_for_by_its_name_in_any_case(kind: str) -> None:
    rows = row_kind_of(kind)
    for name in (*rows.listed_names, *rows.unlisted_names()):
        column = rows.column(name.upper())
        assert column is not None, name
        assert column.name == name
        assert column.type in list(Type)
        inner = rows.column(name, "inner")
        assert inner is not None
        twin = f"inner.{name}"
        assert inner.name == (twin if rows.is_layered and twin in INNER_COLUMNS else name)
