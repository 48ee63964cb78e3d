"""Rounds of kills on a cluster: `python -m tests.harness.cluster_rounds --rounds 50 --seed 7`.

A round replays links through the stream engine, and kills an executor, a worker, the master and the driver at random
micro-batches, in a random order. Afterwards the rows must be those of the inline engine. In each second round, the
folder of the run is in an object store.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa

from highlevel.inline.engine import InlineRun
from highlevel.spark.remote.file_entries import write_copy
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.remote.run_copy import read_manifest
from highlevel.spark.session.java import require_java
from tests.harness.cluster_driver import COPY_HOME, PLANS
from tests.harness.links import write_links
from tests.harness.object_store import BUCKET, serve_objects
from tests.harness.spark_cluster import Cluster, start_cluster, why_no_namespaces
from tests.harness.spark_crash_driver import inputs_in
from tests.harness.spark_results import ordered, read_results

ROOT = Path(__file__).resolve().parents[2]

KILLS = ("executor", "worker", "master", "driver")

FIRST_BATCHES = 7
"""The kills follow different micro-batches of the first ones."""


def build_archive(folder: Path) -> Path:
    """Build the archive of `wiretide pack`, with the package for object stores."""
    archive = folder / "wiretide.tar.gz"
    command = [sys.executable, "-m", "wiretide", "pack", "-o", archive, "--package", "boto3"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return archive


def unpack(archive: Path, cluster: Cluster) -> str:
    """Unpack an archive into the shared folder, and return the path of its Python."""
    folder = cluster.shared / "wiretide"
    folder.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    return str(folder / "bin" / "python")


def play_round(
    cluster: Cluster,
    python: str,
    seed: int,
    outside: Path | None = None,
    uri: str = "",
    kinds: Sequence[str] = KILLS,
) -> list[str]:
    """Play one round, and return the lines of its drivers. Raises AssertionError if a row is missing or wrong.

    `uri`: a folder in an object store, in place of one that the workers see. Then each driver is on another machine: it
    has a new folder for its copy.
    """
    random = Random(seed)
    inputs = cluster.shared / f"inputs {seed}"
    inputs.mkdir()
    write_links(inputs, seed)
    folder = cluster.shared / f"run {seed}"
    kills = dict(
        zip(sorted(random.sample(range(FIRST_BATCHES), len(kinds))), random.sample(kinds, len(kinds)), strict=True)
    )
    print(f"seed {seed}: {', '.join(f'{kind} after {batch}' for batch, kind in kills.items())}", flush=True)
    lines: list[str] = []
    for machine in count():
        environment = os.environ | {COPY_HOME: str(cluster.folder / f"machine {seed} {machine}")}
        words = [uri or folder, inputs, cluster.url, python, *([outside] if outside is not None and not lines else [])]
        with (cluster.folder / f"driver {seed}.log").open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.cluster_driver", *map(str, words)],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        with driver:
            assert driver.stdout is not None
            for line in driver.stdout:
                lines.append(line.rstrip())
                word, _, batch = lines[-1].partition(" ")
                kill = kills.pop(int(batch), None) if word == "batch" else None
                if kill is not None:
                    _kill(cluster, driver, kill, random)
        if driver.returncode == 0:
            break
        problem = (cluster.folder / f"driver {seed}.log").read_text("utf-8")[-3000:]
        assert driver.returncode == -9, f"the driver of seed {seed} failed: {problem}"
    assert not kills, f"seed {seed}: only {lines[-1]} before {kills}"
    if uri:
        store = ObjectStore(uri)
        manifest = read_manifest(store)
        assert manifest is not None
        write_copy(store, manifest.files, folder := cluster.folder / f"read {seed}")
    check_rows(folder, inputs)
    return lines


def _kill(cluster: Cluster, driver: subprocess.Popen[str], kind: str, random: Random) -> None:
    if kind == "driver":
        driver.kill()
    elif kind == "master":
        cluster.kill_master()
        cluster.start_master()
    elif kind == "worker":
        cluster.kill_worker(random.choice(sorted(cluster.workers)))
        cluster.start_worker()
    else:
        while not cluster.kill_executor(random) and driver.poll() is None:  # they start again after an earlier kill
            time.sleep(0.1)


def check_rows(folder: Path, inputs: Path) -> None:
    """Compare the results of a run with those of the inline engine."""
    rows: dict[int, list[pa.RecordBatch]] = {}
    run = InlineRun(PLANS, inputs_in(inputs))
    for query, batch in run.results():
        rows.setdefault(query, []).append(batch)
    run.close()
    for query, plan in enumerate(PLANS):
        expected = ordered(pa.Table.from_batches(rows.get(query, []), plan.schema))
        assert expected.num_rows > 10
        assert ordered(read_results(folder, plan)) == expected, plan.name


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill processes of a cluster in many rounds, and compare the rows.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the seed of the first round")
    options = parser.parse_args()
    reason = why_no_namespaces()
    if reason is not None:
        sys.exit(f"the rounds need namespaces: {reason}")
    with (
        tempfile.TemporaryDirectory(prefix="wiretide-rounds-") as name,
        start_cluster(Path(name), Path(require_java())) as cluster,
        serve_objects(),
    ):
        python = unpack(build_archive(Path(name)), cluster)
        for seed in range(options.seed, options.seed + options.rounds):
            play_round(cluster, python, seed, uri=f"s3a://{BUCKET}/rounds/{seed}" if seed % 2 else "")
    print(f"{options.rounds} rounds, {options.rounds * len(KILLS)} kills: all rows equal those of the inline engine")


if __name__ == "__main__":
    main()
