"""The exporter: what a scrape reads after given windows and counters.

Whole texts catch wrong names, labels, helps and orders. Single metrics of hand-made windows catch wrong choices: ties,
NULL, folding, late windows. The random tables detect unforeseen errors: a bound that does not hold, packets that are
lost between the groups shown and `other`, a dependence on the order of the partitions.
"""

from threading import Thread

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from capture.metrics import Metric, Samples
from dashboards.prometheus.exporter import Exporter
from lowlevel.punctuation import END
from queries.gsql import compile_query
from tests.references.exporter_rows import SECOND, exposition, plan, rows, samples

TALKERS = plan("srcIP, destPort, count(*) AS packets, avg(len) AS mean", "srcIP, destPort")
PACKETS = "wiretide_query_talkers_packets"
MEAN = "wiretide_query_talkers_mean"


def test_a_whole_exposition_of_two_queries_and_two_counters() -> None:
    talkers = plan("srcIP, count(*) AS packets, avg(len) AS mean", "srcIP")
    total = compile_query("SELECT sum(len) AS bytes\nFROM packets", "Q1-1")
    skipped = Metric("wiretide_skipped_total", "counter", ("link", "cause"), "Skipped records.")
    open_ = Metric("wiretide_open", "gauge", (), "Open windows.")
    exporter = Exporter([talkers, total], [skipped, open_], top=1)
    counted = Samples()
    counted.add(skipped, 3, "Main2", "arp")
    counted.add(skipped, 2, "Main1", "arp")
    counted.set(open_, 4)
    exporter.set_samples(counted)
    exporter.add_results("talkers", rows(talkers, 120, ("10.0.0.1", 5, 60.5), ("2001:db8::1", 7, 1500.0)))
    exporter.add_results("Q1-1", rows(total, 0, (9000,)))
    sql = "SELECT srcIP, count(*) AS packets, avg(len) AS mean FROM packets [RANGE 1 minute, SLIDE 1 minute, WA ts]"
    assert (
        exposition(exporter)
        == f"""\
# HELP wiretide_skipped_total Skipped records.
# TYPE wiretide_skipped_total counter
wiretide_skipped_total{{cause="arp",link="Main1"}} 2.0
wiretide_skipped_total{{cause="arp",link="Main2"}} 3.0
# HELP wiretide_open Open windows.
# TYPE wiretide_open gauge
wiretide_open 4.0
# HELP wiretide_query_window_start_seconds Start of the query's last closed window (seconds since the epoch, in the \
capture's own time).
# TYPE wiretide_query_window_start_seconds gauge
wiretide_query_window_start_seconds{{query="talkers"}} 60.0
# HELP wiretide_query_window_end_seconds End, not included, of the query's last closed window (seconds since the epoch\
, in the capture's own time).
# TYPE wiretide_query_window_end_seconds gauge
wiretide_query_window_end_seconds{{query="talkers"}} 120.0
# HELP wiretide_query_groups Result rows of the query's last closed window, after HAVING.
# TYPE wiretide_query_groups gauge
wiretide_query_groups{{query="Q1-1"}} 1.0
wiretide_query_groups{{query="talkers"}} 2.0
# HELP wiretide_query_series_folded Result rows of the query's last closed window that have no separate \
series: they are part of the series other.
# TYPE wiretide_query_series_folded gauge
wiretide_query_series_folded{{query="Q1-1"}} 0.0
wiretide_query_series_folded{{query="talkers"}} 1.0
# HELP wiretide_query_talkers_packets Column packets of the group with the greatest packets, which change rarely, in \
the last closed window \
of query talkers; the series whose labels are all other adds up the rest. SQL: {sql} GROUP BY srcIP
# TYPE wiretide_query_talkers_packets gauge
wiretide_query_talkers_packets{{src_ip="2001:db8::1"}} 7.0
wiretide_query_talkers_packets{{src_ip="other"}} 5.0
# HELP wiretide_query_talkers_mean Column mean of the group with the greatest packets, which change rarely, in the \
last closed window of \
query talkers; there is no series other, because values of this column cannot be combined. SQL: {sql} GROUP BY srcIP
# TYPE wiretide_query_talkers_mean gauge
wiretide_query_talkers_mean{{src_ip="2001:db8::1"}} 1500.0
# HELP wiretide_query_q1_1_bytes Column bytes in the last closed window of query Q1-1. SQL: SELECT sum(len) AS bytes \
FROM packets
# TYPE wiretide_query_q1_1_bytes gauge
wiretide_query_q1_1_bytes 9000.0
"""
    )


