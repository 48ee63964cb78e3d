"""The checks of executors before the first task with data: what they find, and what the user is told."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from highlevel.spark.cluster import cluster_checks, executor_checks
from highlevel.spark.cluster.cluster_checks import PACKAGES, _explain, check_executors, describe_path, judge
from highlevel.spark.cluster.executor_checks import check_executor, try_folder
from highlevel.spark.errors import FolderError, RunError
from highlevel.spark.remote.object_store import ObjectStore
from tests.harness.links import write_links
from tests.harness.object_store import serve_objects

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def request_(tmp_path: Path) -> dict:
    path = tmp_path / "a.pcap"
    path.write_bytes(b"12345")
    (tmp_path / "token").touch()
    return {
        "packages": PACKAGES,
        "modules": ["highlevel.aggregation"],
        "paths": [str(path), str(tmp_path)],
        "folder": str(tmp_path),
        "token": "token",
        "store": None,
        "plans": cloudpickle.dumps(()),
    }


def found_here(request: dict) -> dict:
    (document,) = check_executor(request)
    return document | {"host": "worker-2", "kernels": 0}


def test_an_equal_host_has_no_problems(request_: dict) -> None:
    document = found_here(request_)
    assert document["paths"] == {request_["paths"][0]: 5, request_["paths"][1]: 0}
    assert judge([document, document], request_) == ([], [])
    assert sorted(path.name for path in Path(request_["folder"]).iterdir()) == ["a.pcap", "token"]


def test_problems_name_host_and_path(request_: dict) -> None:
    path = request_["paths"][0]
    document = found_here(request_)
    document["paths"] |= {path: "No such file or directory"}
    document["packages"] |= {"numba": None, "wiretide": "0.0.1", "numpy": "2.99.1"}
    document |= {"folder": "it does not exist there", "kernels": 7}
    problems, warnings = judge([document], request_)
    assert problems[0].startswith("host worker-2 has wiretide 0.0.1, this machine has ")
    assert problems[1].startswith("host worker-2 has no package numba, expected numba ")
    remedy = "this machine can; all machines need it under the same path"
    assert problems[2] == f"host worker-2 cannot read {path}: No such file or directory; {remedy}"
    remedy = "it does not exist there; all machines must share it"
    assert problems[3:] == [f"host worker-2 cannot use the folder of the run, {request_['folder']}: {remedy}"]
    assert warnings[0].startswith("host worker-2 has numpy 2.99.1, this machine has 2.")
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("found", "here", "problem"),
    [
        (5, 5, None),
        (6, 5, None),  # the file has grown
        (4, 5, "sees 4 bytes in /a, this machine sees 5"),
        ("Permission denied", "Not found", "cannot read /a: Permission denied; neither can this machine (Not found)"),
    ],
)
def test_sizes_and_reasons(found: int | str, here: int | str, problem: str | None) -> None:
    text = describe_path("/a", found, here)
    assert text is None if problem is None else str(text).startswith(problem)


def test_the_folder_of_a_run(tmp_path: Path) -> None:
    assert try_folder(str(tmp_path / "missing"), "token") == "it does not exist there"
    assert try_folder(str(tmp_path), "token") == "it is another folder than on the driver"
    (tmp_path / "token").touch()
    assert try_folder(str(tmp_path), "token") is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    tmp_path.chmod(0o500)
    assert try_folder(str(tmp_path), "token") == "it cannot be written: Permission denied"
    tmp_path.chmod(0o700)


def test_modules_that_cannot_be_imported(request_: dict) -> None:
    (document,) = check_executor(request_ | {"modules": ["no_such_module"]})
    problems, _ = judge([document], request_)
    assert len(problems) == 1
    assert "cannot import Wiretide: ModuleNotFoundError: No module named 'no_such_module'" in problems[0]


def test_a_function_of_a_module_that_a_host_lacks(
    request_: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_on_the_driver.py").write_text("def halve(port):\n    return port // 2\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        halve = importlib.import_module("only_on_the_driver").halve
        request_["plans"] = cloudpickle.dumps((halve,))
        assert judge([found_here(request_)], request_) == ([], [])
    del sys.modules["only_on_the_driver"]
    problems, _ = judge([found_here(request_)], request_)
    missing = "ModuleNotFoundError: No module named 'only_on_the_driver'"
    assert [problem.partition(";")[0] for problem in problems] == [f"host worker-2 cannot load the queries: {missing}"]


def test_a_python_that_is_missing_on_a_host() -> None:
    report = (
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: "
        "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 0): java.io.IOException: "
        'Cannot run program "/venv/bin/python": error=2, No such file or directory\n\tat java.base/x'
    )
    text = str(_explain(report))
    assert text.startswith("host 10.0.0.7 cannot run tasks: there is no Python /venv/bin/python; expected Python 3.")


def test_this_machine_is_not_checked(tmp_path: Path) -> None:
    class Local:
        master = "local[2]"

    check_executors(Local(), [tmp_path / "missing"], [], print, tmp_path)  # type: ignore[arg-type]


@pytest.mark.spark
@pytest.mark.slow("starts a cluster of its own")
def test_executors_of_another_process(tmp_path: Path) -> None:
    """A query over `local-cluster` answers as inline; a path that an executor does not see is named with the host."""
    trace = write_links(tmp_path, 41)[0].path
    program = (
        "import sys, pathlib, wiretide\n"
        "from highlevel.spark.cluster import cluster_checks\n"
        "from highlevel.spark.session.session import close_session, start_session\n"
        "spark = start_session('local-cluster[1,1,1024]')\n"
        "sql = 'SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP'\n"
        "rows = wiretide.query(sql, sys.argv[1], on='local').to_pylist()\n"
        "want = wiretide.query(sql, sys.argv[1]).to_pylist()\n"
        "print(sorted(map(str, rows)) == sorted(map(str, want)), len(want) > 3)\n"
        "judged = cluster_checks.look_at\n"
        "cluster_checks.look_at = lambda path: judged(path) + 1\n"  # this machine sees another file
        "try:\n"
        "    wiretide.query(sql, sys.argv[1], on='local')\n"
        "except Exception as error:\n"
        "    print(error)\n"
        "close_session(spark)\n"
    )
    command = [sys.executable, "-c", program, str(trace)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ.copy(), capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert lines[0] == "True True", done.stderr
    size = trace.stat().st_size
    assert f"sees {size:,} bytes in {trace}, this machine sees {size + 1:,}" in lines[1]
    assert lines[1].startswith("host ")


def test_only_the_first_problems_are_listed(request_: dict, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = found_here(request_) | {"kernels": "ImportError: x", "folder": "it does not exist there", "paths": {}}
    document["packages"] |= dict.fromkeys(PACKAGES)
    monkeypatch.setattr("highlevel.spark.cluster.cluster_checks._run", lambda *_: [document])
    monkeypatch.setattr("highlevel.spark.cluster.cluster_checks._fetch_archives", lambda *_: None)

    with pytest.raises(RunError, match=r"and 3 more problems$"):
        check_executors(Cluster(), [], [], print, tmp_path)  # type: ignore[arg-type]
    assert not list(tmp_path.glob(".preflight-*"))


class Cluster:
    """Stands for a SparkContext."""

    master = "spark://host:7077"


@pytest.fixture
def one_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This process stands for an executor. Yield the URL of an object store."""

    def run(_: object, check: Callable[[dict], Iterator[dict]], request: dict, *__: object) -> list[dict]:
        return [document | {"host": "worker-2", "kernels": 0} for document in check(request)]

    monkeypatch.setattr(cluster_checks, "_run", run)
    monkeypatch.setattr(cluster_checks, "_fetch_archives", lambda *_: None)
    monkeypatch.setattr(executor_checks, "STORE_SECONDS", 0)
    with serve_objects() as url:
        yield url


