"""The archive of Spark's classes: it is used if it exists, and a wrong one changes nothing that users see."""

from pathlib import Path

import pytest

from highlevel.spark import class_archive
from highlevel.spark.class_archive import archive_options, archive_path
from highlevel.spark.java import require_java
from tests.harness.command_line import run
from tests.harness.links import write_links


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Java runtime, with an empty folder of archives."""
    monkeypatch.setattr(class_archive, "FOLDER", tmp_path / "classes")
    (tmp_path / "classes").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "release").write_text("JAVA_VERSION=17")
    return tmp_path / "home"


def test_an_archive_is_used_unless_the_user_selects_another(home: Path) -> None:
    assert archive_options(home, "") == ""
    archive_path(home).write_bytes(b"")
    assert archive_options(home, "-Xmx2g").startswith(f" -XX:SharedArchiveFile={archive_path(home)} ")
    for option in ("-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=mine.jsa", "-Xshare:off"):
        assert archive_options(home, option) == ""


def test_another_java_has_another_archive(home: Path) -> None:
    first = archive_path(home)
    (home / "release").unlink()
    assert archive_path(home) != first


@pytest.mark.spark
def test_a_damaged_archive_changes_nothing_that_users_see(tmp_path: Path) -> None:
    capture = write_links(tmp_path, 8)[0].path
    damaged = tmp_path / "damaged.jsa"
    path = archive_path(require_java())
    damaged.write_bytes(path.read_bytes()[:1_000_000] if path.exists() else b"no archive")
    options = f"spark.driver.extraJavaOptions=-XX:SharedArchiveFile={damaged} -Xlog:disable -Xlog:all=warning:stderr"
    sql = "SELECT count(*) AS n FROM packets"
    status, out, err = run("query", str(capture), sql, "--on", "local[1]", "--conf", options, cwd=tmp_path)
    assert (status, err) == (0, "")
    assert (status, out, err) == run("query", str(capture), sql, cwd=tmp_path)
