"""The explanation of a pipeline file: for each link its reader, queries and tables; then the plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dashboards.monitors.node_links import is_followed, leaves_by_link, spool_bounds, table_slots
from dashboards.output.console import format_bytes
from dashboards.output.run_warnings import count
from highlevel.inline.engine import Input
from highlevel.plan.nodes import Leaf
from lowlevel.node.memory import bytes_at_most, possible_versions
from lowlevel.node.node import TABLE_SLOTS
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.sharing import share
from queries.explain.plan import explain
from queries.pipeline.file import PipelineFile
from queries.pipeline.inputs import can_be_read_once, check_names
from queries.pipeline.node_settings import NodeSettings, SpooledLink


def pipeline_lines(pipeline: PipelineFile) -> Iterator[str]:
    """Yield the lines of the explanation. Inputs are not opened and may be missing.

    Raises PipelineError and InputError as `wiretide capture` and `wiretide run` do.
    """
    plans = pipeline.plans()
    check_names(plans, [*pipeline.links, *pipeline.spooled])
    yield f"pipeline: {count(len(pipeline.links) + len(pipeline.spooled), 'link')}, {_queries(len(plans))}"
    yield _line("results", f"{pipeline.folder}, and the state from which `wiretide run` continues")
    fed = leaves_by_link(pipeline, pipeline.leaves(plans), list(pipeline.spooled.values()))
    memory = pipeline.node.memory // max(1, sum(map(bool, fed.values())))
    for name, link in pipeline.spooled.items():
        yield from ["", f"link {name}: {link.capture}, which `wiretide capture` reads"]
        yield from _spooled(link, pipeline.node, fed[name], memory)
    for name, paths in pipeline.links.items():
        yield from ["", f"link {name}: {', '.join(paths)}, which `wiretide run` reads"]
        source = Input(name, Path(paths[0]), name, bound_kinds=pipeline.bound_kinds)
        yield from _read_by_run([leaf for plan in plans for leaf in plan.leaves if source.feeds(leaf)])
    for plan in plans:
        yield from ["", explain(plan)]


def _spooled(link: SpooledLink, node: NodeSettings, leaves: Sequence[Leaf], memory: int) -> Iterator[str]:
    """Yield lines about a link that a node reads, with `memory` bytes for its tables."""
    yield from _read_for(leaves)
    if not leaves:
        return
    path = Path(link.capture)
    yield _line("promise", link.watermark_rule_text(live=can_be_read_once(path) or is_followed(link.capture)))
    yield _line("flush", node.flushing_text())
    yield from _tables(leaves, table_slots(link, memory, leaves, node.flushing()), node.flushing())
    if any(leaf.low.reduced for leaf in leaves):
        yield _line("memory", f"{format_bytes(memory)} for the tables: its part of [node] memory")
    yield _line("spool", f"{link.spool}: `wiretide explain {link.spool}` shows its content")
    yield _line("spool bounds", spool_bounds(node))


def _read_by_run(leaves: Sequence[Leaf]) -> Iterator[str]:
    """Yield lines about a link whose files Spark tasks read."""
    yield from _read_for(leaves)
    if leaves:
        yield _line("promise", "exact: each file is scanned before it is read")
        yield _line("flush", f"{Policy.AT_ONCE}, and all at the end of each task")
        yield from _tables(leaves, TABLE_SLOTS, Flushing())
        if any(leaf.low.reduced for leaf in leaves):
            yield _line("memory", "each running task has its own tables")


def _read_for(leaves: Sequence[Leaf]) -> Iterator[str]:
    yield _line("queries", ", ".join(dict.fromkeys(leaf.name for leaf in leaves)) or "none: this link is not read")


def _tables(leaves: Sequence[Leaf], slots: int, flushing: Flushing) -> Iterator[str]:
    """Yield lines about the tables of a link: their queries, sharing, feeding and memory."""
    low = [leaf.low for leaf in leaves]
    if any(plan.reduced for plan in low):
        total = format_bytes(bytes_at_most(slots, low, flushing))
        yield _line("tables", f"{slots:,} slots per table, at most {total} for all tables")
    tables = share(low, feeding=flushing.policy is Policy.AT_ONCE)
    for shared in tables:
        names = ", ".join(dict.fromkeys(leaves[sharer.index].name for sharer in shared.sharers))
        if not shared.plan.reduced:
            yield _line("no table", f"{names}: each row is passed on unchanged")
            continue
        text = f"{names}: shared, because they have the same groups" if len(shared.sharers) > 1 else names
        if shared.feeder is not None:
            finer = leaves[tables[shared.feeder].sharers[0].index].name
            text += f"; reads the partials of the table of {finer}, not packets"
        versions = len(possible_versions(shared.plan))
        yield _line("table", text + (f"; up to {versions}, by the IP versions of addresses" if versions > 1 else ""))


def _line(label: str, text: str) -> str:
    return f"  {label:<14}  {text}"


def _queries(queries: int) -> str:
    return f"{queries} {'query' if queries == 1 else 'queries'}"
