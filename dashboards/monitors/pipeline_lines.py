"""The explanation of a pipeline file: for each link its reader, queries and tables; then the plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dashboards.alerts.evaluation import Evaluation
from dashboards.monitors.node_links import describe_spool_bounds, fit_table_slots, group_leaves_by_link, is_followed
from dashboards.output.console import format_bytes
from dashboards.output.run_warnings import count
from dashboards.prometheus.pipeline_series import make_pipeline_series
from highlevel.inline.engine import Input
from highlevel.plan.nodes import Leaf
from highlevel.plan.plan import Plan
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.identity import find_changes
from lowlevel.durations import duration_text
from lowlevel.node.memory import list_versions, max_table_bytes
from lowlevel.node.node import TABLE_SLOTS
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.sharing import share
from queries.explain.plan import explain
from queries.pipeline.alert_settings import AlertRule, AlertSettings
from queries.pipeline.file import PipelineFile
from queries.pipeline.inputs import can_be_read_only_once, check_names
from queries.pipeline.node_settings import NodeSettings, SpooledLink


def pipeline_lines(pipeline: PipelineFile) -> Iterator[str]:
    """Yield the lines of the explanation. Inputs are not opened and may be missing.

    Raises PipelineError and InputError as `wiretide capture` and `wiretide run` do.
    """
    plans = pipeline.plans()
    check_names(plans, pipeline.link_names)
    yield f"pipeline: {count(len(pipeline.link_names), 'link')}, {_count_queries(len(plans))}"
    yield _format_line("results", f"{pipeline.folder_name}, and the state from which `wiretide run` continues")
    for line in _change_lines(pipeline.folder, plans):
        yield _format_line("next start", line)
    leaves_of_links = group_leaves_by_link(pipeline, pipeline.leaves(plans), list(pipeline.spooled.values()))
    memory = pipeline.node.memory // max(1, sum(map(bool, leaves_of_links.values())))
    for name, link in pipeline.spooled.items():
        yield from ["", f"link {name}: {link.capture}, which `wiretide capture` reads"]
        yield from _spooled_link_lines(link, pipeline.node, leaves_of_links[name], memory)
    for name, paths in pipeline.links.items():
        yield from ["", f"link {name}: {', '.join(paths)}, which `wiretide run` reads"]
        source = Input(name, Path(paths[0]), name, bound_kinds=pipeline.bound_kinds)
        yield from _run_link_lines([leaf for plan in plans for leaf in plan.leaves if source.feeds(leaf)])
    for name, table in pipeline.tables.items():
        yield from ["", f"link {name}: {table.description}, which `wiretide run` reads"]
        yield from _query_names_line(plan.name for plan in plans if any(leaf.names == (name,) for leaf in plan.leaves))
        columns = (f"{column.name} {column.type_name}" for column in table.protocol.columns)
        yield _format_line("columns", ", ".join(columns))
    for plan in plans:
        yield from ["", explain(plan)]
    if pipeline.alerts.rules:
        for evaluated in Evaluation(pipeline.alerts, plans, make_pipeline_series(pipeline, plans)).rules:
            yield from ["", *_alert_lines(evaluated.rule, pipeline.alerts)]


def _change_lines(folder: Path, plans: Sequence[Plan]) -> Iterator[str]:
    """Yield a line for each query that differs from the query at the last start of the run in `folder`."""
    try:
        changes = find_changes(folder, plans)
    except FolderError as error:
        yield str(error)
        return
    if changes:
        yield from changes.lines()


def _alert_lines(rule: AlertRule, settings: AlertSettings) -> Iterator[str]:
    """Yield lines about a rule of alerts. Its labels are known."""
    yield f"alert {rule.name} ({rule.severity}) over the query {rule.query}"
    yield _format_line("condition", rule.where or "any row")
    for exclusion in rule.exclude:
        yield _format_line("except", f"{exclusion.where}: {exclusion.comment}")
    yield _format_line("labels", ", ".join(rule.labels or ()) or "none: one alert for all rows")
    if rule.absent is None:
        begin = f"if true for {duration_text(rule.hold)}" if rule.hold else "in the first window in which it is true"
        end = f"after {duration_text(rule.keep)} without it" if rule.keep else "in the first window without it"
    else:
        begin = f"after {duration_text(rule.absent)} without such a row"
        end = f"with the next row, or {duration_text(rule.keep)} later" if rule.labels else "with the next row"
    yield _format_line("begins", begin)
    yield _format_line("ends", end)
    yield _format_line("receivers", ", ".join(filter(rule.sends_to, settings.receivers)) or "none")


def _spooled_link_lines(link: SpooledLink, node: NodeSettings, leaves: Sequence[Leaf], memory: int) -> Iterator[str]:
    """Yield lines about a link that a node reads, with `memory` bytes for its tables."""
    yield from _query_names_line(leaf.name for leaf in leaves)
    if not leaves:
        return
    path = Path(link.capture)
    yield _format_line(
        "promise", link.watermark_rule_text(live=can_be_read_only_once(path) or is_followed(link.capture))
    )
    yield _format_line("flush", node.flushing_text())
    yield from _table_lines(leaves, fit_table_slots(link, memory, leaves, node.flushing()), node.flushing())
    if any(leaf.low.reduced for leaf in leaves):
        yield _format_line("memory", f"{format_bytes(memory)} for the tables: its part of [node] memory")
    yield _format_line("spool", f"{link.spool}: `wiretide explain {link.spool}` shows its content")
    yield _format_line("spool bounds", describe_spool_bounds(node))


def _run_link_lines(leaves: Sequence[Leaf]) -> Iterator[str]:
    """Yield lines about a link whose files Spark tasks read."""
    yield from _query_names_line(leaf.name for leaf in leaves)
    if leaves:
        yield _format_line("promise", "exact: each file is scanned before it is read")
        yield _format_line("flush", f"{Policy.AT_ONCE}, and all at the end of each task")
        yield from _table_lines(leaves, TABLE_SLOTS, Flushing())
        if any(leaf.low.reduced for leaf in leaves):
            yield _format_line("memory", "each running task has its own tables")


def _query_names_line(names: Iterable[str]) -> Iterator[str]:
    yield _format_line("queries", ", ".join(dict.fromkeys(names)) or "none: this link is not read")


def _table_lines(leaves: Sequence[Leaf], slots: int, flushing: Flushing) -> Iterator[str]:
    """Yield lines about the tables of a link: their queries, sharing, feeding and memory."""
    plans = [leaf.low for leaf in leaves]
    if any(plan.reduced for plan in plans):
        total_text = format_bytes(max_table_bytes(slots, plans, flushing))
        yield _format_line("tables", f"{slots:,} slots per table, at most {total_text} for all tables")
    tables = share(plans, feeding=flushing.policy is Policy.AT_ONCE)
    for shared in tables:
        names = ", ".join(dict.fromkeys(leaves[sharer.index].name for sharer in shared.sharers))
        if not shared.plan.reduced:
            yield _format_line("no table", f"{names}: each row is passed on unchanged")
            continue
        text = names
        if shared.compared is not None:
            text = f"{names}: shared, because they differ only in a constant of {shared.compared.name}"
        elif len(shared.sharers) > 1:
            text = f"{names}: shared, because they have the same groups"
        if shared.feeder is not None:
            feeder_name = leaves[tables[shared.feeder].sharers[0].index].name
            text += f"; reads the partials of the table of {feeder_name}, not packets"
        version_count = len(list_versions(shared.plan))
        yield _format_line(
            "table", text + (f"; up to {version_count}, by the IP versions of addresses" if version_count > 1 else "")
        )


def _format_line(label: str, text: str) -> str:
    return f"  {label:<14}  {text}"


def _count_queries(query_count: int) -> str:
    return f"{query_count} {'query' if query_count == 1 else 'queries'}"