def test_before_the_first_window_every_metric_is_described_and_has_no_sample() -> None:
    lines = exposition(Exporter([TALKERS], [])).splitlines()
    assert [line.split()[2] for line in lines if line.startswith("# TYPE")] == [
        "wiretide_query_window_start_seconds",
        "wiretide_query_window_end_seconds",
        "wiretide_query_groups",
        "wiretide_query_series_folded",
        PACKETS,
        MEAN,
    ]
    assert all(line.startswith("#") for line in lines)


def test_samples_are_those_of_the_last_call_and_a_copy_of_them() -> None:
    reads = Metric("reads_total", "counter", ("link",), "Reads.")
    exporter = Exporter([], [reads])
    counted = Samples()
    counted.add(reads, 1, "a")
    exporter.set_samples(counted)
    counted.add(reads, 1, "b")
    assert samples(exporter, "reads_total") == ['{link="a"} 1.0']
    exporter.set_samples({("reads_total", ("b",)): 2})
    assert samples(exporter, "reads_total") == ['{link="b"} 2.0']


def test_ties_go_to_the_smaller_keys_addresses_by_bytes_and_null_last() -> None:
    exporter = Exporter([TALKERS], [], top=4)
    groups = [("9.0.0.1", None), ("2001:db8::1", 1), ("10.0.0.1", 1), ("9.0.0.1", 443), ("9.0.0.1", 80)]
    for order in (groups, groups[::-1]):
        exporter.add_results("talkers", rows(TALKERS, 60 + len(order), *((*group, 5, 1.0) for group in order)))
        assert samples(exporter, PACKETS) == [
            '{dest_port="80",src_ip="9.0.0.1"} 5.0',
            '{dest_port="443",src_ip="9.0.0.1"} 5.0',
            '{dest_port="",src_ip="9.0.0.1"} 5.0',
            '{dest_port="1",src_ip="10.0.0.1"} 5.0',
            '{dest_port="other",src_ip="other"} 5.0',
        ]
        exporter = Exporter([TALKERS], [], top=4)


def test_macs_are_labels_as_people_write_them_and_no_value() -> None:
    plan = compile_query("SELECT srcMAC, inner.srcIP, count(*) AS n FROM frames GROUP BY srcMAC, inner.srcIP", "macs")
    exporter = Exporter([plan], [], top=2)
    found = [(bytes.fromhex("0200deadbeef"), None, 3), (None, bytes([10, 0, 0, 1]), 2), (bytes(6), None, 1)]
    table = pa.table(dict(zip(plan.schema.names, zip(*found, strict=True), strict=True)), schema=plan.schema)
    exporter.add_results("macs", table)
    assert samples(exporter, "wiretide_query_macs_n") == [
        '{inner_src_ip="",src_mac="02:00:de:ad:be:ef"} 3.0',
        '{inner_src_ip="10.0.0.1",src_mac=""} 2.0',
        '{inner_src_ip="other",src_mac="other"} 1.0',
    ]


def test_with_no_more_groups_than_top_there_is_no_other() -> None:
    exporter = Exporter([TALKERS], [], top=2)
    exporter.add_results("talkers", rows(TALKERS, 60, ("10.0.0.1", 80, 1, 1.0), ("10.0.0.2", 80, 2, 1.0)))
    assert samples(exporter, PACKETS) == [
        '{dest_port="80",src_ip="10.0.0.2"} 2.0',
        '{dest_port="80",src_ip="10.0.0.1"} 1.0',
    ]
    assert samples(exporter, "wiretide_query_series_folded") == ['{query="talkers"} 0.0']


