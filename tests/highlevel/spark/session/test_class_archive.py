"""The archive of Spark's classes: it is used if it exists, and a wrong one changes nothing that users see."""

from pathlib import Path

import pytest

from highlevel.spark.session import class_archive
from highlevel.spark.session.class_archive import archive_options, find_archive, store_archive
from highlevel.spark.session.java import require_java
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


def store(home: Path) -> Path:
    """Store an archive of six bytes; return its path."""
    (home / "new").write_bytes(b"classes"[:6])
    store_archive(home, home / "new")
    path = find_archive(home)
    assert path is not None
    return path


def test_an_archive_is_used_unless_the_user_selects_another(home: Path) -> None:
    assert archive_options(home, "") == ""
    path = store(home)
    assert archive_options(home, "-Xmx2g").startswith(f" -XX:SharedArchiveFile={path} ")
    for option in ("-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=mine.jsa", "-Xshare:off"):
        assert archive_options(home, option) == ""


def test_a_truncated_archive_is_not_used(home: Path) -> None:
    store(home).write_bytes(b"class")
    assert find_archive(home) is None


def test_another_java_has_another_archive_and_replaces_that_of_the_first(home: Path) -> None:
    first = store(home)
    (home / "release").unlink()
    assert find_archive(home) is None
    assert store(home) != first
    assert not first.exists()


@pytest.mark.spark
def test_a_damaged_archive_changes_nothing_that_users_see(tmp_path: Path) -> None:
    capture = write_links(tmp_path, 8)[0].path
    damaged = tmp_path / "damaged.jsa"
    path = find_archive(require_java())
    content = bytearray(path.read_bytes() if path else bytes(1000))
    content[100:108] = b"\xff" * 8
    damaged.write_bytes(content)
    options = f"spark.driver.extraJavaOptions=-XX:SharedArchiveFile={damaged} -Xlog:disable -Xlog:all=warning:stderr"
    sql = "SELECT count(*) AS n FROM packets"
    expected = run("query", str(capture), sql, cwd=tmp_path)
    assert run("query", str(capture), sql, "--on", "local[1]", "--conf", options, cwd=tmp_path) == expected
