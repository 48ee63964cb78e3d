"""What all tests share: the captures, one Spark session, the order, and the proof that fast tests start no JVM.

The order: tests without the mark `spark` first, those with it last, random inside each group (pytest-randomly prints
the seed). A test without the mark finds a `java` that refuses and tells on it, in its own process and in its children.
"""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import hypothesis
import pytest
from hypothesis.configuration import set_hypothesis_home_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

# A slow machine is not a wrong result, and examples found on one run must not change the next: the seed says it all.
hypothesis.settings.register_profile("wiretide", database=None, deadline=None, print_blob=True)
hypothesis.settings.load_profile("wiretide")


def pytest_configure(config: pytest.Config) -> None:
    """Keep what Hypothesis writes out of the repository, put the environment's commands on PATH, and let Ctrl-C be.

    A shell starts jobs in the background with SIGINT ignored, and so would be every process that tests start.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    scratch = tempfile.mkdtemp(prefix="wiretide-hypothesis-")
    config.add_cleanup(lambda: shutil.rmtree(scratch))
    set_hypothesis_home_dir(scratch)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ.get("PATH", os.defpath)])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start a JVM go last; a stable sort keeps the random order inside both groups."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)


@pytest.fixture(scope="session")
def captures() -> Path:
    """The folder of real captures with known truth: WIRETIDE_CAPTURES, or `shared/captures` beside the repository."""
    folder = Path(os.environ.get("WIRETIDE_CAPTURES", ROOT.parent / "shared" / "captures"))
    if not folder.is_dir():
        pytest.skip(f"no captures in {folder}; WIRETIDE_CAPTURES names their folder")
    return folder


@pytest.fixture(scope="session")
def _refusing_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Java home whose `java` writes down its arguments in `calls` and fails."""
    home = tmp_path_factory.mktemp("refusing-java")
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho \"java $*\" >>'{home}/calls'\nexit 1\n")
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _no_jvm_unless_marked(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _refusing_java: Path
) -> Iterator[None]:
    """Fail a test that starts a JVM, or has a child that does, without the mark `spark`."""
    if request.node.get_closest_marker("spark"):
        yield
        return
    calls = _refusing_java / "calls"
    monkeypatch.setenv("JAVA_HOME", str(_refusing_java))
    monkeypatch.setenv("PATH", os.pathsep.join([str(_refusing_java / "bin"), os.environ["PATH"]]))
    yield
    told = calls.read_text() if calls.exists() else ""
    calls.unlink(missing_ok=True)
    pyspark = sys.modules.get("pyspark")
    running = pyspark is not None and pyspark.SparkContext._gateway is not None
    if told or running:
        pytest.fail(f"{request.node.nodeid} is not marked `spark` but started a JVM: {told or 'its gateway is open'}")


@pytest.fixture(autouse=True)
def _aggregates_are_of_one_test() -> Iterator[None]:
    """Let each test begin without aggregates of users, and take away what it defines."""
    from queries.user_aggregates import DEFINED

    with mock.patch.dict(DEFINED, clear=True):
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """One Spark session of two cores for all marked tests; it listens on loopback and writes to temporary folders."""
    from highlevel.spark.java import require_java
    from highlevel.spark.session import close, session

    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        # What session() sets in the environment is set here, to be put back at the end.
        environment.setenv("JAVA_HOME", str(require_java()))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("SPARK_LOCAL_DIRS", str(scratch))
        started = session("local[2]", name="wiretide-tests", log=scratch / "log")
        yield started
        close(started)
