"""Dashboards for Grafana: which ones a pipeline gets, what they contain, and that no file of the user is lost.

No Grafana runs in these tests. They detect a dashboard that is missing or empty, JSON that Grafana's schemas refuse,
panels without the data source, identifiers that change from one call to the next, and links that lead nowhere.
`test_panels_in_prometheus.py` evaluates the queries.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.grafana.health_dashboard import rows_of
from dashboards.grafana.metric_panels import MetricPanel
from dashboards.grafana.pipeline_files import group_by_topic, make_files
from dashboards.grafana.topics import topic_of
from dashboards.prometheus.query_series import QuerySeries
from lowlevel.metrics import LULL_WATERMARKS
from queries.catalogue.catalogue import CATALOGUE
from queries.catalogue.topics import TOPICS, Topic
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError
from tests.harness.command_line import run
from tests.harness.grafana_panels import panels_of, read_dashboards, schema_errors

PIPELINE = """
[links]
office = "office.pcap"
Backbone_2 = "Backbone_2.pcap"

[queries.talkers]
sql = '''SELECT srcIP, destPort, count(*) AS packets, sum(len) AS bytes FROM packets [RANGE 10 s]
    GROUP BY srcIP, destPort'''
rank = "bytes"

[queries.total]
sql = "SELECT count(*) AS packets FROM packets [RANGE 10 s]"

[queries.moving]
sql = '''SELECT protocol, moving_sum(len, 3) AS m, count(*) / 10 AS per_second FROM packets [RANGE 10 s]
    GROUP BY protocol CLOSING WHEN moving_sum(len, 3) = 0'''

[queries.selected]
sql = "SELECT ts, srcIP FROM packets WHERE len > 1000"

