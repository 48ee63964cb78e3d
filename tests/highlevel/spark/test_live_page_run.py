"""The live page of a pipeline on Spark: its windows are those of the query, also after a restart with a lost batch."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.request import urlopen

import pytest

import wiretide
from dashboards.monitors.pipeline import Monitor
from dashboards.page.stored_windows import HEAD_ROWS
from highlevel.results.user_types import readable
from queries.pipeline.file import read_pipeline
from tests.harness.links import write_links

pytestmark = pytest.mark.spark
SQL = "SELECT srcIP, count(*) AS n, sum(len) AS bytes FROM packets [RANGE 1 minute] GROUP BY srcIP"


def stored(monitor: Monitor) -> list[tuple]:
    """The rows of all stored windows."""
    assert monitor.history is not None
    windows = monitor.history.stored.in_order("q")
    plan = monitor.plans[0]
    return sorted(tuple(row.values()) for window in windows for row in readable(window.rows, plan.times).to_pylist())


def test_the_page_has_the_windows_of_the_query(tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 3)
    links = {each.link: str(each.path) for each in inputs[:2]}
    expected = wiretide.query(SQL, streams={link: [path] for link, path in links.items()})
    rows = sorted(tuple(row.values()) for row in expected.to_pylist())
    assert len(rows) > 50
    file = tmp_path / "pipeline.toml"
    listed = "\n".join(f'{link} = "{path}"' for link, path in links.items())
    file.write_text(
        f'[links]\n{listed}\n[metrics]\nport = 0\n[queries.q]\nsql = "{SQL}"\n[spark]\nmaster = "local[2]"\n'
    )
    with Monitor(read_pipeline(file), lambda _: None) as monitor:
        assert monitor.run is not None
        assert monitor.run.partitions == 2
        monitor.wait()
        assert stored(monitor) == rows
        with urlopen(f"{monitor.server.url}api/panel?query=q&seconds=3600&groups=5") as response:
            newest = json.load(response)["newest"]
        last = max(row[1] for row in rows)
        shown = {(row[2], row[3], row[4]) for row in newest["rows"]}
        assert len(shown) == min(HEAD_ROWS, len([row for row in rows if row[1] == last]))
        assert shown <= {row[2:] for row in rows if row[1] == last}
        folder = monitor.pipeline.folder
    for path in (folder, folder / "history.sqlite"):
        again = wiretide.query("SELECT * FROM q WHERE srcIP IN '0.0.0.0/0' OR srcIP IN '::/0'", path)
        assert sorted(tuple(row.values()) for row in again.to_pylist()) == rows
    file.write_text(file.read_text().replace("local[2]", "local[3]"))
    with Monitor(read_pipeline(file), lambda _: None) as monitor:
        assert monitor.run is not None
        assert monitor.run.partitions == 2  # of the stored run, so its state is not divided again
        monitor.wait()
        assert stored(monitor) == rows
