"""The inline engine: captures in, results out, in this process and without a JVM."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from capture.cores import count_cores
from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS
from capture.files.byte_source import STANDARD_INPUT
from capture.files.capture import AnyCapture, Capture
from capture.files.stream import StreamedCapture
from capture.lazy_dataclasses import dataclass
from capture.metrics import FLOW_SESSIONS, FLOW_SETS_WAITING, Samples, by_name
from capture.metrics import METRICS as CAPTURE_METRICS
from capture.open import allow_open_files, open_capture
from highlevel.inline.input_outcomes import Reading, reading_of
from highlevel.inline.schedule import LeafShardItem, Schedule, make_shards, run_ahead
from highlevel.inline.shards import READS_PER_BYTE, LiveShard, Shard, ShardInput, TableSizes
from highlevel.metrics import METRICS as HIGH_METRICS
from highlevel.plan.nodes import Leaf, nodes_of
from highlevel.plan.pipeline import NodeOperators, check_links, query_samples
from highlevel.plan.plan import Plan, leaf_names
from lowlevel.kinds import TABLE
from lowlevel.metrics import METRICS as LOW_METRICS
from lowlevel.metrics import TABLE_BYTES
from lowlevel.node.node import TABLE_SLOTS, budget_of
from lowlevel.node.node_watchlists import count_files, find_watched_files
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.watch.watched_file import NoWatchlists, Watchlists
from lowlevel.watermarks.idle import IdleRule
from lowlevel.watermarks.lateness import Lateness

if TYPE_CHECKING:  # few queries read tables
    from highlevel.inline.table_files import FileStream
    from highlevel.inline.topic_rows import TopicPartition

ORDER_REASON = "its windows depend on the order in which rows arrive"
ORDER_REMEDY = "one capture: merge captures first (mergecap -w all.pcap a.pcap b.pcap), or use windows over ts"


def check_one_input(leaves: Iterable[Leaf], inputs: Iterable[Input]) -> None:
    """Raise InputError if a query that depends on the arrival order reads several inputs, or files in any order."""
    inputs = list(inputs)
    for leaf in leaves:
        leaf_inputs = [source for source in inputs if source.feeds(leaf)] if leaf.low.in_arrival_order else []
        if len(leaf_inputs) > 1:
            names = ", ".join(source.name for source in leaf_inputs[:3]) + (", …" if len(leaf_inputs) > 3 else "")
            problem = f"and there is none between inputs: got {len(leaf_inputs)} ({names})"
            raise InputError(f"query {leaf.name}: {ORDER_REASON}, {problem}, expected {ORDER_REMEDY}")
        for source in leaf_inputs:
            if source.follow and not source.path.is_file():
                problem = f"and files come to {source.name} in any order"
                raise InputError(f"query {leaf.name}: {ORDER_REASON}, {problem}: expected {ORDER_REMEDY}")


ALL_METRICS = by_name(CAPTURE_METRICS, LOW_METRICS, HIGH_METRICS)

QUEUED_PER_THREAD = 2
"""Maximum number of items in the queue between the levels, per thread of the low level.

