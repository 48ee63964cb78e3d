"""Arrivals of a comparison: injected disorder moves rows as specified, and watermarks are kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from highlevel.compare.arrivals import Arrivals, arrange
from highlevel.compare.injection import Injection
from highlevel.compare.recording import Recording, join_recordings
from lowlevel.punctuation import BEGINNING, END

SECOND = 1_000_000_000


def recording(number: int, times: list[int]) -> Recording:
    """A link of rows of these times, of which a leaf has all and another every second one."""
    whole = np.array(times, np.int64)
    arrivals = np.maximum.accumulate(whole) if len(whole) else whole
    kept = {}
    for leaf, step in ((0, 1), (1, 2)):
        places = np.arange(0, len(whole), step)
        rows = pa.RecordBatch.from_pydict({"pane": pa.array(whole[places]), "place": pa.array(places)})
        kept[leaf] = (rows, places)
    return Recording("ab"[number], whole, arrivals, kept)


def random_links(seed: int) -> list[Recording]:
    """Two links of 20 to 60 rows in 10 s, some late."""
    random = np.random.default_rng(seed)
    found = []
    for number in (0, 1):
        count = int(random.integers(20, 60))
        times = np.sort(random.integers(10 * SECOND, size=count)) - random.integers(SECOND, size=count)
        found.append(recording(number, times.tolist()))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_every_row_comes_once_in_its_tick_and_no_promise_is_broken(seed: int) -> None:
    random = np.random.default_rng(seed)
    links = random_links(seed)
    injection = Injection(
        {"b": int(random.integers(3)) * SECOND},
        {"a": [(SECOND, 2 * SECOND)]},
        int(random.integers(2)) * SECOND,
        int(random.integers(2)) * 3 * SECOND,
        seed,
    )
    arrived = injection.apply(links)
    arrivals = arrange(links, arrived, settle=SECOND)
    for late in (None, SECOND):
        came: dict[int, list[int]] = {port: [] for port in range(4)}
        lows = dict.fromkeys(range(4), BEGINNING)
        for event in arrivals.events(late):
            source = arrivals.sources[event.port]
            if event.rows is not None:
                times = event.rows.column("pane").to_numpy()
                when = arrived[source.recording][event.rows.column("place").to_numpy()]
                assert ((when < event.now) & (when >= event.now - arrivals.length)).all()
                if late is None:
                    assert (times >= lows[event.port]).all()
                came[event.port] += event.rows.column("place").to_pylist()
            assert event.watermark >= lows[event.port]
            assert late is not None or event.watermark in (BEGINNING, END) or event.watermark <= event.now
            lows[event.port] = event.watermark
        assert set(lows.values()) == {END}
        for port, source in enumerate(arrivals.sources):
            assert sorted(came[port]) == sorted(links[source.recording].leaf_rows[source.leaf][1].tolist())


def test_ports_are_numbered_through_leaf_by_leaf() -> None:
    links = random_links(1)
    arrivals = arrange(links, Injection().apply(links), SECOND)
    assert [(source.leaf, source.link) for source in arrivals.sources] == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    assert arrivals.links(2) == [["a", "b"], ["a", "b"]]


def test_rows_of_two_leaves_arrive_together() -> None:
    """A row that both read is delayed once."""
    links = random_links(2)
    arrivals = arrange(links, Injection(disorder=3 * SECOND).apply(links), SECOND)
    ticks: list[dict[int, int]] = [{}, {}]
    for event in arrivals.events(None):
        source = arrivals.sources[event.port]
        if event.rows is not None and source.link == "a":
            ticks[source.leaf] |= dict.fromkeys(event.rows.column("place").to_pylist(), event.tick)
    assert ticks[1].items() <= ticks[0].items()


def test_what_is_injected_delays_as_it_says() -> None:
    links = [recording(0, [0, SECOND, 5 * SECOND]), recording(1, [2 * SECOND, 3 * SECOND, 9 * SECOND])]
    before = [each.arrivals for each in links]
    a, b = Injection({"B": SECOND}).apply(links)
    assert (a - before[0]).tolist() == [0, 0, 0]
    assert (b - before[1]).tolist() == [SECOND] * 3
    _, b = Injection(lulls={"b": [(2 * SECOND, 4 * SECOND)]}).apply(links)
    assert b.tolist() == [6 * SECOND, 6 * SECOND, 9 * SECOND]
    many = [recording(0, list(range(0, 60 * SECOND, SECOND // 10)))]
    (delayed,) = Injection(disorder=2 * SECOND).apply(many)
    delays = delayed - many[0].arrivals
    assert delays.min() >= 0
    assert SECOND < delays.max() <= 2 * SECOND
    (blocks,) = Injection(block=6 * SECOND).apply(many)
    ends = (many[0].arrivals // (6 * SECOND) + 1) * 6 * SECOND
    assert ((blocks >= ends) & (blocks < ends + SECOND)).all()
    assert (np.diff(blocks) < 0).any()


def test_a_lull_is_from_the_first_row_of_any_link_and_holds_what_a_skew_brings_into_it() -> None:
    links = [recording(0, [10 * SECOND]), recording(1, [11 * SECOND])]
    _, b = Injection({"b": SECOND}, {"b": [(2 * SECOND, 3 * SECOND)]}).apply(links)
    assert b.tolist() == [15 * SECOND]


def test_ticks_go_on_until_all_has_settled_and_skip_the_rest() -> None:
    links = [recording(0, [0, 1000 * SECOND]), recording(1, [])]
    arrivals: Arrivals = arrange(links, Injection().apply(links), settle=2 * SECOND, tick=SECOND)
    assert (arrivals.ticks // SECOND).tolist() == [1, 2, 3, 1001]


def test_links_of_no_rows_promise_their_end_alone() -> None:
    links = [recording(0, [0, SECOND]), recording(1, [])]
    arrivals = arrange(links, Injection().apply(links), SECOND)
    assert {event.watermark for event in arrivals.events(None) if arrivals.sources[event.port].link == "b"} == {END}
    assert {event.watermark for event in arrivals.events(0) if arrivals.sources[event.port].link == "b"} == {END}


def test_files_of_one_link_are_one_recording() -> None:
    """Rows may be in any order, and rows of one input may have times of the other."""
    times = [0, 3 * SECOND, SECOND, 4 * SECOND, 6 * SECOND, 5 * SECOND, 9 * SECOND]
    files = [recording(0, times[4:]), recording(0, times[:4])]
    (found,) = join_recordings(files)
    assert found.arrivals.tolist() == np.maximum.accumulate(times).tolist()
    assert found.times.tolist() == times
    for leaf, (rows, places) in found.leaf_rows.items():
        assert rows.column("pane").to_pylist() == found.times[places].tolist(), leaf
        assert (np.diff(places) > 0).all()
    assert len(join_recordings([*files, recording(1, times)])) == 2
