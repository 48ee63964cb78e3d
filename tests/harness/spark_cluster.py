"""A standalone cluster of Spark on this machine, whose workers see only what the guide says that they need.

Each worker runs in namespaces of its own (mounts, processes, the name of the host) and at an address of its own. Its
root contains the folders of the system, Spark, one shared folder, and an empty home: no repository, no virtual
environment, no compiled kernels. The network is that of this machine; all servers listen on loopback.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
SYSTEM_FOLDERS = ("usr", "lib", "lib64", "bin", "sbin", "etc", "dev")
JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Djava.net.preferIPv4Stack=true")

WORKER = r"""
set -eu
root=$1 shared=$2 spark=$3 java=$4; shift 4
for name in $SYSTEM_FOLDERS; do
  if [ -L "/$name" ]; then cp -a "/$name" "$root/$name"
  elif [ -d "/$name" ]; then mkdir -p "$root/$name"; mount --rbind "/$name" "$root/$name"; fi
done
for folder in "$shared" "$java"; do
  case $folder in /usr/*) ;; *) mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder" ;; esac
done
mkdir -p "$root/proc" "$root/tmp" "$root/srv/worker" "$root/opt/spark"
mount --bind "$spark" "$root/opt/spark"
mount -t proc proc "$root/proc"
hostname "$NAME"
echo "$ADDRESS $NAME" > "$root/hosts"
mount --bind "$root/hosts" "$root/etc/hosts"
exec chroot "$root" /usr/bin/env -i HOME=/srv/worker PATH=/usr/bin:/bin SPARK_HOME=/opt/spark \
  SPARK_SCALA_VERSION=2.13 SPARK_LOCAL_IP="$ADDRESS" "$java/bin/java" "$@"
"""
"""The start of a worker, inside its new namespaces."""

SPARK_SECONDS = 120.0
"""Longest time to wait for a process of the cluster. A busy machine is no wrong result."""


def why_no_namespaces() -> str | None:
    """Return why this system refuses the namespaces of the workers, or None."""
    if shutil.which("unshare") is None:
        return "there is no program unshare"
    done = subprocess.run([*_unshare(), "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"the system refuses namespaces: {done.stderr.strip()}"


def _unshare() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--mount", "--uts", "--pid", "--fork", "--kill-child"]


class Cluster:
    """A master, and workers of one core each with the names worker-1, worker-2 …

    `folder` contains the logs, the roots of the workers, and the folder `shared`, which all workers see at this path.
    """

    def __init__(self, folder: Path, java_home: Path) -> None:
        self.folder = folder
        self.java_home = java_home
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.port = _find_free_port()
        self.master: subprocess.Popen[bytes] | None = None
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._started_workers = 0

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start_master(self) -> None:
        """Start the master, or start it again after `kill_master`. It continues with its applications and workers."""
        recovery = self.folder / "recovery"
        recovery.mkdir(exist_ok=True)
        options = [*JAVA, "-Dspark.deploy.recoveryMode=FILESYSTEM", f"-Dspark.deploy.recoveryDirectory={recovery}"]
        options.append("-Dspark.deploy.recoveryTimeout=10")  # for workers and drivers that do not live any more
        words = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        command = ["-cp", f"{SPARK_HOME}/jars/*", *options, "org.apache.spark.deploy.master.Master", *words]
        environment = {"PATH": os.environ["PATH"], "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK_HOME)}
        path = self.folder / "master.log"
        begin = path.stat().st_size if path.exists() else 0  # the log of an earlier start is not an answer
        with path.open("ab") as log:
            self.master = subprocess.Popen(
                [f"{self.java_home}/bin/java", *command], stdout=log, stderr=log, env=environment, cwd=self.folder
            )
        self._wait_for(self.master, "master.log", "I have been elected leader", "the master", begin)

    def start_worker(self) -> str:
        """Start a worker, and return its name."""
        self._started_workers += 1
        name = f"worker-{self._started_workers}"
        root = self.folder / name
        root.mkdir()
        # Executors with one address would read each other's shuffle files from the disk, but they do not share it.
        host = f"127.0.1.{self._started_workers}"
        words = ["--host", host, "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", "/tmp/work"]
        command = ["-cp", "/opt/spark/jars/*", *JAVA, "org.apache.spark.deploy.worker.Worker", *words, self.url]
        arguments = [str(part) for part in (root, self.shared, SPARK_HOME, self.java_home)]
        environment = os.environ | {"SYSTEM_FOLDERS": " ".join(SYSTEM_FOLDERS), "NAME": name, "ADDRESS": host}
        with (self.folder / f"{name}.log").open("wb") as log:
            self.workers[name] = subprocess.Popen(
                [*_unshare(), "sh", "-c", WORKER, "sh", *arguments, *command],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
            )
        self._wait_for(self.workers[name], f"{name}.log", "Successfully registered with master", name)
        return name

    def kill_master(self) -> None:
        assert self.master is not None
        self.master.kill()
        self.master.wait()

    def kill_worker(self, name: str) -> None:
        """Kill a worker with all its executors, as a machine that loses its power."""
        worker = self.workers.pop(name)
        worker.kill()
        worker.wait()

    def kill_executor(self, random: Random) -> bool:
        """Kill the JVM of the newest executor of a random worker. Return False if no worker has an executor."""
        newest = [pids[-1] for name in sorted(self.workers) if (pids := self._executors(name))]
        if newest:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(random.choice(newest), signal.SIGKILL)
                return True
        return False

    def _executors(self, name: str) -> list[int]:
        pids = _descendants(self.workers[name].pid)
        return [pid for pid in pids if b"CoarseGrainedExecutorBackend" in _words(pid)]

    def stop(self) -> None:
        """End all processes."""
        for name in list(self.workers):
            self.kill_worker(name)
        if self.master is not None:
            self.kill_master()

    def _wait_for(self, process: subprocess.Popen[bytes], log: str, text: str, what: str, begin: int = 0) -> None:
        """Return when a process that was just started has logged a text after `begin` bytes."""
        path = self.folder / log
        start = time.monotonic()
        while True:
            logged = path.read_bytes()[begin:].decode("utf-8", errors="replace")
            if process.poll() is not None or time.monotonic() - start > SPARK_SECONDS:
                raise RuntimeError(f"{what} did not start: {logged[-2000:]}")
            if text in logged:
                return
            time.sleep(0.1)


@contextlib.contextmanager
def start_cluster(folder: Path, java_home: Path, worker_count: int = 2) -> Iterator[Cluster]:
    """Start a cluster, and end all its processes."""
    cluster = Cluster(folder, java_home)
    try:
        cluster.start_master()
        for _ in range(worker_count):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.stop()


def _find_free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, directly or not, oldest first."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, waiting = [], [pid]
    while waiting:
        waiting += (started := sorted(children.get(waiting.pop(), [])))
        found += started
    return sorted(found)