An item contains at most one partial per table slot.
"""

MAX_THREADS = 8
"""Maximum number of threads by default."""

LIVE_SLACK = 10_000_000_000
"""Default of the allowed disorder of live inputs, in ns."""

EXACT_SLACK = -1
"""The value of the allowed disorder for which there is no watermark before the end of the input, so no row is late."""

LARGE_STATE_BYTES = 1 << 30
"""Bytes of operator state from which on a run warns that its windows and joins need much memory."""

ROWS_BETWEEN_MEASUREMENTS = 1 << 20
"""Rows of the low level between two measurements of the state. A measurement is slow if many windows are open."""

GAUGES_PER_FILE = (FLOW_SESSIONS.name, FLOW_SETS_WAITING.name)
"""Gauges that are summed over the files of a link, because each file has separate sender sessions."""


class UnwantedError(Exception):
    """Raised in a thread of the low level, to end it, after the consumer of its results has stopped."""


@dataclass(frozen=True, slots=True)
class Input:
    """One capture and its link. Several captures may belong to one link. A path `-` is standard input.

    `stream` is the name in FROM that reads the capture, in upper or lower case; None for every name. With `follow` the
    input includes data appended later, and new files in the folder or matching the glob. With `spool` the path is the
    folder of a spool (`lowlevel.spool`). Only `highlevel.spark` reads spools. `bound_kinds`: kinds of rows that are
    also names of links of the run. For such a kind, `FROM packets` reads only the link of this name. In place of a
    capture, the input may be `table` (files with a schema; the path is the first file), `topic` (a partition of a
    topic) or `frame` (a streaming DataFrame of Spark with these columns). For the last two, the path only names the
    input. Only `highlevel.spark` reads tables, topics and DataFrames.
    """

    link: str
    path: Path
    stream: str | None = None
    follow: bool = False
    spool: bool = False
    bound_kinds: frozenset[str] = frozenset()
    table: FileStream | None = None
    topic: TopicPartition | None = None
    frame: FileStream | None = None

    @property
    def is_capture(self) -> bool:
        """True if the path is a capture: not a spool, and not rows with a schema."""
        return not self.spool and self.rows is None

    @property
    def rows(self) -> FileStream | None:
        """The columns of an input whose rows have a schema; None for captures and spools."""
        return (self.table or self.frame) if self.topic is None else self.topic.stream

    @property
    def files(self) -> tuple[Path, ...]:
        """The paths of the input: several only for a table, none for a topic or a DataFrame."""
        if self.topic is not None or self.frame is not None:
            return ()
        return (self.path,) if self.table is None else self.table.paths

    def absolute(self) -> Input:
        """Return this input with absolute paths."""
        table = None if self.table is None else self.table.absolute()
        return replace(self, path=Path(self.path).absolute(), table=table)

    @property
    def name(self) -> str:
        """Name of the capture in messages."""
        return "standard input" if str(self.path) == STANDARD_INPUT else str(self.path)

    def feeds(self, leaf: Leaf) -> bool:
        """Return True if a leaf reads this input. If FROM names only a kind of rows, its leaf reads every capture."""
        if self.rows is not None or leaf.low.kind == TABLE:
            is_table = self.rows is not None and leaf.low.kind == TABLE
            return is_table and leaf.streams[0].lower() == str(self.stream).lower()
        if self.stream is None or (leaf.reads_all_links and leaf.low.kind not in self.bound_kinds):
            return True
        return self.stream.lower() in {stream.lower() for stream in leaf.streams}


def files_of(link: str, inputs: Sequence[Input]) -> tuple[Path, ...]:
    """Return the files of a link that are read completely: no followed files, spools, pipes or interfaces."""
    return tuple(
        source.path
        for source in inputs
        if source.link == link and not source.follow and not source.spool and source.path.is_file()
    )


def available_threads() -> int:
    """Return the number of cores that this process may use, at most MAX_THREADS."""
    return min(count_cores(), MAX_THREADS)


def check_threads(threads: int | None) -> None:
    """Raise ValueError for a number of threads below 1."""
    if threads is not None and threads < 1:
        raise ValueError(f"got {threads} threads, expected at least 1")


class InlineRun:
    """One pass over inputs for any number of queries.

    The low level runs in `threads` threads, and one more for each live input. The operators run in the thread that
    reads the results. With one thread and no live input, everything runs in the reading thread. The answer does not
    depend on the number of threads, except for the last bits of FLOAT sums and the order of the rows of one window.
    """

    def __init__(
        self,
        plans: Sequence[Plan],
        inputs: Sequence[Input],
        slots: int = TABLE_SLOTS,
        threads: int | None = None,
        slack: int | None = None,
        block_records: int = BLOCK_RECORDS,
        lull: IdleRule | None = None,
        is_measured: bool = False,
        export_delay: int | None = None,
    ) -> None:
        """Open and check every input.

        `slack` is the allowed disorder in ns, for inputs without exact watermarks: streams and flows. None means
        LIVE_SLACK for live inputs and EXACT_SLACK for others. `export_delay`: with a slack, the time in ns after which
        a flow record is exported at the latest (`LateByExport`).

        With `lull` the clock raises the watermark of idle live inputs (`lowlevel.watermarks.idle`); otherwise their
        windows wait for data. `threads` None means `available_threads()`. With `is_measured` the operators and the low
        level are measured. The label of a leaf's counters is then its name in the plan, not the name of the query.
        Raises InputError for a file that is not a capture, ValueError for a number of threads below 1.
        """
        leaves = [leaf for plan in plans for leaf in plan.leaves]
        self.inputs = [each for each in inputs if any(each.feeds(leaf) for leaf in leaves)]
        check_threads(threads)
        self.threads = threads or available_threads()
        self.progress: Callable[[int, int], None] | None = None
        """Called with (bytes read, bytes in total), by one thread at a time."""
        self.on_large_state: Callable[[int], None] | None = None
        """Called once with the bytes of the operators' state, when they exceed LARGE_STATE_BYTES."""
        self._processed_bytes = 0  # each byte counts once per pass over it
        self._stopping = False
        self._consumer_stopped = Event()
        self._lock = Lock()
        for each in self.inputs:
            if each.spool:
                raise InputError(f"{each.name} is a spool: expected a capture; spools are read by wiretide run")
            if each.rows is not None:
                raise InputError(f"link {each.link}: got a table, expected captures; tables are read by wiretide run")
        check_one_input(leaves, self.inputs)
        allow_open_files(len(self.inputs))
        captures = [open_capture(each.path, each.follow) for each in self.inputs]
        self.live = any(isinstance(capture, StreamedCapture) and capture.live for capture in captures)
        self.slacks = [
            self._choose_slack(slack, capture, [leaf for leaf in leaves if each.feeds(leaf)])
            for each, capture in zip(self.inputs, captures, strict=True)
        ]
        plans = [plan.with_filled_lulls() for plan in plans] if self.live else list(plans)
        is_exact = all(each is None for each in self.slacks) and (lull is None or not self.live)
        is_exact = is_exact and all(leaf.low.slack is None for leaf in leaves)
        self.plans = plans if is_exact else [plan.with_row_counts() for plan in plans]
        files = [*find_watched_files(tuple(self.plans))]
        fixed = Watchlists() if files else NoWatchlists()
        """The watchlists of finite inputs, of which one version is used in the whole run."""
        nodes = nodes_of(*(plan.root for plan in self.plans))
        self._leaves = [node for node in nodes if isinstance(node, Leaf)]
        """The distinct leaves of all plans. The position in this list is the number of the leaf in the run."""
        self._leaf_numbers = {leaf: number for number, leaf in enumerate(self._leaves)}
        names_of: list[list[str]] = [[] for _ in self._leaves]
        for plan in self.plans:
            for leaf in plan.leaves:
                names_of[self._leaf_numbers[leaf]].append(plan.name)
        queries = [tuple(names) for names in names_of]
        if is_measured:
            queries = [(name,) for name in leaf_names(self.plans[0])]
        self.low_level_seconds: list[float] | None = [] if is_measured else None
        """Busy seconds of each thread of the low level, if they are measured."""
        self.has_ended_early = False
        """True if the run has ended before the end of its inputs, because every query has all rows of its LIMIT."""
        self.bytes_total = 0
        self.shards: list[Shard] = []
        tables = TableSizes(slots, budget_of(slots))
        for number, (each, capture) in enumerate(zip(self.inputs, captures, strict=True)):
            input_leaves = [(leaf_number, leaf) for leaf_number, leaf in enumerate(self._leaves) if each.feeds(leaf)]
            idle_rule = lull if isinstance(capture, StreamedCapture) and capture.live else None
            lists = Watchlists() if files and isinstance(capture, StreamedCapture) and capture.live else fixed
            if files:
                lists.read(find_watched_files(tuple(leaf.low for _, leaf in input_leaves)))
            shard_input = ShardInput(
                number,
                each.link,
                input_leaves,
                [queries[leaf_number] for leaf_number, _ in input_leaves],
                tables,
                self.slacks[number],
                block_records,
                idle_rule,
                files_of(each.link, self.inputs),
                lists,
                export_delay,
            )
            self.shards += make_shards(shard_input, capture, self.threads)
            self.bytes_total += len(capture.data) if isinstance(capture, Capture) else capture.size
        self._schedule = Schedule(self.shards, tables, self._advance, self._consumer_stopped)
        # Ports are numbered leaf by leaf. The ports of a leaf are the shards of its inputs, in the order of the inputs.
        self.shards_of: list[list[Shard]] = [[] for _ in self._leaves]
        """The shards that feed each leaf."""
        for shard in self.shards:
            for leaf_number, _ in shard.input.leaves:
                self.shards_of[leaf_number].append(shard)
        leaf_ports = [(leaf_number, shard) for leaf_number, shards in enumerate(self.shards_of) for shard in shards]
        self._ports = {leaf_port: port for port, leaf_port in enumerate(leaf_ports)}
        self.watchlists = Watchlists(is_followed=True) if files and self.live else fixed
        self.watchlists.read(files)
        links = [[shard.input.link for shard in shards] for shards in self.shards_of]
        for plan in self.plans:
            check_links(plan, [links[self._leaf_numbers[leaf]] for leaf in plan.leaves])
        roots = [plan.root for plan in self.plans]
        self.nodes = NodeOperators(roots, links, watchlists=self.watchlists, measure=is_measured)

    def results(self) -> Generator[tuple[int, pa.RecordBatch], None, None]:
        """Run, and yield (position of the plan, rows of final windows in the order of their ends).

        The low level may be a few items ahead of the operators and the consumer. The run ends before the end of the
        inputs if every query has all rows of its LIMIT (`Plan.ends_early`).
        """
        unmeasured_rows = 0
        incomplete = {plan_position for plan_position, plan in enumerate(self.plans) if plan.ends_early}
        ends_early = len(incomplete) == len(self.plans)
        for leaf_number, shard, item in self._run_low_level():
            unmeasured_rows += item.num_rows if isinstance(item, pa.RecordBatch) else 0
            if unmeasured_rows >= ROWS_BETWEEN_MEASUREMENTS:
                unmeasured_rows = 0
                self._check_state_size()
            port = self._ports[leaf_number, shard]
            items = (
                self.nodes.punctuate(port, item)
                if isinstance(item, Punctuation)
                else self.nodes.process_rows(port, item)
            )
            for plan_position, result in items:
                if isinstance(result, pa.RecordBatch):
                    yield plan_position, result
                elif ends_early and isinstance(result, Punctuation) and result.watermark == END:
                    incomplete.discard(plan_position)
            if ends_early and not incomplete:
                self.has_ended_early = True
                return

    @property
    def pairs(self) -> int:
        """Number of pairs that the joins of all queries have found so far. Thread-safe."""
        return self.nodes.pairs

    def _check_state_size(self) -> None:
        if self.on_large_state is None:
            return
        state_bytes = self.nodes.state_bytes
        if state_bytes >= LARGE_STATE_BYTES:
            self.on_large_state(state_bytes)
            self.on_large_state = None

    def _run_low_level(self) -> Iterator[LeafShardItem]:
        """Run the shards in threads. With one thread and no live input, run them in this thread."""
        producers = [self._schedule.work() for _ in range(min(self.threads, len(self._schedule.shards)))]
        producers += [self._listen(shard) for shard in self.shards if isinstance(shard, LiveShard)]
        if self.low_level_seconds is not None:
            producers = [self._measure_busy_time(producer, self.low_level_seconds) for producer in producers]
        if self.threads == 1 and not self.live:
            return itertools.chain.from_iterable(producers)
        return run_ahead(producers, QUEUED_PER_THREAD * (1 + len(producers)), self._consumer_stopped)

    @staticmethod
    def _measure_busy_time(items: Iterator[LeafShardItem], busy: list[float]) -> Iterator[LeafShardItem]:
        """Yield the items of a thread. Add the seconds in which it computed them to `busy`."""
        seconds = 0.0
        try:
            while True:
                begin = time.perf_counter()
                item = next(items, None)
                seconds += time.perf_counter() - begin
                if item is None:
                    return
                yield item
        finally:  # a query with LIMIT ends before its inputs
            busy.append(seconds)

    def stop(self) -> None:
        """End live inputs after the data read so far. Returns at once; a signal handler may call this method."""
        self._stopping = True

    def close(self) -> None:
        """Release the inputs. The threads of the run must have ended."""
        del self._schedule  # it refers to this run: mapped files are closed with the last reference
        for shard in self.shards:
            shard.close()

    def cancel(self) -> None:
        """End the run without its remaining results: `results` ends or raises UnwantedError soon. Thread-safe."""
        self._consumer_stopped.set()

    def _listen(self, shard: LiveShard) -> Iterator[LeafShardItem]:
        for leaf_number, item in shard.run(lambda: self._stopping, self._consumer_stopped):
            yield leaf_number, shard, item

    @property
    def bytes_done(self) -> int:
        """Bytes that have been read. A byte that is scanned but not yet decoded counts half."""
        return self._processed_bytes // READS_PER_BYTE

    def _advance(self, amount: int) -> None:
        """Count `amount` bytes of one pass. Raises UnwantedError if the consumer has stopped."""
        if self._consumer_stopped.is_set():
            raise UnwantedError
        with self._lock:
            self._processed_bytes += amount
            if self.progress:
                self.progress(self.bytes_done, self.bytes_total)

    def readings(self) -> list[Reading]:
        """Return the outcome of each input, in their order. It is complete after the last result."""
        shards: dict[int, list[Shard]] = {}
        for shard in self.shards:
            shards.setdefault(shard.input.number, []).append(shard)
        return [
            reading_of(self.inputs[number].name, (shard.samples() for shard in input_shards), input_shards[0].capture)
            for number, input_shards in shards.items()
        ]

    @property
    def newest_time(self) -> int | None:
        """The time of the newest record of all inputs in ns, complete after the last result; None without records."""
        newest = max((shard.newest_time for shard in self.shards), default=BEGINNING)
        return None if newest == BEGINNING else newest

    def lateness(self) -> dict[tuple[str, str], Lateness]:
        """Return the late rows so far, by link and kind of rows. Links with exact watermarks are not measured."""
        found: dict[tuple[str, str], Lateness] = {}
        for shard in self.shards:
            for kind, lateness in shard.lateness.items():
                found.setdefault((shard.input.link, kind), Lateness()).merge(lateness)
        return found

    def samples(self) -> Samples:
        """Return all counters and gauges. They are complete after the last result."""
        samples = Samples()
        # A link may have tables in several shards. The tables of one input exist at the same time, so their sizes are
        # added. If inputs are read one after another, only existing tables count.
        tables: dict[int | None, Samples] = {}
        for shard in self.shards:
            shard_samples = Samples(shard.samples())
            for key in [key for key in shard_samples if key[0] == TABLE_BYTES.name]:
                amount = shard_samples.pop(key)
                for number in (shard.input.number, None) if shard.node else (shard.input.number,):
                    sizes = tables.setdefault(number, Samples())
                    sizes[key] = sizes.get(key, 0) + amount
            for key in [key for key in shard_samples if key[0] in GAUGES_PER_FILE]:
                shard_samples[key] += samples.get(key, 0)
            samples.merge(shard_samples, ALL_METRICS)
        for sizes in tables.values():
            for key, amount in sizes.items():
                samples[key] = max(samples.get(key, 0), amount)
        for root, plan in enumerate(self.plans):
            shards = [shard for leaf in plan.leaves for shard in self.shards_of[self._leaf_numbers[leaf]]]
            newest = max((shard.newest_time for shard in shards), default=BEGINNING)
            samples.merge(query_samples(self.nodes, plan, newest, root=root), ALL_METRICS)
        count_files(samples, self.watchlists.checked)
        return samples

    def _choose_slack(self, slack: int | None, capture: AnyCapture, leaves: Sequence[Leaf]) -> int | None:
        """Return the allowed disorder of an input in ns, for plans that state no disorder. None: exact watermarks."""
        if isinstance(capture, Capture) and any(leaf.low.has_record_watermarks for leaf in leaves):
            return None  # the scan provides exact watermarks
        live = isinstance(capture, StreamedCapture) and capture.live
        chosen = slack if slack is not None else LIVE_SLACK if live else EXACT_SLACK
        return None if chosen == EXACT_SLACK else chosen
