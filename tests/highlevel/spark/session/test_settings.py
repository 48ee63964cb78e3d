"""Which setting of Spark counts: ours, spark-defaults.conf, or the one that the user gave to Wiretide."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from highlevel.spark.errors import RunError
from highlevel.spark.session import settings
from highlevel.spark.session.settings import choose_python, combine_settings, parse_properties, read_spark_defaults
from tests.harness.links import write_links

ROOT = Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs" / "guide" / "spark.md"
SQL = "SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP"


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spark-defaults.conf that Wiretide reads."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    return tmp_path / "spark-defaults.conf"


def test_the_order_of_the_sources(defaults: Path, tmp_path: Path) -> None:
    defaults.write_text(
        "# the cluster\nspark.driver.memory 7g\nspark.ui.enabled=true\nspark.sql.adaptive.enabled: true\n"
        "spark.driver.extraJavaOptions -Da=b\nspark.yarn.queue  night\n"
    )
    ours = combine_settings("local[2]", 3, tmp_path, {"spark.driver.maxResultSize": "5g"})
    # Spark reads the settings that are not here from spark-defaults.conf.
    assert "spark.driver.memory" not in ours
    assert "spark.ui.enabled" not in ours
    assert "spark.yarn.queue" not in ours
    assert ours["spark.sql.adaptive.enabled"] == "false"
    assert ours["spark.driver.maxResultSize"] == "5g"
    assert ours["spark.driver.extraJavaOptions"] == f"-Da=b -Djava.io.tmpdir={tmp_path}"
    assert ours["spark.sql.shuffle.partitions"] == "3"
    assert ours["spark.driver.host"] == "127.0.0.1"
    assert combine_settings("yarn", 3, tmp_path, {"spark.sql.adaptive.enabled": "true"}) == {
        key: value
        for key, value in (ours | {"spark.sql.adaptive.enabled": "true", "spark.driver.maxResultSize": "1g"}).items()
        if key not in (*settings.LOOPBACK, "spark.local.dir")
    }


def test_temporary_files_are_where_the_user_wants_them(defaults: Path, tmp_path: Path) -> None:
    assert combine_settings("local[2]", 2, tmp_path, {})["spark.local.dir"] == str(tmp_path)
    defaults.write_text("spark.local.dir /fast\n")
    chosen = {"spark.driver.extraJavaOptions": "-Djava.io.tmpdir=/mine"}
    ours = combine_settings("local[2]", 2, tmp_path, chosen)
    assert "spark.local.dir" not in ours
    assert ours["spark.driver.extraJavaOptions"] == "-Djava.io.tmpdir=/mine"


def test_the_python_of_the_workers(defaults: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/other")
    assert choose_python("local[2]", {}) == sys.executable
    assert choose_python("yarn", {}) == "/usr/bin/other"
    defaults.write_text("spark.pyspark.python ./environment/bin/python\n")
    assert choose_python("yarn", {}) == "./environment/bin/python"
    assert choose_python("local[2]", {"spark.pyspark.python": "p"}) == "p"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", {}),
        ("! a comment\n  # spark.a 1\nother.key 1\n", {}),
        ("spark.a\tx y\n", {"spark.a": "x y"}),
        ("spark.a = b=c\nspark.b:d\n", {"spark.a": "b=c", "spark.b": "d"}),
        ("spark.a one,\\\n   two\r\nspark.b", {"spark.a": "one,two", "spark.b": ""}),
        ("spark.a c\\:d\n", {"spark.a": "c:d"}),
    ],
)
def test_properties(text: str, want: dict[str, str]) -> None:
    assert parse_properties(text) == want


def test_a_file_of_defaults_that_is_no_text(defaults: Path) -> None:
    assert read_spark_defaults() == {}
    defaults.write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match=r"spark-defaults\.conf: cannot be read"):
        read_spark_defaults()


def test_the_page_explains_every_setting() -> None:
    documented = set(re.findall(r"`(spark\.[\w.]+)`", PAGE.read_text(encoding="utf-8")))
    ours = {
        *settings.DEFAULTS,
        *settings.REQUIRED,
        *settings.LOOPBACK,
        "spark.local.dir",
        "spark.sql.shuffle.partitions",
    }
    assert ours <= documented


def ask(*words: str, conf_dir: Path, trace: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wiretide", "query", str(trace), SQL, "--on", "local[1]", *words]
    environ = os.environ | {"SPARK_CONF_DIR": str(conf_dir)}
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("spark.ui.enabeld=true", "spark.ui.enabeld: Spark has no such setting; expected spark.ui.enabled?"),
        ("spark.executor.memory=-1g", "expected a size, for example 4g"),
        (
            "spark.sql.adaptive.enabled=perhaps",
            "spark.sql.adaptive.enabled=perhaps: The value 'perhaps' in the config",
        ),
    ],
)
def test_a_wrong_setting_is_one_line(setting: str, message: str, tmp_path: Path) -> None:
    trace = write_links(tmp_path, 31)[0].path
    done = ask("--conf", setting, conf_dir=tmp_path, trace=trace)
    assert done.returncode in (1, 2)
    assert message in done.stderr.replace("\n", " ")
    assert done.stdout == ""
    if done.returncode == 1:
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.spark
def test_settings_reach_spark(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.ui.enabled true\nspark.ui.port 0\nspark.driver.memory 1g\nspark.shuffle.compress true\n"
        "spark.sql.adaptive.enabled true\n"
    )
    program = (
        "from highlevel.spark.session.session import close_session, start_session\n"
        "spark = start_session('local[1]', chosen={'spark.driver.memory': '900m', 'spark.some.library': 'x'})\n"
        "conf = spark.sparkContext.getConf()\n"
        "for key in ('driver.memory', 'shuffle.compress', 'sql.adaptive.enabled', 'log.level', 'some.library'):\n"
        "    print(key, conf.get(f'spark.{key}'))\n"
        "print(spark.conf.get('spark.sql.adaptive.enabled'), spark.sparkContext.uiWebUrl.startswith('http://'))\n"
        "close_session(spark)\n"
    )
    environ = os.environ | {"SPARK_CONF_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "driver.memory 900m",
        "shuffle.compress true",
        "sql.adaptive.enabled false",
        "log.level ERROR",
        "some.library x",
        "false True",
    ], done.stderr
