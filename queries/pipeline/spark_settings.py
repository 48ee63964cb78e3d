"""The Spark master and settings of Spark that users choose: `--on`, `--conf KEY=VALUE`, and `[spark]` of a pipeline.

This module does not import Spark, so wrong texts are errors before a JVM starts. Spark itself checks values of keys
that it knows (`highlevel.spark.session.settings`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MASTER = re.compile(r"local|local\[.*\]|local-cluster\[.*\]|spark://.*|yarn|k8s://.+")
"""URLs of Spark masters. Spark checks the rest of an URL when it starts."""

MASTER_FORMS = (
    "the URL of a Spark master: local[N], local-cluster[N,CORES,MEMORY], spark://HOST:PORT, yarn or k8s://URL"
)

ARCHIVE_FOLDER = "wiretide"
"""Folder into which an executor unpacks the archive of `wiretide pack`, in its working folder."""

ARCHIVES_KEY, PYTHON_KEY = "spark.archives", "spark.pyspark.python"

KEY = re.compile(r"spark\.[A-Za-z0-9_$][A-Za-z0-9_.$/-]*")

SIZE = re.compile(r"\d+ *([kmgtp]i?b?|b)?", re.IGNORECASE)

SIZE_KEYS = ("spark.driver.memory", "spark.executor.memory")
"""Keys of sizes that the launcher of Spark does not check."""

REFUSED_KEYS = {
    "spark.master": "write the master as --on URL, or as master under [spark]",
    "spark.remote": "Wiretide runs in the driver; write the URL of a master as --on URL",
    "spark.submit.deployMode": "the driver is always this process; leave the key out",
    "spark.sql.shuffle.partitions": "the number of parts is partitions under [spark]",
}
"""Keys that would change the master or the state partitions, each with the remedy for messages."""


def is_master(text: str) -> bool:
    """Return True if Spark may accept a text as the URL of a master.

    >>> [is_master(text) for text in ("local[2]", "yarn", "k8s://https://host:6443", "flink", "sc://host")]
    [True, True, True, False, False]
    """
    return MASTER.fullmatch(text) is not None


def check_setting(key: str, value: str) -> None:
    """Raise ValueError for a key that is not Spark's or must not be set, and for a wrong value."""
    if not KEY.fullmatch(key):
        raise ValueError(f"got {key!r}, expected a key of Spark, for example spark.executor.memory")
    if key in REFUSED_KEYS:
        raise ValueError(f"{key} cannot be set: {REFUSED_KEYS[key]}")
    if not value:
        raise ValueError(f"{key}: got no value, expected for example {key}=VALUE")
    if key in SIZE_KEYS and not SIZE.fullmatch(value):
        raise ValueError(f"{key}: got {value!r}, expected a size, for example 4g")


def add_archive(settings: Mapping[str, str], archive: Path, master: str) -> dict[str, str]:
    """Return the settings, and additional settings that run the tasks in an archive of `wiretide pack`.

    Raises ValueError if the master has no separate executors, if the file cannot be read, or if the settings contain
    another Python.
    """
    if master in ("inline", "local") or master.startswith("local["):
        raise ValueError(f"got the engine {master}, which has no executors; expected the URL of a cluster with --on")
    if not archive.is_file():
        raise ValueError(f"got {archive}, which is no file; `wiretide pack -o {archive}` builds it")
    if "#" in str(archive) or "," in str(archive):
        raise ValueError(f"got {archive}; Spark cannot read a path with # or a comma, rename it")
    if PYTHON_KEY in settings:
        raise ValueError(f"got {PYTHON_KEY} too; leave one of them out, the archive contains Python")
    archives = [*filter(None, [settings.get(ARCHIVES_KEY)]), f"{archive.absolute()}#{ARCHIVE_FOLDER}"]
    return {**settings, ARCHIVES_KEY: ",".join(archives), PYTHON_KEY: f"./{ARCHIVE_FOLDER}/bin/python"}


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """Parse texts KEY=VALUE. The last value of a key counts. Raises ValueError for a wrong text, key or value.

    >>> parse_settings(["spark.ui.enabled=true", "spark.executor.extraJavaOptions=-Da=b"])
    {'spark.ui.enabled': 'true', 'spark.executor.extraJavaOptions': '-Da=b'}
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"got {pair!r}, expected KEY=VALUE, for example spark.executor.memory=4g")
        check_setting(key, value)
        settings[key] = value
    return settings


def settings_of(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the settings of a table in TOML. Keys may be quoted. Dotted keys become nested tables in TOML.

    Raises ValueError for a wrong key or value.

    >>> settings_of({"spark.ui.enabled": True, "spark": {"cores": {"max": 8}}})
    {'spark.ui.enabled': 'true', 'spark.cores.max': '8'}
    """
    settings: dict[str, str] = {}
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            settings |= settings_of(value, f"{key}.")
            continue
        if not isinstance(value, str | int | float):
            raise ValueError(f"{key}: got {value!r}, expected text, a number, true or false")
        text = str(value).lower() if isinstance(value, bool) else str(value).strip()
        check_setting(key, text)
        settings[key] = text
    return settings