@pytest.mark.parametrize(
    ("column", "values", "other"),
    [
        ("count(*)", (9, 4, 3), 7),
        ("count(destPort)", (9, 4, 3), 7),
        ("sum(len)", (9, 4, 3), 7),
        ("sum(destPort)", (9, 4, None), 4),
        ("sum(destPort)", (9, None, None), None),
        ("min(ttl)", (1, 64, 32), 32),
        ("max(ttl)", (1, 64, 128), 128),
        ("min(destPort)", (1, None, 80), 80),
        ("sum(len) * 8", (72, 32, 24), 56),
        ("8 * sum(len)", (72, 32, 24), 56),
        ("sum(len) / 1000.0", (0.5, 0.25, 0.125), 0.375),
        ("-sum(len)", (-1, -2, -3), -5),
        ("sum(len) - sum(caplen)", (9, 4, 3), 7),
        ("sum(len) + sum(destPort)", (9, 4, 3), None),
        ("sum(len) / 1000", (9, 4, 3), None),
        ("sum(len) / count(*)", (9, 4, 3), None),
        ("count(*) + 1", (9, 4, 3), None),
        ("avg(len)", (9.5, 4.5, 3.5), None),
        ("-min(len)", (-1, -2, -3), None),
        ("max(len) - min(len)", (9, 4, 3), None),
        ("count(*) > 100", (True, False, False), None),
    ],
)
def test_other_is_what_one_group_of_the_rest_would_have_or_is_not_there(
    column: str, values: tuple[float | None, ...], other: float | None
) -> None:
    query = plan(f"protocol, count(*) AS packets, {column} AS value", "protocol")
    exporter = Exporter([query], [], top=1)
    groups = [(number, 100 - number, value) for number, value in enumerate(values)]
    exporter.add_results("talkers", rows(query, 60, *groups))
    expected = [] if values[0] is None else [f'{{protocol="0"}} {float(values[0])}']
    expected += [] if other is None else [f'{{protocol="other"}} {float(other)}']
    assert samples(exporter, "wiretide_query_talkers_value") == expected


def test_a_null_value_has_no_series_and_ranks_last() -> None:
    query = plan("protocol, sum(destPort) AS ports", "protocol")
    exporter = Exporter([query], [], top=2)
    exporter.add_results("talkers", rows(query, 60, (1, None), (6, -5), (17, None)))
    assert samples(exporter, "wiretide_query_talkers_ports") == ['{protocol="6"} -5.0']


def test_what_is_no_number_ranks_behind_all_numbers() -> None:
    query = plan("protocol, avg(len) AS mean", "protocol")
    exporter = Exporter([query], [], top=3)
    exporter.add_results("talkers", rows(query, 60, (1, float("nan")), (2, None), (3, -1.0), (4, float("inf"))))
    means = ['{protocol="4"} +Inf', '{protocol="3"} -1.0', '{protocol="1"} NaN']
    assert samples(exporter, "wiretide_query_talkers_mean") == means


def test_expressions_of_keys_and_the_link_are_labels_and_text_is_escaped() -> None:
    query = plan("link, destPort / 100 AS hundreds, max(ttl) AS ttl, count(*) AS packets", "link, destPort / 100")
    exporter = Exporter([query], [], top=2)
    exporter.add_results("talkers", rows(query, 60, ('a"\\\n', 4, 9, 1), ("b", None, 8, 2), ("c", 5, 7, 3)))
    assert samples(exporter, "wiretide_query_talkers_ttl") == [
        '{hundreds="4",link="a\\"\\\\\\n"} 9.0',
        '{hundreds="",link="b"} 8.0',
        '{hundreds="other",link="other"} 7.0',
    ]


def test_rows_that_differ_only_in_keys_not_selected_are_one_series() -> None:
    query = plan("srcIP, count(*) AS packets, avg(len) AS mean", "srcIP, destIP")
    exporter = Exporter([query], [], top=1)
    exporter.add_results("talkers", rows(query, 60, ("10.0.0.1", 2, 9.0), ("10.0.0.2", 3, 8.0), ("10.0.0.1", 2, 7.0)))
    assert samples(exporter, PACKETS) == ['{src_ip="10.0.0.1"} 4.0', '{src_ip="other"} 3.0']
    assert samples(exporter, MEAN) == []
    assert samples(exporter, "wiretide_query_groups") == ['{query="talkers"} 3.0']
    assert samples(exporter, "wiretide_query_series_folded") == ['{query="talkers"} 1.0']


def test_a_link_that_is_called_other_is_part_of_other() -> None:
    query = plan("link, count(*) AS packets", "link")
    exporter = Exporter([query], [], top=1)
    exporter.add_results("talkers", rows(query, 60, ("other", 50), ("a", 2), ("b", 1)))
    assert samples(exporter, PACKETS) == ['{link="a"} 2.0', '{link="other"} 51.0']


