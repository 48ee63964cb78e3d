"""Masters and settings of Spark as users write them: what is accepted, and what a wrong text is told."""

from pathlib import Path

import pytest

from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError
from queries.pipeline.spark_settings import add_archive, is_master, parse_settings, settings_of

BASE = '[links]\nM = "m.pcap"\n[queries.q]\nsql = "SELECT count(*) FROM M [RANGE 1 minute]"\n[spark]\n'


@pytest.mark.parametrize(
    "master",
    ["local", "local[4]", "local[*,2]", "local-cluster[2,1,1024]", "spark://a:7077,b:7077", "yarn", "k8s://a:443"],
)
def test_every_master_of_spark_is_accepted(master: str, tmp_path) -> None:
    assert is_master(master)
    assert parse_pipeline(f'{BASE}master = "{master}"\n', tmp_path).master == master


@pytest.mark.parametrize("master", ["inline", "flink", "sc://a", "localhost", "yarn-client", "k8s://", ""])
def test_other_texts_are_no_masters(master: str, tmp_path) -> None:
    assert not is_master(master)
    with pytest.raises(PipelineError, match=r"spark.master: got .*, expected the URL of a Spark master: local\[N\]"):
        parse_pipeline(f'{BASE}master = "{master}"\n', tmp_path)


def test_settings_of_a_pipeline_may_be_quoted_or_dotted(tmp_path) -> None:
    text = f'{BASE}[spark.conf]\n"spark.ui.enabled" = true\nspark.cores.max = 8\nspark.executor.memory = "4g"\n'
    want = {"spark.ui.enabled": "true", "spark.cores.max": "8", "spark.executor.memory": "4g"}
    assert parse_pipeline(text, tmp_path).spark_conf == want


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("spark.ui.enabled", "got 'spark.ui.enabled', expected KEY=VALUE, for example"),
        ("ui.enabled=true", "got 'ui.enabled', expected a key of Spark"),
        ("spark.=1", "got 'spark.', expected a key of Spark"),
        ("spark.ui.enabled=", "spark.ui.enabled: got no value"),
        ("spark.driver.memory=lots", "spark.driver.memory: got 'lots', expected a size, for example 4g"),
        ("spark.master=yarn", "spark.master cannot be set: write the master as --on URL"),
        ("spark.submit.deployMode=cluster", "the driver is always this process"),
        ("spark.sql.shuffle.partitions=4", "the number of parts is partitions under [spark]"),
    ],
)
def test_a_wrong_setting_is_told_what_was_expected(pair: str, message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011  # the message is compared below
        parse_settings([pair])
    assert message in str(raised.value)


def test_a_list_is_no_value(tmp_path) -> None:
    with pytest.raises(PipelineError, match=r"spark\.conf: spark\.jars: got \['a'\], expected text, a number"):
        parse_pipeline(f'{BASE}[spark.conf]\n"spark.jars" = ["a"]\n', tmp_path)


def test_the_last_value_of_a_key_counts() -> None:
    assert parse_settings(["spark.a=1", "spark.a=2"]) == {"spark.a": "2"}
    assert settings_of({}) == {}


def test_an_archive_is_two_settings(tmp_path: Path) -> None:
    archive = tmp_path / "w.tar.gz"
    archive.touch()
    python = {"spark.pyspark.python": "./wiretide/bin/python"}
    assert add_archive({}, archive, "spark://h:1") == {"spark.archives": f"{archive}#wiretide", **python}
    settings = add_archive({"spark.archives": "hdfs:/a.zip#b", "spark.ui.enabled": "true"}, archive, "yarn")
    assert settings == {"spark.archives": f"hdfs:/a.zip#b,{archive}#wiretide", "spark.ui.enabled": "true", **python}


@pytest.mark.parametrize(
    ("settings", "name", "master", "message"),
    [
        ({}, "w.tar.gz", "local[2]", r"got the engine local\[2\], which has no executors"),
        ({}, "w.tar.gz", "inline", "got the engine inline, which has no executors"),
        ({}, "none.tar.gz", "yarn", "which is no file; `wiretide pack -o "),
        ({}, "a#b.tgz", "yarn", "Spark cannot read a path with # or a comma"),
        ({"spark.pyspark.python": "/p"}, "w.tar.gz", "yarn", "got spark.pyspark.python too; leave one of them out"),
    ],
)
def test_an_archive_that_cannot_be_used(
    settings: dict[str, str], name: str, master: str, message: str, tmp_path: Path
) -> None:
    for existing in ("w.tar.gz", "a#b.tgz"):
        (tmp_path / existing).touch()
    with pytest.raises(ValueError, match=message):
        add_archive(settings, tmp_path / name, master)