def test_executors_write_into_the_object_store_of_a_run(one_host: str) -> None:
    store = ObjectStore("s3a://lake/run")
    store.create("newest", b"")
    check_executors(Cluster(), [], [], print, store=store)  # type: ignore[arg-type]
    assert {*store.list("")} == {"newest"}


def test_an_executor_that_cannot_use_the_object_store_is_named(one_host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, names = ObjectStore("s3a://lake/other"), "host worker-2 cannot use s3a://lake/other: "
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(RunError, match=rf"^{names}FolderError: .*: cannot read .*: no answer for 0 s: .*; the execut"):
        check_executors(Cluster(), [], [], print, store=store)  # type: ignore[arg-type]
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", one_host)
    monkeypatch.setattr(store, "create", lambda *_: "")  # the driver writes somewhere else
    with pytest.raises(RunError, match=f"^{names}it is another store than on the driver; the executors need boto3, "):
        check_executors(Cluster(), [], [], print, store=store)  # type: ignore[arg-type]
    assert store.list("") == {}
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(RunError, match=rf"^{names}MissingPackageError: .* requires boto3, which is not installed: pip"):
        check_executors(Cluster(), [], [], print, store=store)  # type: ignore[arg-type]


def test_the_first_error_is_raised_if_the_object_store_does_not_delete(
    one_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise FolderError("the store does not answer")

    store = ObjectStore("s3a://lake/silent")
    monkeypatch.setattr(store, "list", fail)
    with monkeypatch.context() as patch:
        patch.setattr(store, "create", lambda *_: "")  # the driver writes somewhere else
        with pytest.raises(RunError, match="it is another store than on the driver"):
            check_executors(Cluster(), [], [], print, store=store)  # type: ignore[arg-type]
    monkeypatch.setattr(store, "create", fail)
    monkeypatch.setattr(store, "list", lambda *_: pytest.fail("a second request that is not answered"))
    with pytest.raises(FolderError, match="the store does not answer"):
        check_executors(Cluster(), [], [], print, store=store)  # type: ignore[arg-type]
