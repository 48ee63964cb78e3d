"""A pipeline on Spark whose folder is in an object store. Its process fails twice, and another machine ends the run.

The answer of the inline engine is the truth. The test detects rows that are lost or doubled, a restart that needs files
of the first machine, and a command that does not read the folder.
"""

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dashboards.commands.checkpoint import Action, checkpoint
from dashboards.monitors.pipeline import Monitor
from highlevel.inline.engine import InlineRun
from highlevel.spark.errors import FolderError
from highlevel.spark.remote.file_entries import write_copy
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.remote.run_copy import RunCopy, read_manifest
from highlevel.spark.run_folder.result_files import read_results
from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError
from tests.harness.object_store import serve_objects
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.small_captures import RAW_IP, udp

URI = "s3a://lake/runs/office"
PIPELINE = f"""
folder = "{URI}"
[links]
Main = "a.pcap"
[queries.talkers]
sql = "SELECT srcIP, count(*) AS n, sum(len) AS bytes FROM Main [RANGE 10 seconds] GROUP BY srcIP"
[queries.total]
sql = "SELECT count(*) AS n FROM Main [RANGE 40 seconds]"
[metrics]
port = 0
[page]
enabled = false
[spark]
master = "local[2]"
"""


class CrashError(Exception):
    """The process ends here."""


@pytest.mark.spark
def test_a_run_continues_on_another_machine_and_loses_and_doubles_no_row(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from highlevel.spark import stream

    random = Random(5)
    frames = [udp(f"10.0.0.{host}", "10.0.0.9", 1, 2) for host in range(1, 9)]
    times = sorted(120 * random.random() for _ in range(1400))
    records = [(1_700_000_000 * NS + round(time * NS), random.choice(frames)) for time in times]
    (tmp_path / "a.pcap").write_bytes(pcap_bytes(records, RAW_IP))
    run_class, publish, create = stream.StreamRun, RunCopy.publish, ObjectStore.create
    options = {"block_records": 100, "max_blocks": 5}
    monkeypatch.setattr(stream, "StreamRun", lambda *args, **others: run_class(*args, **others, **options))

    def create_or_crash(store: ObjectStore, name: str, content: Any) -> str:
        if name.startswith("manifests/0-"):
            raise CrashError
        return create(store, name, content)

    def publish_and_crash(copy: RunCopy, batch: int, *others: Any) -> None:
        publish(copy, batch, *others)
        if batch == 1:
            raise CrashError

    with serve_objects():
        for machine, moment in (("a", "before the manifest"), ("a", "before the commit"), ("b", "never")):
            pipeline = replace(parse_pipeline(PIPELINE, tmp_path), folder=tmp_path / machine / "copy")
            monkeypatch.setattr(ObjectStore, "create", create_or_crash if "manifest" in moment else create)
            monkeypatch.setattr(RunCopy, "publish", publish_and_crash if "commit" in moment else publish)
            with Monitor(pipeline, print) as monitor:
                if moment != "never":
                    with pytest.raises(CrashError):
                        monitor.wait()
                    continue
                assert monitor.run is not None
                assert monitor.run.next_batch == 2
                monitor.wait()
                with pytest.raises(FolderError, match=f"^{URI} is in use by another run"), Monitor(pipeline, print):
                    pass
        store = ObjectStore(URI)
        manifest = read_manifest(store)
        assert manifest is not None
        write_copy(store, manifest.files, tmp_path / "read")
        capsys.readouterr()
        checkpoint(Action.SHOW, URI)
        assert f"finished micro-batches: {manifest.batch + 1}\n" in capsys.readouterr().out
        checkpoint(Action.VERIFY, URI)
        assert capsys.readouterr().out.endswith(" parts are intact\n")
    plans = pipeline.plans()
    inline = InlineRun(plans, pipeline.inputs(plans))
    expected = [Counter[tuple]() for _ in plans]
    for number, batch in inline.results():
        expected[number].update(tuple(row.values()) for row in batch.to_pylist())
    for plan, truth in zip(plans, expected, strict=True):
        rows = read_results(tmp_path / "read" / "output", plan)
        assert Counter(tuple(row.values()) for row in rows.to_pylist()) == truth != Counter()


@pytest.mark.parametrize("file", ["compressed capture", "watchlist"])
def test_files_that_tasks_of_a_cluster_do_not_see_are_refused(file: str, tmp_path: Path) -> None:
    text, path = PIPELINE.replace("local[2]", "spark://host:7077"), tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes([(NS, udp("10.0.0.1", "10.0.0.9", 1, 2))], RAW_IP))
    Monitor(parse_pipeline(text, tmp_path), print)
    if file == "watchlist":
        path = tmp_path / "hosts.txt"
        path.write_text("10.0.0.0/8\n")
        text = text.replace("[RANGE 40 seconds]", "[RANGE 40 seconds] WHERE in_list(srcIP, 'hosts.txt')")
    else:
        path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(
        PipelineError, match=f"^folder: got {URI} with the master spark://host:7077 and the {file} {path}"
    ):
        Monitor(parse_pipeline(text, tmp_path), print)
