"""Make the archive of Spark's classes that `highlevel.spark.session.class_archive` describes.

A Spark session answers the query as a batch and as a stream. At the end of the session the JVM writes the classes that
it has loaded.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from capture.errors import WiretideError
from capture.generate import Profile, generate
from highlevel.inline.engine import Input
from highlevel.spark.batch import run_batch
from highlevel.spark.session.class_archive import FOLDER, store_archive
from highlevel.spark.session.session import close_session, start_session
from highlevel.spark.session.settings import DEFAULTS, DRIVER_OPTIONS
from highlevel.spark.stream import StreamRun
from queries.gsql import compile_query

QUERY = "SELECT srcIP, count(*) AS n FROM packets [RANGE 1 second] GROUP BY srcIP"


def make_archive(java_home: Path) -> None:
    """Make the archive for a Java runtime; this takes about 15 s.

    Raises:
        WiretideError: Spark did not start, or wrote no archive.
        OSError: the folder cannot be written.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="unfinished-") as folder:
        archive = Path(folder) / "classes.jsa"
        _run_queries(Path(folder), f"{DEFAULTS[DRIVER_OPTIONS]} -XX:ArchiveClassesAtExit='{archive}' -Xlog:disable")
        if not archive.exists():
            raise WiretideError(f"{FOLDER}: Java did not write the archive of classes")
        store_archive(java_home, archive)


def _run_queries(folder: Path, options: str) -> None:
    capture = folder / "capture.pcap"
    generate(Profile(packets=1000, rate=500.0, groups=10), capture)
    plan, inputs = compile_query(QUERY, "classes"), [Input("a", capture)]
    spark = start_session("local[1]", chosen={DRIVER_OPTIONS: options})
    try:
        run_batch(spark, plan, inputs)
        run = StreamRun(spark, [plan], inputs, folder / "run")
        run.start()
        try:
            run.wait()
        finally:
            run.stop()
    finally:
        close_session(spark)
