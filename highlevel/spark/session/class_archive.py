"""An archive of Spark's Java classes, with which a JVM starts a session in less processor time.

A JVM loads and verifies about 15,000 classes for the first query. With class data sharing (JEP 350) it maps them from a
file that an earlier JVM wrote at its end. The file fits one Java runtime and one installation of Spark. The JVM checks
this itself, and loads its classes as usual if the file does not fit.

`dashboards.class_archive` makes the archive. It is stored in the Python environment, so it is as trustworthy as the
packages there.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from pathlib import Path

import pyspark

FOLDER = Path(sys.prefix) / "spark-classes"
"""Folder of the archive. It is inside the environment and removed with it."""

OTHER_ARCHIVES = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare")
"""Java options with which a user selects another archive, or none."""


def find_archive(java_home: Path) -> Path | None:
    """Return the archive for a Java runtime and the installed Spark, or None.

    A truncated archive crashes the JVM. So the name contains the length of the file.
    """
    lengths = {path: path.stem.rpartition("-")[2] for path in FOLDER.glob(f"{_identify(java_home)}-*.jsa")}
    return next((path for path, length in lengths.items() if str(path.stat().st_size) == length), None)


def store_archive(java_home: Path, unnamed: Path) -> None:
    """Move a new archive to the path where `find_archive` finds it, and remove all other archives."""
    length = unnamed.stat().st_size
    for outdated in FOLDER.glob("*.jsa"):
        outdated.unlink()
    unnamed.replace(FOLDER / f"{_identify(java_home)}-{length}.jsa")


def archive_options(java_home: Path, options: str) -> str:
    """Return the text to append to the Java options, so that the JVM uses the archive.

    It is empty if there is no archive, or if `options` select one. Messages about an archive that does not fit go to
    standard error, which a session writes to its log.
    """
    path = find_archive(java_home)
    if path is None or any(option in options for option in OTHER_ARCHIVES):
        return ""
    return f" {shlex.quote(f'-XX:SharedArchiveFile={path}')} -Xlog:disable -Xlog:all=warning:stderr"


def _identify(java_home: Path) -> str:
    """Return 16 hexadecimal digits that identify the Java runtime and the installed Spark."""
    spark_home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    parts = [java_home / "release", *sorted((spark_home / "jars").glob("spark-core_*.jar"))]
    identity = "\n".join(f"{part} {part.stat().st_mtime_ns}" for part in parts if part.exists())
    return hashlib.sha256(identity.encode()).hexdigest()[:16]
