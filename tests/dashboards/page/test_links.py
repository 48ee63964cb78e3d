"""The states of links from the counters of a pipeline, with a clock that the test moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from capture.metrics import BYTES_READ, FILES_DAMAGED, INTERFACE_DROPPED, PACKETS_DECODED, RECORDS_READ, Samples
from dashboards.page.links import SILENT_SECONDS, LinkStates
from highlevel.metrics import (
    LOW_WATERMARK,
    PUNCTUATION_LAG,
    SPOOL_LATENESS,
    SPOOL_LINK_COUNTS,
    SPOOL_PARTIALS_LOST,
    SPOOL_PARTIALS_READ,
)
from highlevel.spark.run_folder.totals import Totals, TotalsFiles
from lowlevel.metrics import RECORDS_SHED, ROWS_BELOW_WATERMARK

NOW = 1_700_000_000.0


def samples_of(records: float, watermark: float | None, link: str = "a") -> Samples:
    samples = Samples()
    samples.set(RECORDS_READ, records, link)
    if watermark is not None:
        samples.set(LOW_WATERMARK, watermark, "talkers", link)
        samples.set(PUNCTUATION_LAG, 2.5, "talkers", link)
    return samples


def test_a_link_is_waiting_then_active_then_silent_then_active_then_ended() -> None:
    states = LinkStates()

    def state(samples: Samples, seconds: float) -> tuple[str, float]:
        (link,) = states.observe(["a"], samples, NOW + seconds)
        return link["state"], link["since"] - NOW

    assert state(Samples(), 0) == ("waiting", 0)
    assert state(samples_of(10, None), 3) == ("active", 3)  # the first rows have no watermark yet
    assert state(samples_of(10, 5.0), 3 + SILENT_SECONDS - 1) == ("active", 3)
    assert state(samples_of(10, 9.0), 3 + SILENT_SECONDS) == ("silent", 3)  # the clock may advance the watermark
    assert state(samples_of(11, 9.0), 20) == ("active", 20)
    assert state(samples_of(12, None), 21) == ("ended", 21)


def test_a_link_that_had_ended_before_the_page_was_opened_is_ended_after_a_while() -> None:
    states = LinkStates()
    assert [link["state"] for link in states.observe([], samples_of(10, None), NOW)] == ["active"]
    assert [link["state"] for link in states.observe([], samples_of(10, None), NOW + 99)] == ["ended"]


def test_counters_of_this_process_and_of_the_spool_are_added() -> None:
    samples = samples_of(10, 5.0)
    for metric, value in ((PACKETS_DECODED, 9), (BYTES_READ, 900), (RECORDS_SHED, 2)):
        samples.set(metric, value, "a", *["ring"] * (len(metric.labels) - 1))
    samples.set(ROWS_BELOW_WATERMARK, 3, "a", "packets")
    samples.set(INTERFACE_DROPPED, 4, "a")
    samples.set(FILES_DAMAGED, 1, "a", "truncated")
    for number, metric in enumerate(SPOOL_LINK_COUNTS.values(), 1):
        samples.set(metric, 10 * number, "b")
    samples.set(SPOOL_PARTIALS_READ, 7, "talkers", "b")
    samples.set(SPOOL_PARTIALS_LOST, 5, "b")
    samples.set(SPOOL_LATENESS, 3.15, "b")
    first, second = LinkStates().observe(["b"], samples, NOW)
    names = ("name", "records", "packets", "bytes", "late", "dropped", "lulls", "partials_lost", "damaged")
    assert [first[name] for name in names] == ["a", 10, 9, 900, 3, 6, 0, 0, 1]
    assert list(SPOOL_LINK_COUNTS) == ["records", "bytes", "packets", "late", "lulls", "dropped", "shed"]
    assert [second[name] for name in names] == ["b", 10, 30, 20, 40, 130, 50, 5, 0]
    assert (first["watermark"], first["lag"], second["watermark"], second["lag"]) == (5.0, 2.5, None, None)
    assert (first["lateness"], second["lateness"]) == (None, 3.15)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_link_with_the_smallest_watermark_holds_its_queries_back(is_restarted: bool, tmp_path: Path) -> None:
    """Also after a restart: the samples of the totals name the link."""
    samples = Samples()
    for query, lows in {
        "one": {"a": 10.0, "b": 25.0, "c": 13.0},
        "two": {"b": 7.0},
        "same": {"a": 5.0, "b": 5.0},
    }.items():
        for link, low in lows.items():
            samples.set(LOW_WATERMARK, low, query, link)
    if is_restarted:
        TotalsFiles(tmp_path).save(0, Totals(samples=samples))
        samples = TotalsFiles(tmp_path).load(0).samples
    links = {link["name"]: link for link in LinkStates().observe([], samples, NOW)}
    assert {name: link["holds"] for name, link in links.items()} == {
        "a": [{"query": "one", "seconds": 3.0}],
        "b": [],
        "c": [],
    }
    assert links["a"]["watermark"] == pytest.approx(5.0)
