"""Shared fixtures of all tests: captures, one Spark session, the order, and a check that fast tests start no JVM.

The order: tests without the mark `spark` first, those with it last, random inside each group (pytest-randomly prints
the seed). With `-n` there are several processes; `-n auto` starts one more than there are cores. Marked tests take
longest, so they begin. All files that use the session run in one process; the other files are distributed one by one,
in random order. A test without the mark finds no session, and a `java` that refuses and tells on it, in its own process
and in its children.
"""

import functools
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import hypothesis
import pytest
from hypothesis.configuration import set_hypothesis_home_dir
from xdist.scheduler import LoadScopeScheduling

from tests.references.indicators import write_indicators

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

Rounds = Callable[[int], range]
"""A function that returns the seeds of a number of rounds: those of one round in `--share`."""

StartedThreads = Callable[[], list[threading.Thread]]

# A slow machine is not a wrong result, and examples found on one run must not change the next: the seed says it all.
hypothesis.settings.register_profile("wiretide", database=None, deadline=None, print_blob=True)
hypothesis.settings.load_profile("wiretide")


SEEDS = ("seed", "block", "part")
"""Parameters that change only the random streams. The parameter sets of tests with the mark `drawn` count as seeds."""

SHARES = {"soak": 1, "quick": 10}
"""Of so many seeds a run with this option draws one."""

SHARE = 5
"""The same for a run without these options, which should end within 30 minutes on two cores. The number is odd, because
tests do something else with each second or fourth seed.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help=f"leave out tests marked `spark` or `slow`, and draw one seed of {SHARES['quick']}",
    )
    parser.addoption("--soak", action="store_true", help="kill processes at every moment, and draw many more seeds")
    parser.addoption("--share", type=int, metavar="N", help=f"draw one seed of N (default {SHARE}; 1 draws all)")


def pytest_configure(config: pytest.Config) -> None:
    """Let Hypothesis write into the environment only, put the environment's commands on PATH, and let Ctrl-C be.

    A shell starts jobs in the background with SIGINT ignored, and so would be every process that tests start.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    set_hypothesis_home_dir(Path(sys.prefix) / "cache" / "hypothesis")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ.get("PATH", os.defpath)])


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse a test that `make quick` leaves out without a reason."""
    for mark in item.iter_markers("slow"):
        if len(mark.args) != 1:
            raise pytest.UsageError(f"{item.nodeid}: got @pytest.mark.slow{mark.args}, expected one reason")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that start a JVM go last, or first among several processes; the order inside both groups stays random."""
    kept = {*draw([item for item in items if is_quick(item) or not config.getoption("quick")], share_of(config))}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
    first = hasattr(config, "workerinput")
    items.sort(key=lambda item: (item.get_closest_marker("spark") is not None) is not first)


def is_quick(item: pytest.Item) -> bool:
    """Whether `--quick` runs a test whose seed is drawn."""
    return item.get_closest_marker("spark") is None and item.get_closest_marker("slow") is None


def draw(items: Iterable[pytest.Item], share: int) -> Iterator[pytest.Item]:
    """Yield the tests without a seed, and one of `share` of those with one."""
    sets: Counter[str] = Counter()
    for item in sorted(items, key=lambda item: item.nodeid):
        values = item.callspec.params if hasattr(item, "callspec") else {}
        seeds = [values[name] for name in SEEDS if isinstance(values.get(name), int)]
        if item.get_closest_marker("drawn"):
            test = item.nodeid.partition("[")[0]
            seeds.append(sets[test])
            sets[test] += 1
        if all(seed % share == 0 for seed in seeds):
            yield item


def share_of(config: pytest.Config) -> int:
    """Return of how many seeds a run draws one."""
    share: int | None = config.getoption("share")
    return share or next((share for option, share in SHARES.items() if config.getoption(option)), SHARE)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one process more than there are cores: many tests wait for other processes, for example for a JVM."""
    return (os.cpu_count() or 1) + 1


class FileScheduling(LoadScopeScheduling):
    """Distribute whole files to processes, so that each file runs its setup once.

    Files with the session are one group.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "spark" if uses_session(self.config.rootpath / path) else path


