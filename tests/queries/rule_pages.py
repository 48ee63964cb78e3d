"""Pairs of plans before and after a rule of the planner, in Markdown, one section for each pair.

    ## Grouping sets become a union           the name of the rule, as in docs/internals/rules.md

    A sentence.

    ```sql                                    the query; queries of one link are separated by `;`
    ```text                                   its plan without the rule, if the rule can be switched off
    ```text                                   its plan
    ```duckdb                                 the query in the SQL of DuckDB, if it differs

If a second block contains SQL, both queries have the same plan. `python -m tests.queries.rule_pages` writes the plans
again; `git diff` shows the changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.references import plan_rules
from tests.references.plan_rules import Render, Switch, condition_text, counting_text, plan_text, table_text

FOLDER = Path(__file__).with_name("rules")
RENDERERS: dict[str, Render] = {"conditions": condition_text, "counts": counting_text, "tables": table_text}
"""How the pages print plans; other pages print the nodes of one query."""

SWITCHES: dict[str, Switch] = {
    "Conditions on links are evaluated by the leaf": plan_rules.keep_conditions_above_links,
    "Conditions on a union are evaluated in its parts": plan_rules.keep_conditions_above_unions,
    "Only the needed columns leave the low level": plan_rules.pass_on_all_columns,
    "WHERE is evaluated before a join": plan_rules.keep_where_above_joins,
    "ON is evaluated before a join": plan_rules.keep_on_in_pairs,
    "Equalities are keys of a join": plan_rules.compare_all_pairs,
    "Conditions on the distance narrow a window": plan_rules.narrow_no_window,
    "OR implies a condition on one side": plan_rules.imply_nothing,
    "Windows count their rows": plan_rules.count_no_rows,
    "Queries with equal groups share a table": plan_rules.share_no_table,
    "Queries that differ in a constant share a table": plan_rules.share_no_table_of_constants,
    "Tables feed coarser tables": plan_rules.feed_all_tables_with_packets,
    "A table keeps sub-aggregates for coarser tables": plan_rules.keep_only_own_subaggregates,
    "Equal conditions are tested once": plan_rules.share_no_condition,
    "Constants of one column share an index": plan_rules.index_no_column,
    "Comparisons of integers are intervals": plan_rules.evaluate_intervals_as_expressions,
    "Cheap parts of AND are tested first": plan_rules.evaluate_conditions_as_written,
}
"""The rules that can be switched off."""


@dataclass(frozen=True)
class Pair:
    """One pair. `same` is SQL with the same plan as the query, or None. `texts` are the plans of the page.

    `duckdb` is the query in the SQL of DuckDB.
    """

    page: str
    rule: str
    queries: tuple[str, ...]
    same: str | None
    texts: tuple[str, ...]
    duckdb: str

    def plans(self) -> tuple[str, ...]:
        """Return the plans as the page should contain them: without the rule if it has a switch, and with the rule."""
        if self.same is not None:
            return ()
        render = RENDERERS.get(self.page, plan_text)
        plans = []
        if self.rule in SWITCHES:
            with pytest.MonkeyPatch.context() as patch:
                SWITCHES[self.rule](patch)
                plans.append("\n".join(render(self.queries)))
        return (*plans, "\n".join(render(self.queries)))


def read_pairs(page: Path) -> list[Pair]:
    """Return the pairs of a page in their order."""
    _, *sections = page.read_text("utf-8").split("\n## ")
    pairs = []
    for section in sections:
        rule = section.partition("\n")[0].strip()
        blocks = re.findall(r"```(sql|text|duckdb)\n(.*?)\n?```", section, re.DOTALL)
        sql = [body for language, body in blocks if language == "sql"]
        queries = tuple(" ".join(text.split()) for text in sql[0].split(";"))
        same = " ".join(sql[1].split()) if len(sql) > 1 else None
        texts = tuple(body for language, body in blocks if language == "text")
        duckdb = next((body for language, body in blocks if language == "duckdb"), queries[0])
        pairs.append(Pair(page.stem, rule, queries, same, texts, duckdb))
    return pairs


def pages() -> list[Path]:
    """Return all pages."""
    return sorted(FOLDER.glob("*.md"))


def record(page: Path) -> None:
    """Write the plans of a page again."""
    head, *sections = page.read_text("utf-8").split("\n## ")
    written = [head]
    for section, pair in zip(sections, read_pairs(page), strict=True):
        if pair.same is not None:
            written.append(section)
            continue
        kept = re.sub(r"```text\n.*?```\n*", "", section, flags=re.DOTALL).rstrip("\n")
        blocks = (f"```text\n{plan}\n```" for plan in pair.plans())
        written.append("\n\n".join([kept, *blocks]) + "\n")
    page.write_text("\n## ".join(written), "utf-8")


if __name__ == "__main__":
    for each in pages():
        record(each)
