"""The Operator contract, checked for any operator on any grammatical interleaving of its inputs.

It detects wrong results and results that depend on the order of arrival. It detects rows older than a punctuation that
was sent before. It detects punctuation that goes back, is missing or is repeated. It detects state that outlives its
windows, and state that a restart loses or doubles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

import pyarrow as pa

from highlevel.operators.operator import Operator
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from tests.references.windows_oracle import Arrival

Event = tuple[int, Item]
"""An input's port, and the item that arrives at it."""


@dataclass(frozen=True)
class Contract:
    """How to create an operator, and the meaning of its punctuation.

    `progress` is the smallest value of a batch that punctuation speaks of. `watermark` returns the watermark that the
    operator must have sent, given the watermarks of all ports. BEGINNING means that it need not have sent any. `held`
    counts the rows a snapshot holds. If `once` is set, the operator does not repeat a watermark.
    """

    make: Callable[[], Operator]
    ports: int
    progress: Callable[[pa.RecordBatch], int]
    watermark: Callable[[list[int]], int]
    held: Callable[[dict[str, pa.Table]], int]
    once: bool = True


def interleaved(random: Random, inputs: list[list[Arrival | int]]) -> list[tuple[int, Arrival | int]]:
    """One arrival order of all inputs; each input keeps its own."""
    places = [0] * len(inputs)
    weights = [random.choice([0.15, 0.5, 0.85]) for _ in inputs]
    order = []
    while True:
        open_ports = [port for port, events in enumerate(inputs) if places[port] < len(events)]
        if not open_ports:
            return order
        port = random.choices(open_ports, [weights[each] for each in open_ports])[0]
        order.append((port, inputs[port][places[port]]))
        places[port] += 1


def reordered(random: Random, events: list[Arrival | int]) -> list[Arrival | int]:
    """The same input in another order that its punctuation allows: a tuple may come at any time before one above it."""
    marks = [each for each in events if isinstance(each, int)]
    slots: list[list[Arrival | int]] = [[] for _ in marks]
    for each in events:
        if not isinstance(each, int):
            last = next(place for place, low in enumerate(marks) if low > each.ts)
            slots[random.randint(0, last)].append(each)
    for slot in slots:
        random.shuffle(slot)
    return [each for slot, mark in zip(slots, marks, strict=True) for each in [*slot, mark]]


def batched(
    random: Random, order: Iterable[tuple[int, Arrival | int]], batch: Callable[[list[Arrival]], pa.RecordBatch]
) -> list[Event]:
    """Put neighbouring tuples of a port into batches of random lengths, punctuation between them."""
    events: list[Event] = []
    waiting: list[Arrival] = []
    port = 0
    for next_port, each in order:
        if waiting and (next_port != port or isinstance(each, int) or random.random() < 0.4):
            events.append((port, batch(waiting)))
            waiting = []
        port = next_port
        if isinstance(each, int):
            events.append((port, Punctuation(f"link{port}", each)))
        else:
            waiting.append(each)
    return events


def feed(operator: Operator, event: Event) -> list[Item]:
    port, item = event
    return list(operator.punctuate(port, item) if isinstance(item, Punctuation) else operator.process_rows(port, item))


def rows_of(items: Iterable[Item]) -> Counter[tuple]:
    """The multiset of rows in a list of items."""
    return Counter(
        tuple(row.values()) for item in items if isinstance(item, pa.RecordBatch) for row in item.to_pylist()
    )


def rows_behind_promises(items: Iterable[Item]) -> list[tuple]:
    """The rows of items up to the end, none with a time (its first column) below a watermark before it."""
    promised = BEGINNING
    found: list[tuple] = []
    for item in items:
        if isinstance(item, Punctuation):
            assert item.watermark > promised
            promised = item.watermark
        else:
            assert item.num_rows > 0
            assert min(item.column(0).to_pylist()) >= promised
            found += zip(*(each.to_pylist() for each in item.columns), strict=True)
    assert promised == END
    return found


def through_ipc(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Write the tables of a snapshot as Arrow IPC, and read them again."""
    read = {}
    for name, table in tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        read[name] = pa.ipc.open_stream(sink.getvalue()).read_all()
    return read


def check(contract: Contract, events: list[Event]) -> list[list[Item]]:
    """Run an operator over events that end all ports, check what all keep, and return its items by event."""
    operator = contract.make()
    bounds = [BEGINNING] * contract.ports
    watermark = BEGINNING
    trace = []
    for event in events:
        items = feed(operator, event)
        for item in items:
            if isinstance(item, Punctuation):
                assert item.watermark > watermark or (item.watermark == watermark and not contract.once), (
                    f"{item} after {watermark}"
                )
                watermark = item.watermark
            else:
                assert item.num_rows > 0, "an empty batch is no item"
                assert contract.progress(item) >= watermark, f"{item.to_pylist()} after the watermark {watermark}"
        if isinstance(event[1], Punctuation):
            bounds[event[0]] = max(bounds[event[0]], event[1].watermark)
        assert watermark == contract.watermark(bounds), f"after {event}: watermark {watermark}"
        trace.append(items)
    assert watermark == END
    assert contract.held(operator.snapshot()) == 0, "state outlived the end"
    return trace


def check_restart(contract: Contract, events: list[Event], trace: list[list[Item]], place: int, *, ipc: bool) -> None:
    """Check that a new operator with the state at `make_node` returns the same as the operator of `trace`."""
    stopped, restarted = contract.make(), contract.make()
    for event in events[:place]:
        feed(stopped, event)
    state = stopped.snapshot()
    restarted.restore(through_ipc(state) if ipc else state)
    for event, expected in zip(events[place:], trace[place:], strict=True):
        items = feed(restarted, event)
        assert rows_of(items) == rows_of(expected)
        assert marks_of(items) == marks_of(expected)


def all_rows(trace: list[list[Item]]) -> Counter[tuple]:
    """The multiset of all rows of a run."""
    return rows_of(item for items in trace for item in items)


def marks_of(items: Iterable[Item]) -> list[Item]:
    return [item for item in items if isinstance(item, Punctuation)]