def test_the_rank_may_be_any_column_of_values() -> None:
    exporter = Exporter([TALKERS], [], top=1, rank={"talkers": "mean"})
    exporter.add_results("talkers", rows(TALKERS, 60, ("10.0.0.1", 80, 9, 1.0), ("10.0.0.2", 80, 1, 2.0)))
    assert samples(exporter, MEAN) == ['{dest_port="80",src_ip="10.0.0.2"} 2.0']
    assert samples(exporter, PACKETS) == [
        '{dest_port="80",src_ip="10.0.0.2"} 1.0',
        '{dest_port="other",src_ip="other"} 9.0',
    ]


def test_a_query_of_keys_alone_says_how_many_groups_it_has() -> None:
    query = plan("srcIP", "srcIP")
    exporter = Exporter([query], [], top=1)
    exporter.add_results("talkers", rows(query, 60, ("10.0.0.1",), ("10.0.0.2",)))
    assert samples(exporter, "wiretide_query_groups") == ['{query="talkers"} 2.0']


def test_groups_that_left_the_top_leave_the_exposition() -> None:
    exporter = Exporter([TALKERS], [], top=1)
    exporter.add_results("talkers", rows(TALKERS, 60, ("10.0.0.1", 80, 9, 1.0), ("10.0.0.2", 80, 1, 2.0)))
    exporter.add_results("talkers", rows(TALKERS, 120, ("10.0.0.2", 80, 3, 1.0)))
    assert samples(exporter, PACKETS) == ['{dest_port="80",src_ip="10.0.0.2"} 3.0']


def test_of_several_windows_at_once_the_last_is_shown_and_a_late_one_changes_nothing() -> None:
    query = plan("count(*) AS packets")
    exporter = Exporter([query], [])
    exporter.add_results("talkers", pa.concat_tables([rows(query, 180, (3,)), rows(query, 120, (2,))]))
    exporter.add_results("talkers", rows(query, 60, (1,)))
    assert samples(exporter, PACKETS) == [" 3.0"]
    assert samples(exporter, "wiretide_query_window_start_seconds") == ['{query="talkers"} 120.0']


def test_partitions_of_a_window_add_up_whatever_comes_between() -> None:
    exporter = Exporter([TALKERS], [], top=1)
    exporter.add_results("talkers", rows(TALKERS, 120, ("10.0.0.1", 80, 1, 1.0)))
    assert samples(exporter, PACKETS) == ['{dest_port="80",src_ip="10.0.0.1"} 1.0']
    exporter.add_results("talkers", rows(TALKERS, 60, ("10.0.0.9", 80, 7, 1.0)))
    exporter.add_results("talkers", rows(TALKERS, 120))
    exporter.add_results("talkers", rows(TALKERS, 120, ("10.0.0.2", 80, 2, 1.0)))
    assert samples(exporter, PACKETS) == [
        '{dest_port="80",src_ip="10.0.0.2"} 2.0',
        '{dest_port="other",src_ip="other"} 1.0',
    ]


def test_a_window_without_rows_empties_the_series_once_it_is_known_to_be_closed() -> None:
    # windows  [60,120) has rows   [120,180) has none
    # low      120: no new window   179: no new window   180: no window is shown   END: no change
    exporter = Exporter([TALKERS], [], top=1)
    exporter.add_results("talkers", rows(TALKERS, 120, ("10.0.0.1", 80, 1, 1.0)))
    for low in (120 * SECOND, 180 * SECOND - 1, END):
        exporter.set_watermark("talkers", low)
        assert samples(exporter, PACKETS) == ['{dest_port="80",src_ip="10.0.0.1"} 1.0']
    exporter.set_watermark("talkers", 180 * SECOND)
    assert samples(exporter, PACKETS) == []
    assert samples(exporter, "wiretide_query_groups") == ['{query="talkers"} 0.0']
    assert samples(exporter, "wiretide_query_window_end_seconds") == ['{query="talkers"} 180.0']


def test_a_query_without_a_window_has_no_bounds_and_adds_up() -> None:
    query = compile_query("SELECT protocol, count(*) AS packets FROM packets GROUP BY protocol", "talkers")
    exporter = Exporter([query], [])
    exporter.add_results("talkers", rows(query, 0, (6, 2)))
    exporter.add_results("talkers", rows(query, 0, (17, 1)))
    exporter.set_watermark("talkers", 2**62)
    assert samples(exporter, PACKETS) == ['{protocol="6"} 2.0', '{protocol="17"} 1.0']
    assert samples(exporter, "wiretide_query_window_end_seconds") == []


