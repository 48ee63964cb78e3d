"""Meld against the rule: the watermark of the union is the smallest of its inputs' watermarks, and it is sent once.

* The printed example catches a naive minimum that repeats itself.
* Random inputs catch a maximum for a minimum, an input forgotten, and a bound lost by a restart.
"""

from random import Random

import pyarrow as pa

from highlevel.operators.meld import UNION, Meld
from lowlevel.punctuation import BEGINNING, END, Punctuation
from tests.conftest import Rounds
from tests.references.operator_contract import (
    Contract,
    all_rows,
    batched,
    check,
    check_restart,
    interleaved,
    reordered,
    rows_of,
)
from tests.references.windows_oracle import Arrival, random_inputs


def batch(arrivals: list[Arrival]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([each._asdict() for each in arrivals])


def contract(inputs: int) -> Contract:
    return Contract(
        make=lambda: Meld(inputs),
        ports=inputs,
        progress=lambda rows: min(rows["ts"].to_pylist()),
        watermark=min,
        held=lambda tables: tables["meld"].num_rows - inputs - 1,
    )


def lows(meld: Meld, *said: tuple[int, int]) -> list[int]:
    return [item.watermark for port, low in said for item in meld.punctuate(port, Punctuation(f"link{port}", low))]


def test_the_minimum_is_said_once_while_the_other_input_runs_ahead() -> None:
    assert lows(Meld(2), (0, 20), (1, 19), (1, 20), (1, 21), (1, 22)) == [19, 20]


def test_an_input_that_never_spoke_holds_the_union_back() -> None:
    meld = Meld(3)
    assert lows(meld, (0, 5), (1, 7), (0, END), (1, END)) == []
    assert lows(meld, (2, 6), (2, END)) == [6, END]


def test_a_promise_taken_back_is_not_believed() -> None:
    assert lows(Meld(2), (0, 10), (1, 10), (0, 3), (1, 11), (0, 11)) == [10, 11]


def test_rows_pass_at_once_and_the_union_speaks_for_all_links() -> None:
    meld = Meld(2)
    rows = batch([Arrival(1, 2, 3)])
    assert list(meld.process_rows(1, rows)) == [rows]
    assert list(meld.punctuate(0, Punctuation("a", 1))) == []
    assert list(meld.punctuate(1, Punctuation("b", 4))) == [Punctuation(UNION, 1)]


def test_an_input_added_by_a_restart_starts_at_what_was_promised() -> None:
    before, after = Meld(2), Meld(3)
    assert lows(before, (0, 20), (1, 30)) == [20]
    after.restore(before.snapshot())
    assert after.input_watermarks == [20, 30, 20]
    assert lows(after, (0, 40), (2, 10), (2, 25)) == [25]


def test_a_restart_before_anything_was_said_keeps_the_silence() -> None:
    after = Meld(2)
    after.restore(Meld(2).snapshot())
    assert after.input_watermarks == [BEGINNING] * 2
    assert lows(after, (0, 3)) == []


def test_any_inputs_in_any_order_keep_the_contract(rounds: Rounds) -> None:
    for seed in rounds(300):
        random = Random(seed)
        inputs = random_inputs(random)
        kept = contract(len(inputs))
        found = all_rows(check(kept, batched(random, interleaved(random, inputs), batch)))
        assert found == rows_of([batch([each]) for events in inputs for each in events if not isinstance(each, int)])
        again = [reordered(random, events) for events in inputs]
        events = batched(random, interleaved(random, again), batch)
        trace = check(kept, events)
        assert all_rows(trace) == found, seed
        check_restart(kept, events, trace, random.randint(0, len(events)), ipc=seed % 2 == 0)
