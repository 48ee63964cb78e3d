"""Complete lines of a pipeline run about its spools: readers would trust a number in the wrong column."""

from capture.metrics import Samples
from dashboards.monitors.spool_lines import spool_lines, spool_table
from highlevel.metrics import (
    SPOOL_NEWEST,
    SPOOL_PARTIALS_LOST,
    SPOOL_PARTIALS_READ,
    SPOOL_PARTIALS_SHED,
    SPOOL_SEGMENTS_LOST,
    SPOOL_SEGMENTS_READ,
)

NOW = 1_700_000_000_000_000_000


def read() -> Samples:
    samples = Samples()
    samples.add(SPOOL_SEGMENTS_READ, 1234, "eth0")
    samples.add(SPOOL_PARTIALS_READ, 10_000, "talkers", "eth0")
    samples.add(SPOOL_PARTIALS_READ, 5, "ports", "eth0")
    samples.set(SPOOL_NEWEST, NOW / 1e9 - 2.5, "eth0")
    samples.add(SPOOL_SEGMENTS_LOST, 1, "eth0", "missing")
    samples.add(SPOOL_PARTIALS_LOST, 77, "eth0")
    samples.set(SPOOL_PARTIALS_SHED, 6, "eth0")
    return samples


def test_each_spool_has_a_line() -> None:
    assert list(spool_lines(read(), ["eth0", "eth1"], NOW)) == [
        "spool of eth0: 1,234 segments, 10,005 partials, newest 2.5 s old, 1 segment lost",
        "spool of eth1: 0 segments, 0 partials",
    ]


def test_the_table_has_all_of_it() -> None:
    assert spool_table(read(), ["eth0", "eth1"], NOW).splitlines() == [
        "spool  segments  lost  partials  lost with segments  shed  newest",
        "-----  --------  ----  --------  ------------------  ----  ------",
        "eth0      1,234     1    10,005                  77     6   2.5 s",
        "eth1          0     0         0                   0     0       -",
    ]