[metrics]
top = 3
"""

LIVE = '\n[links.live]\ncapture = "interface:eth0"\nspool = "spool"\n'


def make(text: str = PIPELINE, name: str = "office", source: str = "source", **options: Any) -> dict[str, str]:
    return make_files(parse_pipeline(text, Path("/")), name, "node.example:9999", source, **options)


def titles_of(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    return [(panel["type"], panel["title"]) for panel in dashboard["panels"]]


def test_a_pipeline_has_the_dashboards_of_its_queries_and_links() -> None:
    one_link = PIPELINE.replace('Backbone_2 = "Backbone_2.pcap"\n', "")
    assert list(read_dashboards(make(one_link))) == [
        *("office-overview", "office-talkers", "office-protocols", "office-health")
    ]
    assert list(read_dashboards(make()))[-2:] == ["office-health", "office-disorder"]
    assert list(read_dashboards(make(one_link, has_comparison=True)))[-1] == "office-disorder"
    flows = '[links]\na = "a.nfcapd"\n[queries.f]\nsql = "@flow-talkers"\nparams = { window = "1 minute" }\n'
    assert list(read_dashboards(make(flows))) == ["office-overview", "office-flows", "office-health"]


def test_every_ready_query_has_a_topic() -> None:
    assert TOPICS.keys() == CATALOGUE.keys()


OWN = [
    ("SELECT count(*) AS n FROM packets [RANGE 1 s]", Topic.OVERVIEW),
    ("SELECT link, count(*) AS n FROM packets [RANGE 1 s] GROUP BY link", Topic.OVERVIEW),
    ("SELECT srcIP, count(*) AS n FROM packets [RANGE 1 s] GROUP BY srcIP", Topic.TALKERS),
    ("SELECT srcMAC, count(*) AS n FROM frames [RANGE 1 s] GROUP BY srcMAC", Topic.TALKERS),
    ("SELECT destPort, count(*) AS n FROM packets [RANGE 1 s] GROUP BY destPort", Topic.PROTOCOLS),
    ("SELECT srcIP, count(*) AS n FROM packets [RANGE 1 s] WHERE flag = RST GROUP BY srcIP", Topic.HANDSHAKES),
    ("SELECT srcIP, sum(bytes) AS n FROM flows [RANGE 1 s] GROUP BY srcIP", Topic.FLOWS),
    ("SELECT count(*) AS n FROM samples [RANGE 1 s]", Topic.FLOWS),
]


@pytest.mark.parametrize(("sql", "topic"), OWN)
def test_the_topic_of_an_own_query_follows_from_its_rows_conditions_and_groups(sql: str, topic: Topic) -> None:
    assert topic_of(QuerySeries(compile_query(sql, "q"), 10)) is topic


def test_a_pipeline_file_may_set_the_topic_of_a_query() -> None:
    text = '[links]\na = "a.pcap"\n[queries.r]\nsql = "@resets"\nparams = { window = "1 minute" }\n'
    assert list(group_by_topic(parse_pipeline(text, Path("/")))) == [Topic.HANDSHAKES]
    assert list(group_by_topic(parse_pipeline(text + 'topic = "security"', Path("/")))) == [Topic.SECURITY]
    expected = "queries.r.topic: got 'x', expected overview or talkers or protocols or handshakes or security or flows"
    with pytest.raises(PipelineError, match=re.escape(expected)):
        parse_pipeline(text + 'topic = "x"', Path("/"))


def test_each_value_column_has_a_panel_and_each_query_with_groups_a_table() -> None:
    dashboards = read_dashboards(make())
    assert titles_of(dashboards["office-talkers"]) == [
        ("row", "talkers"),
        ("timeseries", "talkers: packets"),
        ("timeseries", "talkers: bytes"),
        ("table", "talkers: newest window"),
    ]
    assert titles_of(dashboards["office-protocols"]) == [
        ("row", "moving"),
        ("timeseries", "moving: m"),
        ("timeseries", "moving: per_second"),
        ("table", "moving: newest window"),
    ]
    overview = titles_of(dashboards["office-overview"])
    assert [title for kind, title in overview if kind == "row"] == ["Now", "Links", "total", "Topics"]
    assert overview[-2:] == [("timeseries", "talkers: bytes"), ("timeseries", "moving: m")]
    by_title = {panel["title"]: panel for panel in panels_of(dashboards["office-talkers"])}
    assert by_title["talkers: bytes"]["fieldConfig"]["defaults"]["unit"] == "decbytes"
    (target,) = by_title["talkers: packets"]["targets"]
    selector = 'wiretide_query_talkers_packets{src_ip=~"$src_ip", dest_port=~"$dest_port"}'
    assert (target["expr"], target["legendFormat"]) == (selector, "{{src_ip}} {{dest_port}}")
    table = by_title["talkers: newest window"]
    renamed = next(each["options"]["renameByName"] for each in table["transformations"] if each["id"] == "organize")
    assert renamed == {"Value #A": "packets", "Value #B": "bytes"}
    units = {each["matcher"]["options"]: each["properties"][0]["value"] for each in table["fieldConfig"]["overrides"]}
    assert units == {"packets": "short", "bytes": "decbytes"}


def test_variables_are_the_labels_of_the_queries_of_a_topic() -> None:
    dashboards = read_dashboards(make())
    variables = {name: each["templating"]["list"] for name, each in dashboards.items() if "list" in each["templating"]}
    assert [(each["name"], each["label"], each["query"]) for each in variables["office-talkers"]] == [
        ("src_ip", "srcIP", 'label_values({__name__=~"wiretide_query_(talkers)_.+"}, src_ip)'),
        ("dest_port", "destPort", 'label_values({__name__=~"wiretide_query_(talkers)_.+"}, dest_port)'),
    ]
    assert [each["name"] for each in variables["office-health"]] == ["query", "link"]
    assert all(each["includeAll"] and each["allValue"] == ".*" for list_ in variables.values() for each in list_)


@pytest.mark.parametrize("text", [PIPELINE, PIPELINE + LIVE], ids=["files", "live"])
def test_dashboards_panels_and_queries_are_valid_by_the_schemas_of_grafana(text: str) -> None:
    dashboards = read_dashboards(make(text, has_comparison=True))
    assert {name: schema_errors(dashboard) for name, dashboard in dashboards.items()} == {
        name: [] for name in dashboards
    }


def test_the_schemas_refuse_unknown_options_keys_and_values() -> None:
    for change, expected in (
        (lambda panel: panel.update(titel="x"), "$.panels[1]"),
        (lambda panel: panel["options"].update(legnd={}), "'legnd' was unexpected"),
        (lambda panel: panel["fieldConfig"]["defaults"]["custom"].update(fill=1), "'fill' was unexpected"),
        (lambda panel: panel["targets"][0].update(expression="up"), "'expression' was unexpected"),
        (lambda panel: panel["options"]["legend"].update(placement="top"), "'top' is not one of"),
    ):
        dashboard = read_dashboards(make())["office-talkers"]
        change(dashboard["panels"][1])
        (error,) = schema_errors(dashboard)
        assert expected in error


def test_panels_read_the_data_source_of_the_provisioning_and_do_not_overlap() -> None:
    files = make(PIPELINE + LIVE, source="my-source", has_comparison=True)
    source = yaml.safe_load(files["grafana/provisioning/datasources/wiretide.yaml"])["datasources"][0]
    assert (source["uid"], source["type"]) == ("my-source", "prometheus")
    for dashboard in read_dashboards(files).values():
        cells = []
        for panel in panels_of(dashboard):
            assert panel["datasource"] == {"type": "prometheus", "uid": "my-source"}
            assert panel["description"]
            assert "unit" in panel["fieldConfig"]["defaults"] or panel["type"] == "table"
            place = panel["gridPos"]
            cells += [
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            ]
        assert len(cells) == len({*cells})
        assert max(x for x, _ in cells) < 24


def test_identifiers_are_the_same_at_each_call_and_differ_between_pipelines() -> None:
    first, second = (make(name=name) for name in ("office", "Head Office, 2nd floor " * 3))
    assert first == make()
    uids = [dashboard["uid"] for files in (first, second) for dashboard in read_dashboards(files).values()]
    assert len({*uids}) == 10
    assert max(map(len, uids)) <= 40
    assert {"wiretide-office-overview", "wiretide-office-health"} <= {*uids}


def test_links_lead_to_dashboards_of_the_same_pipeline() -> None:
    dashboards = read_dashboards(make(has_comparison=True))
    uids = {dashboard["uid"] for dashboard in dashboards.values()}
    named = set()
    for dashboard in dashboards.values():
        (link,) = dashboard["links"]
        assert (link["type"], link["tags"], link["keepTime"]) == ("dashboards", ["wiretide", "pipeline office"], True)
        assert dashboard["tags"] == link["tags"]
        for panel in panels_of(dashboard):
            named |= {re.sub(r"/d/([^?]*)\?.*", r"\1", link["url"]) for link in panel.get("links", [])}
    assert named == {"wiretide-office-talkers", "wiretide-office-protocols", "wiretide-office-health"} < uids


def test_panels_of_the_node_and_its_metrics_are_only_in_pipelines_with_spools() -> None:
    for text, has_node in ((PIPELINE + LIVE, True), (PIPELINE, False)):
        files = make(text)
        rows = rows_of(has_node=has_node, has_interface=has_node, has_alerts=False, has_changes=False)
        expected = [panel.title for _, panels in rows for panel in panels]
        assert [panel["title"] for panel in panels_of(read_dashboards(files)["office-health"])] == expected
        assert ("Interfaces" in [title for _, title in titles_of(read_dashboards(files)["office-health"])]) == has_node
        scraped = yaml.safe_load(files["prometheus/prometheus.yml"])["scrape_configs"][0]["static_configs"][0]
        assert scraped["targets"] == ["127.0.0.1:9464", *(["node.example:9999"] if has_node else [])]


def test_panels_of_corrections_are_only_in_pipelines_with_changes() -> None:
    changing = '[queries.changing]\nsql = "SELECT count(*) AS n FROM packets [RANGE 10 s]"\nemit = "changes"\n'
    for text, has_changes in ((PIPELINE + changing, True), (PIPELINE, False)):
        titles = titles_of(read_dashboards(make(text))["office-health"])
        assert ("Corrections" in [title for _, title in titles]) == has_changes


def test_a_panel_over_a_label_that_a_metric_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("got the labels ('query',), expected some of")):
        MetricPanel("Lulls", (LULL_WATERMARKS,), ("query",))


def test_the_command_writes_the_files_and_keeps_those_that_the_user_changed(tmp_path: Path) -> None:
    (tmp_path / "office.toml").write_text(PIPELINE)
    words = ("dashboards", "office.toml", "-o", "out", "--compare")
    status, written, _ = run(*words, cwd=tmp_path)
    assert status == 0
    assert [Path(line).name for line in written.splitlines()] == [
        *("office-overview.json", "office-talkers.json", "office-protocols.json", "office-health.json"),
        *("office-disorder.json", "prometheus.yml", "wiretide.yaml", "wiretide.yaml", "compose.yaml"),
    ]
    assert run(*words, cwd=tmp_path) == (0, written, "")
    changed = tmp_path / "out" / "compose.yaml"
    changed.write_text("mine")
    message = "wiretide: these files exist and differ: out/compose.yaml; expected --force, or another folder with -o\n"
    assert run(*words, cwd=tmp_path) == (1, "", message)
    assert changed.read_text() == "mine"
    assert run(*words, "--force", cwd=tmp_path) == (0, written, "")
    assert changed.read_text() != "mine"