def test_windows_of_a_number_of_rows_have_no_times() -> None:
    query = compile_query("SELECT protocol, count(*) AS packets FROM M [RANGE 9 rows] GROUP BY protocol", "talkers")
    exporter = Exporter([query], [])
    exporter.add_results("talkers", pa.Table.from_pylist([dict(zip(query.schema.names, (0, 9, 6, 9), strict=True))]))
    exporter.set_watermark("talkers", 2**62)
    assert samples(exporter, PACKETS) == ['{protocol="6"} 9.0']
    assert samples(exporter, "wiretide_query_window_start_seconds") == []
    assert samples(exporter, "wiretide_query_window_end_seconds") == []


COUNTS = st.integers(-(2**40), 2**40)
LINKS = st.sampled_from([None, "", "other", "a", "b", "Main1"])
PORTS = st.sampled_from([None, 0, 1, 53, 80, 443])
GROUPS = st.lists(st.tuples(LINKS, PORTS, COUNTS, COUNTS, COUNTS), unique_by=lambda group: group[:2])
WIDE = plan("link, destPort, sum(len) AS bytes, min(len) AS least, max(len) AS most", "link, destPort")
LINK_ONLY = plan("link, sum(len) AS bytes, min(len) AS least, max(len) AS most", "link, destPort")


@given(GROUPS, st.integers(1, 5), st.booleans())
def test_series_are_bounded_and_lose_nothing(groups: list[tuple], top: int, all_keys: bool) -> None:
    query = WIDE if all_keys else LINK_ONLY
    exporter = Exporter([query], [], top=top)
    exporter.add_results(
        "talkers", rows(query, 60, *(group if all_keys else (group[0], *group[2:]) for group in groups))
    )
    families = {family.name: family.samples for family in text_string_to_metric_families(exposition(exporter))}
    for column, whole in (("bytes", sum), ("least", min), ("most", max)):
        series = families[f"wiretide_query_talkers_{column}"]
        assert len(series) <= top + 1
        assert len({tuple(sorted(one.labels.items())) for one in series}) == len(series)
        if groups:
            place = 2 + ["bytes", "least", "most"].index(column)
            assert whole(one.value for one in series) == whole(group[place] for group in groups)


@given(GROUPS.flatmap(lambda groups: st.tuples(st.just(groups), st.permutations(groups), st.integers(1, 3))))
def test_the_order_and_the_calls_in_which_rows_arrive_do_not_matter(case: tuple[list, list, int]) -> None:
    groups, shuffled, parts = case
    once, often = Exporter([WIDE], [], top=2), Exporter([WIDE], [], top=2)
    once.add_results("talkers", rows(WIDE, 60, *groups))
    for part in range(parts):
        often.add_results("talkers", rows(WIDE, 60, *shuffled[part::parts]))
    assert exposition(once) == exposition(often)


def test_a_scrape_never_mixes_two_windows() -> None:
    # Window n holds n+1 groups of n packets each, of which one is shown: every sample of a scrape must tell the same n.
    exporter = Exporter([TALKERS], [], top=1)
    windows = [rows(TALKERS, n, *((f"10.0.0.{i}", n, n, float(n)) for i in range(n + 1))) for n in range(1, 200)]
    exporter.add_results("talkers", windows[0])
    mixed, scraped = [], set()

    def scrape() -> None:
        while 199 not in scraped:
            found = {}
            for family in text_string_to_metric_families(exposition(exporter)):
                found[family.name.removeprefix("wiretide_query_")] = [sample.value for sample in family.samples]
            n = int(found["window_end_seconds"][0])
            expected = {
                "window_start_seconds": [n - 60],
                "window_end_seconds": [n],
                "groups": [n + 1],
                "series_folded": [n],
                "talkers_packets": [n, n * n],
                "talkers_mean": [n],
            }
            scraped.add(n)
            if found != expected:
                mixed.append(found)
                return

    readers = [Thread(target=scrape) for _ in range(3)]
    for reader in readers:
        reader.start()
    for window in windows[1:]:
        exporter.add_results("talkers", window)
    for reader in readers:
        reader.join()
    assert mixed == []


