"""A standalone cluster whose workers share one folder with the driver, and have neither Wiretide nor a cache.

One cluster serves all checks. `make soak` plays many rounds of kills, half of them with a shared folder.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wiretide
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.remote.run_copy import read_manifest
from highlevel.spark.session.java import require_java
from tests.harness.cluster_rounds import build_archive, play_round, unpack
from tests.harness.links import write_links
from tests.harness.object_store import serve_objects
from tests.harness.spark_cluster import Cluster, start_cluster, why_no_namespaces

pytestmark = [pytest.mark.spark, pytest.mark.slow("starts a cluster")]
ROOT = Path(__file__).resolve().parents[4]
SQL = "SELECT srcIP, count(*) AS packets, sum(len) AS bytes FROM packets GROUP BY srcIP"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = why_no_namespaces()
    if reason is not None:
        pytest.skip(reason)
    with start_cluster(tmp_path_factory.mktemp("cluster"), Path(require_java())) as started:
        yield started


@pytest.fixture(scope="module")
def python(cluster: Cluster, archive: Path) -> str:
    """The Python of the archive, which is unpacked in the shared folder."""
    return unpack(archive, cluster)


@pytest.fixture(scope="module")
def archive(cluster: Cluster) -> Path:
    """The archive of `wiretide pack`, in a folder that the workers do not see."""
    return build_archive(cluster.folder)


def test_a_query_in_the_archive_answers_as_inline(cluster: Cluster, archive: Path) -> None:
    """Spark sends the archive to the executors, so they need no Python."""
    folder = cluster.shared / "query"
    folder.mkdir()
    trace = write_links(folder, 42)[0].path
    command = [sys.executable, "-m", "wiretide", "query", trace, SQL, "--format", "csv", "--on", cluster.url]
    options = ["--archive", archive, "--conf", "spark.executor.memory=512m"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    slow_start = "wiretide: warning: no executor has started"  # after 10 s; a busy machine may need longer
    said = [line for line in done.stderr.splitlines() if not line.startswith(slow_start)]
    assert (done.returncode, said) == (0, [])
    header, *rows = done.stdout.splitlines()
    assert header == "srcIP,packets,bytes"
    expected = [",".join(map(str, row.values())) for row in wiretide.query(SQL, trace).to_pylist()]
    assert len(expected) > 3
    assert sorted(rows) == sorted(expected)


def test_a_run_survives_the_death_of_executor_worker_master_and_driver(cluster: Cluster, python: str) -> None:
    """The folder of the run is in an object store: the next driver is on another machine, and has only the objects.

    Before, a path that only the driver can read is named.
    """
    seed = 1
    outside = cluster.folder / "outside"
    outside.mkdir()
    path = write_links(outside, 7)[0].path
    with serve_objects():
        refusal, *batches = play_round(cluster, python, seed, path, "s3a://lake/cluster")
        store = ObjectStore("s3a://lake/cluster")
        manifest = read_manifest(store)
        assert manifest is not None
        assert {*store.list("")} == {"lock", "newest", *manifest.objects}
    word, seconds, reason = refusal.split(" ", 2)
    assert word == "refused"
    assert int(seconds) < 30
    for host in ("worker-1", "worker-2"):
        assert f"host {host} cannot read {path}: No such file or directory; this machine can" in reason
    assert batches[-1].startswith("batch ")
    assert not (cluster.shared / f"run {seed}").exists()
