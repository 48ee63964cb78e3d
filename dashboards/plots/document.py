"""HTML documents with plots and tables: one file without scripts, which loads nothing from elsewhere.

Every text is escaped twice: control characters as in `dashboards.wire_text`, then the characters of HTML. The content
security policy of the document forbids scripts and requests. So even a text that is not escaped could not load
anything.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape as escape_html
from math import isfinite
from typing import Any

import pyarrow as pa

from dashboards.page.rows import rows_of
from dashboards.wire_text import escape

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

STYLE = """
:root { color-scheme: light dark; --ground: #f4f4f1; --panel: #fff; --text: #1b1b1a; --quiet: #595956; --line: #dcdcd6;
  --link: #0b5394; --bad: #a61b1b; font: 15px/1.45 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { :root { --ground: #131413; --panel: #1c1d1c; --text: #e9e9e5; --quiet: #a9a9a3;
  --line: #353733; --link: #8ab8f0; --bad: #ff9a92; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); }
main, header { max-width: 68rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 1.25rem 0 0.25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 0.25rem; }
section { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 0.75rem 1rem;
  margin: 1rem 0; }
p { margin: 0.25rem 0; max-width: 60rem; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: 0.1rem 1rem; list-style: none; margin: 0.5rem 0; padding: 0; }
.note, figcaption, caption { color: var(--quiet); font-size: 0.9rem; text-align: left; overflow-wrap: anywhere; }
.bad { color: var(--bad); }
figure { margin: 0.5rem 0; overflow-x: auto; }
figure svg { display: block; width: 100%; height: auto; min-width: 36rem; }
.scroll { overflow: auto; max-height: 26rem; border: 1px solid var(--line); border-radius: 4px; }
.scroll:focus-visible { outline: 3px solid var(--link); }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
caption { padding: 0.25rem 0.6rem; }
th, td { text-align: left; padding: 0.15rem 0.6rem; white-space: pre; max-width: 34rem; overflow: hidden;
  text-overflow: ellipsis; }
th { background: var(--panel); font-weight: 600; position: sticky; top: 0; }
td { border-top: 1px solid var(--line); }
.number, .key { text-align: right; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--ground); padding: 0.5rem; border-radius: 4px;
  margin: 0.4rem 0; font-size: 0.85rem; }
summary { cursor: pointer; color: var(--quiet); font-size: 0.9rem; }
@media print { body { background: none; } section { break-inside: avoid; border: 0; } .scroll { max-height: none; } }
"""


def text(value: str) -> str:
    """Return a text for HTML, in elements and in attributes."""
    return escape_html(escape(value), quote=True)


def page(title: str, sections_html: Sequence[str]) -> str:
    """Return a document. `title` is a text, `sections_html` are HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(sections_html)
        + "\n</body>\n</html>\n"
    )


def paragraph(content: str, style_class: str = "") -> str:
    """Return a paragraph of text. `style_class`: `note` or `bad`."""
    return f'<p class="{style_class}">{text(content)}</p>' if style_class else f"<p>{text(content)}</p>"


def figure(svg: str, label: str) -> str:
    """Return a figure with a drawing. `label` describes it for readers who do not see it."""
    described = svg.replace("<svg ", f'<svg role="img" aria-label="{text(label)}" ', 1)
    return f'<figure tabindex="0" role="group" aria-label="{text(label)}">{described}</figure>'


def code(content: str) -> str:
    """Return a text with line breaks, such as SQL, in an element that the reader can open."""
    return f"<details><summary>Query</summary><pre>{escape_html(content)}</pre></details>"


def table(
    rows: pa.Table,
    caption: str,
    times: Collection[str] = (),
    amount_columns: Collection[str] = (),
    max_rows: int = 1000,
) -> str:
    """Return the first `max_rows` rows as a table. `times` are columns in ns, `amount_columns` are amounts."""
    shown = rows_of(rows.slice(0, max_rows), times, amount_columns)
    if rows.num_rows > max_rows:
        caption = f"{caption}, the first {max_rows:,} of {rows.num_rows:,} rows"
    kinds = shown["kinds"]
    head = "".join(
        f'<th scope="col" class="{kind}">{text(name)}</th>' for name, kind in zip(shown["columns"], kinds, strict=True)
    )
    body = "\n".join(
        "<tr>" + "".join(_cell(value, kind) for value, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in shown["rows"]
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(value: Any, value_type: str) -> str:
    return f'<td class="{value_type}">{text(_value_text(value, value_type))}</td>'


def _value_text(value: Any, value_type: str) -> str:
    if value is None:
        return ""
    if value_type != "number" or isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isfinite(value) and abs(value) >= 0.01 else f"{value:.3g}"