A_B = plan("count(*) AS c", name="a_b")
SRC_IP = plan("srcIP, destIP AS src_ip, count(*) AS c", "srcIP, destIP")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        # Names of queries and columns.
        (
            lambda: Exporter([A_B, plan("count(*) AS b_c", name="A")], []),
            "have the metric name 'wiretide_query_a_b_c'",
        ),
        (
            lambda: Exporter([plan("count(*) AS c", name="x"), plan("count(*) AS C", name="X")], []),
            "wiretide_query_x_c",
        ),
        (
            lambda: Exporter([plan("count(*) AS end_seconds", name="window")], []),
            "declared metric wiretide_query_window",
        ),
        (lambda: Exporter([SRC_IP], []), "column 'srcIP' .* and column 'src_ip' .* both have the label name 'src_ip'"),
        (lambda: Exporter([A_B, A_B], []), "query 1 and query 2 would both have the query name 'a_b'"),
        (lambda: Exporter([plan("count(*) AS c", name="?!")], []), "at least one letter or digit"),
        # Options.
        (lambda: Exporter([A_B], [], top=0), "top must be at least 1 group per query, got 0"),
        (lambda: Exporter([A_B], [], rank={"b": "c"}), "no query is named b; the queries are a_b"),
        (lambda: Exporter([TALKERS], [], rank={"talkers": "srcIP"}), "its value columns are packets, mean"),
        (lambda: Exporter([plan("srcIP", "srcIP", "q")], [], rank={"q": "srcIP"}), "it has no value column"),
        # Declarations.
        (lambda: Exporter([], [Metric("a", "counter", (), "A.")]), "counters end in _total"),
        (lambda: Exporter([], [Metric("a_total", "gauge", (), "A.")]), "counters end in _total"),
        (lambda: Exporter([], [Metric("a", "summary", (), "A.")]), "expected counter, gauge or histogram"),
        (lambda: Exporter([], [Metric("a", "gauge", ("b-c",), "A.")]), "has the name 'b-c'"),
        (
            lambda: Exporter([], [Metric("a", "gauge", (), "A."), Metric("a", "gauge", (), "B.")]),
            "two different declarations",
        ),
        (
            lambda: Exporter([], [Metric("a", "gauge", (), "A."), Metric("a_total", "counter", (), "A.")]),
            "both have the metric name 'a'",
        ),
        # Input of the exporter.
        (
            lambda: Exporter([A_B], []).add_results("b", rows(A_B, 60, (1,))),
            "got results of query 'b'; the queries are a_b",
        ),
        (lambda: Exporter([A_B], []).set_watermark("b", 0), "the queries are a_b"),
        (lambda: Exporter([A_B], []).add_results("a_b", pa.table({"c": [1]})), "lack window_start, window_end; got c"),
        (lambda: Exporter([], []).set_samples({("b", ()): 1}), "metric 'b' is not declared"),
        (
            lambda: Exporter([], [Metric("a", "gauge", ("link",), "A.")]).set_samples({("a", ()): 1}),
            "its labels are link",
        ),
    ],
)
def test_wrong_names_options_and_feeds_are_refused_with_a_reason(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("top", [1, 2])
def test_rows_that_the_driver_did_not_receive_are_part_of_other(top: int) -> None:
    """Two partitions send one row of three each, with the sums of the others; the series equal those of all rows."""
    groups = [(f"10.0.0.{number}", 100 - number) for number in range(1, 7)]
    query = plan("srcIP, count(*) AS packets", "srcIP")
    whole, limited = (Exporter([query], [], top=top, counters=True) for _ in range(2))
    whole.add_results("talkers", rows(query, 60, *groups))
    for part in (0, 1):
        sent, others = groups[part::2][:1], groups[part::2][1:]
        rest = {"window_end": [60 * SECOND], "rest_rows": [len(others)]}
        rest["packets"] = [sum(packets for _, packets in others)]
        limited.add_results("talkers", rows(query, 60, *sent), pa.table(rest))
    assert samples(limited, PACKETS) == samples(whole, PACKETS)
    for name in ("wiretide_query_groups", "wiretide_query_series_folded"):
        assert samples(limited, name) == samples(whole, name)
    totals = [
        sum(float(line.split()[-1]) for line in samples(one, f"{PACKETS}_added_total")) for one in (limited, whole)
    ]
    assert totals[0] == totals[1] == sum(packets for _, packets in groups)