@functools.cache
def uses_session(path: Path) -> bool:
    """Whether a file has a test or a fixture that takes the fixture `spark`."""
    return re.search(r"^def \w+\([^)]*\bspark\b", path.read_text("utf-8"), re.MULTILINE) is not None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    return FileScheduling(config, log)


@pytest.fixture(scope="session")
def captures() -> Path:
    """The folder of real captures with known truth: WIRETIDE_CAPTURES, or `shared/captures` beside the repository."""
    folder = Path(os.environ.get("WIRETIDE_CAPTURES", ROOT.parent / "shared" / "captures"))
    if not folder.is_dir():
        pytest.skip(f"no captures in {folder}; WIRETIDE_CAPTURES names their folder")
    return folder


@pytest.fixture
def indicators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the ready query `indicators` reads by default, in the working directory of the test."""
    monkeypatch.chdir(tmp_path)
    return write_indicators(tmp_path / "indicators.arcs")


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
def _no_jvm_unless_marked(request: pytest.FixtureRequest, _refusing_java: Path) -> Iterator[None]:
    """Fail a test that starts a JVM, or has a child that does, without the mark `spark`."""
    if request.node.get_closest_marker("spark"):
        yield
        return
    calls = _refusing_java / "calls"
    with pytest.MonkeyPatch.context() as hidden:  # not the test's own, which may undo what it has done
        hidden.setenv("JAVA_HOME", str(_refusing_java))
        hidden.setenv("PATH", os.pathsep.join([str(_refusing_java / "bin"), os.environ["PATH"]]))
        pyspark = sys.modules.get("pyspark")
        if pyspark is not None:  # the session of marked tests that this process has run before
            for name in ("_gateway", "_jvm", "_active_spark_context"):
                hidden.setattr(pyspark.SparkContext, name, None)
        yield
        pyspark = sys.modules.get("pyspark")
        running = pyspark is not None and pyspark.SparkContext._gateway is not None
    told = calls.read_text() if calls.exists() else ""
    calls.unlink(missing_ok=True)
    if told or running:
        pytest.fail(f"{request.node.nodeid} is not marked `spark` but started a JVM: {told or 'its gateway is open'}")


@pytest.fixture(autouse=True)
def _definitions_are_of_one_test() -> Iterator[None]:
    """Let each test begin without aggregates and functions of users, and take away what it defines."""
    from lowlevel.expressions.user_functions import DEFINED as FUNCTIONS
    from queries.binding.user_aggregates import DEFINED as AGGREGATES

    with mock.patch.dict(AGGREGATES, clear=True), mock.patch.dict(FUNCTIONS, clear=True):
        yield


@pytest.fixture(scope="session")
def rounds(pytestconfig: pytest.Config) -> Rounds:
    """Return the seeds of a test that repeats itself with random streams."""
    return lambda count: range(0, count, share_of(pytestconfig))


@pytest.fixture(scope="session")
def soak(pytestconfig: pytest.Config) -> bool:
    """Whether processes are killed at every moment. Each kill costs the start of a JVM."""
    return bool(pytestconfig.getoption("soak"))


@pytest.fixture
def started_threads() -> StartedThreads:
    """Tell which threads were started since the test began: a process may have others, of pytest or a session."""
    before = {*threading.enumerate()}
    return lambda: [thread for thread in threading.enumerate() if thread not in before]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """One Spark session of two cores for all marked tests; it listens on loopback and writes to temporary folders."""
    from highlevel.spark.session.java import require_java
    from highlevel.spark.session.session import close_session, start_session

    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        # Set the environment variables of start_session() here, so that the patch restores them at the end.
        environment.setenv("JAVA_HOME", str(require_java()))
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("SPARK_LOCAL_DIRS", str(scratch))
        started = start_session("local[2]", name="wiretide-tests", log=scratch / "log")
        yield started
        close_session(started)
