"""The wait for the executors of a simulated cluster: their number, the longest time, the warnings and the errors."""

import re
import socket
from types import SimpleNamespace

import pytest

from capture.cores import count_cores
from highlevel.spark.cluster import executors
from highlevel.spark.cluster.executors import check_master, plan_cores, wait_for_executors
from highlevel.spark.errors import RunError


class Answers:
    """Stands for a SparkContext: the number of executors at each call; the last one stays."""

    def __init__(
        self, master: str, counts: list[int], conf: dict[str, str] | None = None, stopped: bool = False
    ) -> None:
        self.master, self._counts, self._settings, self._stopped = master, counts, conf or {}, stopped
        self._jsc = self

    def sc(self) -> "Answers":
        return self

    def isStopped(self) -> bool:  # as in Java
        return self._stopped

    def getExecutorIds(self) -> "Answers":  # as in Java
        return self

    def size(self) -> int:
        return self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]

    def getConf(self) -> dict[str, str]:  # as in Spark
        return self._settings


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only sleeping advances."""
    now = [1000.0]
    sleep = lambda seconds: now.__setitem__(0, now[0] + seconds)  # noqa: E731
    monkeypatch.setattr(executors, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return now


def wait(context: Answers) -> tuple[int, list[str]]:
    said: list[str] = []
    return wait_for_executors(context, said.append), said  # type: ignore[arg-type]


def test_this_machine_has_no_executors_to_wait_for(clock: list[float]) -> None:
    assert wait(Answers("local[2]", [0])) == (0, [])
    assert clock == [1000.0]


@pytest.mark.parametrize(
    ("master", "settings", "cores"),
    [
        *(("local", {}, 1), ("local[3]", {}, 3), ("local[4, 2]", {}, 4), ("local[*]", {}, count_cores())),
        *(("local-cluster[2,3,1024]", {}, 6), ("yarn", {}, 2), ("yarn", {"spark.executor.cores": "4"}, 8)),
        ("k8s://a", {"spark.executor.instances": "3", "spark.executor.cores": "2"}, 6),
        *(("spark://a:7077", {}, 2), ("spark://a:7077", {"spark.cores.max": "16"}, 16)),
        ("spark://a:7077", {"spark.cores.max": "many"}, 2),
    ],
)
def test_the_cores_are_those_of_the_master_and_its_settings(master: str, settings: dict[str, str], cores: int) -> None:
    assert plan_cores(master, settings) == cores


def test_an_open_number_is_awaited_until_no_more_come() -> None:
    assert wait(Answers("spark://a:7077", [0, 0, 1, 1, 2, 3])) == (3, [])


@pytest.mark.parametrize(
    ("master", "conf", "wanted"),
    [
        ("local-cluster[3,1,1024]", {}, 3),
        ("yarn", {}, 2),
        ("k8s://https://a", {"spark.executor.instances": "5"}, 5),
    ],
)
def test_a_known_number_is_awaited(master: str, conf: dict[str, str], wanted: int, clock: list[float]) -> None:
    assert wait(Answers(master, [0, *[1] * 30, wanted], conf)) == (wanted, [])
    assert clock[0] > 1003


def test_too_few_executors_are_used_and_told() -> None:
    count, said = wait(Answers("yarn", [0, 1], {"spark.executor.instances": "4"}))
    assert (count, said) == (1, ["warning: 1 of 4 executors have started on yarn; continuing with them"])


def test_dynamic_allocation_decides_the_number() -> None:
    conf = {"spark.executor.instances": "4", "spark.dynamicAllocation.enabled": "true"}
    assert wait(Answers("yarn", [0, 1], conf)) == (1, [])


def test_a_cluster_without_executors_is_one_line_and_then_an_error(clock: list[float]) -> None:
    said: list[str] = []
    conf = {"spark.executor.memory": "64g", "spark.driver.host": "driver", "spark.driver.port": "4711"}
    problem = (
        "no executor started on spark://a:7077 within 300 s; requested: executors with 64g of memory and the default "
        "number of cores each; check that a worker has so much free, and that executors can connect to the driver at "
        "driver:4711"
    )
    with pytest.raises(RunError, match=re.escape(problem)):
        wait_for_executors(Answers("spark://a:7077", [0], conf), said.append)  # type: ignore[arg-type]
    assert len(said) == 1
    assert said[0].startswith(
        "warning: no executor has started on spark://a:7077 after 10 s; requested: executors with"
    )
    assert said[0].endswith("waiting up to 300 s")


def test_an_application_that_the_cluster_ended_is_an_error() -> None:
    with pytest.raises(RunError, match="yarn ended the application while it waited for executors"):
        wait(Answers("yarn", [0], stopped=True))


def test_a_master_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{port}")
    with pytest.raises(RunError, match=rf"the master does not answer \(127.0.0.1:{port}: Connection refused\)"):
        check_master(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize("master", ["local", "yarn", "spark://", "spark://a", "spark://a:b"])
def test_other_texts_are_left_to_spark(master: str) -> None:
    check_master(master)
